"""Gradients across the wall.

The autograd graph of what a call computed stays on the side that computed it. The caller's graph gets a node in its
place, whose backward asks for the vector-Jacobian product, with respect to exactly those of the caller's tensors from
which the result was computed there: also through caches, closures and callbacks, and twice.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from grader.sandbox import wire
from grader.sandbox.memory import set_grad
from grader.sandbox.modules import Modules
from grader.sandbox.objects import Objects
from grader.sandbox.standins import KEY
from grader.sandbox.wire import Json, Packer, Uncrossable, Unpacked, WireError

_MAX_STEPS = 500_000


@dataclass
class Extras:
    """Leaves of this side that callbacks brought into the other side's graph while a request waits for its reply."""

    leaves: dict[int, Tensor] = field(default_factory=dict)
    grads: dict[int, Tensor] = field(default_factory=dict)


Ask = Callable[[int, Sequence[Any]], tuple[Extras, Any]]
"""Asks the other side for the gradients of a graph, by its key; gives also what callbacks brought in meanwhile."""


@dataclass
class _Kept:
    """A graph that the other side has a node for."""

    outputs: list[Tensor]
    inputs: list[Tensor]
    """Leaves: first the caller's, in the order of the keys that it was told."""
    callers: int


class _Way:
    """A node's way back: a graph that the other side keeps."""

    def __init__(self, ask: Ask, key: int, inputs: int, extras: Sequence[Tensor]) -> None:
        self._ask, self._key, self._inputs, self._extras = ask, key, inputs, extras

    def pull(self, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        extras, found = self._ask(self._key, (list(grads), torch.is_grad_enabled()))
        if not isinstance(found, list) or len(found) != self._inputs:
            raise WireError("gradients that were not asked for")
        return [*found, *(extras.grads.get(id(leaf)) for leaf in self._extras)]


class _Bridge(torch.autograd.Function):
    """Joins a graph of the other side to ours."""

    @staticmethod
    def forward(ctx: Any, way: _Way, values: Sequence[Tensor], *_inputs: Tensor) -> Any:
        ctx.way = way
        ctx.set_materialize_grads(False)
        return tuple(values)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        return (None, None, None, *ctx.way.pull(grads))


class Graphs:
    """The graphs of one conversation, and the tensors that lead from one to the other.

    Args:
        objects: where the keys come from.
        modules: the parameters that both sides have.
        ask: how the other side is asked for gradients.
    """

    def __init__(self, objects: Objects, modules: Modules, ask: Ask) -> None:
        self._objects, self._modules, self._ask = objects, modules, ask
        self._leaves: dict[int, Any] = {}
        """Ours that were sent, and weak references to their leaves that arrived here."""
        self._kept: dict[int, _Kept] = {}
        self._root = torch.zeros((), requires_grad=True)

    def __len__(self) -> int:
        return len(self._leaves) + len(self._kept)

    def forget(self, key: int) -> None:
        """One of the two sides no longer uses it."""
        self._leaves.pop(key, None)
        self._kept.pop(key, None)

    # ----------------------------------------------------------------------------------------------------- tensors

    def send(self, key: int, tensor: Tensor) -> None:
        """Remember a tensor of ours that requires grad and goes out under this key."""
        self._leaves[key] = tensor

    def arrive(self, unpacked: Unpacked) -> list[Tensor]:
        """The tensors of a request as the called code sees them; leaves are noted for the way back."""
        seen = []
        for tensor, row, grad in zip(unpacked.tensors, unpacked.rows, unpacked.grads, strict=True):
            flags, key = row[5], row[6]
            if key and tensor.requires_grad and not flags & wire.SHARED:
                tensor.__dict__[KEY] = -key
                self._leaves[-key] = weakref.ref(tensor)
                self._objects.watch(tensor, -key)
                if flags & wire.INNER:
                    tensor = _inner(tensor)
                elif grad is not None:
                    set_grad(tensor, grad)
            seen.append(tensor)
        return seen

    def twin(self, tensor: Tensor) -> int | None:
        """The key of a tensor that the other side has too: a parameter in step, or a leaf that came from there."""
        key = tensor.__dict__.get(KEY)
        if type(key) is not int or self._modules.tensor(key) is not None:
            return self._modules.key(tensor)
        return key if key < 0 and key in self._leaves and self._leaves[key]() is tensor else None

    def tensor(self, key: int) -> Tensor:
        """The tensor of a key, as `twin` gives it on the other side."""
        found = self._modules.tensor(key)
        if found is None:
            noted = self._leaves.get(key)
            found = noted() if isinstance(noted, weakref.ref) else noted
        if not isinstance(found, Tensor):
            raise WireError("a tensor that is not there")
        return found

    # ------------------------------------------------------------------------------------------------------ graphs

    def keep(self, packer: Packer, outputs: list[int], extras: Extras | None) -> Json:
        """Keep the graph of a reply's tensors, and say from which of the caller's tensors they were computed.

        Args:
            packer: the reply's tensors; `outputs` are the indices of those with a history.
            extras: where leaves of this side are noted, if the caller itself serves a request of ours.
        """
        tensors = [packer.tensors[i] for i in outputs]
        known, keys, others = [], [], []
        for leaf in _leaf_inputs(tensors):
            key = self.twin(leaf)
            if key is not None:
                known.append(leaf)
                keys.append(key)
            elif extras is not None:
                others.append(leaf)
                extras.leaves[id(leaf)] = leaf
        graph = self._objects.new_key()
        self._kept[graph] = _Kept(tensors, known + others, len(known))
        return [graph, outputs, keys]

    def join(self, joint: Json, unpacked: Unpacked, extras: Extras) -> None:
        """Give the tensors of a reply their place in our graph: what `keep` of the other side wrote."""
        if joint is None:
            return
        if not (isinstance(joint, list) and len(joint) == 3 and type(joint[0]) is int and joint[0] > 0):
            raise WireError("an odd graph")
        key, outputs, inputs = joint[0], wire.keys(joint[1]), wire.keys(joint[2])
        values = [unpacked.tensors[i] for i in outputs if 0 <= i < len(unpacked.tensors)]
        if len(values) != len(outputs) or len(set(outputs)) != len(outputs):
            raise WireError("a graph of tensors that are not there")
        if any(not (v.is_floating_point() or v.is_complex()) or v.requires_grad for v in values):
            raise WireError("a graph of tensors that have no gradients")
        leaves = list(extras.leaves.values())
        way = _Way(self._ask, key, len(inputs), leaves)
        self._objects.watch(way, -key)
        with torch.enable_grad():
            joined = _Bridge.apply(way, values, self._root, *(self.tensor(-k) for k in inputs), *leaves)
        for index, value in zip(outputs, joined, strict=True):
            unpacked.tensors[index] = value

    def pull(self, key: int, args: Sequence[Any], extras: Extras | None) -> list[Tensor | None]:
        """The vector-Jacobian product of a graph that we keep.

        Args:
            args: the gradients of its outputs, and whether the result is to be differentiated again.
            extras: where the gradients of leaves of this side are noted.
        """
        if key not in self._kept or len(args) != 2 or not isinstance(args[0], list):
            raise WireError("a graph that is not there")
        graph = self._kept[key]
        if len(args[0]) != len(graph.outputs):
            raise WireError("gradients that do not match")
        pairs = [(o, g) for o, g in zip(graph.outputs, args[0], strict=True) if isinstance(g, Tensor)]
        if not pairs or not graph.inputs:
            return [None] * graph.callers
        found = torch.autograd.grad(
            [o for o, _ in pairs],
            graph.inputs,
            [g for _, g in pairs],
            retain_graph=True,
            create_graph=bool(args[1]),
            allow_unused=True,
        )
        if extras is not None:
            for leaf, grad in zip(graph.inputs[graph.callers :], found[graph.callers :], strict=True):
                if grad is not None:
                    pot = extras.grads
                    pot[id(leaf)] = pot[id(leaf)] + grad if id(leaf) in pot else grad
        return list(found[: graph.callers])


def _inner(leaf: Tensor) -> Tensor:
    """A tensor with the leaf's content and strides that is not a leaf."""
    with torch.enable_grad():
        copied = leaf.clone()
        if copied.stride() != leaf.stride():
            copied = torch.empty_strided(leaf.shape, leaf.stride(), dtype=leaf.dtype).copy_(leaf)
    return copied


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
        if len(seen) > _MAX_STEPS:
            raise Uncrossable("the result's computation has too many steps to be differentiated from outside")
        leaf = getattr(node, "variable", None)
        if isinstance(leaf, Tensor):
            found[id(leaf)] = leaf
        stack.extend(following for following, _ in node.next_functions if following is not None)
    return list(found.values())
