"""run.py: real environments and real pip, in a copy with packages built here, so that nothing is downloaded."""

import ast
import contextlib
import importlib.util
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

if sys.platform == "win32":
    pytest.skip("these tests use POSIX signals, terminals and locks", allow_module_level=True)

RUN = Path(__file__).resolve().parent.parent / "run.py"
TELL = """
import json, os, sys
seen = ("PATH", "VIRTUAL_ENV", "JUPYTER_CONFIG_PATH", "JUPYTER_DATA_DIR")
def tell(who):
    env = {name: os.environ.get(name, "") for name in seen}
    print(json.dumps({"who": who, "argv": sys.argv[1:], "cwd": os.getcwd(), "prefix": sys.prefix, "env": env}))
"""
GRADER = """
import pathlib, sys
from tell import tell
tell("grader")
if sys.argv[1] == "exit":
    sys.exit(int(sys.argv[2]))
if sys.argv[1:3] == ["study", "start"]:
    if pathlib.Path("refuse").exists():
        sys.exit(3)
    course = pathlib.Path(sys.argv[3])
    course.mkdir()
    (course / "00_start_here.ipynb").write_text("{}")
"""


def make_wheel(folder: Path, name: str, files: dict[str, str]) -> Path:
    wheel = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": "",
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return wheel


class Copy:
    """A copy of the project, reduced to run.py, a grader that tells how it was called, and a requirements.txt."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "the course, ünder test"
        self.elsewhere = folder / "some where else"
        self.wheels = folder / "wheels"
        hostile = folder / "pythonpath"
        for new in (self.root / "grader", self.elsewhere, self.wheels, hostile):
            new.mkdir(parents=True)
        shutil.copy(RUN, self.root)
        (self.root / "grader" / "__init__.py").write_text("")
        (self.root / "grader" / "__main__.py").write_text(GRADER)
        make_wheel(self.wheels, "tell", {"tell.py": TELL})
        make_wheel(self.wheels, "more", {"more.py": ""})
        lab = {"jupyterlab/__init__.py": "", "jupyterlab/labapp.py": "from tell import tell\ndef main(): tell('lab')\n"}
        make_wheel(self.wheels, "jupyterlab", lab)
        make_wheel(self.wheels, "pytest", {"pytest.py": "from tell import tell\ntell('pytest')\n"})
        # What a person's shell may hold, and what must not matter.
        (hostile / "tell.py").write_text("raise ImportError('PYTHONPATH was used')")
        (self.elsewhere / "grader.py").write_text("raise ImportError('the working directory was used')")
        drop = ("PIP_", "PYTHON", "JUPYTER", "VIRTUAL_ENV")
        self.env = {k: v for k, v in os.environ.items() if not k.startswith(drop) and not k.lower().endswith("_proxy")}
        self.env |= {"PYTHONPATH": str(hostile), "PIP_USER": "1", "PIP_CONFIG_FILE": os.devnull}
        self.env |= {"PIP_RETRIES": "0", "PIP_DEFAULT_TIMEOUT": "100"}
        self.settled = self.require("tell", "jupyterlab", "pytest")

    def require(self, *wheels: str) -> str:
        lines = [w if "@" in w else f"{w} @ {(self.wheels / f'{w}-1.0-py3-none-any.whl').as_uri()}" for w in wheels]
        text = "\n".join(["# a comment", *lines, ""])
        (self.root / "requirements.txt").write_text(text)
        return text

    def settle(self) -> None:
        """The state after an ordinary install, whatever the test before left behind."""
        (self.root / "requirements.txt").write_text(self.settled)
        shutil.rmtree(self.root / "my-course", ignore_errors=True)
        assert self.run("settle").returncode == 0

    def start(self, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        settings: dict[str, Any] = {"cwd": self.elsewhere, "env": self.env, "encoding": "utf-8"}
        settings |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        process: subprocess.Popen[str]
        process = subprocess.Popen([sys.executable, str(self.root / "run.py"), *arguments], **settings)
        return process

    def run(self, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments, **options)
        out, err = process.communicate(timeout=100)
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def run_on_terminal(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """As `run`, with a pseudo terminal for stderr."""
        import pty

        master, terminal = pty.openpty()
        process = self.start(*arguments, stderr=terminal)
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # the other end was closed
            while chunk := os.read(master, 4096):
                shown += chunk
        out, _ = process.communicate(timeout=60)
        os.close(master)
        return subprocess.CompletedProcess(arguments, process.returncode, out, shown.decode())

    def stamp(self) -> dict[str, Any]:
        stamp: dict[str, Any] = json.loads((self.root / ".venv" / "run.json").read_text("utf-8"))
        return stamp


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    return Copy(tmp_path_factory.mktemp("run"))


@pytest.fixture
def copy(fresh: Copy) -> Copy:
    fresh.settle()
    return fresh


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    """run.py as a module, for its decisions; its folders point to tmp_path."""
    spec = importlib.util.spec_from_file_location("run_under_test", RUN)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in ("ROOT", "VENV", "BIN", "PYTHON", "STAMP", "LOG", "LOCK", "COURSE"):
        monkeypatch.setattr(module, name, tmp_path / getattr(module, name).relative_to(RUN.parent))
    return module


class Slow:
    """A web server whose one wheel does not arrive before `go` is set."""

    def __init__(self, wheel: Path) -> None:
        self.asked, self.go = threading.Event(), threading.Event()
        slow = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                slow.asked.set()
                slow.go.wait(60)
                self.send_response(200)
                self.end_headers()
                self.wfile.write(wheel.read_bytes())

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            def handle_error(self, *_: object) -> None:
                pass  # a client that was killed

        self.server = Server(("127.0.0.1", 0), Handler)
        self.requirement = f"{wheel.name.split('-')[0]} @ http://127.0.0.1:{self.server.server_port}/{wheel.name}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def slow(fresh: Copy) -> Iterator[Slow]:
    slow = Slow(fresh.wheels / "more-1.0-py3-none-any.whl")
    yield slow
    slow.go.set()
    slow.server.shutdown()
    slow.server.server_close()


# ---- installing ------------------------------------------------------------------------------------------------------


def test_help_installs_nothing(fresh: Copy) -> None:
    """Runs first, while there is no .venv yet."""
    for arguments in ((), ("--help",), ("-h",)):
        done = fresh.run(*arguments)
        assert done.returncode == 0
        assert "run.py lab" in done.stdout and "run.py test" in done.stdout
    assert not (fresh.root / ".venv").exists()


def test_first_run_installs_and_hands_over(fresh: Copy) -> None:
    shutil.rmtree(fresh.root / ".venv", ignore_errors=True)
    done = fresh.run("check", "a b.ipynb", "--json", "-")
    assert done.returncode == 0, done.stderr
    assert "making .venv" in done.stderr and "installing 3 packages" in done.stderr
    told = json.loads(done.stdout)  # and nothing else on stdout
    venv = fresh.root / ".venv"
    assert told["who"] == "grader" and told["argv"] == ["check", "a b.ipynb", "--json", "-"]
    assert told["cwd"] == str(fresh.elsewhere)
    assert told["prefix"] == told["env"]["VIRTUAL_ENV"] == str(venv)
    assert told["env"]["PATH"].split(os.pathsep)[0] == str(venv / "bin")


def test_second_run_installs_nothing_and_is_quick(copy: Copy) -> None:
    os.utime(copy.root / "requirements.txt")  # touched, not changed
    (copy.root / ".venv" / "run.lock").unlink()
    began = time.monotonic()
    done = copy.run("check")
    assert done.returncode == 0 and done.stderr == ""
    assert time.monotonic() - began < 3
    assert not (copy.root / ".venv" / "run.lock").exists(), "nothing to install: no lock, so a read-only folder will do"


def test_exit_code_is_passed_on(copy: Copy) -> None:
    assert copy.run("exit", "0").returncode == 0
    assert copy.run("exit", "7").returncode == 7


def test_grader_is_importable_from_any_folder(copy: Copy, tmp_path: Path) -> None:
    python = copy.root / ".venv" / "bin" / "python"
    code = "import grader; print(ascii(grader.__file__))"
    done = subprocess.run([python, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ast.literal_eval(done.stdout) == str(copy.root / "grader" / "__init__.py")


def test_changed_requirements_are_installed(copy: Copy) -> None:
    copy.require("tell", "jupyterlab", "pytest", "more")
    done = copy.run("check")
    assert done.returncode == 0 and "requirements.txt changed" in done.stderr and "making" not in done.stderr
    assert list((copy.root / ".venv").glob("lib/*/site-packages/more.py"))
    assert copy.run("check").stderr == ""


def test_without_a_terminal_each_stage_is_one_line(copy: Copy) -> None:
    copy.require("tell", "jupyterlab", "pytest", "more")
    lines = copy.run("check").stderr.splitlines()
    assert len(lines) <= 5 and all(line.startswith("run.py: ") for line in lines)


def test_on_a_terminal_pip_shows_its_own_progress(copy: Copy) -> None:
    copy.require("tell", "jupyterlab", "pytest", "more")
    done = copy.run_on_terminal("check")
    assert "Processing" in done.stderr and "installing 4 packages" in done.stderr
    assert json.loads(done.stdout)["who"] == "grader"


@pytest.mark.parametrize("terminal", [False, True])
def test_failed_install_says_what_to_do_and_is_retried(copy: Copy, terminal: bool) -> None:
    copy.require("tell", "jupyterlab", "pytest", "lost")  # no such wheel
    for _ in range(2):  # the second is no better than the first, and must not pass for done
        done = copy.run_on_terminal("check") if terminal else copy.run("check")
        assert done.returncode == 1 and done.stdout == ""
        assert "lost-1.0-py3-none-any.whl" in done.stderr.split("the install failed")[1]
        assert "run the same command again" in done.stderr and "install.log" in done.stderr
        assert "Traceback" not in done.stderr
    assert "lost" in (copy.root / ".venv" / "install.log").read_text("utf-8")
    (copy.root / "requirements.txt").write_text(copy.settled)
    done = copy.run("check")
    assert done.returncode == 0 and "making" not in done.stderr


@pytest.mark.parametrize(
    ("output", "mend"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk is full"),
        ("NewConnectionError(...: [Errno -3] Temporary failure in name resolution')", "network"),
        ("ERROR: No matching distribution found for torch", "another, 3.11"),
        ("something nobody foresaw", "lines above"),
    ],
)
def test_failures_name_their_mend(run: ModuleType, output: str, mend: str) -> None:
    run.VENV.mkdir()
    run.LOG.write_text(f"Collecting torch\n{output}\n")
    text = run.failure("the install failed")
    assert mend in text and output in text


def test_interrupted_install_starts_over(copy: Copy, slow: Slow) -> None:
    copy.require("tell", "jupyterlab", "pytest", slow.requirement)
    process = copy.start("check")
    assert slow.asked.wait(60)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130 and out == "" and "Traceback" not in err
    assert copy.stamp()["state"] == "installing"
    (copy.root / ".venv" / "rest").write_text("of the install that was cut off")
    (copy.root / "requirements.txt").write_text(copy.settled)
    done = copy.run("check")
    assert done.returncode == 0 and "cut off" in done.stderr
    assert not (copy.root / ".venv" / "rest").exists()


def test_one_install_at_a_time_even_when_the_first_is_killed(copy: Copy, slow: Slow) -> None:
    """pip outlives a killed run.py: the next must not work on the same folder before pip has ended."""
    copy.require("tell", "jupyterlab", "pytest", slow.requirement)
    first = copy.start("check")
    assert slow.asked.wait(60)
    second = copy.start("check")
    assert second.stderr is not None
    assert "another install is under way" in second.stderr.readline()
    first.kill()
    first.communicate(timeout=30)
    assert not select.select([second.stderr], [], [], 1.5)[0], "it went on while pip was still at work"
    slow.go.set()
    _, err = second.communicate(timeout=100)
    assert second.returncode == 0 and "cut off" in err
    assert list((copy.root / ".venv").glob("lib/*/site-packages/more.py"))


def test_the_second_of_two_does_not_install_again(copy: Copy, slow: Slow) -> None:
    copy.require("tell", "jupyterlab", "pytest", slow.requirement)
    first = copy.start("check", "1")
    assert slow.asked.wait(60)
    second = copy.start("check", "2")
    assert second.stderr is not None
    assert "another install is under way" in second.stderr.readline()
    slow.go.set()
    for process, number in ((first, "1"), (second, "2")):
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0 and json.loads(out)["argv"] == ["check", number]
        assert ("installed in" in err) == (number == "1")


def test_broken_environment_is_made_again(copy: Copy) -> None:
    for python in (copy.root / ".venv" / "bin").glob("python*"):
        python.unlink()
        python.symlink_to("/no/such/python")  # what an upgrade of the system's Python leaves
    done = copy.run("check")
    assert done.returncode == 0 and "its Python does not run" in done.stderr


def test_what_makes_an_environment_unusable(run: ModuleType, tmp_path: Path) -> None:
    run.VENV.mkdir()
    good = {"state": "ready", "python": "3.11", "venv": str(run.VENV), "requirements": "x"}
    assert run.fault(good, "3.11") == ""
    assert run.fault({}, "3.12") == "", "a .venv made by hand is kept"
    assert run.fault({**good, "state": "failed"}, "3.11") == "", "pip ended by itself: no need to start over"
    assert "cut off" in run.fault({**good, "state": "installing"}, "3.11")
    assert "changed from 3.11 to 3.13" in run.fault(good, "3.13")
    assert "moved" in run.fault({**good, "venv": str(tmp_path / "before")}, "3.11")
    assert "moved" in run.fault({**good, "venv": str(tmp_path)}, "3.11"), "copied: the old one is still there"
    assert "Python 3.9" in run.fault({}, "3.9")
    assert "none yet" in run.fault({}, "")


def test_python_without_venv_gets_one_sentence(run: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else object())
    run.VENV.mkdir()
    with pytest.raises(run.Stop, match=r"sudo apt install python3\.\d+-venv"):
        run.make_venv(0)


def test_missing_requirements_file(copy: Copy) -> None:
    (copy.root / "requirements.txt").unlink()
    done = copy.run("check")
    assert done.returncode == 1 and "git checkout requirements.txt" in done.stderr and "Traceback" not in done.stderr


def test_home_that_cannot_be_written(copy: Copy, tmp_path: Path) -> None:
    assert json.loads(copy.run("check").stdout)["env"]["JUPYTER_DATA_DIR"] == ""
    done = copy.run("check", env={**copy.env, "HOME": str(tmp_path / "no" / "home")})
    assert json.loads(done.stdout)["env"]["JUPYTER_DATA_DIR"].startswith(str(copy.root / ".venv"))


# ---- the commands ----------------------------------------------------------------------------------------------------


def test_lab_makes_the_course_once_and_passes_options_on(copy: Copy) -> None:
    done = copy.run("lab", "--no-browser", "--port", "9999", "--ServerApp.ip=::1")
    assert done.returncode == 0, done.stderr
    assert '["study", "start", "my-course"]' in done.stderr
    told = json.loads(done.stdout)
    course = copy.root / "my-course"
    assert told["who"] == "lab" and told["cwd"] == str(copy.elsewhere)
    assert told["argv"] == [
        f"--ServerApp.root_dir={course}",
        "--LabApp.default_url=/lab/tree/00_start_here.ipynb",
        "--no-browser",
        "--port",
        "9999",
        "--ServerApp.ip=::1",
    ]
    settings = Path(told["env"]["JUPYTER_CONFIG_PATH"].split(os.pathsep)[0])
    page = json.loads((settings / "labconfig" / "page_config.json").read_text())
    server = json.loads((settings / "jupyter_server_config.json").read_text())
    assert page["disabledExtensions"]["@jupyter/nbgrader"]
    assert server["ServerApp"]["jpserver_extensions"]["nbgrader.server_extensions.formgrader"] is False

    (course / "00_start_here.ipynb").write_text("an answer")
    again = copy.run("lab")
    assert again.returncode == 0 and again.stderr == ""
    assert (course / "00_start_here.ipynb").read_text() == "an answer"


def test_lab_never_touches_an_existing_folder(copy: Copy) -> None:
    course = copy.root / "my-course"
    course.mkdir()
    (course / "mine.txt").write_text("mine")
    done = copy.run("lab")
    assert json.loads(done.stdout)["argv"] == [f"--ServerApp.root_dir={course}"]  # no first notebook to open
    assert [f.name for f in course.iterdir()] == ["mine.txt"] and (course / "mine.txt").read_text() == "mine"


def test_lab_on_another_root_is_plain(copy: Copy) -> None:
    for options in ([str(copy.wheels)], ["--notebook-dir=/x"], ["--ServerApp.root_dir=/x", "--no-browser"]):
        told = json.loads(copy.run("lab", *options).stdout)
        assert told["argv"] == options and told["env"]["JUPYTER_CONFIG_PATH"] == ""
    told = json.loads(copy.run("lab", "--LabApp.default_url=/tree").stdout)
    assert told["argv"] == [f"--ServerApp.root_dir={copy.root / 'my-course'}", "--LabApp.default_url=/tree"]


def test_lab_does_not_open_a_course_that_could_not_be_made(copy: Copy) -> None:
    (copy.root / "refuse").write_text("")
    try:
        done = copy.run("lab")
    finally:
        (copy.root / "refuse").unlink()
    assert done.returncode == 1 and done.stdout == "" and "could not be made" in done.stderr


def test_test_runs_pytest_in_the_project(copy: Copy) -> None:
    (copy.elsewhere / "test_mine.py").write_text("")
    done = copy.run("test", "-x", "-k", "one two", "test_mine.py::test_a", "tests/test_run.py")
    told = json.loads(done.stdout)
    assert told["who"] == "pytest" and told["cwd"] == str(copy.root)
    mine = str(copy.elsewhere / "test_mine.py::test_a")
    assert told["argv"] == ["-x", "-k", "one two", mine, "tests/test_run.py"]
    whole = json.loads(copy.run("test").stdout)["argv"]
    assert whole[0] == "-n" and 1 <= int(whole[1]) <= 4 and whole[2:] == ["--dist", "loadscope"]


def test_real_lab_knows_what_run_py_tells_it(run: ModuleType) -> None:
    """The options, the settings and the grammar taken away, with JupyterLab and nbgrader as installed."""
    done = subprocess.run(
        [sys.executable, "-P", "-c", run.LAB, "--help-all"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    for option in ("--ServerApp.root_dir", "--LabApp.default_url"):
        assert f"{option}=" in done.stdout
    switched_on = json.loads((Path(sys.prefix) / "etc/jupyter/jupyter_server_config.d/nbgrader.json").read_text())
    switched_off = run.LAB_CONFIG["jupyter_server_config.json"]
    assert (
        switched_on["ServerApp"]["jpserver_extensions"].keys()
        == switched_off["ServerApp"]["jpserver_extensions"].keys()
    )
    assert (Path(sys.prefix) / "share/jupyter/labextensions/@jupyter/nbgrader").is_dir()


# ---- old Pythons -----------------------------------------------------------------------------------------------------


def test_any_python_3_reads_as_far_as_the_sentence() -> None:
    source = RUN.read_text("utf-8")
    tree = ast.parse(source, feature_version=(3, 6))
    first, second, third = tree.body[:3]
    assert isinstance(first, ast.Expr) and ast.unparse(second) == "import sys"
    assert isinstance(third, ast.If) and ast.unparse(third.test) == "sys.version_info < (3, 11)"
    assert "from __future__" not in source  # Python 3.6 does not know annotations there
    code = (
        "import sys, runpy\nclass Old(tuple): major, minor = 3, 9\nsys.version_info = Old((3, 9, 1, 'final', 0))\n"
        "runpy.run_path(sys.argv[1], run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-c", code, str(RUN)], capture_output=True, text=True, check=False)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "needs Python 3.11 or newer" in done.stderr and "this is Python 3.9" in done.stderr
