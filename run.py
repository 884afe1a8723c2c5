#!/usr/bin/env python3
"""The course's commands. Needs nothing but Python 3.11 or newer.

    python3 run.py lab [JupyterLab options]    open the course; your own copy is the folder my-course
    python3 run.py test [pytest options]       run the project's tests
    python3 run.py COMMAND ...                 the same as: python -m grader COMMAND ...

Each makes the folder .venv beside this file, installs requirements.txt into it when that file changed, and
then becomes the command. To start afresh, delete .venv; your answers in my-course are not in it.
"""

# Any Python 3 must get as far as this sentence: no newer syntax anywhere in the file, no imports above it.
import sys

if sys.version_info < (3, 11):
    sys.stderr.write(
        "run.py: the course needs Python 3.11 or newer and this is Python %d.%d: install a newer one, for example "
        "from python.org, and start run.py with it (python3.12 run.py lab).\n" % sys.version_info[:2]
    )
    sys.exit(2)

import contextlib
import hashlib
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parent
REQUIREMENTS = ROOT / "requirements.txt"
COURSE = ROOT / "my-course"
FIRST_NOTEBOOK = "00_start_here.ipynb"

VENV = ROOT / ".venv"
BIN = VENV / ("Scripts" if sys.platform == "win32" else "bin")
PYTHON = BIN / ("python.exe" if sys.platform == "win32" else "python")
STAMP = VENV / "run.json"  # what is installed, and whether that install came to its end
LOG = VENV / "install.log"
LOCK = VENV / "run.lock"

# jsonschema, imported by Lab, takes a second to build a grammar for a kind of web address that Lab never has, and does
# without it when the module is missing.
LAB = "import sys; sys.modules['rfc3987_syntax'] = None; from jupyterlab.labapp import main; sys.exit(main())"
# A learner's Lab: no panels for instructors (half a second, and red lines about a missing course), no news dialog.
LAB_CONFIG = {
    "jupyter_server_config.json": {
        "ServerApp": {
            "jpserver_extensions": {
                "nbgrader.server_extensions." + name: False
                for name in ("assignment_list", "course_list", "formgrader", "validate_assignment")
            }
        }
    },
    "labconfig/page_config.json": {
        "disabledExtensions": {"@jupyter/nbgrader": True, "@jupyterlab/apputils-extension:announcements": True}
    },
}

MENDS = (  # what pip says, and what to do about it
    ("No space left on device", "The disk is full: make room, a full install needs some gigabytes"),
    ("Permission denied", "A file could not be written: look at who owns the folder .venv"),
    ("THESE PACKAGES DO NOT MATCH THE HASHES", "A download arrived damaged"),
    ("Connection", "The download failed: check the network connection"),
    ("connection", "The download failed: check the network connection"),
    ("Timeout", "The download failed: check the network connection"),
    ("timed out", "The download failed: check the network connection"),
    ("name resolution", "The download failed: check the network connection"),
    ("No matching distribution", "A pinned package does not exist for this Python: try another, 3.11 to 3.13"),
)


class Stop(Exception):
    """An end with a sentence for the person at the keyboard, not a traceback."""


def say(text: str) -> None:
    print("run.py: " + text, file=sys.stderr, flush=True)


# ---- the environment -------------------------------------------------------------------------------------------------


def environment() -> dict[str, str]:
    """The variables for everything that runs in .venv: .venv alone decides what is imported and found on PATH."""
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONHOME", "PYTHONPATH", "__PYVENV_LAUNCHER__")}
    env["VIRTUAL_ENV"] = str(VENV)
    env["PATH"] = str(BIN) + os.pathsep + env.get("PATH", os.defpath)
    if not os.access(os.path.expanduser("~"), os.W_OK):  # a home that can't be written: settings go beside the install
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "MPLCONFIGDIR"):
            env.setdefault(name, str(VENV / "home" / name.lower()))
    return env


def requirements() -> tuple[str, int]:
    """The hash of requirements.txt and the number of packages it names."""
    try:
        content = REQUIREMENTS.read_bytes()
    except FileNotFoundError:
        raise Stop(f"{REQUIREMENTS} is missing: get it back with git checkout requirements.txt") from None
    lines = [line.strip() for line in content.splitlines()]
    return hashlib.sha256(content).hexdigest(), sum(1 for line in lines if line and not line.startswith((b"#", b"-")))


def read_stamp() -> dict[str, Any]:
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(state: str, digest: str, python: str) -> None:
    new = STAMP.with_suffix(".new")
    new.write_text(json.dumps({"state": state, "requirements": digest, "python": python, "venv": str(VENV)}), "utf-8")
    os.replace(new, STAMP)


def venv_python() -> str:
    """'3.11', what the interpreter in .venv says it is, or '' when it doesn't run or isn't .venv's own."""
    code = "import os, sys; print(os.path.samefile(sys.prefix, sys.argv[1]) and '%d.%d' % sys.version_info[:2] or '')"
    try:
        done = subprocess.run([PYTHON, "-I", "-c", code, VENV], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def fault(stamp: dict[str, Any], python: str) -> str:
    """Why .venv can't be kept and must be made anew; '' when it can."""
    if not python:
        return "its Python does not run" if BIN.exists() else "there is none yet"
    if tuple(map(int, python.split("."))) < (3, 11):
        return f"it has Python {python}"
    if not stamp:  # a .venv made by hand, or by an editor: as good as ours
        return ""
    if stamp.get("state") == "installing":
        return "the last install was cut off"
    if stamp.get("python") != python:
        return f"its Python changed from {stamp.get('python')} to {python}"
    try:
        moved = not os.path.samefile(str(stamp.get("venv")), VENV)
    except OSError:
        moved = True
    return "the folder was moved" if moved else ""


def ensure_installed() -> None:
    """Leaves .venv holding what requirements.txt asks for. Instant when it already does."""
    digest, packages = requirements()

    def ready(stamp: dict[str, Any]) -> bool:
        return (stamp.get("state"), stamp.get("requirements")) == ("ready", digest) and not fault(stamp, venv_python())

    if ready(read_stamp()):
        return
    with only_one() as lock:
        stamp = read_stamp()
        if ready(stamp):  # another run.py did it while this one waited
            return
        began = time.monotonic()
        python = venv_python()
        why = fault(stamp, python)
        write_stamp("installing", digest, python)
        if why:
            say(f"making .venv ({why})")
            make_venv(lock)
            python = venv_python()
            if not python:
                raise Stop(f"the interpreter in {VENV} does not run: delete that folder and try again")
        else:
            say("requirements.txt changed" if stamp.get("state") == "ready" else "completing .venv")
        put_on_path()
        say(f"installing {packages} packages and what they need; the first time takes a few minutes")
        if pip_install(lock):
            write_stamp("failed", digest, python)  # pip ended by itself: the next try goes on where it left off
            raise Stop(failure("the install failed"))
        write_stamp("ready", digest, python)
        say(f"installed in {time.monotonic() - began:.0f} s")


def make_venv(lock: int) -> None:
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        major, minor = sys.version_info[:2]
        raise Stop(
            "this Python cannot make a virtual environment: install the missing part (on Debian and Ubuntu: "
            f"sudo apt install python{major}.{minor}-venv) and run the same command again."
        )
    for old in VENV.iterdir():
        if old in (LOCK, STAMP):
            continue
        if old.is_dir() and not old.is_symlink():
            shutil.rmtree(old)
        else:
            old.unlink()
    # Not sys.executable: that may be the .venv just emptied.
    base = getattr(sys, "_base_executable", None) or sys.executable
    if run_logged([base, "-I", "-m", "venv", str(VENV)], lock):
        raise Stop(failure("making .venv failed"))


def put_on_path() -> None:
    """Makes `import grader` work from any folder, in every kernel. A relative line needs no encoding of odd paths."""
    site_packages = next(VENV.glob("Lib/site-packages" if sys.platform == "win32" else "lib/*/site-packages"))
    (site_packages / "course.pth").write_text(os.path.relpath(ROOT, site_packages) + "\n", "ascii")


def pip_install(lock: int) -> int:
    command = [str(PYTHON), "-I", "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    return run_logged([*command, "-r", str(REQUIREMENTS)], lock)


def run_logged(command: list[str], lock: int) -> int:
    """Runs an install step; its output goes to the log, and to the terminal, with pip's progress bars, if there is one.

    The step inherits the lock: should this process be killed, nobody else starts while the step still writes.
    """
    live = sys.stderr.isatty()
    where: dict[str, Any] = (
        {"stdout": sys.stderr, "stderr": subprocess.PIPE}
        if live
        else {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    )
    if sys.platform != "win32":
        where["pass_fds"] = (lock,)
    env = {**environment(), "PIP_USER": "0", "PYTHONIOENCODING": "utf-8"}
    with LOG.open("w", encoding="utf-8") as log:
        child = subprocess.Popen(command, cwd=ROOT, env=env, encoding="utf-8", errors="replace", **where)
        try:
            for line in (child.stderr if live else child.stdout) or ():
                log.write(line)
                if live:
                    sys.stderr.write(line)
                elif line.startswith("Installing collected packages:"):
                    say("downloaded; unpacking {} packages".format(line.count(",") + 1))
            return child.wait()
        finally:
            if child.poll() is None:  # stopped in the middle
                child.terminate()
                child.wait()


def failure(what: str) -> str:
    """The message of a failed step: the end of its output, and what to do."""
    try:
        lines = [line for line in LOG.read_text(encoding="utf-8").splitlines() if line.strip()]
    except OSError:
        lines = []
    text = "\n".join(lines[-200:])
    mend = next((mend for sign, mend in MENDS if sign in text), "Read the lines above")
    shown = "".join(f"\n    {line}" for line in lines[-12:])
    return f"{what}; the last lines of its output ({LOG}):{shown}\nrun.py: {mend}, then run the same command again."


# ---- one at a time ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def only_one() -> Iterator[int]:
    """Holds the lock on .venv, waiting for another run.py that installs. The system frees it when its holder dies."""
    VENV.mkdir(exist_ok=True)
    lock = os.open(LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        told = False
        while not taken(lock):
            if not told:
                say("another install is under way; waiting for it to end")
                told = True
            time.sleep(0.2)
        yield lock
    finally:
        os.close(lock)


def taken(lock: int) -> bool:
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(lock, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError:  # a file system without locks: better unlocked than not at all
        return True
    return True


# ---- the commands ----------------------------------------------------------------------------------------------------


def hand_over(env: dict[str, str], *arguments: str) -> int:
    """Becomes `python -P ...` of .venv; on Windows, which can't, runs it and passes its exit code on."""
    command = [str(PYTHON), "-P", *arguments]
    sys.stdout.flush()
    sys.stderr.flush()
    if sys.platform != "win32":
        os.execve(command[0], command, env)
    with subprocess.Popen(command, env=env) as child:
        while True:
            with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is the child's: Lab asks whether to stop
                return child.wait()


def lab(options: list[str]) -> int:
    env = environment()
    if not os.path.lexists(COURSE):
        with only_one():
            if not os.path.lexists(COURSE):
                start = [str(PYTHON), "-P", "-m", "grader", "study", "start", COURSE.name]
                if subprocess.call(start, cwd=ROOT, env=env, stdout=sys.stderr):
                    raise Stop(f"your copy of the course, {COURSE}, could not be made: see the lines above")
    # An option or path that names another root asks for plain Lab there: an instructor's, with nbgrader's panels.
    # (Lab refuses to be told its root twice.)
    roots = ("--notebook-dir", "--ServerApp.root_dir", "--ServerApp.notebook_dir", "--NotebookApp.notebook_dir")
    if any(o.startswith(roots) or (not o.startswith("-") and os.path.exists(o)) for o in options):
        return hand_over(env, "-c", LAB, *options)
    env["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, (lab_config(), env.get("JUPYTER_CONFIG_PATH"))))
    learner = [f"--ServerApp.root_dir={COURSE}"]
    if (COURSE / FIRST_NOTEBOOK).exists() and not any("App.default_url" in o for o in options):
        learner.append(f"--LabApp.default_url=/lab/tree/{FIRST_NOTEBOOK}")
    return hand_over(env, "-c", LAB, *learner, *options)


def lab_config() -> str:
    folder = VENV / "lab"
    for name, content in LAB_CONFIG.items():
        text = json.dumps(content, indent=1)
        file = folder / name
        if not file.exists() or file.read_text("utf-8") != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, "utf-8")
    return str(folder)


def test(options: list[str]) -> int:
    """pytest runs in the project's folder; a path given from another folder still means what it meant there."""

    def path(option: str) -> str:
        file = option.split("::")[0]
        here = not option.startswith("-") and os.path.exists(file) and not (ROOT / file).exists()
        return os.path.abspath(option) if here else option

    # the whole suite is spread over the cores, by files and classes; a selection runs as it is
    arguments = [path(option) for option in options] or ["-n", str(min(os.cpu_count() or 1, 4)), "--dist", "loadscope"]
    os.chdir(ROOT)
    return hand_over(environment(), "-m", "pytest", *arguments)


def terminated(number: int, frame: object) -> NoReturn:
    raise SystemExit(128 + number)


def main(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        print((__doc__ or "").strip())
        return 0
    command, *options = arguments
    try:
        signal.signal(signal.SIGTERM, terminated)  # so that a running install step is ended too
        ensure_installed()
        if command == "lab":
            return lab(options)
        if command == "test":
            return test(options)
        return hand_over(environment(), "-m", "grader", *arguments)
    except Stop as stop:
        say(str(stop))
    except KeyboardInterrupt:
        say("stopped; the same command starts over cleanly")
        return 130
    except OSError as error:
        say(f"{error}; see to that file or folder, then run the same command again")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
