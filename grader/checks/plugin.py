"""The pytest plugin that puts answers in front of the checks and collects the outcomes."""

from __future__ import annotations

import functools
import hashlib
import inspect
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from grader.checks.inputs import Draw
from grader.report import KINDS
from grader.submission import AnswerLost, Answers, deadline, forbid


@dataclass(frozen=True)
class Outcome:
    """What became of one check on one answer. `rerun` repeats it with another answer and gives the error, if any."""

    contestant: int
    exercise: str
    name: str
    title: str
    kind: str
    hidden: bool
    points: float
    error: BaseException | None
    rerun: Callable[[Any], BaseException | None]


class References:
    """The reference solutions by name, as attributes: `reference.softmax(x, dim=-1)`."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        return self._answers.answer(name)


class CheckPlugin:
    """Runs the checks of the exercises `wanted` on every one of `contestants`.

    Args:
        contestants: the answers; each check runs once for each.
        wanted: exercise names.
        reference: the reference answer.
        seed: decides all random inputs, together with the check's name.
        limit: seconds that one check may take.
    """

    def __init__(
        self, contestants: Sequence[Answers], wanted: Sequence[str], reference: Answers | None, seed: int, limit: float
    ) -> None:
        self.outcomes: list[Outcome] = []
        self.errors: list[str] = []
        self._contestants, self._wanted, self._seed, self._limit = contestants, frozenset(wanted), seed, limit
        self._reference = References(reference) if reference is not None else None
        self._lost: dict[tuple[int, str], AnswerLost] = {}
        self._late: dict[pytest.Item, AnswerLost] = {}

    @pytest.fixture
    def student(self, request: pytest.FixtureRequest, contestant: int) -> Any:
        """The answer under test: the learner's function or class."""
        try:
            return self._answer(request, contestant)
        except AnswerLost as lost:  # a fixture that raises what is no `Exception` breaks those of later tests
            self._late[request.node] = lost
            return None

    def _answer(self, request: pytest.FixtureRequest, contestant: int) -> Any:
        answers = self._contestants[contestant]
        return _prepared(answers.answer(_exercise(request.node)), request.node, answers.forbidding)

    @pytest.fixture
    def beside(self, contestant: int) -> Callable[[str], Any]:
        """`beside("decode_step")`: another exercise's answer from the same hand, which alone can read what it made."""
        return self._contestants[contestant].answer

    @pytest.fixture
    def reference(self) -> References:
        """The reference solutions of the lesson, by attribute. Hidden checks only: a student's kit has none."""
        if self._reference is None:
            raise LookupError("a public check asked for the reference, which a student's kit does not have")
        return self._reference

    @pytest.fixture
    def draw(self, request: pytest.FixtureRequest) -> Draw:
        """Random inputs."""
        return Draw(self._seed_of(request.node))

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "exercise(name): the exercise that a class of checks judges")
        for kind in KINDS:
            config.addinivalue_line("markers", f"{kind}(points=1): a check of kind {kind}")

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if "contestant" in metafunc.fixturenames:
            metafunc.parametrize("contestant", range(len(self._contestants)))

    def pytest_pycollect_makeitem(
        self, collector: pytest.Collector, name: str, obj: object
    ) -> list[pytest.Item] | None:
        """Leave out the classes of other exercises before their tests are made: half of a check's time."""
        if isinstance(obj, type):
            marks = [mark for mark in getattr(obj, "pytestmark", ()) if mark.name == "exercise"]
            if marks and marks[0].args[0] not in self._wanted:
                return []
        return None

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if _exercise(item) in self._wanted]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        torch.default_generator.manual_seed(_shown(self._seed_of(item)))
        with deadline(self._limit), torch.enable_grad():  # an answer may have left gradients switched off
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        lost = self._lost.get((_contestant(item), _exercise(item)))
        if lost is not None:
            raise lost
        with deadline(self._limit):
            result = yield
        if item in self._late:
            raise self._late.pop(item)
        return result

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> pytest.TestReport:
        """Keep the outcome; answer pytest with a report without a formatted traceback, which costs 40 ms a failure."""
        if call.when == "call" or (call.when == "setup" and call.excinfo is not None):
            self._keep(item, call)
        outcome = "failed" if call.excinfo else "passed"
        return pytest.TestReport(item.nodeid, item.location, {}, outcome, None, call.when)  # type: ignore[arg-type]

    def _keep(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        error = call.excinfo.value if call.excinfo else None
        contestant, exercise = _contestant(item), _exercise(item)
        if isinstance(error, AnswerLost):
            self._lost[contestant, exercise] = error
        kind, points = _kind(item)
        self.outcomes.append(
            Outcome(
                contestant=contestant,
                exercise=exercise,
                name=_name(item),
                title=(getattr(item, "obj", None).__doc__ or _name(item)).strip().split("\n")[0].rstrip("."),
                kind=kind,
                hidden=item.path.parent.name == "hidden",
                points=points,
                error=error,
                rerun=self._rerunner(item),
            )
        )

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(str(report.longrepr))

    def _rerunner(self, item: pytest.Item) -> Callable[[Any], BaseException | None]:
        arguments: Mapping[str, Any] = dict(getattr(item, "funcargs", {}))
        function = getattr(item, "obj", None)
        seed = self._seed_of(item)

        def rerun(answer: Any) -> BaseException | None:
            wanted = {name: value for name, value in arguments.items() if name in _parameters(function)}
            if "student" in wanted:
                wanted["student"] = _prepared(answer, item, forbid)
            if "draw" in wanted:
                wanted["draw"] = Draw(seed)
            torch.default_generator.manual_seed(_shown(seed))
            try:
                with deadline(self._limit), torch.enable_grad():
                    function(**wanted)  # type: ignore[misc]
            except (Exception, AnswerLost) as error:
                return error
            return None

        return rerun

    def _seed_of(self, item: pytest.Item) -> int:
        return zlib.crc32(f"{self._seed}:{_exercise(item)}:{_name(item)}".encode())


def _shown(seed: int) -> int:
    """The seed of the global random state, which an answer sees; it does not tell the seed of the inputs."""
    return int.from_bytes(hashlib.sha256(f"global {seed}".encode()).digest()[:4])


def _prepared(answer: Any, item: pytest.Item, forbidding: Callable[[Collection[str]], Any]) -> Any:
    """The answer as a check gets it: leaving its arguments alone, and without the operators that its exercise rules out."""
    marker = item.get_closest_marker("exercise")
    without = marker.kwargs.get("without", ()) if marker else ()
    answer = _careful(answer, item)
    if not without or not callable(answer) or isinstance(answer, type):
        return answer

    def call(*args: Any, **kwargs: Any) -> Any:
        with forbidding(without):
            return answer(*args, **kwargs)

    return call


def _careful(answer: Any, item: pytest.Item) -> Any:
    """The answer, called with copies of the tensors that it could change, unless that is what the check is about.

    Otherwise an answer could change what the expected values are computed from, to fit what it returns.
    """
    if not inspect.isfunction(answer) or _kind(item)[0] == "purity":
        return answer

    @functools.wraps(answer)
    def call(*args: Any, **kwargs: Any) -> Any:
        copies: dict[int, Any] = {}  # one tensor given twice stays one tensor
        given = [copies.setdefault(id(a), _spare(a)) for a in args]
        return answer(*given, **{name: copies.setdefault(id(a), _spare(a)) for name, a in kwargs.items()})

    return call


def _spare(argument: Any) -> Any:
    """A copy of a tensor with its strides; what carries a gradient or overlaps itself cannot be written to anyway."""
    if not isinstance(argument, Tensor) or argument.requires_grad or argument.layout is not torch.strided:
        return argument
    if any(stride == 0 for stride, size in zip(argument.stride(), argument.shape, strict=True) if size > 1):
        return argument
    return torch.empty_strided(argument.shape, argument.stride(), dtype=argument.dtype).copy_(argument)


def _parameters(function: Any) -> tuple[str, ...]:
    code = function.__func__.__code__
    return tuple(code.co_varnames[1 : code.co_argcount])


def _exercise(item: pytest.Item) -> str:
    marker = item.get_closest_marker("exercise")
    if marker is None:
        raise pytest.UsageError(f'{item.nodeid}: the class of a check needs @exercise("name")')
    return str(marker.args[0])


def _contestant(item: pytest.Item) -> int:
    return int(item.callspec.params["contestant"])  # type: ignore[attr-defined]


def _name(item: pytest.Item) -> str:
    """The test's name, with its own parameters but without the contestant's."""
    params = {k: v for k, v in item.callspec.params.items() if k != "contestant"}  # type: ignore[attr-defined]
    name = str(item.originalname).removeprefix("test_")  # type: ignore[attr-defined]
    return name + "".join(f"[{value}]" for value in params.values())


def _kind(item: pytest.Item) -> tuple[str, float]:
    for marker in item.iter_markers():
        if marker.name in KINDS:
            return marker.name, float(marker.kwargs.get("points", 1))
    raise pytest.UsageError(f"{item.nodeid}: a check needs one of the markers {', '.join(KINDS)}")
