"""A lesson as data: the cells of a source file or of anybody's notebook.

A lesson is written once, as `solutions/NN_slug.py` in jupytext's percent format. The short keys on a cell line say
what a cell is for (`solve="attention" points=6 ...`); in a notebook the same facts stand under `metadata.grader`.
This module turns either into `Cell`s, and a source file into a checked `Lesson`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
COURSE = ROOT / "course"
SOLUTIONS = ROOT / "solutions"
if not SOLUTIONS.is_dir():  # a student's kit carries the lessons inside the package, without their solutions
    SOLUTIONS = Path(__file__).resolve().parent / "lessons"

BEGIN, END = "### BEGIN SOLUTION", "### END SOLUTION"
NOT_STARTED = "not started"
STUB = f'# YOUR CODE HERE\nraise NotImplementedError("{NOT_STARTED}")'

MAX_BYTES = 50_000_000
"""A notebook larger than this is refused: a lesson with every plot in it is below 3 MB."""

ROLES = ("solve", "check", "demo", "hints", "essay")
_OPTIONS: Mapping[str, frozenset[str]] = {
    "solve": frozenset({"points", "difficulty", "importance", "minutes"}),
    "essay": frozenset({"points"}),
    "check": frozenset(),
    "demo": frozenset(),
    "hints": frozenset(),
    "text": frozenset(),
    "given": frozenset(),
}
_MARKER = re.compile(r"^# %%(?!%)")


class LessonError(Exception):
    """A lesson's source breaks the format: names file and line, what is wrong, and the mend."""

    def __init__(self, path: Path, line: int, problem: str, mend: str) -> None:
        super().__init__(f"{path.name}:{line}: {problem}; {mend}")
        self.path, self.line, self.problem, self.mend = path, line, problem, mend


class NotebookError(Exception):
    """A file that cannot be used as an answer: one sentence with what was given, what was expected, what to do."""


@dataclass(frozen=True)
class Cell:
    """One cell of a lesson or of an answer.

    `role` is one of `text` (Markdown), `given` (code that also runs when grading), `demo` (code that does not),
    `solve`, `check`, `hints` and `essay`; `name` is the exercise or essay that it belongs to. `number` counts the
    cells of the file from 1, as a learner does; `line` is its line in a source file (0 in a notebook).
    """

    kind: str
    source: str
    role: str
    name: str = ""
    number: int = 0
    line: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def id(self) -> str:
        """The notebook's cell id: from the exercise's name, or from the content where there is none."""
        if self.role == "check":
            return f"{self.name}-check"
        if self.name:
            return self.name
        return f"{self.role}-{hashlib.sha256(self.source.encode()).hexdigest()[:12]}"

    @property
    def claims(self) -> tuple[str, ...]:
        """Ids of the seed documents' statements (`solutions/claims.toml`) for which this cell answers."""
        return tuple(str(self.options.get("claims", "")).split())


@dataclass(frozen=True)
class Exercise:
    """One thing to write: a function or a class, with its reference solution and its hints."""

    name: str
    lesson: str
    points: float
    difficulty: int
    importance: int
    minutes: int
    source: str
    hints: tuple[str, ...]

    @property
    def reference(self) -> str:
        """The solution without its markers."""
        return "\n".join(line for line in self.source.split("\n") if line.strip() not in (BEGIN, END))

    @property
    def stub(self) -> str:
        """What the learner's notebook shows in place of the solution."""
        return clear_solution(self.source)


@dataclass(frozen=True, eq=False)
class Lesson:
    """A lesson read from its source: `id` is the file's stem ("02_queries_keys_values"), `number` its first digits."""

    id: str
    title: str
    cells: tuple[Cell, ...]
    exercises: tuple[Exercise, ...]
    path: Path

    @property
    def number(self) -> str:
        return self.id[:2]

    @property
    def given(self) -> tuple[Cell, ...]:
        """The cells that run before any answer: imports, constants, small functions."""
        return tuple(cell for cell in self.cells if cell.role == "given")

    @property
    def reference_cells(self) -> tuple[Cell, ...]:
        """The given and the solved cells in order: what the reference answer consists of."""
        return tuple(cell for cell in self.cells if cell.role in ("given", "solve"))

    def exercise(self, name: str) -> Exercise:
        """The exercise of that name.

        Raises:
            KeyError: with the names there are.
        """
        for exercise in self.exercises:
            if exercise.name == name:
                return exercise
        raise KeyError(f"lesson {self.id} has no exercise {name!r}; it has {', '.join(e.name for e in self.exercises)}")


@dataclass(frozen=True)
class Notebook:
    """An answer as it was handed in: its cells, and the lesson that it says it belongs to ("" when it does not say)."""

    path: Path
    lesson: str
    cells: tuple[Cell, ...]


def clear_solution(source: str) -> str:
    """`source` with each solution region replaced by the stub, at the region's indentation."""
    out: list[str] = []
    inside = False
    for line in source.split("\n"):
        if line.strip() == BEGIN:
            inside = True
            indent = line[: len(line) - len(line.lstrip())]
            out += [indent + stub for stub in STUB.split("\n")]
        elif line.strip() == END:
            inside = False
        elif not inside:
            out.append(line)
    return "\n".join(out)


# ---------------------------------------------------------------------------------------------------- sources


def read_lesson(path: Path) -> Lesson:
    """Read and check one lesson source.

    Raises:
        LessonError: with file, line and mend, for an unknown key, a duplicate exercise, a check or hints without an
            exercise, a missing check, missing markers, hints that are not three.
    """
    cells = _read_percent(path, path.read_text(encoding="utf-8"))
    if not cells or not cells[0].source.startswith("# "):
        raise LessonError(
            path, 1, "the lesson has no title", 'begin with a Markdown cell whose first line is "# NN Title"'
        )
    title = cells[0].source.split("\n")[0].removeprefix("# ").strip()
    _require_pairs(path, cells)
    hints = {cell.name: _hint_items(path, cell) for cell in cells if cell.role == "hints"}
    exercises = []
    for cell in cells:
        if cell.role != "solve":
            continue
        values = {}
        for key in ("points", "difficulty", "importance", "minutes"):
            value = cell.options.get(key)
            if not isinstance(value, int | float) or value <= 0:
                raise LessonError(
                    path, cell.line, f"exercise {cell.name!r} has {key}={value!r}", f"write {key}=<a number>"
                )
            values[key] = value
        exercises.append(
            Exercise(
                name=cell.name,
                lesson=path.stem,
                points=float(values["points"]),
                difficulty=int(values["difficulty"]),
                importance=int(values["importance"]),
                minutes=int(values["minutes"]),
                source=cell.source,
                hints=hints[cell.name],
            )
        )
    return Lesson(id=path.stem, title=title, cells=tuple(cells), exercises=tuple(exercises), path=path)


def _read_percent(path: Path, text: str) -> list[Cell]:
    import jupytext

    notebook = jupytext.reads(text, fmt="py:percent")
    lines = [number for number, line in enumerate(text.split("\n"), 1) if _MARKER.match(line)]
    if len(lines) != len(notebook.cells):  # text before the first marker is a cell of its own
        lines = [1, *lines]
    cells = []
    for number, (raw, line) in enumerate(zip(notebook.cells, lines, strict=False), 1):
        options = {key: value for key, value in raw.metadata.items() if key != "lines_to_next_cell"}
        if options.get("title") == "demo":
            options["demo"] = options.pop("title")
        roles = [role for role in ROLES if role in options]
        if len(roles) > 1:
            raise LessonError(path, line, f"a cell is both {roles[0]!r} and {roles[1]!r}", "split it in two")
        role = roles[0] if roles else ("given" if raw.cell_type == "code" else "text")
        unknown = set(options) - _OPTIONS[role] - {role, "claims"}
        if unknown:
            known = ", ".join([*ROLES, "claims", *sorted(_OPTIONS[role])])
            raise LessonError(path, line, f"unknown key {min(unknown)!r} on a cell line", f"use one of: {known}")
        name = "" if role in ("demo", "given", "text") else str(options.pop(role))
        options.pop("demo", None)
        cells.append(Cell(raw.cell_type, raw.source, role, name, number, line, options))
    return cells


def _require_pairs(path: Path, cells: Iterable[Cell]) -> None:
    """Each exercise is solved, checked and hinted at exactly once; each essay has a model answer."""
    seen: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        if not cell.name:
            continue
        if (cell.role, cell.name) in seen:
            first = seen[cell.role, cell.name].line
            raise LessonError(
                path, cell.line, f"{cell.role}={cell.name!r} stands twice", f"the first is on line {first}: remove one"
            )
        seen[cell.role, cell.name] = cell
        expected = "markdown" if cell.role in ("hints", "essay") else "code"
        if cell.kind != expected:
            raise LessonError(
                path, cell.line, f"the {cell.role} cell of {cell.name!r} is a {cell.kind} cell", f"make it {expected}"
            )
        if cell.role in ("solve", "essay"):
            lines = [line.strip() for line in cell.source.split("\n")]
            begins, ends = lines.count(BEGIN), lines.count(END)
            if begins == 0 or begins != ends:
                raise LessonError(
                    path,
                    cell.line,
                    f"{cell.name!r} has {begins} '{BEGIN}' and {ends} '{END}'",
                    "enclose the solution in both",
                )
    for (role, name), cell in seen.items():
        if role in ("check", "hints") and ("solve", name) not in seen:
            raise LessonError(
                path, cell.line, f"{role}={name!r} has no exercise", f'add a cell solve="{name}" or mend the name'
            )
    for (role, name), cell in seen.items():
        for partner in ("check", "hints"):
            if role == "solve" and (partner, name) not in seen:
                raise LessonError(
                    path, cell.line, f"exercise {name!r} has no {partner} cell", f'add a cell {partner}="{name}"'
                )


def _hint_items(path: Path, cell: Cell) -> tuple[str, ...]:
    items = tuple(item.strip() for item in re.split(r"^\d+\.\s+", cell.source, flags=re.MULTILINE)[1:])
    if len(items) != 3:
        raise LessonError(
            path, cell.line, f"{cell.name!r} has {len(items)} hints", "write three, as a list numbered 1. 2. 3."
        )
    return items


@lru_cache(maxsize=1)
def lesson_paths() -> tuple[Path, ...]:
    """The sources of all lessons, in their order."""
    return tuple(sorted(SOLUTIONS.glob("[0-9][0-9]_*.py")))


@lru_cache(maxsize=64)
def load_lesson(lesson_id: str) -> Lesson:
    """The lesson with that id, or with that number ("02").

    Raises:
        KeyError: with the lessons there are.
    """
    for path in lesson_paths():
        if lesson_id in (path.stem, path.stem[:2]):
            return read_lesson(path)
    raise KeyError(
        f"there is no lesson {lesson_id!r}; there are {', '.join(path.stem for path in lesson_paths()) or 'none'}"
    )


def load_course() -> tuple[Lesson, ...]:
    """All lessons in their order."""
    return tuple(load_lesson(path.stem) for path in lesson_paths())


@lru_cache(maxsize=1)
def exercise_index() -> Mapping[str, str]:
    """Exercise name to lesson id, read without jupytext: the names are unique in the whole course.

    Raises:
        LessonError: where two lessons use one name.
    """
    index: dict[str, str] = {}
    for path in lesson_paths():
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), 1):
            found = re.match(r"^# %% .*\bsolve=\"(\w+)\"", line)
            if found:
                name = found.group(1)
                if name in index and index[name] != path.stem:
                    raise LessonError(
                        path, number, f"exercise {name!r} also stands in {index[name]}", "rename one of them"
                    )
                index[name] = path.stem
    return index


# ---------------------------------------------------------------------------------------------------- answers


def read_notebook(path: Path) -> Notebook:
    """Read an answer: an `.ipynb`, or a `.py` in the percent format (or plain Python).

    Raises:
        NotebookError: one sentence that says what the file is, what was expected and what to do.
    """
    if not path.exists():
        raise NotebookError(
            f"{path} does not exist; give the path of a lesson's notebook (.ipynb) or percent file (.py)"
        )
    if not path.is_file() or path.suffix not in (".ipynb", ".py"):
        kind = "a folder" if path.is_dir() else f"a {path.suffix or 'file without ending'}"
        raise NotebookError(f"{path} is {kind}; expected a lesson's notebook (.ipynb) or percent file (.py)")
    size = path.stat().st_size
    if size > MAX_BYTES:
        raise NotebookError(
            f"{path} has {size / 1e6:.0f} MB, more than the {MAX_BYTES / 1e6:.0f} MB that are read; "
            "clear its outputs and save it"
        )
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotebookError(f"{path} is not UTF-8 text (byte {error.start}); save it again from Jupyter") from None
    return _answer_from_percent(path, text) if path.suffix == ".py" else _answer_from_json(path, text)


def lesson_of(notebook: Mapping[str, Any]) -> str:
    """The lesson that a notebook says it is, whoever wrote it; "" when it says nothing of the kind."""
    metadata = notebook.get("metadata")
    ours = metadata.get("grader") if isinstance(metadata, Mapping) else None
    name = ours.get("lesson") if isinstance(ours, Mapping) else None
    return name if isinstance(name, str) else ""


def _answer_from_json(path: Path, text: str) -> Notebook:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        if isinstance(error, json.JSONDecodeError):
            where = f"line {error.lineno}: {error.msg}"
        else:
            where = "it is nested too deeply" if isinstance(error, RecursionError) else "it holds a number without end"
        what = "is empty" if not text.strip() else f"is not complete JSON ({where})"
        raise NotebookError(f"{path} {what}; it was probably cut off: save or download it again") from None
    if not isinstance(data, dict) or not isinstance(data.get("cells"), list):
        raise NotebookError(
            f"{path} is JSON but not a notebook of format 4: it has no list of cells; open and save it in JupyterLab"
        )
    cells = []
    for number, raw in enumerate(data["cells"], 1):
        if not isinstance(raw, dict) or raw.get("cell_type") not in ("code", "markdown", "raw"):
            raise NotebookError(
                f"{path}: cell {number} is neither code, Markdown nor raw; open and save it in JupyterLab"
            )
        source = raw.get("source", "")
        if isinstance(source, list) and all(isinstance(line, str) for line in source):
            source = "".join(source)
        if not isinstance(source, str):
            raise NotebookError(f"{path}: the source of cell {number} is not text; open and save it in JupyterLab")
        cell_metadata = raw.get("metadata")
        tag = cell_metadata.get("grader") if isinstance(cell_metadata, dict) else None
        tag = tag if isinstance(tag, dict) else {}
        role, name = tag.get("role"), tag.get("name", "")
        if role not in (*ROLES, "given", "text"):
            role, name = ("given" if raw["cell_type"] == "code" else "text"), ""
            if raw["cell_type"] == "code":
                role = "extra"
        cells.append(Cell(raw["cell_type"], source, role, name if isinstance(name, str) else "", number))
    return Notebook(path, lesson_of(data), tuple(cells))


def _answer_from_percent(path: Path, text: str) -> Notebook:
    try:
        cells = _read_percent(path, text)
    except LessonError as error:
        raise NotebookError(f"{error.path}:{error.line}: {error.problem}; {error.mend}") from None
    extra = [
        Cell(c.kind, c.source, "extra" if c.role == "given" else c.role, c.name, c.number, c.line, c.options)
        for c in cells
    ]
    return Notebook(path, "", tuple(extra))


def find_lesson(notebook: Notebook) -> Lesson:
    """The lesson to which an answer belongs: what its metadata says, else its exercises, else its file name.

    Raises:
        NotebookError: when it belongs to none.
    """
    ids = {path.stem for path in lesson_paths()}
    if notebook.lesson:
        if notebook.lesson in ids:
            return load_lesson(notebook.lesson)
        raise NotebookError(
            f"{notebook.path} says that it is lesson {notebook.lesson!r}, which this course does not have; "
            f"it has {', '.join(sorted(ids))}"
        )
    votes: dict[str, int] = {}
    index = exercise_index()
    for cell in notebook.cells:
        names = (
            {cell.name} if cell.name else set(re.findall(r"^(?:def|class)\s+(\w+)", cell.source, flags=re.MULTILINE))
        )
        for name in names & set(index):
            votes[index[name]] = votes.get(index[name], 0) + 1
    if votes:
        return load_lesson(max(votes, key=lambda lesson: (votes[lesson], lesson)))
    if notebook.path.stem in ids:
        return load_lesson(notebook.path.stem)
    raise NotebookError(
        f"{notebook.path} has no exercise of any lesson of this course; "
        f"expected a notebook made from one of {', '.join(sorted(ids))}"
    )
