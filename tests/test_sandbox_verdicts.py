"""Every answer of the bank gets the same verdict behind the wall as in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from grader import bank
from grader.judge import check_files, judge, reference
from grader.lesson import Cell, Lesson, lesson_paths, load_lesson
from grader.report import Report
from grader.sandbox.remote import Sandbox, sandbox_available
from grader.submission import Submission

pytestmark = [
    pytest.mark.skipif(not sandbox_available(), reason=sandbox_available().reason),
    pytest.mark.slow,
]

EXERCISES = [
    pytest.param(lesson.id, exercise.name, id=f"{lesson.number}-{exercise.name}")
    for lesson in (load_lesson(path.stem) for path in lesson_paths())
    if check_files(lesson)
    for exercise in lesson.exercises
]


DIFFERS = {
    "to_torch_mha_mask": {"only_transposed": "returns a view of its argument, which arrives as a copy"},
    "from_torch_mha_mask": {"only_transposed": "returns a view of its argument, which arrives as a copy"},
    "attend_with_cache": {
        "zeroes_the_padding_in_place": "writes into a view of a kind that has none of its kind there"
    },
    "generate": {"drawn": "draws at random: other numbers"},
}
"""Mutants that one check of several judges otherwise behind the wall, and why. All are rejected on both sides."""


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


def answers(lesson: Lesson, name: str) -> dict[str, Sequence[Cell]]:
    """The exercise's cell in all its forms: reference, empty stub, right variants, mutants."""
    exercise = lesson.exercise(name)
    entries = (*bank.variants(lesson.id, name), *bank.mutants(lesson.id, name))
    return {
        "reference": [Cell("code", exercise.reference, "solve", name)],
        "stub": [Cell("code", exercise.stub, "solve", name)],
        **{entry.name: entry.cells(lesson) for entry in entries},
    }


def verdict(report: Report) -> list[tuple[str, list[tuple[str, bool]]]]:
    return [(e.status, [(c.name, c.passed) for c in e.checks]) for e in report.exercises]


@pytest.mark.parametrize(("lesson_id", "name"), EXERCISES)
def test_same_verdict(sandbox: Sandbox, lesson_id: str, name: str) -> None:
    lesson = load_lesson(lesson_id)
    base = reference(lesson).namespace
    others = [cell for cell in lesson.reference_cells if cell.role == "solve" and cell.name != name]
    forms = answers(lesson, name)
    here = [Submission(cells, base=base, label=form) for form, cells in forms.items()]
    there = [sandbox.submission([*others, *cells], given=lesson.given, label=form) for form, cells in forms.items()]
    try:
        want = judge(lesson, here, only=[name], diagnose=False, limit=60)
        got = judge(lesson, there, only=[name], diagnose=False, limit=60)
    finally:
        for submission in there:
            submission.close()
    different = {form for form, w, g in zip(forms, want, got, strict=True) if verdict(w) != verdict(g)}
    assert different <= DIFFERS.get(name, {}).keys()
    assert [w.exercises[0].status for w in want] == [g.exercises[0].status for g in got]
