"""The player: the end of the wire in the process that holds an answer."""

from __future__ import annotations

import errno
import io
import os
import random
import socket
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NoReturn

import numpy as np
import torch

from grader.sandbox.limits import LIMIT
from grader.sandbox.peer import Peer
from grader.sandbox.wire import Channel, ConnectionLost, Json
from grader.submission import AnswerError, BrokenCell, Cell, Forbidden, Missing, NotStarted, Submission, forbid, locate

_KEPT = 2_000
"""Characters of what an answer prints that go to the judge with a reply."""
_KINDS: dict[str, type[BaseException]] = {
    kind.__name__: kind for kind in (AnswerError, BrokenCell, Forbidden, Missing, NotStarted)
}


def play(connection: int) -> None:
    """Serve the judge at the other end of a descriptor until it is gone.

    Raises:
        ConnectionLost: it is gone.
    """
    random.seed(0)
    np.random.seed(0)
    player = Player(Channel(socket.socket(fileno=connection)))
    sys.stdout = sys.stderr = player.output
    player.serve()


class Player(Peer):
    """The answer's end of the wire."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel, trusted=True)
        self.output = _Output()
        self._submission: Submission | None = None
        self._former: dict[str, Any] = {}
        self._refusals = _Refusals()

    def _perform(self, operation: str, key: int, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if operation == "open":
            given, cells, names, label = args
            answer = [Cell(*cell) for cell in cells]
            place = {id(cell): index for index, cell in enumerate(answer)}
            self._submission = Submission(
                answer,
                names=names,
                given=[Cell(*cell) for cell in given],
                label=label,
                begin=lambda cell: self.channel.send({"at": place[id(cell)]}),
            )
            return None
        submission = self._submission
        if operation == "answer" and submission is not None:
            return submission.answer(args[0])
        if operation == "uses" and submission is not None:
            return submission.uses(args[0])
        if operation == "swap" and submission is not None:
            return self._swap(submission, args[0])
        if operation == "restore" and submission is not None:
            return self._restore(submission, args[0])
        return super()._perform(operation, key, args, kwargs)

    def _swap(self, submission: Submission, replacements: dict[str, Any]) -> None:
        former = submission.swap(replacements)
        self._former = {**former, **self._former}

    def _restore(self, submission: Submission, names: list[str]) -> None:
        submission.swap({name: self._former.pop(name) for name in names if name in self._former})

    @contextmanager
    def forbidding(self, operators: Sequence[str]) -> Iterator[None]:
        outer = self._refusals.operators
        self._refusals.set(tuple(operators))
        try:
            with forbid(operators) if operators else nullcontext():
                yield
        finally:
            if self._serving > 1:  # a request in the middle of another, which goes on
                self._refusals.set(outer)

    def exception_kind(self, name: str) -> type[BaseException] | None:
        return _KINDS.get(name) or super().exception_kind(name)

    def place_of(self, error: BaseException) -> Json:
        place = locate(error)
        return None if place is None else [place.cell, place.line, place.text[:500]]

    def _told(self, error: BaseException) -> Json:
        told = super()._told(error)
        limit = _limit(error)
        if limit:
            told[0] = f"{LIMIT}{limit}"
        return told

    def _tells(self, error: BaseException) -> bool:
        return not isinstance(error, ConnectionLost | SystemExit)

    def printed(self) -> str:
        return self.output.take()


class _Output(io.TextIOBase):
    """Standard output of an answer: the first characters go to the judge with a reply, all are counted outside."""

    def __init__(self) -> None:
        self._text: list[str] = []
        self._room = _KEPT

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self._room > 0:
            self._text.append(text[: self._room])
            self._room -= len(text)
            if self._room <= 0:
                self._text.append("\n...\n")
        data = memoryview(text.encode("utf-8", "replace"))
        while data:
            data = data[os.write(1, data[: 1 << 16]) :]
        return len(text)

    def take(self) -> str:
        """What was written since the last call, as far as it is kept."""
        text = "".join(self._text)
        self._text.clear()
        return text


class _Refusals:
    """Operators whose kernels were replaced by something that raises: a mode sees only its own thread.

    They stay replaced until others are asked for: the next call mostly forbids the same ones.
    """

    def __init__(self) -> None:
        self.operators: tuple[str, ...] = ()
        self._library: Any = None

    def set(self, operators: tuple[str, ...]) -> None:
        """Replace the kernels of these operators, and of no others."""
        if operators == self.operators:
            return
        self.operators = operators
        if self._library is not None:
            self._library._destroy()
        self._library = torch.library.Library("aten", "IMPL") if operators else None
        for name in operators:
            packet = getattr(torch.ops.aten, name, None)
            for overload in packet.overloads() if packet is not None else ():
                with suppress(RuntimeError), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    full = name if overload == "default" else f"{name}.{overload}"
                    self._library.impl(full, _refuse, "CPU")


def _refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise Forbidden("the answer calls PyTorch's own operation, which this exercise asks you to write")


def _limit(error: BaseException) -> str:
    """Which limit of the process an exception speaks of, if any."""
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error)):
        return "memory"
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return "threads"
    if isinstance(error, OSError):
        return {errno.EFBIG: "file", errno.ENOSPC: "file", errno.EAGAIN: "processes"}.get(error.errno or 0, "")
    return ""
