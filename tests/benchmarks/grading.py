"""What grading a class costs: the same submissions by stock `nbgrader autograde` and by `grade` with the walls up.

    python tests/benchmarks/grading.py [--lesson 02] [--size 100] [--stock 100] [--sizes 100 1000] [--jobs 2]

Prints processor seconds a submission (all child processes included) of both, their ratio, how time and memory grow with
the class, and what each part of a submission costs. Stock nbgrader starts a kernel for each submission and runs the
checks in it, so `--stock 20` measures a sample.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from grader.bank import Mutant, entries  # noqa: E402
from grader.classroom import course as courses  # noqa: E402
from grader.lesson import Lesson, load_lesson  # noqa: E402
from grader.splice import source_of  # noqa: E402

STOCK = """
import sys
sys.path.insert(0, {root!r})
from grader.build import release_config
c = get_config()
c.merge(release_config())
c.CourseDirectory.root = {folder!r}
c.CourseDirectory.course_id = "course"
c.KernelManager.transport_encryption = "auto"
c.Execute.timeout = 600
"""


@dataclass
class Cost:
    """What a command took."""

    wall: float
    cpu: float
    coordinator: float = 0.0
    everything: float = 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--lesson", default="02")
    parser.add_argument("--size", type=int, default=100, help="submissions for the comparison")
    parser.add_argument("--stock", type=int, default=100, help="how many of them stock nbgrader grades (0: none)")
    parser.add_argument("--sizes", type=int, nargs="*", default=[100, 1000], help="class sizes for growth")
    parser.add_argument("--scale-lesson", default="", help="another lesson for growth")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    courses.put_interpreter_first_on_path()
    print(f"{len(os.sched_getaffinity(0))} processors, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        lesson = load_lesson(options.lesson)
        ours = make_class(folder / "ours" / "course", lesson, options.size)
        print(f"lesson {lesson.id}: {options.size} submissions, {len(lesson.exercises)} exercises")
        cost = measured([sys.executable, "-m", "grader", "grade", str(ours), "-j", str(options.jobs)], ROOT)
        each = cost.cpu / options.size
        print(
            f"ours, walls up:  {each:6.2f} CPU s a submission, "
            f"{cost.wall / options.size:.2f} s wall with -j {options.jobs}"
        )
        if options.stock:
            other = make_stock(folder / "stock" / "course", ours, options.stock)
            stock = measured([str(Path(sys.executable).with_name("nbgrader")), "autograde", "week1"], other)
            per = stock.cpu / options.stock
            print(
                f"stock nbgrader:  {per:6.2f} CPU s a submission, "
                f"{stock.wall / options.stock:.2f} s wall ({options.stock} measured)"
            )
            print(f"ratio: {per / each:.1f} times less CPU; the same scores: {same_scores(ours, other)}")
        parts(ours, lesson)
        scale = load_lesson(options.scale_lesson or options.lesson)
        for size in options.sizes:
            root = make_class(folder / f"class-{size}" / "course", scale, size)
            cost = measured([sys.executable, "-m", "grader", "grade", str(root), "-j", str(options.jobs)], ROOT)
            print(
                f"{size:5} submissions of {scale.id}: {cost.wall:7.1f} s, {cost.cpu / size:.3f} CPU s each, "
                f"coordinator {cost.coordinator / 1e6:.0f} MB, all processes {cost.everything / 1e6:.0f} MB"
            )
            again = measured([sys.executable, "-m", "grader", "grade", str(root), "-j", str(options.jobs)], ROOT)
            print(f"{'':6}a second run, nothing new: {again.wall:.1f} s, {again.cpu / size:.3f} CPU s each")
            shutil.rmtree(root.parent)


def make_class(root: Path, lesson: Lesson, size: int) -> Path:
    """A course whose class handed in right answers, mistakes from the bank, other right ones, and empty stubs."""
    courses.init(root, {"week1": [lesson]})
    run([str(Path(sys.executable).with_name("nbgrader")), "generate_assignment", "week1"], root)
    released = (root / "release" / "week1" / f"{lesson.id}.ipynb").read_text()
    bank = entries(lesson.id)
    wrong, right = [e for e in bank if isinstance(e, Mutant)], [e for e in bank if not isinstance(e, Mutant)]
    for number in range(size):
        answers: dict[str, str] = {e.name: e.reference for e in lesson.exercises}
        if number % 4 == 1 and wrong:
            for mutant in (wrong[number % len(wrong)], wrong[7 * number % len(wrong)]):
                answers[mutant.exercise] = mutant.code(lesson)
        elif number % 4 == 2 and right:
            for variant in right[number % 3 :: 3]:
                answers[variant.exercise] = variant.code(lesson)
        elif number % 4 == 3:
            answers = dict(list(answers.items())[: number % len(answers)])
        notebook: dict[str, Any] = json.loads(released)
        for cell in notebook["cells"]:
            source = answers.get(cell.get("id", ""))
            cell["source"] = source_of(cell) if source is None else f"{source}\n# {number}"
        path = root / "submitted" / f"s{number:04}" / "week1" / f"{lesson.id}.ipynb"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(notebook))
    return root


def make_stock(root: Path, ours: Path, size: int) -> Path:
    """The same submissions in a course without our steps: a kernel for each, the checks in it."""
    root.mkdir(parents=True)
    for name in ("source", "release"):
        shutil.copytree(ours / name, root / name)
    for folder in sorted((ours / "submitted").iterdir())[:size]:
        shutil.copytree(folder, root / "submitted" / folder.name)
    (root / "nbgrader_config.py").write_text(STOCK.format(root=str(ROOT), folder=str(root)))
    run([str(Path(sys.executable).with_name("nbgrader")), "generate_assignment", "week1", "--force"], root)
    return root


def same_scores(ours: Path, other: Path) -> str:
    """How many have the same score in both, and the others: each side draws its own random inputs."""
    from nbgrader.api import Gradebook

    found: list[dict[str, float]] = []
    for root, name in ((ours, courses.course_name(ours)), (other, "course")):
        with Gradebook(f"sqlite:///{root / 'gradebook.db'}", name) as book:
            found.append({s.student_id: s.score for s in book.assignment_submissions("week1")})
    mine, theirs = found
    different = [
        f"{s} {mine.get(s, -1):.2f}, {theirs[s]:.2f}" for s in theirs if abs(mine.get(s, -1) - theirs[s]) > 0.005
    ]
    return "; ".join([f"{len(theirs) - len(different)} of {len(theirs)}", *different])


def run(command: list[str], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(ROOT)})


def measured(command: list[str], folder: Path) -> Cost:
    """Run a command; processor time of it and of all its descendants, and peaks of memory, sampled."""
    start = time.perf_counter()
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=said, stderr=said)
        with memory_of(process.pid) as peaks:
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            said.seek(0)
            sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{said.read().decode()[-2000:]}")
    return Cost(time.perf_counter() - start, usage.ru_utime + usage.ru_stime, *peaks)


@contextmanager
def memory_of(pid: int) -> Iterator[list[float]]:
    """Peaks of the process's own memory and of the sum over its descendants (shared pages counted once, by PSS)."""
    peaks = [0.0, 0.0]
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(1.0):
            own, tree = _pss(pid), sum(_pss(child) for child in descendants(pid))
            peaks[0], peaks[1] = max(peaks[0], own), max(peaks[1], own + tree)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        stop.set()
        thread.join()


def _pss(pid: int) -> float:
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return float(line.split()[1]) * 1024
    except OSError:
        pass
    return 0.0


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(path.parent.name))
    found, frontier = [], [pid]
    while frontier:
        children = [child for parent in frontier for child in parents.get(parent, ())]
        found += children
        frontier = children
    return found


def tree_cpu() -> float:
    """Processor seconds of this process and of its descendants, those that ended included."""
    ticks = 0
    for pid in [os.getpid(), *descendants(os.getpid())]:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def parts(root: Path, lesson: Lesson, count: int = 40) -> None:
    """What each part of a submission costs, one after another in one process, warm."""
    from grader.classroom.batch import Run
    from grader.classroom.course import Course
    from grader.classroom.gradebook import Book
    from grader.classroom.grading import answer_cells, bench
    from grader.classroom.results import Record, answers_digest, checks_digest
    from grader.classroom.workers import prepared, with_verdicts
    from grader.judge import judge_with_stand_ins

    course = Course.open(root)
    Run(course, "week1")
    released = (root / "release" / "week1" / f"{lesson.id}.ipynb").read_text()
    files = sorted((root / "submitted").glob(f"*/week1/{lesson.id}.ipynb"))[:count]
    costs: dict[str, list[float]] = {}

    @contextmanager
    def part(name: str) -> Iterator[None]:
        cpu, wall = tree_cpu(), time.perf_counter()
        yield
        costs.setdefault(name, []).append(tree_cpu() - cpu)
        costs.setdefault(name + " wall", []).append(time.perf_counter() - wall)

    where = bench("sandbox")
    first = lesson.exercises[0].name
    with Book(course, "week1") as book:
        for number, path in enumerate(files):
            if number == 4:
                costs.clear()  # everything is warm now
            with part("read and splice"):
                notebook = prepared(path.read_text(), released)
            cells = answer_cells(notebook)
            with part("fork"):
                empty = where.submission(lesson, [], "empty")
                empty._given = []  # type: ignore[attr-defined]
                empty.uses(first)
                empty.close()
            with part("fork and cells"):
                submission: Any = where.submission(lesson, cells, "answer")
                submission.uses(first)
            with part("checks"):
                report = judge_with_stand_ins(lesson, submission, seed=number)
            submission.close()
            record = Record(answers_digest(lesson, cells), checks_digest(lesson), number, "sandbox", report)
            with part("feedback and notebook"):
                text = with_verdicts(notebook, record.as_data())
            data = json.loads(text)
            for cell in data["cells"]:
                cell["source"] = source_of(cell)
            with part("gradebook"):
                book.save(path.parts[-3], "", {lesson.id: data})
    where.close()
    total = sum(sum(v) for k, v in costs.items() if not k.endswith("wall") and k != "fork")
    print(f"parts, mean of {len(files) - 4} submissions (processor time, wall time, share of processor time):")
    for name in [name for name in costs if not name.endswith("wall")]:
        values, walls = costs[name], costs[name + " wall"]
        share = "  (in the next)" if name == "fork" else f"{sum(values) / total:6.0%}"
        print(f"  {name:24}{1000 * sum(values) / len(values):7.0f} ms{1000 * sum(walls) / len(walls):8.0f} ms {share}")


if __name__ == "__main__":
    main()
