"""A class at once: the same as nbgrader would do, whatever the order, the workers, and when it is killed."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from nbgrader.api import Gradebook
from seminar import HALF, ROW_SUMS, copy_of, hand_in, handed_in, nbgrader, new_course, own, scores

from grader import cli
from grader.checks.collection import CheckFileError
from grader.classroom import batch, workers
from grader.classroom.batch import Line, Run, changes
from grader.classroom.course import Course, CourseError
from grader.classroom.gradebook import Book
from grader.classroom.results import Record
from grader.classroom.uploads import RefusedSubmission
from grader.classroom.workers import ClusterPool, Job, LocalPool, Verdict, judge_job
from grader.lesson import ROOT, load_lesson
from grader.report import CheckResult, ExerciseResult, Report
from grader.sandbox.remote import sandbox_available

FULL = load_lesson("00").exercise("row_sums").points


class Here:
    """A pool that judges in this process; knows how often."""

    def __init__(self) -> None:
        self.judged: list[str] = []

    def run(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, Verdict]]:
        for job in jobs:
            self.judged.append(job.student)
            yield job, judge_job(job)


def grade(root: Path, pool: Any = None, **options: Any) -> list[Line]:
    told: list[Line] = []
    run = Run(Course.open(root), "week1", **{"isolation": "none", **options}, say=told.append)
    assert [line.state for line in run.run(pool or Here())] == [line.state for line in told]
    return told


def states(lines: list[Line]) -> dict[str, str]:
    return {line.student: line.state for line in lines}


def a_class(folder: Path, size: int, answer: str = ROW_SUMS) -> Path:
    """The course with so many submissions, all different."""
    root = copy_of(handed_in(), folder)
    shutil.rmtree(root / "submitted")
    for number in range(size):
        hand_in(root, f"s{number:02}", {"row_sums": answer + f"  # {number}"})
    return root


def outcome(root: Path) -> dict[Any, Any]:
    """Everything that grading left: the gradebook's rows, the graded notebooks, the verdicts."""
    found: dict[Any, Any] = {}
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}", root.name) as gradebook:
        for submission in gradebook.assignment_submissions("week1"):
            for notebook in submission.notebooks:
                for grade in notebook.grades:
                    found[submission.student_id, grade.name] = (grade.auto_score, grade.needs_manual_grade)
                for comment in notebook.comments:
                    found[submission.student_id, comment.name, "comment"] = comment.auto_comment
    for path in (root / "autograded").rglob("*"):
        if path.is_file():
            assert path.stat().st_mode & 0o777 == 0o444
            found[str(path.relative_to(root))] = path.read_text()
    assert not list(root.rglob("*.new"))
    for path in (root / ".grader" / "judged" / "week1").glob("*.json"):
        found[path.name] = json.loads(path.read_text())["records"]
    return found


def late_is_zero(root: Path) -> None:
    config = root / "nbgrader_config.py"
    plugin = "\nfrom nbgrader.plugins import LateSubmissionPlugin\nLateSubmissionPlugin.penalty_method = 'zero'\n"
    config.write_text(config.read_text() + plugin + "c.LateSubmissionPlugin.penalty_method = 'zero'\n")


# ------------------------------------------------------------------------------------------ as nbgrader would


@pytest.mark.skipif(not sandbox_available(), reason=str(sandbox_available().reason))
def test_the_command_leaves_what_nbgrader_autograde_leaves(tmp_path: Path, capsys: Any) -> None:
    """The same scores, comments and notebooks, byte for byte; feedback works on them."""
    stock, ours = copy_of(handed_in(), tmp_path / "1"), copy_of(handed_in(), tmp_path / "2")
    for root in (stock, ours):
        (root / "submitted" / "ada" / "week1" / "timestamp.txt").write_text("2026-03-01 10:00:00 UTC\n")
        (root / "submitted" / "ada" / "week1" / "data").mkdir()
        (root / "submitted" / "ada" / "week1" / "data" / "mine.csv").write_text("1,2")
        for name in ("plots.html", "x.SVG", "torch.py", "both.html", "both.html.txt", "given.html", "given.csv"):
            (root / "submitted" / "ada" / "week1" / name).write_text(f"<script>alert(1)</script> {name}")
        (root / "source" / "week1" / "given.csv").write_text("3")
        (root / "source" / "week1" / "given.html").write_text("<p>the course's own</p>")
    nbgrader(stock, "autograde", "week1")
    assert cli.main(["grade", str(ours), "week1", "-j", "2"]) == 0
    said = capsys.readouterr().out
    for line in ("graded  ada: 1 of 1 (00_start_here 1)", "graded  eve: 0 of 1", "week1: 5 graded"):
        assert line in said
    expected, found = outcome(stock), outcome(ours)
    assert {
        k: v for k, v in found.items() if k not in {f"{s}.json" for s in ("ada", "bob", "eve", "spy", "xss")}
    } == expected
    extras = {path.name for path in (ours / "autograded" / "ada" / "week1").iterdir() if path.suffix != ".ipynb"}
    assert extras == {
        "data", "timestamp.txt", "plots.html.txt", "x.SVG.txt", "torch.py.txt", "both.html.txt", "given.html", "given.csv"
    }  # fmt: skip
    assert found["autograded/ada/week1/both.html.txt"].endswith("both.html.txt")
    assert found["autograded/ada/week1/given.html"] == "<p>the course's own</p>"
    assert ("autograded/ada/week1/data/mine.csv") in found and "autograded/eve/week1/given.csv" in found
    nbgrader(ours, "generate_feedback", "week1", "--student=bob")
    assert "A hint:" in (ours / "feedback" / "bob" / "week1" / "00_start_here.html").read_text()


def test_order_and_number_of_workers_do_not_matter(tmp_path: Path) -> None:
    one, three = copy_of(handed_in(), tmp_path / "1"), copy_of(handed_in(), tmp_path / "2")
    grade(one)
    with LocalPool(2) as pool:
        assert set(states(grade(three, pool)).values()) == {"graded"}
        assert len(pool.pids) == 2
    assert outcome(one) == outcome(three)


def test_a_line_says_what_the_gradebook_holds(tmp_path: Path) -> None:
    root = copy_of(handed_in(), tmp_path)
    lines = {line.student: str(line) for line in grade(root)}
    assert lines["ada"].endswith("1 of 1 (00_start_here 1); gradebook 1 of 4; 1 to grade by hand")
    late_is_zero(root)
    (root / "submitted" / "ada" / "week1" / "timestamp.txt").write_text("2026-01-02 12:00:00 UTC")
    assert not any("late" in str(line) for line in grade(root))
    for due, late in (("2026-01-01", True), ("2026-02-01", False)):  # set after it was judged, and moved
        with Gradebook(f"sqlite:///{root / 'gradebook.db'}", root.name) as gradebook:
            gradebook.update_or_create_assignment("week1", duedate=f"{due} 00:00:00 UTC")
        (line,) = (line for line in grade(root) if line.student == "ada")
        assert line.state == "kept" and ("gradebook 0 of 4" in str(line)) is late
        assert ("1.5 days late, penalty 1" in str(line)) is late
        with Gradebook(f"sqlite:///{root / 'gradebook.db'}", root.name) as gradebook:
            assert (gradebook.find_submission("week1", "ada").late_submission_penalty > 0) is late


def test_a_notebook_that_was_not_handed_in_is_named(tmp_path: Path) -> None:
    root = new_course(tmp_path / "seminar", "00,01")
    hand_in(root, "ada", {"row_sums": ROW_SUMS})
    (root / "submitted" / "ada" / "week1" / "01_rnn_and_attention.ipynb").unlink()
    (line,) = grade(root)
    assert "(00_start_here 1); gradebook 1 of " in str(line) and str(line).endswith("without 01_rnn_and_attention")


def test_a_new_verdict_takes_away_the_feedback_on_the_former(tmp_path: Path) -> None:
    root = copy_of(handed_in(), tmp_path)
    grade(root)
    nbgrader(root, "generate_feedback", "week1")
    pages = [root / "feedback" / student / "week1" / "00_start_here.html" for student in ("bob", "ada")]
    assert all(page.exists() for page in pages)
    shutil.rmtree(root / "submitted" / "bob" / "week1")
    hand_in(root, "bob", {"row_sums": ROW_SUMS})
    grade(root)
    assert [page.exists() for page in pages] == [False, True]
    nbgrader(root, "generate_feedback", "week1")
    assert pages[0].exists()


@pytest.mark.parametrize(
    ("put", "words"),
    [
        ("hand_in.zip", "there is hand_in.zip: unpack it"),
        ("00_start_here (1).ipynb", "is it one of them under another name?"),
        ("", "the folder is empty"),
    ],
)
def test_what_is_there_instead_of_a_notebook_is_said(tmp_path: Path, put: str, words: str) -> None:
    root = copy_of(handed_in(), tmp_path)
    folder = root / "submitted" / "zoe" / "week1"
    folder.mkdir(parents=True)
    if put:
        (folder / put).write_bytes(b"PK")
    (line,) = (line for line in grade(root) if line.student == "zoe")
    assert line.state == "refused" and words in line.reason


def test_the_notebook_of_another_lesson_is_refused(tmp_path: Path) -> None:
    root = copy_of(handed_in(), tmp_path)
    path = root / "submitted" / "ada" / "week1" / "00_start_here.ipynb"
    path.write_bytes((ROOT / "course" / "03_scaling.ipynb").read_bytes())
    (line,) = (line for line in grade(root) if line.student == "ada")
    assert line.state == "refused" and "this is the notebook of 03_scaling" in line.reason


def test_a_persons_grades_and_late_penalties_are_nbgraders(tmp_path: Path) -> None:
    root = copy_of(handed_in(), tmp_path)
    late_is_zero(root)
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}", root.name) as gradebook:
        gradebook.update_or_create_assignment("week1", duedate="2026-01-01 00:00:00 UTC")
    (root / "submitted" / "ada" / "week1" / "timestamp.txt").write_text("2026-01-02 00:00:00 UTC")
    grade(root)
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}", root.name) as gradebook:
        assert gradebook.find_submission("week1", "ada").late_submission_penalty == FULL
        assert gradebook.find_submission("week1", "bob").late_submission_penalty == 0
        mark = gradebook.find_grade("row_sums-check", "00_start_here", "week1", "bob")
        mark.manual_score = 0.25
        gradebook.db.commit()
    grade(root, again=True)
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}", root.name) as gradebook:
        mark = gradebook.find_grade("row_sums-check", "00_start_here", "week1", "bob")
        assert mark.score == 0.25 and mark.needs_manual_grade, "the person's grade stays, and is to be looked at again"


# ------------------------------------------------------------------------------------------ killed, resumed


def test_a_second_run_judges_only_what_is_new(tmp_path: Path) -> None:
    root = copy_of(handed_in(), tmp_path)
    grade(root)
    before = outcome(root)
    pool = Here()
    assert set(states(grade(root, pool)).values()) == {"kept"} and pool.judged == []
    notebook = root / "submitted" / "eve" / "week1" / "00_start_here.ipynb"
    notebook.write_text(notebook.read_text().replace("raise NotImplementedError", "return x.sum(-1)  # "))
    assert states(grade(root, pool))["eve"] == "graded" and pool.judged == ["eve"]
    assert scores(root)["eve"] == FULL
    (root / "gradebook.db").unlink()
    shutil.copy(handed_in() / "gradebook.db", root)
    shutil.rmtree(root / "autograded" / "bob")
    assert set(states(grade(root, pool)).values()) == {"kept"} and pool.judged == ["eve"]
    assert {k: v for k, v in outcome(root).items() if "eve" not in str(k)} == {
        k: v for k, v in before.items() if "eve" not in str(k)
    }


class Killed(BaseException):
    """Stands for kill -9: nobody catches it."""


POINTS = [
    (batch, "write_atomically"),
    (Book, "save"),
    (Book, "_save"),
    (Run, "_copy_extras"),
    (Run, "_write"),
    (batch, "swap_in"),
    (os, "replace"),
]


@pytest.mark.parametrize(("owner", "name"), POINTS, ids=[name for _, name in POINTS])
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("call", [1, 4])
def test_a_run_that_ends_at_any_step_is_taken_up(
    owner: Any, name: str, moment: str, call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, undisturbed = copy_of(handed_in(), tmp_path / "1"), finished()
    real, calls = getattr(owner, name), 0

    def deadly(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call and moment == "before":
            raise Killed
        result = real(*args, **kwargs)
        if calls == call:
            raise Killed
        return result

    pool = Here()
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(owner, name, deadly)
        grade(root, pool)
    assert set(states(grade(root, pool)).values()) <= {"graded", "kept"}
    assert outcome(root) == undisturbed
    assert len(pool.judged) <= 6 and set(pool.judged) == {"ada", "bob", "eve", "spy", "xss"}


def test_a_new_version_is_written_even_when_the_run_ended_between_verdict_and_gradebook(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gradebook and the graded notebook of the former version are there: only the journal tells."""
    root = copy_of(handed_in(), tmp_path)
    grade(root)
    notebook = root / "submitted" / "eve" / "week1" / "00_start_here.ipynb"
    notebook.write_text(notebook.read_text().replace("raise NotImplementedError", "return x.sum(-1)  # "))

    def die(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Book, "save", die)
        grade(root)
    pool = Here()
    assert states(grade(root, pool))["eve"] == "kept" and pool.judged == []
    assert scores(root)["eve"] == FULL


@pytest.mark.parametrize("call", range(3))
@pytest.mark.parametrize("step", ["rename", "unlink"])
def test_other_files_that_were_being_exchanged_are_exchanged_by_the_next_run(
    step: str, call: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = a_class(tmp_path, 1)
    folder = root / "submitted" / "s00" / "week1"
    for name in ("a", "b.csv", "c.csv"):
        (folder / name).write_text("first")
    grade(root)
    (folder / "a").unlink()
    (folder / "c.csv").unlink()
    (folder / "a").mkdir()
    for name in ("a/x", "b.csv", "d.csv"):
        (folder / name).write_text("second")
    real, left = getattr(os, step), call

    def deadly(*args: Any, **options: Any) -> Any:
        nonlocal left
        left -= "autograded" in os.fsdecode(args[0])
        if left < 0:
            raise Killed
        return real(*args, **options)

    notebook = folder / "00_start_here.ipynb"
    notebook.write_text(notebook.read_text().replace("# 0", "# 1"))
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(os, step, deadly)
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # it was killed: it tidies nothing up
        grade(root)
    grade(root)
    left_over = {k: v for k, v in outcome(root).items() if str(k).startswith("autograded/") and "ipynb" not in k}
    assert left_over == {f"autograded/s00/week1/{name}": "second" for name in ("a/x.txt", "b.csv", "d.csv")}
    assert [path.name for path in (root / "autograded" / "s00").iterdir()] == ["week1"]


def test_reading_a_submission_follows_no_link(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "n.ipynb").symlink_to(tmp_path / "secret")
    with pytest.raises(RefusedSubmission, match="symbolic link"):
        batch._read(tmp_path / "n.ipynb")
    with pytest.raises(RefusedSubmission, match=r"folder\.ipynb is not a regular file|cannot be read"):
        (tmp_path / "folder.ipynb").mkdir()
        batch._read(tmp_path / "folder.ipynb")


_finished: dict[Any, Any] = {}


def finished() -> dict[Any, Any]:
    """What an undisturbed run leaves."""
    if not _finished:
        import tempfile

        with tempfile.TemporaryDirectory() as folder:
            root = copy_of(handed_in(), Path(folder))
            grade(root)
            _finished.update(outcome(root))
    return _finished


def test_a_journal_line_that_was_cut_off_is_no_line(tmp_path: Path) -> None:
    root = copy_of(handed_in(), tmp_path)
    grade(root)
    journal = root / ".grader" / "judged" / "week1" / "journal.jsonl"
    journal.write_text(journal.read_text()[:-20] + "\x00")
    (root / ".grader" / "judged" / "week1" / "ada.json").write_text('{"key": "x", "rec')
    pool = Here()
    lines = states(grade(root, pool))
    assert pool.judged == ["ada"] and lines["ada"] == "graded" and lines["xss"] == "kept"
    assert outcome(root) == finished()


def run_command(root: Path, *options: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "grader", "grade", str(root), "week1", "--isolation", "none", *options]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=env)


def test_kill_9_in_the_middle_loses_and_repeats_nothing(tmp_path: Path) -> None:
    slow = "import time\ntime.sleep(0.3)\n" + ROW_SUMS + "\nif True:\n    import time\n    time.sleep(0.3)\n"
    root = a_class(tmp_path / "1", 10, slow)
    process = run_command(root, "-j", "2")
    assert process.stdout is not None
    before = [process.stdout.readline().split()[1] for _ in range(3)]
    children = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True).stdout.split()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert len(children) >= 2
    deadline = time.monotonic() + 20
    while any(Path("/proc", child).exists() for child in children):
        assert time.monotonic() < deadline, "a worker outlives its coordinator"
        time.sleep(0.1)
    done, _ = run_command(root, "-j", "2").communicate(timeout=120)
    lines = {
        line.split()[1].rstrip(":"): line.split()[0]
        for line in done.splitlines()
        if line.startswith(("graded", "kept"))
    }
    assert len(lines) == 10 and all(lines[student.rstrip(":")] == "kept" for student in before)
    assert set(scores(root)) == set(lines) and set(scores(root).values()) == {FULL}
    again, _ = run_command(root).communicate(timeout=120)
    assert "10 kept" in again


def test_a_killed_worker_costs_nothing(tmp_path: Path) -> None:
    root = a_class(tmp_path, 6)
    killed: list[int] = []
    told: list[Line] = []

    def say(line: Line) -> None:
        told.append(line)
        if len(told) == 2:
            killed.append(max(pool.pids))
            os.kill(killed[0], signal.SIGKILL)

    with LocalPool(2) as pool:
        Run(Course.open(root), "week1", isolation="none", say=say).run(pool)
        assert killed and killed[0] not in pool.pids
    assert len(told) == 6 and {line.state for line in told} == {"graded"}
    assert set(scores(root).values()) == {FULL}


def test_a_job_that_kills_its_workers_is_told_and_the_class_goes_on(tmp_path: Path) -> None:
    """With the walls down an answer can end its judge: it gets no grade, and the others get theirs."""
    root = a_class(tmp_path, 2)
    hand_in(root, "bad", {"row_sums": "import os\nif True:\n    import os\n    os._exit(3)\n" + ROW_SUMS})
    with LocalPool(1) as pool:
        lines = states(grade(root, pool))
    assert lines == {"bad": "failed", "s00": "graded", "s01": "graded"}
    assert set(scores(root)) == {"s00", "s01"}


def test_a_job_without_an_end_is_given_up_and_the_class_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the walls down an answer can hold its judge: here, by refusing the signal of its deadline."""
    root = a_class(tmp_path, 2)
    endless = (
        "    import signal, time\n    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\n    time.sleep(9999)\n"
    )
    hand_in(root, "bad", {"row_sums": f"import time\nif True:\n{endless}{ROW_SUMS}"})
    monkeypatch.setattr(workers, "_SECONDS", 20.0)
    begun = time.monotonic()
    with LocalPool(1) as pool:
        lines = {line.student: line for line in grade(root, pool)}
    assert states(list(lines.values())) == {"bad": "failed", "s00": "graded", "s01": "graded"}
    assert lines["bad"].reason.startswith("no verdict after ") and set(scores(root)) == {"s00", "s01"}
    assert time.monotonic() - begun < 60, "it was tried again"


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_grades_the_same_even_when_a_worker_is_killed(tmp_path: Path) -> None:
    from distributed import LocalCluster

    root, other = a_class(tmp_path / "1", 8), a_class(tmp_path / "2", 8)
    grade(other)
    told: list[Line] = []
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as cluster:
        pids = [worker.process.pid for worker in cluster.workers.values()]
        assert len(pids) == 2

        def say(line: Line) -> None:
            told.append(line)
            if len(told) == 2:
                os.kill(pids[0], signal.SIGKILL)

        with ClusterPool(cluster.scheduler_address) as pool:
            Run(Course.open(root), "week1", isolation="none", say=say).run(pool)
    assert len(told) == 8 and {line.state for line in told} == {"graded"}
    assert outcome(root) == outcome(other)


def test_a_scheduler_that_is_not_there_is_named() -> None:
    with pytest.raises(CourseError, match="no scheduler answers at"):
        ClusterPool("nonsense-address")


def test_only_one_run_at_a_time(tmp_path: Path) -> None:
    root = copy_of(handed_in(), tmp_path)

    class Other(Here):
        def run(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, Verdict]]:
            with pytest.raises(CourseError, match="being graded by another process"):
                grade(root)
            return super().run(jobs)

    assert len(grade(root, Other())) == 5


# ------------------------------------------------------------------------------------------ odd submissions


def test_odd_submissions_are_refused_with_a_sentence_and_the_class_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = copy_of(handed_in(), tmp_path / "1")
    submitted = root / "submitted"
    for name in ("-rf", "a..b", "<script>", "a b", "x\ny", "\u202egnp"):
        shutil.copytree(submitted / "ada", submitted / name)
    (submitted / "dir_link").symlink_to(submitted / "ada")
    for name in ("part_link", "nb_link", "not_json", "huge", "none", "date", "latin", "deep", "file"):
        (submitted / name).mkdir()
        (submitted / name / "week1").mkdir()
    notebook = "week1/00_start_here.ipynb"
    (submitted / "part_link" / "week1").rmdir()
    (submitted / "part_link" / "week1").symlink_to(submitted / "ada" / "week1")
    (submitted / "nb_link" / notebook).symlink_to(submitted / "ada" / notebook)
    (submitted / "not_json" / notebook).write_text('{"cells": [')
    monkeypatch.setattr(batch, "MAX_BYTES", 200_000)
    (submitted / "huge" / notebook).write_text(" " * 200_001)
    shutil.copy(submitted / "ada" / notebook, submitted / "date" / notebook)
    (submitted / "date" / "week1" / "timestamp.txt").write_text("yesterday-ish")
    (submitted / "latin" / notebook).write_bytes(b"\xff{}")
    (submitted / "deep" / notebook).write_text("[" * 100_000)
    (submitted / "file" / "week1").rmdir()
    (submitted / "file" / "week1").write_text("no folder")
    (submitted / "absent").mkdir()  # handed in nothing for this assignment: not a line
    (submitted / ".DS_Store").write_text("")
    lines = grade(root)
    found = {line.student: (line.state, line.reason) for line in lines}
    refused = {student: reason for student, (state, reason) in found.items() if state == "refused"}
    for student, said in {
        "-rf": "student's id", "a..b": "student's id", "<script>": "student's id", "a b": "student's id",
        "x?y": "student's id", "?gnp": "student's id", "dir_link": "symbolic link", "part_link": "symbolic link",
        "nb_link": "symbolic link", "not_json": "not complete JSON", "huge": "more than 0 MB", "none": "was handed in",
        "date": "no date", "latin": "not UTF-8", "deep": "not complete JSON", "file": "not a folder",
    }.items():  # fmt: skip
        assert said in refused.pop(student), student
    assert refused == {}
    assert {s for s, (state, _) in found.items() if state == "graded"} == {"ada", "bob", "eve", "spy", "xss"}
    assert {k: v for k, v in outcome(root).items() if k in finished()} == finished()
    assert not any("\n" in str(line) for line in lines)


def deep(folder: Path) -> None:
    for _ in range(1_200):
        folder /= "d"
        folder.mkdir()


def as_long_as_can_be(folder: Path) -> None:
    while len(str(folder)) < 3_800:
        folder /= "d" * 200
        folder.mkdir()
    (folder / ("f" * (4_095 - len(str(folder)) - 1))).write_text("")


def many(folder: Path) -> None:
    for number in range(5_000):
        (folder / f"{number}").touch()


def one_link(name: bytes) -> Callable[[Path], object]:
    return lambda folder: os.symlink("/etc/passwd", os.path.join(os.fsencode(folder), name))


def date(text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / "timestamp.txt").write_text(text)


HOSTILE: dict[str, tuple[Callable[[Path], object], str]] = {
    "deep": (deep, "has more than 240 bytes; ask for fewer folders and shorter names"),
    "long": (as_long_as_can_be, "has more than 240 bytes; ask for fewer folders and shorter names"),
    "many": (many, "it has more than 5,000 files and folders; ask for the notebooks and what they need"),
    "no text": (one_link(b"\xff.txt"), "?.txt is a symbolic link"),
    "escapes": (one_link(b"\x1b[2J\x1b]0;owned\x07.txt"), "?[2J?]0;owned?.txt is a symbolic link"),
    "arithmetic": (date("00:00109999999999999999999999999999EST2020-2020010160"), "which is no date"),
    "slow to read": (date("1." * 2_000_000), "which is no date"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_wrong_with_one_upload_is_one_line(name: str, tmp_path: Path) -> None:
    root = a_class(tmp_path, 2)
    folder = root / "submitted" / "s00" / "week1"
    change, said = HOSTILE[name]
    change(folder)
    begun = time.process_time()
    try:
        refused, graded = grade(root)
        assert time.process_time() - begun < 20
        assert (refused.student, refused.state, graded.student, graded.state) == ("s00", "refused", "s01", "graded")
        assert said in refused.reason and str(refused).isprintable() and len(str(refused)) < 300
        assert set(scores(root)) == {"s01"} and not (root / "autograded" / "s00").exists()
    finally:
        subprocess.run(["rm", "-rf", folder], check=True)  # what pytest uses would stumble as well


@pytest.mark.parametrize(("former", "later"), [("a", "a/b"), ("a.csv", "a.csv/b.csv"), ("a/b", "a"), ("x.txt/a", "x")])
def test_other_files_of_a_former_version_are_in_nobodys_way(former: str, later: str, tmp_path: Path) -> None:
    root = a_class(tmp_path, 2)
    for number, name in enumerate((former, later)):
        shutil.rmtree(root / "submitted" / "s00")
        path = hand_in(root, "s00", {"row_sums": ROW_SUMS + f"  # version {number}"}) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
        assert set(states(grade(root)).values()) <= {"graded", "kept"}
    there = [path for path in (root / "autograded" / "s00" / "week1").rglob("*") if path.is_file()]
    assert sorted(path.read_text() for path in there if path.suffix != ".ipynb") == [later]
    assert set(states(grade(root)).values()) == {"kept"}


def test_the_courses_own_files_come_before_a_students(tmp_path: Path) -> None:
    root = a_class(tmp_path, 1)
    for top, text in ((root / "source" / "week1", "course"), (root / "submitted" / "s00" / "week1", "student")):
        names = ("same.csv", "file.csv", "folder.csv/x.csv") if text == "course" else (
            "same.csv", "file.csv/x.csv", "folder.csv", "second.ipynb/x.csv")  # fmt: skip
        for name in names:
            (top / name).parent.mkdir(exist_ok=True)
            (top / name).write_text(text)
    assert states(grade(root)) == {"s00": "graded"}
    folder = root / "autograded" / "s00" / "week1"
    there = {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*.csv") if path.is_file()}
    assert there == dict.fromkeys(("same.csv", "file.csv", "folder.csv/x.csv"), "course")


@pytest.mark.parametrize("step", ["copy_extras", "swap_in", "_timestamp", "files_of", "write_atomically"])
def test_a_failure_over_one_submission_is_its_line_and_is_made_up_for(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = a_class(tmp_path, 2)
    (root / "submitted" / "s00" / "week1" / "timestamp.txt").write_text("2026-01-01")
    real, calls = getattr(batch, step), 0

    def failing(*args: Any, **options: Any) -> Any:
        nonlocal calls
        journal = step == "write_atomically" and "journal" in str(args[0])
        calls += not journal
        if calls == 1 and not journal:
            raise OSError(36, "File name too long", "x" * 5_000)
        return real(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(batch, step, failing)
        lines = {line.student: line for line in grade(root)}
    assert states(list(lines.values())) == {"s00": "failed", "s01": "graded"}
    assert lines["s00"].reason.startswith("it could not be graded: OSError: [Errno 36] File name too long")
    assert len(str(lines["s00"])) < 400
    assert set(scores(root)) == ({"s00", "s01"} if step == "swap_in" else {"s01"})
    assert set(states(grade(root)).values()) <= {"graded", "kept"} and set(scores(root)) == {"s00", "s01"}
    assert set(states(grade(root)).values()) == {"kept"}


def test_a_gradebook_that_is_locked_ends_the_run(tmp_path: Path) -> None:
    """That is no student's doing: the next run takes it up."""
    root = a_class(tmp_path, 2)

    class Locking(Here):
        def run(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, Verdict]]:
            for judged in super().run(jobs):
                other.execute("BEGIN EXCLUSIVE")
                yield judged

    with contextlib.closing(sqlite3.connect(root / "gradebook.db")) as other:
        with pytest.raises(CourseError, match="cannot be written: database is locked"):
            grade(root, Locking())
        other.rollback()
    assert not (root / "autograded" / "s00" / "week1").exists() and scores(root) == {}
    assert states(grade(root)) == {"s00": "kept", "s01": "graded"} and set(scores(root)) == {"s00", "s01"}


def test_what_changed_is_told_in_printable_words() -> None:
    def line(passed: bool) -> dict[str, Record | None]:
        check = CheckResult("a", "title", "values", True, passed, message="" if passed else "\x1b]0;owned\x07")
        report = Report("00", (ExerciseResult("row_sums", 1.0, "passed" if passed else "failed", (check,)),))
        return {"n": Record("a", "b", 1, "none", report)}

    (said,) = changes(Line("graded", "ada", records=line(False), former=line(True)))
    assert said.isprintable() and "owned" in said


def test_a_name_that_the_terminal_cannot_show_ends_no_run(tmp_path: Path) -> None:
    root = a_class(tmp_path, 1)
    shutil.move(root / "submitted" / "s00", root / "submitted" / "Zoë")
    process = run_command(root, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    done, _ = process.communicate(timeout=120)
    assert "graded  Zo" in done and process.returncode == 0


def test_a_missing_notebook_of_several_earns_nothing(tmp_path: Path) -> None:
    root = copy_of(handed_in(), tmp_path)
    shutil.copy(root / "source" / "week1" / "00_start_here.ipynb", root / "source" / "week1" / "second.ipynb")
    nbgrader(root, "generate_assignment", "week1", "--force")
    grade(root)
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}", root.name) as gradebook:
        missing = gradebook.find_submission_notebook("second", "week1", "ada")
        assert [(grade.auto_score, grade.needs_manual_grade) for grade in missing.grades] == [(0, False)] * 2
        assert gradebook.find_submission_notebook("00_start_here", "week1", "ada").score == FULL


def test_what_is_missing_in_the_course_is_said(tmp_path: Path, capsys: Any) -> None:
    root = copy_of(handed_in(), tmp_path)
    assert cli.main(["grade", str(tmp_path)]) == 2
    assert cli.main(["grade", str(root), "week9"]) == 2
    assert "there is no released assignment 'week9' (there are: week1)" in capsys.readouterr().err
    (root / "release" / "week9").mkdir()
    assert cli.main(["grade", str(root), "week9", "--isolation", "none"]) == 2
    assert "nbgrader generate_assignment week9" in capsys.readouterr().err
    (root / "release" / "week1" / "00_start_here.ipynb").unlink()
    assert cli.main(["grade", str(root), "week1", "--isolation", "none"]) == 2
    assert "is missing; make it again" in capsys.readouterr().err


def test_a_broken_judge_fails_and_grades_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from grader import judge

    root = copy_of(handed_in(), tmp_path)

    def broken(*_: Any, **__: Any) -> Any:
        raise CheckFileError("test_lesson_00.py: no module named nothing")

    monkeypatch.setattr(judge, "judge_with_stand_ins", broken)
    lines = grade(root)
    assert {line.state for line in lines} == {"failed"} and "no module named nothing" in lines[0].reason
    assert scores(root) == {} and not (root / "autograded").exists()


def test_a_worker_with_other_checks_grades_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = copy_of(handed_in(), tmp_path)
    monkeypatch.setattr(batch, "checks_digest", lambda _: "others")
    assert {line.state for line in grade(root)} == {"failed"} and scores(root) == {}


# ------------------------------------------------------------------------------------------ judged again


def test_regrading_shows_which_grades_changed_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A check that was wrong is corrected: here, one that rejected everything now rejects nothing."""
    from grader import judge
    from grader.classroom import commands, grading

    root = copy_of(handed_in(), tmp_path / "1")
    text = """
import pytest
from grader.checks import exercise
@exercise("row_sums")
class TestRowSums:
    @pytest.mark.shape
    def test_shape(self, student, draw):
        "The last axis is gone"
        assert student(draw(2, 3)).shape == (2,)
    @pytest.mark.values
    def test_values(self, student, draw):
        "Each row is summed"
        x = draw(2, 3)
        assert (student(x) - x.sum(-1)).abs().max() < 1e-9, "too strict"
"""
    wrong = text.replace("x.sum(-1))", "x.sum(-1) - 1)")
    monkeypatch.setattr(commands, "open_pool", lambda *_: _Entered())
    former: list[int] = []
    for digest, content in (("old", wrong), ("new", text)):
        checks = tmp_path / f"test_{digest}.py"
        checks.write_text(content)
        monkeypatch.setattr(judge, "check_files", lambda *_a, c=checks, **_k: [c])
        for module in (batch, grading):
            monkeypatch.setattr(module, "checks_digest", lambda _, d=digest: d)
        command = "grade" if digest == "old" else "regrade"
        assert cli.main([command, str(root), "week1", "--isolation", "none"]) == 0
        seeds = [data["records"]["00_start_here"]["seed"] for data in map(json.loads, _records(root))]
        assert not former or seeds == former
        former[:] = seeds
    said = capsys.readouterr().out
    assert 'ada: row_sums 0.5 -> 1: "Each row is summed" now passes' in said
    assert said.count("->") == 1 and "bob: row_sums" not in said and scores(root)["ada"] == FULL
    capsys.readouterr()
    assert cli.main(["regrade", str(root), "week1", "--isolation", "none"]) == 0
    assert "no grade changed" in capsys.readouterr().out


class _Entered(Here):
    def __enter__(self) -> _Entered:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def _records(root: Path) -> list[str]:
    return [path.read_text() for path in sorted((root / ".grader" / "judged" / "week1").glob("*.json"))]


def test_changes_name_what_was_handed_in_anew(tmp_path: Path) -> None:
    root = copy_of(handed_in(), tmp_path)
    grade(root)
    notebook = root / "submitted" / "bob" / "week1" / "00_start_here.ipynb"
    notebook.write_text(notebook.read_text().replace(HALF.split("\n")[1].strip(), "return x.sum(-1)"))
    (line,) = [line for line in grade(root) if line.student == "bob"]
    (said,) = changes(line)
    assert said.endswith("another version was handed in since") and f"-> {FULL:g}" in said


def test_a_whole_class_leaves_no_notebooks_in_memory(tmp_path: Path) -> None:
    """What the coordinator keeps of a submission is one short line."""
    root = a_class(tmp_path, 3)
    run = Run(Course.open(root), "week1", isolation="none")
    run.run(Here())
    assert all(not line.records and not line.former for line in run.lines)
    assert not run._former and not run._found and not run._timestamps


def test_jobs_are_not_read_ahead() -> None:
    pulled = 0

    def jobs() -> Iterator[Job]:
        nonlocal pulled
        for number in range(6):
            pulled += 1
            yield Job(str(number), "", "", "none", {"n": {"submitted": "", "released": "{}", "checks": ""}})

    with LocalPool(1) as pool:
        for count, (_, verdict) in enumerate(pool.run(jobs()), 1):
            assert verdict.state == "refused" and pulled <= count + 1
    assert pulled == 6


def test_own_cells_run_when_grading(tmp_path: Path) -> None:
    """A helper in a cell of the student's own is part of the answer."""
    root = copy_of(handed_in(), tmp_path)

    def helper(notebook: Any) -> None:
        notebook["cells"].insert(2, own("def total(x):\n    return x.sum(-1)", "code"))

    hand_in(root, "fay", {"row_sums": "def row_sums(x):\n    return total(x)"}, helper)
    grade(root)
    assert scores(root)["fay"] == FULL
