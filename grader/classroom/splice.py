"""The first step of autograding: only what a student wrote is carried into the released notebook."""

from __future__ import annotations

import copy
import json
import re
from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor

from grader.classroom.uploads import RefusedSubmission, disarm, files_of
from grader.lesson import lesson_of
from grader.splice import Json, source_of, splice

OWN = "own"
"""The role of a cell that the student added, in a spliced notebook."""

MAX_CELLS = 2_000
"""A submission with more cells than this is refused: a lesson has some sixty."""


class Splice(NbGraderPreprocessor):
    """Start from the released notebook and carry over what the student wrote: answers, own cells, edited given code.

    Cells that were deleted, copied, moved or given other metadata then do no harm: stock nbgrader stops at the first
    copied grade cell. A notebook without a release (never generated) passes through unchanged.

    What nbgrader copied beside the notebook before this step is looked after as well: see `uploads`.
    """

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        names: dict[str, Any] = resources["nbgrader"]
        student = names.get("student", ".")
        source = Path(self._folder("source", ".", names["assignment"]))
        disarm(Path(self._folder("autograded", student, names["assignment"])), source)
        files_of(Path(self._folder("submitted", student, names["assignment"])))
        path = Path(self._folder("release", ".", names["assignment"])) / f"{names['notebook']}.ipynb"
        if not path.exists():
            self.log.warning("%s is not there: the submission is taken as it is", path)
            return nb, resources
        released = read_released(path.read_text(encoding="utf-8"))
        return nbformat.from_dict(carry_over(released, nb)), resources

    def _folder(self, step: str, student: str, assignment: str) -> str:
        from nbgrader.coursedir import CourseDirectory

        course = CourseDirectory(config=self.config)
        return str(course.format_path(getattr(course, f"{step}_directory"), student, assignment))


def read_released(text: str) -> Json:
    """A released notebook from its file, sources in one piece."""
    notebook: Json = json.loads(text)
    for cell in notebook["cells"]:
        cell["source"] = source_of(cell)
    return notebook


def carry_over(released: Json, submitted: Json) -> Json:
    """The released notebook with what the student wrote.

    Answers go into their cells; code and Markdown cells that the student added keep their places, without metadata and
    under ids of ours; a given cell that the student edited (an import, say) stays as released, with the edited one
    behind it.

    Raises:
        RefusedSubmission: when it is not a notebook, or that of another lesson.
    """
    answered = tidy(submitted)
    exercises = {c.get("id") for c in released["cells"] if c["metadata"].get("grader", {}).get("role") == "solve"}
    other = lesson_of(submitted)
    if (
        other != lesson_of(released)
        and _ID.fullmatch(other)
        and not exercises & {cell["id"] for cell in answered["cells"]}
    ):
        raise RefusedSubmission(f"none of its exercises is there: this is the notebook of {other}")
    released = copy.deepcopy(released)
    for cell in released["cells"]:
        _tag_own_question(cell["metadata"])
    known = {cell.get("id"): cell for cell in released["cells"]}
    edited: dict[str, Json] = {}
    for cell in answered["cells"]:
        frame = known.get(cell["id"])
        if frame is None or frame["metadata"].get("grader", {}).get("role") != "given":
            continue
        if cell["cell_type"] == "code" and source_of(cell) != source_of(frame):
            edited.setdefault(cell["id"], cell)
    result = splice(released, answered, keep_own_cells=True)
    cells: list[Json] = []
    for cell in result["cells"]:
        cells.append(cell if cell.get("id") in known else {**cell, "metadata": {}})
        if cell.get("id") in edited:
            cells.append({**edited[cell["id"]], "metadata": {}})
    number = 0
    for place, cell in enumerate(cells):
        if cell["metadata"] == {} and (cell.get("id") not in known or cell.get("id") in edited):
            number += 1
            cell = copy.deepcopy(cell)
            cell["id"], cell["metadata"] = f"{OWN}-{number}", {"grader": {"role": OWN}}
            cells[place] = cell
    result["cells"] = cells
    return result


_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


def tidy(notebook: Any) -> Json:
    """A submitted notebook reduced to cells of the three known kinds with text in them, whatever else it holds.

    Raises:
        RefusedSubmission: when it is not a notebook of format 4, or has too many cells.
    """
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise RefusedSubmission("it is not a notebook of format 4; open and save it in JupyterLab")
    if len(cells) > MAX_CELLS:
        raise RefusedSubmission(f"it has {len(cells)} cells, more than {MAX_CELLS}; ask for the lesson's own notebook")
    out: list[Json] = []
    seen: set[str] = set()
    for number, cell in enumerate(cells):
        kind = cell.get("cell_type") if isinstance(cell, dict) else None
        if kind not in ("code", "markdown", "raw"):
            continue
        source = cell.get("source", "")
        if isinstance(source, list) and all(isinstance(line, str) for line in source):
            source = "".join(source)
        if not isinstance(source, str):
            continue
        name, metadata = cell.get("id"), cell.get("metadata")
        if not isinstance(name, str) or not _ID.fullmatch(name) or name in seen:
            name = f"unnamed-{number}"
        seen.add(name)
        kept: Json = {
            "cell_type": kind,
            "id": name,
            "metadata": _tidy_metadata(metadata),
            "source": source,
        }
        if kind == "code":
            kept |= {"execution_count": None, "outputs": []}
        elif isinstance(cell.get("attachments"), dict):
            kept["attachments"] = cell["attachments"]
        out.append(kept)
    return {"cells": out, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def _tag_own_question(metadata: Json) -> None:
    """An instructor's own written question, made with nbgrader's Create Assignment, is an answer cell like ours."""
    data = metadata.get("nbgrader")
    name = data.get("grade_id") if isinstance(data, dict) and data.get("solution") else None
    if isinstance(name, str) and "grader" not in metadata:
        metadata["grader"] = {"role": "essay", "name": name}


def _tidy_metadata(metadata: Any) -> Json:
    """What splicing looks at: our own tag, and whether nbgrader's is there."""
    out: Json = {}
    if isinstance(metadata, dict):
        tag = metadata.get("grader")
        if isinstance(tag, dict):
            out["grader"] = {k: v for k, v in tag.items() if k in ("role", "name") and isinstance(v, str)}
        if metadata.get("nbgrader") is not None:
            out["nbgrader"] = {}
            _tag_own_question(both := {**out, "nbgrader": metadata["nbgrader"]})
            out |= {key: value for key, value in both.items() if key == "grader"}
    return out


SANITIZE = [
    "grader.classroom.splice.Splice",
    "grader.classroom.sanitize.Sanitize",
    "nbgrader.preprocessors.ClearOutput",
    "nbgrader.preprocessors.DeduplicateIds",
    "nbgrader.preprocessors.OverwriteKernelspec",
    "nbgrader.preprocessors.OverwriteCells",
    "nbgrader.preprocessors.CheckCellMetadata",
]
"""What `Autograde.sanitize_preprocessors` is set to: nbgrader's own list behind ours."""
