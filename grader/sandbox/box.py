"""The box: bubblewrap around a warmed parent that forks one process for each submission.

What is inside the outer wall: the interpreter and the installed packages, read only; the few modules of the grader that
run an answer; an empty temporary folder of limited size. What is not: the course, its solutions and checks, the
gradebook, anybody's home, the environment, the network, other processes. What a forked process gives up on top of that
is in `parent`.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from grader.sandbox import landlock, syscalls
from grader.sandbox.limits import Limits
from grader.submission import NoVerdict

CODE = "/box"
TEMPORARY = "/tmp"
PACKAGE = Path(__file__).resolve().parent.parent
MODULES = (
    "submission.py", "lesson.py", "sandbox/__init__.py", "sandbox/parent.py", "sandbox/limits.py", "sandbox/landlock.py",
    "sandbox/syscalls.py", "sandbox/player.py", "sandbox/peer.py", "sandbox/arguments.py", "sandbox/graphs.py",
    "sandbox/modules.py", "sandbox/memory.py", "sandbox/objects.py", "sandbox/standins.py", "sandbox/wire.py",
)  # fmt: skip
"""The grader's own modules that go into the box: none of them knows a solution, a check or a gradebook."""

_START_SECONDS = 120.0
_REPLY_SECONDS = 10.0
_SIZE = 128 << 20
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS")


class BoxError(NoVerdict):
    """The box could not be built, or broke: one sentence that says why."""


@dataclass(frozen=True)
class Availability:
    """Whether answers can be boxed on this machine (its truth value); if not, `reason` is a sentence for a person."""

    reason: str = ""

    def __bool__(self) -> bool:
        return not self.reason


@lru_cache(maxsize=1)
def sandbox_available() -> Availability:
    """Try the walls once in this process."""
    if not sys.platform.startswith("linux"):
        return Availability(
            f"the sandbox needs Linux; this is {sys.platform}: grade on Linux (a virtual machine or WSL 2 will do), "
            "or accept with --isolation none that answers run with your own rights"
        )
    if shutil.which("bwrap") is None:
        return Availability(
            "the sandbox needs bubblewrap, which is not installed: sudo apt install bubblewrap "
            "(Fedora: sudo dnf install bubblewrap; Arch: sudo pacman -S bubblewrap)"
        )
    if not landlock.abi():
        return Availability(
            "the sandbox needs Landlock, which this kernel does not have or does not start: Linux 5.13 or newer, "
            "with landlock in the list of the kernel option lsm="
        )
    if not syscalls.supported():
        return Availability("the sandbox knows 64-bit x86 and ARM processors; this one is another")
    try:
        tried = subprocess.run(
            [*_walls(()), "--", "/usr/bin/true"], capture_output=True, text=True, timeout=30, check=False, env={}
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Availability(f"bubblewrap does not run here: {error}")
    if tried.returncode != 0:
        said = tried.stderr.strip().split("\n")[-1][:200] or f"exit code {tried.returncode}"
        return Availability(
            f"bubblewrap cannot make its namespaces here ({said}): inside a container, allow user namespaces; "
            "on Ubuntu 24.04 or newer, give bwrap an AppArmor profile with userns"
        )
    return Availability()


def readable() -> list[str]:
    """Folders of the interpreter and of the installed packages, without those that another one contains."""
    folders = ["/usr", os.path.realpath(sys.base_prefix), *packages()]
    out: list[str] = []
    for folder in sorted(dict.fromkeys(folders), key=len):
        if os.path.isdir(folder) and not any(_inside(folder, kept) for kept in out):
            out.append(folder)
    return out


def packages() -> list[str]:
    """The `site-packages` folders of this interpreter, in the order of its path."""
    return [p for p in map(os.path.abspath, filter(None, sys.path)) if p.endswith(("site-packages", "dist-packages"))]


def _inside(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _secret() -> list[str]:
    """Folders that stay empty in the box even when they lie inside a readable one: the grader, and its course."""
    course = PACKAGE.parent
    whole = [str(course)] if (course / "solutions").exists() or (course / "course").exists() else []
    return [*whole, str(PACKAGE)]


def _walls(binds: Sequence[str]) -> list[str]:
    """Bubblewrap's arguments up to the program."""
    out = [
        shutil.which("bwrap") or "bwrap", "--unshare-all", "--die-with-parent", "--new-session", "--clearenv",
        "--hostname", "box", "--uid", "65534", "--gid", "65534", "--cap-drop", "ALL",
        "--proc", "/proc", "--dev", "/dev", "--perms", "0700", "--size", str(_SIZE), "--tmpfs", TEMPORARY,
    ]  # fmt: skip
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            out += ["--symlink", os.readlink(path), str(path)]
        elif path.is_dir():
            out += ["--ro-bind", str(path), str(path)]
    for folder in readable():
        out += ["--ro-bind", folder, folder]
    for file in ("/etc/ld.so.cache", "/etc/alternatives"):
        out += ["--ro-bind-try", file, file]
    for folder in _secret():
        if any(_inside(folder, kept) for kept in readable()):
            out += ["--tmpfs", folder, "--remount-ro", folder]
    return [*out, *binds, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", "/"]


def command(control: int) -> list[str]:
    """The whole command line; the parent inside talks over the inherited descriptor `control`."""
    binds = []
    for module in MODULES:
        binds += ["--ro-bind", str(PACKAGE / module), f"{CODE}/grader/{module}"]
    environment = {
        "PATH": "/usr/bin:/bin",
        "HOME": TEMPORARY,
        "LANG": "C.UTF-8",
        "MPLBACKEND": "Agg",
        "PYTHONHASHSEED": "0",
    }
    environment |= {"MPLCONFIGDIR": f"{TEMPORARY}/matplotlib", **dict.fromkeys(_THREADS, "1")}
    for name, value in environment.items():
        binds += ["--setenv", name, value]
    settings = json.dumps({"read": [*readable(), CODE, *_libraries()], "temporary": TEMPORARY})
    start = (
        f"import sys; sys.path[:0] = {[CODE, *packages()]!r}; "
        f"from grader.sandbox.parent import main; main({control}, {settings!r})"
    )
    return [*_walls(binds), "--", os.path.realpath(sys.executable), "-s", "-P", "-B", "-c", start]


def _libraries() -> list[str]:
    return [str(p) for p in map(Path, ("/lib", "/lib64", "/lib32")) if p.is_dir() and not p.is_symlink()]


class Box:
    """A running box. Usable as a context manager.

    Raises (start, fork):
        BoxError: when it cannot be built, or is gone.
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        self._fates: dict[int, dict[str, Any]] = {}
        self._last = 0

    def __enter__(self) -> Box:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process id of bubblewrap itself; 0 when the box does not run."""
        return self._process.pid if self._process is not None else 0

    def start(self) -> None:
        """Build the walls and warm the parent; nothing to do when it runs."""
        if self.alive:
            return
        self.close()
        available = sandbox_available()
        if not available:
            raise BoxError(available.reason)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with tempfile.TemporaryFile() as complaints:
            try:
                self._process = subprocess.Popen(
                    command(theirs.fileno()), pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL, stderr=complaints, env={},
                )  # fmt: skip
            finally:
                theirs.close()
            self._control = ours
            message = self._message(time.monotonic() + _START_SECONDS)
            if message is None or "ready" not in message:
                self.close()
                complaints.seek(0)
                said = complaints.read().decode("utf-8", "replace").strip().split("\n")[-1]
                raise BoxError(f"the sandbox did not start: {said[:300] or 'no answer from inside'}")

    def fork(self, limits: Limits) -> tuple[int, socket.socket]:
        """A fresh process for a submission: its number, and the connection to it."""
        self.start()
        assert self._control is not None
        ours, theirs = socket.socketpair()
        self._last += 1
        order = json.dumps({"fork": self._last, "limits": limits.as_dict()}).encode()
        try:
            socket.send_fds(self._control, [order], [theirs.fileno()])
        except OSError:
            ours.close()
            self.close()
            raise BoxError("the sandbox is gone: it was ended from outside, or the machine is out of memory") from None
        finally:
            theirs.close()
        return self._last, ours

    def end(self, number: int) -> dict[str, Any]:
        """End a process and all that it left, and say what became of it: `exit` or `signal`, perhaps `limit`.

        An empty dict when nothing is known, because the box itself is gone.
        """
        if number in self._fates:
            return self._fates.pop(number)
        if self._control is None:
            return {}
        try:
            self._control.send(json.dumps({"end": number}).encode())
        except OSError:
            self.close()
            return {}
        until = time.monotonic() + _REPLY_SECONDS
        while number not in self._fates:
            message = self._message(until)
            if message is None:
                self.close()
                return {}
            if type(message.get("gone")) is int:
                self._fates[message["gone"]] = message
        return self._fates.pop(number)

    def close(self) -> None:
        """End the box and everything in it."""
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(0.5)
            if self._process.poll() is None:
                self._process.kill()
            self._process.wait()
            self._process = None
        self._fates.clear()

    def _message(self, until: float) -> dict[str, Any] | None:
        """The next message of the parent inside; None when it is gone or silent."""
        assert self._control is not None
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        if not poller.poll(max(0, int(1000 * (until - time.monotonic())))):
            return None
        try:
            data = self._control.recv(1 << 16)
            message = json.loads(data) if data else None
        except (OSError, ValueError):
            return None
        return message if isinstance(message, dict) else None
