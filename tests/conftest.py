"""Shared by all tests: answers written as notebooks."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from grader import build
from grader.lesson import Lesson, load_lesson

# nbgrader runs a bare `alembic`: the interpreter's folder comes first on PATH, as in every entry point
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

# A process that a shell started in the background ignores Ctrl-C, and so would all that the tests start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def lesson_02() -> Lesson:
    return load_lesson("02")


@pytest.fixture
def write_answer(tmp_path: Path) -> Callable[..., Path]:
    """`write_answer("02", {"softmax": "def softmax..."})`: the released notebook with these answers, as a file."""

    def write(lesson: str, answers: Mapping[str, str] | str = "reference", name: str = "answer.ipynb") -> Path:
        source = load_lesson(lesson)
        notebook: dict[str, Any] = json.loads(build.as_bytes(build.student_notebook(source)))
        for cell in notebook["cells"]:
            tag = cell["metadata"].get("grader", {})
            if tag.get("role") != "solve":
                continue
            if answers == "reference":
                cell["source"] = source.exercise(tag["name"]).reference
            elif isinstance(answers, Mapping) and tag["name"] in answers:
                cell["source"] = answers[tag["name"]]
        path = tmp_path / name
        path.write_text(json.dumps(notebook))
        return path

    return write
