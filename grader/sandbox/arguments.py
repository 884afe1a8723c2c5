"""Arguments that a call modified in place: they are modified for the caller too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from grader.sandbox import wire
from grader.sandbox.memory import Ledger, overwrite, set_grad
from grader.sandbox.wire import Decoder, Encoder, Json, Unpacked, WireError


class Arguments:
    """The arguments of a request, and what they were when they arrived.

    Args:
        unpacked: the tensors of the request.
        decoder: what read its values, and knows their lists, dicts, sets and generators.
    """

    def __init__(self, unpacked: Unpacked, decoder: Decoder) -> None:
        self._unpacked, self._decoder = unpacked, decoder
        unpacked.remember()
        self._filled = [_items(container) for container in decoder.containers]
        self._states = [wire.content(generator.get_state()) for generator in decoder.generators]

    def view(self, tensor: Tensor) -> Json:
        """Where a result lies in one of the tensors, as `wire.view` reads it there; None if it is no view of them."""
        if tensor.requires_grad or tensor.numel() == 0 or tensor.is_conj() or tensor.is_neg():
            return None
        storage = tensor.untyped_storage()._cdata
        for index, base in enumerate(self._unpacked.tensors):
            if base.untyped_storage()._cdata != storage or base.dtype != tensor.dtype or base.requires_grad:
                continue
            start = int(tensor.storage_offset() - base.storage_offset())
            reach = start + wire.extent(tensor.shape, tensor.stride())
            within = start >= 0 and reach <= wire.extent(base.shape, base.stride())
            if within and self._unpacked.in_place(index) and index not in dict(self._decoder.arrays):
                return ["V", index, start, list(tensor.shape), list(tensor.stride())]
        return None

    def changes(self, encoder: Encoder, ledger: Ledger) -> Json:
        """What the call did to them; None for nothing."""
        tensors = self._tensors(encoder, ledger)
        containers = []
        for index, (container, before) in enumerate(zip(self._decoder.containers, self._filled, strict=True)):
            items = _items(container)
            if len(items) != len(before) or any(a is not b for a, b in zip(items, before, strict=True)):
                known = encoder.known.pop(id(container), None)
                containers.append([index, encoder.value(container)])
                if known is not None:
                    encoder.known[id(container)] = known
        generators = [
            [index, encoder.packer.add(generator.get_state())]
            for index, (generator, before) in enumerate(zip(self._decoder.generators, self._states, strict=True))
            if wire.content(generator.get_state()) != before
        ]
        return [tensors, containers, generators] if tensors or containers or generators else None

    def _tensors(self, encoder: Encoder, ledger: Ledger) -> list[Json]:
        """For each tensor that changed: index, index of its new content (-1: as it was) and of its gradient (-2)."""
        out: list[Json] = []
        unpacked = self._unpacked
        changed = set(unpacked.changed())
        for index, (tensor, row, grad) in enumerate(zip(unpacked.tensors, unpacked.rows, unpacked.grads, strict=True)):
            new = -1
            if index in changed:
                ledger.agree(-row[6])
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
                out.append([index, new, update])
        return out


def modify(sent: Encoder, changes: Json, unpacked: Unpacked, decoder: Decoder, ledger: Ledger) -> None:
    """Do to the arguments that were sent what `Arguments.changes` of the other side says.

    Args:
        sent: what wrote the request.
        unpacked: the tensors of the reply, whose values `decoder` reads.
    """
    if changes is None:
        return
    if not (isinstance(changes, list) and len(changes) == 3 and all(isinstance(c, list) for c in changes)):
        raise WireError("odd changes of arguments")
    tensors, containers, generators = changes
    arrays = dict(sent.arrays)
    for change in tensors:
        index, new, grad = _ints(change, 3)
        original = wire.at(sent.packer.originals, index)
        if new >= 0:
            value = wire.at(unpacked.tensors, new)
            if index in arrays:
                if tuple(arrays[index].shape) == tuple(value.shape) and arrays[index].flags.writeable:
                    arrays[index][...] = value.detach().numpy()
            else:
                overwrite(original, value, bool(unpacked.rows[new][5] & wire.GRAD))
            ledger.agree(sent.packer.marks[index][1])
        if grad >= -1 and original.is_leaf:
            set_grad(original, None if grad < 0 else wire.at(unpacked.tensors, grad))
    for index, content in _pairs(containers):
        _refill(wire.at(sent.containers, index), decoder.value(content))
    for index, state in _pairs(generators):
        set_state(wire.at(sent.generators, index), decoder.tensor(state))


def set_state(generator: torch.Generator, state: Tensor) -> None:
    """Give a generator the state that the other side says."""
    try:
        generator.set_state(state)
    except (RuntimeError, TypeError):
        raise WireError("an odd random state") from None


def _ints(change: Json, count: int) -> list[int]:
    if not (isinstance(change, list) and len(change) == count and all(type(n) is int for n in change)):
        raise WireError("an odd change of an argument")
    return change


def _pairs(changes: list[Json]) -> Sequence[tuple[Json, Json]]:
    if not all(isinstance(change, list) and len(change) == 2 for change in changes):
        raise WireError("an odd change of an argument")
    return changes


def _items(container: Any) -> list[Any]:
    return [x for pair in container.items() for x in pair] if isinstance(container, dict) else list(container)


def _refill(container: Any, content: Any) -> None:
    if type(container) is not type(content):
        raise WireError("an argument of another kind")
    if isinstance(container, list):
        container[:] = content
    else:
        container.clear()
        container.update(content)
