"""A submission: an answer that can be called.

The reference, a learner's notebook, a student's file and a deliberately wrong variant are all `Submission`s. This
module runs their cells in this process; `grader.sandbox` offers the same interface for an answer behind a wall.

What is run of an answer: the lesson's own given cells first, then, of each cell of the answer, its imports, functions,
classes and the assignments that these need. Bare expressions (prints, plots, calls of `check`) and demo cells are not
run, so an experiment costs nothing when grading. A statement that fails because a later cell defines its name is tried
again at the end: cells may stand in any order.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import linecache
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Protocol

from grader.lesson import Cell

CELL_PREFIX = "<cell "
"""File names of an answer's code begin like this; the learner's own frames are recognised by it."""

LOCATION = "__learner_location__"
"""Attribute of an exception that crossed a wall: its `Location` in the learner's code."""


class AnswerError(Exception):
    """There is no answer to judge, and why. `status` is the exercise's status in the report."""

    status = "error"


class NotStarted(AnswerError):
    """The stub is untouched."""

    status = "missing"


class Missing(AnswerError):
    """The answer defines nothing under the exercise's name."""

    status = "missing"


class BrokenCell(AnswerError):
    """The exercise's cell raises before it defines anything."""


class NoVerdict(Exception):
    """The judge itself cannot go on: this says nothing about anybody's answer."""


class Forbidden(Exception):
    """The answer called the very operation that the exercise asks to write."""


class Overwritten(Exception):
    """A call of the answer changed what an earlier one had returned."""


class AnswerLost(BaseException):
    """The answer can no longer be asked: judging this exercise ends here. Not an `Exception`: no answer swallows it."""

    status = "crashed"


class AnswerTimeout(AnswerLost):
    """No answer within the time limit."""

    status = "timeout"


class AnswerCrashed(AnswerLost):
    """The process that held the answer is gone: exit code, signal or limit."""


@dataclass(frozen=True)
class Location:
    """A line of the learner's own code."""

    cell: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.cell}, line {self.line}: {self.text}" if self.text else f"{self.cell}, line {self.line}"


class Answers(Protocol):
    """What the judge asks of a submission, wherever it lives."""

    label: str

    def answer(self, name: str) -> Any:
        """The object written under `name`. Raises `AnswerError` when there is none."""

    def uses(self, name: str) -> frozenset[str]:
        """Global names that the code under `name` reads, directly or through the answer's other functions."""

    def swap(self, replacements: Mapping[str, Any]) -> Mapping[str, Any]:
        """Put other objects under these names for the answer's own calls; gives back what undoes it."""

    def forbidding(self, operators: Collection[str]) -> AbstractContextManager[None]:
        """While it is entered, a call of one of these ATen operators by the answer raises `Forbidden`."""

    def close(self) -> None:
        """Release what the submission holds."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """End what runs inside when it has computed for `seconds`, or waited for three times as long, by `AnswerTimeout`.

    Time that a busy machine gives to others does not count against an answer. In this process that needs a signal, so
    it works in the main thread of a POSIX system and does nothing elsewhere; and code that never returns to Python is
    not ended. The sandbox has no such gaps.
    """
    if threading.current_thread() is not threading.main_thread() or not hasattr(signal, "setitimer"):
        yield
        return

    cpu, wall = time.process_time(), time.monotonic()

    def ring(_signum: int, _frame: object) -> None:
        left = seconds - (time.process_time() - cpu)
        if left > 0.01 * seconds and time.monotonic() - wall < 3 * seconds:
            signal.setitimer(signal.ITIMER_REAL, left)
            return
        raise AnswerTimeout(f"timeout: no answer within {seconds:g} s")

    former = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


@contextmanager
def forbid(operators: Collection[str]) -> Iterator[None]:
    """Let a call of one of these ATen operators ("_softmax", below any Python spelling) raise `Forbidden`."""
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    # an operator that PyTorch composes of others never reaches the dispatch: it is noticed where Python calls it
    implicit = "CompositeImplicitAutograd"
    composed = {o for o in operators if torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{o}", implicit)}

    class Below(TorchDispatchMode):
        @classmethod
        def _should_skip_dynamo(cls) -> bool:
            return False  # else the first guarded operator imports the compiler, which takes a second

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            _refuse(func._schema.name.split("::")[-1], operators)
            return func(*args, **(kwargs or {}))

    class Above(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            _refuse(str(getattr(func, "__name__", "")).split(".")[0], composed)
            return func(*args, **(kwargs or {}))

    with Below(), Above() if composed else nullcontext():
        yield


def _refuse(name: str, operators: Collection[str]) -> None:
    if name in operators:
        spelled = "scaled_dot_product_attention" if "scaled_dot" in name or "safe" in name else name.strip("_")
        raise Forbidden(f"the answer calls PyTorch's own {spelled}, which this exercise asks you to write")


class _Shell:
    """Stands in for IPython's shell in an answer: magics do nothing."""

    def __getattr__(self, _name: str) -> Any:
        return _silent


def _silent(*_args: Any, **_kwargs: Any) -> None:
    return None


class Submission:
    """An answer in this process.

    Args:
        cells: the answer's cells.
        names: the exercises' names, where the cells do not say them all: an assignment of one is run.
        given: the lesson's own given cells, run in full before the answer's.
        label: what to call it in messages and in file names of its code.
        base: a namespace to start from instead of running `given` (it is copied).
        begin: called with each cell before statements of it are run, so that one that never ends can be named.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        *,
        names: Collection[str] = (),
        given: Sequence[Cell] = (),
        label: str = "answer",
        base: Mapping[str, Any] | None = None,
        begin: Callable[[Cell], None] = _silent,
    ) -> None:
        self.label = label
        self._begin = begin
        self._errors: dict[str, BaseException] = {}
        self._solved: set[str] = {cell.name for cell in cells if cell.role == "solve"}
        self.namespace: dict[str, Any] = {"__name__": "__answer__", "__builtins__": builtins}
        if base is None:
            self.namespace |= {"get_ipython": _Shell, "display": _silent}
            for cell in given:
                program = _Program(cell, label)
                for statement in program.statements:
                    statement.run(self.namespace)
        else:
            self.namespace |= base
        self._names = self._solved | set(names)
        self._run([cell for cell in cells if cell.kind == "code" and cell.role not in ("demo", "check")])

    def answer(self, name: str) -> Any:
        """The object that the answer defines under `name`.

        Raises:
            BrokenCell: the exercise's cell failed first. NotStarted is found out by calling, so not raised here.
            Missing: nothing defines it.
        """
        if name in self._errors and name not in self.namespace:
            raise BrokenCell(describe(self._errors[name])) from None
        if name not in self.namespace:
            where = "its cell does not define it" if name in self._solved else "no cell defines it"
            raise Missing(f"{name} is missing: {where}; write `def {name}(...)` or `class {name}` in its cell")
        return self.namespace[name]

    def uses(self, name: str) -> frozenset[str]:
        """See `Answers.uses`."""
        return names_used(self.namespace, name)

    def swap(self, replacements: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Answers.swap`."""
        return swap_names(self.namespace, replacements)

    def forbidding(self, operators: Collection[str]) -> AbstractContextManager[None]:
        """See `Answers.forbidding`."""
        return forbid(operators)

    def close(self) -> None:
        """Nothing is held beyond memory."""

    def _run(self, cells: Iterable[Cell]) -> None:
        programs = []
        for cell in cells:
            self._begin(cell)  # compiling can take long, too
            programs.append(_Program(cell, self.label))
        chosen = _select(programs, self._names)
        pending: list[tuple[_Program, _Statement]] = []
        settled: dict[str, Any] = {}
        for program in programs:
            if program.error is not None:
                self._note(program.cell, program.error)
            self._begin(program.cell)
            for statement in program.statements:
                if statement not in chosen:
                    continue
                error = statement.try_run(self.namespace)
                if error is not None:
                    pending.append((program, statement))
                    self._note(program.cell, error)
            # the exercise's own cell has the last word on its name: later cells may be experiments
            name = program.cell.name
            if program.cell.role == "solve" and name in self.namespace and program.defines(name):
                settled[name] = self.namespace[name]
        progress = True
        while pending and progress:
            still = []
            for program, statement in pending:
                self._begin(program.cell)
                if statement.try_run(self.namespace) is not None:
                    still.append((program, statement))
            progress = len(still) < len(pending)
            pending = still
        self.namespace |= settled

    def _note(self, cell: Cell, error: BaseException) -> None:
        if cell.role == "solve":
            self._errors.setdefault(cell.name, error)
        else:
            for name in _defined_names(cell.source):
                self._errors.setdefault(name, error)


@dataclass(frozen=True, eq=False)
class _Statement:
    """One top-level statement of a cell, compiled by itself so that one failure does not stop the cell."""

    code: CodeType
    targets: frozenset[str]
    needs: frozenset[str]
    is_definition: bool

    def run(self, namespace: dict[str, Any]) -> None:
        exec(self.code, namespace)

    def try_run(self, namespace: dict[str, Any]) -> BaseException | None:
        try:
            self.run(namespace)
        except (Exception, SystemExit) as error:
            return error
        return None


class _Program:
    """A cell's statements."""

    def __init__(self, cell: Cell, label: str) -> None:
        self.cell = cell
        self.error: SyntaxError | None = None
        self.statements: list[_Statement] = []
        self.filename = f"{CELL_PREFIX}{cell.number or cell.name} of {label}>"
        source = _without_magics(cell.source)
        linecache.cache[self.filename] = (len(source), None, source.splitlines(keepends=True), self.filename)
        try:
            tree = ast.parse(source, self.filename)
            self.statements = list(self._compile(tree))
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            self.error = error if isinstance(error, SyntaxError) else SyntaxError(str(error))

    def _compile(self, tree: ast.Module) -> Iterator[_Statement]:
        flags = 0
        for node in tree.body:
            if isinstance(node, ast.ImportFrom) and node.module == "__future__":
                import __future__

                for alias in node.names:
                    flags |= getattr(__future__, alias.name).compiler_flag
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "grader":
                node = ast.parse("\n".join(f"{a.asname or a.name} = lambda *a, **k: None" for a in node.names)).body[0]
                ast.increment_lineno(node, 0)
            code = compile(ast.Module([node], []), self.filename, "exec", flags=flags, dont_inherit=True)
            yield _Statement(code, frozenset(_bound(node)), frozenset(_global_names(code)), _is_definition(node))

    def defines(self, name: str) -> bool:
        return any(name in statement.targets for statement in self.statements)


def _select(programs: Sequence[_Program], names: Collection[str]) -> set[_Statement]:
    """What to run: definitions, a solve cell's assignments, assignments of `names` and of what all these need."""
    statements = [(s, p.cell.role == "solve") for p in programs for s in p.statements if s.targets]
    chosen = {s for s, in_solve in statements if s.is_definition or in_solve or s.targets & set(names)}
    frontier = chosen
    while frontier:
        wanted = set().union(*(s.needs for s in frontier))
        frontier = {s for s, _ in statements if s not in chosen and s.targets & wanted}
        chosen |= frontier
    return chosen


def _is_definition(node: ast.stmt) -> bool:
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Import, ast.ImportFrom)
    if isinstance(node, kinds):
        return True
    if isinstance(node, ast.If | ast.Try | ast.With):
        return any(isinstance(inner, kinds) for inner in ast.walk(node))
    return False


def _bound(node: ast.stmt) -> set[str]:
    """Names that a top-level statement binds; a loop or a bare expression counts as binding nothing: it is not run."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    if isinstance(node, ast.Import | ast.ImportFrom):
        return {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        names = {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
        return names
    if isinstance(node, ast.If | ast.Try | ast.With) and _is_definition(node):
        return {
            name
            for inner in ast.walk(node)
            if isinstance(inner, ast.stmt) and inner is not node
            for name in _bound(inner)
        }
    return set()


def _global_names(code: CodeType) -> set[str]:
    names = {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _global_names(constant)
    return names


def names_used(namespace: Mapping[str, Any], name: str) -> frozenset[str]:
    """Global names that the function or class `name` reads, followed through the namespace's functions."""
    found: set[str] = set()
    frontier = {name}
    while frontier:
        codes = [code for each in frontier for code in _codes(namespace.get(each))]
        used = set().union(*map(_global_names, codes))
        frontier = used & namespace.keys() - found
        found |= used
    return frozenset(found)


class _Absent:
    """Stands for nothing under a name, in what `swap_names` gives back."""


def swap_names(namespace: dict[str, Any], replacements: Mapping[str, Any]) -> dict[str, Any]:
    """Put objects under names; gives back what stood there, which undoes it when it is put in its turn."""
    former = {name: namespace.get(name, _Absent) for name in replacements}
    namespace.update(replacements)
    for name in [name for name in replacements if namespace[name] is _Absent]:
        del namespace[name]
    return former


def _codes(thing: Any) -> list[CodeType]:
    """The code of a function, or of a class's own methods."""
    if isinstance(thing, type):
        return [code for member in vars(thing).values() for code in _codes(member) if not isinstance(member, type)]
    code = getattr(inspect.unwrap(thing) if callable(thing) else thing, "__code__", None)
    return [code] if isinstance(code, CodeType) else []


def _defined_names(source: str) -> set[str]:
    """Names of functions and classes that a cell's text seems to define, even when it does not parse."""
    names = set()
    for line in source.split("\n"):
        words = line.replace("(", " ").replace(":", " ").split()
        if len(words) > 1 and words[0] in ("def", "class"):
            names.add(words[1])
    return names


def _without_magics(source: str) -> str:
    """Python source with IPython's magics blanked, line for line, so that line numbers stay the learner's.

    `%%time`-like cell magics lose their first line; a cell in another language (`%%bash`, `%%html`, ...) is empty.
    """
    lines = source.split("\n")
    first = next((line.strip() for line in lines if line.strip()), "")
    if first.startswith("%%"):
        if first.split()[0] not in ("%%time", "%%timeit", "%%capture", "%%prun"):
            return ""
        start = next(i for i, line in enumerate(lines) if line.strip())
        lines[start] = ""
    try:
        ast.parse("\n".join(lines))
        return "\n".join(lines)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass
    for index, line in enumerate(lines):
        stripped = line.lstrip()
        if stripped.startswith(("%", "!", "?")) or (stripped.endswith("?") and not stripped.startswith("#")):
            lines[index] = line[: len(line) - len(stripped)] + "pass"
    return "\n".join(lines)


_NOT_THE_LEARNERS = (
    str(Path(__file__).parent),
    sys.prefix,
    sys.base_prefix,
    "<frozen",
    "<@beartype",
    "<__array_function__",
)
"""Where the code of the grader, of Python and of packages comes from: everything else is the learner's."""


def locate(error: BaseException) -> Location | None:
    """The innermost line of the learner's own code in an exception's traceback."""
    crossed = getattr(error, LOCATION, None)
    if isinstance(crossed, Location):
        return crossed
    found = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        filename = frame.f_code.co_filename
        if not filename.startswith(_NOT_THE_LEARNERS) and "site-packages" not in filename:
            cell = filename.split(" of ")[0].lstrip("<") if filename.startswith(CELL_PREFIX) else "your cell"
            found = Location(cell, line, linecache.getline(filename, line).strip())
    if found is None and isinstance(error, SyntaxError) and (error.filename or "").startswith(CELL_PREFIX):
        cell = str(error.filename).split(" of ")[0].lstrip("<")
        found = Location(cell, error.lineno or 0, (error.text or "").strip())
    return found


def describe(error: BaseException, limit: int = 400) -> str:
    """An exception in one line, with the learner's own line and none of the grader's frames."""
    message = str(error.msg if isinstance(error, SyntaxError) else error).strip().replace("\n", " ")
    if len(message) > limit:
        message = message[: limit - 3] + "..."
    text = f"{type(error).__name__}: {message}" if message else type(error).__name__
    location = locate(error)
    return f"{text} (in {location})" if location else text
