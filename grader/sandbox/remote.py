"""The judge's end: a sandbox, and submissions that live in it.

`RemoteSubmission` has the interface of `grader.submission.Submission`: what it gives can be called, differentiated,
iterated, passed on, exactly as an answer in this process. See `grader.sandbox.peer` for how.
"""

from __future__ import annotations

import resource
import signal
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from grader.lesson import Cell
from grader.sandbox import wire
from grader.sandbox.box import Box, BoxError, sandbox_available
from grader.sandbox.limits import LIMIT, Limits
from grader.sandbox.peer import Peer
from grader.sandbox.wire import Channel, ConnectionLost, Json
from grader.submission import (
    LOCATION,
    AnswerCrashed,
    AnswerError,
    AnswerLost,
    AnswerTimeout,
    BrokenCell,
    Forbidden,
    Location,
    Missing,
    NotStarted,
)

__all__ = ["BoxError", "Limits", "RemoteSubmission", "Sandbox", "sandbox_available"]

_PATIENCE = 3
"""What is got by one `answer` may take so many times the limit of one call, all calls together."""
_HEADROOM = 2 << 30
"""Bytes that the judge may take at most while it runs a callback on what an answer sent."""
_DEATHS = 30
"""After so many lost processes a submission is given up as a whole."""
_KINDS: dict[str, type[BaseException]] = {
    kind.__name__: kind for kind in (AnswerError, BrokenCell, Forbidden, Missing, NotStarted)
}


class Sandbox:
    """A box and the limits of what runs in it; use it as a context manager, one at a time and thread.

    Its start costs a second or two, each submission some milliseconds. A box that broke is replaced for the next one.

    Raises (start):
        BoxError: one sentence why there is no sandbox on this machine.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits or Limits()
        self.box = Box()

    def __enter__(self) -> Sandbox:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """Build the box now instead of with the first submission."""
        self.box.start()

    def close(self) -> None:
        """End the box and everything in it."""
        self.box.close()

    def submission(
        self,
        cells: Sequence[Cell],
        *,
        names: Collection[str] = (),
        given: Sequence[Cell] = (),
        label: str = "answer",
    ) -> RemoteSubmission:
        """An answer in this sandbox; its cells run when it is first asked for something."""
        return RemoteSubmission(self, cells, names=names, given=given, label=label)


class RemoteSubmission:
    """An answer behind the wall. Arguments and methods as `grader.submission.Submission`.

    When its process is lost (time, memory, a crash), what was asked then raises `AnswerLost`, and so does everything
    that came from that process; the next `answer` starts a fresh process and runs the cells again, without a cell that
    itself was the reason.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        cells: Sequence[Cell],
        *,
        names: Collection[str] = (),
        given: Sequence[Cell] = (),
        label: str = "answer",
    ) -> None:
        self.label = label
        self._names = list(names)
        self._sandbox = sandbox
        self._given = list(given)
        self._cells = [cell for cell in cells if cell.kind == "code"]
        self._peer: _JudgePeer | None = None
        self._deadly: dict[int, AnswerLost] = {}
        self._deaths = 0
        self.spent = 0.0
        """Seconds that were spent waiting for this answer, all processes together."""
        self._forbidden: tuple[str, ...] = ()
        self._swapped: dict[str, Any] = {}

    def __enter__(self) -> RemoteSubmission:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def answer(self, name: str) -> Any:
        """The object that the answer defines under `name`, or its stand-in.

        Raises:
            AnswerError: there is none: see `Submission.answer`.
            AnswerLost: its process ran into a limit or crashed.
            BoxError: there is no sandbox.
        """
        peer = self._opened()
        peer.waited = 0.0
        if name in peer.answers:
            return peer.answers[name]
        for place, lost in self._deadly.items():
            cell = self._cells[place]
            if cell.role == "solve" and cell.name == name:
                raise _again(lost)
        peer.answers[name] = peer.ask("answer", 0, (name,))
        return peer.answers[name]

    def uses(self, name: str) -> frozenset[str]:
        """Global names that the code of `name` uses, its own helpers' too; see `Answers.uses`."""
        found = self._opened().ask("uses", 0, (name,))
        return frozenset(n for n in found if isinstance(n, str)) if isinstance(found, frozenset | set) else frozenset()

    def swap(self, replacements: Mapping[str, Any]) -> Mapping[str, Any]:
        """Replace global names of the answer; gives back what puts the former objects in place again."""
        peer = self._opened()
        former = {name: value for name, value in replacements.items() if isinstance(value, _Former)}
        new = {name: value for name, value in replacements.items() if name not in former}
        self._swapped = {name: value for name, value in self._swapped.items() if name not in former}
        peer.answers.clear()
        if former:  # also when the process dies of it: the next one starts without
            peer.ask("restore", 0, (list(former),))
        if new:
            peer.ask("swap", 0, (new,))
        self._swapped |= new
        return {name: _Former() for name in new}

    def forbidding(self, operators: Collection[str]) -> AbstractContextManager[None]:
        """While it is entered, a call of one of these ATen operators by the answer raises `Forbidden`."""
        return self._forbidding(tuple(operators))

    @contextmanager
    def _forbidding(self, operators: tuple[str, ...]) -> Iterator[None]:
        former = self._forbidden
        self._forbid(former + operators)
        try:
            yield
        finally:
            self._forbid(former)

    def _forbid(self, operators: tuple[str, ...]) -> None:
        self._forbidden = operators
        if self._peer is not None:
            self._peer.forbidden = operators

    def close(self) -> None:
        """End the answer's process."""
        if self._peer is not None:
            self._peer.end()
            self._peer = None

    def _opened(self) -> _JudgePeer:
        """The connection to a process that has run the cells."""
        if self._peer is not None and self._peer.lost is None:
            return self._peer
        while True:
            if self._deaths >= _DEATHS:
                raise AnswerCrashed(f"crashed: the answer's process was lost {self._deaths} times")
            places = [place for place in range(len(self._cells)) if place not in self._deadly]
            peer = self._peer = _JudgePeer(self, *self._sandbox.box.fork(self._sandbox.limits), self._sandbox)
            try:
                cells = [_plain(self._cells[place]) for place in places]
                peer.ask("open", 0, ([_plain(cell) for cell in self._given], cells, self._names, self.label))
                if self._swapped:
                    peer.ask("swap", 0, (self._swapped,))
            except wire.Uncrossable as error:
                peer.end()
                raise AnswerCrashed(f"size: the cells of the answer cannot be run ({error})") from None
            except AnswerLost as lost:
                at = peer.progress
                if type(at) is not int or not 0 <= at < len(places):
                    raise
                self._deadly[places[at]] = lost
                continue
            peer.forbidden = self._forbidden
            return peer

    def died(self) -> None:
        """Called when a process was lost."""
        self._deaths += 1


class _Former:
    """Stands for what the answer itself defines under a name, in what `swap` gives back."""


class _JudgePeer(Peer):
    """The judge's end of the wire to one process: deadlines, and what became of the process."""

    def __init__(self, owner: RemoteSubmission, number: int, connection: Any, sandbox: Sandbox) -> None:
        super().__init__(Channel(connection), trusted=False)
        self.lost: AnswerLost | None = None
        self.waited = 0.0
        """Seconds spent waiting since the last `answer`: many short calls must end, too."""
        self.answers: dict[str, Any] = {}
        """What was got by `answer`, by name."""
        self._owner, self._number, self._sandbox = owner, number, sandbox
        self._reason = "time"
        self._exhausted: AnswerLost | None = None
        self._bounds: AbstractContextManager[None] | None = None

    def _exchange(self, operation: str, key: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        if self.lost is not None:
            raise _again(self.lost)
        outermost, started = not self._waiting, time.monotonic()
        if outermost:
            limits = self._sandbox.limits
            call = min(limits.seconds, _PATIENCE * limits.seconds - self.waited)
            self._reason = "time" if call <= limits.total - self._owner.spent else "total"
            self.channel.until = started + min(call, limits.total - self._owner.spent)
        try:
            return super()._exchange(operation, key, args, kwargs)
        except ConnectionLost as error:
            if self.lost is None:
                self._lose(self._cause(error))
            assert self.lost is not None
            raise _again(self.lost) from None
        finally:
            if outermost:
                if self._bounds is not None:
                    self._bounds.__exit__(None, None, None)
                    self._bounds = None
                if self._exhausted is not None and self.lost is None:  # what filled it up is perhaps still there
                    self._lose(self._exhausted)
                    self._sandbox.box.end(self._number)
                self.waited += time.monotonic() - started
                self._owner.spent += time.monotonic() - started

    def interrupted(self, error: BaseException) -> None:
        if isinstance(error, ConnectionLost) or self.lost is not None:
            return
        self._lose(error if isinstance(error, AnswerLost) else AnswerCrashed("crashed: the check was interrupted"))
        self._sandbox.box.end(self._number)

    def _lose(self, lost: AnswerLost) -> None:
        self.lost = lost
        self.channel.close()
        self._owner.died()

    def _cause(self, error: ConnectionLost) -> AnswerLost:
        """What became of the process, in the words of the report; ends it."""
        limits = self._sandbox.limits
        fate = self._sandbox.box.end(self._number)
        limit, number = fate.get("limit"), fate.get("signal")
        if isinstance(limit, str) and limit not in ("", "ended"):
            return AnswerCrashed(limits.said(limit))
        if number == signal.SIGXCPU:
            return AnswerTimeout(limits.said("cpu"))
        if isinstance(error, wire.Late):
            return AnswerTimeout(limits.said(self._reason))
        if isinstance(error, wire.WireError):
            return AnswerCrashed(f"crashed: what the answer sent cannot be read ({error})")
        if number == signal.SIGKILL and limit == "ended":
            return AnswerCrashed("crashed: it closed its connection to the judge")
        if number == signal.SIGKILL:
            return AnswerCrashed(limits.said("memory"))
        if type(number) is int:
            return AnswerCrashed(f"crashed: killed by signal {number}{_signal_name(number)}")
        if type(fate.get("exit")) is int:
            return AnswerCrashed(f"crashed: exit code {fate['exit']}")
        return AnswerCrashed("crashed: the sandbox itself was ended")

    def end(self) -> None:
        """Close the connection and end the process."""
        if self.lost is None:
            self.lost = AnswerCrashed("crashed: the submission was closed")
            self.channel.close()
            self._sandbox.box.end(self._number)

    def _perform(self, operation: str, key: int, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if self._bounds is None:  # the first callback of a call; the bound is lifted when the call is over
            self._bounds = _headroom()
            self._bounds.__enter__()
        return super()._perform(operation, key, args, kwargs)

    def _tells(self, error: BaseException) -> bool:
        return super()._tells(error) and not isinstance(error, AnswerLost)

    def _rebuilt(self, error: Json) -> BaseException:
        if isinstance(error, list) and error and isinstance(error[0], str) and error[0].startswith(LIMIT):
            self._exhausted = AnswerCrashed(self._sandbox.limits.said(error[0].removeprefix(LIMIT)[:20]))
            return self._exhausted
        return super()._rebuilt(error)

    def exception_kind(self, name: str) -> type[BaseException] | None:
        return _KINDS.get(name) or super().exception_kind(name)

    def place(self, error: BaseException, place: Json) -> None:
        if isinstance(place, list) and len(place) == 3:
            cell, line, text = place
            if isinstance(cell, str) and type(line) is int and isinstance(text, str):
                location = Location(wire.clean_text(cell[:100]), line, wire.clean_text(text[:500]))
                setattr(error, LOCATION, location)


@contextmanager
def _headroom() -> Iterator[None]:
    """Bound this process's memory: an answer chooses the sizes of what it gives to a callback."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    space = pages * resource.getpagesize() + _HEADROOM
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    bounds = [limit for limit in (space, soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min(bounds), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _plain(cell: Cell) -> list[Any]:
    return [cell.kind, cell.source, cell.role, cell.name, cell.number, cell.line]


def _again(lost: AnswerLost) -> AnswerLost:
    """A fresh exception of the same kind and words: one that was raised before carries its traceback."""
    return type(lost)(*lost.args)


def _signal_name(number: int) -> str:
    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:
        return ""
