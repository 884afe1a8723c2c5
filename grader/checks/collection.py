"""Collecting checks: pytest finds them in their files, once a process; the judge then puts them to many answers.

Running each through a pytest session instead would cost two milliseconds a check and 25 a session, more than most
checks take.
"""

from __future__ import annotations

import functools
import inspect
import os
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from grader.checks.check import ARGUMENTS, Check
from grader.report import KINDS

_QUIET = (
    "--collect-only", "--assert=plain", "--disable-plugin-autoload", "--import-mode=importlib", "--capture=no",
    "--strict-markers", "-c", os.devnull, "--rootdir", str(Path(__file__).parent),
    *(f"-pno:{name}" for name in (
        "terminal", "cacheprovider", "junitxml", "debugging", "stepwise", "nose", "doctest", "pastebin", "logging",
        "faulthandler", "unraisableexception", "threadexception", "warnings", "setuponly", "setupplan", "recwarn",
    )),
)  # fmt: skip


class CheckFileError(Exception):
    """A check file itself is broken: not a verdict on anybody's answer."""


@lru_cache(maxsize=64)
def collect(*files: Path) -> tuple[Check, ...]:
    """The checks in these files, in their order.

    Raises:
        CheckFileError: when pytest cannot collect a file, or a test in it is no check.
        KeyboardInterrupt: passed on.
    """
    if not files:
        return ()
    found = _Collector()
    options = os.environ.pop("PYTEST_ADDOPTS", None)
    try:
        code = pytest.main([*_QUIET, *map(str, files)], plugins=[found])
    finally:
        if options is not None:
            os.environ["PYTEST_ADDOPTS"] = options
    if code == pytest.ExitCode.INTERRUPTED and not found.errors:
        raise KeyboardInterrupt
    if found.errors or code is not pytest.ExitCode.OK:
        raise CheckFileError("\n".join(found.errors) or f"pytest ended with {code!r} on {', '.join(map(str, files))}")
    return tuple(_check(item) for item in found.items)


class _Collector:
    """Keeps what pytest collects."""

    def __init__(self) -> None:
        self.items: Sequence[pytest.Function] = ()
        self.errors: list[str] = []

    def pytest_configure(self, config: pytest.Config) -> None:
        config.addinivalue_line("markers", "exercise(name): the exercise that a class of checks judges")
        for kind in KINDS:
            config.addinivalue_line("markers", f"{kind}(points=1): a check of kind {kind}")

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.items = [item for item in session.items if isinstance(item, pytest.Function)]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.errors.append(_in_a_sentence(report.nodeid, str(report.longrepr)))


def _in_a_sentence(node: str, text: str) -> str:
    """What pytest says of a file that it cannot collect: the last place in a check file, and the error itself."""
    places = re.findall(r"(\S+\.py):(\d+)|File \"([^\"]+\.py)\", line (\d+)", text)
    ours = [(a or b, c or d) for a, c, b, d in places if Path(a or b).name.startswith("test_")]
    errors = [line[1:].strip() for line in text.splitlines() if re.match(r"E\s+\w+(Error|Exception)", line)]
    where = "{}:{}".format(*ours[-1]) if ours else node
    return f"{where}: {errors[-1] if errors else text.strip().splitlines()[-1]}"


def _check(item: pytest.Function) -> Check:
    marker = item.get_closest_marker("exercise")
    if marker is None or item.cls is None:
        raise CheckFileError(f'{item.nodeid}: a check is a method of a class that is marked @exercise("name")')
    marks = [mark for mark in item.iter_markers() if mark.name in KINDS]
    if not marks:
        raise CheckFileError(f"{item.nodeid}: a check needs one of the markers {', '.join(KINDS)}")
    parameters: dict[str, Any] = dict(item.callspec.params) if hasattr(item, "callspec") else {}
    name = item.originalname.removeprefix("test_") + "".join(f"[{value}]" for value in parameters.values())
    wanted = tuple(inspect.signature(item.function).parameters)[1:]
    unknown = [argument for argument in wanted if argument not in (*ARGUMENTS, *parameters)]
    if unknown:
        raise CheckFileError(f"{item.nodeid}: a check may ask for {', '.join(ARGUMENTS)}; {unknown[0]} is none of them")
    return Check(
        exercise=str(marker.args[0]),
        name=name,
        title=(item.function.__doc__ or name).strip().split("\n")[0].rstrip("."),
        kind=marks[0].name,
        points=float(marks[0].kwargs.get("points", 1)),
        hidden=item.path.parent.name == "hidden",
        without=tuple(marker.kwargs.get("without", ())),
        wants=tuple(argument for argument in wanted if argument not in parameters),
        test=_method(item.cls, item.originalname, parameters),
    )


def _method(cls: type, name: str, parameters: dict[str, Any]) -> Callable[..., None]:
    """The test as a function; each run gets an instance of its own, as pytest does it."""

    @functools.wraps(getattr(cls, name))
    def test(**arguments: Any) -> None:
        getattr(cls(), name)(**arguments, **parameters)

    return test
