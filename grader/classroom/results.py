"""Verdicts as files: what was judged with what, so that a class can be resumed, and judged again after a correction."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from grader.lesson import Cell, Lesson
from grader.report import CheckResult, ExerciseResult, Picture, Report

PACKAGE = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Record:
    """One judged notebook: the verdicts, and all that decided them."""

    answers: str
    checks: str
    seed: int
    isolation: str
    report: Report

    def as_data(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Record:
        """The record that `as_data` wrote.

        Raises:
            KeyError, TypeError, ValueError: when it is not one.
        """
        return cls(**{**data, "report": _report(data["report"])})


def _report(data: dict[str, Any]) -> Report:
    exercises = []
    for exercise in data["exercises"]:
        checks = tuple(CheckResult(**{**c, "picture": _picture(c["picture"])}) for c in exercise["checks"])
        exercises.append(ExerciseResult(**{**exercise, "checks": checks}))
    return Report(data["lesson"], tuple(exercises), data["printed"])


def _picture(data: dict[str, Any] | None) -> Picture | None:
    return None if data is None else Picture(**{**data, "wrong": tuple(map(tuple, data["wrong"]))})


def answers_digest(lesson: Lesson, cells: Sequence[Cell]) -> str:
    """What was judged: the text of the answer, wherever its cells stand and whatever its outputs are."""
    content = [lesson.id, *([cell.role, cell.name, cell.source] for cell in cells)]
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


@lru_cache(maxsize=64)
def checks_digest(lesson: Lesson) -> str:
    """With what it was judged: check files, reference and bank of the lesson, and the code that runs them."""
    number = lesson.number
    files = [PACKAGE / "checks" / folder / f"test_lesson_{number}.py" for folder in ("public", "hidden")]
    files += [lesson.path, PACKAGE / "bank" / f"lesson_{number}.py"]
    files += sorted((PACKAGE / "checks").glob("*.py"))
    files += [PACKAGE / "judge.py", PACKAGE / "submission.py", PACKAGE / "bank" / "__init__.py"]
    sums = [(f.name, hashlib.sha256(f.read_bytes()).hexdigest()) for f in files if f.exists()]
    return hashlib.sha256(json.dumps(sums).encode()).hexdigest()[:32]


def course_secret(root: Path) -> str:
    """The course's own secret, made when first asked for: nobody can know the random inputs beforehand."""
    path = root / ".grader" / "secret"
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        new = path.with_name(f"secret.{os.getpid()}.{secrets.token_hex(4)}")
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32))
        try:
            os.link(new, path)  # the first one stays, also when two start at once
        except FileExistsError:
            pass
        finally:
            new.unlink()
    return path.read_text(encoding="ascii").strip()


def seed_for(secret: str, answers: str) -> int:
    """The seed of the random inputs: another for every answer, the same when an answer is judged again."""
    return int.from_bytes(hmac.digest(secret.encode(), answers.encode(), "sha256")[:4]) & 0x7FFFFFFF


def write_atomically(path: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file so that at any moment either the former or the new one is there, complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(new, mode)
        os.replace(new, path)
    finally:
        new.unlink(missing_ok=True)
