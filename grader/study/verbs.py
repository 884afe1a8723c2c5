"""The words that a learner uses in a notebook: check, hint, solution, progress."""

from __future__ import annotations

import html
import inspect
import os
from collections.abc import Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from grader.lesson import Exercise, exercise_index, load_course, load_lesson
from grader.report import Report, as_html, as_text
from grader.study.progress import CoursePicture, Progress
from grader.submission import Missing, forbid, names_used, swap_names


@dataclass(frozen=True)
class Verdict:
    """What `check` shows: a table in Jupyter, text elsewhere. Under nbgrader's autograde its value is the score."""

    report: Report

    @property
    def passed(self) -> bool:
        return self.report.passed

    def __repr__(self) -> str:
        if os.environ.get("NBGRADER_EXECUTION") == "autograde":
            return repr(float(self.report.score))
        return as_text(self.report)

    def _repr_html_(self) -> str:
        return as_html(self.report)


@dataclass(frozen=True)
class Note:
    """A text for the learner, with code where there is some."""

    title: str
    text: str
    code: str = ""

    def __repr__(self) -> str:
        return "\n\n".join(part for part in (self.title, self.text, self.code) if part)

    def _repr_html_(self) -> str:
        code = f"<pre style='padding:.5em;background:#f3f5f7'>{html.escape(self.code)}</pre>" if self.code else ""
        text = html.escape(self.text).replace("\n", "<br>")
        return f"<div style='max-width:50em'><b>{html.escape(self.title)}</b><div>{text}</div>{code}</div>"


class _Live:
    """The answer in the learner's own kernel, as a submission."""

    label = "your notebook"

    def __init__(self, name: str, thing: Any, namespace: dict[str, Any]) -> None:
        self._name, self._thing, self._namespace = name, thing, namespace

    def answer(self, name: str) -> Any:
        if name == self._name:
            return self._thing
        if name not in self._namespace:
            raise Missing(f"{name} is missing: no cell that was run defines it")
        return self._namespace[name]

    def uses(self, name: str) -> frozenset[str]:
        return names_used({**self._namespace, self._name: self._thing}, name)

    def swap(self, replacements: Mapping[str, Any]) -> Mapping[str, Any]:
        return swap_names(self._namespace, replacements)

    def forbidding(self, operators: Collection[str]) -> AbstractContextManager[None]:
        return forbid(operators)

    def close(self) -> None:
        """Nothing is held."""


def check(answer: Any, exercise: str = "") -> Verdict | Note:
    """Check an answer against all installed checks of its exercise.

    Args:
        answer: the function or class that you wrote.
        exercise: the exercise's name, where the answer bears another (a mended bug hunt, a second attempt).
    """
    namespace = _callers_names()
    found = _find(answer, exercise, namespace)
    if isinstance(found, Note):
        return found
    from grader.judge import judge_with_stand_ins

    lesson = load_lesson(found.lesson)
    report = judge_with_stand_ins(lesson, _Live(found.name, answer, namespace), only=[found.name])
    if not exercise or exercise == getattr(answer, "__name__", ""):
        Progress.here().note(report.exercises[0])
    return Verdict(report)


def hint(answer: Any, number: int | None = None) -> Note:
    """The next hint of an exercise, or hint `number` (1 to 3) again. There are three, each stronger than the last."""
    found = _find(answer, "", _callers_names())
    if isinstance(found, Note):
        return found
    progress = Progress.here()
    record = progress.record(found.name)
    if number is None:
        number = min(record.hints + 1, len(found.hints))
    if not 1 <= number <= len(found.hints):
        return Note(f"There is no hint {number}", f"{found.name} has hints 1 to {len(found.hints)}.")
    record.hints = max(record.hints, number)
    progress.save()
    more = (
        f"hint({found.name}) gives the next one."
        if number < len(found.hints)
        else f"That was the last one; there is solution({found.name})."
    )
    return Note(f"Hint {number} of {len(found.hints)} for {found.name}", f"{found.hints[number - 1]}\n{more}")


def solution(answer: Any) -> Note:
    """The reference solution of an exercise. The first call asks a question; the second shows it."""
    found = _find(answer, "", _callers_names())
    if isinstance(found, Note):
        return found
    if found.reference.strip() == found.stub.strip():
        return Note(
            "No solution here", "This copy of the course was handed out without solutions; ask your instructor."
        )
    progress = Progress.here()
    record = progress.record(found.name)
    if not record.solution_asked:
        record.solution_asked = True
        progress.save()
        return Note(
            f"Before you read the solution of {found.name}",
            f"{_question(found, record)}\nThen call solution({found.name}) again.",
        )
    record.solution_read = True
    progress.save()
    return Note(
        f"A solution of {found.name}",
        "Other right answers pass as well. Which line differs from yours, and does the difference matter?",
        found.reference,
    )


def progress() -> CoursePicture:
    """A picture of the whole course: what is passed, tried, not started."""
    return CoursePicture(load_course(), Progress.here())


def _question(exercise: Exercise, record: Any) -> str:
    if record.status == "passed":
        return "Yours passes. Can you name one input on which a careless version of it would fail?"
    if record.failed:
        return (
            f"Your last attempt failed at: {record.failed}. Which line of yours decides that, and what does it do now?"
        )
    return (
        "You have not had an attempt judged yet. Say aloud what goes in and what comes out, with their shapes, "
        "and write the first line."
    )


def _callers_names() -> dict[str, Any]:
    """The global names of the notebook from which a verb was called."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    return frame.f_globals if frame is not None else {}


def _find(answer: Any, name: str, namespace: Mapping[str, Any]) -> Exercise | Note:
    """The exercise of an answer: by the name given, by its own name, or by the name that it has in the notebook."""
    index = exercise_index()
    own = answer if isinstance(answer, str) else getattr(answer, "__name__", "")
    bound = [key for key, value in namespace.items() if value is answer and key in index]
    for candidate in [name] if name else [own, *bound]:
        if candidate in index:
            return load_lesson(index[candidate]).exercise(candidate)
    said = name or own or f"a {type(answer).__name__}"
    import difflib

    near = difflib.get_close_matches(said, index, 3)
    known = f"Did you mean {' or '.join(near)}? " if near else ""
    return Note(
        f"There is no exercise {said!r}",
        f"A verb takes the function or class that an exercise asks for. {known}For an answer with a name of its own, "
        'say which exercise it is for: check(my_version, "attention").',
    )
