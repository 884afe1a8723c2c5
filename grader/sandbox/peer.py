"""A peer: one end of the wire, with the objects that live here and the stand-ins for those that live there.

Judge and player run the same code. Each asks the other to call its objects, and serves what the other asks, also while
it waits for an answer itself: so a function of a check can be an argument of a learner's function and the other
way round. Values that are data are copied (`wire`); everything else is sent as a key, and the receiver gets a stand-in:

- a function becomes a Python function that asks; a class becomes a class, any other object an object, with the special
  methods that the original has (`objects`, `standins`);
- an `nn.Module` becomes a real `nn.Module` of the same structure with real parameters, in step with it (`modules`);
- a tensor is copied. Gradients flow back through the copy (`graphs`), what a call wrote into its arguments is written
  into the caller's (`arguments`), and what either side writes later into memory that crossed, the other has with the
  next message, as long as anybody there uses it (`memory`). One thing is refused: an answer that overwrites what an
  earlier call returned, and the judge still holds, raises `Overwritten` there instead of changing what was judged.

What does not cross: that two tensors of different messages are views of one memory (but a result that is an argument, or
a view of one, is that for the caller as well); tensor attributes of an object are copies.
"""

from __future__ import annotations

import builtins
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from grader.sandbox import wire
from grader.sandbox.arguments import Arguments, modify, set_state
from grader.sandbox.graphs import Extras, Graphs
from grader.sandbox.memory import Ledger
from grader.sandbox.modules import Modules
from grader.sandbox.objects import FUNCTIONS, INSIDES, Objects
from grader.sandbox.standins import KEY, OPERATIONS
from grader.sandbox.wire import Channel, Decoder, Encoder, Json, Packer, Uncrossable, Unpacked, WireError
from grader.submission import Overwritten

MAX_NESTING = 16
"""Calls inside callbacks inside calls."""
MAX_MESSAGE = 2_000
MAX_PRINTED = 5_000

_EXCEPTIONS: dict[str, type[BaseException]] = {
    name: value
    for name, value in vars(builtins).items()
    if isinstance(value, type)
    and issubclass(value, Exception)
    and not issubclass(value, UnicodeError | BaseExceptionGroup)
}
_SHOWN = frozenset({"__len__", "__iter__", "__next__", "__getitem__", "__contains__", "__bool__", "__eq__", "__ne__"})
"""What a stranger may do with an object of ours, beside calling it and reading its public attributes."""


class RemoteError(RuntimeError):
    """The other side raised something that has no counterpart here."""


@dataclass
class _Sent:
    """A request that waits for its reply."""

    operation: str
    encoder: Encoder
    handed: set[int]
    """Keys of tensors that both sides have and that are among the arguments."""
    extras: Extras = field(default_factory=Extras)


class _Raised:
    """A reply that is an exception."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class Peer:
    """One end of a channel.

    Args:
        channel: the connection.
        trusted: whether the other side may do with our objects what it likes (the player trusts the judge; the judge
            shows its objects through a keyhole: calls, public data, and the modules that were handed over).
    """

    def __init__(self, channel: Channel, *, trusted: bool) -> None:
        self.channel = channel
        self.trusted = trusted
        self.forbidden: Sequence[str] = ()
        """Operators that the other side must not call while it serves us."""
        self.progress: Json = None
        """What the other side last said of how far it is, in the middle of a request."""
        self.objects = Objects(self)
        self.modules = Modules(self.objects, trusted=trusted)
        self.graphs = Graphs(self.objects, self.modules, self._ask_for_gradients)
        self.ledger = Ledger(trusted=trusted)
        self._waiting: list[_Sent] = []
        self._serving = 0
        self._raised: dict[int, BaseException] = {}
        """Exceptions of ours that the other side was told of, and may raise through us again."""
        self._random = b""

    @property
    def in_use(self) -> int:
        """How many things both sides keep for each other."""
        return len(self.objects) + len(self.modules) + len(self.graphs) + len(self.ledger)

    # ------------------------------------------------------------------------------------------------ asking

    def ask(self, operation: str, key: int, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Have the other side do something with its object `key`; its exception is raised here."""
        return self._exchange(operation, key, args, kwargs or {})[1]

    def _exchange(self, operation: str, key: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[_Sent, Any]:
        if not self._waiting:
            self._raised.clear()
            self.ledger.overwritten = False
        packer = Packer()
        handed: set[int] = set()
        encoder = Encoder(packer, self._export, self._cutter(packer, handed))
        header = {
            "q": operation,
            "to": key,
            "a": [encoder.value(value) for value in args],
            "k": [[name, encoder.value(value)] for name, value in kwargs.items()],
            "e": self._mode(),
        }
        sent = _Sent(operation, encoder, handed)
        self._waiting.append(sent)
        try:
            self._send(header, encoder)
            value = self._reply_to(sent)
        except (wire.ConnectionLost, Uncrossable):  # what is uncrossable was not sent
            raise
        except Exception as error:  # exceptions of the other side and of our own callbacks do not pass here
            raise WireError(f"{type(error).__name__} when reading it") from error
        except BaseException as error:
            self.interrupted(error)
            raise
        finally:
            self._waiting.pop()
        if isinstance(value, _Raised):
            raise value.error
        return sent, value

    def _ask_for_gradients(self, key: int, args: Sequence[Any]) -> tuple[Extras, Any]:
        sent, found = self._exchange("pull", key, args, {})
        return sent.extras, found

    def _extras(self) -> Extras | None:
        """Of the request of ours in whose middle we serve, if any."""
        return self._waiting[-1].extras if self._waiting else None

    def _reply_to(self, sent: _Sent) -> Any:
        """Serve until the reply comes."""
        while True:
            header, payload = self._receive()
            if "q" in header:
                self._serve(header, payload)
            elif "at" in header:
                self.progress = header["at"]
            else:
                return self._take_reply(header, payload, sent)

    def interrupted(self, error: BaseException) -> None:
        """A request was left before its reply was read: the two sides are out of step."""

    def _mode(self) -> list[Json]:
        dtype = str(torch.get_default_dtype()).removeprefix("torch.")
        return [torch.is_grad_enabled(), torch.is_inference_mode_enabled(), dtype, list(self.forbidden)]

    def _receive(self) -> tuple[Any, bytes]:
        header, payload = self.channel.receive()
        if not isinstance(header, dict):
            raise WireError("a header that is not an object")
        return header, payload

    def _send(self, header: dict[str, Json], encoder: Encoder) -> None:
        synchronised = self.modules.describe(encoder.packer)
        if synchronised:
            header["y"] = synchronised
        # in the middle of a call, where messages are many, a look at every element would cost too much
        written = self.ledger.describe(encoder.packer, thorough=self._serving + len(self._waiting) <= 1)
        if written:
            header["w"] = written
        self._send_random(header, encoder.packer)
        dead = self._let_go()
        if dead:
            header["R"] = [-key for key in dead]
        given_back = self.ledger.settle()
        if given_back:
            header["B"] = [-key for key in given_back]
        header["t"], blobs = encoder.packer.pack()
        header["b"] = [len(blob) for blob in blobs]
        self.channel.send(header, blobs)

    def _let_go(self) -> list[int]:
        """Forget what is of the other side and nobody here uses; the keys of all that is gone since the last message."""
        self.modules.loosen()
        dead = self.objects.gone()
        for key in dead:
            self.modules.forget(key)
            self.graphs.forget(key)
        return dead

    def _open(self, header: dict[str, Json], payload: bytes, *, results: bool = False) -> Unpacked:
        """The tensors of a frame, after what every frame carries was taken in.

        Args:
            results: they are what a call gave (an attribute that was read may change later).
        """
        unpacked = wire.unpack(header.get("t"), header.get("b"), payload)
        for key in wire.keys(header.get("R", [])):
            for keeper in (self.objects, self.modules, self.graphs):
                keeper.forget(key)
        for key in wire.keys(header.get("B", [])):
            self.ledger.forget(key)
        self._take_random(header, unpacked)
        self.modules.receive(unpacked, results=results)
        if "y" in header:
            self.modules.take(header["y"], unpacked, set().union(*(sent.handed for sent in self._waiting)))
        if "w" in header:
            self.ledger.take(header["w"], unpacked)
        return unpacked

    def _take_reply(self, reply: dict[str, Json], payload: bytes, sent: _Sent) -> Any:
        unpacked = self._open(reply, payload, results=sent.operation not in ("get", "answer"))
        self.graphs.join(reply.get("c"), unpacked, sent.extras)
        self.ledger.borrow(unpacked, unpacked.tensors)
        decoder = Decoder(unpacked.tensors, self._resolver(unpacked, sent))
        modify(sent.encoder, reply.get("u"), unpacked, decoder, self.ledger)
        if "p" in reply:
            print(str(decoder.value(reply["p"]))[:MAX_PRINTED], end="")
        if isinstance(reply.get("g"), bool):
            torch.set_grad_enabled(reply["g"])
        if "x" in reply:
            return _Raised(self._rebuilt(reply["x"]))
        value = decoder.value(reply.get("v"))
        if self.ledger.overwritten:
            self.ledger.overwritten = False
            return _Raised(
                Overwritten(
                    "this call changed a tensor that an earlier call had returned: give each call its own memory"
                )
            )
        return value

    def _rebuilt(self, error: Json) -> BaseException:
        """The exception that a reply tells of."""
        if not (isinstance(error, list) and len(error) == 5 and all(isinstance(e, str) for e in error[:3])):
            raise WireError("an odd exception")
        name, own, message, place, key = error
        if type(key) is int and key and key in self._raised:
            self.place(self._raised[key], place)
            return self._raised[key]
        message = wire.clean_text(message[:MAX_MESSAGE])
        kind = self.exception_kind(name)
        if kind is not None and own != name and own.isidentifier() and len(own) <= 100:
            kind = type(own, (kind,), {"__module__": "__answer__"})
        built = kind(message) if kind is not None else RemoteError(f"{name}: {message}"[:MAX_MESSAGE])
        self.place(built, place)
        if type(key) is int and key < 0:
            built.__dict__[KEY] = -key
        return built

    def exception_kind(self, name: str) -> type[BaseException] | None:
        """The class of that name, when exceptions of that name may cross."""
        return _EXCEPTIONS.get(name)

    def place(self, error: BaseException, place: Json) -> None:
        """Attach where in the learner's code an exception was raised."""

    def place_of(self, error: BaseException) -> Json:
        """Where in the learner's code an exception was raised, as `place` takes it."""
        return None

    def printed(self) -> str:
        """What was printed since the last reply."""
        return ""

    # ------------------------------------------------------------------------------------------------ serving

    def serve(self) -> None:
        """Answer requests until the other side is gone."""
        while True:
            header, payload = self._receive()
            self._serve(header, payload)

    def _serve(self, header: dict[str, Json], payload: bytes) -> None:
        self._serving += 1
        try:
            self._answer(header, payload)
        finally:
            self._serving -= 1

    def _answer(self, header: dict[str, Json], payload: bytes) -> None:
        unpacked = self._open(header, payload)
        seen = unpacked.tensors = self.graphs.arrive(unpacked)
        self.ledger.borrow(unpacked, seen)
        decoder = Decoder(seen, self._resolver(unpacked, None))
        operation, key = header.get("q"), header.get("to")
        if not (isinstance(operation, str) and type(key) is int and isinstance(header.get("a"), list)):
            raise WireError("an odd request")
        args = [decoder.value(value) for value in header["a"]]
        kwargs: dict[str, Any] = {}
        for pair in header.get("k", []):
            if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)):
                raise WireError("an odd argument")
            kwargs[pair[0]] = decoder.value(pair[1])
        arguments = Arguments(unpacked, decoder)

        packer = Packer()
        outputs: list[int] = []
        lends = operation != "get"  # a tensor attribute of an object may change
        encoder = Encoder(packer, self._export, self._grapher(packer, outputs, arguments, lends))
        encoder.known = {id(t): ["A", i] for i, t in enumerate(seen)}
        encoder.known |= {id(c): ["B", i] for i, c in enumerate(decoder.containers)}
        encoder.known |= {id(a): ["A", i] for i, a in decoder.arrays}
        reply: dict[str, Json] = {"r": 1}
        try:
            if self._serving > MAX_NESTING:
                raise RecursionError("calls across the wall are nested too deeply")
            with self._entered(header.get("e")):
                grad = torch.is_grad_enabled()
                result = self._perform(operation, key, args, kwargs)
                if torch.is_grad_enabled() is not grad:  # left switched: the caller's is switched as well
                    reply["g"] = not grad
                    torch.set_grad_enabled(grad)
            reply["v"] = encoder.value(result)
        except BaseException as error:
            if not self._tells(error):
                raise
            reply["x"] = self._told(error)
            reply.pop("v", None)
        changes = arguments.changes(encoder, self.ledger)
        if changes is not None:
            reply["u"] = changes
        if outputs:
            reply["c"] = self.graphs.keep(packer, outputs, self._extras())
        text = self.printed()
        if text:
            reply["p"] = text
        try:
            self._send(reply, encoder)
        except Uncrossable as error:
            self._send({"r": 1, "x": self._told(error)}, Encoder(Packer(), self._export, self._cutter(packer, set())))

    @contextmanager
    def _entered(self, mode: Json) -> Iterator[None]:
        """The caller's grad mode, inference mode and default dtype, and what it forbids."""
        if not (isinstance(mode, list) and len(mode) == 4 and mode[2] in wire.DTYPES and isinstance(mode[3], list)):
            raise WireError("an odd mode")
        grad, inference, name, forbidden = mode
        before = torch.get_default_dtype()
        with ExitStack() as stack:
            if inference is True:
                stack.enter_context(torch.inference_mode())
            if grad is not torch.is_grad_enabled():
                stack.enter_context(torch.set_grad_enabled(bool(grad)))
            if wire.DTYPES[name] is not before and wire.DTYPES[name].is_floating_point:
                torch.set_default_dtype(wire.DTYPES[name])
                stack.callback(torch.set_default_dtype, before)
            if self.trusted:
                stack.enter_context(self.forbidding(forbidden))
            yield

    @contextmanager
    def forbidding(self, operators: Sequence[str]) -> Iterator[None]:
        """Make a call of one of these operators an exception."""
        yield

    def _perform(self, operation: str, key: int, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if operation == "pull":
            return self.graphs.pull(key, args, self._extras())
        target = self.objects.mine(key)
        if operation == "call":
            if not callable(target):
                raise TypeError(f"{type(target).__name__!r} object is not callable")
            return target(*args, **kwargs)
        if operation == "get":
            return self._get(target, args[0])
        if operation in OPERATIONS:
            self._permit(target, operation)
            return OPERATIONS[operation](target, *args)
        if operation == "method":
            return self._get(target, args[0])(*args[1:], **kwargs)
        if self.trusted and operation == "set":
            return setattr(target, *args)
        if self.trusted and operation == "delete":
            return delattr(target, *args)
        raise AttributeError("this object can be called and read, but not changed")

    def _permit(self, target: Any, operation: str) -> None:
        if self.trusted:
            return
        if operation not in _SHOWN or isinstance(target, (*FUNCTIONS, *INSIDES)):
            raise AttributeError(f"{operation} of this object is not shown")

    def _get(self, target: Any, name: Any) -> Any:
        """An attribute; of ours, a stranger sees public data, modules and methods, nothing of functions and classes."""
        if not isinstance(name, str):
            raise WireError("an attribute without a name")
        if self.trusted:
            return getattr(target, name)
        hidden = AttributeError(f"{type(target).__name__!r} object has no attribute {name!r}")
        if name.startswith("_") or isinstance(target, (*FUNCTIONS, *INSIDES)):
            raise hidden
        if isinstance(target, nn.Module) and hasattr(nn.Module, name) and name != "extra_repr":
            raise hidden
        value = getattr(target, name)
        if isinstance(value, INSIDES):
            raise hidden
        return value

    def _tells(self, error: BaseException) -> bool:
        """Whether an exception is told to the caller (or ends the conversation)."""
        return not isinstance(error, wire.ConnectionLost | KeyboardInterrupt | SystemExit)

    def _told(self, error: BaseException) -> Json:
        key = error.__dict__.get(KEY, 0) if hasattr(error, "__dict__") else 0
        if not key and not self.trusted:
            key = -self.objects.new_key()
            self._raised[-key] = error
            if len(self._raised) > 100:
                self._raised.pop(next(iter(self._raised)))
        kind = next((c for c in type(error).__mro__ if self.exception_kind(c.__name__) is c), type(error))
        try:
            whole = len(error.args) == 1 and isinstance(error.args[0], str)
            message = error.args[0] if whole else str(error)
        except Exception:
            message = "(an exception that cannot be shown)"
        own = type(error).__name__
        return [str(kind.__name__)[:100], str(own)[:100], str(message)[:MAX_MESSAGE], self.place_of(error), key]

    # ------------------------------------------------------------------------------------------------ tensors

    def _cutter(self, packer: Packer, handed: set[int]) -> Callable[[Tensor], Json]:
        """Tensors of a request: copies; the graph is cut, and joined again by the reply.

        Those that both sides have are noted in `handed`.
        """

        def add(tensor: Tensor, value: Tensor) -> int:
            flags = wire.PARAMETER if isinstance(value, nn.Parameter) else 0
            key, grad = self.objects.new_key(), -1
            if not self.trusted:
                self.ledger.lend(key, value)
            if value.requires_grad:
                self.graphs.send(key, value)
                flags |= wire.GRAD
                if not value.is_leaf:
                    flags |= wire.INNER
                elif value.grad is not None:
                    grad = packer.add(wire.plain(value.grad.detach()))
            return packer.add(value, flags, key, grad, tensor)

        def known(tensor: Tensor) -> Json:
            key = self.modules.key(tensor)
            if key is None:
                return None
            handed.add(key)
            return ["P", key]

        return _writer(known, add)

    def _grapher(
        self, packer: Packer, outputs: list[int], arguments: Arguments, lends: bool
    ) -> Callable[[Tensor], Json]:
        """Tensors of a reply: those with a history are noted in `outputs`, new leaves stay leaves, the others are lent.

        A view of an argument is one for the caller, too.
        """

        def known(tensor: Tensor) -> Json:
            key = self.graphs.twin(tensor)
            return arguments.view(tensor) if key is None else ["P", key]

        def add(_tensor: Tensor, value: Tensor) -> int:
            flags = wire.PARAMETER if isinstance(value, nn.Parameter) else 0
            key = 0
            if value.requires_grad and value.is_leaf:
                key = self.modules.share(value)
                flags |= wire.GRAD | wire.SHARED
            elif lends:
                key = self.objects.new_key()
                self.ledger.lend(key, value)
            index = packer.add(value, flags, key)
            if value.requires_grad and not value.is_leaf:
                outputs.append(index)
            return index

        return _writer(known, add)

    # ------------------------------------------------------------------------------------------------ values

    def _export(self, value: Any) -> Json:
        """The JSON of something that is not data."""
        key = self.objects.key_of(value)
        if key is not None:
            return ["O", -key]
        if issubclass(type(value), nn.Module):
            return ["M", self.modules.own(value)]
        return self.objects.export(value)

    def _resolver(self, unpacked: Unpacked, sent: _Sent | None) -> Callable[[str, list[Json]], Any]:
        """Reads what is not data."""

        def resolve(tag: str, rest: list[Json]) -> Any:
            if not rest or type(rest[0]) is not int:
                raise WireError("a reference without a key")
            key = rest[0]
            if tag == "T":
                return wire.at(unpacked.tensors, key)
            if tag == "P":
                return self.graphs.tensor(-key)
            if tag == "A" and sent is not None:
                arrays = dict(sent.encoder.arrays)
                original = arrays[key] if key in arrays else wire.at(sent.encoder.packer.originals, key)
                self.ledger.returned(sent.encoder.packer.marks[key][1])
                return original
            if tag == "V" and sent is not None and len(rest) == 4:
                base = wire.at(sent.encoder.packer.tensors, key)
                self.ledger.returned(sent.encoder.packer.marks[key][1])
                return wire.view(base, *rest[1:])
            if tag == "B" and sent is not None:
                return wire.at(sent.encoder.containers, key)
            return self.objects.import_(tag, rest)

        return resolve

    # ------------------------------------------------------------------------------------------------ random state

    def _send_random(self, header: dict[str, Json], packer: Packer) -> None:
        """The judge's global random state goes to the player; back goes only that something was drawn.

        An answer therefore sees the random numbers of the check's seed, but cannot choose those of the next inputs.
        """
        state = torch.get_rng_state()
        now = wire.content(state)
        if now != self._random:
            header["g"] = 1 if self.trusted else packer.add(state)
            self._random = now

    def _take_random(self, header: dict[str, Json], unpacked: Unpacked) -> None:
        if "g" not in header:
            return
        if self.trusted:
            set_state(torch.default_generator, wire.at(unpacked.tensors, header["g"]))
            self._random = wire.content(torch.get_rng_state())
        else:
            digest = hashlib.blake2b(wire.content(torch.get_rng_state()), digest_size=8).digest()
            torch.default_generator.manual_seed(int.from_bytes(digest, "big") >> 1)
            self._random = b""


def _writer(known: Callable[[Tensor], Json], add: Callable[[Tensor, Tensor], int]) -> Callable[[Tensor], Json]:
    """Writes tensors: as `known` says, if it does; each other one once, with `add(tensor, plain tensor)`."""
    written: dict[int, int] = {}

    def write(tensor: Tensor) -> Json:
        if id(tensor) not in written:
            found = known(tensor)
            if found is not None:
                return found
            written[id(tensor)] = add(tensor, wire.plain(tensor))
        return ["T", written[id(tensor)]]

    return write
