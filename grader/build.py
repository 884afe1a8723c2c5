"""A lesson to notebooks: what a learner opens, what an instructor hands out, and the solved one.

The released notebook is made by nbgrader's own preprocessors, so that it is byte for byte what `nbgrader
generate_assignment` makes of the classroom source, without a database. Nothing here depends on time, machine or order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import nbformat
from nbformat import NotebookNode
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook
from traitlets.config import Config

from grader.lesson import BEGIN, COURSE, END, ROOT, STUB, Cell, Lesson

SOLVED = ROOT / "build" / "solved"

EXECUTE_SECONDS = 300
"""A cell of a solved notebook may take this long."""


class BuildError(Exception):
    """A solved notebook does not run: names lesson, cell and error."""


# ---------------------------------------------------------------------------------------------------- notebooks


def source_notebook(lesson: Lesson) -> NotebookNode:
    """The classroom source: the lesson with nbgrader's metadata and its solutions, before release."""
    cells = []
    for cell in lesson.cells:
        if cell.role == "hints":
            continue
        if cell.role == "solve":
            cells.append(_about(lesson, cell))
        cells.append(_notebook_cell(lesson, cell))
    return _notebook(lesson, _unique_ids(cells))


def student_notebook(lesson: Lesson) -> NotebookNode:
    """The released notebook: stubs in place of solutions, outputs cleared, graded cells locked."""
    notebook = source_notebook(lesson)
    for preprocessor in _release_preprocessors():
        notebook, _ = preprocessor.preprocess(notebook, {})
    return notebook


def solved_notebook(lesson: Lesson) -> NotebookNode:
    """The lesson as one reads it afterwards: solutions without their markers, hints folded under their exercise."""
    cells = []
    for cell in lesson.cells:
        if cell.role == "solve":
            cells.append(_about(lesson, cell))
        made = _notebook_cell(lesson, cell)
        made.metadata.pop("nbgrader", None)
        made.source = "\n".join(line for line in made.source.split("\n") if line.strip() not in (BEGIN, END))
        if cell.role == "hints":
            made.source = f"<details><summary>Hints for {cell.name}</summary>\n\n{made.source}\n\n</details>"
            made.id = f"{cell.name}-hints"
        cells.append(made)
    return _notebook(lesson, _unique_ids(cells))


def execute(notebook: NotebookNode, folder: Path) -> NotebookNode:
    """Run a notebook top to bottom in a fresh kernel whose working folder is `folder`; outputs are kept, times are not.

    Raises:
        BuildError: with the cell that failed.
    """
    import os

    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError

    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    client = NotebookClient(
        notebook,
        timeout=EXECUTE_SECONDS,
        kernel_name="python3",
        config=Config(KernelManager={"transport_encryption": "auto"}),
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    try:
        client.execute(env={**os.environ, "PYTHONPATH": path})
    except (CellExecutionError, CellTimeoutError) as error:
        lines = [line for line in str(error).strip().splitlines() if line.strip()]
        raise BuildError(f"{notebook.metadata.grader.lesson}: {lines[-1] if lines else error}\n{error}") from None
    return notebook


def _notebook(lesson: Lesson, cells: Sequence[NotebookNode]) -> NotebookNode:
    metadata = {
        "grader": {"lesson": lesson.id},
        "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    return new_notebook(cells=list(cells), metadata=metadata)


def _notebook_cell(lesson: Lesson, cell: Cell) -> NotebookNode:
    metadata: dict[str, Any] = {}
    if cell.role not in ("text", "hints"):
        metadata["grader"] = {"role": cell.role, "name": cell.name} if cell.name else {"role": cell.role}
    if cell.role == "solve":
        metadata["nbgrader"] = _nbgrader(cell.id, cell.kind, solution=True)
    elif cell.role == "check":
        metadata["nbgrader"] = _nbgrader(cell.id, cell.kind, points=lesson.exercise(cell.name).points, locked=True)
    elif cell.role == "essay":
        metadata["nbgrader"] = _nbgrader(cell.id, cell.kind, points=float(cell.options["points"]), solution=True)
    make = new_code_cell if cell.kind == "code" else new_markdown_cell
    return make(cell.source, id=cell.id, metadata=metadata)


def _nbgrader(
    grade_id: str, kind: str, *, points: float | None = None, solution: bool = False, locked: bool = False
) -> dict[str, Any]:
    """nbgrader's metadata (schema 3); it refuses further keys."""
    data: dict[str, Any] = {
        "schema_version": 3,
        "grade_id": grade_id,
        "grade": points is not None,
        "solution": solution,
        "locked": locked,
        "task": False,
        "cell_type": kind,
    }
    if points is not None:
        data["points"] = points
    return data


def _about(lesson: Lesson, cell: Cell) -> NotebookNode:
    """The line above an exercise, made from the keys of its cell."""
    exercise = lesson.exercise(cell.name)

    def dots(n: int) -> str:
        return "●" * n + "○" * (5 - n)

    text = (
        f"**Exercise `{exercise.name}`** · difficulty {dots(exercise.difficulty)} · "
        f"importance {dots(exercise.importance)} · about {exercise.minutes} minutes · "
        f"{exercise.points:g} {'point' if exercise.points == 1 else 'points'}  \n"
        f"Stuck? Run `hint({exercise.name})` in a new cell; after your own attempt compare with "
        f"`solution({exercise.name})`."
    )
    return new_markdown_cell(text, id=f"{exercise.name}-about", metadata={})


def _unique_ids(cells: list[NotebookNode]) -> list[NotebookNode]:
    seen: dict[str, int] = {}
    for cell in cells:
        count = seen[cell.id] = seen.get(cell.id, 0) + 1
        if count > 1:
            cell.id = f"{cell.id}-{count}"
    return cells


def release_config() -> Config:
    """What nbgrader must be told so that its releases equal ours: the stubs."""
    config = Config()
    config.ClearSolutions.code_stub = {"python": STUB}
    config.ClearSolutions.text_stub = "YOUR ANSWER HERE"
    return config


def _release_preprocessors() -> list[Any]:
    from nbgrader import preprocessors as nb

    config = release_config()
    order = (
        nb.LockCells, nb.ClearSolutions, nb.ClearOutput, nb.CheckCellMetadata, nb.ComputeChecksums,
        nb.ClearHiddenTests, nb.ClearMarkScheme, nb.ComputeChecksums, nb.CheckCellMetadata,
    )  # fmt: skip
    return [preprocessor(config=config) for preprocessor in order]


# ---------------------------------------------------------------------------------------------------- files


def as_bytes(notebook: NotebookNode) -> bytes:
    """The file of a notebook: the same bytes for the same content."""
    nbformat.validate(notebook)
    return (json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n").encode("utf-8")


def write_course(
    lessons: Sequence[Lesson], folder: Path = COURSE, say: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """Write the released notebooks; gives back the files that changed. Files that are equal are not touched."""
    folder.mkdir(parents=True, exist_ok=True)
    changed = []
    for lesson in lessons:
        say(lesson.id)
        path, content = folder / f"{lesson.id}.ipynb", as_bytes(student_notebook(lesson))
        if not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
            changed.append(path)
    return changed


def drift(lessons: Sequence[Lesson], folder: Path = COURSE, *, complete: bool = True) -> list[str]:
    """One sentence for each way in which the folder differs from what the sources build.

    Args:
        complete: `lessons` is the whole course, so a notebook without a source is a drift as well.
    """
    found = []
    for lesson in lessons:
        path, content = folder / f"{lesson.id}.ipynb", as_bytes(student_notebook(lesson))
        if not path.exists():
            found.append(f"{path.name} is missing")
        elif path.read_bytes() != content:
            found.append(f"{path.name} differs from its source: {_first_difference(path.read_bytes(), content)}")
    if complete:
        ids = {f"{lesson.id}.ipynb" for lesson in lessons}
        found += [
            f"{path.name} has no source in solutions/"
            for path in sorted(folder.glob("*.ipynb"))
            if path.name not in ids
        ]
    return found


def _first_difference(have: bytes, want: bytes) -> str:
    try:
        old, new = json.loads(have)["cells"], json.loads(want)["cells"]
    except (ValueError, KeyError, TypeError):
        return "it is not a notebook"
    for number, (one, two) in enumerate(zip(old, new, strict=False), 1):
        if one != two:
            return f"cell {number} ({two.get('id', '')})"
    return f"it has {len(old)} cells instead of {len(new)}" if len(old) != len(new) else "its metadata"


def write_solved(
    lessons: Sequence[Lesson], folder: Path = SOLVED, say: Callable[[str], None] = lambda _: None
) -> list[Path]:
    """Execute and write the solved notebooks.

    Raises:
        BuildError: when one does not run.
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for lesson in lessons:
        say(lesson.id)
        path = folder / f"{lesson.id}.ipynb"
        path.write_bytes(as_bytes(execute(solved_notebook(lesson), folder)))
        paths.append(path)
    return paths
