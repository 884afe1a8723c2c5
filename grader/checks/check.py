"""A check: one named property of an exercise's answer, and how it is put to an answer."""

from __future__ import annotations

import hashlib
import traceback
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from grader.checks.assertions import fail
from grader.checks.guard import guarded
from grader.checks.inputs import Draw
from grader.submission import AnswerError, Answers, deadline

ARGUMENTS = ("student", "reference", "draw", "beside")
"""What a test may ask for: the answer under test; the reference solutions by attribute (hidden checks only: a student's kit
has none); random inputs; `beside("decode_step")`, another exercise's answer from the same hand."""


class References:
    """The reference solutions by name, as attributes: `reference.softmax(x, dim=-1)`."""

    def __init__(self, answers: Answers | None) -> None:
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        if self._answers is None:
            raise LookupError("a public check asked for the reference, which a student's kit does not have")
        return self._answers.answer(name)


@dataclass(frozen=True)
class Circumstances:
    """What is the same for all answers of one judging: the reference, the seed of the inputs, seconds for one check."""

    reference: References
    seed: int
    limit: float


@dataclass(frozen=True, eq=False)
class Check:
    """A check as pytest found it: `test` takes those of `ARGUMENTS` that are in `wants`, by name.

    `without` are the ATen operators that the exercise rules out.
    """

    exercise: str
    name: str
    title: str
    kind: str
    points: float
    hidden: bool
    without: tuple[str, ...]
    wants: tuple[str, ...]
    test: Callable[..., None]

    @property
    def makes_objects(self) -> bool:
        """Whether the exercise asks for a class."""
        return self.exercise[0].isupper()

    def run(self, answers: Answers, circumstances: Circumstances) -> BaseException | None:
        """Put the check to what `answers` holds for its exercise; what it raised, None when the answer passes."""
        seed = zlib.crc32(f"{circumstances.seed}:{self.exercise}:{self.name}".encode())
        try:
            with deadline(circumstances.limit):
                answer = answers.answer(self.exercise)
            given: Mapping[str, Any] = {
                "student": self._prepared(answer, answers.forbidding),
                "reference": circumstances.reference,
                "draw": Draw(seed),
                "beside": _neighbours(answers),
            }
            torch.default_generator.manual_seed(_shown(seed))
            # an answer may have left gradients switched off, or changed the default dtype
            with deadline(circumstances.limit), torch.enable_grad(), _default_dtype(torch.float32):
                self.test(**{name: given[name] for name in self.wants})
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # what the test held ends with it
            return error
        return None

    def _prepared(self, answer: Any, forbidding: Callable[[Collection[str]], AbstractContextManager[None]]) -> Any:
        """The answer as a check gets it: behind a guard, without the operators that are ruled out."""
        if self.kind != "purity":
            answer = guarded(answer, makes_objects=self.makes_objects)
        if not self.without or not callable(answer) or self.makes_objects:
            return answer

        def call(*args: Any, **kwargs: Any) -> Any:
            with forbidding(self.without):
                return answer(*args, **kwargs)

        return call


def _neighbours(answers: Answers) -> Callable[[str], Any]:
    """Another exercise's answer by its name: that it is not there says nothing of the exercise in question."""

    def beside(name: str) -> Any:
        try:
            return answers.answer(name)
        except AnswerError as error:
            fail(f"it is tried together with your {name}, and {error}")

    return beside


@contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _shown(seed: int) -> int:
    """The seed of the global random state, which an answer sees; it does not tell the seed of the inputs."""
    return int.from_bytes(hashlib.sha256(f"global {seed}".encode()).digest()[:4])
