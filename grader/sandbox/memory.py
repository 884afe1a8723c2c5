"""Memory that both sides have: a tensor that crossed, and its twin on the other side.

Each side keeps a note of the tensors that it lent and of those that it borrowed, for as long as their memory is in use,
whoever uses it: a view, a detached alias, a list of the answer's own. With every message each side says what was written
since the last one, so that an answer that keeps its caller's tensor, or writes into one that a function returned,
does behind the wall what it does in one process.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

from grader.sandbox import wire
from grader.sandbox.wire import Json, Packer, Unpacked, WireError

_MAX_WRITES = 20_000


class Memory:
    """The elements of one tensor, as long as somebody holds their storage, and what they were when both sides agreed."""

    __slots__ = ("_agreed", "_count", "_dtype", "_place", "_storage", "_tensor", "returned")

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = weakref.ref(tensor)
        self._storage = StorageWeakRef(tensor.untyped_storage())
        self._place = _place(tensor)
        self._dtype = tensor.dtype
        self.returned = False
        """It was lent, and came back as a result."""
        self._agree(tensor)

    def tensor(self, *, counts: bool = True) -> Tensor | None:
        """A tensor over the memory; None when nobody uses that any more.

        Args:
            counts: that what is written into it counts for the tensor that crossed, if that is still there: a gradient
                that needs what was there before is an error then.
        """
        found = self._tensor() if counts else None
        if found is not None and found.untyped_storage()._cdata == self._storage.cdata and self._place == _place(found):
            return found.detach()
        if self._storage.expired():
            return None
        storage = torch.UntypedStorage._new_with_weak_ptr(self._storage.cdata)
        return None if storage is None else torch.empty(0, dtype=self._dtype).set_(storage, *self._place)

    def agree(self) -> None:
        """What it holds now is what both sides have."""
        tensor = self.tensor()
        if tensor is not None:
            self._agree(tensor)

    def _agree(self, tensor: Tensor) -> None:
        self._agreed, self._count = elements(tensor), _count(tensor)

    def write(self, value: Tensor, *, counts: bool) -> None:
        """Take over what the other side wrote.

        Raises:
            WireError: for content of another shape or dtype.
        """
        tensor = self.tensor(counts=counts)
        if tensor is None:
            return
        if value.shape != tensor.shape or value.dtype != tensor.dtype:
            raise WireError("a change of another shape")
        if not any(stride == 0 for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1):
            with torch.no_grad():
                tensor.copy_(value)
        self.agree()

    def spoil(self) -> bool:
        """Make it nan; false where it cannot be."""
        tensor = self.tensor()
        if tensor is not None and tensor.is_floating_point():
            self.write(torch.full_like(tensor, torch.nan), counts=True)
            return True
        return tensor is None

    def news(self, *, thorough: bool) -> tuple[Tensor, bool] | None:
        """Its tensor if something was written since both sides agreed, and whether that counted; they agree then.

        Args:
            thorough: also find what did not count (through `.data`, or numpy), which takes a look at every element.
        """
        if not thorough and not self._counted():
            return None
        tensor = self.tensor()
        if tensor is None or elements(tensor) == self._agreed:
            return None
        counted = _count(tensor) > self._count
        self._agree(tensor)
        return tensor, counted

    def _counted(self) -> bool:
        found = self._tensor()
        return found is not None and _count(found) != self._count

    @property
    def gone(self) -> bool:
        """Nobody here uses it any more."""
        return bool(self._storage.expired())


class Memories:
    """Notes of the memory that crossed in one direction, by key."""

    def __init__(self) -> None:
        self._notes: dict[int, Memory] = {}

    def __len__(self) -> int:
        return len(self._notes)

    def note(self, key: int, tensor: Tensor) -> None:
        """From now on `key` stands for this tensor's memory."""
        if tensor.numel():
            self._notes[key] = Memory(tensor)

    def get(self, key: int) -> Memory | None:
        return self._notes.get(key)

    def forget(self, key: int) -> None:
        self._notes.pop(key, None)

    def settle(self) -> list[int]:
        """Keys of memory that nobody here uses any more; they are forgotten."""
        gone = [key for key, memory in self._notes.items() if memory.gone]
        for key in gone:
            del self._notes[key]
        return gone

    def news(self, *, thorough: bool) -> Iterator[tuple[int, Tensor, bool]]:
        """What was written since both sides agreed."""
        for key, memory in self._notes.items():
            found = memory.news(thorough=thorough)
            if found is not None:
                yield key, *found


class Ledger:
    """The memory of one conversation: what was lent to the other side, and what was borrowed from it.

    Args:
        trusted: whether the other side may write into everything. Otherwise it may write into what we lent it; where it
            overwrites what it had given us or given back, that becomes nan here.
    """

    def __init__(self, *, trusted: bool) -> None:
        self._trusted = trusted
        self._lent = Memories()
        self._borrowed = Memories()
        self.overwritten = False
        """Something that the other side had given us was overwritten there, and could not be made nan."""

    def __len__(self) -> int:
        return len(self._lent) + len(self._borrowed)

    def lend(self, key: int, tensor: Tensor) -> None:
        """A tensor of ours goes out under this key."""
        self._lent.note(key, tensor)

    def borrow(self, unpacked: Unpacked, tensors: Sequence[Tensor]) -> None:
        """Note the tensors that came, as they are used here."""
        for tensor, row in zip(tensors, unpacked.rows, strict=True):
            if row[6] and not row[5] & wire.SHARED:
                self._borrowed.note(-row[6], tensor)

    def agree(self, key: int) -> None:
        """What a tensor holds now, lent or borrowed, is what both sides have."""
        memory = self._memory(key)
        if memory is not None:
            memory.agree()

    def returned(self, key: int) -> None:
        """A result of the other side is the very tensor that we lent it under this key: it stays as it came."""
        memory = self._memory(key)
        if memory is not None:
            memory.returned = True

    def _memory(self, key: int) -> Memory | None:
        """Ours have positive keys, theirs negative ones."""
        return self._lent.get(key) if key > 0 else self._borrowed.get(key)

    def forget(self, key: int) -> None:
        """The other side no longer uses what we lent it under this key."""
        self._lent.forget(key)

    def settle(self) -> list[int]:
        """Forget memory that is no longer used; the keys of what was borrowed and is given back."""
        self._lent.settle()
        return self._borrowed.settle()

    def describe(self, packer: Packer, *, thorough: bool) -> Json:
        """What was written here since the last message; None for nothing.

        Args:
            thorough: see `Memory.news`.
        """
        writes: list[Json] = []
        for key, tensor, counted in self._borrowed.news(thorough=thorough):
            writes.append([key, packer.add(tensor), counted])
        for key, tensor, counted in self._lent.news(thorough=thorough):
            writes.append([key, -1 if self._trusted else packer.add(tensor), counted])
        return writes or None

    def take(self, writes: Json, unpacked: Unpacked) -> None:
        """Do what `describe` of the other side said."""
        if not (isinstance(writes, list) and len(writes) <= _MAX_WRITES):
            raise WireError("odd writes")
        for write in writes:
            if not (isinstance(write, list) and [type(part) for part in write] == [int, int, bool]):
                raise WireError("an odd write")
            key, new, counts = -write[0], write[1], write[2]
            memory = self._memory(key)
            if memory is None:
                continue
            if not self._trusted and (key < 0 or memory.returned):
                self.overwritten |= not memory.spoil()
            else:
                memory.write(wire.at(unpacked.tensors, new), counts=counts)


def overwrite(original: Tensor, value: Tensor, requires_grad: bool) -> None:
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


def set_grad(tensor: Tensor, grad: Tensor | None) -> None:
    """Give a leaf a gradient, in the place of the one that it has where that fits."""
    if grad is None:
        tensor.grad = None
    elif tensor.grad is not None and tensor.grad.shape == grad.shape and tensor.grad.dtype == grad.dtype:
        with torch.no_grad():
            tensor.grad.copy_(grad)
    elif grad.shape == tensor.shape and grad.dtype == tensor.dtype:
        tensor.grad = grad.detach()
    else:
        raise WireError("a gradient that does not fit")


def _place(tensor: Tensor) -> tuple[int, torch.Size, tuple[int, ...]]:
    return int(tensor.storage_offset()), tensor.size(), tuple(tensor.stride())


def _count(tensor: Tensor) -> int:
    """How often autograd saw it written to."""
    return 0 if tensor.is_inference() else tensor._version


def elements(tensor: Tensor) -> bytes:
    """The bytes of a tensor's elements, without what lies between them, and once where they lie in one place."""
    tensor = tensor.detach()
    overlaps = wire.extent(tensor.shape, tensor.stride()) < tensor.numel()
    return wire.content(tensor if tensor.is_contiguous() or overlaps else tensor.contiguous())
