"""Frames and values: what is sent arrives; whatever else comes is refused, quickly and without harm."""

from __future__ import annotations

import json
import random
import socket
import struct
import threading
import time
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from grader.sandbox import wire
from grader.sandbox.wire import Channel, Decoder, Encoder, Gone, Late, Packer, Uncrossable, WireError


def no_export(value: Any) -> Any:
    raise Uncrossable(f"a {type(value).__name__} cannot be sent")


def over(value: Any) -> Any:
    """The value after it was written, turned to bytes, and read."""
    packer = Packer()
    encoder = Encoder(packer, no_export, lambda t: ["T", packer.add(wire.plain(t))])
    written = json.loads(json.dumps(encoder.value(value)))
    rows, blobs = packer.pack()
    unpacked = wire.unpack(json.loads(json.dumps(rows)), [len(b) for b in blobs], b"".join(blobs))
    return Decoder(unpacked.tensors, lambda tag, rest: unpacked.tensors[rest[0]]).value(written)


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4) | st.tuples(inner, inner) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(plain)
def test_plain_values_arrive(value: Any) -> None:
    got = over(value)
    assert type(got) is type(value)
    # a lone half of a surrogate pair is no text that could be shown or saved: it becomes a question mark
    assert got == value or any(0xD800 <= ord(c) < 0xE000 for c in repr(value)) or "\\ud" in repr(value)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_view_arrives_with_its_strides(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 5), max_size=4))
    strides = [data.draw(st.integers(0, 40)) for _ in sizes]
    dtype = data.draw(st.sampled_from(sorted(wire.DTYPES)))
    offset = data.draw(st.integers(0, 7))
    storage = (torch.arange(offset + 200 * 4, dtype=torch.float32) % 251).to(wire.DTYPES[dtype])
    tensor = storage.as_strided(sizes, strides, offset)
    got = over(tensor)
    assert got.dtype == tensor.dtype and got.shape == tensor.shape
    assert got.numel() == 0 or got.stride() == tensor.stride()
    assert torch.equal(got.to(torch.complex128), tensor.to(torch.complex128))


def test_views_of_one_storage_stay_views_of_one_storage() -> None:
    base = torch.arange(24.0).view(4, 6)
    first, second, third = over((base[1:], base[:3, ::2], base.view(torch.int32)[0]))
    first[0, 0] = -1
    assert second[1, 0] == -1 and third.dtype == torch.int32 and torch.equal(first[1:], base[2:])


def test_a_wide_view_sends_what_it_shows() -> None:
    packer = Packer()
    packer.add(torch.zeros(1000, 1000)[::400, ::400])
    assert sum(map(len, packer.pack()[1])) == 9 * 4


@pytest.mark.parametrize("value", [object(), print, torch.nn.Linear(2, 2), torch.ones(2).to_sparse(), 10**4000])
def test_what_cannot_cross_says_so(value: Any) -> None:
    with pytest.raises(Uncrossable, match=r"cannot be sent|too large"):
        over(value)


def test_cyclic_deep_and_huge_values_are_refused() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    wide: Any = [1] * 10
    for _ in range(30):
        wide = [wide] * 10
    started = time.monotonic()
    for value in (cycle, deep, wide):
        with pytest.raises(Uncrossable, match="too deeply"):
            over(value)
    assert time.monotonic() - started < 5


BAD_ROWS: dict[str, Any] = {
    "beyond its blob": [[0, "float32", 0, [5], None, 0, 0, -1]],
    "offset beyond": [[0, "float32", 2, [4], None, 0, 0, -1]],
    "strides beyond": [[0, "float32", 0, [2], [9], 0, 0, -1]],
    "negative stride": [[0, "float32", 3, [2], [-1], 0, 0, -1]],
    "negative offset": [[0, "float32", -1, [2], None, 0, 0, -1]],
    "negative size": [[0, "float32", 0, [-2], None, 0, 0, -1]],
    "huge": [[0, "float32", 0, [1 << 40], [0], 0, 0, -1]],
    "huge product": [[0, "float32", 0, [1 << 20, 1 << 20], [0, 0], 0, 0, -1]],
    "just too large": [[0, "float32", 0, [(1 << 26) + 1], [0], 0, 0, -1]],
    "huge together": [[0, "float32", 0, [1 << 26], [0], 0, 0, -1]] * 3,
    "overflow": [[0, "float32", 0, [1 << 62, 1 << 62], [0, 0], 0, 0, -1]],
    "many dims": [[0, "float32", 0, [1] * 100, [0] * 100, 0, 0, -1]],
    "no such blob": [[7, "float32", 0, [4], None, 0, 0, -1]],
    "no blob": [[-1, "float32", 0, [4], None, 0, 0, -1]],
    "dtype": [[0, "object", 0, [4], None, 0, 0, -1]],
    "dtype kind": [[0, ["float32"], 0, [4], None, 0, 0, -1]],
    "integers with grad": [[0, "int32", 0, [4], None, wire.GRAD, 0, -1]],
    "own key": [[0, "float32", 0, [4], None, 0, -3, -1]],
    "grad index": [[0, "float32", 0, [4], None, 0, 0, 9]],
    "floats": [[0, "float32", 0, [4.0], None, 0, 0, -1]],
    "booleans": [[0, "float32", False, [4], None, 0, 0, -1]],
    "spread too wide": [[0, "float32", 0, [4], [1 << 40], wire.SPREAD, 0, -1]],
    "spread too wide together": [[0, "float32", 0, [4], [1 << 22], wire.SPREAD, 0, -1]] * 6,
    "spread too short": [[0, "float32", 0, [3], [2], wire.SPREAD, 0, -1]],
    "short row": [[0, "float32"]],
    "no row": [5],
    "no table": None,
    "too many": [[0, "float32", 0, [4], None, 0, 0, -1]] * 20_000,
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_odd_tensors_are_refused(case: str) -> None:
    with pytest.raises(WireError):
        wire.unpack(BAD_ROWS[case], [16], b"\0" * 16)


BAD_VIEWS: dict[str, Any] = {
    "beyond": (4, [5], [1]),
    "before": (-1, [2], [1]),
    "strides beyond": (0, [2, 3], [6, 1]),
    "negative stride": (3, [2], [-1]),
    "empty": (0, [0], [1]),
    "huge": (0, [1 << 40], [0]),
    "huge product": (0, [1 << 20, 1 << 20], [0, 0]),
    "unlike": (0, [2], [1, 1]),
    "no numbers": (0, "2", [1]),
    "no start": (None, [2], [1]),
}


@pytest.mark.parametrize("case", BAD_VIEWS)
def test_odd_views_are_refused(case: str) -> None:
    """What lies beside a tensor in its storage is not shown."""
    base = torch.arange(20)[4:12]
    assert wire.view(base, 1, [2, 2], [4, 1]).tolist() == [[5, 6], [9, 10]]
    with pytest.raises(WireError):
        wire.view(base, *BAD_VIEWS[case])


def test_odd_blobs_are_refused() -> None:
    for lengths in ([17], [-1, 17], [8], ["16"], None, [1 << 60]):
        with pytest.raises(WireError):
            wire.unpack([], lengths, b"\0" * 16)


BAD_VALUES: list[Any] = [
    [], [1], ["?"], {"a": 1}, ["d", [1]], ["d", [["l"], 1]], ["s", ["l"]], ["n", "x"], ["n", "class", ["a"], 1],
    ["n", "X", ["_a"], 1], ["n", "X", ["a", "b"], 1], ["z", -1], ["z", 1.5], ["y", "nope"], ["v", "cuda"],
    ["v", "cpu", "x"], ["r", 1, 2], ["r", 1, 2, 0], ["r", "a", 1, 1], ["c", 1, "x"], ["i", 1, 2, 3, 4], ["b", 1],
    ["b", "\u20ac"],
    ["N", 5], ["N", -1], ["S", 0.5], ["G", 0], ["N"], ["G"], ["y"], "x" * (wire.MAX_TEXT + 1),
]  # fmt: skip


@pytest.mark.parametrize("value", BAD_VALUES, ids=lambda v: repr(v)[:30])
def test_odd_values_are_refused(value: Any) -> None:
    def resolve(tag: str, rest: list[Any]) -> Any:
        raise WireError("unknown")

    with pytest.raises(WireError):
        Decoder([torch.ones(3)], resolve).value(value)


def test_deep_and_wide_values_are_refused_by_the_reader() -> None:
    deep: Any = 1
    for _ in range(200):
        deep = ["l", deep]
    for value in (deep, ["l", *[1] * (2 * wire.MAX_NODES + 1)]):
        with pytest.raises(WireError):
            Decoder([], lambda tag, rest: None).value(value)


def test_a_boolean_is_zero_or_one() -> None:
    """Other bytes would make a tensor that is neither equal nor unequal to the right one."""
    for row in (
        [0, "bool", 0, [4], None, 0, 0, -1],
        [0, "bool", 0, [2], [2], 0, 0, -1],
        [0, "bool", 1, [3], [1], 0, 0, -1],
    ):
        got = wire.unpack([row], [4], b"\x02\xff\x00\x07").tensors[0]
        assert set(got.contiguous().view(torch.uint8).tolist()) <= {0, 1}


def test_random_damage_gives_a_value_or_a_wire_error() -> None:
    """Frames with one thing changed, many times: never another exception, never a crash."""
    chance = random.Random(0)
    rows = [[0, "float32", 0, [2, 2], None, 0, 0, -1], [1, "int64", 1, [2], [1], 0, 0, -1]]
    values = [
        "t",
        ["T", 0],
        ["l", 1, 2.5, "x"],
        ["d", ["k", ["z", 1, 2]]],
        ["N", 1],
        ["i", None, 1, None],
        ["c", 1.0, 2.0],
    ]
    junk: list[Any] = [None, -1, 0, 1, 2, 1 << 40, 1.5, "", "T", "x", [], [0], {}, True, "float64", "bool", ["l"], 3, 7]

    def damaged(value: Any) -> Any:
        copied = json.loads(json.dumps(value))
        spot = copied
        while isinstance(spot, list) and spot:
            index = chance.randrange(len(spot))
            if chance.random() < 0.5 or not isinstance(spot[index], list):
                spot[index] = chance.choice(junk)
                break
            spot = spot[index]
        return copied

    started, refused = time.monotonic(), 0
    for _ in range(4000):
        try:
            unpacked = wire.unpack(damaged(rows), damaged([16, 24]), b"\1" * 40)

            def resolve(tag: str, rest: list[Any], tensors: list[Tensor] = unpacked.tensors) -> Any:
                if tag != "T" or rest != [0]:
                    raise WireError("unknown")
                return tensors[0]

            Decoder(unpacked.tensors, resolve).value(damaged(values))
        except WireError:
            refused += 1
    assert refused > 1000 and time.monotonic() - started < 60


class TestChannel:
    def pair(self) -> tuple[Channel, socket.socket]:
        ours, theirs = socket.socketpair()
        channel = Channel(ours)
        channel.until = time.monotonic() + 0.5
        return channel, theirs

    def test_frames_arrive_whole_and_in_order(self) -> None:
        one, two = (Channel(s) for s in socket.socketpair())
        large = bytes(range(256)) * 8000

        def send() -> None:
            one.send({"n": 1}, [b"abc", b"", b"d"])
            one.send({"n": 2}, [large])
            one.send({"n": 3}, [b"x"] * 500)

        thread = threading.Thread(target=send)
        thread.start()
        assert two.receive() == ({"n": 1}, b"abcd")
        assert two.receive() == ({"n": 2}, large)
        assert two.receive() == ({"n": 3}, b"x" * 500)
        thread.join()

    @pytest.mark.parametrize(
        "sent",
        [
            b"GET / HTTP/1.1\r\n\r\n", struct.pack("<4sIQ", b"ANS1", wire.MAX_HEADER + 1, 0),
            struct.pack("<4sIQ", b"ANS1", 2, 1 << 63), struct.pack("<4sIQ", b"ANS1", 5, 0) + b"{oops",
            struct.pack("<4sIQ", b"ANS1", 100_000, 0) + b"[" * 100_000,
            struct.pack("<4sIQ", b"ANS1", 2, 0) + b"\xff\xfe", struct.pack("<4sIQ", b"ANS1", 5000, 0) + b"1" * 5000,
        ],
        ids=["http", "large header", "large payload", "not json", "deep json", "not text", "long number"],
    )  # fmt: skip
    def test_what_is_no_frame(self, sent: bytes) -> None:
        channel, other = self.pair()
        other.sendall(sent)
        with pytest.raises(WireError):
            channel.receive()

    def test_an_end_is_noticed_at_once(self) -> None:
        channel, other = self.pair()
        other.sendall(struct.pack("<4sIQ", b"ANS1", 100, 0) + b"half")
        other.close()
        started = time.monotonic()
        with pytest.raises(Gone):
            channel.receive()
        with pytest.raises(Gone):
            channel.send({"large": 1}, [b"\0" * 1_000_000])
        assert time.monotonic() - started < 0.3

    @pytest.mark.parametrize("sent", [b"", b"AN", struct.pack("<4sIQ", b"ANS1", 2, 1 << 20) + b"{}" + b"\0" * 100])
    def test_silence_ends_with_the_time(self, sent: bytes) -> None:
        channel, other = self.pair()
        other.sendall(sent)
        with pytest.raises(Late):
            channel.receive()

    def test_somebody_who_does_not_read_holds_nobody_up(self) -> None:
        channel, _other = self.pair()
        with pytest.raises(Late):
            channel.send({}, [b"\0" * (8 << 20)])

    def test_dripping_does_not_extend_the_time(self) -> None:
        channel, other = self.pair()
        stop = threading.Event()

        def drip() -> None:
            for _ in range(30):
                if stop.wait(0.1):
                    return
                other.sendall(b"ANS1"[:1])

        thread = threading.Thread(target=drip)
        thread.start()
        started = time.monotonic()
        channel._unread += struct.pack("<4sIQ", b"ANS1", 1000, 0)
        with pytest.raises(Late):
            channel.receive()
        stop.set()
        thread.join()
        assert time.monotonic() - started < 1.5
