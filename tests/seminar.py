"""A class of one short lesson, for the tests of the classroom: made with nbgrader's own commands."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from nbgrader.api import Gradebook

from grader.classroom import course as courses
from grader.lesson import ROOT
from grader.splice import Json, source_of

ROW_SUMS = "def row_sums(x):\n    return x.sum(-1)"
HALF = "def row_sums(x):\n    return x.sum(0)"
SPY = """
import os, sys
def row_sums(x):
    print('debug', file=sys.stderr)
    found = [p for p in (__COURSE__, __COURSE__ + '/gradebook.db', __REPO__ + '/solutions') if os.path.exists(p)]
    if found or 'JPY_PARENT_PID' in os.environ:
        raise OSError('WALL IS OPEN ' + str(found))
    return x.sum(-1)
"""
SCRIPT = """
<script>alert(1)</script> <img src=x onerror=alert(1)> <b>x</b> [go](javascript:alert(1)) [go]: javascript:alert(2)
<svg onload=alert(1)></svg> <iframe src="//evil"></iframe> $\\href{javascript:alert(1)}{x}$
<a href="java&#115;cript:1">y</a>
![p](attachment:none.png) a < b and **bold** and <b>fat</b>

```mermaid
graph LR; A --> B; click A "javascript:alert(1)"
```
"""


def nbgrader(root: Path, *arguments: str) -> str:
    """One of nbgrader's own commands, as an instructor types it in the course's folder."""
    program = Path(sys.executable).with_name("nbgrader")
    env = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([program, *arguments], cwd=root, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def hand_in(
    root: Path, student: str, answers: Mapping[str, str], change: Callable[[Json], None] = lambda _: None
) -> Path:
    """Put the released notebooks of week1 with these answers into `submitted/`."""
    folder = root / "submitted" / student / "week1"
    folder.mkdir(parents=True)
    for path in (root / "release" / "week1").glob("*.ipynb"):
        notebook = json.loads(path.read_text())
        for cell in notebook["cells"]:
            cell["source"] = answers.get(cell.get("id", ""), source_of(cell))
        change(notebook)
        (folder / path.name).write_text(json.dumps(notebook))
    return folder


def new_course(root: Path, lessons: str = "00") -> Path:
    """A generated course; the instructor added a written question of their own to the first lesson."""
    courses.init(root, courses.parse_assignments([f"week1={lessons}"]))
    path = root / "source" / "week1" / "00_start_here.ipynb"
    notebook = json.loads(path.read_text())
    data = {"schema_version": 3, "grade_id": "why", "grade": True, "solution": True, "locked": False, "task": False}
    cell = own("Why?\n### BEGIN SOLUTION\nThe secret model answer.\n### END SOLUTION", id="question")
    cell["metadata"] = {"nbgrader": {**data, "points": 3.0, "cell_type": "markdown"}}
    notebook["cells"].append(cell)
    path.write_text(json.dumps(notebook))
    nbgrader(root, "generate_assignment", "week1")
    return root


def scores(root: Path) -> dict[str, float]:
    """Student to the sum of the automatic scores."""
    found: dict[str, float] = {}
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}", root.name) as gradebook:
        for submission in gradebook.assignment_submissions("week1"):
            for notebook in submission.notebooks:
                for grade in notebook.grades:
                    if grade.name.endswith("-check") and grade.auto_score is not None:
                        found[submission.student_id] = found.get(submission.student_id, 0) + grade.auto_score
    return found


def own(source: str, kind: str = "markdown", **more: Any) -> Json:
    extra: Json = {"outputs": [], "execution_count": None} if kind == "code" else {}
    return {"cell_type": kind, "id": "mine", "metadata": {}, "source": source, **extra, **more}


def hostile(notebook: Json) -> None:
    """Script wherever text goes into a page: an essay, own cells of every kind, outputs, a copied grade cell."""
    for cell in notebook["cells"]:
        if cell["id"] == "question":
            cell["source"] = SCRIPT
        if cell["id"] == "row_sums":
            cell["source"] = (
                "def row_sums(x):\n    raise ValueError('<script>alert(9)</script> $\\\\href{javascript:1}{x}$')"
            )
    check = next(cell for cell in notebook["cells"] if cell["id"] == "row_sums-check")
    output = {"output_type": "display_data", "metadata": {}, "data": {"text/html": "<script>alert(3)</script>"}}
    html = own("1", "code")
    html["outputs"] = [output]
    notebook["cells"] += [
        own(SCRIPT), own(SCRIPT, "raw"), html, {**check, "id": "copied"},
        own("![p](attachment:p.svg)", attachments={"p.svg": {'image/svg+xml" onload="alert(1)': "<svg/>"}}),
    ]  # fmt: skip


@lru_cache(maxsize=1)
def handed_in() -> Path:
    """A course whose assignment week1 (lesson 00 and a question of the instructor's) was handed in by five students."""
    folder = Path(tempfile.mkdtemp(prefix="seminar-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    root = new_course(folder / "seminar")
    hand_in(root, "ada", {"row_sums": ROW_SUMS, "question": "Because."})
    hand_in(root, "bob", {"row_sums": HALF})
    hand_in(root, "eve", {})
    spy = SPY.replace("__REPO__", repr(str(ROOT)))
    hand_in(root, "spy", {"row_sums": spy.replace("__COURSE__", repr(str(root)))})
    hand_in(root, "xss", {}, hostile)
    return root


def copy_of(course: Path, folder: Path) -> Path:
    """The same course at another place: same name, same secret."""
    return Path(shutil.copytree(course, folder / course.name, symlinks=True))
