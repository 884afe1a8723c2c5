"""A learner's own copies of the course: made once, updated with their answers kept, reset with a backup.

Nothing here overwrites a learner's file without a copy of it in the study folder's `.grader/backup/`.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grader.lesson import COURSE, NotebookError
from grader.splice import is_answer, splice
from grader.study.progress import FOLDER, Progress


@dataclass(frozen=True)
class Change:
    """What was done to one notebook: "made", "updated", "kept" or "reset", and where its former state lies."""

    notebook: str
    what: str
    backup: Path | None = None

    def __str__(self) -> str:
        where = f"; the former one is {self.backup}" if self.backup else ""
        return f"{self.what} {self.notebook}{where}"


def start(folder: Path) -> list[Change]:
    """Make the learner's copy of the course. An existing study folder, and any existing file, stays as it is.

    A new folder appears whole or not at all, so that an interrupted start leaves nothing half made.

    Raises:
        NotebookError: when the folder cannot be made, or the course is not built.
    """
    if (folder / FOLDER).is_dir():
        return []
    released = _released()
    if folder.exists():
        return _fill(folder, released)
    stage = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        changes = _fill(stage, released)
        stage.rename(folder)
    finally:
        shutil.rmtree(stage, ignore_errors=True)
    return changes


def _fill(folder: Path, released: Sequence[Path]) -> list[Change]:
    _make(folder)
    changes = []
    for path in released:
        target = folder / path.name
        if not target.exists():
            shutil.copyfile(path, target)
            _remember(folder, path)
            changes.append(Change(path.name, "made"))
    return changes


def update(folder: Path) -> list[Change]:
    """Bring new and corrected lessons into a study folder; answers and the learner's own cells are carried over."""
    _require_study_folder(folder)
    bases = _bases(folder)
    changes = []
    for path in _released():
        target = folder / path.name
        if not target.exists():
            shutil.copyfile(path, target)
            changes.append(Change(path.name, "made"))
        elif bases.get(path.name) != _digest(path):
            merged = splice(_read(path), _read(target), keep_own_cells=True)
            if merged["cells"] == _read(target)["cells"]:
                changes.append(Change(path.name, "kept"))
            else:
                backup = _back_up(folder, target)
                _write(target, merged)
                changes.append(Change(path.name, "updated", backup))
        else:
            changes.append(Change(path.name, "kept"))
        _remember(folder, path)
    return changes


def reset(folder: Path, lessons: Sequence[str] = (), exercise: str = "") -> list[Change]:
    """Put lessons (all by default), or one exercise's cell, back to the released state, after a backup.

    What was recorded of their exercises is forgotten as well (the record is kept beside the backup).

    Raises:
        NotebookError: for an unknown lesson or exercise.
    """
    _require_study_folder(folder)
    paths = _released()
    for lesson in lessons:
        if not any(lesson in (path.stem, path.stem[:2]) for path in paths):
            raise NotebookError(f"there is no lesson {lesson!r}; there are {', '.join(path.stem for path in paths)}")
    chosen = [path for path in paths if not lessons or path.stem in lessons or path.stem[:2] in lessons]
    if exercise:
        chosen = [path for path in chosen if _cell(_read(path), exercise) is not None]
        if not chosen:
            raise NotebookError(
                f"there is no exercise {exercise!r} in the lessons given; look at its cell for the name"
            )
    changes = []
    progress = Progress(folder / FOLDER / "progress.json").load()
    for path in chosen:
        target = folder / path.name
        backup = _back_up(folder, target) if target.exists() else None
        if backup and progress.path and progress.path.exists():
            shutil.copy2(progress.path, backup.with_suffix(".progress.json"))
        progress.forget([exercise] if exercise else _exercises(_read(path)))
        if exercise and target.exists():
            notebook, stub = _read(target), _cell(_read(path), exercise)
            cell = _cell(notebook, exercise)
            if cell is None or stub is None:
                raise NotebookError(
                    f"{target} has no cell of {exercise!r} any more; reset the whole lesson: its backup keeps your work"
                )
            cell["source"], cell["outputs"], cell["execution_count"] = stub["source"], [], None
            _write(target, notebook)
        else:
            shutil.copyfile(path, target)
            _remember(folder, path)
        changes.append(Change(path.name, f"reset {exercise} in" if exercise else "reset", backup))
    return changes


def _exercises(notebook: dict[str, Any]) -> list[str]:
    return [cell["metadata"]["grader"]["name"] for cell in notebook["cells"] if is_answer(cell)]


def _cell(notebook: dict[str, Any], name: str) -> dict[str, Any] | None:
    cells: list[dict[str, Any]] = notebook["cells"]
    return next((c for c in cells if is_answer(c) and c["metadata"]["grader"].get("name") == name), None)


def _released() -> list[Path]:
    paths = sorted(COURSE.glob("[0-9][0-9]_*.ipynb"))
    if not paths:
        raise NotebookError(f"{COURSE} holds no notebooks; build them with `python3 run.py build`")
    return paths


def _require_study_folder(folder: Path) -> None:
    if not (folder / FOLDER).is_dir():
        raise NotebookError(f"{folder} is not a study folder; make one with `python3 run.py study start {folder}`")


def _make(folder: Path) -> None:
    try:
        (folder / FOLDER).mkdir(parents=True)
    except OSError as error:
        raise NotebookError(
            f"cannot make the study folder {folder}: {error.strerror}; name a folder that you may write to"
        ) from None


def _back_up(folder: Path, target: Path) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    number = 0
    while True:
        place = folder / FOLDER / "backup" / (stamp if not number else f"{stamp}-{number}")
        if not (place / target.name).exists():
            place.mkdir(parents=True, exist_ok=True)
            shutil.copy2(target, place / target.name)
            return place / target.name
        number += 1


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _bases(folder: Path) -> dict[str, str]:
    """Which release each copy was made from."""
    try:
        data = json.loads((folder / FOLDER / "released.json").read_text(encoding="utf-8"))
        return data if isinstance(data, dict) else {}
    except (OSError, ValueError):
        return {}


def _remember(folder: Path, path: Path) -> None:
    bases = {**_bases(folder), path.name: _digest(path)}
    (folder / FOLDER / "released.json").write_text(json.dumps(bases, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(data, dict) and isinstance(data.get("cells"), list):
            return data
    except (OSError, ValueError):
        pass
    raise NotebookError(
        f"{path} is not a readable notebook; move it away (it is not touched) and run the command again"
    )


def _write(path: Path, notebook: dict[str, Any]) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n", encoding="utf-8")
    os.replace(temporary, path)
