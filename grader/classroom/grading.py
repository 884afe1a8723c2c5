"""Judging a spliced notebook: its answers run behind the wall, its grade cells get the verdicts.

`Judge` is nbgrader's step for that, in the place of its `Execute`: no kernel is started and no student's code runs in
nbgrader's process. `grade` (see `batch`) uses the same functions.
"""

from __future__ import annotations

import atexit
import html
import os
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor
from traitlets import Enum

from grader.classroom.results import Record, answers_digest, checks_digest, course_secret, seed_for
from grader.classroom.sanitize import without_acting_tex
from grader.classroom.splice import OWN
from grader.lesson import Cell, Lesson, NotebookError, lesson_of, load_lesson
from grader.report import ExerciseResult, Report, as_html
from grader.splice import Json, source_of
from grader.submission import Answers

ISOLATIONS = ("sandbox", "none")

CELLS_SECONDS = 60.0
"""Without a sandbox: how long an answer's cells may take."""


class GradingError(NotebookError):
    """A submission cannot be judged, through no fault of the student's: no grade is given, neither zero nor full."""


# ------------------------------------------------------------------------------------------- where answers run


class Bench:
    """Where this process runs answers: one sandbox, built for the first and used for all that follow."""

    def __init__(self, isolation: str) -> None:
        self._isolation = isolation
        self._sandbox: Any = None

    def submission(self, lesson: Lesson, cells: list[Cell], label: str) -> Answers:
        """An answer, ready to be judged.

        Raises:
            GradingError: there is no sandbox on this machine.
        """
        names = [exercise.name for exercise in lesson.exercises]
        if self._isolation == "none":
            from grader.judge import given_names
            from grader.submission import Submission

            return Submission(cells, names=names, base=given_names(lesson), label=label)
        from grader.sandbox.remote import Sandbox

        if self._sandbox is None:
            require_sandbox()
            self._sandbox = Sandbox()
        found: Answers = self._sandbox.submission(cells, names=names, given=lesson.given, label=label)
        return found

    def cells_deadline(self) -> AbstractContextManager[None]:
        """For running an answer's cells: behind the wall there are limits already."""
        from grader.submission import deadline

        return deadline(CELLS_SECONDS) if self._isolation == "none" else nullcontext()

    def close(self) -> None:
        """End the sandbox."""
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None


def require_sandbox(so_far: str = "Nothing was graded") -> None:
    """Refuse to go on where answers cannot be boxed; `so_far` says what was done or not.

    Raises:
        GradingError: the reason, and what to do.
    """
    from grader.sandbox.box import sandbox_available  # `remote` imports torch, which takes a second

    available = sandbox_available()
    if not available:
        raise GradingError(
            f"{available.reason}. {so_far}; if you trust every submission as your own code, say so with "
            "--isolation none (in nbgrader_config.py: c.Judge.isolation)"
        )


_benches: dict[tuple[int, str], Bench] = {}


def bench(isolation: str) -> Bench:
    """This process's bench."""
    key = (os.getpid(), isolation)
    if key not in _benches:
        _benches.clear()  # a forked process does not inherit its parent's sandbox
        _benches[key] = Bench(isolation)
        atexit.register(_benches[key].close)
    return _benches[key]


def close_benches() -> None:
    """End this process's sandbox now."""
    for found in _benches.values():
        found.close()


# ------------------------------------------------------------------------------------------------- judging


def judge_notebook(notebook: Json, secret: str, isolation: str, label: str) -> Record | None:
    """Judge a spliced notebook; None when it has no grade cell that a machine can judge.

    Raises:
        GradingError: the notebook is no lesson of this course, a grade cell belongs to no exercise, no sandbox.
        CheckFileError, BoxError: the judge itself is broken.
    """
    wanted = [name for name, _ in _grade_cells(notebook)]
    if not wanted:
        return None
    lesson = _lesson(notebook)
    known = {exercise.name for exercise in lesson.exercises}
    unknown = [name for name in wanted if name not in known]
    if unknown:
        raise GradingError(
            f"the grade cell of {unknown[0]!r} belongs to no exercise of lesson {lesson.id}: nothing can judge it; "
            "make it a manually graded cell in source/, or build the source again (classroom init)"
        )
    from grader.judge import judge_with_stand_ins
    from grader.submission import AnswerTimeout

    cells = answer_cells(notebook)
    digest = answers_digest(lesson, cells)
    seed = seed_for(secret, digest)
    where = bench(isolation)
    try:
        with where.cells_deadline():
            submission = where.submission(lesson, cells, label)
    except AnswerTimeout:
        raise GradingError(f"the cells of {label} took more than {CELLS_SECONDS:g} s") from None
    try:
        report = judge_with_stand_ins(lesson, submission, seed=seed)
    finally:
        submission.close()
    return Record(digest, checks_digest(lesson), seed, isolation, report)


def _lesson(notebook: Json) -> Lesson:
    name = lesson_of(notebook)
    try:
        return load_lesson(name)
    except KeyError as error:
        raise GradingError(
            f"a notebook with automatic grade cells says that it is lesson {name!r}: {error.args[0]}; make its grade "
            "cells manual, or build it with classroom init"
        ) from None


def answer_cells(notebook: Json) -> list[Cell]:
    """What a spliced notebook runs: the answers and the student's own code. The given code is the lesson's."""
    cells = []
    for number, cell in enumerate(notebook["cells"], 1):
        tag = cell["metadata"].get("grader", {})
        if cell["cell_type"] == "code" and tag.get("role") in ("solve", OWN):
            role = "solve" if tag["role"] == "solve" else "extra"
            cells.append(Cell("code", source_of(cell), role, tag.get("name", ""), number))
    return cells


def _grade_cells(notebook: Json) -> list[tuple[str, Json]]:
    """The cells that get a number from the judge, with their exercises' names."""
    found = []
    for cell in notebook["cells"]:
        data = cell["metadata"].get("nbgrader", {})
        if data.get("grade") and not data.get("solution") and cell["cell_type"] == "code":
            name = cell["metadata"].get("grader", {}).get("name") or str(data["grade_id"]).removesuffix("-check")
            found.append((name, cell))
    return found


# ------------------------------------------------------------------------------------------------- feedback


def put_verdicts(notebook: Json, record: Record) -> None:
    """Write the verdicts into the grade cells: a table to read, one plain number for nbgrader."""
    lesson = load_lesson(record.report.lesson)
    hints = {exercise.name: exercise.hints for exercise in lesson.exercises}
    for name, cell in _grade_cells(notebook):
        result = record.report.exercise(name)
        points = float(cell["metadata"]["nbgrader"]["points"])
        data = {"text/plain": number_for(result, points), "text/html": feedback(record.report, result, hints[name])}
        output = {"output_type": "execute_result", "execution_count": 1, "data": data, "metadata": {}}
        cell["execution_count"] = 1
        cell["outputs"] = [NotebookNode({**output, "data": NotebookNode(data), "metadata": NotebookNode()})]
    judged = {"answers": record.answers, "checks": record.checks, "seed": record.seed, "isolation": record.isolation}
    notebook["metadata"].setdefault("grader", {})["judged"] = judged


def number_for(result: ExerciseResult, points: float) -> str:
    """The score in nbgrader's points: a plain number from 0 to the cell's maximum, as nbgrader needs it.

    nbgrader gives full marks for anything that is no number, for a negative number and for nan; it raises above the
    maximum.

    Raises:
        GradingError: when the score is not between 0 and the exercise's points.
    """
    share = result.score / result.points if result.points else 0.0
    if not 0 <= share <= 1:
        raise GradingError(f"{result.name} has the impossible score {result.score} of {result.points}")
    return repr(round(min(float(points), float(points) * share), 2))


def feedback(report: Report, result: ExerciseResult, hints: tuple[str, ...]) -> str:
    """What a student reads of one exercise: verdicts and messages, and the first hint where it failed.

    A check is shown by its title and message, never by its source. MathJax keeps out of what came from the answer.
    """
    table = as_html(Report(report.lesson, (result,), report.printed if result is report.exercises[0] else ""))
    parts = [f'<div class="tex2jax_ignore mathjax_ignore">{without_acting_tex(table)}</div>']
    if result.status in ("failed", "error") and hints:
        text = html.escape(hints[0]).replace("\n", "<br>")
        parts.append(f'<div style="max-width:50em;margin-top:4px"><b>A hint:</b> {text}</div>')
    return "\n".join(parts)


class Judge(NbGraderPreprocessor):
    """nbgrader's step that judges, instead of executing the notebook in a kernel."""

    isolation = Enum(
        list(ISOLATIONS), default_value="sandbox", help="Where answers run: behind walls, or with your own rights."
    ).tag(config=True)

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        from nbgrader.coursedir import CourseDirectory

        names: Mapping[str, Any] = resources["nbgrader"]
        secret = course_secret(Path(CourseDirectory(config=self.config).root))
        record = judge_notebook(nb, secret, self.isolation, names["notebook"])
        if record is not None:
            put_verdicts(nb, record)
        return nb, resources


AUTOGRADE = [
    "grader.classroom.grading.Judge",
    "nbgrader.preprocessors.SaveAutoGrades",
    "nbgrader.preprocessors.AssignLatePenalties",
    "nbgrader.preprocessors.CheckCellMetadata",
]
"""What `Autograde.autograde_preprocessors` is set to."""
