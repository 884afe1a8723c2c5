"""The first step of autograding: only the answers of a submission are carried into the released notebook."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import nbformat
from nbconvert.exporters.exporter import ResourcesDict
from nbformat import NotebookNode
from nbgrader.preprocessors import NbGraderPreprocessor

from grader.splice import splice


class Splice(NbGraderPreprocessor):
    """Start from the released notebook and carry over what the student wrote into its answer cells.

    Cells that were deleted, copied, moved or given other metadata then do no harm: stock nbgrader stops at the first
    copied grade cell. A notebook without a release (never generated) passes through unchanged.
    """

    def preprocess(self, nb: NotebookNode, resources: ResourcesDict) -> tuple[NotebookNode, ResourcesDict]:
        names: dict[str, Any] = resources["nbgrader"]
        path = Path(self._folder(names["assignment"])) / f"{names['notebook']}.ipynb"
        if not path.exists():
            self.log.warning("%s is not there: the submission is taken as it is", path)
            return nb, resources
        released = nbformat.read(path, as_version=4)
        return nbformat.from_dict(splice(released, nb)), resources

    def _folder(self, assignment: str) -> str:
        from nbgrader.coursedir import CourseDirectory

        course = CourseDirectory(config=self.config)
        return str(course.format_path(course.release_directory, ".", assignment))


SANITIZE = [
    "grader.classroom.splice.Splice",
    "nbgrader.preprocessors.ClearOutput",
    "nbgrader.preprocessors.DeduplicateIds",
    "nbgrader.preprocessors.OverwriteKernelspec",
    "nbgrader.preprocessors.OverwriteCells",
    "nbgrader.preprocessors.CheckCellMetadata",
]
"""What `Autograde.sanitize_preprocessors` is set to: nbgrader's own list behind ours."""
