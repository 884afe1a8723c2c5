"""What runs inside the box: a warmed parent of the processes that hold answers.

The parent imports PyTorch once, then forks for each submission and sees to it that nothing of one reaches the next: it
ends processes and empties their folders. It never reads a byte of a submission; that goes from the judge to the forked
process directly. The forked process shuts the inner walls behind itself (descriptors, limits, Landlock, the filter of
system calls) before it reads the answer.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import select
import signal
import socket
import tempfile
import traceback
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import torch

from grader.sandbox import landlock, syscalls
from grader.sandbox.limits import Limits
from grader.sandbox.player import play
from grader.sandbox.wire import ConnectionLost
from grader.submission import Cell, Submission, forbid

_WARM = (
    "torch", "torch.nn.functional", "numpy.random", "torch.utils._python_dispatch", "torch.nn.utils.rnn", "numpy", "jaxtyping",
    "torch.fx.experimental.symbolic_shapes",  # imported by the first `torch.autograd.grad`
    "matplotlib.pyplot", "einops", "dataclasses", "math", "itertools", "functools", "collections", "random", "typing",
    "time", "string", "statistics", "heapq", "warnings", "contextlib", "inspect", "copy",
)  # fmt: skip
_TICK_MS = 50
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/full")
_FACTS = ("/proc/cpuinfo", "/proc/meminfo")
_PR_SET_DUMPABLE, _PR_SET_CHILD_SUBREAPER, _PR_SET_PDEATHSIG = 4, 36, 1

Fate = dict[str, Any]


@dataclass
class _Child:
    """A process that holds an answer."""

    number: int
    pid: int
    process: int
    """A pidfd: readable when the process has ended."""
    output: int
    home: str
    limits: Limits
    written: int = 0
    exceeded: str = ""
    fate: Fate = field(default_factory=dict)


def main(control: int, settings: str) -> None:
    """Run the parent until the judge is gone."""
    Parent(socket.socket(fileno=control), json.loads(settings)).run()


class Parent:
    """Forks and buries the processes that hold answers."""

    def __init__(self, control: socket.socket, settings: dict[str, Any]) -> None:
        self._control = control
        self._read: list[str] = settings["read"]
        self._temporary: str = settings["temporary"]
        self._children: dict[int, _Child] = {}
        self._spoiled = False

    def run(self) -> None:
        """Obey until the connection ends."""
        libc = ctypes.CDLL(None)
        libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
        libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        _warm()
        self._send({"ready": os.getpid()})
        poller = select.poll()
        poller.register(self._control, select.POLLIN)
        while True:
            for descriptor, event in poller.poll(_TICK_MS if self._children else None):
                if descriptor == self._control.fileno():
                    if not self._obey(poller):
                        return
                else:
                    self._attend(descriptor, event, poller)
            for child in list(self._children.values()):
                self._watch(child)
            if self._spoiled:
                return

    def _send(self, message: dict[str, Any]) -> None:
        with suppress(OSError):
            self._control.send(json.dumps(message).encode())

    def _obey(self, poller: select.poll) -> bool:
        data, descriptors, _, _ = socket.recv_fds(self._control, 1 << 16, 1)
        if not data:
            return False
        order = json.loads(data)
        if "fork" in order:
            self._fork(order["fork"], Limits(**order["limits"]), descriptors[0], poller)
        elif "end" in order:
            child = self._children.get(order["end"])
            if child is None:
                self._send({"gone": order["end"]})
            else:
                self._exceeded(child, "ended")
        return True

    def _fork(self, number: int, limits: Limits, connection: int, poller: select.poll) -> None:
        home = os.path.join(self._temporary, f"answer-{number}")
        os.mkdir(home, 0o700)
        reading, writing = os.pipe()
        pid = os.fork()
        if pid == 0:
            _become(connection, writing, home, self._read, limits)
        os.close(connection)
        os.close(writing)
        os.set_blocking(reading, False)
        child = _Child(number, pid, os.pidfd_open(pid), reading, home, limits)
        self._children[number] = child
        poller.register(child.process, select.POLLIN)
        poller.register(reading, select.POLLIN)

    def _attend(self, descriptor: int, event: int, poller: select.poll) -> None:
        """Something happened to a child: it wrote, or it ended."""
        for child in list(self._children.values()):
            if descriptor == child.output:
                data = b""
                with suppress(BlockingIOError):
                    data = os.read(child.output, 1 << 16)
                child.written += len(data)
                if child.written > child.limits.output:
                    self._exceeded(child, "output")
                if not data and event & select.POLLHUP:
                    poller.unregister(child.output)
            elif descriptor == child.process:
                poller.unregister(child.process)
                with suppress(KeyError):
                    poller.unregister(child.output)
                self._bury(child)

    def _watch(self, child: _Child) -> None:
        """Caps that the kernel does not keep for us."""
        if child.number not in self._children:
            return
        try:
            status = Path(f"/proc/{child.pid}/status").read_text(encoding="ascii", errors="replace")
        except OSError:
            return
        threads = next((int(line.split()[1]) for line in status.split("\n") if line.startswith("Threads:")), 1)
        if threads > child.limits.threads:
            self._exceeded(child, "threads")
        room = os.statvfs(self._temporary)
        if room.f_files and room.f_files - room.f_ffree > child.limits.files + 100 * len(self._children):
            self._exceeded(child, "files")

    def _exceeded(self, child: _Child, limit: str) -> None:
        child.exceeded = child.exceeded or limit
        self._kill(child)

    def _kill(self, child: _Child) -> None:
        with suppress(ProcessLookupError):
            os.kill(child.pid, signal.SIGKILL)

    def _bury(self, child: _Child) -> None:
        """Take the exit status, end what is left, empty the folder, tell the judge."""
        _, status = os.waitpid(child.pid, 0)
        fate: Fate = {"gone": child.number, "limit": child.exceeded}
        if os.WIFSIGNALED(status):
            fate["signal"] = os.WTERMSIG(status)
        else:
            fate["exit"] = os.WEXITSTATUS(status)
        os.close(child.process)
        os.close(child.output)
        del self._children[child.number]
        self._end_orphans()
        try:
            _erase(child.home)
        except OSError:
            self._spoiled = True  # what it left counts against the next one: the judge builds another box
        self._send(fate)

    def _end_orphans(self) -> None:
        """End what became ours because its own parent ended: the filter lets none start, this is a second lock."""
        ours = {child.pid for child in self._children.values()}
        for entry in os.listdir("/proc"):
            if not entry.isdigit() or int(entry) in ours:
                continue
            with suppress(OSError, IndexError, ValueError):
                text = Path("/proc", entry, "stat").read_text(encoding="ascii", errors="replace")
                if int(text.rpartition(")")[2].split()[1]) == os.getpid():
                    os.kill(int(entry), signal.SIGKILL)
                    os.waitpid(int(entry), 0)


def _erase(folder: str) -> None:
    """Delete a folder and all that is in it, however deep it is, whatever its modes forbid."""
    while True:
        with os.scandir(folder) as entries:
            inner = [entry.path for entry in entries if entry.is_dir(follow_symlinks=False)]
        if not inner:
            break
        for path in inner:  # what lies deeper is moved up, so that no path grows long
            os.chmod(path, 0o700)
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        os.chmod(entry.path, 0o700)
                        os.rename(entry.path, tempfile.mktemp(dir=folder))
                    else:
                        os.unlink(entry.path)
            os.rmdir(path)
    with os.scandir(folder) as entries:
        for entry in entries:
            os.unlink(entry.path)
    os.rmdir(folder)


def _warm() -> None:
    """Import what answers use, and make what is imported cheap to share."""
    for name in _WARM:
        with suppress(ImportError):
            __import__(name)
    torch.set_num_threads(1)
    with forbid(["_softmax"]):
        Submission([Cell("code", "def f(x):\n    return x", "solve", "f", 1)]).answer("f")(torch.ones(1) + 1)
    (torch.ones(2, 2) @ torch.ones(2, 2)).softmax(-1)
    gc.collect()
    gc.freeze()


def _become(connection: int, output: int, home: str, read: Sequence[str], limits: Limits) -> NoReturn:
    """In the forked process: shut the inner walls, run the answer, never return."""
    code = 70
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.setsid()
        nothing = os.open("/dev/null", os.O_RDONLY)
        for source, target in ((nothing, 0), (output, 1), (output, 2), (connection, 3)):
            os.dup2(source, target, inheritable=True) if source != target else None
        os.closerange(4, 1 << 16)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGALRM):
            signal.signal(number, signal.SIG_DFL)
        os.chdir(home)
        os.environ.update(HOME=home, TMPDIR=home)
        limits.apply()
        landlock.restrict([*read, *_FACTS], [home], _DEVICES)
        syscalls.restrict()
        play(3)
    except ConnectionLost:
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException:
        with suppress(BaseException):
            traceback.print_exc()
    finally:
        os._exit(code & 0xFF)
