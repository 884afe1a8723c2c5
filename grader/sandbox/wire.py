"""The wire between the judge and an answer: frames, and values inside frames.

A frame is a fixed prefix (magic, lengths), a JSON header and raw bytes. Values stand in the header as JSON: `None`,
bools, numbers and text as themselves, everything else as a list that begins with a one-letter tag; the elements of
tensors are the raw bytes. Nothing is ever unpickled or evaluated, on either side, and every size, depth and count has a
cap. The judge reads strictly: whatever it receives was perhaps written by hostile code, so the worst that a frame can
do is to be a wrong value, or to raise `WireError`.

This module knows values that are data. What lives on one side only (functions, modules, caches) is `peer`'s business:
it gives the encoder and the decoder a hook for it.
"""

from __future__ import annotations

import ctypes
import json
import math
import socket
import struct
import time
from collections import namedtuple
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from torch import Tensor

MAX_HEADER = 4 << 20
MAX_PAYLOAD = 256 << 20
MAX_ELEMENTS = 1 << 26
"""Elements of one tensor, also of an expanded one whose bytes are few: a check may copy it."""
MAX_DEPTH = 40
MAX_NODES = 100_000
MAX_TENSORS = 10_000
MAX_TEXT = 1 << 20
MAX_DIMS = 32

GRAD, INNER, PARAMETER, SPREAD, SHARED = 1, 2, 4, 8, 16
"""Flags of a tensor: requires grad; is not a leaf; is an `nn.Parameter`; its bytes are packed closer than its strides;
both sides keep it in step from now on."""

_PREFIX = struct.Struct("<4sIQ")
_MAGIC = b"ANS1"
_IOV = 64

Json = Any


class ConnectionLost(BaseException):
    """The conversation cannot go on. Not an `Exception`: neither an answer nor a check can swallow it."""


class WireError(ConnectionLost):
    """The other side sent something that the protocol does not know, or more of it than is allowed."""


class Gone(ConnectionLost):
    """The other side has ended."""


class Late(ConnectionLost):
    """The other side did not answer in time."""


class Uncrossable(TypeError):
    """A value that cannot be sent: names its type."""


DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8,
        torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.bool, torch.complex64, torch.complex128,
        torch.float8_e4m3fn, torch.float8_e5m2,
    )
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in DTYPES.items()}
_DIFFERENTIABLE = {d for d in DTYPES.values() if d.is_floating_point or d.is_complex}


# ------------------------------------------------------------------------------------------------------- frames


class Channel:
    """Frames over a connected stream socket.

    `until` is the moment (`time.monotonic()`) after which sending and receiving give up; None waits for ever.

    Raises (send, receive):
        Gone: the other side has ended.
        Late: `until` has passed.
        WireError: what came is no frame, or too large.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._unread = bytearray()
        self.until: float | None = None

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def send(self, header: Json, blobs: Sequence[bytes] = ()) -> None:
        """Send one frame."""
        text = json.dumps(header, separators=(",", ":")).encode()
        size = sum(map(len, blobs))
        if len(text) > MAX_HEADER or size > MAX_PAYLOAD:
            raise Uncrossable(f"the value is too large to be sent: {(len(text) + size) / 1e6:.0f} MB")
        prefix = _PREFIX.pack(_MAGIC, len(text), size) + text
        parts = [prefix, *blobs] if len(blobs) < _IOV else [prefix, b"".join(blobs)]
        try:
            self._wait_limit()
            sent = self._socket.sendmsg(parts)
            if sent < len(prefix) + size:
                rest = memoryview(b"".join(parts))[sent:]
                while rest:
                    self._wait_limit()
                    rest = rest[self._socket.send(rest) :]
        except TimeoutError:
            raise Late("the time is over") from None
        except OSError:
            raise Gone("the other side has ended") from None

    def receive(self) -> tuple[Json, bytes]:
        """The next frame's header and payload."""
        magic, length, size = _PREFIX.unpack(self._take(_PREFIX.size))
        if magic != _MAGIC or length > MAX_HEADER or size > MAX_PAYLOAD:
            raise WireError("not a frame, or a frame that is too large")
        text, payload = self._take(length), self._take(size)
        try:
            return json.loads(text), payload
        except (ValueError, RecursionError):
            raise WireError("a header that is not JSON") from None

    def _take(self, count: int) -> bytes:
        if len(self._unread) < count:
            if count > 1 << 16:
                return self._take_large(count)
            try:
                while len(self._unread) < count:
                    self._wait_limit()
                    chunk = self._socket.recv(1 << 16)
                    if not chunk:
                        raise Gone("the other side has ended")
                    self._unread += chunk
            except TimeoutError:
                raise Late("the time is over") from None
            except OSError:
                raise Gone("the other side has ended") from None
        taken = bytes(self._unread[:count])
        del self._unread[:count]
        return taken

    def _take_large(self, count: int) -> bytes:
        out = bytearray(count)
        have = len(self._unread)
        out[:have] = self._unread
        self._unread.clear()
        view = memoryview(out)
        while have < count:
            self._wait_limit()
            try:
                got = self._socket.recv_into(view[have:])
            except TimeoutError:
                raise Late("the time is over") from None
            except OSError:
                got = 0
            if not got:
                raise Gone("the other side has ended")
            have += got
        return bytes(out)

    def _wait_limit(self) -> None:
        if self.until is not None:
            left = self.until - time.monotonic()
            if left <= 0:
                raise Late("the time is over")
            self._socket.settimeout(left)


# ------------------------------------------------------------------------------------------------------- tensors


def plain(tensor: Tensor) -> Tensor:
    """The tensor without a subclass's behaviour, lazy conjugation or negation."""
    if type(tensor) is not Tensor and type(tensor) is not torch.nn.Parameter:
        tensor = tensor.as_subclass(Tensor)
    if tensor.is_conj():
        tensor = tensor.resolve_conj()
    if tensor.is_neg():
        tensor = tensor.resolve_neg()
    return tensor


def extent(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """Elements of storage from the first to the last one that a view of these sizes and strides touches."""
    if 0 in sizes:
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))


def content(tensor: Tensor) -> bytes:
    """The bytes that a strided CPU tensor touches, from its first to its last element."""
    count = tensor.numel() if tensor.is_contiguous() else extent(tensor.shape, tensor.stride())
    count *= tensor.element_size()
    return ctypes.string_at(tensor.data_ptr(), count) if count else b""


class Packer:
    """Collects the tensors of one frame. Views of one storage stay views of one storage on the other side."""

    def __init__(self) -> None:
        self.tensors: list[Tensor] = []
        self.originals: list[Tensor] = []
        """The caller's own tensors, where `plain` had to make another."""
        self.marks: list[tuple[int, int, int]] = []
        """For each tensor its flags, its key (0: none), and the index of its `.grad` (-1: none)."""

    def add(self, tensor: Tensor, flags: int = 0, key: int = 0, grad: int = -1, original: Tensor | None = None) -> int:
        """Take a tensor (already `plain`); returns its index.

        Raises:
            Uncrossable: for layouts and devices that are not plain memory.
        """
        if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.dtype not in _NAMES:
            raise Uncrossable(f"a tensor on {tensor.device} of {tensor.dtype} and {tensor.layout} cannot be sent")
        self.tensors.append(tensor)
        self.originals.append(tensor if original is None else original)
        self.marks.append((flags, key, grad))
        return len(self.tensors) - 1

    def pack(self) -> tuple[list[Json], list[bytes]]:
        """A row for each tensor, and the blobs."""
        rows: list[Json] = []
        blobs: list[bytes] = []
        shared = self._shared_storages() if len(self.tensors) > 1 else {}
        placed: dict[int, int] = {}
        for tensor, (flags, key, grad) in zip(self.tensors, self.marks, strict=True):
            name, sizes = _NAMES[tensor.dtype], list(tensor.shape)
            if tensor.numel() == 0:
                rows.append([-1, name, 0, sizes, list(tensor.stride()), flags, key, grad])
                continue
            item = tensor.element_size()
            strides = None if tensor.is_contiguous() and 1 not in sizes else list(tensor.stride())
            pointer = tensor.untyped_storage().data_ptr()
            if pointer in shared:
                low, high = shared[pointer]
                if pointer not in placed:
                    placed[pointer] = len(blobs)
                    blobs.append(ctypes.string_at(pointer + low, high - low))
                offset = (tensor.data_ptr() - pointer - low) // item
                rows.append([placed[pointer], name, offset, sizes, list(tensor.stride()), flags, key, grad])
                continue
            if strides is not None and extent(sizes, strides) > 4 * tensor.numel() + 512:
                flags |= SPREAD
                blobs.append(content(tensor.detach().contiguous()))
            else:
                blobs.append(content(tensor))
            rows.append([len(blobs) - 1, name, 0, sizes, strides, flags, key, grad])
        return rows, blobs

    def _shared_storages(self) -> dict[int, tuple[int, int]]:
        """Storages that several tensors view, with the bytes from the first to the last that they touch."""
        pointers = [tensor.untyped_storage().data_ptr() for tensor in self.tensors]
        if len(set(pointers)) == len(pointers):
            return {}
        spans: dict[int, list[tuple[int, int]]] = {}
        for tensor, pointer in zip(self.tensors, pointers, strict=True):
            if tensor.numel():
                low = tensor.data_ptr() - pointer
                spans.setdefault(pointer, []).append(
                    (low, low + extent(tensor.shape, tensor.stride()) * tensor.element_size())
                )
        shared = {}
        for pointer, span in spans.items():
            low, high = min(a for a, _ in span), max(b for _, b in span)
            low -= low % 16  # a whole number of elements of any dtype
            if len(span) > 1 and high - low <= 4 * sum(b - a for a, b in span) + 4096:
                shared[pointer] = (low, high)
        return shared


class Unpacked:
    """The tensors of a received frame, and the means to tell later whether somebody wrote into them."""

    def __init__(self, tensors: list[Tensor], rows: Sequence[Sequence[Any]], grads: list[Tensor | None]) -> None:
        self.tensors = tensors
        self.rows = rows
        self.grads = grads
        self._before: list[tuple[int, tuple[int, ...], bytes]] = []

    def remember(self) -> None:
        """Keep where the tensors lie, and what they contain now."""
        self._before = [(tensor.data_ptr(), tensor.stride(), content(tensor)) for tensor in self.tensors]

    def in_place(self, index: int) -> bool:
        """Whether a tensor lies where it lay when it was remembered, in the same order."""
        tensor, row = self.tensors[index], self.rows[index]
        pointer, strides, _ = self._before[index]
        return (
            tensor.data_ptr() == pointer
            and tensor.stride() == strides
            and list(tensor.shape) == row[3]
            and _NAMES.get(tensor.dtype) == row[1]
        )

    def changed(self) -> list[int]:
        """Indices of the tensors whose memory, layout, dtype or flag differ from what was remembered."""
        return [
            index
            for index, (tensor, row) in enumerate(zip(self.tensors, self.rows, strict=True))
            if not self.in_place(index)
            or content(tensor) != self._before[index][2]
            or (not row[5] & INNER and bool(row[5] & GRAD) != tensor.requires_grad)
        ]


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise WireError(problem)


def at(items: Sequence[Any], index: Json) -> Any:
    """The item that a message names by its index."""
    _require(type(index) is int and 0 <= index < len(items), "an index that is not there")
    return items[index]


def keys(value: Json) -> list[int]:
    """The keys that a message lists."""
    _require(isinstance(value, list) and len(value) <= MAX_NODES, "keys that are not numbers")
    _require(all(type(key) is int for key in value), "keys that are not numbers")
    return list(value)


def view(base: Tensor, start: Json, sizes: Json, strides: Json) -> Tensor:
    """The view of a tensor that a message describes: first element, counted from the tensor's own first, and layout.

    Raises:
        WireError: it reaches beyond the tensor.
    """
    sizes, strides = _ints(sizes), _ints(strides)
    _require(type(start) is int and start >= 0 and len(sizes) == len(strides), "an odd view")
    _require(math.prod(sizes) <= MAX_ELEMENTS, f"a tensor of more than {MAX_ELEMENTS} elements")
    reach = start + extent(sizes, strides)
    _require(0 not in sizes and reach <= extent(base.shape, base.stride()), "a view beyond its tensor")
    return base.as_strided(sizes, strides, base.storage_offset() + start)


def _ints(value: Json, low: int = 0, high: int = 1 << 62) -> list[int]:
    _require(isinstance(value, list) and len(value) <= MAX_DIMS, "sizes are not a list of numbers")
    for item in value:
        _require(type(item) is int and low <= item <= high, "sizes are not a list of numbers")
    return list(value)


def _default_strides(sizes: Sequence[int]) -> list[int]:
    strides = list(accumulate(reversed([max(1, n) for n in sizes[1:]]), lambda a, b: a * b, initial=1))
    return strides[::-1] if sizes else []


def unpack(rows: Json, lengths: Json, payload: bytes) -> Unpacked:
    """The tensors that `Packer.pack` wrote; leaves where their flags say that they require grad.

    Raises:
        WireError: for anything that does not fit together.
    """
    _require(isinstance(rows, list) and isinstance(lengths, list), "no table of tensors")
    _require(len(rows) <= MAX_TENSORS and len(lengths) <= MAX_TENSORS, "too many tensors")
    starts = [0]
    for length in lengths:
        _require(type(length) is int and length >= 0, "a blob without a length")
        starts.append(starts[-1] + length)
    _require(starts[-1] == len(payload), "the payload is not as long as its blobs")
    stored: dict[int, Tensor] = {}
    tensors, total, spread = [], 0, 0
    address = ctypes.cast(ctypes.c_char_p(payload), ctypes.c_void_p).value or 0
    for row in rows:
        _require(isinstance(row, list) and len(row) == 8, "a tensor's row is not complete")
        blob, name, offset, sizes, strides, flags, key, grad = row
        _require(isinstance(name, str) and name in DTYPES, "an unknown dtype")
        _require(all(type(n) is int for n in (blob, offset, flags, key, grad)), "a tensor's row is not of numbers")
        _require(key >= 0 and flags >= 0 and grad < len(rows), "a tensor's row is out of range")
        dtype = DTYPES[name]
        sizes = _ints(sizes)
        if strides is not None:
            _require(len(_ints(strides)) == len(sizes), "sizes and strides do not match")
        count = 1
        for n in sizes:
            count *= n
            _require(count <= MAX_ELEMENTS or 0 in sizes, f"a tensor of more than {MAX_ELEMENTS} elements")
        total += count
        _require(total <= 2 * MAX_ELEMENTS, "too many elements in one frame")
        if flags & SPREAD and strides is not None and 0 not in sizes:
            spread += extent(sizes, strides) * dtype.itemsize
            _require(spread <= MAX_PAYLOAD, "tensors spread too wide")
        with torch.no_grad():
            if strides is None and offset == 0 and 0 <= blob < len(lengths) and count * dtype.itemsize == lengths[blob]:
                tensor = _whole(dtype, sizes, address + starts[blob], lengths[blob])
            else:
                strides = _default_strides(sizes) if strides is None else strides
                tensor = _one(blob, dtype, offset, sizes, strides, flags, stored, lengths, starts, address)
            if flags & PARAMETER:
                tensor = torch.nn.Parameter(tensor, requires_grad=False)
        if flags & GRAD:
            _require(dtype in _DIFFERENTIABLE, "integers that require grad")
            if not torch.is_inference_mode_enabled():
                tensor.requires_grad_()
        tensors.append(tensor)
    return Unpacked(tensors, rows, [tensors[row[7]] if row[7] >= 0 else None for row in rows])


def _whole(dtype: torch.dtype, sizes: list[int], address: int, size: int) -> Tensor:
    """A contiguous tensor of the bytes at an address."""
    tensor = torch.empty(sizes, dtype=dtype)
    ctypes.memmove(tensor.data_ptr(), address, size)
    return tensor.view(torch.uint8).ne(0) if dtype is torch.bool else tensor


def _one(
    blob: int, dtype: torch.dtype, offset: int, sizes: list[int], strides: list[int], flags: int,
    stored: dict[int, Tensor], lengths: list[int], starts: list[int], address: int,
) -> Tensor:  # fmt: skip
    """A tensor that is a view, or packed, or shares its blob. `address` is where the payload begins."""
    if 0 in sizes:
        return torch.empty_strided(sizes, [min(s, MAX_ELEMENTS) for s in strides], dtype=dtype)
    item, span = dtype.itemsize, extent(sizes, strides)
    _require(0 <= blob < len(lengths) and offset >= 0, "a tensor without its blob")
    if flags & SPREAD:
        count = 1
        for n in sizes:
            count *= n
        _require(lengths[blob] == count * item and offset == 0, "a tensor is not as long as its blob")
        packed = _whole(dtype, sizes, address + starts[blob], count * item)
        return torch.zeros(span, dtype=dtype).as_strided(sizes, strides).copy_(packed).data
    _require((offset + span) * item <= lengths[blob], "a tensor reaches beyond its blob")
    if blob not in stored:
        stored[blob] = torch.empty(lengths[blob], dtype=torch.uint8)
        ctypes.memmove(stored[blob].data_ptr(), address + starts[blob], lengths[blob])
    if dtype is torch.bool:  # a byte that is neither 0 nor 1 compares oddly
        bytes_ = stored[blob][offset : offset + span]
        bytes_.copy_(bytes_.ne(0))
    # .data: a tensor that nobody has written to yet, as autograd counts
    return torch.empty(0, dtype=dtype).set_(stored[blob].untyped_storage(), offset, sizes, strides).data


# ------------------------------------------------------------------------------------------------------- values


class Encoder:
    """Writes values. `export(value)` gives the JSON of what is not data, or raises `Uncrossable`.

    `known` holds JSON by `id` for objects that the other side has already; `tensor(t)` gives the JSON of a tensor,
    having put it into `packer` if need be. Lists, dicts and sets that were written are in `containers`, numpy arrays
    in `arrays`, generators in `generators`, each in the order of writing.
    """

    def __init__(self, packer: Packer, export: Callable[[Any], Json], tensor: Callable[[Tensor], Json]) -> None:
        self.packer = packer
        self.known: dict[int, Json] = {}
        self.containers: list[Any] = []
        self.arrays: list[tuple[int, np.ndarray]] = []
        self.generators: list[torch.Generator] = []
        self._keep: list[Any] = []
        self._export, self._tensor = export, tensor
        self._nodes = 0

    def value(self, value: Any, depth: int = 0) -> Json:
        """The JSON of a value.

        Raises:
            Uncrossable: what cannot be sent, or is nested too deeply, or has too many parts.
        """
        self._nodes += 1
        if depth > MAX_DEPTH or self._nodes > MAX_NODES:
            raise Uncrossable("the value is nested too deeply, contains itself, or has too many parts")
        kind = type(value)
        if value is None or kind is bool or kind is float:
            return value
        if kind is int:
            if value.bit_length() > 10_000:
                raise Uncrossable(f"a number of {value.bit_length()} bits is too large to be sent")
            return value
        if kind is str:
            if len(value) > MAX_TEXT:
                raise Uncrossable(f"a text of {len(value)} characters is too long to be sent")
            return value
        found = self.known.get(id(value))
        if found is not None:
            return found
        if issubclass(kind, Tensor):  # not isinstance: a class can lie about itself
            return self._tensor(value)
        writer = _WRITERS.get(kind)
        if writer is not None:
            return writer(self, value, depth + 1)
        if issubclass(kind, np.generic):
            return ["S", self._array(np.asarray(value))]
        fields = _fields(value)
        if fields is not None:
            return ["n", kind.__name__.split(".")[-1], list(fields), *(self.value(v, depth + 1) for v in value)]
        for base in (int, float, complex, str, tuple, list, dict, set, frozenset, bytes):
            if issubclass(kind, base) and (kind.__module__ == "collections" or not _has_methods(kind, base)):
                return self._as(base, value, depth)
        return self._export(value)

    def _as(self, base: type, value: Any, depth: int) -> Json:
        """A subclass of a plain type, as that plain type."""
        if base in (list, dict, set):
            copied = base(value)
            self._keep.append(copied)
            return self.value(copied, depth)
        return self.value(base.__new__(base, value), depth)

    def _array(self, value: np.ndarray) -> int:
        array = np.ascontiguousarray(value).reshape(value.shape)
        try:
            tensor = torch.from_numpy(array if array.flags.writeable else array.copy())
        except TypeError:
            raise Uncrossable(f"a numpy array of {value.dtype} cannot be sent") from None
        self._keep.append(array)
        return self.packer.add(tensor)


def _fields(value: Any) -> tuple[str, ...] | None:
    """The field names of a named tuple, or of one of PyTorch's several results."""
    if not issubclass(type(value), tuple):
        return None
    names = getattr(value, "_fields", None)
    if names is None and type(value).__module__ == "torch.return_types":
        names = getattr(type(value), "__match_args__", None)
    whole = isinstance(names, tuple) and len(names) == len(value) and all(isinstance(n, str) for n in names)
    return names if whole else None


def _has_methods(kind: type, base: type) -> bool:
    """Whether a subclass of a plain type does more than the plain type."""
    own = kind.__mro__[: kind.__mro__.index(base)]
    return any(callable(v) and not n.startswith("__") for c in own for n, v in vars(c).items() if c is not base)


def _write_list(e: Encoder, v: Any, depth: int) -> Json:
    e.containers.append(v)
    return ["l", *(e.value(item, depth) for item in v)]


def _write_set(e: Encoder, v: Any, depth: int) -> Json:
    e.containers.append(v)
    return ["s", *(e.value(item, depth) for item in v)]


def _write_dict(e: Encoder, v: Any, depth: int) -> Json:
    e.containers.append(v)
    return ["d", *([e.value(key, depth), e.value(item, depth)] for key, item in v.items())]


def _write_array(e: Encoder, v: Any, depth: int) -> Json:
    index = e._array(v)
    e.arrays.append((index, v))
    return ["N", index]


def _write_generator(e: Encoder, v: Any, depth: int) -> Json:
    e.generators.append(v)
    return ["G", e.packer.add(v.get_state())]


_WRITERS: dict[type, Callable[[Encoder, Any, int], Json]] = {
    tuple: lambda e, v, depth: ["t", *(e.value(item, depth) for item in v)],
    list: _write_list,
    dict: _write_dict,
    set: _write_set,
    frozenset: lambda e, v, depth: ["f", *(e.value(item, depth) for item in v)],
    torch.Size: lambda e, v, depth: ["z", *v],
    torch.dtype: lambda e, v, depth: ["y", _NAMES.get(v, "?")],
    torch.device: lambda e, v, depth: ["v", str(v)],
    complex: lambda e, v, depth: ["c", v.real, v.imag],
    slice: lambda e, v, depth: ["i", *(e.value(part, depth) for part in (v.start, v.stop, v.step))],
    range: lambda e, v, depth: ["r", v.start, v.stop, v.step],
    bytes: lambda e, v, depth: ["b", e.value(v.decode("latin-1"), depth)],
    type(Ellipsis): lambda e, v, depth: ["e"],
    np.ndarray: _write_array,
    torch.Generator: _write_generator,
}


@lru_cache(maxsize=256)
def _named_tuple(name: str, fields: tuple[str, ...]) -> Any:
    return namedtuple(name, fields)


class Decoder:
    """Reads values. `resolve(tag, rest)` gives what is not data.

    Raises (value):
        WireError: for anything that `Encoder` does not write.
    """

    def __init__(self, tensors: Sequence[Tensor], resolve: Callable[[str, list[Json]], Any]) -> None:
        self.tensors = tensors
        self.containers: list[Any] = []
        self.arrays: list[tuple[int, np.ndarray]] = []
        self.generators: list[torch.Generator] = []
        self._resolve = resolve
        self._nodes = 0

    def value(self, value: Json, depth: int = 0) -> Any:
        """The value of a JSON."""
        self._nodes += 1
        _require(depth <= MAX_DEPTH + 1 and self._nodes <= 2 * MAX_NODES, "nested too deeply, or too many parts")
        kind = type(value)
        if value is None or kind is bool or kind is int or kind is float:
            return value
        if kind is str:
            _require(len(value) <= MAX_TEXT, "a text that is too long")
            return clean_text(value)
        _require(kind is list and len(value) > 0 and type(value[0]) is str, "a value without a tag")
        tag, rest = value[0], value[1:]
        reader = _READERS.get(tag)
        if reader is None:
            return self._resolve(tag, rest)
        try:
            return reader(self, rest, depth + 1)
        except (TypeError, ValueError, LookupError, RuntimeError, OverflowError, AttributeError) as error:
            raise WireError(f"a value that cannot be: {type(error).__name__}") from None

    def tensor(self, index: Json) -> Tensor:
        _require(type(index) is int and 0 <= index < len(self.tensors), "a tensor that is not there")
        return self.tensors[index]

    def _items(self, rest: list[Json], depth: int) -> list[Any]:
        return [self.value(item, depth) for item in rest]


def clean_text(text: str) -> str:
    """Text that any encoder can write: lone surrogates become question marks."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _read_list(d: Decoder, rest: list[Json], depth: int) -> list[Any]:
    out: list[Any] = []
    d.containers.append(out)
    out.extend(d._items(rest, depth))
    return out


def _read_set(d: Decoder, rest: list[Json], depth: int) -> set[Any]:
    out: set[Any] = set()
    d.containers.append(out)
    out.update(d._items(rest, depth))
    return out


def _read_dict(d: Decoder, rest: list[Json], depth: int) -> dict[Any, Any]:
    out: dict[Any, Any] = {}
    d.containers.append(out)
    for pair in rest:
        key, item = pair
        out[d.value(key, depth)] = d.value(item, depth)
    return out


def _read_named_tuple(d: Decoder, rest: list[Json], depth: int) -> Any:
    name, fields = rest[0], rest[1]
    _require(type(name) is str and type(fields) is list and len(fields) <= 64, "a named tuple without names")
    _require(all(type(f) is str and f.isidentifier() and len(f) < 100 for f in [name, *fields]), "an odd name")
    return _named_tuple(name, tuple(fields))(*d._items(rest[2:], depth))


def _read_size(d: Decoder, rest: list[Json], depth: int) -> torch.Size:
    return torch.Size(_ints(rest))


def _read_device(d: Decoder, rest: list[Json], depth: int) -> torch.device:
    _require(rest in (["cpu"], ["meta"]), "an unknown device")
    return torch.device(rest[0])


def _read_range(d: Decoder, rest: list[Json], depth: int) -> range:
    _require(len(rest) == 3 and all(type(n) is int for n in rest), "an odd range")
    return range(*rest)


def _read_complex(d: Decoder, rest: list[Json], depth: int) -> complex:
    _require(len(rest) == 2 and all(type(n) is float for n in rest), "an odd number")
    return complex(*rest)


def _read_array(d: Decoder, rest: list[Json], depth: int) -> np.ndarray:
    array = d.tensor(rest[0]).detach().numpy()
    d.arrays.append((rest[0], array))
    return array


def _read_generator(d: Decoder, rest: list[Json], depth: int) -> torch.Generator:
    generator = torch.Generator()
    generator.set_state(d.tensor(rest[0]))
    d.generators.append(generator)
    return generator


_READERS: dict[str, Callable[[Decoder, list[Json], int], Any]] = {
    "t": lambda d, rest, depth: tuple(d._items(rest, depth)),
    "l": _read_list,
    "d": _read_dict,
    "s": _read_set,
    "f": lambda d, rest, depth: frozenset(d._items(rest, depth)),
    "n": _read_named_tuple,
    "z": _read_size,
    "y": lambda d, rest, depth: DTYPES[rest[0]] if rest[0] in DTYPES else _unknown(),
    "v": _read_device,
    "c": _read_complex,
    "i": lambda d, rest, depth: slice(*d._items(rest, depth)),
    "r": _read_range,
    "b": lambda d, rest, depth: d.value(rest[0], depth).encode("latin-1"),
    "e": lambda d, rest, depth: ...,
    "N": _read_array,
    "S": lambda d, rest, depth: d.tensor(rest[0]).detach().numpy()[()],
    "G": _read_generator,
}


def _unknown() -> Any:
    raise WireError("an unknown dtype")
