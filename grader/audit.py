"""The audit: the bank against the checks.

Every mutant must be rejected by at least one check, every right variant and the reference accepted by all, every empty
stub reported as not started. The kill matrix says which check rejects which mutant.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from grader import bank
from grader.judge import given_names, judge, reference
from grader.lesson import Cell, Exercise, Lesson
from grader.report import CheckResult, ExerciseResult, Status
from grader.submission import Submission

_SECONDS = 60.0
"""For one check: some wrong answers of the bank are slow, and none is to be rejected for the machine's sake."""


@dataclass(frozen=True)
class ExerciseAudit:
    """The kill matrix of one exercise: `kills[mutant]` holds the names of the checks that reject it, over all seeds.

    `statuses[mutant]` is what became of it with the first seed.
    """

    lesson: str
    exercise: str
    checks: tuple[CheckResult, ...]
    kills: dict[str, tuple[str, ...]]
    statuses: dict[str, Status]
    accepted: tuple[str, ...]
    faults: tuple[str, ...]

    @property
    def survivors(self) -> tuple[str, ...]:
        return tuple(mutant for mutant, checks in self.kills.items() if not checks)

    @property
    def caught_once(self) -> dict[str, str]:
        """Mutants that one check only rejects: what each check is needed for."""
        return {mutant: checks[0] for mutant, checks in self.kills.items() if len(checks) == 1}

    @property
    def idle(self) -> tuple[str, ...]:
        """Checks that reject no mutant at all."""
        busy = {name for checks in self.kills.values() for name in checks}
        return tuple(check.name for check in self.checks if check.name not in busy)

    @property
    def unneeded(self) -> tuple[str, ...]:
        """Checks without which every mutant would still be rejected (each taken by itself)."""
        needed = set(self.caught_once.values())
        return tuple(check.name for check in self.checks if check.name not in needed)


@dataclass(frozen=True)
class Audit:
    """The audit of some lessons."""

    exercises: tuple[ExerciseAudit, ...]

    @cached_property
    def faults(self) -> tuple[str, ...]:
        """One sentence for everything that must not be: survivors, rejected right answers, wrongly judged stubs."""
        return tuple(f"{e.lesson} {e.exercise}: {fault}" for e in self.exercises for fault in e.faults)

    @property
    def clean(self) -> bool:
        return not self.faults

    def totals(self) -> dict[str, int]:
        return {
            "exercises": len(self.exercises),
            "checks": sum(len(e.checks) for e in self.exercises),
            "mutants": sum(len(e.kills) for e in self.exercises),
            "survivors": sum(len(e.survivors) for e in self.exercises),
            "right_variants": sum(len(e.accepted) for e in self.exercises),
            "caught_by_one_check_only": sum(len(e.caught_once) for e in self.exercises),
            "checks_that_reject_nothing": sum(len(e.idle) for e in self.exercises),
            "faults": len(self.faults),
        }


def audit(
    lessons: Sequence[Lesson],
    *,
    seeds: int = 1,
    only: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Audit:
    """Run the bank of these lessons through their checks.

    Args:
        seeds: how many sets of random inputs. A right answer must pass with all of them; a mutant must fail with each.
        only: audit this exercise alone.
        progress: told the exercise before it is audited.
    """
    found = []
    for lesson in lessons:
        for exercise in lesson.exercises:
            if only in (None, exercise.name):
                progress(f"{lesson.number} {exercise.name}")
                found.append(_audit_exercise(lesson, exercise, seeds))
    return Audit(tuple(found))


def _audit_exercise(lesson: Lesson, exercise: Exercise, seeds: int) -> ExerciseAudit:
    solved = reference(lesson)
    mutants = bank.mutants(lesson.id, exercise.name)
    variants = bank.variants(lesson.id, exercise.name)
    stub = Submission(
        [Cell("code", exercise.stub, "solve", exercise.name)], base=given_names(lesson), label=f"stub {exercise.name}"
    )
    answers = [solved, stub, *(entry.submission(lesson, solved.namespace) for entry in (*variants, *mutants))]
    kills: dict[str, set[str]] = {mutant.name: set() for mutant in mutants}
    statuses: dict[str, Status] = {}
    faults: list[str] = []
    checks: tuple[CheckResult, ...] = ()
    for seed in range(seeds):
        reports = judge(lesson, answers, only=[exercise.name], seed=seed, limit=_SECONDS, diagnose=False)
        results = [report.exercises[0] for report in reports]
        checks = results[0].checks
        where = f" (seed {seed})" if seed else ""
        if not checks:
            faults.append("has no checks: write some in grader/checks/")
            break
        if all(check.hidden for check in checks):
            faults.append("has no public check: is the exercise's name in grader/checks/public/ right?")
        if not results[0].passed:
            faults.append(f"the reference is rejected{where}: {_first_failure(results[0])}")
        if results[1].status != "missing" or results[1].score:
            faults.append(f"the empty stub is judged {results[1].status!r} with {results[1].score} points{where}")
        for variant, result in zip(variants, results[2:], strict=False):
            if not result.passed:
                faults.append(f"the right variant {variant.name!r} is rejected{where}: {_first_failure(result)}")
        for mutant, result in zip(mutants, results[2 + len(variants) :], strict=True):
            rejected = [check.name for check in result.checks if not check.passed]
            kills[mutant.name].update(rejected)
            statuses.setdefault(mutant.name, result.status)
            if result.status == "missing":
                faults.append(f"the mutant {mutant.name!r} does not define {exercise.name}: {result.note}")
            elif not rejected:
                faults.append(f"the mutant {mutant.name!r} survives{where}: {mutant.slip}")
    order = {check.name: index for index, check in enumerate(checks)}
    return ExerciseAudit(
        lesson=lesson.id,
        exercise=exercise.name,
        checks=checks,
        kills={name: tuple(sorted(found, key=order.__getitem__)) for name, found in kills.items()},
        statuses=statuses,
        accepted=tuple(variant.name for variant in variants),
        faults=tuple(faults),
    )


def _first_failure(result: ExerciseResult) -> str:
    failed = next((check for check in result.checks if not check.passed), None)
    return f"{failed.name}: {failed.message}" if failed else result.note


# ---------------------------------------------------------------------------------------------------- rendering


def as_text(result: Audit, *, matrix: bool = True) -> str:
    """The kill matrix for a terminal or a pipe: one row a mutant, one column a check."""
    out = []
    for e in result.exercises:
        out.append(
            f"{e.lesson} {e.exercise}: {len(e.kills)} mutants, {len(e.survivors)} survive; "
            f"{len(e.accepted)} right variants"
        )
        if matrix:
            for index, check in enumerate(e.checks, 1):
                idle = "  (rejects no mutant)" if check.name in e.idle else ""
                out.append(f"  {index:>3} {'hidden' if check.hidden else 'public'} {check.kind:<10} {check.name}{idle}")
            width = max((len(name) for name in e.kills), default=0)
            out.append("      " + " " * width + "".join(f"{index:>3}" for index in range(1, len(e.checks) + 1)))
            for name, killers in e.kills.items():
                marks = "".join("  x" if check.name in killers else "  ." for check in e.checks)
                note = "  SURVIVES" if not killers else ("  one check only" if len(killers) == 1 else "")
                out.append(f"      {name:<{width}}{marks}{note}")
            out.append("")
    totals = result.totals()
    out.append(
        f"{totals['exercises']} exercises, {totals['checks']} checks, {totals['mutants']} mutants "
        f"({totals['survivors']} survive, {totals['caught_by_one_check_only']} caught by one check only), "
        f"{totals['right_variants']} right variants, {totals['checks_that_reject_nothing']} checks reject no mutant"
    )
    out += [f"FAULT {fault}" for fault in result.faults]
    out.append("clean" if result.clean else f"{len(result.faults)} faults")
    return "\n".join(out)


def as_json(result: Audit) -> str:
    data: dict[str, Any] = {"totals": result.totals(), "faults": list(result.faults), "exercises": []}
    for e in result.exercises:
        data["exercises"].append(
            {
                "lesson": e.lesson,
                "exercise": e.exercise,
                "checks": [{"name": c.name, "kind": c.kind, "hidden": c.hidden} for c in e.checks],
                "kills": {name: list(killers) for name, killers in e.kills.items()},
                "right_variants": list(e.accepted),
                "survivors": list(e.survivors),
                "caught_by_one_check_only": e.caught_once,
                "checks_that_reject_nothing": list(e.idle),
                "checks_not_needed_alone": list(e.unneeded),
            }
        )
    return json.dumps(data, indent=2) + "\n"


def as_html(result: Audit) -> str:
    """The kill matrix as a page of its own."""
    totals = result.totals()
    parts = [
        "<!doctype html><html lang='en'><head><meta charset='utf-8'><title>The kill matrix</title><style>",
        "body{font:15px/1.4 sans-serif;margin:2em;max-width:75em} table{border-collapse:collapse;margin:.5em 0 2em}",
        "td,th{border:1px solid #ccc;padding:2px 6px;font-weight:normal;text-align:left}",
        "td.k{background:#0072b2;color:#fff}",
        "td.once{background:#d55e00;color:#fff}",
        "th.check{writing-mode:vertical-rl;vertical-align:bottom}</style></head><body>",
        "<h1>The kill matrix</h1><p>Each row is a wrong answer of the bank, each column a check; a filled cell means "
        "that the check rejects the answer, an orange one that no other check does.</p>",
        f"<p>{totals['exercises']} exercises, {totals['checks']} checks, {totals['mutants']} mutants of which "
        f"{totals['survivors']} survive, {totals['right_variants']} right variants, {totals['faults']} faults.</p>",
    ]
    for e in result.exercises:
        parts.append(f"<h2>{html.escape(e.lesson)}: <code>{html.escape(e.exercise)}</code></h2><table><tr><th></th>")
        parts += [
            f"<th class='check' title='{html.escape(c.title, quote=True)}'>{html.escape(c.name)} ({c.kind})</th>"
            for c in e.checks
        ]
        parts.append("</tr>")
        for name, killers in e.kills.items():
            style = "once" if len(killers) == 1 else "k"
            cells = "".join(f"<td class='{style}'>x</td>" if c.name in killers else "<td></td>" for c in e.checks)
            parts.append(f"<tr><th>{html.escape(name)}</th>{cells}</tr>")
        parts.append(f"</table><p>Right variants accepted: {html.escape(', '.join(e.accepted)) or 'none'}.</p>")
    return "\n".join([*parts, "</body></html>\n"])
