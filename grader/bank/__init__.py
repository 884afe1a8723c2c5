"""The bank: for each exercise, wrong answers that the checks must reject and right ones that they must accept.

One bank, four uses: the audit of the checks, the diagnosis of a learner's slip, bug hunts and drills, and the grading of
tests that learners write. An entry is data: mostly one substitution on the reference's source. `lesson_NN.py` holds the
entries of lesson NN in a list `ENTRIES`.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from grader.lesson import Cell, Lesson
from grader.submission import Submission


class BankError(Exception):
    """An entry does not fit the reference: names entry and mend."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A variant of an exercise's answer: whole `source`, or `replace`, substitutions on the reference's source.

    Each text to be replaced must stand in the reference exactly once, so that an entry cannot silently become the
    reference when the reference is rewritten.
    """

    exercise: str
    name: str
    source: str = ""
    replace: Mapping[str, str] = field(default_factory=dict)

    def code(self, lesson: Lesson) -> str:
        """The entry's source.

        Raises:
            BankError: when a substitution does not apply exactly once or changes nothing.
        """
        label = f"{lesson.id}: {self.exercise}/{self.name}"
        if bool(self.source) == bool(self.replace):
            raise BankError(f"{label} needs either source or replace")
        if self.source:
            return self.source.strip("\n")
        source = lesson.exercise(self.exercise).reference
        changed = source
        for old, new in self.replace.items():
            if source.count(old) != 1:
                raise BankError(
                    f"{label}: {old!r} stands {source.count(old)} times in the reference; quote a text that stands once"
                )
            changed = changed.replace(old, new)
        if changed == source:
            raise BankError(f"{label} is the reference itself")
        return changed

    def submission(self, lesson: Lesson, base: Mapping[str, Any]) -> Submission:
        """The entry as an answer, beside the reference's other definitions (`base`)."""
        return Submission(self.cells(lesson), base=base, label=f"{self.exercise}/{self.name}")

    def cells(self, lesson: Lesson) -> tuple[Cell, ...]:
        """The one cell of the answer."""
        return (Cell("code", self.code(lesson), "solve", self.exercise),)


@dataclass(frozen=True, kw_only=True)
class Mutant(Entry):
    """A wrong answer. `slip` is what a learner who made it is told: what it does, in one sentence, and where to look."""

    slip: str


@dataclass(frozen=True, kw_only=True)
class Variant(Entry):
    """A right answer, written otherwise than the reference."""


def wrong(exercise: str, name: str, change: str | Mapping[str, str], slip: str) -> Mutant:
    """A wrong answer in short: `change` is a whole source or substitutions on the reference."""
    if isinstance(change, str):
        return Mutant(exercise=exercise, name=name, source=change, slip=slip)
    return Mutant(exercise=exercise, name=name, replace=change, slip=slip)


def right(exercise: str, name: str, change: str | Mapping[str, str]) -> Variant:
    """A right answer in short: `change` is a whole source or substitutions on the reference."""
    if isinstance(change, str):
        return Variant(exercise=exercise, name=name, source=change)
    return Variant(exercise=exercise, name=name, replace=change)


@lru_cache(maxsize=64)
def entries(lesson_id: str) -> tuple[Entry, ...]:
    """The entries of a lesson; none where the bank is not installed (a student's kit) or has no such lesson.

    Raises:
        BankError: for two entries of one name.
    """
    module = f"{__name__}.lesson_{lesson_id[:2]}"
    if importlib.util.find_spec(module) is None:
        return ()
    found = tuple(importlib.import_module(module).ENTRIES)
    seen: set[tuple[str, str]] = set()
    for entry in found:
        if (entry.exercise, entry.name) in seen:
            raise BankError(f"{lesson_id}: {entry.exercise}/{entry.name} stands twice; rename one")
        seen.add((entry.exercise, entry.name))
    return found


def mutants(lesson_id: str, exercise: str) -> tuple[Mutant, ...]:
    """The wrong answers to one exercise."""
    return tuple(e for e in entries(lesson_id) if isinstance(e, Mutant) and e.exercise == exercise)


def variants(lesson_id: str, exercise: str) -> tuple[Variant, ...]:
    """The right answers to one exercise, beside the reference."""
    return tuple(e for e in entries(lesson_id) if isinstance(e, Variant) and e.exercise == exercise)
