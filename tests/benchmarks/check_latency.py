"""How long a warm `check(f)` takes: every exercise, right and wrong answers, hidden checks included.

    python tests/benchmarks/check_latency.py [--rounds 3] [LESSON ...]

Prints the median for each exercise and over all calls, in milliseconds, and exits 1 when the median over all is above
150 ms. A wrong answer costs more than a right one: its slip is looked up in the bank.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from grader import bank
from grader.judge import reference
from grader.lesson import Exercise, Lesson, load_course, load_lesson
from grader.study.verbs import check

LIMIT_MS = 150.0


def timed(call: Callable[[], Any]) -> float:
    """Milliseconds of one call."""
    begin = time.perf_counter()
    call()
    return (time.perf_counter() - begin) * 1000


def measure(lesson: Lesson, exercise: Exercise, rounds: int) -> tuple[list[float], list[float]]:
    """Times of right answers (reference and variants) and of wrong ones (mutants), after one call to warm up."""
    base = reference(lesson).namespace
    right = [base[exercise.name]]
    right += [e.submission(lesson, base).namespace[exercise.name] for e in bank.variants(lesson.id, exercise.name)]
    wrong = [e.submission(lesson, base).namespace[exercise.name] for e in bank.mutants(lesson.id, exercise.name)]
    check(right[0], exercise.name)
    if wrong:
        check(wrong[0], exercise.name)

    def times(answers: list[Any]) -> list[float]:
        return [timed(partial(check, answer, exercise.name)) for answer in answers for _ in range(rounds)]

    return times(right), times(wrong)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lessons", nargs="*", metavar="LESSON")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    lessons = [load_lesson(name) for name in options.lessons] or list(load_course())
    every: list[float] = []
    slowest = 0.0
    print(f"{'exercise':<40} {'right, ms':>10} {'wrong, ms':>10} {'worst, ms':>10}")
    for lesson in lessons:
        for exercise in lesson.exercises:
            right, wrong = measure(lesson, exercise, options.rounds)
            every += right + wrong
            slowest = max(slowest, statistics.median(right + wrong))
            median_wrong = f"{statistics.median(wrong):.0f}" if wrong else "-"
            name = f"{lesson.number} {exercise.name}"
            print(f"{name:<40} {statistics.median(right):>10.0f} {median_wrong:>10} {max(right + wrong):>10.0f}")
    median = statistics.median(every)
    print(
        f"median over {len(every)} warm calls: {median:.0f} ms (limit {LIMIT_MS:.0f} ms); "
        f"slowest exercise's median: {slowest:.0f} ms"
    )
    return 0 if median <= LIMIT_MS else 1


if __name__ == "__main__":
    sys.exit(main())
