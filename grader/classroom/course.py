"""An instructor's course: its folder, its configuration, its assignments built from the lessons."""

from __future__ import annotations

import os
import re
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from traitlets.config import Config

from grader.classroom.results import course_secret, write_atomically
from grader.lesson import ROOT, Lesson, NotebookError, load_course, load_lesson

CONFIG = "nbgrader_config.py"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,60}")


class CourseError(NotebookError):
    """A course, or what was asked of it, cannot be used: one sentence that says why and what to do."""


# ------------------------------------------------------------------------------------------- configuration


def configure(config: Config, root: Path, *, isolation: str = "sandbox") -> None:
    """Set what nbgrader must be told so that it grades through the walls; called by the course's nbgrader_config.py."""
    from grader.build import release_config
    from grader.classroom.grading import AUTOGRADE
    from grader.classroom.splice import SANITIZE

    put_interpreter_first_on_path()
    warnings.filterwarnings("ignore", message="Object of type <SubmittedAssignment>")  # nbgrader's own, and harmless
    config.merge(release_config())
    config.CourseDirectory.root = str(root)
    config.CourseDirectory.course_id = course_name(root)
    config.Exchange.root = str(root / "exchange")
    config.IncludeHeaderFooter.header = ""
    config.KernelManager.transport_encryption = "auto"
    config.Autograde.sanitize_preprocessors = list(SANITIZE)
    config.Autograde.autograde_preprocessors = list(AUTOGRADE)
    config.Judge.isolation = isolation
    config.HTMLExporter.filters = {"markdown2html": "grader.classroom.sanitize.markdown2html"}


def put_interpreter_first_on_path() -> None:
    """nbgrader runs a bare `alembic`: let it be the one beside this interpreter."""
    folder = str(Path(sys.executable).parent)
    paths = os.environ.get("PATH", "").split(os.pathsep)
    if paths[0] != folder:
        os.environ["PATH"] = os.pathsep.join([folder, *filter(None, paths)])


def course_name(root: Path) -> str:
    """The course's id for nbgrader, made from its folder's name."""
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", root.name).strip("-.") or "course"


def config_text(isolation: str) -> str:
    """The course's nbgrader_config.py."""
    return f'''"""nbgrader's settings for this course; every nbgrader command that is started in this folder reads them.

What is written below the last line wins over the defaults (see `nbgrader --help-all` for what there is).
"""

import sys
from pathlib import Path

GRADER = {str(ROOT)!r}  # the folder that holds the lessons and the package `grader`

if not (Path(GRADER) / "grader").is_dir():
    sys.exit(f"{{__file__}}: {{GRADER}} is gone; write there the folder that holds the package grader")
if GRADER not in sys.path:
    sys.path.insert(0, GRADER)

from grader.classroom.course import configure  # noqa: E402

c = get_config()  # noqa: F821
# isolation: "sandbox" runs every answer behind walls; "none" runs it with your own rights, on your own files
configure(c, Path(__file__).resolve().parent, isolation={isolation!r})
'''


# ------------------------------------------------------------------------------------------- an existing course


@dataclass(frozen=True)
class Course:
    """A course on disk."""

    root: Path
    config: Config

    @classmethod
    def open(cls, folder: Path) -> Course:
        """Read the configuration of the course in `folder`.

        Raises:
            CourseError: when it is none.
        """
        from traitlets.config.loader import PyFileConfigLoader

        root = folder.resolve()
        if not (root / CONFIG).is_file():
            raise CourseError(f"{folder} has no {CONFIG}; make a course with `classroom init {folder}`")
        try:
            config = PyFileConfigLoader(CONFIG, path=str(root)).load_config()
        except SystemExit as error:
            raise CourseError(str(error)) from None
        except Exception as error:
            raise CourseError(f"{root / CONFIG} does not run: {type(error).__name__}: {error}") from None
        course = cls(root, config)
        if course.directory.directory_structure != os.path.join("{nbgrader_step}", "{student_id}", "{assignment_id}"):
            raise CourseError(f"{root / CONFIG} changes CourseDirectory.directory_structure; use nbgrader autograde")
        return course

    @property
    def directory(self) -> Any:
        """nbgrader's own view of the course."""
        from nbgrader.coursedir import CourseDirectory

        return CourseDirectory(config=self.config)

    @property
    def isolation(self) -> str:
        return str(self.config.Judge.get("isolation", "sandbox"))

    def folder(self, step: str, student: str, assignment: str) -> Path:
        """`submitted`, `release`, `source` or `autograded` of one student (`.` for the course's own) and assignment."""
        directory = self.directory
        return self.root / directory.format_path(getattr(directory, f"{step}_directory"), student, assignment)

    @property
    def judged(self) -> Path:
        """Where the verdicts are kept."""
        return self.root / ".grader" / "judged"


# ------------------------------------------------------------------------------------------- a new course


def parse_assignments(words: Sequence[str]) -> dict[str, list[Lesson]]:
    """`["week1=01,02", "week2=03"]` as assignments; one a lesson when nothing is said.

    Raises:
        CourseError: for an unknown lesson or a name that cannot be a folder's.
    """
    if not words:
        return {f"lesson-{lesson.number}": [lesson] for lesson in load_course()}
    found: dict[str, list[Lesson]] = {}
    for word in words:
        name, _, numbers = word.partition("=")
        if not _NAME.fullmatch(name) or name in found:
            why = "stands twice" if name in found else "cannot be an assignment's name"
            raise CourseError(f"{name!r} {why}; write assignments like week1=01,02 with letters, digits, - and _")
        try:
            found[name] = [load_lesson(n.strip().zfill(2)) for n in numbers.split(",") if n.strip()]
        except KeyError as error:
            raise CourseError(str(error.args[0])) from None
        if not found[name]:
            raise CourseError(f"assignment {name!r} has no lessons; write {name}=01,02")
        if len(set(found[name])) != len(found[name]):
            raise CourseError(f"assignment {name!r} names a lesson twice")
    return found


def init(folder: Path, assignments: Mapping[str, Sequence[Lesson]], *, isolation: str = "sandbox") -> list[str]:
    """Make the course, or add assignments to it and build them again; gives back one line for each thing done.

    An existing file that would change is kept in `backup/`.

    Raises:
        CourseError: when the folder cannot be written.
    """
    from grader import build

    root = folder.resolve()
    if root == ROOT or any(ROOT / name in (root, *root.parents) for name in ("solutions", "course", "grader", "tests")):
        raise CourseError(f"{folder} is where the lessons themselves are; give a folder of the course's own")
    stamp, said = time.strftime("%Y%m%d-%H%M%S"), []
    try:
        for name in ("source", "exchange", "submitted"):
            (root / name).mkdir(parents=True, exist_ok=True)
        files = {Path(CONFIG): config_text(isolation).encode()}
        for name, lessons in assignments.items():
            for lesson in lessons:
                path = Path("source", name, f"{lesson.id}.ipynb")
                files[path] = build.as_bytes(build.source_notebook(lesson))
        for path, content in files.items():
            said.append(_write(root, path, content, stamp))
        course_secret(root)
    except OSError as error:
        raise CourseError(
            f"cannot write {error.filename or folder}: {error.strerror}; give a folder that is yours"
        ) from None
    return said


def _write(root: Path, path: Path, content: bytes, stamp: str) -> str:
    target = root / path
    if target.exists():
        if target.read_bytes() == content:
            return f"kept {path}"
        backup = root / "backup" / stamp / path  # not beside it: nbgrader hands out whatever lies in source/
        write_atomically(backup, target.read_bytes())
        write_atomically(target, content)
        return f"wrote {path}; the former one is {backup.relative_to(root)}"
    write_atomically(target, content)
    return f"wrote {path}"
