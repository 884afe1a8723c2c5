"""Carrying answers from one notebook into another that was made from the same lesson.

The released notebook is the frame; what its answer cells hold is taken from the answered one. So cells that were
deleted, copied, moved or given other metadata do no harm. Works on notebooks as plain JSON data.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]


def source_of(cell: Mapping[str, Any]) -> str:
    """A cell's source as one string."""
    source = cell.get("source", "")
    return "".join(source) if isinstance(source, list) else str(source)


def _tag(cell: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = cell.get("metadata")
    tag = metadata.get("grader") if isinstance(metadata, Mapping) else None
    return tag if isinstance(tag, Mapping) else {}


def is_answer(cell: Mapping[str, Any]) -> bool:
    """The cell is one that a learner fills in, according to its metadata in a released notebook."""
    return _tag(cell).get("role") in ("solve", "essay")


def answer_of(name: str, kind: str, stub: str, cells: list[Json]) -> str | None:
    """What the answered notebook holds under `name`, or None.

    In order of trust: a cell whose id is the name; a cell whose metadata says so; a code cell that defines the name. A
    cell that is still the stub only counts when there is nothing better.
    """
    same_kind = [cell for cell in cells if cell.get("cell_type") == kind]
    defines = re.compile(rf"^(?:async\s+def|def|class)\s+{re.escape(name)}\b|^{re.escape(name)}\s*=", re.MULTILINE)
    candidates = [cell for cell in same_kind if cell.get("id") == name]
    candidates += [cell for cell in same_kind if _tag(cell).get("name") == name and is_answer(cell)]
    if kind == "code":
        candidates += [cell for cell in same_kind if defines.search(source_of(cell))]
    sources = [source_of(cell) for cell in candidates]
    better = [source for source in sources if source.strip() and source != stub]
    return next(iter(better or sources), None)


def splice(released: Json, answered: Json, *, keep_own_cells: bool = False) -> Json:
    """A copy of `released` with the answers of `answered`.

    Args:
        keep_own_cells: also carry over the cells that the released notebook does not know (a learner's own notes and
            experiments), each behind the cell that it followed.
    """
    result = copy.deepcopy(released)
    cells = [cell for cell in answered.get("cells", []) if isinstance(cell, dict)]
    for cell in result["cells"]:
        if is_answer(cell):
            found = answer_of(_tag(cell)["name"], cell["cell_type"], source_of(cell), cells)
            if found is not None:
                cell["source"] = found
    if keep_own_cells:
        _insert_own_cells(result, cells)
    return result


def _insert_own_cells(result: Json, cells: list[Json]) -> None:
    known = {cell.get("id") for cell in result["cells"]}
    texts = {source_of(cell) for cell in result["cells"]}
    after: str | None = None
    for cell in cells:
        if cell.get("id") in known:
            after = cell.get("id")
            continue
        released_before = _tag(cell).get("role") is not None or cell.get("metadata", {}).get("nbgrader") is not None
        if released_before or source_of(cell) in texts or not source_of(cell).strip():
            continue
        own = copy.deepcopy(cell)
        place = next(
            (i for i, other in enumerate(result["cells"]) if other.get("id") == after), len(result["cells"]) - 1
        )
        result["cells"].insert(place + 1, own)
        after = own.get("id")
        known.add(after)
