"""What a learner has done so far: one small file in the study folder, and its picture."""

from __future__ import annotations

import html
import json
import os
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path

from grader.lesson import Lesson
from grader.report import ExerciseResult, plain

FOLDER = ".grader"
"""The hidden folder that marks a study folder and holds its records."""


@dataclass
class Record:
    """One exercise: its last verdict, how often it was checked, how many hints were read, whether the solution was."""

    status: str = "missing"
    score: float = 0.0
    attempts: int = 0
    hints: int = 0
    solution_asked: bool = False
    solution_read: bool = False
    failed: str = ""


@dataclass
class Progress:
    """The records of a study folder; outside one they live as long as the session.

    A record is written at once and atomically. A file that cannot be read is set aside, never overwritten.
    """

    path: Path | None = None
    records: dict[str, Record] = field(default_factory=dict)

    @classmethod
    def here(cls) -> Progress:
        """The records of the study folder that encloses the working folder."""
        for folder in (Path.cwd(), *Path.cwd().parents):
            if (folder / FOLDER).is_dir():
                return cls(folder / FOLDER / "progress.json").load()
        return _SESSION

    def load(self) -> Progress:
        """Read the file anew: another notebook may have written it."""
        if self.path is None or not self.path.exists():
            return self
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
            known = {f.name for f in fields(Record)}
            self.records = {name: Record(**{k: v for k, v in raw.items() if k in known}) for name, raw in data.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            os.replace(self.path, self.path.with_suffix(f".unreadable-{int(time.time())}.json"))
        return self

    def save(self) -> None:
        """Write the file; a folder that cannot be written to is no reason to fail a check."""
        if self.path is None:
            return
        temporary = self.path.with_suffix(f".{os.getpid()}.tmp")
        try:
            temporary.write_text(
                json.dumps({k: asdict(v) for k, v in self.records.items()}, indent=1) + "\n", encoding="utf-8"
            )
            os.replace(temporary, self.path)
        except OSError:
            temporary.unlink(missing_ok=True)

    def record(self, exercise: str) -> Record:
        return self.records.setdefault(exercise, Record())

    def forget(self, exercises: Iterable[str]) -> None:
        """Let these exercises be as if never started."""
        for name in exercises:
            self.records.pop(name, None)
        self.save()

    def note(self, result: ExerciseResult) -> None:
        """Keep a verdict. A passed exercise stays passed when it is tried again with a mistake."""
        record = self.record(result.name)
        record.attempts += result.status != "missing"
        failed = next((check.title for check in result.checks if not check.passed), "")
        record.failed = failed
        if record.status != "passed":
            record.status, record.score = result.status, result.score
        self.save()


_SESSION = Progress()


@dataclass(frozen=True)
class CoursePicture:
    """The whole course at a glance: a square an exercise."""

    lessons: Sequence[Lesson]
    progress: Progress

    def _rows(self) -> list[tuple[str, list[tuple[str, str]], float, float]]:
        rows = []
        for lesson in self.lessons:
            squares = [(e.name, self.progress.records.get(e.name, Record()).status) for e in lesson.exercises]
            earned = sum(self.progress.records.get(e.name, Record()).score for e in lesson.exercises)
            rows.append((lesson.title, squares, earned, sum(e.points for e in lesson.exercises)))
        return rows

    def __repr__(self) -> str:
        width = max((len(title) for title, *_ in self._rows()), default=0)
        marks = {"passed": "#", "missing": "."}
        lines = [
            f"{title:<{width}}  {''.join(marks.get(status, 'x') for _, status in squares):<12} "
            f"{plain(round(earned, 2)):>5} of {plain(total)}"
            for title, squares, earned, total in self._rows()
        ]
        return "\n".join([*lines, "# passed   x tried   . not started", self._sum()])

    def _sum(self) -> str:
        statuses = [status for _, squares, *_ in self._rows() for _, status in squares]
        return f"{statuses.count('passed')} of {len(statuses)} exercises passed"

    def _repr_html_(self) -> str:
        colours = {"passed": "#0072b2", "missing": "#d5dbe1"}
        rows = []
        for title, squares, earned, total in self._rows():
            cells = "".join(
                f'<span title="{html.escape(name)}: {"not started" if status == "missing" else status}" '
                f'style="display:inline-block;width:1.1em;height:1.1em;margin-right:3px;'
                f'background:{colours.get(status, "#e69f00")}"></span>'
                for name, status in squares
            )
            rows.append(
                f'<tr><td style="text-align:left">{html.escape(title)}</td><td style="text-align:left">{cells}</td>'
                f'<td style="text-align:right">{plain(round(earned, 2))} of {plain(total)} points</td></tr>'
            )
        return (
            f"<table>{''.join(rows)}</table><div>{self._sum()}: a square is an exercise; blue is passed, orange tried, "
            "grey not started. Point at a square to read its name.</div>"
        )
