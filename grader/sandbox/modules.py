"""Modules that both sides have: structure, parameters, buffers and gradients in step.

A module that is handed over becomes on the other side a module of the same structure with real parameters. With every
message each side says what changed in its modules since the last one, whoever changed it: an optimizer, `load_state_dict`,
`requires_grad_`, a parameter put in the place of another.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Collection, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from grader.sandbox import wire
from grader.sandbox.memory import overwrite, set_grad
from grader.sandbox.objects import MAX_OBJECTS, Objects
from grader.sandbox.standins import KEY, RemoteModule
from grader.sandbox.wire import Json, Packer, Unpacked, WireError


class _Shared:
    """A parameter or buffer that both sides hold, and what it was when they last agreed."""

    __slots__ = ("_hold", "data", "flag", "grad", "result", "shape")

    def __init__(self, tensor: Tensor, *, result: bool = False) -> None:
        self._hold: Any = tensor
        self.grad: bytes | None = None
        self.result = result
        """It came as a result of a call, not as a part of a module."""
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

    def disagree(self) -> None:
        """It is to be sent, whatever the other side has."""
        self.shape = None

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

    def changes(self, key: int, packer: Packer) -> Json:
        """What is to be said of it: key, index of new content, of new gradient, flags; None for nothing."""
        tensor, new, grad, flags = self.tensor, -1, -2, 0
        if tensor is None:
            return None
        if self.differs(tensor):
            flags = wire.PARAMETER if isinstance(tensor, nn.Parameter) else 0
            flags |= wire.GRAD if tensor.requires_grad else 0
            new = packer.add(wire.plain(tensor.detach()))
            self.agree()
        if self.grad_differs(tensor):
            grad = -1 if tensor.grad is None else packer.add(wire.plain(tensor.grad.detach()))
            self.agree_grad()
        return [key, new, grad, flags] if new >= 0 or grad != -2 else None


class Modules:
    """The modules of one conversation, and the parameters in step, by key.

    Args:
        objects: where their keys come from.
        trusted: whether the other side may change ours in every respect; otherwise it may change values and gradients
            of parameters, and training flags, but nothing of their structure.
    """

    def __init__(self, objects: Objects, *, trusted: bool) -> None:
        self._objects = objects
        self._trusted = trusted
        self._shared: dict[int, _Shared] = {}
        self._modules: dict[int, tuple[Any, Any]] = {}
        """Each module (or a weak reference to it), and its structure when both sides last agreed."""
        self._kept: dict[int, Any] = {}
        """Stand-ins: given up in `loosen` only, so that the other side never counts on one that is gone."""

    def __len__(self) -> int:
        return len(self._shared) + len(self._modules)

    # --------------------------------------------------------------------------------------------------- parameters

    def tensor(self, key: int) -> Tensor | None:
        """The tensor of this key, if both sides have it."""
        shared = self._shared.get(key)
        return None if shared is None else shared.tensor

    def key(self, tensor: Tensor) -> int | None:
        """The key of a tensor that both sides have."""
        key = tensor.__dict__.get(KEY)
        return key if type(key) is int and key in self._shared and self._shared[key].tensor is tensor else None

    def share(self, tensor: Tensor) -> int:
        """A new key for a tensor whose content goes out with this message."""
        key = self._objects.new_key()
        tensor.__dict__[KEY] = key
        self._shared[key] = _Shared(tensor)
        return key

    def receive(self, unpacked: Unpacked, *, results: bool) -> None:
        """Take in what `share` of the other side announced, results of a call or not."""
        for tensor, row in zip(unpacked.tensors, unpacked.rows, strict=True):
            key = -row[6]
            if row[5] & wire.SHARED and key and key not in self._shared:
                tensor.__dict__[KEY] = key
                self._shared[key] = _Shared(tensor, result=results)
                self._objects.watch(tensor, key)

    def _part(self, tensor: Tensor | None) -> int:
        """The key of a part of a module."""
        if tensor is None:
            return 0
        key = self.key(tensor)
        if key is None:
            key = self.share(tensor)
            self._shared[key].disagree()
        return key

    # ----------------------------------------------------------------------------------------------------- modules

    def own(self, module: nn.Module) -> int:
        """Hand over a module with all that it contains."""
        for part in module.modules():
            if self._objects.key_of(part) is None:
                self._modules.setdefault(self._objects.own(part), (part, None))
        return self._objects.own(module)

    def forget(self, key: int) -> None:
        """One of the two sides no longer uses it."""
        self._modules.pop(key, None)
        self._shared.pop(key, None)

    def loosen(self) -> None:
        """Let go of stand-ins and parameters of theirs that nobody here uses."""
        for key in list(self._kept):
            if sys.getrefcount(self._kept[key]) <= 2:
                del self._kept[key]
        for key, shared in self._shared.items():
            if key < 0:
                shared.loosen()

    def _structure(self, module: nn.Module) -> tuple[Any, ...]:
        """What a module consists of, by keys; new parts get their keys here."""
        persistent = module._non_persistent_buffers_set
        children = []
        for name, child in module._modules.items():
            if child is None:
                children.append((name, 0))
            else:
                theirs = self._objects.key_of(child)
                children.append((name, theirs if theirs is not None else self.own(child)))
        return (
            module.training,
            tuple((name, self._part(p)) for name, p in module._parameters.items()),
            tuple((name, self._part(b), name not in persistent) for name, b in module._buffers.items()),
            tuple(children),
        )

    # ----------------------------------------------------------------------------------------------------- messages

    def describe(self, packer: Packer) -> Json:
        """What changed since the last message."""
        records: list[Json] = []
        done: set[int] = set()
        while len(done) < len(self._modules):  # describing one can add others
            for key in [k for k in self._modules if k not in done]:
                done.add(key)
                holder, before = self._modules[key]
                module = _held(holder)
                if module is None:
                    continue
                now = self._structure(module)
                if now != before:
                    described = None if before is not None else self._objects.named_class(type(module))
                    self._modules[key] = (holder, now)
                    records.append([key, described, now[0], *(list(map(list, part)) for part in now[1:])])
        tensors = [change for key, shared in self._shared.items() if (change := shared.changes(key, packer))]
        return [tensors, records] if tensors or records else None

    def take(self, changes: Json, unpacked: Unpacked, handed: Collection[int]) -> None:
        """Do what `describe` of the other side said.

        Args:
            handed: keys of tensors that were handed over for the other side to work on. Other results of its earlier
                calls stay as they came: overwritten there, they become nan here.
        """
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
                self._shared[key] = shared = self._new_twin(key, wire.at(unpacked.tensors, new), flags)
                tensor = shared.tensor
            elif new >= 0:
                value = wire.at(unpacked.tensors, new)
                same = tensor.shape == value.shape and tensor.dtype == value.dtype
                if shared.result and not self._trusted and key not in handed:
                    overwrite(tensor, torch.full_like(tensor, torch.nan), tensor.requires_grad)
                    shared.agree()
                elif same or self._trusted or key < 0:
                    overwrite(tensor, value, bool(flags & wire.GRAD))
                    shared.agree()
                else:
                    shared.disagree()  # ours stays, and is sent back
            if grad != -2 and tensor is not None:
                set_grad(tensor, None if grad < 0 else wire.at(unpacked.tensors, grad))
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
        self._objects.watch(twin, key)
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
                cls = self._objects.adopt_class(-described[0], described[1])
                if not issubclass(cls, RemoteModule):
                    raise WireError("a module of an odd class")
                module = self._objects.adopt(key, RemoteModule.stand_in(cls, self._objects.asker, key))
                self._modules[key] = (weakref.ref(module), None)
                self._kept[key] = module
        for record in records:
            key = -record[0]
            if key not in self._modules:
                continue
            holder = self._modules[key][0]
            module = _held(holder)
            if module is None:
                continue
            if record[2] is not module.training:
                module.training = bool(record[2])
            if key < 0 or self._trusted:
                self._rebuild(module, *(_pairs(part) for part in record[3:]))
            self._modules[key] = (holder, self._structure(module))

    def _rebuild(
        self, module: nn.Module, parameters: list[list[Any]], buffers: list[list[Any]], children: list[list[Any]]
    ) -> None:
        """Give a module the parts that it has on the other side."""
        tensors = {k: self._named_part(-k) for _, k, *_ in parameters + buffers}
        _replace(module._parameters, [(name, tensors[k]) for name, k, *_ in parameters], nn.Parameter)
        _replace(module._buffers, [(name, tensors[k]) for name, k, *_ in buffers], Tensor)
        module._non_persistent_buffers_set = {name for name, _, *keep in buffers if keep and not keep[0]}
        parts = [(name, self._named_module(-k) if k else None) for name, k, *_ in children]
        _replace(module._modules, parts, nn.Module)

    def _named_part(self, key: int) -> Tensor | None:
        if key == 0:
            return None
        if key not in self._shared:
            raise WireError("a parameter that is not there")
        return self._shared[key].tensor

    def _named_module(self, key: int) -> nn.Module:
        found = self._objects.mine(key) if key > 0 else self._objects.theirs(key)
        if not isinstance(found, nn.Module):
            raise WireError("a module that is not there")
        return found


def _held(holder: Any) -> Any:
    return holder() if isinstance(holder, weakref.ref) else holder


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
