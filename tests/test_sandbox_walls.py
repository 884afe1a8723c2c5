"""Hostile answers: nothing leaves the box, nothing is reached from it, every limit ends in a verdict that names it.

Everything hostile here is bounded in size, number and time, so that a wall that fails costs a test, not a machine. The
only network traffic goes to listeners of the test itself on 127.0.0.1.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from grader.lesson import Cell
from grader.sandbox import box
from grader.sandbox.objects import MAX_OBJECTS, Objects
from grader.sandbox.remote import Limits, RemoteSubmission, Sandbox, sandbox_available
from grader.sandbox.wire import Uncrossable, WireError
from grader.submission import AnswerCrashed, AnswerLost, AnswerTimeout, BrokenCell, Missing, deadline

pytestmark = pytest.mark.skipif(not sandbox_available(), reason=sandbox_available().reason)

ROOT = Path(__file__).resolve().parent.parent
LIMITS = Limits(
    seconds=4.0, cpu_seconds=8, memory=600 << 20, threads=20, file=1 << 20, files=300, output=1 << 20
)  # fmt: skip
SECRET = "this-must-not-be-seen"
GOOD = Cell("code", "def good(x): return x + 1", "solve", "good", 90)


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    os.environ["GRADER_TEST_SECRET"] = SECRET
    with Sandbox(LIMITS) as sandbox:
        yield sandbox
    del os.environ["GRADER_TEST_SECRET"]


Attack = Callable[..., Any]


@pytest.fixture
def attack(sandbox: Sandbox) -> Iterator[Attack]:
    """`attack(body, *arguments)` runs the body as a function `f(*a)` of an answer.

    Afterwards another exercise of the same answer, and another answer, are still judged, and promptly.
    """
    submissions: list[RemoteSubmission] = []

    def run(body: str, *arguments: Any, cells: tuple[Cell, ...] = ()) -> Any:
        lines = "\n".join("    " + line for line in body.strip("\n").split("\n"))
        source = f"import os, sys, time, ctypes, gc\nimport torch\ndef f(*a):\n{lines}\n"
        submissions.append(sandbox.submission([*cells, Cell("code", source, "solve", "f", 1), GOOD]))
        return submissions[-1].answer("f")(*arguments)

    yield run
    started = time.monotonic()
    for submission in submissions:
        assert submission.answer("good")(1) == 2
        submission.close()
    with sandbox.submission([GOOD]) as other:
        assert other.answer("good")(torch.ones(2)).tolist() == [2, 2]
    assert time.monotonic() - started < 20


# ------------------------------------------------------------------------------------------------------ files


SECRETS = {
    "planted": "{planted}",
    "hidden checks": str(next((ROOT / "grader" / "checks" / "hidden").glob("*.py"), ROOT / "grader" / "judge.py")),
    "solutions": str(next((ROOT / "solutions").glob("*.py"), ROOT / "run.py")),
    "bank": str(ROOT / "grader" / "bank" / "__init__.py"),
    "judge": str(ROOT / "grader" / "judge.py"),
    "users": "/etc/passwd",
    "host name": "/etc/hostname",
    "environment": "/proc/self/environ",
    "command line": "/proc/self/cmdline",
    "parent's environment": "/proc/{ppid}/environ",
    "parent's memory": "/proc/{ppid}/maps",
    "first process": "/proc/1/cmdline",
    "mounts": "/proc/self/mountinfo",
    "kernel": "/proc/kallsyms",
    "network": "/proc/net/tcp",
    "root through proc": "/proc/self/root/etc/passwd",
    "root through the parent": "/proc/{ppid}/root/etc/passwd",
    "dots": "../../../../..{planted}",
}


@pytest.mark.parametrize("name", SECRETS)
def test_files_that_cannot_be_read(attack: Attack, tmp_path: Path, name: str) -> None:
    body = """
path = a[0].replace("{ppid}", str(os.getppid()))
out = []
for read in (lambda: open(path, "rb").read(1000), lambda: os.read(os.open(path, os.O_RDONLY), 1000),
             lambda: torch.load(path), lambda: sorted(os.listdir(path)), lambda: os.readlink(path)):
    try:
        out.append(repr(read()))
    except BaseException as error:
        out.append(type(error).__name__)
return out
"""
    planted = tmp_path / "secret.txt"
    planted.write_text(SECRET, encoding="utf-8")
    got = attack(body, SECRETS[name].replace("{planted}", str(planted)))
    assert len(got) == 5 and set(got) <= {"PermissionError", "FileNotFoundError", "NotADirectoryError", "OSError"}, got


def test_a_grader_among_the_packages_stays_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the grader lies inside a folder that the box shows, as an installed package does, it is empty there."""
    shown = box.readable()
    monkeypatch.setattr(box, "readable", lambda: [*shown, str(box.PACKAGE)])
    source = "import os\ndef f(path):\n    return os.path.isdir(path), os.listdir(path)"
    with Sandbox() as sandbox, sandbox.submission([Cell("code", source, "solve", "f", 1)]) as answer:
        assert answer.answer("f")(str(box.PACKAGE)) == (True, [])


def test_folders_that_cannot_be_listed(attack: Attack) -> None:
    body = """
out = {}
for path in a:
    try:
        out[path] = os.listdir(path)
    except OSError as error:
        out[path] = type(error).__name__
return out
"""
    folders = ["/", "/tmp", "/home", "/root", "/etc", "/proc", "/dev", "/var", str(ROOT), str(Path.home())]
    got = attack(body, *folders)
    assert all(value in ("PermissionError", "FileNotFoundError") for value in got.values()), got


def test_folders_that_cannot_be_written(attack: Attack) -> None:
    import sys

    body = """
out = {}
for folder in a:
    path = os.path.join(folder, "x.txt")
    for name, write in (("file", lambda: open(path, "w").write("x")), ("folder", lambda: os.mkdir(path + "d")),
                        ("link", lambda: os.symlink("/etc", path + "l")), ("away", lambda: os.rename(folder, "x"))):
        try:
            write()
            out[folder, name] = "done"
        except OSError as error:
            pass
return out
"""
    packages = next(p for p in sys.path if p.endswith("site-packages"))
    assert (
        attack(body, "/", "/tmp", "/dev/shm", "/box", "/box/grader", packages, "/usr/lib", "/var/tmp", str(ROOT)) == {}
    )


def test_links_lead_nowhere(attack: Attack, tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text(SECRET, encoding="utf-8")
    body = """
out = []
for make in (os.symlink, os.link):
    try:
        make(a[0], make.__name__)
        out.append(open(make.__name__).read())
    except OSError as error:
        out.append(type(error).__name__)
return out
"""
    assert SECRET not in repr(attack(body, str(tmp_path / "secret.txt")))


def test_the_private_folder_works_and_is_emptied(attack: Attack, sandbox: Sandbox) -> None:
    source = """
import os, tempfile, torch
def f():
    with open("note.txt", "w") as file:
        file.write("mine")
    with tempfile.NamedTemporaryFile() as file:
        torch.save(torch.ones(2), file.name)
        kept = torch.load(file.name)
    return os.getcwd(), open("note.txt").read(), kept.tolist()
"""
    with sandbox.submission([Cell("code", source, "given")]) as submission:
        home, text, kept = submission.answer("f")()
    assert text == "mine" and kept == [1, 1]
    assert attack("return os.path.exists(a[0]), os.listdir('.')", home + "/note.txt") == (False, [])


@pytest.mark.parametrize("left", ["locked", "deep"])
def test_what_an_answer_leaves_in_its_folder_harms_nobody(sandbox: Sandbox, left: str) -> None:
    """Folders that cannot be listed, full of files; folders in folders, as deep as no program recurses."""
    source = """
import os
def locked():
    os.mkdir("d", 0o300)
    for i in range(4000):
        os.close(os.open(f"d/{i}", os.O_CREAT | os.O_WRONLY, 0o600))
def deep():
    for i in range(1500):
        os.mkdir("d" * 50)
        os.chdir("d" * 50)
def honest():
    time.sleep(0.3)
    with open("note", "w") as file:
        file.write("mine")
    return len(os.listdir("."))
import time
"""
    cells = [Cell("code", source, "given")]
    with sandbox.submission(cells) as submission, contextlib.suppress(AnswerLost):
        submission.answer(left)()
    box = sandbox.box.pid
    for _ in range(2):
        with sandbox.submission(cells) as submission:
            assert submission.answer("honest")() == 1
    assert sandbox.box.pid == box, "nothing was left that another box is needed for"


def test_modules_of_the_grader_that_are_not_there(attack: Attack) -> None:
    body = """
import importlib
out = []
for name in ("judge", "checks", "checks.hidden", "bank", "bank.lesson_02", "report", "cli", "classroom", "sandbox.box"):
    try:
        out.append(importlib.import_module("grader." + name).__name__)
    except ImportError:
        pass
return out
"""
    assert attack(body) == []


def test_no_secret_in_memory_or_environment(attack: Attack) -> None:
    body = """
found = []
if any(a[0] in value for value in os.environ.values()):
    found.append("environment")
for thing in gc.get_objects():
    if isinstance(thing, dict):
        for value in list(thing.values()):
            if isinstance(value, (str, bytes)) and len(value) < 10000 and a[0] in str(value):
                found.append("memory")
return [f for f in found if f != "memory"], sorted(os.environ)
"""
    found, names = attack(body, SECRET[:12])
    assert found == [] and "GRADER_TEST_SECRET" not in names and "PWD" not in set(names) - {"PWD"}


def test_only_its_own_descriptors(attack: Attack) -> None:
    body = """
out = []
for number in range(4096):
    try:
        os.fstat(number)
        out.append(number)
    except OSError:
        pass
return out
"""
    assert attack(body) == [0, 1, 2, 3]


# ------------------------------------------------------------------------------------------------------ network


def test_no_network(attack: Attack) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_UNIX) as abstract:
        server.settimeout(0.3)
        abstract.bind(f"\0grader-test-{os.getpid()}")
        abstract.listen()
        abstract.settimeout(0.3)
        body = """
import socket
out = []
stream, datagram = socket.SOCK_STREAM, socket.SOCK_DGRAM
for family, kind, address in ((socket.AF_INET, stream, a[0]), (socket.AF_INET, datagram, a[0]),
                              (socket.AF_INET6, stream, ("::1", a[0][1])), (socket.AF_UNIX, stream, a[1])):
    try:
        with socket.socket(family, kind) as s:
            s.settimeout(0.5)
            s.connect(address)
            s.send(b"hello")
            out.append("sent")
    except OSError as error:
        out.append(type(error).__name__)
try:
    socket.socket().bind(("127.0.0.1", 0))
    out.append("bound")
except OSError as error:
    out.append(type(error).__name__)
return out
"""
        assert attack(body, server.getsockname(), abstract.getsockname().decode()) == ["PermissionError"] * 5
        for listener in (server, abstract):
            with pytest.raises(TimeoutError):
                listener.accept()


# ------------------------------------------------------------------------------------------------------ processes

PROCESSES = {
    "fork": "os.fork() or os._exit(0)",
    "fork bomb": "for _ in range(50): os.fork() or time.sleep(1)",
    "vfork": "import subprocess; return subprocess.run(['/usr/bin/true']).returncode",
    "spawn": "return os.posix_spawn('/usr/bin/true', ['true'], {})",
    "multiprocessing": "import multiprocessing as m; m.get_context('fork').Process(target=print).start()",
    "daemon": "if os.fork() == 0:\n    os.setsid()\n    os.fork() == 0 and time.sleep(3)\n    os._exit(0)",
    "raw clone": "if ctypes.CDLL(None, use_errno=True).syscall(56, 17, 0, 0, 0, 0) >= 0: return 'cloned'\nos.fork()",
    "raw clone3": "b = (ctypes.c_uint64 * 11)(); b[4] = 17\n"
    "if ctypes.CDLL(None).syscall(435, b, 88) >= 0: return 'cloned'\nos.fork()",
}


@pytest.mark.parametrize("name", PROCESSES)
def test_no_process_is_started(attack: Attack, name: str) -> None:
    with pytest.raises(AnswerCrashed, match=r"^processes: an answer may not start another process"):
        attack(PROCESSES[name])


@pytest.mark.parametrize(
    "body",
    [
        "return os.system('true')",
        "os.execv('/usr/bin/true', ['true'])",
        "return ctypes.CDLL(None).system(b'true')",
    ],
)
def test_no_program_is_run(attack: Attack, body: str) -> None:
    with contextlib.suppress(PermissionError):
        assert attack(body) not in (0, None)


def test_threads_work_up_to_the_limit(attack: Attack) -> None:
    body = """
import threading
out = []
threads = [threading.Thread(target=out.append, args=(i,)) for i in range(5)]
[t.start() for t in threads]
[t.join() for t in threads]
return sorted(out)
"""
    assert attack(body) == [0, 1, 2, 3, 4]
    body = """
import threading
threading.stack_size(65536)
for i in range(200):
    threading.Thread(target=time.sleep, args=(3,), daemon=True).start()
time.sleep(2)
"""
    with pytest.raises(AnswerCrashed, match=r"^processes: more than 20 threads"):
        attack(body)


SIGNALS = {
    "parent": "os.kill(os.getppid(), 9)",
    "parent stopped": "os.kill(os.getppid(), 19)",
    "first process": "os.kill(1, 9)",
    "everybody": "os.kill(-1, 9)",
    "a number": "os.kill(2, 15)",
    "parent's group": "os.killpg(os.getpgid(os.getppid()), 9)",
    "thread": "if ctypes.CDLL(None).syscall(200, os.getppid(), 9) == 0: return 'sent'\nraise PermissionError",
    "pidfd": "import signal; signal.pidfd_send_signal(os.pidfd_open(os.getppid()), 9)",
    "priority": "os.setpriority(os.PRIO_PROCESS, os.getppid(), 19)",
    "affinity": "os.sched_setaffinity(os.getppid(), {0})",
    "limits": "import resource; resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (0, 0))",
    "memory": "fd = os.open(f'/proc/{os.getppid()}/mem', os.O_RDWR)",
    "trace": "if ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) == 0: return 'traced'\nraise PermissionError",
    "namespace": "if ctypes.CDLL(None).unshare(0x10000000) == 0: return 'unshared'\nraise PermissionError",
    "io_uring": "b = ctypes.create_string_buffer(120)\n"
    "if ctypes.CDLL(None).syscall(425, 4, b) >= 0: return 'ring'\nraise PermissionError",
    "segment": "if ctypes.CDLL(None).shmget(0, 4096, 0o1600) >= 0: return 'segment'\nraise PermissionError",
    "memory file": "os.memfd_create('x')",
    "host name": "if ctypes.CDLL(None).sethostname(b'x', 1) == 0: return 'renamed'\nraise PermissionError",
}


@pytest.mark.parametrize("name", SIGNALS)
def test_nobody_else_is_touched(attack: Attack, sandbox: Sandbox, name: str) -> None:
    box = sandbox.box.pid
    with pytest.raises((PermissionError, ProcessLookupError)):
        attack(SIGNALS[name])
    assert sandbox.box.pid == box and sandbox.box.alive


# ------------------------------------------------------------------------------------------------------ limits

LIMIT_CASES = {
    "python memory": ("b = []\nfor _ in range(2000): b.append(bytearray(1 << 20))", "memory: more than 600 MB"),
    "torch memory": ("return torch.zeros(1 << 30)", "memory: more than 600 MB"),
    "mapped memory": ("import mmap; m = mmap.mmap(-1, 2 << 30); m[::4096] = b'x' * (2 << 18)", ""),
    "exit": ("os._exit(3)", "crashed: exit code 3"),
    "exit 0": ("os._exit(0)", "crashed: exit code 0"),
    "sys.exit": ("sys.exit(5)", "crashed: exit code 5"),
    "quit": ("quit()", "crashed: exit code 0"),
    "SystemExit": ("raise SystemExit('bye')", "crashed: exit code 1"),
    "abort": ("os.abort()", r"crashed: killed by signal 6 \(SIGABRT\)"),
    "null pointer": ("ctypes.string_at(0)", r"crashed: killed by signal 11 \(SIGSEGV\)"),
    "killed": ("os.kill(os.getpid(), 15)", r"crashed: killed by signal 15 \(SIGTERM\)"),
    "output": ("for _ in range(100000): print('x' * 100)", "output: more than 1 MB printed"),
    "error output": ("for _ in range(100000): print('x' * 100, file=sys.stderr)", "output: more than 1 MB"),
    "raw output": ("for _ in range(100000): os.write(2, b'x' * 100)", "output: more than 1 MB printed"),
    "large file": ("open('x', 'wb').write(b'x' * (8 << 20))", "files: a file larger than 1 MB"),
    "many files": ("for i in range(3000): open(f'{i}', 'w').close()\ntime.sleep(1)", "files: more than 300 files"),
    "many folders": ("for i in range(3000): os.mkdir(f'{i}')\ntime.sleep(1)", "files: more than 300 files"),
    "closed connection": ("os.close(3)", "crashed"),
    "channel taken over": ("os.dup2(os.open('/dev/null', os.O_RDWR), 3)", "crashed"),
}


@pytest.mark.parametrize("name", LIMIT_CASES)
def test_limits_and_crashes_are_named(attack: Attack, name: str) -> None:
    body, verdict = LIMIT_CASES[name]
    started = time.monotonic()
    with pytest.raises((AnswerCrashed, OSError) if not verdict else AnswerCrashed, match=f"^{verdict}"):
        attack(body)
    assert time.monotonic() - started < LIMITS.seconds + 3


TIME_CASES = {
    "loop": "while True: pass",
    "sleep": "time.sleep(30)",
    "lock": "import threading; threading.Lock().acquire() ; l = threading.Lock(); l.acquire(); l.acquire()",
    "native loop": "torch.ones(3000, 3000).matrix_power(2 ** 40)",
    "stopped": "os.kill(os.getpid(), 19)",
    "swallowed": "import signal\nfor s in range(1, 65):\n    try: signal.signal(s, signal.SIG_IGN)\n"
    "    except Exception: pass\n"
    "while True:\n    try: time.sleep(1)\n    except BaseException: pass",
    "regular expression": "import re; re.match(r'(a+)+$', 'a' * 40 + 'b')",
    "loop at exit": "import atexit; atexit.register(lambda: time.sleep(30)); time.sleep(30)",
    "a long wait in a callback's argument": "a[0](a[0](1)); time.sleep(30)",
}


@pytest.mark.parametrize("name", TIME_CASES)
def test_time_is_limited(attack: Attack, name: str) -> None:
    started = time.monotonic()
    with pytest.raises(AnswerTimeout, match=r"^timeout: no answer within 4 s$"):
        attack(TIME_CASES[name], lambda x: x)
    assert time.monotonic() - started < LIMITS.seconds + 3


def test_endless_generators_end(sandbox: Sandbox) -> None:
    """Also where no alarm clock runs beside them."""
    quick = Sandbox(Limits(seconds=0.5))
    quick.box = sandbox.box
    with quick.submission([Cell("code", "def f():\n    while True: yield 1", "solve", "f")]) as submission:
        items = submission.answer("f")()
        started = time.monotonic()
        with pytest.raises(AnswerTimeout):
            for _ in items:
                pass
        assert time.monotonic() - started < 5


def test_processor_time_is_limited(sandbox: Sandbox) -> None:
    quick = Sandbox(Limits(seconds=10, cpu_seconds=1))
    quick.box = sandbox.box
    with (
        quick.submission([Cell("code", "def f():\n    while True: pass", "solve", "f")]) as submission,
        pytest.raises(AnswerTimeout, match=r"^timeout: more than 1 s of processor time$"),
    ):
        submission.answer("f")()


def test_a_cell_that_never_ends_costs_its_own_exercise(sandbox: Sandbox) -> None:
    cells = [
        Cell("code", "def one(): return 1", "solve", "one", 1),
        Cell("code", "class two:\n    while True: pass", "solve", "two", 2),
        Cell("code", "def three(): return one() + 2", "solve", "three", 3),
        Cell("code", "import os\nfour = os._exit(7)", "solve", "four", 4),
    ]
    with sandbox.submission(cells) as submission:
        assert submission.answer("one")() == 1 and submission.answer("three")() == 3
        with pytest.raises(AnswerTimeout, match=r"^timeout: no answer within 4 s"):
            submission.answer("two")
        with pytest.raises(AnswerCrashed, match=r"^crashed: exit code 7"):
            submission.answer("four")
        assert submission.answer("three")() == 3


def test_everything_from_a_lost_process_says_so(sandbox: Sandbox) -> None:
    source = "import os\nfrom torch import nn\ndef die(): os._exit(9)\ndef layer(): return nn.Linear(2, 2)"
    with sandbox.submission([Cell("code", source, "given")]) as submission:
        layer, die = submission.answer("layer")(), submission.answer("die")
        for _ in range(2):
            with pytest.raises(AnswerCrashed, match="exit code 9"):
                die()
            with pytest.raises(AnswerCrashed, match="exit code 9"):
                layer(torch.ones(2))
        assert submission.answer("layer")()(torch.ones(2)).shape == (2,)


def test_a_box_that_is_ended_is_replaced(sandbox: Sandbox) -> None:
    own = Sandbox(LIMITS)
    with own, own.submission([GOOD]) as submission:
        assert submission.answer("good")(1) == 2
        assert own.box._process is not None
        own.box._process.kill()
        own.box._process.wait(10)
        with pytest.raises(AnswerLost):
            for _ in range(200):  # what is inside ends a moment later
                submission.answer("good")(1)
                time.sleep(0.05)
        assert submission.answer("good")(1) == 2


# ------------------------------------------------------------------------------------------------------ neighbours


def test_nothing_of_one_reaches_the_next(attack: Attack, sandbox: Sandbox) -> None:
    body = """
import builtins, json, math
torch.softmax = torch.relu = lambda *a, **k: "patched"
torch.nn.functional.softmax = None
torch.Tensor.__eq__ = lambda *a: torch.tensor(True)
torch.set_default_dtype(torch.float64)
torch.set_grad_enabled(False)
builtins.len = lambda x: 0
builtins.print = None
json.dumps = json.loads = None
sys.modules["torch.leak"] = "here"
os.environ["LEAK"] = "here"
torch.leak = "here"
return "patched"
"""
    with contextlib.suppress(AnswerLost):
        attack(body)
    look = """
import builtins, json
return [hasattr(torch, "leak"), "torch.leak" in sys.modules, "LEAK" in os.environ, len([1]), json.dumps(1),
        torch.softmax(torch.zeros(2), -1).tolist(), str(torch.get_default_dtype()), torch.is_grad_enabled(),
        print is None]
"""
    assert attack(look) == [False, False, False, 1, "1", [0.5, 0.5], "torch.float32", True, False]
    assert torch.softmax(torch.zeros(2), -1).tolist() == [0.5, 0.5] and torch.get_default_dtype() is torch.float32


def test_a_submission_that_always_dies_is_given_up(sandbox: Sandbox) -> None:
    with sandbox.submission([Cell("code", "import os\ndef f(): os._exit(3)", "given")]) as submission:
        for _ in range(30):
            with pytest.raises(AnswerCrashed, match="exit code 3"):
                submission.answer("f")()
        with pytest.raises(AnswerCrashed, match="lost 30 times"):
            submission.answer("f")()


def test_objects_in_use_across_the_wall_are_bounded() -> None:
    class Nobody:
        trusted = False

        def ask(self, operation: str, key: int, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError("nothing is asked")

    objects = Objects(Nobody())
    kept = [objects.adopt(-key, Shell()) for key in range(1, MAX_OBJECTS + 1)]
    with pytest.raises(WireError, match="too many objects"):
        objects.adopt(-MAX_OBJECTS - 1, Shell())
    for thing in kept:
        objects.own(thing)
    with pytest.raises(Uncrossable, match="too many objects"):
        objects.own(Shell())


class Shell:
    """An object of no further interest."""


def test_the_reply_to_a_call_that_was_interrupted_is_not_taken_for_the_next_one(sandbox: Sandbox) -> None:
    source = """
import time
def slow(): time.sleep(2); return "slow"
def quick(): return "quick"
"""
    with sandbox.submission([Cell("code", source, "given")]) as submission:
        slow, quick = submission.answer("slow"), submission.answer("quick")
        with pytest.raises(AnswerTimeout), deadline(0.1):
            slow()
        with pytest.raises(AnswerTimeout):
            quick()
        assert submission.answer("quick")() == "quick"


def test_two_answers_at_once_do_not_meet(sandbox: Sandbox) -> None:
    source = """
import os
def leave(text): open("note", "w").write(text); return os.getcwd(), os.getpid()
def look(path): return open(path + "/note").read()
def kill(pid): os.kill(pid, 9)
"""
    cells = [Cell("code", source, "given")]
    with sandbox.submission(cells) as one, sandbox.submission(cells) as two:
        home, pid = one.answer("leave")("mine")
        with pytest.raises(PermissionError):
            two.answer("look")(home)
        with pytest.raises(PermissionError):
            two.answer("kill")(pid)
        assert one.answer("look")(home) == "mine"


# ------------------------------------------------------------------------------------------------------ the wire

FIND = 'peer = next(o for o in gc.get_objects() if type(o).__name__ == "Player")\n'

SEND = (
    FIND
    + """
def send(**parts):
    peer.channel.send({"r": 1, "v": None, "t": [], "b": [], **parts})
    time.sleep(30)
"""
)

FORGED = {
    "garbage": "os.write(3, b'garbage' * 100); time.sleep(30)",
    "verdict": """
import json, struct
text = json.dumps({"verdict": "passed", "score": 100, "status": "passed", "r": 1, "v": True}).encode()
os.write(3, struct.pack("<4sIQ", b"ANS1", len(text), 0) + text)
time.sleep(30)
""",
    "huge frame": "import struct; os.write(3, struct.pack('<4sIQ', b'ANS1', 10, 1 << 62)); time.sleep(30)",
    "deep header": "import struct; t = b'[' * 100000\n"
    "os.write(3, struct.pack('<4sIQ', b'ANS1', len(t), 0) + t); time.sleep(30)",
    "unknown object": FIND + "peer.channel.send({'r': 1, 'v': ['O', 999], 't': [], 'b': []}); time.sleep(30)",
    "unknown tensor": FIND + "peer.channel.send({'r': 1, 'v': ['T', 5], 't': [], 'b': []}); time.sleep(30)",
    "unknown graph": FIND
    + "peer.channel.send({'r': 1, 'v': None, 'c': [1, [0], [99]], 't': [], 'b': []}); time.sleep(30)",
    "wrong index": FIND
    + "peer.channel.send({'r': 1, 'v': None, 'u': [[[77, 0, -2]], [], []], 't': [], 'b': []}); time.sleep(30)",
    "odd exception": FIND + "peer.channel.send({'r': 1, 'x': [1, 2], 't': [], 'b': []}); time.sleep(30)",
    "odd module": FIND
    + "peer.channel.send({'r': 1, 'y': [[], [[1, [2, ['x', [], 'Module', ['__init__'], None]], True, [], [], []]]],"
    " 't': [], 'b': []}); time.sleep(30)",
    "an unknown operation": FIND + "peer.ask('exec', 1, ('import os',)); time.sleep(30)",
    "an unknown key": FIND + "peer.ask('get', 12345, ('x',))",
    "endless progress": FIND + "while True: peer.channel.send({'at': 1})",
    "endless callbacks": "while True: a[0](1)",
    "deep callbacks": "return a[1](f, a)",
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_frames_end_the_conversation(attack: Attack, name: str) -> None:
    def nest(f: Callable[..., Any], a: Any) -> Any:
        return f(*a)

    started = time.monotonic()
    try:
        value = attack(FORGED[name], lambda x: x, nest)
        assert name == "verdict" and value is True  # a value for the check in course, nothing more
    except AnswerLost as lost:
        assert str(lost).startswith(("crashed: what the answer sent cannot be read", "timeout: no answer within 4 s"))
    except (AttributeError, RecursionError):
        assert name in ("an unknown operation", "deep callbacks")
    assert time.monotonic() - started < LIMITS.seconds + 3


def test_a_message_of_any_length_is_cut(sandbox: Sandbox) -> None:
    """An answer writes frames itself: who receives one keeps to the bound, not who sends it."""
    source = f"""
import gc, time
{FIND}
def f():
    peer.channel.send({{"r": 1, "x": ["ValueError", "ValueError", "m" * 1_000_000, None, 0], "t": [], "b": []}})
    time.sleep(3)
"""
    with sandbox.submission([Cell("code", source, "given")]) as submission:
        with pytest.raises(ValueError, match="mmm") as raised:
            submission.answer("f")()
        assert len(str(raised.value)) == 2_000


def test_a_reply_sent_early_is_a_value_of_another_question(sandbox: Sandbox) -> None:
    """Sent in advance, frames shift what the answer says; they never say anything about points."""
    source = """
import os, json, struct
def f(x):
    text = json.dumps({"r": 1, "v": 41, "t": [], "b": []}).encode()
    os.write(3, (struct.pack("<4sIQ", b"ANS1", len(text), 0) + text) * 3)
    return 42
"""
    with sandbox.submission([Cell("code", source, "given")]) as submission:
        f = submission.answer("f")
        with contextlib.suppress(AnswerLost):
            assert {f(1) for _ in range(5)} <= {41, 42}


def test_functions_of_the_check_show_nothing_but_their_results(attack: Attack) -> None:
    hidden = torch.tensor([SECRET.count("s")])

    def check(x: int) -> int:
        return x + len(hidden)

    body = (
        FIND
        + """
out = []
key = -a[0].__dict__["_across_the_wall"].key
for name in ("__globals__", "__code__", "__closure__", "__self__", "__func__", "__module__", "__class__", "hidden"):
    for operation in ("get", "method"):
        try:
            out.append((operation, name, str(peer.ask(operation, key, (name,)))))
        except AttributeError:
            pass
for operation in ("set", "delete", "__getitem__", "__setitem__", "__repr__", "__str__", "__deepcopy__", "answer"):
    try:
        out.append((operation, str(peer.ask(operation, key, ("x", 1)))))
    except (AttributeError, TypeError):
        pass
return out, a[0](1)
"""
    )
    assert attack(body, check) == ([], 2)


def test_functions_of_the_check_do_not_tell_what_they_look_for(attack: Attack) -> None:
    def looks_for_a_constant(x: int, wanted: int = 31415) -> int:
        return x + wanted

    shown = attack("import inspect\nreturn a[0].__name__, str(inspect.signature(a[0])), a[0](1)", looks_for_a_constant)
    assert shown[0] == "function" and "wanted" not in shown[1] and "31415" not in shown[1] and shown[2] == 31416


def test_objects_of_the_check_can_be_read_not_written(attack: Attack) -> None:
    class Shelf:
        def __init__(self) -> None:
            self.items = {"a": 1.0}

        def __getitem__(self, key: str) -> float:
            return self.items[key]

        def __setitem__(self, key: str, value: float) -> None:
            self.items[key] = value

        def __delitem__(self, key: str) -> None:
            del self.items[key]

        def __add__(self, other: float) -> float:
            self.items["a"] += other
            return self.items["a"]

        def __enter__(self) -> str:
            return self.items.__repr__()

        def __exit__(self, *_: object) -> None:
            self.items.clear()

    body = """
shelf, out = a[0], [a[0]["a"]]
def enter():
    with shelf: pass
def write(): shelf["a"] = 9.0
def remove(): del shelf["a"]
def replace(): shelf.items = {}
def drop(): del shelf.items
for attempt in (write, remove, enter, replace, drop, lambda: shelf + 1.0):
    try:
        attempt()
        out.append("done")
    except BaseException as error:
        out.append(type(error).__name__)
return out
"""
    shelf = Shelf()
    assert attack(body, shelf) == [1.0, *["AttributeError"] * 6] and shelf.items == {"a": 1.0}


def test_modules_of_the_check_can_be_used_not_rebuilt(attack: Attack) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)
            self._secret = SECRET
            self.kind = type

        def helper(self, x: torch.Tensor) -> torch.Tensor:
            return self.layer(x)

    model = Model()
    x = torch.ones(3, 2)
    want = model.helper(x)
    body = (
        FIND
        + """
model, x = a
out = [model.helper(x)]
for name in ("_secret", "kind", "__dict__", "__class__", "register_forward_hook", "apply"):
    try:
        out.append(peer.ask("get", -model.__dict__["_across_the_wall"].key, (name,)))
    except AttributeError:
        pass
for change in (lambda: setattr(model, "helper", None), lambda: setattr(model, "layer", torch.nn.Identity()),
               lambda: model.register_forward_hook(lambda *_: torch.zeros(3, 2))):
    try:
        change()
    except AttributeError:
        pass
return out
"""
    )
    got = attack(body, model, x)
    assert len(got) == 1 and torch.equal(got[0], want)
    assert isinstance(model.layer, nn.Linear) and torch.equal(model.helper(x), want) and not model._forward_hooks


def test_parameters_of_the_check_keep_their_shape(attack: Attack) -> None:
    model = nn.Linear(2, 3)
    body = """
before = a[0].weight.shape
a[0].weight.data = torch.zeros(1, 7)
a[0].bias.data = torch.zeros(3, dtype=torch.float64)
a[0].training = False
return tuple(before)
"""
    assert attack(body, model) == (3, 2)
    assert model.weight.shape == (3, 2) and model.bias.dtype is torch.float32 and model.weight.abs().sum() > 0


def test_a_callback_with_enormous_arguments_does_not_take_the_machine(attack: Attack) -> None:
    def scores(x: torch.Tensor) -> torch.Tensor:
        return x @ x.T

    with pytest.raises((RuntimeError, MemoryError, AnswerCrashed)):
        attack("return a[0](torch.zeros(60000, 1))", scores)


class TestValues:
    """Odd values are values: the judge compares what they hold, never how they compare themselves."""

    def test_tensor_subclasses_are_plain(self, attack: Attack) -> None:
        body = """
class Liar(torch.Tensor):
    def __eq__(self, other): return torch.ones((), dtype=torch.bool)
    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None): return torch.ones((), dtype=torch.bool)
return torch.zeros(2).as_subclass(Liar)
"""
        got = attack(body)
        assert type(got) is torch.Tensor and torch.equal(got, torch.zeros(2))

    def test_numbers_that_equal_everything(self, attack: Attack) -> None:
        body = """
class Any(float):
    def __eq__(self, other): return True
    def __sub__(self, other): return 0.0
    __rsub__ = __sub__
class Word(str):
    def __eq__(self, other): return True
class Many(int):
    def __index__(self): return 5
return [Any(1.5), Word("a"), Many(2)]
"""
        got = attack(body)
        assert got == [1.5, "a", 2] and [type(v) for v in got] == [float, str, int] and got[0] != 2

    def test_objects_do_not_pass_as_data(self, attack: Attack) -> None:
        body = """
class Everything:
    def __eq__(self, other): return True
    def __float__(self): return 1.0
    @property
    def __class__(self): return torch.Tensor
return Everything()
"""
        got = attack(body)
        assert not isinstance(got, torch.Tensor | int | float)

    def test_cyclic_deep_and_huge_values(self, attack: Attack) -> None:
        for body in (
            "x = []; x.append(x); return x",
            "x = 1\nfor _ in range(100000): x = [x]\nreturn x",
            "x = [0] * 10\nfor _ in range(40): x = [x] * 10\nreturn x",
            "return 10 ** 100000",
            "return 'x' * (1 << 24)",
            "return os",
        ):
            with pytest.raises(TypeError):
                attack(body)

    @pytest.mark.parametrize(
        "body",
        [
            "return torch.zeros(1).expand(1 << 40)",
            "return torch.zeros(1, 1).expand(1 << 20, 1 << 20)",
            "return torch.zeros(40 << 20)",
        ],
    )
    def test_tensors_that_only_seem_small(self, attack: Attack, body: str) -> None:
        started = time.monotonic()
        with contextlib.suppress(AnswerCrashed):
            assert attack(body).numel() <= 64 << 20
        assert time.monotonic() - started < LIMITS.seconds + 3

    def test_exceptions_that_bite(self, attack: Attack) -> None:
        body = """
class Bad(Exception):
    def __str__(self): raise RuntimeError("again")
    __repr__ = __str__
raise Bad(1)
"""
        with pytest.raises(Exception, match=r"cannot be shown|Bad"):
            attack(body)
        with pytest.raises(Exception, match="KeyboardInterrupt"):
            attack("raise KeyboardInterrupt")
        with pytest.raises(RecursionError):
            attack("return f(*a)")
        with pytest.raises(ValueError) as caught:
            attack("raise ValueError('x' * 1000000)")
        assert len(str(caught.value)) <= 2000
        with pytest.raises(Exception, match="mine") as other:  # a verdict is the judge's to give
            attack("class AnswerTimeout(Exception): pass\nraise AnswerTimeout('mine')")
        assert not isinstance(other.value, AnswerLost)


def test_broken_and_missing_cells_are_told_as_in_process(sandbox: Sandbox) -> None:
    cells = [Cell("code", "def a(:", "solve", "a", 1), Cell("code", "b = 1 / 0", "solve", "b", 2)]
    with sandbox.submission(cells) as submission:
        with pytest.raises(BrokenCell, match="SyntaxError"):
            submission.answer("a")
        with pytest.raises(BrokenCell, match=r"ZeroDivisionError.*cell 2, line 1: b = 1 / 0"):
            submission.answer("b")
        with pytest.raises(Missing):
            submission.answer("c")


def test_nothing_remains_when_the_box_is_closed() -> None:
    own = Sandbox(LIMITS)
    with own:
        pid = own.box.pid
        submission = own.submission([GOOD])
        assert submission.answer("good")(1) == 2
        children = _descendants(pid)
        assert len(children) >= 2
    until = time.monotonic() + 5
    while any(Path(f"/proc/{child}").exists() for child in [pid, *children]) and time.monotonic() < until:
        time.sleep(0.02)
    assert not [child for child in [pid, *children] if Path(f"/proc/{child}").exists()]


def _descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text(encoding="ascii").split():
            found += [int(child), *_descendants(int(child))]
    return found


def test_two_boxes_in_two_threads() -> None:
    found: list[Any] = []

    def work() -> None:
        with Sandbox(LIMITS) as own, own.submission([GOOD]) as submission:
            found.append(submission.answer("good")(1))

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert found == [2, 2]
