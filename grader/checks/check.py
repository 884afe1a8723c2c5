"""A check: one named property of an exercise's answer, and how it is put to an answer."""

from __future__ import annotations

import functools
import hashlib
import inspect
import traceback
import zlib
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from grader.checks.inputs import Draw
from grader.submission import Answers, deadline

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
                "beside": answers.answer,
            }
            torch.default_generator.manual_seed(_shown(seed))
            # an answer may have left gradients switched off
            with deadline(circumstances.limit), torch.enable_grad():
                self.test(**{name: given[name] for name in self.wants})
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # what the test held ends with it
            return error
        return None

    def _prepared(self, answer: Any, forbidding: Callable[[Collection[str]], AbstractContextManager[None]]) -> Any:
        """The answer as a check gets it: leaving its arguments alone, without the operators that are ruled out."""
        if self.kind != "purity":
            answer = _careful(answer)
        if not self.without or not callable(answer) or isinstance(answer, type):
            return answer

        def call(*args: Any, **kwargs: Any) -> Any:
            with forbidding(self.without):
                return answer(*args, **kwargs)

        return call


def _shown(seed: int) -> int:
    """The seed of the global random state, which an answer sees; it does not tell the seed of the inputs."""
    return int.from_bytes(hashlib.sha256(f"global {seed}".encode()).digest()[:4])


def _careful(answer: Any) -> Any:
    """The answer, called with copies of the tensors that it could change (a check of purity is about just that).

    Otherwise an answer could change what the expected values are computed from, to fit what it returns.
    """
    if not inspect.isfunction(answer):
        return answer

    @functools.wraps(answer)
    def call(*args: Any, **kwargs: Any) -> Any:
        copies: dict[int, Any] = {}  # one tensor given twice stays one tensor
        given = [copies.setdefault(id(a), _spare(a)) for a in args]
        return answer(*given, **{name: copies.setdefault(id(a), _spare(a)) for name, a in kwargs.items()})

    return call


def _spare(argument: Any) -> Any:
    """A copy of a tensor with its strides; what carries a gradient or overlaps itself cannot be written to anyway."""
    if not isinstance(argument, Tensor) or argument.requires_grad or argument.layout is not torch.strided:
        return argument
    if any(stride == 0 for stride, size in zip(argument.stride(), argument.shape, strict=True) if size > 1):
        return argument
    return torch.empty_strided(argument.shape, argument.stride(), dtype=argument.dtype).copy_(argument)
