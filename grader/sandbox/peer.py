"""A peer: one end of the wire, with the objects that live here and the stand-ins for those that live there.

Judge and player run the same code. Each asks the other to call its objects, and serves what the other asks, also while
it waits for an answer itself: so a function of a check can be an argument of a learner's function and the other
way round. Values that are data are copied (`wire`); everything else is sent as a key, and the receiver gets a stand-in:

- a function becomes a Python function that asks;
- an `nn.Module` becomes a real `nn.Module` of the same structure with real parameters. Whatever changes in parameters,
  buffers, gradients, training flags or structure on one side is written to the other with the next message;
- a class becomes a class, any other object an object, with the special methods that the original has.

Arguments that a call modified in place are modified for the caller too. Gradients: the caller's graph gets a node whose
backward asks the other side for the vector-Jacobian product, with respect to exactly those of the caller's tensors from
which the result was computed there, and so also through caches, closures and callbacks, and twice.

Tensors are copied, but their memory is kept in step (see `memory`): what one side writes into a tensor that crossed, the
other has with the next message, as long as anybody there uses it. One thing is refused: an answer that overwrites what
an earlier call returned, and the judge still holds, raises `Overwritten` there instead of changing what was judged.

What does not cross: that two tensors of different messages are views of one memory (a result that *is* an argument
arrives as the caller's own object); tensor attributes of an object are copies.
"""

from __future__ import annotations

import builtins
import hashlib
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from grader.sandbox import wire
from grader.sandbox.memory import Memories
from grader.sandbox.standins import (
    KEY,
    OPERATIONS,
    RemoteModule,
    RemoteObject,
    describe_class,
    key_of,
    name_of,
    signature_of,
    stand_in_class,
    stand_in_function,
)
from grader.sandbox.wire import Channel, Decoder, Encoder, Json, Packer, Uncrossable, Unpacked, WireError
from grader.submission import Overwritten

MAX_NESTING = 16
"""Calls inside callbacks inside calls."""
MAX_OBJECTS = 20_000
MAX_MESSAGE = 2_000
MAX_PRINTED = 5_000
_MAX_GRAPH = 500_000

_EXCEPTIONS: dict[str, type[BaseException]] = {
    name: value
    for name, value in vars(builtins).items()
    if isinstance(value, type)
    and issubclass(value, Exception)
    and not issubclass(value, UnicodeError | BaseExceptionGroup)
}
_INSIDES = (type, types.ModuleType, types.CodeType, types.FrameType, types.TracebackType)
"""Kinds of objects that lead to everything else in a process: they are neither handed over nor looked into."""
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.MethodWrapperType)


class RemoteError(RuntimeError):
    """The other side raised something that has no counterpart here."""


class _Shared:
    """A parameter or buffer that both sides hold, and what it was when they last agreed."""

    __slots__ = ("_hold", "data", "flag", "grad", "shape")

    def __init__(self, tensor: Tensor) -> None:
        self._hold: Any = tensor
        self.grad: bytes | None = None
        self.agree()

    @property
    def tensor(self) -> Tensor | None:
        """The tensor, as long as somebody needs it."""
        hold = self._hold
        return hold() if isinstance(hold, weakref.ref) else hold

    def loosen(self) -> None:
        """Leave it to others to keep the tensor, if nobody else here does: then it ends when their last use ends."""
        if not isinstance(self._hold, weakref.ref) and sys.getrefcount(self._hold) <= 2:
            self._hold = weakref.ref(self._hold)

    def agree(self) -> None:
        """What it is now is what both have."""
        tensor = self.tensor
        assert tensor is not None
        self.data = wire.content(tensor)
        self.shape: Any = (tensor.shape, tensor.dtype)
        self.flag = tensor.requires_grad

    def agree_grad(self) -> None:
        """The gradient that it has now is what both have."""
        tensor = self.tensor
        self.grad = None if tensor is None or tensor.grad is None else wire.content(tensor.grad)

    def differs(self, tensor: Tensor) -> bool:
        return (
            wire.content(tensor) != self.data
            or (tensor.shape, tensor.dtype) != self.shape
            or tensor.requires_grad != self.flag
        )

    def grad_differs(self, tensor: Tensor) -> bool:
        grad = tensor.grad if tensor.is_leaf else None
        if grad is None or self.grad is None:
            return (grad is None) != (self.grad is None)
        return wire.content(grad) != self.grad


@dataclass
class _Sent:
    """A request that waits for its reply."""

    encoder: Encoder
    extras: dict[int, Tensor] = field(default_factory=dict)
    """Leaves of this side that callbacks brought into the other side's graph."""
    extra_grads: dict[int, Tensor] = field(default_factory=dict)


class _Raised:
    """A reply that is an exception."""

    __slots__ = ("error",)

    def __init__(self, error: BaseException) -> None:
        self.error = error


class _Graph:
    """A node's way back: a graph that the other side keeps."""

    def __init__(self, peer: Peer, key: int, inputs: int, extras: Sequence[Tensor]) -> None:
        self.peer, self.key, self.inputs, self.extras = peer, key, inputs, extras
        peer._watch(self, key)

    def pull(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        sent, found = self.peer._exchange("pull", -self.key, (list(grads), torch.is_grad_enabled()), {})
        if not isinstance(found, list) or len(found) != self.inputs:
            raise WireError("gradients that were not asked for")
        return [*found, *(sent.extra_grads.get(id(leaf)) for leaf in self.extras)]


class _Bridge(torch.autograd.Function):
    """Joins a graph of the other side to ours."""

    @staticmethod
    def forward(ctx: Any, graph: _Graph, values: Sequence[Tensor], *_inputs: Tensor) -> Any:
        ctx.graph = graph
        ctx.set_materialize_grads(False)
        return tuple(values)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        return (None, None, None, *ctx.graph.pull(grads))


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
        self._mine: dict[int, Any] = {}
        self._key_by_id: dict[int, int] = {}
        self._theirs: weakref.WeakValueDictionary[int, Any] = weakref.WeakValueDictionary()
        self._classes: dict[int, type] = {}
        self._described: set[int] = set()
        self._shared: dict[int, _Shared] = {}
        self._modules: dict[int, tuple[Any, Any]] = {}
        self._leaves: dict[int, Any] = {}
        self._graphs: dict[int, tuple[list[Tensor], list[Tensor], int]] = {}
        self._lent = Memories()
        self._borrowed = Memories()
        self._overwritten = False
        self._last_key = 0
        self._dead: list[int] = []
        self._waiting: list[_Sent] = []
        self._serving = 0
        self._raised: dict[int, BaseException] = {}
        self._random = b""
        self._root = torch.zeros((), requires_grad=True)
        self.progress: Json = None
        """What the other side last said of how far it is, in the middle of a request."""
        self._signatures: dict[int, Json] = {}
        self._kept: dict[int, Any] = {}
        """Stand-ins of modules: given up in `_send` only, so that the other side never counts on one that is gone."""

    # ------------------------------------------------------------------------------------------------ asking

    def ask(self, operation: str, key: int, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None) -> Any:
        """Have the other side do something with its object `key`; its exception is raised here."""
        return self._exchange(operation, key, args, kwargs or {})[1]

    def _exchange(self, operation: str, key: int, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[_Sent, Any]:
        if not self._waiting:
            self._raised.clear()
            self._overwritten = False
        packer = Packer()
        encoder = Encoder(packer, self._export, self._cutter(packer))
        header = {
            "q": operation,
            "to": key,
            "a": [encoder.value(value) for value in args],
            "k": [[name, encoder.value(value)] for name, value in kwargs.items()],
            "e": self._mode(),
        }
        sent = _Sent(encoder)
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
        synchronised = self._describe_changes(encoder.packer)
        if synchronised:
            header["y"] = synchronised
        written = self._describe_writes(encoder.packer)
        if written:
            header["w"] = written
        self._send_random(header, encoder.packer)
        dead = self._give_up()
        if dead:
            header["R"] = [-key for key in dead]
        self._lent.settle()
        given_back = self._borrowed.settle()
        if given_back:
            header["B"] = [-key for key in given_back]
        header["t"], blobs = encoder.packer.pack()
        header["b"] = [len(blob) for blob in blobs]
        self.channel.send(header, blobs)

    def _open(self, header: dict[str, Json], payload: bytes) -> Unpacked:
        """The tensors of a frame, after what every frame carries was taken in."""
        unpacked = wire.unpack(header.get("t"), header.get("b"), payload)
        for key in _keys(header.get("R", [])):
            self._forget(key)
        for key in _keys(header.get("B", [])):
            self._lent.forget(key)
        self._take_random(header, unpacked)
        for tensor, row in zip(unpacked.tensors, unpacked.rows, strict=True):
            if row[5] & wire.SHARED and row[6] and -row[6] not in self._shared:
                tensor.__dict__[KEY] = -row[6]
                self._shared[-row[6]] = _Shared(tensor)
                self._watch(tensor, -row[6])
        if "y" in header:
            self._take_changes(header["y"], unpacked)
        if "w" in header:
            self._take_writes(header["w"], unpacked)
        return unpacked

    def _take_reply(self, reply: dict[str, Json], payload: bytes, sent: _Sent) -> Any:
        unpacked = self._open(reply, payload)
        self._join(reply.get("c"), unpacked, sent)
        self._borrow(unpacked, unpacked.tensors)
        decoder = Decoder(unpacked.tensors, self._resolver(unpacked, sent))
        self._take_mutations(reply.get("u"), unpacked, decoder, sent)
        if "p" in reply:
            print(str(decoder.value(reply["p"]))[:MAX_PRINTED], end="")
        if isinstance(reply.get("g"), bool):
            torch.set_grad_enabled(reply["g"])
        if "x" in reply:
            return _Raised(self._rebuilt(reply["x"]))
        value = decoder.value(reply.get("v"))
        if self._overwritten:
            self._overwritten = False
            return _Raised(
                Overwritten(
                    "this call changed a tensor that an earlier call had returned: give each call its own memory"
                )
            )
        return value

    def _join(self, joint: Json, unpacked: Unpacked, sent: _Sent) -> None:
        """Give the tensors of a reply their place in our graph."""
        if joint is None:
            return
        if not (isinstance(joint, list) and len(joint) == 3 and type(joint[0]) is int and joint[0] > 0):
            raise WireError("an odd graph")
        key, outputs, inputs = joint[0], _keys(joint[1]), _keys(joint[2])
        values = [unpacked.tensors[i] for i in outputs if 0 <= i < len(unpacked.tensors)]
        if len(values) != len(outputs) or len(set(outputs)) != len(outputs):
            raise WireError("a graph of tensors that are not there")
        if any(not (v.is_floating_point() or v.is_complex()) or v.requires_grad for v in values):
            raise WireError("a graph of tensors that have no gradients")
        extras = list(sent.extras.values())
        graph = _Graph(self, -key, len(inputs), extras)
        with torch.enable_grad():
            joined = _Bridge.apply(graph, values, self._root, *(self._tensor_of(-k) for k in inputs), *extras)
        for index, value in zip(outputs, joined, strict=True):
            unpacked.tensors[index] = value

    def _take_mutations(self, mutations: Json, unpacked: Unpacked, decoder: Decoder, sent: _Sent) -> None:
        """Do to the caller's arguments what the call did to their copies."""
        if mutations is None:
            return
        if not (isinstance(mutations, list) and len(mutations) == 3 and all(isinstance(m, list) for m in mutations)):
            raise WireError("odd changes of arguments")
        tensors, containers, generators = mutations
        arrays = dict(sent.encoder.arrays)
        originals = sent.encoder.packer.originals
        for change in tensors:
            index, new, grad = _three(change)
            original = _at(originals, index)
            if new >= 0:
                value = _at(unpacked.tensors, new)
                if index in arrays:
                    if tuple(arrays[index].shape) == tuple(value.shape) and arrays[index].flags.writeable:
                        arrays[index][...] = value.detach().numpy()
                else:
                    _overwrite(original, value, bool(unpacked.rows[new][5] & wire.GRAD))
                lent = self._lent.get(sent.encoder.packer.marks[index][1])
                if lent is not None:
                    lent.agree()
            if grad >= -1 and original.is_leaf:
                _set_grad(original, None if grad < 0 else _at(unpacked.tensors, grad))
        for change in containers:
            if not (isinstance(change, list) and len(change) == 2):
                raise WireError("an odd change of an argument")
            _refill(_at(sent.encoder.containers, change[0]), decoder.value(change[1]))
        for change in generators:
            if not (isinstance(change, list) and len(change) == 2):
                raise WireError("an odd change of an argument")
            _set_state(_at(sent.encoder.generators, change[0]), decoder.tensor(change[1]))

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
        seen = unpacked.tensors = self._arrive(unpacked)
        self._borrow(unpacked, seen)
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
        unpacked.remember()
        filled = [_snapshot(container) for container in decoder.containers]
        states = [wire.content(generator.get_state()) for generator in decoder.generators]

        packer = Packer()
        outputs: list[int] = []
        lends = operation != "get"  # a tensor attribute of an object may change
        encoder = Encoder(packer, self._export, self._grapher(packer, outputs, lends))
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
        mutations = self._mutations(unpacked, decoder, filled, states, encoder)
        if mutations is not None:
            reply["u"] = mutations
        if outputs:
            reply["c"] = self._keep_graph(packer, outputs)
        text = self.printed()
        if text:
            reply["p"] = text
        try:
            self._send(reply, encoder)
        except Uncrossable as error:
            self._send({"r": 1, "x": self._told(error)}, Encoder(Packer(), self._export, self._cutter(packer)))

    def _arrive(self, unpacked: Unpacked) -> list[Tensor]:
        """The tensors of a request as the called code sees them; leaves are noted for the way back."""
        seen = []
        for tensor, row, grad in zip(unpacked.tensors, unpacked.rows, unpacked.grads, strict=True):
            flags, key = row[5], row[6]
            if key and tensor.requires_grad and not flags & wire.SHARED:
                self._note_leaf(-key, tensor)
                if flags & wire.INNER:
                    tensor = _inner(tensor)
                elif grad is not None:
                    _set_grad(tensor, grad)
            seen.append(tensor)
        return seen

    def _note_leaf(self, key: int, tensor: Tensor) -> None:
        tensor.__dict__[KEY] = key
        self._leaves[key] = weakref.ref(tensor)
        self._watch(tensor, key)

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
            return self._pull(key, args)
        if key not in self._mine:
            raise WireError("an object that is not there")
        target = self._mine[key]
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
        allowed = {"__len__", "__iter__", "__next__", "__getitem__", "__contains__", "__bool__", "__eq__", "__ne__"}
        if operation not in allowed or isinstance(target, (*_FUNCTIONS, *_INSIDES)):
            raise AttributeError(f"{operation} of this object is not shown")

    def _get(self, target: Any, name: Any) -> Any:
        """An attribute; of ours, a stranger sees public data, modules and methods, nothing of functions and classes."""
        if not isinstance(name, str):
            raise WireError("an attribute without a name")
        if self.trusted:
            return getattr(target, name)
        hidden = AttributeError(f"{type(target).__name__!r} object has no attribute {name!r}")
        if name.startswith("_") or isinstance(target, (*_FUNCTIONS, *_INSIDES)):
            raise hidden
        if isinstance(target, nn.Module) and hasattr(nn.Module, name) and name != "extra_repr":
            raise hidden
        value = getattr(target, name)
        if isinstance(value, _INSIDES):
            raise hidden
        return value

    def _pull(self, key: int, args: list[Any]) -> list[Tensor | None]:
        """The vector-Jacobian product of a graph that we keep."""
        if key not in self._graphs or len(args) != 2 or not isinstance(args[0], list):
            raise WireError("a graph that is not there")
        outputs, inputs, keyed = self._graphs[key]
        if len(args[0]) != len(outputs):
            raise WireError("gradients that do not match")
        pairs = [(o, g) for o, g in zip(outputs, args[0], strict=True) if isinstance(g, Tensor)]
        if not pairs or not inputs:
            return [None] * keyed
        found = torch.autograd.grad(
            [o for o, _ in pairs], inputs, [g for _, g in pairs], retain_graph=True, create_graph=bool(args[1]),
            allow_unused=True,
        )  # fmt: skip
        if len(inputs) > keyed and self._waiting:
            pot = self._waiting[-1].extra_grads
            for leaf, grad in zip(inputs[keyed:], found[keyed:], strict=True):
                if grad is not None:
                    pot[id(leaf)] = pot[id(leaf)] + grad if id(leaf) in pot else grad
        return list(found[:keyed])

    def _keep_graph(self, packer: Packer, outputs: list[int]) -> Json:
        """Keep the graph of a reply's tensors, and say from which of the caller's tensors they were computed."""
        tensors = [packer.tensors[i] for i in outputs]
        known, keys, extras = [], [], []
        for leaf in _leaf_inputs(tensors):
            key = self._twin(leaf)
            if key is not None:
                known.append(leaf)
                keys.append(key)
            elif self._waiting:
                extras.append(leaf)
                self._waiting[-1].extras[id(leaf)] = leaf
        graph = self._new_key()
        self._graphs[graph] = (tensors, known + extras, len(known))
        return [graph, outputs, keys]

    def _mutations(
        self, unpacked: Unpacked, decoder: Decoder, filled: list[Any], states: list[bytes], encoder: Encoder
    ) -> Json:
        tensors = []
        changed = set(unpacked.changed())
        for index, (tensor, row, grad) in enumerate(zip(unpacked.tensors, unpacked.rows, unpacked.grads, strict=True)):
            new = -1
            if index in changed:
                borrowed = self._borrowed.get(-row[6])
                if borrowed is not None:
                    borrowed.agree()
                flag = wire.GRAD if tensor.requires_grad and tensor.is_leaf else 0
                new = encoder.packer.add(wire.plain(tensor.detach()), flag)
            update = -2
            if row[5] & wire.GRAD and not row[5] & wire.INNER and tensor.is_leaf:
                now = tensor.grad
                if now is None and grad is not None:
                    update = -1
                elif now is not None and (grad is None or not torch.equal(now, grad)):
                    update = encoder.packer.add(wire.plain(now.detach()))
            if new >= 0 or update != -2:
                tensors.append([index, new, update])
        containers = []
        for index, (container, before) in enumerate(zip(decoder.containers, filled, strict=True)):
            items = _snapshot(container)
            if len(items) != len(before) or any(a is not b for a, b in zip(items, before, strict=True)):
                known = encoder.known.pop(id(container), None)
                containers.append([index, encoder.value(container)])
                if known is not None:
                    encoder.known[id(container)] = known
        generators = [
            [index, encoder.packer.add(generator.get_state())]
            for index, (generator, before) in enumerate(zip(decoder.generators, states, strict=True))
            if wire.content(generator.get_state()) != before
        ]
        return [tensors, containers, generators] if tensors or containers or generators else None

    def _tells(self, error: BaseException) -> bool:
        """Whether an exception is told to the caller (or ends the conversation)."""
        return not isinstance(error, wire.ConnectionLost | KeyboardInterrupt | SystemExit)

    def _told(self, error: BaseException) -> Json:
        key = error.__dict__.get(KEY, 0) if hasattr(error, "__dict__") else 0
        if not key and not self.trusted:
            key = -self._new_key()
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

    def _new_key(self) -> int:
        self._last_key += 1
        return self._last_key

    def _twin(self, tensor: Tensor) -> int | None:
        """The key, as we send it, of a tensor that the other side has too."""
        key = tensor.__dict__.get(KEY)
        if type(key) is not int:
            return None
        if key in self._shared:
            return key if self._shared[key].tensor is tensor else None
        if key < 0 and key in self._leaves and self._leaves[key]() is tensor:
            return key
        return None

    def _tensor_of(self, key: int) -> Tensor:
        """The tensor of a key (ours: positive)."""
        found = self._leaves.get(key)
        tensor = found() if isinstance(found, weakref.ref) else found
        if key in self._shared:
            tensor = self._shared[key].tensor
        if not isinstance(tensor, Tensor):
            raise WireError("a tensor that is not there")
        return tensor

    def _cutter(self, packer: Packer) -> Callable[[Tensor], Json]:
        """Tensors of a request: copies; the graph is cut, and joined again by the reply."""
        memo: dict[int, int] = {}

        def write(tensor: Tensor) -> Json:
            twin = self._twin(tensor)
            if twin in self._shared:
                return ["P", twin]
            if id(tensor) in memo:
                return ["T", memo[id(tensor)]]
            value = wire.plain(tensor)
            flags = wire.PARAMETER if isinstance(value, nn.Parameter) else 0
            key, grad = self._new_key(), -1
            if not self.trusted:
                self._lent.note(key, value)
            if value.requires_grad:
                self._leaves[key] = value
                flags |= wire.GRAD
                if not value.is_leaf:
                    flags |= wire.INNER
                elif value.grad is not None:
                    grad = packer.add(wire.plain(value.grad.detach()))
            memo[id(tensor)] = packer.add(value, flags, key, grad, tensor)
            return ["T", memo[id(tensor)]]

        return write

    def _grapher(self, packer: Packer, outputs: list[int], lends: bool) -> Callable[[Tensor], Json]:
        """Tensors of a reply: those with a history are noted in `outputs`, new leaves stay leaves, the others are lent."""
        memo: dict[int, int] = {}

        def write(tensor: Tensor) -> Json:
            twin = self._twin(tensor)
            if twin is not None:
                return ["P", twin]
            if id(tensor) in memo:
                return ["T", memo[id(tensor)]]
            value = wire.plain(tensor)
            flags = wire.PARAMETER if isinstance(value, nn.Parameter) else 0
            key = 0
            if value.requires_grad and value.is_leaf:
                key = self._new_key()
                value.__dict__[KEY] = key
                self._shared[key] = _Shared(value)
                flags |= wire.GRAD | wire.SHARED
            elif lends:
                key = self._new_key()
                self._lent.note(key, value)
            index = memo[id(tensor)] = packer.add(value, flags, key)
            if value.requires_grad and not value.is_leaf:
                outputs.append(index)
            return ["T", index]

        return write

    # ------------------------------------------------------------------------------------------------ objects

    def _watch(self, thing: Any, key: int) -> None:
        """Tell the other side, with the next message, when a stand-in is gone."""
        weakref.finalize(thing, self._dead.append, key).atexit = False

    def _forget(self, key: int) -> None:
        """The other side no longer uses what we call `key`."""
        target = self._mine.pop(key, None)
        if target is not None:
            self._key_by_id.pop(id(target), None)
        self._signatures.pop(key, None)
        self._leaves.pop(key, None)
        self._graphs.pop(key, None)
        self._modules.pop(key, None)
        self._shared.pop(key, None)

    def _give_up(self) -> list[int]:
        """Let go of stand-ins that nobody here uses; the keys of all that are gone since the last message."""
        for key in list(self._kept):
            if sys.getrefcount(self._kept[key]) <= 2:
                del self._kept[key]
        for key, shared in self._shared.items():
            if key < 0:
                shared.loosen()
        dead = self._dead[:]  # the list itself stays: finalizers hold it
        del self._dead[: len(dead)]
        for key in dead:
            self._shared.pop(key, None)
            self._modules.pop(key, None)
        return dead

    def _own(self, target: Any) -> int:
        key = self._key_by_id.get(id(target))
        if key is None:
            if len(self._mine) >= MAX_OBJECTS:
                raise Uncrossable("too many objects are in use across the wall")
            key = self._new_key()
            self._mine[key] = target
            self._key_by_id[id(target)] = key
        return key

    def _export(self, value: Any) -> Json:
        """The JSON of something that is not data."""
        key = key_of(value, self)
        if key is not None:
            return ["O", -key]
        if issubclass(type(value), nn.Module):
            return ["M", self._own_module(value)]
        if isinstance(value, type):
            return ["C", *self._class(value)]
        if isinstance(value, _FUNCTIONS):
            key = self._own(value)
            if key not in self._signatures:
                self._signatures[key] = signature_of(value) if isinstance(value, types.FunctionType) else None
            return ["F", key, name_of(value), self._signatures[key]]
        if isinstance(value, _INSIDES):
            raise Uncrossable(f"a {type(value).__name__} cannot be handed over")
        return ["H", self._own(value), *self._class(type(value))]

    def _class(self, cls: type) -> list[Json]:
        """A class's key, and its description the first time."""
        key = self._own(cls)
        if key in self._described:
            return [key, None]
        self._described.add(key)
        return [key, describe_class(cls, methods=not self.trusted)]

    def _resolver(self, unpacked: Unpacked, sent: _Sent | None) -> Callable[[str, list[Json]], Any]:
        """Reads what is not data."""

        def resolve(tag: str, rest: list[Json]) -> Any:
            if not rest or type(rest[0]) is not int:
                raise WireError("a reference without a key")
            key = rest[0]
            if tag == "T":
                return _at(unpacked.tensors, key)
            if tag == "P":
                return self._tensor_of(-key)
            if tag == "A" and sent is not None:
                arrays = dict(sent.encoder.arrays)
                return arrays[key] if key in arrays else _at(sent.encoder.packer.originals, key)
            if tag == "B" and sent is not None:
                return _at(sent.encoder.containers, key)
            if tag == "O":
                if key not in self._mine:
                    raise WireError("an object that is not there")
                return self._mine[key]
            if key <= 0:
                raise WireError("a reference with an odd key")
            found = self._theirs.get(-key)
            if found is not None:
                return found
            if tag == "F" and len(rest) == 3:
                return self._adopt(-key, stand_in_function(self, -key, rest[1], rest[2]))
            if tag == "C" and len(rest) == 2:
                return self._adopt_class(-key, rest[1])
            if tag == "H" and len(rest) == 3 and type(rest[1]) is int:
                cls = self._adopt_class(-rest[1], rest[2])
                if not issubclass(cls, RemoteObject):
                    raise WireError("an object of an odd class")
                return self._adopt(-key, RemoteObject.stand_in(cls, self, -key))
            raise WireError("a value of an unknown kind")

        return resolve

    def _adopt(self, key: int, stand_in: Any) -> Any:
        if len(self._theirs) >= MAX_OBJECTS:
            raise WireError("too many objects")
        self._theirs[key] = stand_in
        if key in self._dead:
            self._dead.remove(key)
        self._watch(stand_in, key)
        return stand_in

    def _adopt_class(self, key: int, description: Json) -> type:
        if key not in self._classes:
            if len(self._classes) > 1000:
                raise WireError("too many classes")
            self._classes[key] = stand_in_class(self, key, description)
        return self._classes[key]

    # ------------------------------------------------------------------------------------------------ modules

    def _own_module(self, module: nn.Module) -> int:
        """Hand over a module with all that it contains."""
        for part in module.modules():
            if key_of(part, self) is None:
                key = self._own(part)
                if key not in self._modules:
                    self._modules[key] = (part, None)
        return self._own(module)

    def _signature(self, module: nn.Module) -> tuple[Any, ...]:
        """What a module consists of, by keys; new parts get their keys here."""
        persistent = module._non_persistent_buffers_set
        children = []
        for name, child in module._modules.items():
            if child is None:
                children.append((name, 0))
            else:
                theirs = key_of(child, self)
                children.append((name, theirs if theirs is not None else self._own_module(child)))
        return (
            module.training,
            tuple((name, self._share(p)) for name, p in module._parameters.items()),
            tuple((name, self._share(b), name not in persistent) for name, b in module._buffers.items()),
            tuple(children),
        )

    def _share(self, tensor: Tensor | None) -> int:
        if tensor is None:
            return 0
        key = tensor.__dict__.get(KEY)
        if type(key) is int and key in self._shared and self._shared[key].tensor is tensor:
            return key
        key = self._new_key()
        tensor.__dict__[KEY] = key
        self._shared[key] = shared = _Shared(tensor)
        shared.shape = None  # so that it differs, and is sent
        return key

    def _describe_changes(self, packer: Packer) -> Json:
        """What changed in the modules and parameters that both sides hold."""
        modules: list[Json] = []
        done: set[int] = set()
        while len(done) < len(self._modules):  # describing one can add others
            for key in [k for k in self._modules if k not in done]:
                done.add(key)
                holder, before = self._modules[key]
                module = holder() if isinstance(holder, weakref.ref) else holder
                if module is None:
                    continue
                now = self._signature(module)
                if now != before:
                    described = None if before is not None else self._class(type(module))
                    self._modules[key] = (holder, now)
                    modules.append([key, described, now[0], *(list(map(list, part)) for part in now[1:])])
        tensors = [change for key, shared in self._shared.items() if (change := _changes(key, shared, packer))]
        return [tensors, modules] if tensors or modules else None

    def _take_changes(self, changes: Json, unpacked: Unpacked) -> None:
        if not (isinstance(changes, list) and len(changes) == 2 and all(isinstance(c, list) for c in changes)):
            raise WireError("odd changes")
        for change in changes[0]:
            if not (isinstance(change, list) and len(change) == 4 and all(type(n) is int for n in change)):
                raise WireError("an odd change of a tensor")
            key, new, grad, flags = -change[0], *change[1:]
            shared = self._shared.get(key)
            tensor = shared.tensor if shared is not None else None
            if shared is None or tensor is None:
                if key > 0 or new < 0:
                    continue
                self._shared[key] = shared = self._new_twin(key, _at(unpacked.tensors, new), flags)
                tensor = shared.tensor
            elif new >= 0:
                value = _at(unpacked.tensors, new)
                same = tensor.shape == value.shape and tensor.dtype == value.dtype
                if same or self.trusted or key < 0:
                    _overwrite(tensor, value, bool(flags & wire.GRAD))
                    shared.agree()
                else:
                    shared.shape = None  # keeps ours, and has it sent
            if grad != -2 and tensor is not None:
                _set_grad(tensor, None if grad < 0 else _at(unpacked.tensors, grad))
                shared.agree_grad()
        self._take_structure(changes[1])

    def _new_twin(self, key: int, value: Tensor, flags: int) -> _Shared:
        if len(self._shared) >= MAX_OBJECTS:
            raise WireError("too many parameters")
        value = value.detach()
        twin = nn.Parameter(value, requires_grad=False) if flags & wire.PARAMETER else value
        if flags & wire.GRAD and (value.is_floating_point() or value.is_complex()):
            twin.requires_grad_()
        twin.__dict__[KEY] = key
        self._watch(twin, key)
        return _Shared(twin)

    def _take_structure(self, records: list[Json]) -> None:
        for record in records:
            if not (isinstance(record, list) and len(record) == 6 and type(record[0]) is int):
                raise WireError("an odd module")
            key, described = -record[0], record[1]
            if key < 0 and key not in self._modules:
                if not (isinstance(described, list) and len(described) == 2 and type(described[0]) is int):
                    raise WireError("a module without a class")
                if len(self._modules) >= MAX_OBJECTS:
                    raise WireError("too many modules")
                cls = self._adopt_class(-described[0], described[1])
                if not issubclass(cls, RemoteModule):
                    raise WireError("a module of an odd class")
                module = self._adopt(key, RemoteModule.stand_in(cls, self, key))
                self._modules[key] = (weakref.ref(module), None)
                self._kept[key] = module
        for record in records:
            key = -record[0]
            if key not in self._modules:
                continue
            holder = self._modules[key][0]
            module = holder() if isinstance(holder, weakref.ref) else holder
            if module is None:
                continue
            if record[2] is not module.training:
                module.training = bool(record[2])
            if key > 0 and not self.trusted:  # of a module of ours, a stranger sets the training flag at most
                self._modules[key] = (holder, self._signature(module))
                continue
            parameters, buffers, children = (_pairs(part) for part in record[3:])
            tensors = {k: self._shared_tensor(-k) for _, k, *_ in parameters + buffers}
            _replace(module._parameters, [(name, tensors[k]) for name, k, *_ in parameters], nn.Parameter)
            _replace(module._buffers, [(name, tensors[k]) for name, k, *_ in buffers], Tensor)
            module._non_persistent_buffers_set = {name for name, _, *keep in buffers if keep and not keep[0]}
            parts = [(name, self._module_of(-k) if k else None) for name, k, *_ in children]
            _replace(module._modules, parts, nn.Module)
            self._modules[key] = (holder, self._signature(module))

    def _shared_tensor(self, key: int) -> Tensor | None:
        if key == 0:
            return None
        if key not in self._shared:
            raise WireError("a parameter that is not there")
        return self._shared[key].tensor

    def _module_of(self, key: int) -> nn.Module:
        found = self._mine.get(key) if key > 0 else self._theirs.get(key)
        if not isinstance(found, nn.Module):
            raise WireError("a module that is not there")
        return found

    # ------------------------------------------------------------------------------------------------ memory

    def _borrow(self, unpacked: Unpacked, tensors: Sequence[Tensor]) -> None:
        """Note the tensors that came as those whose memory is kept in step."""
        for tensor, row in zip(tensors, unpacked.rows, strict=True):
            if row[6] and not row[5] & wire.SHARED:
                self._borrowed.note(-row[6], tensor)

    def _describe_writes(self, packer: Packer) -> Json:
        """What was written here into memory that both sides have."""
        writes: list[Json] = []
        thorough = self._serving + len(self._waiting) <= 1  # not in the middle of a call, where messages are many
        for key, tensor, counted in self._borrowed.news(thorough=thorough):
            writes.append([key, packer.add(tensor), counted])
        for key, tensor, counted in self._lent.news(thorough=thorough):
            writes.append([key, -1 if self.trusted else packer.add(tensor), counted])
        return writes or None

    def _take_writes(self, writes: Json, unpacked: Unpacked) -> None:
        if not (isinstance(writes, list) and len(writes) <= MAX_OBJECTS):
            raise WireError("odd writes")
        for write in writes:
            if not (isinstance(write, list) and [type(part) for part in write] == [int, int, bool]):
                raise WireError("an odd write")
            key, new, counts = -write[0], write[1], write[2]
            memory = self._lent.get(key) if key > 0 else self._borrowed.get(key)
            if memory is None:
                continue
            if key < 0 and not self.trusted:
                self._overwritten |= not memory.spoil()
            else:
                memory.write(_at(unpacked.tensors, new), counts=counts)

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
            _set_state(torch.default_generator, _at(unpacked.tensors, header["g"]))
            self._random = wire.content(torch.get_rng_state())
        else:
            digest = hashlib.blake2b(wire.content(torch.get_rng_state()), digest_size=8).digest()
            torch.default_generator.manual_seed(int.from_bytes(digest, "big") >> 1)
            self._random = b""


# ------------------------------------------------------------------------------------------------------- small parts


def _keys(value: Json) -> list[int]:
    if not isinstance(value, list) or len(value) > wire.MAX_NODES or any(type(k) is not int for k in value):
        raise WireError("keys that are not numbers")
    return value


def _three(value: Json) -> tuple[int, int, int]:
    if not (isinstance(value, list) and len(value) == 3 and all(type(n) is int for n in value)):
        raise WireError("an odd change of an argument")
    return value[0], value[1], value[2]


def _at(items: Sequence[Any], index: Json) -> Any:
    if type(index) is not int or not 0 <= index < len(items):
        raise WireError("an index that is not there")
    return items[index]


def _pairs(part: Json) -> list[list[Any]]:
    if not isinstance(part, list) or len(part) > MAX_OBJECTS:
        raise WireError("an odd module")
    for pair in part:
        if not (isinstance(pair, list) and 2 <= len(pair) <= 3 and isinstance(pair[0], str) and type(pair[1]) is int):
            raise WireError("an odd part of a module")
    return part


def _replace(target: dict[str, Any], items: Iterable[tuple[str, Any]], kind: type) -> None:
    items = list(items)
    for _, value in items:
        if value is not None and not isinstance(value, kind):
            raise WireError("an odd part of a module")
    if [(n, id(v)) for n, v in items] != [(n, id(v)) for n, v in target.items()]:
        target.clear()
        target.update(items)


def _changes(key: int, shared: _Shared, packer: Packer) -> Json:
    """What is to be said of a shared tensor: key, index of new content, of new gradient, flags; None for nothing."""
    tensor, new, grad, flags = shared.tensor, -1, -2, 0
    if tensor is None:
        return None
    if shared.differs(tensor):
        flags = (wire.PARAMETER if isinstance(tensor, nn.Parameter) else 0) | (wire.GRAD if tensor.requires_grad else 0)
        new = packer.add(wire.plain(tensor.detach()))
        shared.agree()
    if shared.grad_differs(tensor):
        grad = -1 if tensor.grad is None else packer.add(wire.plain(tensor.grad.detach()))
        shared.agree_grad()
    return [key, new, grad, flags] if new >= 0 or grad != -2 else None


def _overwrite(original: Tensor, value: Tensor, requires_grad: bool) -> None:
    """Give a tensor in use another's content, and its shape and dtype where these changed."""
    try:
        with torch.no_grad():
            if original.shape == value.shape and original.dtype == value.dtype:
                original.copy_(value.detach())
            else:
                original.data = value.detach()
        if original.is_leaf and original.requires_grad != requires_grad:
            original.requires_grad_(requires_grad)
    except RuntimeError:
        pass  # an expanded or inference tensor: code in this process could not have written it either


def _inner(leaf: Tensor) -> Tensor:
    """A tensor with the leaf's content and strides that is not a leaf."""
    with torch.enable_grad():
        copied = leaf.clone()
        if copied.stride() != leaf.stride():
            copied = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype).copy_(leaf)
    return copied


def _set_grad(tensor: Tensor, grad: Tensor | None) -> None:
    if grad is None:
        tensor.grad = None
    elif tensor.grad is not None and tensor.grad.shape == grad.shape and tensor.grad.dtype == grad.dtype:
        with torch.no_grad():
            tensor.grad.copy_(grad)
    elif grad.shape == tensor.shape and grad.dtype == tensor.dtype:
        tensor.grad = grad.detach()
    else:
        raise WireError("a gradient that does not fit")


def _set_state(generator: torch.Generator, state: Tensor) -> None:
    try:
        generator.set_state(state)
    except (RuntimeError, TypeError):
        raise WireError("an odd random state") from None


def _snapshot(container: Any) -> list[Any]:
    return [x for pair in container.items() for x in pair] if isinstance(container, dict) else list(container)


def _refill(container: Any, content: Any) -> None:
    if type(container) is not type(content):
        raise WireError("an argument of another kind")
    if isinstance(container, list):
        container[:] = content
    else:
        container.clear()
        container.update(content)


def _leaf_inputs(tensors: Iterable[Tensor]) -> list[Tensor]:
    """The leaves from which tensors were computed, in a fixed order."""
    found: dict[int, Tensor] = {}
    seen = set()
    stack = [t.grad_fn for t in tensors if t.grad_fn is not None]
    while stack:
        node = stack.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if len(seen) > _MAX_GRAPH:
            raise Uncrossable("the result's computation has too many steps to be differentiated from outside")
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, Tensor):
            found[id(leaf)] = leaf
        stack.extend(following for following, _ in node.next_functions if following is not None)
    return list(found.values())
