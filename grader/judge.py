"""The judge: runs the checks on submissions and gives reports.

It knows neither notebooks nor terminals, and not where an answer lives. The checks are pytest files, collected once a
process, so that a warm verdict takes some tens of milliseconds.
"""

from __future__ import annotations

import contextlib
import io
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from grader import checks
from grader.bank import mutants
from grader.checks.assertions import CheckFailed
from grader.checks.check import Check, Circumstances, References
from grader.checks.collection import collect
from grader.lesson import NOT_STARTED, Exercise, Lesson
from grader.report import CheckResult, ExerciseResult, Report, Status, plain_text
from grader.submission import (
    AnswerError,
    AnswerLost,
    Answers,
    Forbidden,
    NotStarted,
    NoVerdict,
    Overwritten,
    Submission,
    describe,
    locate,
)

CHECK_SECONDS = 10.0
"""How long one check may wait for an answer."""

_PRINTED = 2_000
_CHECKS = Path(checks.__file__).parent


def check_files(lesson: Lesson, *, hidden: bool = True) -> list[Path]:
    """The lesson's check files that are installed: public, and hidden where they are there and wanted."""
    folders = ["public", "hidden"] if hidden else ["public"]
    paths = [_CHECKS / folder / f"test_lesson_{lesson.number}.py" for folder in folders]
    return [path for path in paths if path.exists()]


@lru_cache(maxsize=32)
def reference(lesson: Lesson) -> Submission:
    """The reference answer of a lesson (run once a process)."""
    return Submission(lesson.reference_cells, label=f"reference {lesson.number}")


@lru_cache(maxsize=32)
def given_names(lesson: Lesson) -> Mapping[str, Any]:
    """What the lesson's given cells define: where every answer starts."""
    return Submission((), given=lesson.given, label=f"given {lesson.number}").namespace


def judge(
    lesson: Lesson,
    submissions: Sequence[Answers],
    *,
    only: Sequence[str] | None = None,
    hidden: bool = True,
    seed: int = 0,
    limit: float = CHECK_SECONDS,
    diagnose: bool = True,
) -> list[Report]:
    """Check submissions, each against all installed checks of the lesson.

    Args:
        only: names of the exercises to judge; all by default.
        hidden: also run the hidden checks, where they are installed.
        seed: decides the random inputs.
        limit: seconds that one check may take.
        diagnose: name the known mistake whose outputs equal a failed answer's.

    Returns:
        One report a submission, in their order.

    Raises:
        grader.checks.collection.CheckFileError: when a check file cannot be run.
        NoVerdict: when answers cannot be asked, through no fault of theirs.
        KeyboardInterrupt: passed on.
    """
    exercises = [exercise for exercise in lesson.exercises if only is None or exercise.name in only]
    wanted = {exercise.name for exercise in exercises}
    reports = []
    printed = _Bounded()
    with _contained(printed):
        circumstances = Circumstances(References(_reference_or_none(lesson)), seed, limit)
        checks = [check for check in collect(*check_files(lesson, hidden=hidden)) if check.exercise in wanted]
        told = circumstances if diagnose else None
        for submission in submissions:
            outcomes = _outcomes(checks, submission, circumstances)
            results = tuple(_exercise_result(lesson, e, outcomes.get(e.name, []), told) for e in exercises)
            reports.append(Report(lesson.id, results, "", seed))
    if len(submissions) == 1:
        reports[0] = replace(reports[0], printed=printed.getvalue())
    return reports


def judge_with_stand_ins(
    lesson: Lesson, submission: Answers, *, only: Sequence[str] | None = None, **options: Any
) -> Report:
    """As `judge` for one submission, but an error counts once.

    Where an exercise fails that uses an earlier one of the same lesson which also fails, it is judged again with the
    reference in place of the earlier ones; if it then does better, that verdict counts, and its note says so. Only what
    the exercise's own reference uses is stood in for: nobody gets the answer to one exercise by calling another's.
    """
    (report,) = judge(lesson, [submission], only=only, **options)
    verdicts = {result.name: result for result in report.exercises}
    order = [exercise.name for exercise in lesson.exercises]
    for result in report.exercises:
        if result.passed or _reference_or_none(lesson) is None:
            continue
        used = reference(lesson).uses(result.name) & _uses(submission, result.name)
        earlier = [name for name in order[: order.index(result.name)] if name in used]
        unknown = [name for name in earlier if name not in verdicts]
        if unknown:
            (more,) = judge(lesson, [submission], only=unknown, **options)
            verdicts |= {found.name: found for found in more.exercises}
        failed = [name for name in earlier if not verdicts[name].passed]
        if not failed:
            continue
        with _replaced(submission, {name: reference(lesson).answer(name) for name in failed}) as done:
            if not done:
                continue
            (again,) = judge(lesson, [submission], only=[result.name], **options)
        (better,) = again.exercises
        if better.score > result.score:
            names = " and ".join(failed)
            note = f"Judged with the course's own {names} in place of yours, which does not pass yet: an error counts once."
            report = report.with_exercise(replace(better, note=f"{note} {better.note}".strip()))
    return report


def _uses(submission: Answers, name: str) -> frozenset[str]:
    """See `Answers.uses`; an answer that cannot be asked uses nothing."""
    try:
        return submission.uses(name)
    except NoVerdict:
        raise
    except (Exception, AnswerLost):
        return frozenset()


@contextlib.contextmanager
def _replaced(submission: Answers, replacements: Mapping[str, Any]) -> Iterator[bool]:
    """Put other objects under these names of an answer; whether that worked."""
    try:
        former = submission.swap(replacements)
    except NoVerdict:
        raise
    except (Exception, AnswerLost):
        yield False
        return
    try:
        yield True
    finally:
        with contextlib.suppress(AnswerLost, AnswerError):
            submission.swap(former)


def _reference_or_none(lesson: Lesson) -> Submission | None:
    return reference(lesson) if any(e.reference.strip() != e.stub.strip() for e in lesson.exercises) else None


@dataclass(frozen=True)
class _Outcome:
    """What became of one check on one answer."""

    check: Check
    error: BaseException | None


def _outcomes(checks: Sequence[Check], submission: Answers, circumstances: Circumstances) -> dict[str, list[_Outcome]]:
    """Put the checks to an answer, by exercise; after an exercise's answer was lost, its other checks are not tried."""
    found: dict[str, list[_Outcome]] = {}
    lost: dict[str, AnswerLost] = {}
    for check in checks:
        error = lost.get(check.exercise) or check.run(submission, circumstances)
        if isinstance(error, NoVerdict):
            raise error
        if isinstance(error, AnswerLost):
            lost[check.exercise] = error
        found.setdefault(check.exercise, []).append(_Outcome(check, error))
    return found


def _exercise_result(
    lesson: Lesson, exercise: Exercise, outcomes: Sequence[_Outcome], told: Circumstances | None
) -> ExerciseResult:
    """The exercise's part of a report, with the known mistake that this is, where `told` how to find out."""
    errors = [outcome.error for outcome in outcomes]
    lost = next((error for error in errors if isinstance(error, AnswerLost)), None)
    absent = next((error for error in errors if isinstance(error, AnswerError)), None)
    note = ""
    status: Status
    if outcomes and not any(errors):
        status = "passed"
    elif lost is not None:
        status, note = lost.status, plain_text(str(lost))  # type: ignore[assignment]
    elif absent is not None:
        status, note = absent.status, plain_text(str(absent))  # type: ignore[assignment]
    elif _not_started(outcomes):
        status, note = (
            "missing",
            f'The line `raise NotImplementedError("{NOT_STARTED}")` is still there: replace it with your answer.',
        )
    elif outcomes and all(isinstance(e, Exception) and not isinstance(e, CheckFailed) for e in errors):
        status = "error"
    else:
        status = "failed"
    slip = ""
    if told is not None and status in ("failed", "error"):
        slip = _slip(lesson, exercise, outcomes, told)
    results = []
    for outcome in outcomes:
        error = outcome.error
        results.append(
            CheckResult(
                name=outcome.check.name,
                title=outcome.check.title,
                kind=outcome.check.kind,
                hidden=outcome.check.hidden,
                passed=error is None,
                points=outcome.check.points,
                message="" if error is None else plain_text(_message(error)),
                picture=getattr(error, "picture", None),
                slip=slip if error is not None else "",
            )
        )
        slip = slip if error is None else ""  # said once, at the first failed check
    return ExerciseResult(exercise.name, exercise.points, status, tuple(results), note)


def _not_started(outcomes: Sequence[_Outcome]) -> bool:
    """An empty stub: what fails, fails with the stub's own exception, and no check of values passes."""
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    return (
        bool(errors)
        and all(isinstance(error, NotStarted) or _of_the_stub(error) for error in errors)
        and not any(outcome.error is None for outcome in outcomes if outcome.check.kind == "values")
    )


def _of_the_stub(error: BaseException) -> bool:
    """The exception that a stub raises: PyTorch has NotImplementedErrors of its own, which say what is not implemented."""
    return isinstance(error, NotImplementedError) and str(error).strip() in ("", NOT_STARTED)


def _message(error: BaseException) -> str:
    if _of_the_stub(error):
        return NOT_STARTED
    if isinstance(error, CheckFailed | AnswerError | AnswerLost | Forbidden | Overwritten):
        return str(error)
    if locate(error) is not None:
        return f"your code raised {describe(error)}"
    if isinstance(error, RuntimeError) and "modified by an inplace operation" in str(error):
        return "a tensor that a gradient needs was overwritten in place after it was used: make a new one instead"
    if isinstance(error, AssertionError) and str(error):
        return str(error)
    if isinstance(error, TypeError) and "'NoneType'" in str(error):
        return "what was returned is None, or holds None where a value belongs: is a `return` missing?"
    return f"the check could not use what was returned: {describe(error)}"


def _slip(lesson: Lesson, exercise: Exercise, outcomes: Sequence[_Outcome], circumstances: Circumstances) -> str:
    """What the bank says of the first mutant that fails the same checks with the same outputs as this answer."""
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    passed = [outcome for outcome in outcomes if outcome.error is None]
    for slip, mutant in _mutants(lesson, exercise.name):
        if all(_alike(outcome.error, outcome.check.run(mutant, circumstances)) for outcome in failed) and not any(
            outcome.check.run(mutant, circumstances) for outcome in passed
        ):
            return slip
    return ""


@lru_cache(maxsize=256)
def _mutants(lesson: Lesson, exercise: str) -> tuple[tuple[str, Submission], ...]:
    """What the bank says of each of its mutants of an exercise, and the mutant among reference solutions."""
    base = reference(lesson).namespace
    found = ((mutant.slip, mutant.submission(lesson, base)) for mutant in mutants(lesson.id, exercise))
    return tuple((slip, mutant) for slip, mutant in found if exercise in mutant.namespace)


def _alike(one: BaseException | None, other: BaseException | None) -> bool:
    """Two failures of one check come from equal outputs."""
    if isinstance(one, CheckFailed) and isinstance(other, CheckFailed):
        if one.evidence is None or other.evidence is None:
            return str(one) == str(other)
        return _equal(one.evidence, other.evidence)
    return type(one) is type(other) and not isinstance(one, CheckFailed) and str(one) == str(other)


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        if one.shape != other.shape or one.dtype != other.dtype:
            return False
        return torch.allclose(one.double(), other.double(), rtol=1e-4, atol=1e-6, equal_nan=True)
    return type(one) is type(other) and bool(one == other)


class _Bounded(io.TextIOBase):
    """Keeps the first characters that are written to it."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self._size = 0

    def write(self, text: str) -> int:
        if self._size < _PRINTED:
            self._parts.append(text[: _PRINTED - self._size])
            if self._size + len(text) > _PRINTED:
                self._parts.append("\n...")
        self._size += len(text)
        return len(text)

    def getvalue(self) -> str:
        return plain_text("".join(self._parts).rstrip())


@contextlib.contextmanager
def _contained(printed: _Bounded) -> Iterator[None]:
    """What an answer prints goes to `printed`; what it does to the global random state and defaults is undone."""
    torch_state, python_state = torch.get_rng_state(), random.getstate()
    dtype, grad, threads = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()
    torch.set_num_threads(1)  # the tensors of checks are tiny
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            yield
    finally:
        torch.set_rng_state(torch_state)
        random.setstate(python_state)
        torch.set_default_dtype(dtype)
        torch.set_grad_enabled(grad)
        torch.set_num_threads(threads)
