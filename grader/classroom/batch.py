"""A whole class at once: found, judged in parallel, written into nbgrader's gradebook, whatever happens meanwhile.

For each submission, in this order: its verdicts are written to `.grader/judged/` (atomically), its other files to a
folder of their own, its grades to the gradebook (one transaction), that folder's files to `autograded/` in the place
of the former ones, its graded notebooks there too (atomically), and a line to a journal says that all of it is done.
So a run that was ended at any moment is taken up where it stood: what was judged is not judged again, what was not yet
written is written. A verdict depends on the submission, the checks and the course's secret alone, hence not on the
order, the number of workers, or where they are.

Whatever goes wrong over one submission becomes its line, and the class goes on; a `CourseError` ends the run.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from grader.classroom.course import Course, CourseError
from grader.classroom.gradebook import Book, Standing
from grader.classroom.results import Record, checks_digest, course_secret, write_atomically
from grader.classroom.uploads import RefusedSubmission, copy_extras, files_of, open_regular, printable, swap_in
from grader.classroom.workers import ClusterPool, Job, LocalPool, Pool, Verdict, prepared, with_verdicts
from grader.lesson import MAX_BYTES, lesson_of, load_lesson
from grader.report import plain

_STUDENT = re.compile(r"\w[\w.@+-]{0,99}")
_DATE = 100
"""Characters that a date may have."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class Line:
    """What became of one submission: `graded`, `kept` (nothing had changed), `refused` or `failed`; to be printed."""

    state: str
    student: str
    reason: str = ""
    records: dict[str, Record | None] = field(default_factory=dict)
    former: dict[str, Record | None] = field(default_factory=dict)
    standing: Standing | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", printable(self.reason))

    def __str__(self) -> str:
        if self.reason:
            return f"{self.state:<8}{self.student}: {self.reason}"
        reports = [record.report for record in self.records.values() if record is not None]
        parts = ", ".join(f"{report.lesson} {plain(report.score)}" for report in reports)
        total, most = sum(r.score for r in reports), sum(r.max_score for r in reports)
        tail = f"; {self.standing}" if self.standing is not None else ""
        return f"{self.state:<8}{self.student}: {plain(round(total, 2))} of {plain(most)} ({parts}){tail}"


@dataclass(frozen=True)
class Found:
    """A submission on disk, not yet looked into."""

    student: str
    folder: Path
    notebooks: tuple[str, ...]


def _or_line(student: str, work: Callable[..., _T], *arguments: Any) -> _T | Line:
    """What `work(*arguments)` on one submission gives; where it fails, the line that says so.

    Raises:
        CourseError: it is not this submission's doing.
    """
    try:
        return work(*arguments)
    except CourseError:
        raise
    except RefusedSubmission as error:
        return Line("refused", student, str(error))
    except Exception as error:
        what = str(error).strip().split("\n")[0][:300]
        return Line("failed", student, f"it could not be graded: {type(error).__name__}: {what}")


# ------------------------------------------------------------------------------------------- what was handed in


def find_submissions(course: Course, assignment: str, notebooks: tuple[str, ...]) -> tuple[list[Found], list[Line]]:
    """All submissions of an assignment in the order of the students' ids, and those that are refused."""
    top = course.folder("submitted", ".", ".")
    found: list[Found] = []
    refused: list[Line] = []
    for entry in sorted(os.scandir(top), key=lambda e: e.name) if top.is_dir() else ():
        outcome = _or_line(_printable(entry.name), _find, entry, assignment, notebooks)
        if isinstance(outcome, Found):
            found.append(outcome)
        elif outcome is not None:
            refused.append(outcome)
    return found, refused


def _find(entry: os.DirEntry[str], assignment: str, notebooks: tuple[str, ...]) -> Found | None:
    """The submission in a student's folder; None where nothing was handed in for this assignment.

    Raises:
        RefusedSubmission: it cannot be graded.
    """
    folder = Path(entry.path, assignment)
    if entry.name.startswith(".") and not folder.exists():
        return None  # the droppings of editors and file managers
    if entry.is_symlink():
        raise RefusedSubmission("its folder is a symbolic link; put the files themselves there")
    if not entry.is_dir() or not os.path.lexists(folder):
        return None
    if not _STUDENT.fullmatch(entry.name) or ".." in entry.name:
        raise RefusedSubmission(
            "a student's id consists of letters, digits and . _ @ + -; rename the folder in submitted/"
        )
    files = files_of(folder)
    if not folder.is_dir():
        raise RefusedSubmission(f"{assignment} is not a folder")
    there = tuple(name for name in notebooks if Path(f"{name}.ipynb") in files)
    if not there:
        raise RefusedSubmission(_what_is_there(files, notebooks))
    return Found(entry.name, folder, there)


def _what_is_there(files: list[Path], notebooks: tuple[str, ...]) -> str:
    """Why nothing can be graded in a folder with these files and none of these notebooks."""
    wanted = f"none of {', '.join(n + '.ipynb' for n in notebooks)} was handed in"
    others = [path.as_posix() for path in files[:3]]
    if not others:
        return f"{wanted}: the folder is empty"
    mend = (
        "unpack it" if others[0].endswith((".zip", ".tar", ".gz", ".7z")) else "is it one of them under another name?"
    )
    return f"{wanted}; there is {_printable(', '.join(others))}: {mend}"


def _printable(name: str) -> str:
    return "".join(c if (c.isprintable() and c.isascii()) or c.isalnum() else "?" for c in name)[:100]


def _read(path: Path) -> str:
    """A submitted file's text; no link is followed.

    Raises:
        RefusedSubmission: not a regular file, too large, not UTF-8.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > MAX_BYTES:
            raise RefusedSubmission(
                f"{path.name} has {size / 1e6:.0f} MB, more than {MAX_BYTES / 1e6:.0f} MB; ask for it without outputs"
            )
        content = file.read()
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise RefusedSubmission(f"{path.name} is not UTF-8 text (byte {error.start}); ask for a new upload") from None


# ------------------------------------------------------------------------------------------- the run


class Run:
    """One run over an assignment: judges what is new or changed and writes it down.

    Args:
        again: judge everything again, also what has not changed.
        say: called with each submission's line.
        begin: called with the number of submissions.
    """

    def __init__(
        self,
        course: Course,
        assignment: str,
        *,
        isolation: str = "",
        again: bool = False,
        say: Callable[[Line], None] = lambda _: None,
        begin: Callable[[int], None] = lambda _: None,
    ) -> None:
        self.course, self.assignment = course, assignment
        self.isolation = isolation or course.isolation
        self.lines: list[Line] = []
        self._again, self._say, self._begin = again, say, begin
        self._secret = course_secret(course.root)
        self._folder = course.judged / assignment
        self._former: dict[str, dict[str, Record | None]] = {}
        self._found: dict[str, Found] = {}
        self._timestamps: dict[str, str] = {}

    def run(self, pool: Pool) -> list[Line]:
        """Grade the assignment.

        Raises:
            CourseError: the course cannot be graded at all, or another run is at it.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        with open(self._folder / "lock", "w", encoding="ascii") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise CourseError(f"{self.assignment} is being graded by another process; wait for it") from None
            with Book(self.course, self.assignment) as book:
                self._run(book, pool)
        return self.lines

    def _run(self, book: Book, pool: Pool) -> None:
        found, refused = find_submissions(self.course, self.assignment, book.notebooks)
        self._begin(len(found) + len(refused))
        for line in refused:
            self._tell(line)
        self._released = {name: self._released_text(name) for name in book.notebooks}
        self._checks = {name: _checks_of(text) for name, text in self._released.items()}
        self._in_book, self._journal = book.students(), self._read_journal()
        for job, verdict in pool.run(self._jobs(book, found)):
            self._settle(book, job, verdict)

    def _released_text(self, name: str) -> str:
        path = self.course.folder("release", ".", self.assignment) / f"{name}.ipynb"
        try:
            return path.read_text(encoding="utf-8")
        except OSError:
            raise CourseError(
                f"{path} is missing; make it again, in {self.course.root}: "
                f"nbgrader generate_assignment {self.assignment} --force"
            ) from None

    def _jobs(self, book: Book, found: list[Found]) -> Iterator[Job]:
        """The submissions that need judging; the others are settled here."""
        for submission in found:
            outcome = _or_line(submission.student, self._job, book, submission)
            if isinstance(outcome, Job):
                yield outcome
            else:
                self._tell(outcome)

    def _job(self, book: Book, submission: Found) -> Job | Line:
        """What is to be judged of a submission, or its line when that was done before.

        Raises:
            RefusedSubmission: it cannot be graded.
        """
        student = submission.student
        texts = {name: _read(submission.folder / f"{name}.ipynb") for name in submission.notebooks}
        stamp = submission.folder / "timestamp.txt"
        self._timestamps[student] = _timestamp(_read(stamp)) if stamp.exists() else ""
        notebooks = {
            name: {"submitted": text, "released": self._released[name], "checks": self._checks[name]}
            for name, text in texts.items()
        }
        job = Job(student, self._key(student, notebooks), self._secret, self.isolation, notebooks)
        self._found[student] = submission
        key, records = load_records(self.course, self.assignment, student)
        self._former[student] = records
        if key != job.key or self._again:
            return job
        if self._is_written(job):
            standing = book.renew(student, job.notebooks)
        else:
            finished = {
                name: with_verdicts(
                    prepared(n["submitted"], n["released"]), r.as_data() if (r := records[name]) else None
                )
                for name, n in notebooks.items()
            }
            standing = self._write(book, job, finished)
        return Line("kept", student, records=records, standing=standing)

    def _settle(self, book: Book, job: Job, verdict: Verdict) -> None:
        self._tell(_or_line(job.student, self._settled, book, job, verdict))

    def _settled(self, book: Book, job: Job, verdict: Verdict) -> Line:
        if verdict.state != "graded":
            return Line(verdict.state, job.student, verdict.reason)
        content = {"key": job.key, "student": job.student, "records": verdict.records}
        write_atomically(self._folder / f"{job.student}.json", json.dumps(content, ensure_ascii=False).encode())
        standing = self._write(book, job, verdict.notebooks or {})
        records = {n: None if r is None else Record.from_data(r) for n, r in (verdict.records or {}).items()}
        return Line("graded", job.student, records=records, former=self._former.get(job.student, {}), standing=standing)

    def _tell(self, line: Line) -> None:
        self.lines.append(replace(line, records={}, former={}))  # a thousand reports would fill the memory
        self._say(line)
        self._former.pop(line.student, None)
        self._found.pop(line.student, None)
        self._timestamps.pop(line.student, None)

    # ---------------------------------------------------------------------------------- what is on disk

    def _key(self, student: str, notebooks: dict[str, dict[str, str]]) -> str:
        sums = {
            name: [hashlib.sha256(texts[k].encode()).hexdigest() for k in ("submitted", "released", "checks")]
            for name, texts in sorted(notebooks.items())
        }
        secret = hashlib.sha256(self._secret.encode()).hexdigest()
        content = [self.assignment, student, self.isolation, secret, self._timestamps[student], sums]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def _is_written(self, job: Job) -> bool:
        """Gradebook and graded notebooks hold this very verdict."""
        folder = self.course.folder("autograded", job.student, self.assignment)
        return (
            self._journal.get(job.student) == job.key
            and job.student in self._in_book
            and all((folder / f"{name}.ipynb").is_file() for name in job.notebooks)
        )

    def _write(self, book: Book, job: Job, notebooks: dict[str, str]) -> Standing:
        data = {name: json.loads(text) for name, text in notebooks.items()}
        for notebook in data.values():
            for cell in notebook["cells"]:
                cell["source"] = "".join(cell["source"])
        folder = self.course.folder("autograded", job.student, self.assignment)
        if folder.is_symlink() or folder.parent.is_symlink():
            raise CourseError(f"{folder} is a symbolic link; remove it")
        with _fresh(folder.with_name(f".{folder.name}.new")) as extras:
            self._copy_extras(self._found[job.student], extras)
            standing = book.save(job.student, self._timestamps[job.student], data)
            swap_in(extras, folder, keep={f"{name}.ipynb" for name in notebooks})
        for name, text in notebooks.items():
            write_atomically(folder / f"{name}.ipynb", text.encode(), 0o444)
        with open(self._folder / "journal.jsonl", "a", encoding="utf-8") as journal:
            journal.write(json.dumps({"student": job.student, "key": job.key}) + "\n")
        self._drop_feedback(job.student)
        return standing

    def _copy_extras(self, submission: Found, folder: Path) -> None:
        copy_extras(submission.folder, self.course.folder("source", ".", self.assignment), folder)

    def _drop_feedback(self, student: str) -> None:
        """Feedback pages of a former verdict go: nbgrader would leave them as they are."""
        folder = self.course.folder("feedback", student, self.assignment)
        if folder.is_dir() and not folder.is_symlink():
            shutil.rmtree(folder)

    def _read_journal(self) -> dict[str, str]:
        """Student to key; a line that was cut off is no line."""
        found: dict[str, str] = {}
        path = self._folder / "journal.jsonl"
        for line in path.read_text(encoding="utf-8").split("\n") if path.exists() else ():
            with contextlib.suppress(ValueError, KeyError, TypeError):
                entry = json.loads(line)
                found[entry["student"]] = entry["key"]
        content = "".join(json.dumps({"student": s, "key": k}) + "\n" for s, k in sorted(found.items()))
        write_atomically(path, content.encode())
        return found


@contextlib.contextmanager
def _fresh(folder: Path) -> Iterator[Path]:
    """A folder that is not there yet, whatever a run that was ended left of it, and is gone afterwards."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def load_records(course: Course, assignment: str, student: str) -> tuple[str, dict[str, Record | None]]:
    """The verdicts on file for a submission, with the key of what was judged; nothing where there is no usable file."""
    try:
        data = json.loads((course.judged / assignment / f"{student}.json").read_text(encoding="utf-8"))
        records = {n: None if r is None else Record.from_data(r) for n, r in data["records"].items()}
        return str(data["key"]), records
    except (OSError, ValueError, KeyError, TypeError):
        return "", {}


def _checks_of(released: str) -> str:
    """The digest of the checks of a released notebook's lesson; "" for a notebook that is no lesson."""
    name = lesson_of(json.loads(released))
    try:
        return checks_digest(load_lesson(name)) if name else ""
    except KeyError:
        return ""


def _timestamp(text: str) -> str:
    from nbgrader.utils import parse_utc

    text = text.strip()
    try:
        if len(text) > _DATE:
            raise ValueError
        return str(parse_utc(text)) if text else ""
    except Exception:  # dateutil lets out whatever its arithmetic raises
        raise RefusedSubmission(f"timestamp.txt holds {text[:40]!r}, which is no date") from None


# ------------------------------------------------------------------------------------------- the commands


def assignments(course: Course, wanted: str = "") -> list[str]:
    """The assignment that is wanted, or all that have a release.

    Raises:
        CourseError: there is none.
    """
    top = course.folder("release", ".", ".")
    there = sorted(path.name for path in top.iterdir() if path.is_dir()) if top.is_dir() else []
    if wanted and wanted not in there:
        made = course.folder("source", ".", wanted).is_dir()
        raise CourseError(
            f"there is no released assignment {wanted!r} (there are: {', '.join(there) or 'none'}); "
            + (f"in {course.root}: nbgrader generate_assignment {wanted}" if made else "give one of these")
        )
    if not there:
        raise CourseError(f"nothing is released yet; in {course.root}: nbgrader generate_assignment NAME")
    return [wanted] if wanted else there


def open_pool(workers: int, scheduler: str, isolation: str) -> LocalPool | ClusterPool:
    """Where the judging is done.

    Raises:
        CourseError: no scheduler. GradingError: no sandbox on this machine.
    """
    if scheduler:
        return ClusterPool(scheduler)
    if isolation == "sandbox":
        from grader.classroom.grading import require_sandbox

        require_sandbox()
    return LocalPool(workers)


def changes(line: Line) -> list[str]:
    """In words, what is different from the former verdicts on the same answers, and why."""
    out: list[str] = []
    for name, record in line.records.items():
        former = line.former.get(name)
        if record is None or former is None:
            continue
        before = {exercise.name: exercise for exercise in former.report.exercises}
        for exercise in record.report.exercises:
            old = before.get(exercise.name)
            if old is None or (old.score == exercise.score and old.points == exercise.points):
                continue
            was, now = {c.name: c for c in old.checks}, {c.name: c for c in exercise.checks}
            why = [f'"{c.title}" now passes' for n, c in now.items() if c.passed and n in was and not was[n].passed]
            why += [
                f'"{c.title}" now fails: {c.message.splitlines()[0] if c.message else ""}'
                for n, c in now.items()
                if not c.passed and n in was and was[n].passed
            ]
            why += [
                f'"{c.title}" is new and {"passes" if c.passed else "fails"}' for n, c in now.items() if n not in was
            ]
            why += [f'"{c.title}" is gone' for n, c in was.items() if n not in now]
            why += ["points differ"] if not why else []
            if former.answers != record.answers:
                why = ["another version was handed in since"]
            scores = f"{plain(old.score)} -> {plain(exercise.score)}"
            out.append(printable(f"{line.student}: {exercise.name} {scores}: {'; '.join(why)}"))
    return out
