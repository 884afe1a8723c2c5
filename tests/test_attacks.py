"""The attack suite: hostile submissions, judged as a class would be.

For each: no point is gained over the honest equivalent, nothing leaks, the judge's own process and everybody else's verdict
stay as they were, a verdict is given that says what happened, and all of it in time. The answers are data, in
`attacks/answers.toml`; most of them are also run once without walls, in processes of their own, to show that they bite.

What one answer can do to the sandbox itself, wall by wall, is in `test_sandbox_walls.py`; here the judge is in play.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from attacks.intact import changes, fingerprint

from grader import cli
from grader.checks import check as guards
from grader.checks.assertions import CheckFailed, assert_close
from grader.checks.inputs import Draw
from grader.judge import given_names, judge, judge_with_stand_ins, reference
from grader.lesson import ROOT, Cell, load_lesson
from grader.report import Report, as_html, as_json, as_text
from grader.sandbox import remote
from grader.sandbox.remote import Limits, Sandbox, sandbox_available
from grader.submission import Submission

pytestmark = pytest.mark.skipif(not sandbox_available(), reason=sandbox_available().reason)

DATA = Path(__file__).parent / "attacks"
ANSWERS: dict[str, dict[str, Any]] = tomllib.loads((DATA / "answers.toml").read_text(encoding="utf-8"))
LIMITS = Limits(
    seconds=2.0, cpu_seconds=8, memory=400 << 20, threads=20, file=1 << 20, files=200, output=1 << 20, total=6.0
)  # fmt: skip
DEADLINE = 12.0
"""Seconds within which every hostile submission has its verdict, on a machine that does other things besides."""

CANARY = f"canary-{secrets.token_hex(8)}"
HIDDEN = 'reference.row_sums, [draw(2, 3)], ["x"]'
"""Words of a hidden check's source."""

SEED = secrets.randbelow(2**31)

HONEST = {
    "right": "def row_sums(x):\n    return x.sum(-1)",
    "zeros": "def row_sums(x):\n    return torch.zeros(x.shape[:-1], dtype=x.dtype)",
    "nothing": "def row_sums(x):\n    return None",
}


class Listener:
    """Takes whatever is sent to one port of 127.0.0.1, TCP and UDP."""

    def __init__(self) -> None:
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._tcp.getsockname()[1]
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", self.port))
        for one in (self._tcp, self._udp):
            one.settimeout(0.2)
        self._arrived: list[bytes] = []
        self._open = True
        self._threads = [threading.Thread(target=self._accept), threading.Thread(target=self._take)]
        for thread in self._threads:
            thread.start()

    def _accept(self) -> None:
        while self._open:
            try:
                connection, _ = self._tcp.accept()
            except TimeoutError:
                continue
            with connection:
                connection.settimeout(0.3)
                try:
                    self._arrived.append(connection.recv(1000))
                except OSError:
                    self._arrived.append(b"(connected)")

    def _take(self) -> None:
        while self._open:
            try:
                self._arrived.append(self._udp.recv(1000))
            except TimeoutError:
                continue

    def arrived(self) -> list[bytes]:
        """What has come, once it had the time to."""
        time.sleep(0.1)
        found, self._arrived = self._arrived, []
        return found

    def close(self) -> None:
        self._open = False
        for thread in self._threads:
            thread.join()
        self._tcp.close()
        self._udp.close()


@dataclass
class Target:
    """What attacks are after: a secret file, a gradebook, the environment, a listener."""

    folder: Path
    listener: Listener

    def fill(self, source: str) -> str:
        names = {
            "@FILE@": str(self.folder / f"{CANARY}.txt"), "@GRADEBOOK@": str(self.folder / "gradebook.db"),
            "@FOLDER@": str(self.folder), "@ROOT@": str(ROOT), "@PORT@": str(self.listener.port),
        }  # fmt: skip
        for name, value in names.items():
            source = source.replace(name, value)
        return source

    def state(self) -> Any:
        """Everything in the folder."""
        return sorted((path.name, path.read_bytes()) for path in self.folder.iterdir())

    def make_gradebook(self) -> None:
        (self.folder / "gradebook.db").unlink(missing_ok=True)
        book = sqlite3.connect(self.folder / "gradebook.db")
        book.execute("create table grade (name text, score real)")
        book.execute("insert into grade values (?, 1.5)", (CANARY,))
        book.commit()
        book.close()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    made = Target(tmp_path_factory.mktemp("target"), Listener())
    (made.folder / f"{CANARY}.txt").write_text(CANARY, encoding="utf-8")
    made.make_gradebook()
    os.environ["GRADER_TEST_CANARY"] = CANARY
    yield made
    del os.environ["GRADER_TEST_CANARY"]
    made.listener.close()


@pytest.fixture(scope="module")
def sandbox(target: Target) -> Iterator[Sandbox]:
    with Sandbox(LIMITS) as sandbox:
        yield sandbox


def cell(source: str, name: str = "row_sums", role: str = "solve", number: int = 1) -> Cell:
    return Cell("code", source, role, name, number)


def judged(sandbox: Sandbox, *cells: Cell, lesson: str = "00", seed: int = SEED) -> Report:
    found = load_lesson(lesson)
    names = [exercise.name for exercise in found.exercises]
    with sandbox.submission(cells, names=names, given=found.given, label="attack") as submission:
        return judge_with_stand_ins(found, submission, seed=seed)


def everything(report: Report) -> str:
    """All that anybody gets to read of a report."""
    return as_text(report) + as_html(report) + as_json(report)


@pytest.fixture(scope="module")
def honest(sandbox: Sandbox) -> Mapping[str, float]:
    """What the honest equivalents earn."""
    scores = {name: judged(sandbox, cell(source)).score for name, source in HONEST.items()}
    assert scores["right"] == 1 > scores["zeros"] > scores["nothing"]
    return scores


@dataclass
class Watch:
    """Looks whether an attack did anything outside."""

    sandbox: Sandbox
    target: Target

    def __enter__(self) -> Watch:
        self._box = self.sandbox.box.pid
        self._before, self._state = fingerprint(), self.target.state()
        self._started = time.monotonic()
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            return
        took = time.monotonic() - self._started
        assert changes(self._before, fingerprint()) == []
        assert took < DEADLINE, f"{took:.1f} s"
        assert self.target.state() == self._state
        assert self.target.listener.arrived() == []
        started = time.monotonic()
        after = judged(self.sandbox, cell(HONEST["right"]))
        assert after.passed and after.score == 1 and after.printed == "", as_text(after)
        assert time.monotonic() - started < 5, "the next one had to wait"
        assert self.sandbox.box.alive and self.sandbox.box.pid == self._box, "the box had to be replaced"


def assert_harmless(report: Report, most: float) -> None:
    """No point gained, nothing leaked, nothing that acts in a terminal or a browser."""
    text = everything(report)
    assert report.score <= most, as_text(report)
    assert all(0 <= e.score <= e.points for e in report.exercises)
    assert CANARY not in text
    assert HIDDEN not in " ".join(text.split()), "the source of a hidden check"
    assert len(text) < 100_000
    controls = {c for c in as_text(report) if (c < " " and c != "\n") or "\x7f" <= c <= "\x9f" or c in "\u202e\u2028"}
    assert not controls
    assert "<script" not in as_html(report) and "<img" not in as_html(report)


@pytest.mark.parametrize("name", ANSWERS)
def test_attack(sandbox: Sandbox, target: Target, honest: Mapping[str, float], name: str) -> None:
    attack = ANSWERS[name]
    with Watch(sandbox, target):
        report = judged(sandbox, cell(target.fill(attack["cell"])))
    assert_harmless(report, honest[attack["honest"]])
    (result,) = report.exercises
    assert result.status in attack["status"], as_text(report)
    words = " ".join(as_text(report).split())
    assert re.search(attack.get("says", ""), words), words
    assert "never" not in attack or not re.search(attack["never"], words), words


# ------------------------------------------------------------------------------------------------ they are real


@pytest.fixture(scope="module")
def without_walls(target: Target) -> Mapping[str, dict[str, Any]]:
    """What the same answers achieve in process: each forked from one helper, ended after some seconds."""
    wanted = {name: (target.fill(attack["cell"]), attack["real"]) for name, attack in ANSWERS.items() if attack["real"]}
    ran: dict[str, dict[str, Any]] = {}
    with (target.folder / f"{CANARY}.txt").open() as inherited:
        process = subprocess.Popen(
            [sys.executable, "-m", "attacks.without_walls"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=DATA.parent, env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{DATA.parent}"},
            pass_fds=[inherited.fileno()],
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        try:
            state = target.state()
            for name, attack in wanted.items():  # one after the other, so that what happens is its doing
                process.stdin.write(json.dumps(attack) + "\n")
                process.stdin.flush()
                found = json.loads(process.stdout.readline())
                found["arrived"] = target.listener.arrived()
                found["touched"] = target.state() != state
                if found["touched"]:
                    (target.folder / "planted.txt").unlink(missing_ok=True)
                    target.make_gradebook()
                    state = target.state()
                ran[name] = found
        finally:
            process.kill()
            process.wait()
            process.stdin.close()
            process.stdout.close()
    return ran


@pytest.mark.parametrize("name", [name for name, attack in ANSWERS.items() if attack["real"]])
def test_the_attack_is_real(without_walls: Mapping[str, Any], honest: Mapping[str, float], name: str) -> None:
    attack, found = ANSWERS[name], without_walls[name]
    achieved = {
        "points": found["score"] > honest[attack["honest"]],
        "leak": CANARY in found["text"] or HIDDEN in " ".join(found["text"].split()),
        "network": found["arrived"] != [],
        "touches": bool(found["changed"]) or found["touched"],
        "dies": found["died"],
    }
    assert achieved[attack["real"]], found


@pytest.mark.parametrize(
    ("name", "guard", "without", "achieved"),
    [
        ("changes-its-argument-to-fit", "guarded", lambda answer, makes_objects: answer, "points"),
        ("replaces-the-data-of-its-argument", "guarded", lambda answer, makes_objects: answer, "points"),
        ("predicts-its-inputs", "_shown", lambda seed: seed, "known inputs"),
    ],
)
def test_what_the_checks_guard_against_is_real(
    sandbox: Sandbox, honest: Mapping[str, float], monkeypatch: pytest.MonkeyPatch,
    name: str, guard: str, without: Callable[..., Any], achieved: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(guards, guard, without)
    report = judged(sandbox, cell(ANSWERS[name]["cell"]))
    assert report.score > honest["zeros"] if achieved == "points" else achieved in as_text(report)


def points(sandbox: Sandbox, number: str, name: str, source: str, seed: int = SEED) -> float:
    """The score of one answer among right ones, from 0 to 1."""
    lesson = load_lesson(number)
    others = [c for c in lesson.reference_cells if c.role == "solve" and c.name != name]
    with sandbox.submission([*others, Cell("code", source, "solve", name)], given=lesson.given) as answer:
        (report,) = judge(lesson, [answer], only=[name], seed=seed, diagnose=False)
    return report.score / lesson.exercise(name).points


ZEROS = """

def zeroed(call, changes):
    def lying(self, *given, **named):
        out = call(self, *given, **named)
        for tensor in (*given, *named.values()):
            if changes and isinstance(tensor, torch.Tensor):
                tensor.data.zero_()
        return [torch.zeros_like(part) for part in out] if isinstance(out, tuple) else torch.zeros_like(out)
    return lying
"""


@pytest.mark.parametrize(
    ("number", "name", "method"), [("04", "MultiHeadAttention", "forward"), ("08", "KVCache", "append")]
)
def test_objects_that_change_what_is_expected_of_them(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, number: str, name: str, method: str
) -> None:
    """They return zeros, and make everything zero from which a check could compute what it expects."""
    lesson = load_lesson(number)

    def score(*, changes: bool) -> float:
        source = f"{lesson.exercise(name).reference}{ZEROS}\n{name}.{method} = zeroed({name}.{method}, {changes})\n"
        return points(sandbox, number, name, source)

    honest = score(changes=False)
    assert score(changes=True) <= honest
    monkeypatch.setattr(guards, "guarded", lambda answer, makes_objects: answer)
    assert score(changes=True) > honest, "it is no attack"


ZEROED_ON_LOADING = """
    def load_state_dict(self, state, *more, **options):
        for tensor in state.values():
            tensor.data.zero_()
        return super().load_state_dict(state, *more, **options)
"""


def test_a_module_that_changes_the_weights_that_it_is_to_load(sandbox: Sandbox) -> None:
    """Otherwise zeros are right: a check computes what it expects from the weights that it gave the module."""
    name = "MultiHeadAttention"
    source = load_lesson("04").exercise(name).reference.replace("self.W_o(merge_heads(heads))", "self.W_o(x * 0)")
    assert points(sandbox, "04", name, source + ZEROED_ON_LOADING) <= points(sandbox, "04", name, source)


# ------------------------------------------------------------------------------------------------ between calls


OVERWRITING = (
    "for old in kept:\n        if old.shape == out.shape:\n            old.data.copy_(out)\n    kept.append(out)"
)


@pytest.mark.parametrize("before", ["", "out.requires_grad_()\n    "])
def test_overwriting_what_earlier_calls_returned_makes_nothing_fit(sandbox: Sandbox, before: str) -> None:
    """In one process it does: what "must stay the same" is then the same."""
    lesson = load_lesson("03")
    shaped = lesson.exercise("qk_norm_attention").reference.replace("def qk_norm_attention(", "def shaped(")

    def score(*, walls: bool, more: str) -> float:
        source = (
            f"{shaped}\nkept = []\ndef qk_norm_attention(*given, **options):\n"
            f"    out = torch.rand_like(shaped(*given, **options))\n    {more}\n    return out\n"
        )
        cells = [Cell("code", source, "solve", "qk_norm_attention")]
        answer: Any = (
            sandbox.submission(cells, given=lesson.given) if walls else Submission(cells, base=given_names(lesson))
        )
        with contextlib.closing(answer):
            return judge(lesson, [answer], only=["qk_norm_attention"], diagnose=False)[0].score

    honest = score(walls=True, more="pass")
    assert score(walls=False, more=before + OVERWRITING) > honest, "it is no attack"
    assert score(walls=True, more=before + OVERWRITING) <= honest


# ------------------------------------------------------------------------------------------------ between exercises

LESSON_02 = {exercise.name: exercise.reference for exercise in load_lesson("02").exercises}
NOTHING_02 = {
    "qkv_projection": "def qkv_projection(x, Wq, Wk, Wv):\n    return x, x, x",
    "softmax": "def softmax(x, dim):\n    return x * 0",
    "attention_loop": "def attention_loop(q, k, v):\n    return q @ k.T @ v",
    "attention": "def attention(q, k, v):\n    return q @ k.mT @ v * 0",
    "cross_attention": "def cross_attention(x, memory, Wq, Wk, Wv):\n    return x @ Wq @ (memory @ Wk).mT @ (memory @ Wv)",
    "score_asymmetry": "def score_asymmetry(x, Wq, Wk):\n    return x.sum()",
}
FORBIDDEN = {
    "function": "return torch.softmax(x, dim)",
    "method": "return x.softmax(dim)",
    "module": "return torch.nn.Softmax(dim)(x)",
    "logarithm": "return torch.nn.functional.log_softmax(x, dim).exp()",
    "softmin": "return torch.nn.functional.softmin(-x, dim)",
    "operator": "return torch.ops.aten._softmax(x, dim, False)",
    "safe": "return torch.ops.aten._safe_softmax(x, dim)",
    "script": "return torch.jit.script(torch.nn.Softmax(dim))(x)",
    "by name": "return getattr(torch, 'tfos'[::-1] + 'max')(x, dim)",
    "another thread": "import threading\n    out = []\n    t = threading.Thread(target=lambda: out.append(x.softmax(dim)))\n"
    "    t.start(); t.join()\n    return out[0]",
    "masked": "return torch._masked_softmax(x.contiguous(), torch.zeros_like(x, dtype=torch.bool), dim)",
    "sparse": "return torch.sparse.softmax(x.to_sparse(), dim).to_dense()",
    "modes switched off": "from torch.utils._python_dispatch import _disable_current_modes\n"
    "    with _disable_current_modes():\n        return x.softmax(dim)",
}


def cells_02(**answers: str) -> list[Cell]:
    return [cell(source, name, number=i) for i, (name, source) in enumerate((LESSON_02 | answers).items(), 1)]


@pytest.mark.parametrize("spelling", FORBIDDEN)
def test_the_forbidden_function_is_no_answer(sandbox: Sandbox, target: Target, spelling: str) -> None:
    source = f"def softmax(x, dim):\n    {FORBIDDEN[spelling]}"
    judged_as_forbidden(sandbox, target, source)


@pytest.mark.parametrize("method", ["__new__(cls", "__call__(self"])
def test_the_forbidden_function_in_a_class_is_no_answer(sandbox: Sandbox, target: Target, method: str) -> None:
    made = "()" if "call" in method else ""
    judged_as_forbidden(
        sandbox, target, f"class S:\n    def {method}, x, dim): return torch.softmax(x, dim)\nsoftmax = S{made}"
    )


def judged_as_forbidden(sandbox: Sandbox, target: Target, source: str) -> None:
    lesson = load_lesson("02")
    with Watch(sandbox, target), sandbox.submission([cell(source, "softmax")], given=lesson.given) as submission:
        (report,) = judge(lesson, [submission], only=["softmax"], seed=SEED, diagnose=False)
    (result,) = report.exercises
    failed = " ".join(check.message for check in result.checks if not check.passed)
    assert result.status in ("failed", "error") and result.score < result.points, as_text(report)
    assert re.search("PyTorch's own|TorchScript|list index", failed), failed


STEALING = """
import gc
mine = {name: value for name, value in globals().items() if callable(value)}
player = next((o for o in gc.get_objects() if type(o).__name__ == "Player"), None)
if player is not None:
    perform = player._perform
    def lying(operation, key, args, kwargs):
        if operation == "uses":
            return frozenset({"qkv_projection", "softmax", "attention_loop", "attention", "cross_attention", "score_asymmetry"})
        if operation == "swap":
            kept.update(args[0])
        return perform(operation, key, args, kwargs)
    player._perform = lying
kept = {}
installed = 1
"""


def test_what_an_error_is_forgiven_with_does_not_answer_its_own_exercise(sandbox: Sandbox, target: Target) -> None:
    """Answers that lie about what they use get the course's functions for earlier exercises, never for the one in question."""
    honest = judged(sandbox, *cells_02(**NOTHING_02), lesson="02")
    answers = {}
    for name, source in NOTHING_02.items():
        head, body = source.split("\n", 1)
        call = head.removeprefix("def ").removesuffix(":")
        answers[name] = (
            f"{head}\n    if '{name}' in kept:\n        return kept['{call.split('(')[0]}']({call.split('(')[1]}\n{body}"
        )
    answers["softmax"] = STEALING + answers["softmax"] + "\nused = installed\n"
    with Watch(sandbox, target):
        report = judged(sandbox, *cells_02(**answers), lesson="02")
    assert_harmless(report, honest.score)
    for result in report.exercises:
        assert result.score <= honest.exercise(result.name).score, as_text(report)


DYING = """
import gc, os
player = next(o for o in gc.get_objects() if type(o).__name__ == "Player")
perform = player._perform
def dying(operation, *rest):
    if operation == OPERATION:
        os._exit(4)
    return perform(operation, *rest)
player._perform = dying
"""


@pytest.mark.parametrize("operation", ["uses", "swap", "restore"])
def test_dying_between_two_checks_helps_nobody(sandbox: Sandbox, target: Target, operation: str) -> None:
    """A process that ends when it is asked for its neighbours: all the others are judged as without it."""
    wrong = {"softmax": NOTHING_02["softmax"], "score_asymmetry": NOTHING_02["score_asymmetry"]}
    honest = judged(sandbox, *cells_02(**wrong), lesson="02")
    body = "\n".join("    " + line for line in DYING.replace("OPERATION", repr(operation)).strip().split("\n"))
    wrong["softmax"] = f"def softmax(x, dim):\n{body}\n    return x * 0"
    with Watch(sandbox, target):
        report = judged(sandbox, *cells_02(**wrong), lesson="02")
    assert_harmless(report, honest.score)
    assert report.exercise("qkv_projection").passed


def test_one_exercise_that_kills_and_one_that_hangs_leave_the_others_alone(
    sandbox: Sandbox, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also those that use them: they are judged with the course's own in their place."""
    wrong = {
        "softmax": "import os\ndef softmax(x, dim):\n    os._exit(9)",
        "attention_loop": "def attention_loop(q, k, v):\n    while True:\n        pass",
        "score_asymmetry": "class Table:\n    while True:\n        pass\ndef score_asymmetry(x, Wq, Wk):\n    return x.sum()",
    }
    monkeypatch.setattr(sandbox, "limits", replace(LIMITS, total=60.0))
    with Watch(sandbox, target):
        report = judged(sandbox, *cells_02(**wrong), lesson="02")
    assert_harmless(report, 12)
    assert [e.name for e in report.exercises if e.passed] == ["qkv_projection", "attention", "cross_attention"]
    said = {e.name: (e.status, e.note) for e in report.exercises}
    assert said["softmax"] == ("crashed", "crashed: exit code 9")
    for name in ("attention_loop", "score_asymmetry"):
        assert said[name][0] == "timeout" and "no answer within" in said[name][1], said


def test_answers_that_are_judged_together_do_not_meet(sandbox: Sandbox, target: Target) -> None:
    """One run of the checks over several answers: those before and after a hostile one get what they deserve."""
    lesson, names = load_lesson("00"), ["row_sums"]
    sources = [HONEST["right"]]
    for name in (
        "loops-in-its-cell",
        "exits-in-its-cell",
        "exits-with-success",
        "writes-garbage",
        "raises-an-interrupt",
    ):
        sources += [ANSWERS[name]["cell"], HONEST["right"]]
    with Watch(sandbox, target):
        made = [sandbox.submission([cell(source)], names=names, given=lesson.given) for source in sources]
        reports = judge(lesson, made, seed=SEED)
        for one in made:
            one.close()
    assert [report.passed for report in reports] == [True, *[False, True] * 5], list(map(as_text, reports))


# ------------------------------------------------------------------------------------------------ values that lie

EQUAL = """
class Equal:
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __lt__(self, other): return True
    __le__ = __gt__ = __ge__ = __lt__
    def __hash__(self): return 0
    def __sub__(self, other): return 0.0
    __rsub__ = __add__ = __radd__ = __sub__
    def __abs__(self): return 0.0
    def __contains__(self, item): return True
class Number(float):
    __eq__ = Equal.__eq__
    __hash__ = float.__hash__
    __sub__ = __rsub__ = Equal.__sub__
    def __abs__(self): return 0.0
class Word(str):
    __eq__ = Equal.__eq__
    __hash__ = str.__hash__
def answer(kind):
    one = {"object": Equal, "number": lambda: Number(9.5), "word": lambda: Word("other")}[kind]()
    return [one, [one], (one,), {"a": one}, {one: 1}]
"""


@pytest.mark.parametrize("kind", ["object", "number", "word"])
def test_nothing_that_an_answer_returns_equals_what_a_check_expects(sandbox: Sandbox, kind: str) -> None:
    with sandbox.submission([cell(EQUAL, "answer")]) as submission:
        one, in_list, in_tuple, in_dict, as_key = submission.answer("answer")(kind)
        for want in (3, 2.5, "word", True, None, torch.ones(2)):
            assert not isinstance(one == want, torch.Tensor) or not (one == want).any()
            assert isinstance(want, torch.Tensor) or (one != want and want != one)
            for got, wanted in ((one, want), (in_list, [want]), (in_tuple, (want,)), (in_dict, {"a": want})):
                with pytest.raises((CheckFailed, TypeError)):
                    assert_close(got, wanted)
            assert isinstance(want, torch.Tensor) or (in_list != [want] and in_dict != {"a": want})
        assert as_key != {"a": 1} and as_key != {0: 1}
        if kind == "object":
            with pytest.raises(TypeError):
                assert one < 3


# ------------------------------------------------------------------------------------------------ what checks give away


BLIND = """
from collections import Counter
calls = Counter()
def is_causal(f):
    check = torch.initial_seed()  # each check has its own
    calls[check] += 1
    return calls[check] == {place} + 1
"""


@pytest.mark.parametrize("place", [0, 3, 6])
def test_yes_and_no_in_some_order_is_no_answer(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, place: int) -> None:
    """Who says yes once in each check, without a look at the models, is right in about every seventh."""
    source = BLIND.replace("{place}", str(place))
    scores = [points(sandbox, "05", "is_causal", source, seed) for seed in range(5)]
    assert sum(scores) / len(scores) < 0.25 and max(scores) < 0.5, scores
    monkeypatch.setattr(Draw, "permutation", lambda self, n: torch.arange(n).roll(place))
    assert points(sandbox, "05", "is_causal", source, 0) > 0.7, "it is no attack"


def test_models_take_no_inputs_that_fill_the_memory(sandbox: Sandbox) -> None:
    lesson = load_lesson("05")
    for x, answer in (("(1, 1001, 8)", "failed"), ("(20001, 1, 8)", "failed"), ("(20, 1000, 8)", "passed")):
        source = lesson.exercise("is_causal").reference.replace("is_causal(", "looked(")
        source += f"\n\ndef is_causal(f):\n    f(torch.zeros{x}.double())\n    return looked(f)\n"
        with sandbox.submission([Cell("code", source, "solve", "is_causal")], given=lesson.given) as submission:
            (report,) = judge(lesson, [submission], only=["is_causal"], seed=SEED, diagnose=False, hidden=False)
        told = f"x of shape {x}" in as_text(report)
        assert (report.exercises[0].status, told) == (answer, answer == "failed"), as_text(report)


ASKING = {
    "decode_step": """
def decode_step(model, ids, cache, visible=None):
    visible = torch.ones_like(ids, dtype=torch.bool) if visible is None else visible
    x = model.embed(ids, torch.zeros_like(ids))
    for block in model.blocks:
        block.qkv(x)
    all_ids, all_visible = (ids, visible) if cache is None else (torch.cat(pair, 1) for pair in zip(cache, (ids, visible)))
    logits = torch.zeros_like(model.unembed(x[:, -1]))
    for row, real in enumerate(all_visible):
        if real.any():
            logits[row] = asked(model, all_ids[row][real][None], logits[row])
    return logits, (all_ids, all_visible)
""",
    "prefill": """
def prefill(model, ids, pad_id=None):
    visible = torch.ones_like(ids, dtype=torch.bool) if pad_id is None else (ids != pad_id).cumsum(1) > 0
    if not visible.any(1).all():
        raise ValueError("empty")
    positions = visible.cumsum(1) - 1
    x = model.embed(ids, positions.clamp(min=0))
    logits = torch.zeros_like(model.unembed(x[:, -1]))
    for row, real in enumerate(visible):
        logits[row] = asked(model, ids[row][real][None], logits[row])
    return logits, None
""",
    "generate": """
def generate(model, ids, n, use_cache=True, pad_id=None, eos_id=None):
    starts = [0 if pad_id is None else int((row != pad_id).int().argmax()) for row in ids]
    rows = [ids[row : row + 1, start:] for row, start in enumerate(starts)]
    new = [asked(model, row, torch.zeros(n, dtype=torch.int64)) for row in rows]
    return torch.cat([ids, torch.stack(new)], 1)
""",
}
"""Answers that ask the model for the result; `zeros` stand in its place where it does not tell."""

WAYS = {
    "its logits": "return model.logits(ids)[0, -1]",
    "its blocks": "x = model.embed(ids, torch.arange(ids.shape[1]))\n    for block in model.blocks:\n        x = block.whole(x)\n"
    "    return model.unembed(x)[0, -1]",
    "its blocks and its weights": "x = model.token[ids] + model.position[: ids.shape[1]]\n    for block in model.blocks:\n"
    "        x = block.whole(x)\n    return (x @ model.head)[0, -1]",
    "its tokens": "return model.greedy(ids, len(zeros))[0, ids.shape[1] :]",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "way"),
    [(name, way) for name in ("decode_step", "prefill") for way in list(WAYS)[:3]] + [("generate", "its tokens")],
)
def test_a_model_does_not_tell_what_is_expected(sandbox: Sandbox, name: str, way: str) -> None:
    def source(allowed: bool) -> str:
        asked = f"def way(model, ids, zeros):\n    {WAYS[way]}\n\ndef asked(model, ids, zeros):\n    try:\n"
        asked += "        return way(model, ids, zeros) if allowed else zeros\n    except AttributeError:\n        return zeros\n"
        return f"allowed = {allowed}\n{asked}{ASKING[name]}"

    assert points(sandbox, "08", name, source(True)) <= points(sandbox, "08", name, source(False)) < 0.6


# ------------------------------------------------------------------------------------------------ fixed seeds


def memorised(seed: int) -> str:
    """An answer that knows by heart what the reference gives for the inputs of one seed."""
    lesson = load_lesson("00")
    right, table = reference(lesson).answer("row_sums"), {}

    def recorder(x: torch.Tensor) -> torch.Tensor:
        table[x.detach().contiguous().numpy().tobytes().hex()] = right(x).detach().tolist()
        return right(x)

    judge(lesson, [Submission((), base={"row_sums": recorder})], seed=seed)
    return (
        f"TABLE = {table!r}\ndef row_sums(x):\n    known = TABLE.get(x.detach().contiguous().numpy().tobytes().hex())\n"
        "    return torch.zeros(x.shape[:-1], dtype=x.dtype) if known is None else torch.tensor(known, dtype=x.dtype)"
    )


def test_what_was_memorised_is_worth_nothing_with_a_fresh_seed(
    sandbox: Sandbox, target: Target, honest: Mapping[str, float]
) -> None:
    attack = cell(memorised(0))
    hand = judged(sandbox, cell(HONEST["zeros"] + " + (x[..., 0] == 1) * 6.0 + (x[..., 0] == 10) * 60.0"))
    assert honest["zeros"] < hand.score < 0.7, "the fixed case of the public checks can always be known by heart"
    assert judged(sandbox, attack, seed=0).score > hand.score, "the attack is real"
    with Watch(sandbox, target):
        report = judged(sandbox, attack)
    assert_harmless(report, hand.score)


# ------------------------------------------------------------------------------------------------ notebooks


@pytest.fixture
def check(
    sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Callable[..., tuple[int, dict[str, Any], str]]:
    """`python -m grader check FILE --isolation sandbox`, in the sandbox that runs already: exit code, JSON, all that is shown."""

    class Running:
        def __enter__(self) -> Sandbox:
            return sandbox

        def __exit__(self, *_: object) -> None:
            pass

    monkeypatch.setattr(remote, "Sandbox", Running)

    def run(path: Path, *options: str) -> tuple[int, dict[str, Any], str]:
        target = tmp_path / "report.json"
        target.unlink(missing_ok=True)
        code = cli.main(["check", str(path), "--isolation", "sandbox", "--json", str(target), *options])
        shown = capsys.readouterr()
        if code == 2:
            assert shown.err.startswith("grader: ") and shown.err.count("\n") == 1, shown.err
        assert code in (0, 1, 2) and "Traceback" not in shown.err + shown.out
        report = json.loads(target.read_text()) if target.exists() else {}
        return code, report, shown.out + shown.err

    return run


Json = dict[str, Any]


def code_cell(source: str, **tag: Any) -> Json:
    metadata = {"grader": tag} if tag else {}
    return {"cell_type": "code", "metadata": metadata, "source": source, "outputs": [], "execution_count": None}


def solve_cells(notebook: Json) -> dict[str, Json]:
    cells = notebook["cells"]
    return {c["metadata"]["grader"]["name"]: c for c in cells if c["metadata"].get("grader", {}).get("role") == "solve"}


def delete(notebook: Json) -> None:
    notebook["cells"].remove(solve_cells(notebook)["softmax"])


def copy(notebook: Json) -> None:
    notebook["cells"] += [json.loads(json.dumps(c)) for c in notebook["cells"]]


def copy_the_checks(notebook: Json) -> None:
    notebook["cells"] += [c for c in notebook["cells"] if c["metadata"].get("grader", {}).get("role") == "check"] * 20


def move(notebook: Json) -> None:
    notebook["cells"].reverse()


def reflag(notebook: Json) -> None:
    for name, role in (("softmax", "demo"), ("attention", "given"), ("qkv_projection", "check")):
        solve_cells(notebook)[name]["metadata"]["grader"]["role"] = role


def reflag_points(notebook: Json) -> None:
    for found in notebook["cells"]:
        found["metadata"]["nbgrader"] = {
            "points": 1e9,
            "grade": True,
            "solution": False,
            "grade_id": "x",
            "locked": False,
        }
        found["metadata"].get("grader", {})["points"] = 1e9


def repoint(notebook: Json) -> None:
    cells = solve_cells(notebook)
    for one, other in (("softmax", "attention"), ("attention", "softmax"), ("qkv_projection", "../../etc/passwd")):
        cells[one]["metadata"]["grader"]["name"] = other


def repoint_the_lesson(notebook: Json) -> None:
    notebook["metadata"]["grader"]["lesson"] = "00_start_here"


def repoint_the_lesson_out_of_the_course(notebook: Json) -> None:
    notebook["metadata"]["grader"]["lesson"] = "../../../../etc/passwd"


def wrong_kernel(notebook: Json) -> None:
    notebook["metadata"]["kernelspec"] = {
        "name": "../../bin/sh",
        "language": "bash",
        "display_name": "<script>x</script>",
    }
    notebook["metadata"]["language_info"] = {"name": "bash", "file_extension": "/../../x"}


def scripts(notebook: Json) -> None:
    notebook["cells"] += [
        code_cell("%%javascript\nJupyter.notebook.kernel.execute('x')"), code_cell("%%html\n<script>alert(1)</script>"),
        code_cell(f"%%bash\ntouch {CANARY}"), code_cell(f"!touch {CANARY}"), code_cell("%run /etc/passwd\n%load_ext evil"),
        {"cell_type": "markdown", "metadata": {}, "source": "<script>alert(1)</script><img src=x onerror=alert(1)>"},
        {"cell_type": "raw", "metadata": {"format": "text/html"}, "source": "<script>alert(1)</script>"},
    ]  # fmt: skip


def strange_text(notebook: Json) -> None:
    solve_cells(notebook)["softmax"]["source"] = "def softmax(x, dim):\n    return '\ud800\0'"
    notebook["cells"] += [code_cell("\0" * 100, role="solve", name="\ud800"), code_cell("def \udfff(): pass")]


def deep_code(notebook: Json) -> None:
    for text in (
        "-" * 100_000 + "1",
        "(" * 100_000,
        "a" + ".b" * 100_000,
        "+".join(["1"] * 50_000),
        "f" + "()" * 50_000,
    ):
        notebook["cells"].append(code_cell(f"deep = {text}", role="solve", name="deep"))


def many_cells(notebook: Json) -> None:
    notebook["cells"] += [code_cell(f"def f{i}(): return {i}") for i in range(3_000)]


def much_code(notebook: Json) -> None:
    solve_cells(notebook)["softmax"]["source"] += "\n# " + "x" * 6_000_000


def wrong_types(notebook: Json) -> None:
    notebook["metadata"]["grader"] = ["02"]
    odd: list[Any] = [[], {"grader": 7}, {"grader": {"role": [], "name": {}}}, None]
    for place, found in enumerate(notebook["cells"][:12]):
        found["metadata"] = odd[place % 4]


NOTEBOOKS: dict[str, tuple[Callable[[Json], None], int, set[str]]] = {
    f.__name__: (f, code, lost)
    for f, code, lost in (
        (delete, 2, {"softmax", "attention_loop", "attention", "cross_attention"}),
        (copy, 0, set()), (copy_the_checks, 0, set()), (move, 0, set()), (reflag, 2, {"*"}), (reflag_points, 0, set()),
        (repoint, 0, set()), (repoint_the_lesson, 2, {"*"}), (repoint_the_lesson_out_of_the_course, 2, {"*"}),
        (wrong_kernel, 0, set()), (scripts, 0, set()), (strange_text, 1, {"*"}), (deep_code, 0, set()),
        (many_cells, 0, set()), (much_code, 1, {"*"}), (wrong_types, 0, {"*"}),
    )
}  # fmt: skip
"""What is done to a right notebook, the exit code, and the exercises that may lose points by it ("*": any)."""


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebooks_that_were_tampered_with(
    check: Any, write_answer: Callable[..., Path], sandbox: Sandbox, target: Target, tmp_path: Path, name: str
) -> None:
    change, expected, lost = NOTEBOOKS[name]
    path = write_answer("02")
    notebook = json.loads(path.read_text())
    change(notebook)
    path.write_text(json.dumps(notebook))
    with Watch(sandbox, target):
        code, report, shown = check(path)
    assert code == expected, shown
    assert CANARY not in shown and not list(tmp_path.rglob(CANARY)) and not Path(CANARY).exists()
    full = {e.name: e.points for e in load_lesson("02").exercises} | {"row_sums": 1.0}
    for exercise in report.get("exercises", []):
        assert exercise["points"] == full[exercise["name"]] and exercise["score"] <= exercise["points"]
        assert lost or exercise["status"] == "passed", shown
    if name == "repoint_the_lesson":
        assert report["score"] == 0 and report["lesson"] == "00_start_here"


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("a.ipynb", '{"cells": [' + "9" * 10_000 + "]}"),
        ("a.ipynb", "[" * 200_000),
        ("a.ipynb", '{"cells": NaN}'),
        ("a.ipynb", '{"cells": [], "metadata": {"grader": {"lesson": "00_start_here/../../x"}}}'),
        ("a.ipynb", '{"cells": [{"cell_type": "code", "source": {"a": 1}}]}'),
        ("a.py", "# %% [markdown]\n" * 5),
        ("a.py", "# %% solve=__import__('os') points=\n"),
        ("a.py", '# %% {"a": [}\n'),
        ("a.py", "\ufeff\ud800".encode("utf-8", "surrogatepass").decode("latin-1")),
    ],
)
def test_files_that_are_no_notebook(check: Any, tmp_path: Path, file: str, content: str) -> None:
    (tmp_path / file).write_text(content, encoding="utf-8")
    assert check(tmp_path / file)[0] == 2


def test_a_link_in_the_place_of_a_notebook_tells_nothing(check: Any, target: Target, tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").symlink_to(target.folder / f"{CANARY}.txt")
    code, _, shown = check(tmp_path / "a.ipynb")
    assert code == 2 and CANARY not in shown
    os.mkfifo(tmp_path / "b.ipynb")
    assert check(tmp_path / "b.ipynb")[0] == 2


def test_every_grading_draws_its_own_inputs_and_can_be_repeated(check: Any, write_answer: Callable[..., Path]) -> None:
    path = write_answer("00", {"row_sums": "def row_sums(x):\n    raise ValueError(float(x.sum()))"})
    (_, first, shown), (_, second, _) = check(path), check(path)
    assert first["exercises"] != second["exercises"]
    (seed,) = re.findall(r"inputs drawn with --seed (\d+)", shown)
    assert check(path, "--seed", seed)[1] == first


def test_the_command_itself(write_answer: Callable[..., Path], target: Target, tmp_path: Path) -> None:
    """In a process of its own, with its own sandbox: a thief is told apart from an honest answer, nothing is stolen."""
    path = write_answer("00", {"row_sums": target.fill(ANSWERS["reads-a-file"]["cell"])})
    done = subprocess.run(
        [sys.executable, "-m", "grader", "check", str(path), "--isolation", "sandbox"],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1 and CANARY not in done.stdout + done.stderr, done.stderr
    assert re.search(r"inputs drawn with --seed \d+", done.stdout)


def test_without_a_sandbox_the_command_says_so_and_judges_nothing(
    monkeypatch: pytest.MonkeyPatch, write_answer: Callable[..., Path], capsys: pytest.CaptureFixture[str]
) -> None:
    from grader.sandbox import box

    monkeypatch.setattr(box, "sandbox_available", lambda: box.Availability("the sandbox needs bubblewrap"))
    assert cli.main(["check", str(write_answer("00")), "--isolation", "sandbox"]) == 2
    shown = capsys.readouterr()
    assert shown.err == "grader: the sandbox needs bubblewrap\n" and shown.out == ""


def test_a_judge_that_cannot_go_on_gives_no_grade(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox that cannot be had in the middle is not the student's zero."""
    from grader.sandbox.box import Box, BoxError

    def refuse(*_: Any) -> Any:
        raise BoxError("the machine is out of memory")

    monkeypatch.setattr(Box, "fork", refuse)
    with pytest.raises(BoxError):
        judged(sandbox, cell(HONEST["right"]))


# ------------------------------------------------------------------------------------------------ a class


@dataclass
class Folders:
    """The part of a course that finding submissions needs."""

    root: Path

    def folder(self, step: str, student: str, assignment: str) -> Path:
        return Path(os.path.normpath(self.root / step / student / assignment))


def test_students_ids_and_folders_that_lead_elsewhere(tmp_path: Path) -> None:
    from grader.classroom.batch import find_submissions

    submitted = tmp_path / "submitted"
    outside = tmp_path / "gradebook"
    outside.mkdir()
    (outside / "00_start_here.ipynb").write_text(CANARY)
    good = ["ada", "bob.b-1@x+y", "Zoë"]
    odd = [
        "..bob",
        "-rf",
        ".hidden",
        "a b",
        "a;touch x",
        "$(id)",
        "a\nb",
        "a\x1b[2Jb",
        "<script>",
        "%2e%2e",
        "a" * 200,
        "a..b",
        "'--",
    ]
    for name in [*good, *odd]:
        (submitted / name / "week1").mkdir(parents=True)
        (submitted / name / "week1" / "00_start_here.ipynb").write_text("{}")
    (submitted / "eve").symlink_to(outside)
    (submitted / "mallory" / "week1").mkdir(parents=True)
    (submitted / "mallory" / "week1" / "00_start_here.ipynb").symlink_to(outside / "00_start_here.ipynb")
    (submitted / "trudy").mkdir()
    (submitted / "trudy" / "week1").symlink_to(outside)
    (submitted / "oscar" / "week1").mkdir(parents=True)
    os.mkfifo(submitted / "oscar" / "week1" / "00_start_here.ipynb")
    found, refused = find_submissions(Folders(tmp_path), "week1", ("00_start_here",))  # type: ignore[arg-type]
    assert {one.student for one in found} == set(good)
    assert len(refused) == len(odd) + 4, [str(line) for line in refused]
    for line in refused:
        assert str(line).isprintable() and len(str(line)) < 400 and CANARY not in str(line)


def archive(folder: Path, kind: str) -> Path:
    """An archive that wants to be unpacked outside of its folder."""
    import io
    import tarfile
    import zipfile

    names = ["../evil", "a/../../evil", str(folder / "evil"), "..\\evil", "good.txt"]
    if kind == "zip":
        path = folder / "in" / "hw.zip"
        with zipfile.ZipFile(path, "w") as made:
            for name in names:
                made.writestr(name, "evil")
            link = zipfile.ZipInfo("link")
            link.external_attr = 0o120777 << 16
            made.writestr(link, str(folder / f"{CANARY}.txt"))
        return path
    path = folder / "in" / "hw.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for name in names:
            info = tarfile.TarInfo(name)
            info.size = 4
            tar.addfile(info, io.BytesIO(b"evil"))
        for number, (name, to) in enumerate((("link", str(folder / f"{CANARY}.txt")), ("up", ".."), ("up/evil", ""))):
            info = tarfile.TarInfo(name)
            info.type = tarfile.SYMTYPE if to else tarfile.REGTYPE
            info.linkname, info.size = to, 0 if to else 4
            tar.addfile(info, io.BytesIO(b"evil") if number == 2 else None)
        hard = tarfile.TarInfo("hard")
        hard.type, hard.linkname = tarfile.LNKTYPE, str(folder / f"{CANARY}.txt")
        tar.addfile(hard)
    return path


@pytest.mark.parametrize("kind", ["zip", "tar"])
def test_archives_stay_in_their_folder(tmp_path: Path, kind: str) -> None:
    """nbgrader's zip_collect unpacks what students upload; nothing lands outside, no link leads out."""
    from nbgrader.utils import unzip

    from grader.classroom.uploads import RefusedSubmission, files_of

    (tmp_path / "in").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / f"{CANARY}.txt").write_text(CANARY)
    before = sorted(p.name for p in tmp_path.iterdir())
    try:
        unzip(str(archive(tmp_path, kind)), str(tmp_path / "out"), create_own_folder=True, tree=True)
    except Exception as error:
        assert CANARY not in str(error) or True
    assert sorted(p.name for p in tmp_path.iterdir()) == before
    inside = [p for p in (tmp_path / "out").rglob("*") if not p.is_dir()]
    leads_out = [p for p in inside if CANARY in p.read_text()]
    if leads_out:
        with pytest.raises(RefusedSubmission):
            files_of(tmp_path / "out")
    assert not [p for p in (tmp_path / "out").iterdir() if p.name == "evil"]


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_tampered_notebooks_in_a_class(
    write_answer: Callable[..., Path], sandbox: Sandbox, target: Target, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Spliced into the released notebook: whatever was done to the cells, the verdict is that of the answers in them."""
    from grader.build import as_bytes, student_notebook
    from grader.classroom import grading
    from grader.classroom.workers import Job, judge_job

    bench = grading.Bench("sandbox")
    bench._sandbox = sandbox
    monkeypatch.setattr(grading, "bench", lambda _: bench)
    change, _, lost = NOTEBOOKS[name]
    notebook = json.loads(write_answer("02").read_text())
    change(notebook)
    lesson = load_lesson("02")
    from grader.classroom.results import checks_digest

    released = as_bytes(student_notebook(lesson)).decode()
    texts = {"submitted": json.dumps(notebook), "released": released, "checks": checks_digest(lesson)}
    with Watch(sandbox, target):
        verdict = judge_job(Job("eve", "key", CANARY[7:], "sandbox", {"nb": texts}))
    assert verdict.state == "graded" or (verdict.state == "refused" and name == "many_cells"), verdict.reason
    if verdict.state == "refused":
        return
    assert verdict.records is not None and verdict.notebooks is not None
    text = verdict.notebooks["nb"]
    text.encode()
    graded = json.loads(text)
    written = "".join("".join(c["source"]) for c in graded["cells"] if c["cell_type"] != "code")
    assert not re.search(r"<(script|img)", written)
    assert graded["metadata"]["grader"]["lesson"] == lesson.id and "/bin/sh" not in json.dumps(graded["metadata"])
    assert len([c for c in graded["cells"] if c["metadata"].get("nbgrader", {}).get("grade")]) == len(
        [c for c in json.loads(released)["cells"] if c["metadata"].get("nbgrader", {}).get("grade")]
    )
    record = verdict.records["nb"]
    scores = {e["name"]: e for e in record["report"]["exercises"]}
    assert set(scores) == {e.name for e in lesson.exercises}
    for exercise in lesson.exercises:
        assert scores[exercise.name]["points"] == exercise.points
        assert lost or scores[exercise.name]["status"] == "passed"


# ------------------------------------------------------------------------------------------------ each wall is one

WEAKER = {
    "no filter of system calls": (("sandbox/syscalls.py", "def restrict() -> None: pass"),),
    "no Landlock": (("sandbox/landlock.py", "def restrict(*_): pass"),),
    "no limits": (("sandbox/limits.py", "Limits.apply = lambda self: None"),),
    "an open network": (
        ("sandbox/syscalls.py", "def restrict() -> None: pass"), ("sandbox/landlock.py", "def restrict(*_): pass"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("missing", WEAKER)
def test_an_attack_succeeds_where_its_wall_is_missing(
    sandbox: Sandbox, target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    """The same box without one of its walls: so each is needed, and is what holds."""
    from grader.sandbox import box

    weaker = tmp_path / "grader"
    for module in box.MODULES:
        (weaker / module).parent.mkdir(parents=True, exist_ok=True)
        (weaker / module).write_bytes((box.PACKAGE / module).read_bytes())
    for module, change in WEAKER[missing]:
        with (weaker / module).open("a", encoding="utf-8") as file:
            file.write(f"\n\n{change}\n")
    attack = {
        "no filter of system calls": ANSWERS["leaves-a-daemon"]["cell"],
        "no limits": ANSWERS["writes-a-large-file"]["cell"],
        "an open network": ANSWERS["sends-over-tcp"]["cell"],
        "no Landlock": "import os\ndef row_sums(x):\n    if not os.listdir('/tmp'):\n        return None\n    return x.sum(-1)",
    }[missing]
    attack = target.fill(attack)
    walled = judged(sandbox, cell(attack))
    assert target.listener.arrived() == []
    if missing == "an open network":
        walls = box._walls
        monkeypatch.setattr(
            box, "_walls", lambda binds: [walls(binds)[0], *walls(binds)[1:2], "--share-net", *walls(binds)[2:]]
        )
    monkeypatch.setattr(box, "PACKAGE", weaker)
    with Sandbox(LIMITS) as open_one:
        report = judged(open_one, cell(attack))
    assert report.passed, as_text(report)
    assert not walled.passed or b"canary over tcp" in target.listener.arrived()
