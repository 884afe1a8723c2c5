"""The instructor's commands as the command line calls them: what is said, and the exit codes."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from grader.classroom.batch import Line, Run, assignments, changes, open_pool
from grader.classroom.course import Course, init, parse_assignments

OK, FAILED = 0, 1


def classroom_init(folder: Path, words: list[str], isolation: str) -> int:
    """`classroom init DIR [week1=01,02 ...]`."""
    from grader.classroom.grading import require_sandbox

    wanted = parse_assignments(words)
    if isolation == "sandbox":
        require_sandbox("Nothing was made")
    for line in init(folder, wanted, isolation=isolation):
        print(line)
    first = next(iter(wanted))
    print(f"next, in {folder}: nbgrader generate_assignment {first}; nbgrader release_assignment {first}")
    return OK


def grade(folder: Path, assignment: str, *, workers: int, scheduler: str, isolation: str, again: bool = False) -> int:
    """`grade` and, with `again`, `regrade`: 0 when every submission has its grade, 1 when some were refused."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that the terminal cannot show ends no run
    course = Course.open(folder)
    isolation = isolation or course.isolation
    counts = {"graded": 0, "kept": 0, "refused": 0, "failed": 0}
    found: list[str] = []
    wanted = assignments(course, assignment)
    with open_pool(workers or len(os.sched_getaffinity(0)), scheduler, isolation) as pool:
        for name in wanted:
            with _display(name) as (begin, show):

                def say(line: Line, show: Any = show) -> None:
                    counts[line.state] += 1
                    found.extend(changes(line))
                    show(line)

                Run(course, name, isolation=isolation, again=again, say=say, begin=begin).run(pool)
    if again or found:
        print("\n".join(["", "Grades that changed:", *found]) if found else "no grade changed")
    print(
        f"{', '.join(wanted)}: "
        + ", ".join(f"{count} {state}" for state, count in counts.items() if count or state == "graded")
    )
    return FAILED if counts["refused"] or counts["failed"] else OK


@contextmanager
def _display(name: str) -> Iterator[tuple[Any, Any]]:
    """A bar with the lines above it on a terminal, plain lines in a pipe."""
    if not sys.stdout.isatty():
        yield (lambda _total: None), (lambda line: print(line, flush=True))
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns) as progress:
        task = progress.add_task(name, total=None)

        def show(line: Line) -> None:
            progress.console.print(str(line), markup=False, highlight=False, soft_wrap=True)
            progress.advance(task)

        yield (lambda total: progress.update(task, total=total)), show
