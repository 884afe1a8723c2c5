"""The bank against the checks, for every exercise: this is what makes a verdict worth something.

Every mutant is rejected and every right answer accepted; and behind the wall every answer gets the verdict that it gets in
this process.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import ClassVar

import pytest

from grader import bank
from grader.audit import ExerciseAudit, audit
from grader.judge import judge
from grader.lesson import Cell, Lesson, load_course, load_lesson
from grader.sandbox.remote import Sandbox, sandbox_available

DIFFERS = {
    "attend_with_cache": {
        "zeroes_the_padding_in_place": "writes into a view of a kind that has none of its kind there"
    },
    "generate": {"drawn": "draws at random: other numbers"},
}
"""Mutants that one check of several judges otherwise behind the wall, and why. All are rejected on both sides."""


@lru_cache(maxsize=128)
def audited(lesson: Lesson, name: str) -> ExerciseAudit:
    (found,) = audit([lesson], only=name).exercises
    return found


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox() as sandbox:
        yield sandbox


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Each test of a class is for every exercise of its lesson."""
    if metafunc.cls is not None:
        lesson = load_lesson(metafunc.cls.number)
        names = [exercise.name for exercise in lesson.exercises]
        metafunc.parametrize(("lesson", "name"), [(lesson, name) for name in names], ids=names)


class Bank:
    """The tests of one lesson's bank; a class for each, so that they are spread over the cores."""

    number: ClassVar[str]

    @pytest.mark.slow
    def test_every_mutant_is_rejected_and_every_right_answer_accepted(self, lesson: Lesson, name: str) -> None:
        """Also: the empty stub is "not started", and no check is idle."""
        found = audited(lesson, name)
        assert not found.faults, "\n".join(found.faults)
        assert not found.idle, f"checks that reject no mutant: {found.idle}"
        assert any(not check.hidden for check in found.checks), "no public check"

    def test_the_bank_is_large_enough(self, lesson: Lesson, name: str) -> None:
        assert len(bank.mutants(lesson.id, name)) >= 10
        assert len(bank.variants(lesson.id, name)) >= 4

    @pytest.mark.slow
    @pytest.mark.skipif(not sandbox_available(), reason=sandbox_available().reason)
    def test_the_verdict_is_the_same_behind_the_wall(self, sandbox: Sandbox, lesson: Lesson, name: str) -> None:
        """By status and by every single check, but for `DIFFERS`."""
        here, exercise = audited(lesson, name), lesson.exercise(name)
        entries = [*bank.variants(lesson.id, name), *bank.mutants(lesson.id, name)]
        answers = {entry.name: list(entry.cells(lesson)) for entry in entries}
        answers |= {form: [Cell("code", getattr(exercise, form), "solve", name)] for form in ("reference", "stub")}
        others = [cell for cell in lesson.reference_cells if cell.role == "solve" and cell.name != name]
        different = set()
        for form, cells in answers.items():
            with sandbox.submission([*others, *cells], given=lesson.given, label=form) as answer:
                (report,) = judge(lesson, [answer], only=[name], diagnose=False, limit=60)
            (got,) = report.exercises
            assert got.status == ("missing" if form == "stub" else here.statuses.get(form, "passed")), form
            if form in here.kills and {c.name for c in got.checks if not c.passed} != set(here.kills[form]):
                different.add(form)
        assert different <= DIFFERS.get(name, {}).keys()


class TestLesson00(Bank):
    number = "00"


class TestLesson01(Bank):
    number = "01"


class TestLesson02(Bank):
    number = "02"


class TestLesson03(Bank):
    number = "03"


class TestLesson04(Bank):
    number = "04"


class TestLesson05(Bank):
    number = "05"


class TestLesson06(Bank):
    number = "06"


class TestLesson07(Bank):
    number = "07"


class TestLesson08(Bank):
    number = "08"


def test_every_lesson_is_here() -> None:
    assert {lesson.number for lesson in load_course()} == {cls.number for cls in Bank.__subclasses__()}
