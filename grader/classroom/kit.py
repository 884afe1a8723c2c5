"""What students get: the notebooks, the package without anything that gives an answer away, a README, the environment.

A lesson travels as its own source with the stub in place of each solution (`grader/lessons/`): hints, points and the
course's picture work as in the whole course, `solution()` says that there is none.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from grader.classroom.course import CourseError
from grader.lesson import BEGIN, END, ROOT, STUB, Lesson, LessonError, read_lesson

PACKAGE = Path(__file__).resolve().parent.parent

MODULES = (
    "__init__.py", "__main__.py", "cli.py", "lesson.py", "report.py", "splice.py", "submission.py", "judge.py",
    "bank/__init__.py", "checks/__init__.py", "checks/assertions.py", "checks/inputs.py", "checks/check.py",
    "checks/collection.py", "checks/guard.py",
    "checks/public/__init__.py", "study/__init__.py", "study/copies.py", "study/progress.py", "study/verbs.py",
)  # fmt: skip
"""A list of what goes in, so that a new module stays out until somebody puts it here."""

FILES = ("run.py", "environment.yml")
NOT_FOR_STUDENTS = {"nbgrader", "nh3", "distributed", "hypothesis", "playwright", "ruff", "mypy"}
ESSAY_STUB = "YOUR ANSWER HERE"

README = """# {title}

You write the Transformer yourself, one function at a time, and every answer is judged at once. You need Python 3.11 or
newer; nothing else is installed outside this folder.

```
python3 run.py lab      # installs once into .venv, makes your copies in my-course/, opens JupyterLab
```

1. Open a notebook and run its cells with Shift+Enter from the top. An exercise is a function with its description and
   `raise NotImplementedError("not started")`: replace that line, run the cell, then the cell `check(...)` below it.
2. `hint(name)` gives the next of three hints. `progress()` draws where you stand.
3. The checks here are a part of those by which your work is graded: passing them all is necessary, not sufficient. Read
   what the description of the exercise promises, and think of small, odd and large inputs.
4. You may add cells; helper functions in them count. Keep the notebook's name, and hand in the `.ipynb` file.

In a terminal, `python3 run.py check my-course/NOTEBOOK.ipynb` judges a whole notebook. With conda:
`conda env create -f environment.yml`, then in that environment `python -m grader study start my-course`.

Notebooks: {notebooks}.
"""


def make_kit(folder: Path, lessons: Sequence[Lesson], course: Path | None = None) -> list[str]:
    """Make the kit in a new folder; gives back one line for each kind of thing in it.

    Args:
        course: where the released notebooks lie; the repository's own by default.

    Raises:
        CourseError: the folder is not empty, or a notebook is missing or not what its lesson builds.
    """
    from grader import build

    target = folder.resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise CourseError(f"{folder} is there already; give a new folder for the kit")
    found = build.drift(lessons, course or build.COURSE, complete=False)
    if found:
        raise CourseError(f"the notebooks are not what the lessons build ({found[0]}); run `build` first")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}-") as temporary:
            new = Path(temporary) / "kit"
            _fill(new, lessons, course or build.COURSE)
            if target.exists():
                target.rmdir()
            new.rename(target)
    except OSError as error:
        raise CourseError(
            f"cannot write {error.filename or folder}: {error.strerror}; give a folder that is yours"
        ) from None
    return [
        f"wrote {folder}: {len(lessons)} notebooks, their public checks, hints, README.md, requirements.txt",
        "not in it: solutions, hidden checks, the bank of wrong answers, grading",
    ]


def _fill(kit: Path, lessons: Sequence[Lesson], course: Path) -> None:
    for module in MODULES:
        _copy(PACKAGE / module, kit / "grader" / module)
    for lesson in lessons:
        _copy(course / f"{lesson.id}.ipynb", kit / "course" / f"{lesson.id}.ipynb")
        checks = f"checks/public/test_lesson_{lesson.number}.py"
        _copy(PACKAGE / checks, kit / "grader" / checks)
        path = kit / "grader" / "lessons" / lesson.path.name
        path.parent.mkdir(exist_ok=True)
        path.write_text(without_solutions(lesson), encoding="utf-8")
        read_lesson(path)
    for name in FILES:
        _copy(ROOT / name, kit / name)
    (kit / "requirements.txt").write_text(_requirements((ROOT / "requirements.txt").read_text("utf-8")), "utf-8")
    names = ", ".join(f"`{lesson.id}.ipynb`" for lesson in lessons)
    (kit / "README.md").write_text(README.format(title="Write the Transformer", notebooks=names), "utf-8")
    (kit / ".gitignore").write_text(".venv/\nmy-course/\n__pycache__/\n", "utf-8")


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


_MARK = re.compile(rf"^(?P<before>\s*(?:# )?)(?:{re.escape(BEGIN)}|{re.escape(END)})\s*$")


def without_solutions(lesson: Lesson) -> str:
    """The lesson's source with the stub between its markers, so that it reads and builds like the original.

    Raises:
        LessonError: a region is not closed.
    """
    out: list[str] = []
    opened = 0
    for number, line in enumerate(lesson.path.read_text(encoding="utf-8").split("\n"), 1):
        mark = _MARK.match(line)
        if mark and BEGIN in line:
            opened, before = number, mark["before"]
            stub = [ESSAY_STUB] if before.startswith("#") else STUB.split("\n")
            out += [line, *(before + part for part in stub)]
        elif mark:
            opened = 0
            out.append(line)
        elif not opened:
            out.append(line)
    if opened:
        raise LessonError(lesson.path, opened, f"'{BEGIN}' is not closed", f"write '{END}' behind the solution")
    return "\n".join(out)


def _requirements(text: str) -> str:
    """The pins of what students need, with the comments above them."""
    kept: list[str] = []
    for block in text.strip().split("\n\n"):
        lines = [line for line in block.split("\n") if re.split(r"[=<>\[ ]", line)[0] not in NOT_FOR_STUDENTS]
        if any(not line.startswith("#") for line in lines):
            kept.append("\n".join(lines))
    return "\n\n".join(kept) + "\n"
