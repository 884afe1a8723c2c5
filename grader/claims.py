"""Where each statement of the course's three seed documents is taught, checked or corrected.

`solutions/claims.toml` lists the statements; cells of the lessons carry their ids (`claims="000.2.3-b"`). The table of
statement, lesson and cell is built from these tags.
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from grader.lesson import SOLUTIONS, Cell, Lesson, lesson_paths


@dataclass(frozen=True)
class Claim:
    """One statement: `lesson` is the number of its home, `verdict` what the course says of it."""

    id: str
    text: str
    lesson: str
    verdict: str


@dataclass(frozen=True)
class Home:
    """A cell that answers for a claim."""

    claim: Claim
    lesson: Lesson
    cell: Cell

    def __str__(self) -> str:
        return f"{self.lesson.id}, cell {self.cell.number} (line {self.cell.line})"


def load_claims(path: Path = SOLUTIONS / "claims.toml") -> tuple[Claim, ...]:
    """The statements in the documents' order."""
    with path.open("rb") as file:
        return tuple(Claim(**raw) for raw in tomllib.load(file)["claim"])


def homes(claims: Sequence[Claim], lessons: Sequence[Lesson]) -> dict[str, list[Home]]:
    """Claim id to the cells that carry its tag."""
    known = {claim.id: claim for claim in claims}
    found: dict[str, list[Home]] = {claim.id: [] for claim in claims}
    for lesson in lessons:
        for cell in lesson.cells:
            for tag in cell.claims:
                if tag in known:
                    found[tag].append(Home(known[tag], lesson, cell))
    return found


def faults(claims: Sequence[Claim], lessons: Sequence[Lesson]) -> list[str]:
    """One sentence for each claim without a cell in its lesson (of the lessons that exist), and for each unknown tag."""
    known = {claim.id for claim in claims}
    found = homes(claims, lessons)
    present = {path.stem[:2] for path in lesson_paths()}
    sentences = [
        f"{claim.id} has no cell in lesson {claim.lesson}: {claim.text}"
        for claim in claims
        if claim.lesson in present and not any(home.lesson.number == claim.lesson for home in found[claim.id])
    ]
    sentences += [
        f"{lesson.path.name}:{cell.line}: unknown claim {tag!r}"
        for lesson in lessons
        for cell in lesson.cells
        for tag in cell.claims
        if tag not in known
    ]
    return sentences


def as_markdown(claims: Sequence[Claim], lessons: Sequence[Lesson]) -> str:
    """The table: statement, verdict, cells."""
    found = homes(claims, lessons)
    rows = ["| id | statement | verdict | where |", "| --- | --- | --- | --- |"]
    for claim in claims:
        where = "; ".join(map(str, found[claim.id])) or f"lesson {claim.lesson}, not written yet"
        rows.append(f"| {claim.id} | {claim.text.replace('|', chr(92) + '|')} | {claim.verdict} | {where} |")
    return "\n".join(rows) + "\n"
