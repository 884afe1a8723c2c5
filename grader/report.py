"""Results as data, and their three renderings: text, HTML, JSON."""

from __future__ import annotations

import html
import json
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Status = Literal["passed", "failed", "missing", "error", "timeout", "crashed"]

KINDS = ("shape", "values", "causality", "gradient", "numerics", "purity", "mechanism")
"""What a check can be about; pytest markers of the check files."""


@dataclass(frozen=True)
class Picture:
    """A small grid that shows where an answer is wrong: `wrong[i][j]` is True at row i, column j."""

    wrong: tuple[tuple[bool, ...], ...]
    rows: str = "row"
    columns: str = "column"

    def text(self) -> str:
        width = len(self.wrong[0]) if self.wrong else 0
        head = " " * 5 + "".join(f"{j:>3}" for j in range(width)) + f"   {self.columns}"
        lines = [f"{i:>4} " + "".join("  x" if cell else "  ." for cell in row) for i, row in enumerate(self.wrong)]
        return "\n".join([head, *lines, f"{self.rows} (x: wrong)"])

    def html(self) -> str:
        def cell(bad: bool) -> str:
            colour, mark = ("#d55e00", "&times;") if bad else ("#e8eef4", "")
            return (
                f'<td style="width:1.5em;height:1.3em;padding:0;text-align:center;color:#fff;background:{colour};'
                f'border:1px solid #fff">{mark}</td>'
            )

        width = len(self.wrong[0]) if self.wrong else 0
        number = 'style="padding:0 3px;font-size:80%;font-weight:normal;text-align:center"'
        head = "<th></th>" + "".join(f"<th {number}>{j}</th>" for j in range(width))
        body = "".join(f"<tr><th {number}>{i}</th>{''.join(map(cell, row))}</tr>" for i, row in enumerate(self.wrong))
        axes = f"rows: {html.escape(self.rows)}; columns: {html.escape(self.columns)}; "
        label = f"{'' if (self.rows, self.columns) == ('row', 'column') else axes}&times; marks what is wrong"
        return f'<table style="margin:4px 0"><tr>{head}</tr>{body}</table><div style="font-size:80%">{label}</div>'


@dataclass(frozen=True)
class CheckResult:
    """The verdict of one check. `slip` names the known mistake whose output equals the answer's, where there is one."""

    name: str
    title: str
    kind: str
    hidden: bool
    passed: bool
    points: float = 1.0
    message: str = ""
    picture: Picture | None = None
    slip: str = ""


@dataclass(frozen=True)
class ExerciseResult:
    """The verdicts of one exercise. `points` is what it is worth, `note` a sentence about the whole."""

    name: str
    points: float
    status: Status
    checks: tuple[CheckResult, ...] = ()
    note: str = ""

    @property
    def score(self) -> float:
        """Points earned: the exercise's points times the passed share of its checks' points."""
        total = sum(check.points for check in self.checks)
        if not total or self.status == "missing":
            return 0.0
        return round(self.points * sum(check.points for check in self.checks if check.passed) / total, 2)

    @property
    def passed(self) -> bool:
        return self.status == "passed"


@dataclass(frozen=True)
class Report:
    """The verdicts of one submission on one lesson.

    `printed` is what it wrote while it was checked, cut short; `seed` repeats the random inputs.
    """

    lesson: str
    exercises: tuple[ExerciseResult, ...]
    printed: str = field(default="", compare=False)
    seed: int = field(default=0, compare=False)

    @property
    def score(self) -> float:
        return round(sum(exercise.score for exercise in self.exercises), 2)

    @property
    def max_score(self) -> float:
        return sum(exercise.points for exercise in self.exercises)

    @property
    def passed(self) -> bool:
        return all(exercise.passed for exercise in self.exercises)

    def exercise(self, name: str) -> ExerciseResult:
        return next(exercise for exercise in self.exercises if exercise.name == name)

    def with_exercise(self, result: ExerciseResult) -> Report:
        """This report with one exercise's result replaced."""
        return replace(self, exercises=tuple(result if e.name == result.name else e for e in self.exercises))


def plain_text(text: str, limit: int = 3_000) -> str:
    """Text from an answer as text: nothing in it moves a cursor, changes a direction or fills a page."""
    if len(text) > limit:
        text = f"{text[:limit]}..."
    shown = (c if c.isprintable() or c == "\n" else " " if c == "\t" else _escaped(c) for c in text)
    return "".join(shown)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


def plain(number: float) -> str:
    """3.0 as "3", 2.5 as "2.5"."""
    return f"{number:g}"


def as_data(report: Report) -> dict[str, Any]:
    """The fixed JSON form of `check --json`."""
    return {
        "lesson": report.lesson,
        "score": report.score,
        "max_score": report.max_score,
        "exercises": [
            {
                "name": exercise.name,
                "score": exercise.score,
                "points": exercise.points,
                "status": exercise.status,
                "checks": [
                    {
                        "name": check.name,
                        "kind": check.kind,
                        "hidden": check.hidden,
                        "passed": check.passed,
                        "message": _full_message(check),
                    }
                    for check in exercise.checks
                ],
            }
            for exercise in report.exercises
        ],
    }


def as_json(report: Report) -> str:
    return json.dumps(as_data(report), indent=2, ensure_ascii=False) + "\n"


def _full_message(check: CheckResult) -> str:
    return f"{check.message} Likely slip: {check.slip}".strip() if check.slip else check.message


def headline(exercise: ExerciseResult) -> str:
    """One line: what became of the exercise."""
    passed = sum(check.passed for check in exercise.checks)
    count = f"{passed} of {len(exercise.checks)} checks"
    worth = f"{plain(exercise.points)} {'point' if exercise.points == 1 else 'points'}"
    earned = f"{plain(exercise.score)} of {worth}"
    return {
        "passed": f"{exercise.name}: passed, {count}, {worth}",
        "failed": f"{exercise.name}: {count} passed, {earned}",
        "missing": f"{exercise.name}: not started",
        "error": f"{exercise.name}: error, {count} passed, {earned}",
        "timeout": f"{exercise.name}: no answer in time, {earned}",
        "crashed": f"{exercise.name}: crashed, {earned}",
    }[exercise.status]


def _messages(checks: Sequence[CheckResult]) -> list[str]:
    """The checks' messages, with a repeated one said once."""
    seen: dict[str, str] = {}
    said = []
    for check in checks:
        said.append(f'the same as for "{seen[check.message]}"' if check.message in seen else check.message)
        if check.message:
            seen.setdefault(check.message, check.title)
    return said


def as_text(report: Report, *, width: int = 100) -> str:
    """Plain text: a headline an exercise, then its checks, failed ones with their messages."""
    out = [_exercise_text(exercise, width) for exercise in report.exercises]
    if report.printed:
        out += ["printed while checking:", textwrap.indent(report.printed, "  | ")]
    if len(report.exercises) > 1:
        done = sum(exercise.passed for exercise in report.exercises)
        out.append(
            f"{report.lesson}: {done} of {len(report.exercises)} exercises passed, "
            f"{plain(report.score)} of {plain(report.max_score)} points"
        )
    return "\n".join(out)


def _exercise_text(exercise: ExerciseResult, width: int) -> str:
    def fill(text: str, indent: int) -> list[str]:
        space = " " * indent
        return [textwrap.fill(line, width, initial_indent=space, subsequent_indent=space) for line in text.split("\n")]

    out = [headline(exercise)]
    if exercise.note:
        out += fill(exercise.note, 2)
    for check, message in zip(exercise.checks, _messages(exercise.checks), strict=True):
        if exercise.status == "missing":
            continue
        out.append(f"  {'ok  ' if check.passed else 'FAIL'} {check.kind:<10} {check.title}")
        if check.passed:
            continue
        out += fill(message, 18)
        if check.slip:
            out += fill(f"Likely slip: {check.slip}", 18)
        if check.picture:
            out.append(textwrap.indent(check.picture.text(), " " * 18))
    return "\n".join(out)


_COLOURS = {"passed": "#0072b2", "missing": "#767676"}


_OPEN = 3
"""So many failures of an exercise are shown in full; one cause often fails many checks, and the first says most."""
_SHORT = 100


def as_html(report: Report) -> str:
    """A compact table an exercise, for Jupyter and feedback pages. Everything that comes from an answer is escaped."""
    parts = [_exercise_html(exercise) for exercise in report.exercises]
    if report.printed:
        parts.append(
            f"<details><summary>printed while checking</summary><pre>{html.escape(report.printed)}</pre></details>"
        )
    return "\n".join(parts)


def _exercise_html(exercise: ExerciseResult) -> str:
    colour = _COLOURS.get(exercise.status, "#b34700")
    head = f'<div style="color:{colour};font-weight:600;margin:4px 0">{html.escape(headline(exercise))}</div>'
    if exercise.note:
        head += f'<div style="max-width:50em">{html.escape(exercise.note)}</div>'
    if exercise.status == "missing" or not exercise.checks:
        return head
    return head + _checks_html(exercise.checks)


_CELL = "text-align:left;padding:2px 10px 2px 0;vertical-align:top"


def _with_code(text: str) -> str:
    """Escaped text, with what stands between backticks as code."""
    parts = html.escape(text).split("`")
    if len(parts) % 2 == 0:
        return "`".join(parts)
    return "".join(f"<code>{part}</code>" if index % 2 else part for index, part in enumerate(parts))


def _checks_html(checks: Sequence[CheckResult]) -> str:
    rows = []
    shown = 0
    for check, said in zip(checks, _messages(checks), strict=True):
        verdict, colour = ("ok", "#0072b2") if check.passed else ("failed", "#b34700")
        message = _with_code(said).replace("\n", "<br>")
        if check.slip:
            message += f'<div style="margin-top:4px"><b>Likely slip:</b> {_with_code(check.slip)}</div>'
        if check.picture:
            message += check.picture.html()
        shown += not check.passed
        if shown > _OPEN and (len(said) > _SHORT or check.picture):
            short = html.escape(textwrap.shorten(said, _SHORT))
            message = f'<details><summary style="display:list-item;cursor:pointer">{short}</summary>{message}</details>'
        rows.append(
            f'<tr><td style="{_CELL}">{_with_code(check.title)}</td><td style="{_CELL}">{check.kind}</td>'
            f'<td style="{_CELL};color:{colour};font-weight:600">{verdict}</td>'
            f'<td style="{_CELL};max-width:40em;white-space:normal">{message}</td></tr>'
        )
    head = "".join(f'<th style="{_CELL}">{title}</th>' for title in ("check", "kind", "verdict", "what happened"))
    return f'<table style="margin:4px 0"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
