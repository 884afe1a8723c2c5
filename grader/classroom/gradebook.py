"""nbgrader's gradebook, written by one process with one connection.

The same facts as nbgrader's `Autograde` writes (its steps `SaveAutoGrades` and `AssignLatePenalties`), which opens the
database some eight times for each notebook.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import nbformat
from nbgrader import utils
from nbgrader.api import Gradebook, MissingEntry
from sqlalchemy.exc import OperationalError

from grader.classroom.course import Course, CourseError
from grader.report import plain
from grader.splice import Json

_FRESH = 50
"""After so many submissions what was read is forgotten: memory stays flat."""


@dataclass(frozen=True)
class Standing:
    """What the gradebook holds of a submission: points after penalty, of how many, and what a person should know."""

    score: float
    most: float
    penalty: float = 0.0
    days_late: float = 0.0
    to_read: int = 0
    """Cells that a person has to grade, or to look at again."""
    absent: tuple[str, ...] = ()
    """Notebooks of the assignment that were not handed in."""

    def __str__(self) -> str:
        parts = [f"gradebook {plain(round(self.score, 2))} of {plain(self.most)}"]
        if self.to_read:
            parts.append(f"{self.to_read} to grade by hand")
        if self.days_late:
            parts.append(f"{self.days_late:.1f} days late, penalty {plain(round(self.penalty, 2))}")
        if self.absent:
            parts.append(f"without {', '.join(self.absent)}")
        return "; ".join(parts)


class Book:
    """The gradebook of one assignment; a context manager.

    Raises (start):
        CourseError: the assignment was never generated, or the database cannot be used.
    """

    def __init__(self, course: Course, assignment: str) -> None:
        directory = course.directory
        self.assignment = assignment
        self._course = course
        self._saved = 0
        try:
            self._book = Gradebook(directory.db_url, directory.course_id)
            found = self._book.find_assignment(assignment)
            self.notebooks: tuple[str, ...] = tuple(n.name for n in found.notebooks)
            self._most = float(found.max_score)
        except MissingEntry:
            raise CourseError(
                f"there is no assignment {assignment!r} in the gradebook; first, in {course.root}: "
                f"nbgrader generate_assignment {assignment}"
            ) from None
        except OperationalError as error:
            raise CourseError(f"the gradebook {directory.db_url} cannot be used: {error.orig}") from None

    def __enter__(self) -> Book:
        return self

    def __exit__(self, *_: object) -> None:
        self._book.close()

    def students(self) -> set[str]:
        """Who has a submission of this assignment in the gradebook."""
        return {submission.student_id for submission in self._book.assignment_submissions(self.assignment)}

    def save(self, student: str, timestamp: str, notebooks: Mapping[str, Json]) -> Standing:
        """Write what the graded notebooks say, as a whole or not at all.

        Raises:
            CourseError: the database is locked, or does not know a cell of the notebooks.
        """
        return self._writing(lambda: self._save(student, timestamp, notebooks))

    def renew(self, student: str, handed_in: Collection[str]) -> Standing:
        """Bring the penalty of a submission that is already there up to the due date and rules of today."""
        return self._writing(
            lambda: self._finish(self._book.find_submission(self.assignment, student), student, handed_in)
        )

    def _writing(self, write: Callable[[], Standing]) -> Standing:
        try:
            standing = write()
        except OperationalError as error:
            self._book.db.rollback()
            raise CourseError(
                f"the gradebook cannot be written: {error.orig}; close what else writes to it and run the command again"
            ) from None
        except BaseException:
            self._book.db.rollback()
            raise
        self._saved += 1
        if self._saved % _FRESH == 0:
            self._book.db.expunge_all()
        return standing

    def _save(self, student: str, timestamp: str, notebooks: Mapping[str, Json]) -> Standing:
        book = self._book
        book.update_or_create_student(student)
        when = {"timestamp": timestamp} if timestamp else {}
        with book.db.no_autoflush:  # SQLAlchemy warns of objects that are only half linked
            submission = book.update_or_create_submission(self.assignment, student, **when)
        for entry in submission.notebooks:
            grades = {grade.name: grade for grade in entry.grades}
            comments = {comment.name: comment for comment in entry.comments}
            if entry.name not in notebooks:
                for grade in grades.values():
                    grade.auto_score, grade.needs_manual_grade = 0, False
                continue
            for cell in nbformat.from_dict(notebooks[entry.name]).cells:
                name = cell.metadata.get("nbgrader", {}).get("grade_id", "")
                graded, written = utils.is_grade(cell), utils.is_solution(cell) or utils.is_task(cell)
                if (graded and name not in grades) or (written and name not in comments):
                    raise CourseError(
                        f"the gradebook does not know cell {name!r} of {entry.name} for {student}: the assignment "
                        f"changed after it was handed in; run nbgrader generate_assignment {self.assignment} --force"
                    )
                if graded:
                    grade = grades[name]
                    grade.auto_score, _ = utils.determine_grade(cell)
                    grade.needs_manual_grade = grade.manual_score is not None or grade.auto_score is None
                if written:
                    untouched = cell.metadata.nbgrader.get("checksum") == utils.compute_checksum(cell)
                    comments[name].auto_comment = "No response." if untouched and not utils.is_task(cell) else None
        return self._finish(submission, student, notebooks)

    def _finish(self, submission: Any, student: str, handed_in: Collection[str]) -> Standing:
        """Penalties, then the end of the transaction."""
        late = submission.total_seconds_late
        if late > 0 or any(entry.late_submission_penalty for entry in submission.notebooks):
            self._penalties(student, submission)
        self._book.db.flush()
        score = penalty = 0.0
        to_read = 0
        for entry in submission.notebooks:
            points = sum(
                (g.auto_score or 0.0 if g.manual_score is None else g.manual_score) + (g.extra_credit or 0.0)
                for g in entry.grades
            )
            penalty += entry.late_submission_penalty or 0.0
            score += points - (entry.late_submission_penalty or 0.0)
            to_read += sum(bool(g.needs_manual_grade) for g in entry.grades)
        self._book.db.commit()
        absent = tuple(name for name in self.notebooks if name not in handed_in)
        return Standing(score, self._most, penalty, max(0.0, late) / 86_400, to_read, absent)

    def _penalties(self, student: str, submission: Any) -> None:
        from nbgrader.preprocessors import AssignLatePenalties

        step = AssignLatePenalties(config=self._course.config)
        step.init_plugin()
        self._book.db.flush()
        late = max(0.0, submission.total_seconds_late)
        for entry in submission.notebooks:
            self._book.db.refresh(entry, ["score"])
            penalty = step.plugin_inst.late_submission_penalty(student, entry.score, late) if late else None
            entry.late_submission_penalty = None if penalty is None else step._check_late_penalty(entry, penalty)
