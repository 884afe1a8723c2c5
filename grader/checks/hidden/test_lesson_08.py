"""Hidden checks of lesson 08: every way of cutting a sequence gives the whole, and nothing else gets in."""

import itertools
import math
from contextlib import contextmanager

import pytest
import torch

from grader.checks import exercise
from grader.checks.assertions import (
    assert_close,
    assert_dtype,
    assert_finite,
    assert_moves,
    assert_pure,
    assert_same,
    assert_same_gradients,
    assert_shape,
    fail,
    given,
    gradients,
    raises,
    require,
)
from grader.checks.public.test_lesson_08 import CountingToy, Toy, append, held, in_pieces, pair

SIZES = [(1, 1, 1, 1, 1), (1, 1, 2, 1, 1), (2, 1, 2, 2, 1), (1, 2, 3, 2, 3), (2, 3, 5, 7, 4), (4, 4, 4, 4, 4)]
"""(B, H, T, d_k, d_v), from the smallest up."""

AXES = ("new position", "feature")


def cuts(length):
    """Every way of cutting `length` positions into pieces, the coarsest first."""
    for count in range(length):
        for borders in itertools.combinations(range(1, length), count):
            yield [b - a for a, b in itertools.pairwise((0, *borders, length))]


# -------------------------------------------------------------------------------------------- append_changes_the_past


def attention(x):
    """Every position attends to every other, in sequences that are no longer than any answer needs."""
    if x.shape[1] > 1000:
        fail(f"the encoder was called with a sequence of length {x.shape[1]}, longer than any x that was given")
    return (x @ x.transpose(1, 2)).softmax(-1) @ x


ENCODERS = {
    "the mean of all positions": lambda x: x.mean(1, keepdim=True).expand_as(x),
    "a sum from the right": lambda x: x.flip(1).cumsum(1).flip(1),
    "each position plus the one to its right": lambda x: x + torch.cat([x[:, 1:], 0 * x[:, :1]], dim=1),
    "softmax attention without a mask": attention,
    "the largest of all positions": lambda x: x.amax(1, keepdim=True).expand_as(x),
    "a running sum": lambda x: x.cumsum(1),
    "a function of each position alone": lambda x: x**2,
}


def leak(batch, position, feature, size):
    """An encoder in which the newest position moves one single entry of the first three positions."""

    def encoder(x):
        out = x.clone()
        if x.shape[1] > 3:
            out[batch, position, feature] += size
        return out

    return encoder


def assert_dtype_of_the_output(student, draw, T):
    """The change has the dtype of the encoder's output, whatever that of x."""
    got = student(ENCODERS["a sum from the right"], draw(2, T, 3, dtype=torch.float32))
    assert_dtype(got, torch.float32, "the change", f"for a float32 encoder and T = {T}")
    got = student(lambda x: x.float().flip(1), draw(2, T, 3))
    assert_dtype(got, torch.float32, "the change", f"for float64 x, a float32 output of the encoder and T = {T}")


@exercise("append_changes_the_past")
class TestAppendChangesThePast:
    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student, reference, draw):
        """It is the largest change of an old output, for many encoders and sizes"""
        for size in [(1, 2, 1), (2, 3, 2), (2, 5, 3), (4, 4, 4), (3, 2, 7)]:
            x = draw(*size)
            for name, encoder in ENCODERS.items():
                want = reference.append_changes_the_past(encoder, x)
                assert_close(student(encoder, x), want, "the change", case=f"for {name} and x of shape {size}")

    @pytest.mark.values
    def test_finds_a_leak_anywhere(self, student, draw):
        """One single old output that moves is found: in any row, at any position, in any feature, up or down"""
        x = draw(2, 4, 3)
        for batch, position, feature, sign in [(0, 0, 0, 1), (1, 0, 1, -1), (0, 1, 2, -1), (1, 2, 0, 1)]:
            size = draw.uniform(1, low=4.0, high=6.0)[0]  # what the leak is, nobody knows without a look at the encoder
            got = student(leak(batch, position, feature, sign * size), x)
            where = f"when only row {batch}, position {position}, feature {feature} moves, by {sign * size:.4g}"
            assert_close(got, size, "the change", case=where)
        got = student(leak(0, 1, 0, 2.0**-20), torch.zeros(1, 4, 2, dtype=torch.float64))
        assert_close(got, torch.tensor(2.0**-20, dtype=torch.float64), "the change", case="for a tiny leak", atol=0.0)

    @pytest.mark.values
    def test_one_position_has_no_past(self, student, draw):
        """T = 1: the result is 0, and the encoder never sees an empty sequence"""

        def encoder(x):
            if x.shape[1] == 0:
                fail("the encoder was called with a sequence of length 0: with T = 1 there is no past to compare")
            return x.flip(1)

        got = student(encoder, draw(2, 1, 3))
        assert_close(got, torch.zeros((), dtype=torch.float64), "the change", case="for T = 1")

    @pytest.mark.values
    def test_output_of_another_width(self, student, reference, draw):
        """The encoder may change the width"""
        matrix = draw(3, 7)
        x = draw(2, 5, 3)
        want = reference.append_changes_the_past(lambda x: (x + x.mean(1, keepdim=True)) @ matrix, x)
        assert_close(student(lambda x: (x + x.mean(1, keepdim=True)) @ matrix, x), want, "the change")

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, draw):
        """float32 in, float32 out; an encoder with another dtype than x decides the result's"""
        assert_dtype_of_the_output(student, draw, 4)

    @pytest.mark.numerics
    def test_one_position_follows_the_dtype(self, student, draw):
        """T = 1: the 0 has the dtype of the encoder's output, too"""
        assert_dtype_of_the_output(student, draw, 1)

    @pytest.mark.purity
    def test_leaves_x_alone(self, student, draw):
        """x is not modified, and a second call gives the same"""
        assert_pure(student, [ENCODERS["the mean of all positions"], draw(2, 5, 3)], ["encoder", "x"])


# ------------------------------------------------------------------------------------------------------------ KVCache


def filled(student, draw, *sizes, shape=(2, 3, 7, 5, 4)):
    """A cache with positions appended in pieces of these sizes, and all keys and values that it should hold."""
    B, H, max_len, d_k, d_v = shape
    cache = student(B, H, max_len, d_k, d_v, dtype=torch.float64)
    keys, values = [draw(B, H, 0, d_k)], [draw(B, H, 0, d_v)]
    for size in sizes:
        keys.append(draw(B, H, size, d_k))
        values.append(draw(B, H, size, d_v))
        append(cache, keys[-1], values[-1], max_len)
    return cache, torch.cat(keys, dim=2), torch.cat(values, dim=2)


def assert_holds(cache, keys, values, case, max_len=7):
    """The cache holds these keys and values: shown by appending nothing."""
    assert_close(held(cache, case=case), keys.shape[2], "the length", case=case)
    got_keys, got_values = append(cache, keys[:, :, :0], values[:, :, :0], max_len)
    assert_close(got_keys, keys, "the keys", case=case, axes=("position", "feature"))
    assert_close(got_values, values, "the values", case=case, axes=("position", "feature"))


@exercise("KVCache")
class TestKVCache:
    @pytest.mark.values(points=2)
    def test_equals_concatenation(self, student, draw):
        """It holds what torch.cat of all pieces would hold, for every way of cutting"""
        for shape in [(1, 1, 3, 1, 1), (2, 3, 5, 7, 4), (4, 4, 4, 4, 4)]:
            for sizes in cuts(min(shape[2], 4)):
                B, H, max_len, d_k, d_v = shape
                cache, all_keys, all_values = student(B, H, max_len, d_k, d_v, dtype=torch.float64), [], []
                for size in sizes:
                    all_keys.append(draw(B, H, size, d_k))
                    all_values.append(draw(B, H, size, d_v))
                    keys, values = append(cache, all_keys[-1], all_values[-1], max_len)
                    case = f"for pieces {sizes}, after {len(all_keys)} of them"
                    assert_close(keys, torch.cat(all_keys, 2), "the keys", case=case, axes=("position", "feature"))
                    assert_close(
                        values, torch.cat(all_values, 2), "the values", case=case, axes=("position", "feature")
                    )

    @pytest.mark.values
    def test_many_appends(self, student, draw):
        """A long cache takes one position after the other and forgets none"""
        keys, values = draw(1, 1, 150, 2), draw(1, 1, 150, 1)
        cache = student(1, 1, 150, 2, 1, dtype=torch.float64)
        append(cache, keys[:, :, :137], values[:, :, :137], 150)
        for t in range(137, 150):
            append(cache, keys[:, :, t : t + 1], values[:, :, t : t + 1], 150)
        assert_holds(cache, keys, values, "after 137 positions at once and 13 one by one", 150)

    @pytest.mark.values
    def test_zeros_are_numbers(self, student, draw):
        """A key or a value of zeros takes a place like any other"""
        cache = student(2, 3, 7, 5, 4, dtype=torch.float64)
        keys, values = draw(2, 3, 4, 5), draw(2, 3, 4, 4)
        keys[:, :, 1:3], values[:, :, 2:] = 0.0, 0.0
        for t in range(4):
            append(cache, keys[:, :, t : t + 1], values[:, :, t : t + 1], 7)
            case = f"with zeros among the numbers, after {t + 1} appends of one position"
            assert_holds(cache, keys[:, :, : t + 1], values[:, :, : t + 1], case)

    @pytest.mark.values
    def test_appending_nothing(self, student, draw):
        """An append of zero positions changes nothing, in an empty, a half full and a full cache"""
        for sizes in ((), (3,), (3, 4)):
            cache, keys, values = filled(student, draw, *sizes)
            assert_holds(cache, keys, values, f"after appends of {list(sizes)} and one of nothing")

    @pytest.mark.values
    def test_width_of_the_values(self, student, draw):
        """d_v=None means d_v = d_k"""
        cache = student(2, 3, 7, 5, dtype=torch.float64)
        _keys, values = append(cache, draw(2, 3, 1, 5), draw(2, 3, 1, 5), 7)
        assert_shape(values, (2, 3, 1, 5), "the values", "for a cache with d_k=5 and no d_v")

    @pytest.mark.values
    def test_rows_are_independent(self, student, draw):
        """Other keys and values in row 1 change row 1 of the result and no other"""
        k, v = draw(3, 2, 4, 5), draw(3, 2, 4, 5)
        other_k, other_v = k.clone(), v.clone()
        other_k[1], other_v[1] = draw(2, 4, 5), draw(2, 4, 5)
        before = append(student(3, 2, 4, 5, dtype=torch.float64), k, v, 4)
        after = append(student(3, 2, 4, 5, dtype=torch.float64), other_k, other_v, 4)
        for name, one, two in zip(("keys", "values"), before, after, strict=True):
            assert_same(one[[0, 2]], two[[0, 2]], "changed row 1 of the batch", f"the {name} of the other rows")
            assert_moves(one[1], two[1], "changed row 1 of the batch", f"its {name}")

    @pytest.mark.mechanism
    def test_two_caches_share_nothing(self, student, draw):
        """A second cache is empty, whatever the first one holds"""
        first, keys, values = filled(student, draw, 3)
        second, more_keys, more_values = filled(student, draw, 2)
        assert_holds(second, more_keys, more_values, "in a second cache made after the first was filled")
        assert_holds(first, keys, values, "in the first cache after a second was filled")

    @pytest.mark.mechanism
    def test_overflow(self, student, draw):
        """Exactly max_len positions fit; one more raises ValueError and changes nothing"""
        for sizes, too_many in (((), 8), ((3,), 5), ((3, 4), 1), ((7,), 1)):
            cache, keys, values = filled(student, draw, *sizes)
            taken = sum(sizes)
            with raises(ValueError, when=f"{taken} of 7 positions held, {too_many} appended"):
                cache.append(draw(2, 3, too_many, 5), draw(2, 3, too_many, 4))
            assert_holds(cache, keys, values, f"after an append of {too_many} was refused with {taken} of 7 held")
            if taken < 7:
                k, v = draw(2, 3, 7 - taken, 5), draw(2, 3, 7 - taken, 4)
                append(cache, k, v, 7)
                full = torch.cat([keys, k], 2), torch.cat([values, v], 2)
                assert_holds(cache, *full, "filled to the brim after a refused append")

    @pytest.mark.mechanism
    def test_nothing_is_broadcast(self, student, draw):
        """Another batch size, number of heads, width or unequal lengths raise ValueError and change nothing"""
        right_k, right_v = (2, 3, 2, 5), (2, 3, 2, 4)
        wrong = [
            ((1, 3, 2, 5), right_v), (right_k, (1, 3, 2, 4)), ((2, 1, 2, 5), right_v), (right_k, (2, 1, 2, 4)),
            ((2, 3, 2, 1), right_v), (right_k, (2, 3, 2, 1)), ((2, 3, 1, 5), right_v), (right_k, (2, 3, 1, 4)),
            ((1, 3, 2, 5), (1, 3, 2, 4)), ((3, 3, 2, 5), (3, 3, 2, 4)),
            ((3, 2, 2, 5), (3, 2, 2, 4)),
        ]  # fmt: skip
        for k_shape, v_shape in wrong:
            cache, keys, values = filled(student, draw, 2)
            case = f"k of shape {k_shape} and v of shape {v_shape} into a cache for {right_k} and {right_v}"
            with raises(ValueError, when=case):
                cache.append(draw(*k_shape), draw(*v_shape))
            assert_holds(cache, keys, values, f"after it refused {case}")

    @pytest.mark.purity
    def test_results_and_arguments_are_safe(self, student, draw):
        """A later append, or a change to the tensor that was handed in, leaves earlier results and the content alone"""
        cache = student(2, 3, 7, 5, 4, dtype=torch.float64)
        keys, values = draw(2, 3, 2, 5), draw(2, 3, 2, 4)
        first_k, first_v = keys.clone(), values.clone()
        for name, got in zip(("keys", "values"), append(cache, first_k, first_v, 7), strict=True):
            assert_dtype(got, torch.float64, f"the {name}", "for a cache with dtype=torch.float64")
        self._overwrite(cache, (first_k, first_v), (keys, values), "first")
        k, v = draw(2, 3, 1, 5), draw(2, 3, 1, 4)
        result = append(cache, k, v, 7)
        early = [tensor.clone() for tensor in result]
        want = torch.cat([keys, k], 2), torch.cat([values, v], 2)
        k_before, v_before = k.clone(), v.clone()
        append(cache, draw(2, 3, 4, 5), draw(2, 3, 4, 4), 7)
        for name, one, two in zip(("keys", "values"), early, result, strict=True):
            assert_same(one, two, "appended more", f"the {name} that an earlier append returned", atol=0.0)
        assert_same(k_before, k, "appended k", "the caller's k", atol=0.0)
        assert_same(v_before, v, "appended v", "the caller's v", atol=0.0)
        self._overwrite(cache, (k, v), want, "second")

    @staticmethod
    def _overwrite(cache, handed_in, want, which):
        """Overwrite the tensors that were appended: the cache still holds `want` at its beginning."""
        for tensor in handed_in:
            tensor.fill_(9.0)
        got = append(cache, handed_in[0][:, :, :0], handed_in[1][:, :, :0], 7)
        for name, one, two in zip(("keys", "values"), want, got, strict=True):
            change = f"overwrote the tensor of the {which} append after it was appended"
            hint = "copy the numbers into storage of your own"
            assert_same(one, two[:, :, : one.shape[2]], change, f"the {name} in the cache", hint=hint)

    @pytest.mark.mechanism(points=2)
    def test_forks(self, student, draw):
        """A fork holds the same; from then on neither side sees what the other appends"""
        for sizes in ((), (1,), (2, 1)):
            cache, keys, values = filled(student, draw, *sizes)
            twin = cache.fork()
            assert_holds(twin, keys, values, "in a fresh fork")
            grandchild = twin.fork()
            ours, theirs = (draw(2, 3, 2, 5), draw(2, 3, 2, 4)), (draw(2, 3, 3, 5), draw(2, 3, 3, 4))
            append(cache, *ours, 7)
            append(twin, *theirs, 7)
            for one, (k, v), who in ((cache, ours, "the original"), (twin, theirs, "the fork")):
                assert_holds(
                    one, torch.cat([keys, k], 2), torch.cat([values, v], 2), f"in {who}, after both have gone on"
                )
            assert_holds(grandchild, keys, values, "in a fork of the fork that was left alone")
            append(grandchild, draw(2, 3, 3, 5), draw(2, 3, 3, 4), 7)
            k, v = theirs
            case = "in the fork, after a fork of it has gone on"
            assert_holds(twin, torch.cat([keys, k], 2), torch.cat([values, v], 2), case)

    @pytest.mark.mechanism
    def test_a_fork_has_the_same_room(self, student, draw):
        """A fork takes as many positions as the original, and not more"""
        cache, _, _ = filled(student, draw, 3)
        twin = cache.fork()
        append(twin, draw(2, 3, 4, 5), draw(2, 3, 4, 4), 7)
        assert_close(held(twin), 7, "the length of the fork", case="filled to max_len=7")
        with raises(ValueError, when="a fork of a cache with max_len=7 holds 7 positions and 1 is appended"):
            twin.append(draw(2, 3, 1, 5), draw(2, 3, 1, 4))
        grandchild = cache.fork().fork()
        append(grandchild, draw(2, 3, 4, 5), draw(2, 3, 4, 4), 7)
        assert_close(held(grandchild), 7, "the length of a fork of a fork", case="filled to max_len=7")

    @pytest.mark.numerics
    def test_follows_its_dtype(self, student, draw):
        """It stores and returns its own dtype, whatever is handed in; None means the default dtype"""
        for dtype, expected in (
            (None, torch.get_default_dtype()),
            (torch.float64, torch.float64),
            (torch.float16, torch.float16),
        ):
            cache = student(2, 3, 7, 5, dtype=dtype)
            for given_dtype in (torch.float32, torch.float64):
                k = draw(2, 3, 1, 5, dtype=given_dtype)
                for name, got in zip(("keys", "values"), append(cache, k, -k, 7), strict=True):
                    assert_dtype(
                        got, expected, f"the {name}", f"for a cache with dtype={dtype} and {given_dtype} handed in"
                    )
            for twin_result in append(cache.fork(), k, k, 7):
                assert_dtype(twin_result, expected, "what a fork returns", f"for a cache with dtype={dtype}")
            assert_close(
                got[:, :, -1:].double(), (-k).to(expected).double(), "the newest value", case=f"with dtype={dtype}"
            )

    @pytest.mark.numerics
    def test_none_is_the_default_dtype(self, student, draw):
        """dtype=None means torch.get_default_dtype() when the cache is made, also where a program has changed it"""
        before = torch.get_default_dtype()
        try:
            torch.set_default_dtype(torch.float64)
            got = append(student(2, 3, 7, 5), draw(2, 3, 1, 5), draw(2, 3, 1, 5), 7)
        finally:
            torch.set_default_dtype(before)
        for name, tensor in zip(("keys", "values"), got, strict=True):
            assert_dtype(
                tensor, torch.float64, f"the {name}", "for dtype=None after torch.set_default_dtype(torch.float64)"
            )

    @pytest.mark.gradient
    def test_stores_no_graph(self, student, draw):
        """The results do not require gradients, even if what was appended does"""
        cache = student(2, 3, 7, 5, dtype=torch.float64)
        want = []
        for _ in range(2):
            k = draw(2, 3, 2, 5).requires_grad_()
            want.append(k.detach())
            keys, values = append(cache, k, 2 * k, 7)
            for name, got in (("keys", keys), ("values", values)):
                require(
                    not got.requires_grad,
                    f"the {name} require gradients: store them detached",
                    evidence="requires grad",
                )
        assert_close(keys, torch.cat(want, 2), "the keys", case="when gradients are on")

    @pytest.mark.numerics
    def test_non_contiguous_input(self, student, draw):
        """Non-contiguous keys and values are fine"""
        k, v = draw.strided(2, 3, 4, 5), draw(2, 4, 3, 5).transpose(1, 2)
        keys, values = append(student(2, 3, 7, 5, dtype=torch.float64), k, v, 7)
        assert_close(keys, k, "the keys", case="for non-contiguous keys")
        assert_close(values, v, "the values", case="for non-contiguous values")


# -------------------------------------------------------------------------------------------------- attend_with_cache


def qkv(draw, B, H, T, d_k, d_v, scale=1.0):
    return draw(B, H, T, d_k, scale=scale), draw(B, H, T, d_k, scale=scale), draw(B, H, T, d_v)


def by_loops(q, k, v, visible=None):
    """The definition, written as loops over rows, heads and queries."""
    out = torch.zeros(*q.shape[:3], v.shape[3], dtype=q.dtype)
    for b, h, i in itertools.product(*map(range, q.shape[:3])):
        seen = [j for j in range(i + 1) if visible is None or bool(visible[b, j])]
        if seen:
            scores = torch.stack([q[b, h, i] @ k[b, h, j] for j in seen]) / math.sqrt(q.shape[-1])
            out[b, h, i] = scores.softmax(0) @ v[b, h, seen]
    return out


def at_once(q, k, v, visible=None):
    """The same without loops and without a cache: all positions in one go."""
    T = q.shape[2]
    seen = torch.ones(T, T, dtype=torch.bool).tril()
    if visible is not None:
        seen = seen & visible[:, None, None, :]
    scores = (q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])).masked_fill(~seen, -torch.inf)
    return scores.softmax(-1).nan_to_num() @ v


@contextmanager
def overwriting_is_named():
    """A call that overwrote what an earlier one needs for its gradient is told so, not what autograd says of it."""
    try:
        yield
    except RuntimeError as error:
        if "modified by an inplace operation" not in str(error):
            raise
        fail(
            "no gradient can be computed: a tensor in the cache was overwritten by a later call; make new tensors",
            evidence="overwritten",
        )


def left_padding(*lengths):
    """(B, T) True where row b's real positions stand, padded on the left."""
    T = max(lengths)
    return torch.arange(T) >= T - torch.tensor(lengths)[:, None]


@exercise("attend_with_cache")
class TestAttendWithCache:
    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student, draw):
        """Without a cache it is causal attention, as written in plain loops"""
        for size in SIZES:
            q, k, v = qkv(draw, *size)
            out, _ = pair(student(q, k, v), "attend_with_cache")
            want = by_loops(q, k, v) if math.prod(size[:3]) < 8 else at_once(q, k, v)
            assert_close(out, want, case=given(q=q, k=k, v=v), axes=AXES)

    @pytest.mark.values(points=3)
    def test_every_way_of_cutting(self, student, draw):
        """Every way of cutting the positions into calls gives the whole"""
        tensors = qkv(draw, 2, 3, 4, 7, 5)
        whole = at_once(*tensors)
        for sizes in cuts(4):
            assert_close(in_pieces(student, sizes, tensors), whole, case=f"for pieces of {sizes} positions", axes=AXES)

    @pytest.mark.values
    def test_equal_sizes(self, student, draw):
        """It is right where B = H = T = d, too"""
        tensors = qkv(draw, 4, 4, 4, 4, 4)
        visible = draw.mask(4, 4)
        for mask, sizes in itertools.product((None, visible), ([4], [2, 2], [3, 1])):
            case = f"for B=H=T=d=4 in pieces of {sizes}{'' if mask is None else ', some positions invisible'}"
            assert_close(in_pieces(student, sizes, tensors, mask), at_once(*tensors, mask), case=case, axes=AXES)

    @pytest.mark.values
    def test_a_long_context(self, student, draw):
        """Three hundred cached positions all count, and nothing is forgotten"""
        tensors = qkv(draw, 1, 2, 304, 3, 2, scale=0.3)
        got = in_pieces(student, [160, 140, 1, 2, 1], tensors)
        assert_close(
            got, at_once(*tensors), case="for pieces of 160, 140, 1, 2 and 1 positions", hint="is anything cut off?"
        )

    @pytest.mark.values
    def test_first_token_alone(self, student, draw):
        """A single token with an empty cache sees itself: its output is its value"""
        q, k, v = qkv(draw, 2, 3, 1, 5, 4)
        for case, arguments in (("with cache=None", (None,)), ("without a cache argument", ())):
            out, _ = pair(student(q, k, v, *arguments), "attend_with_cache")
            assert_close(out, v, case=f"for the first token, {case}")

    @pytest.mark.values(points=2)
    def test_visible_positions(self, student, draw):
        """Any pattern of invisible positions, in any call, is kept for all later calls"""
        for B, H, T in ((1, 1, 3), (2, 3, 5), (3, 2, 5)):
            tensors = qkv(draw, B, H, T, 7, 4)
            visible = draw.mask(B, T)
            want = at_once(*tensors, visible)
            for sizes in ([T], [1] * T, [2, T - 2]):
                got = in_pieces(student, sizes, tensors, visible)
                assert_close(got, want, case=f"with visible = {visible.tolist()} in pieces of {sizes}", axes=AXES)

    @pytest.mark.values(points=2)
    def test_left_padded_rows(self, student, draw):
        """A row padded on the left gives what it gives alone, in the first call and in the decode steps after it"""
        tensors = qkv(draw, 3, 2, 6, 5, 4)
        visible = left_padding(4, 2, 1)
        cache, outs = None, []
        for start, stop in ((0, 4), (4, 5), (5, 6)):
            mask = (visible,) if start == 0 else ()
            out, cache = pair(student(*(t[:, :, start:stop] for t in tensors), cache, *mask), "attend_with_cache")
            outs.append(out)
        got = torch.cat(outs, 2)
        for row, pads in enumerate((0, 2, 3)):
            alone = at_once(*(t[row : row + 1, :, pads:] for t in tensors))
            case = f"for the row with {pads} pads, after a prefill of 4 and two decode steps without a mask"
            hint = "the cache has to remember the padding" if pads else ""
            assert_close(got[row : row + 1, :, pads:], alone, case=case, axes=AXES, hint=hint)

    @pytest.mark.values
    def test_seeing_nothing_gives_zeros(self, student, draw):
        """A query that sees no key gives zeros, and gets its own row right as soon as it sees one"""
        tensors = qkv(draw, 2, 3, 4, 5, 4)
        for visible in (left_padding(4, 1), left_padding(2, 4), torch.zeros(2, 4, dtype=torch.bool)):
            for sizes in ([4], [1, 1, 1, 1]):
                got = in_pieces(student, sizes, tensors, visible)
                case = f"with visible = {visible.tolist()} in pieces of {sizes}"
                assert_finite(got, case=case)
                assert_close(
                    got, at_once(*tensors, visible), case=case, axes=AXES, hint="a row without any key gives zeros"
                )

    @pytest.mark.mechanism(points=2)
    def test_two_continuations_of_one_prefix(self, student, draw):
        """Continuations fork from one prefix, in any order, as often as wanted"""
        prefix = qkv(draw, 2, 3, 3, 5, 4)
        for first, second in ((1, 1), (2, 1)):
            one, two = qkv(draw, 2, 3, first, 5, 4), qkv(draw, 2, 3, second, 5, 4)
            _, cache = pair(student(*prefix), "attend_with_cache")
            out_one, branch = pair(student(*one, cache), "attend_with_cache")
            out_two, _ = pair(student(*two, cache), "attend_with_cache")
            out_deeper, _ = pair(student(*two, branch), "attend_with_cache")
            out_again, _ = pair(student(*one, cache), "attend_with_cache")
            joined = [torch.cat(parts, 2) for parts in zip(prefix, one, two, strict=True)]
            want_one = at_once(*(t[:, :, : 3 + first] for t in joined))[:, :, 3:]
            want_two = at_once(*(torch.cat(parts, 2) for parts in zip(prefix, two, strict=True)))[:, :, 3:]
            assert_close(out_one, want_one, "the first continuation", axes=AXES)
            hint = "did the first one change the cache that was handed in?"
            assert_close(out_two, want_two, "the second continuation of the same prefix", axes=AXES, hint=hint)
            assert_close(
                out_deeper, at_once(*joined)[:, :, 3 + first :], "the step after the first continuation", axes=AXES
            )
            assert_close(out_again, want_one, "the first continuation, repeated", axes=AXES, hint=hint)

    @pytest.mark.causality
    def test_the_future_is_not_seen(self, student, draw):
        """Within a call, changing a position moves its own and later outputs, never earlier ones"""
        q, k, v = qkv(draw, 1, 2, 6, 5, 4)
        new = [t[:, :, 2:] for t in (q, k, v)]

        def outputs(*new):  # each time behind a prefix of its own: whether one may be used twice is another question
            _, prefix = pair(student(q[:, :, :2], k[:, :, :2], v[:, :, :2]), "attend_with_cache")
            return pair(student(*new, prefix), "attend_with_cache")[0]

        before = outputs(*new)
        for place in range(4):
            other_k, other_v = new[1].clone(), new[2].clone()
            other_k[:, :, place], other_v[:, :, place] = draw(1, 2, 5), draw(1, 2, 4)
            after = outputs(new[0], other_k, other_v)
            change = f"2 positions cached, 4 new: changed new position {place}"
            if place:
                what = f"the outputs before position {place}"
                assert_same(
                    before[:, :, :place], after[:, :, :place], change, what, hint="which triangle does the mask keep?"
                )
            for row in range(place, 4):
                assert_moves(before[:, :, row], after[:, :, row], change, f"output {row}")

    @pytest.mark.values
    def test_rows_and_heads_are_independent(self, student, draw):
        """A row of the batch and a head never affect another"""
        q, k, v = qkv(draw, 3, 2, 4, 5, 4)
        before = in_pieces(student, [2, 1, 1], (q, k, v))
        for axis, name in ((0, "row"), (1, "head")):
            other = [t.clone() for t in (q, k, v)]
            for t in other:
                t.select(axis, 1).copy_(draw(*t.select(axis, 1).shape))
            after = in_pieces(student, [2, 1, 1], other)
            assert_same(before.select(axis, 0), after.select(axis, 0), f"changed {name} 1", f"{name} 0 of the output")
            assert_moves(before.select(axis, 1), after.select(axis, 1), f"changed {name} 1", f"{name} 1 of the output")

    @pytest.mark.mechanism
    def test_nothing_is_left_behind(self, student, draw):
        """A new sequence starts empty, whatever came before, also with another batch size"""
        for B, H, T in ((2, 3, 3), (2, 3, 2), (1, 2, 3)):
            tensors = qkv(draw, B, H, T, 5, 4)
            case = f"for a second, independent sequence ({B} rows, {H} heads)"
            assert_close(
                in_pieces(student, [1] * T, tensors),
                at_once(*tensors),
                case=case,
                hint="is state kept outside the cache?",
            )

    @pytest.mark.mechanism
    def test_sequences_in_turn(self, student, draw):
        """Two sequences that take turns do not disturb each other"""
        both = [qkv(draw, 2, 3, 3, 5, 4) for _ in range(2)]
        caches, outs = [None, None], [[], []]
        for t in range(3):
            for who in (0, 1):
                new = (x[:, :, t : t + 1] for x in both[who])
                out, caches[who] = pair(student(*new, caches[who]), "attend_with_cache")
                outs[who].append(out)
        for who in (0, 1):
            assert_close(
                torch.cat(outs[who], 2), at_once(*both[who]), f"sequence {who} of two that take turns", axes=AXES
            )

    @pytest.mark.numerics
    def test_large_scores(self, student, draw):
        """Scores around plus and minus a million are fine, and what is not seen keeps the weight 0 beside them"""
        q, k, v = qkv(draw, 2, 3, 5, 4, 4)
        q[..., 0], k[..., 0] = 2000.0, 0.0
        for level in (1000.0, -1000.0):
            k[:, :, :, 0] = level  # every score is about +- a million
            k[:, :, 2, 0] = 0.0  # ... but that of position 2
            visible = torch.ones(2, 5, dtype=torch.bool)
            visible[:, 2] = False
            for sizes in ([5], [4, 1]):
                got = in_pieces(student, sizes, (q, k, v), visible)
                case = f"with scores around {level * 1000:g}, position 2 invisible, in pieces of {sizes}"
                assert_finite(got, case=case)
                assert_close(got, at_once(q, k, v, visible), case=case, axes=AXES)
            for sizes in ([5], [4, 1]):
                q_, k_, v_ = q.flip(2), k.flip(2), v.flip(2)
                got = in_pieces(student, sizes, (q_, k_, v_))
                case = f"with scores around {level * 1000:g} but one of 0, in pieces of {sizes}"
                assert_close(got, at_once(q_, k_, v_), case=case, axes=AXES)

    @pytest.mark.gradient(points=2)
    def test_gradients(self, student, reference, draw):
        """The gradients, also those that pass through the cache, are those of the whole"""
        for size, sizes in (
            ((1, 1, 2, 1, 1), [1, 1]),
            ((2, 3, 5, 7, 4), [2, 1, 2]),
            ((4, 4, 4, 4, 4), [3, 1]),
        ):
            tensors, case = qkv(draw, *size), f"for (B, H, T, d_k, d_v) = {size} in pieces of {sizes}"

            def pieces(q, k, v, sizes=sizes):
                return in_pieces(student, sizes, (q, k, v))

            with overwriting_is_named():
                found = gradients(pieces, tensors, (0, 1, 2))
                unreached = [name for name, g in zip("qkv", found, strict=True) if not g.any()]
                message = f"no gradient reaches {' and '.join(unreached)}, {case}; is something detached on the way?"
                require(not unreached, message, evidence=" ".join(unreached))
                assert_same_gradients(
                    pieces,
                    lambda q, k, v, sizes=sizes: in_pieces(reference.attend_with_cache, sizes, (q, k, v)),
                    tensors,
                    ["q", "k", "v"],
                    case=case,
                )

    @pytest.mark.gradient
    def test_gradients_beside_huge_scores(self, student, reference, draw):
        """The gradients are finite and right beside scores of plus and minus a million that are not seen"""
        visible = torch.ones(2, 4, dtype=torch.bool)
        visible[:, 1] = False
        for height in (1000.0, -1000.0):
            q, k, v = qkv(draw, 2, 3, 4, 5, 4)
            q[..., 0], k[..., 0] = 2000.0, 0.0
            k[:, :, 1, 0] = height  # padding
            k[:, :, 3, 0] = height  # the future of all but the last query

            with overwriting_is_named():
                assert_same_gradients(
                    lambda q, k, v: in_pieces(student, [3, 1], (q, k, v), visible),
                    lambda q, k, v: in_pieces(reference.attend_with_cache, [3, 1], (q, k, v), visible),
                    (q, k, v),
                    ["q", "k", "v"],
                    case=f"with scores around {height * 1000:g} that are not seen",
                    rtol=1e-6,
                    atol=1e-8,
                )

    @pytest.mark.gradient
    def test_gradients_beside_padding(self, student, reference, draw):
        """With rows that see nothing all gradients are finite and right"""
        visible = left_padding(4, 1, 2)

        def cut(function):
            return lambda q, k, v: in_pieces(function, [3, 1], (q, k, v), visible)

        case = "with rows that see nothing (left padding)"
        with overwriting_is_named():
            assert_same_gradients(
                cut(student), cut(reference.attend_with_cache), qkv(draw, 3, 2, 4, 5, 4), ["q", "k", "v"], case=case
            )

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """q, k, v and visible are not modified, and a second call gives the same"""
        arguments = [*qkv(draw, 2, 3, 4, 5, 4), None, left_padding(4, 2)]
        assert_pure(
            lambda *args: pair(student(*args), "attend_with_cache")[0], arguments, ["q", "k", "v", "cache", "visible"]
        )

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, draw):
        """float32 and float16 in, the same out, also with padding; non-contiguous inputs are fine"""
        tensors, visible = qkv(draw, 2, 3, 4, 5, 4), left_padding(4, 2)
        want = at_once(*tensors, visible)
        for dtype, tolerance in ((torch.float32, 1e-5), (torch.float16, 2e-2)):
            got = in_pieces(student, [3, 1], [t.to(dtype) for t in tensors], visible)
            assert_dtype(got, dtype, "the output", f"when the inputs are {dtype}")
            assert_close(got, want, f"the output in {dtype}", rtol=tolerance, atol=tolerance, dtype=False, axes=AXES)
        strided = draw.strided(2, 3, 4, 5), draw.strided(2, 3, 4, 5), draw(2, 4, 3, 4).transpose(1, 2)
        assert_close(
            in_pieces(student, [3, 1], strided), at_once(*strided), case="for non-contiguous inputs", axes=AXES
        )


# -------------------------------------------------------------------------------------------------------- decode_step


def steps(student, model, ids, sizes, visible=None):
    """decode_step over pieces of these lengths: the logits after each piece."""
    cache, found = None, []
    masks = visible.split(sizes, dim=1) if visible is not None else [None] * len(sizes)
    for piece, mask in zip(ids.split(sizes, dim=1), masks, strict=True):
        arguments = (model, piece, cache) if mask is None else (model, piece, cache, mask)
        logits, cache = pair(student(*arguments), "decode_step")
        found.append(logits)
    return found, cache


class Bare:
    """What a model must offer, and nothing else."""

    def __init__(self, model):
        self.embed, self.blocks, self.unembed = model.embed, model.blocks, model.unembed


@exercise("decode_step")
class TestDecodeStep:
    @pytest.mark.values(points=3)
    def test_every_way_of_cutting(self, student, draw):
        """After every piece of every way of cutting, the logits are those of the full forward pass"""
        toy, ids = Toy(draw), draw.integers(2, 4, high=11)
        want = toy.logits(ids)
        for sizes in cuts(4):
            found, _ = steps(student, toy.model, ids, sizes)
            for last, logits in zip(itertools.accumulate(sizes), found, strict=True):
                assert_close(
                    logits, want[:, last - 1], "the logits", case=f"for pieces of {sizes} tokens, after {last} tokens"
                )

    @pytest.mark.values
    def test_any_model(self, student, draw):
        """One, two, three and 33 blocks, other widths, one head, equal sizes: it uses what the model offers"""
        shapes = [
            {"n_layers": 1, "n_heads": 1, "d_k": 1, "d_v": 1},
            {"n_layers": 3},
            {"vocab": 4, "d_model": 4, "n_heads": 4, "d_k": 4, "d_v": 4},
            {"n_heads": 2, "d_k": 7, "d_v": 3, "d_model": 13, "vocab": 17},
            {"n_layers": 33, "n_heads": 1, "d_model": 4},
        ]
        for shape in shapes:
            toy = Toy(draw, **shape)
            ids = draw.integers(4 if "vocab" in shape else 2, 4, high=4)
            want = toy.logits(ids)
            found, _ = steps(student, toy.model, ids, [2, 1, 1])
            for last, logits in zip((2, 3, 4), found, strict=True):
                assert_close(
                    logits, want[:, last - 1], "the logits", case=f"for a model with {shape}, after {last} tokens"
                )

    @pytest.mark.mechanism
    def test_nothing_else_of_the_model(self, student, draw):
        """It works with a model that offers embed, blocks and unembed and nothing else"""
        toy, ids = Toy(draw), draw.integers(2, 4, high=11)
        found, _ = steps(student, Bare(toy.model), ids, [3, 1])
        assert_close(found[-1], toy.logits(ids)[:, -1], "the logits", case="for pieces of 3 and 1 tokens")

    @pytest.mark.values
    def test_a_long_context(self, student, draw):
        """A token far back still counts"""
        toy, ids = Toy(draw, max_len=160), draw.integers(1, 151, high=11)
        found, _ = steps(student, toy.model, ids, [140, 10, 1])
        assert_close(found[-1], toy.logits(ids)[:, -1], "the logits", case="for pieces of 140, 10 and 1 tokens")

    @pytest.mark.mechanism
    def test_modes_stay(self, student, draw):
        """The model's mode (train or eval) and the gradient mode are left as they are"""
        for mode in (True, False):
            model = Toy(draw).model.train(mode)
            modes = ("train", "eval") if mode else ("eval", "train")
            with torch.set_grad_enabled(mode):
                steps(student, model, draw.integers(1, 3, high=11), [2, 1])
                words = ("off", "on") if mode else ("on", "off")
                message = "gradients are {} after the call, although they were {} before".format(*words)
                require(torch.is_grad_enabled() == mode, message, evidence=words)
            message = "the model was in {} mode before the call and is in {} mode after it".format(*modes)
            require(model.training == mode, message, evidence=model.training)

    @pytest.mark.values
    def test_positions_go_on(self, student, draw):
        """A token is embedded behind those already seen: the same token gives other logits at another place"""
        toy = Toy(draw)
        for _, w_out in toy.layers:
            w_out.zero_()  # without attention the logits show token and position only
        token = torch.tensor([[3]])
        cache = None
        for t in range(4):
            logits, cache = pair(student(toy.model, token, cache), "decode_step")
            want = (toy.token[3] + toy.position[t])[None] @ toy.head
            assert_close(
                logits,
                want,
                "the logits",
                case=f"for token {t} of a sequence",
                hint=f"it should be embedded at position {t}",
            )

    @pytest.mark.values(points=2)
    def test_left_padded_rows(self, student, draw):
        """Rows padded on the left give what they give alone, in the first call and in all later ones"""
        toy, lengths, later = Toy(draw), (4, 1, 2), 2
        visible = left_padding(*lengths)
        for pad in (0, 7):
            ids = draw.integers(3, 4 + later, high=11)
            ids[:, :4].masked_fill_(~visible, pad)
            logits, cache = pair(student(toy.model, ids[:, :4], None, visible), "decode_step")
            found = [logits]
            for t in range(4, 4 + later):
                logits, cache = pair(student(toy.model, ids[:, t : t + 1], cache), "decode_step")
                found.append(logits)
            for row, length in enumerate(lengths):
                want = toy.logits(ids[row : row + 1, 4 - length :])[0, length - 1 :]
                for step, logits in enumerate(found):
                    when = f"in decode step {step}" if step else "in the first call"
                    case = f"for a row with {4 - length} pads {when}"
                    hint = "pads are not seen and do not count as positions"
                    assert_close(logits[row], want[step], "the logits", case=case, hint=hint)

    @pytest.mark.values
    def test_padding_in_pieces(self, student, draw):
        """Padding may stand anywhere, over several calls; a call may hold nothing but padding for a row"""
        toy, ids = Toy(draw), draw.integers(2, 6, high=11)
        visible = left_padding(6, 2)
        for sizes in ([6], [2, 3, 1], [1] * 6):
            found, _ = steps(student, toy.model, ids, sizes, visible)
            want = torch.stack([toy.logits(ids[:1])[0, -1], toy.logits(ids[1:, 4:])[0, -1]])
            assert_close(found[-1], want, "the logits", case=f"with 0 and 4 pads, in pieces of {sizes}")
        visible = torch.tensor([[True, False, True, True, False, True], [False, False, True, False, True, True]])
        want = torch.cat([toy.logits(row[real][None])[:, -1] for row, real in zip(ids, visible, strict=True)])
        for sizes in ([6], [2, 3, 1]):
            found, _ = steps(student, toy.model, ids, sizes, visible)
            case = f"with visible = {visible.int().tolist()} in pieces of {sizes}"
            assert_close(found[-1], want, "the logits", case=case, hint="count the real tokens before each token")

    @pytest.mark.values
    def test_rows_are_independent(self, student, draw):
        """Another token in row 1 moves the logits of row 1 and of no other row"""
        toy, ids = Toy(draw), draw.integers(3, 3, high=11)
        other = ids.clone()
        other[1] = (ids[1] + 1) % 11
        before, after = (steps(student, toy.model, x, [1, 1, 1])[0][-1] for x in (ids, other))
        assert_same(before[[0, 2]], after[[0, 2]], "changed the tokens of row 1", "the logits of the other rows")
        assert_moves(before[1], after[1], "changed the tokens of row 1", "its logits")

    @pytest.mark.mechanism(points=2)
    def test_two_continuations_of_one_prefix(self, student, draw):
        """Continuations fork from one cache, in any order, as often as wanted"""
        toy, prefix = Toy(draw), draw.integers(2, 3, high=11)
        _, cache = pair(student(toy.model, prefix, None), "decode_step")
        one, two, three = draw.integers(2, 1, high=11), draw.integers(2, 2, high=11), draw.integers(2, 1, high=11)
        hint = "did another continuation change the cache that was handed in?"
        branch = None
        for new, name in ((one, "first"), (two, "second"), (one, "first, repeated,")):
            logits, after = pair(student(toy.model, new, cache), "decode_step")
            branch = after if branch is None else branch
            want = toy.logits(torch.cat([prefix, new], 1))[:, -1]
            look = "" if name == "first" else hint
            assert_close(logits, want, "the logits", case=f"of the {name} continuation of a prefix", hint=look)
        logits, _ = pair(student(toy.model, three, branch), "decode_step")
        want = toy.logits(torch.cat([prefix, one, three], 1))[:, -1]
        assert_close(logits, want, "the logits", case="one step further in the first continuation", hint=hint)

    @pytest.mark.mechanism
    def test_nothing_is_left_behind(self, student, draw):
        """Another sequence, another batch size and another model start empty"""
        for B, shape in ((2, {}), (3, {}), (1, {"n_layers": 3, "d_model": 7})):
            toy, ids = Toy(draw, **shape), draw.integers(B, 3, high=11)
            found, _ = steps(student, toy.model, ids, [2, 1])
            case = f"for an independent sequence of {B} rows"
            assert_close(
                found[-1], toy.logits(ids)[:, -1], "the logits", case=case, hint="is state kept outside the cache?"
            )

    @pytest.mark.mechanism
    def test_only_new_tokens_go_through(self, student, draw):
        """A step sends its new tokens through the model and nothing else"""
        toy, ids, cache = Toy(draw), draw.integers(2, 6, high=11), None
        for start, stop in ((0, 3), (3, 4), (4, 6)):
            toy.uses.forget()
            _, cache = pair(student(toy.model, ids[:, start:stop], cache), "decode_step")
            new, rows = stop - start, len(ids)
            counts = {
                "embedded": toy.uses.fed / rows,
                "sent through a block": toy.uses.through_blocks / rows / len(toy.layers),
            }
            for what, fed in counts.items():
                happened = f"with {start} tokens seen and {new} new ones, {fed:g} positions of each row were {what}"
                require(fed == new, f"{happened}, expected {new}: the cache saves the rest", evidence=(what, fed))

    @pytest.mark.mechanism
    def test_the_last_position(self, student, draw):
        """The last position of the model can be used; the next one raises the model's ValueError"""
        toy = Toy(draw, max_len=4)
        ids = draw.integers(2, 5, high=11)
        found, cache = steps(student, toy.model, ids[:, :4], [3, 1])
        assert_close(
            found[-1],
            toy.logits(ids[:, :4])[:, -1],
            "the logits",
            case="at the last position of a model with max_len=4",
        )
        with raises(ValueError, when="position 4 of a model with max_len=4"):
            student(toy.model, ids[:, 4:], cache)
        padded = torch.cat([torch.zeros(2, 3, dtype=torch.int64), ids[:, :4]], 1)
        logits, _ = pair(student(toy.model, padded, None, left_padding(7, 4)[[1, 1]]), "decode_step")
        case = "with 3 pads and 4 tokens for a model with max_len=4 (pads take no position)"
        assert_close(logits, found[-1], "the logits", case=case)

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """ids and visible are not modified, and a second call gives the same"""
        arguments = [Toy(draw).model, draw.integers(2, 4, high=11), None, left_padding(4, 2)]
        assert_pure(
            lambda *args: pair(student(*args), "decode_step")[0], arguments, ["model", "ids", "cache", "visible"]
        )

    @pytest.mark.numerics
    def test_float32_model(self, student, draw):
        """A model in float32 gives logits in float32"""
        toy = Toy(lambda *shape, scale=1.0: draw(*shape, scale=scale, dtype=torch.float32))
        ids = draw.integers(2, 4, high=11)
        found, _ = steps(student, toy.model, ids, [3, 1])
        assert_dtype(found[-1], torch.float32, "the logits", "for a float32 model")
        assert_close(found[-1], toy.logits(ids)[:, -1], "the logits in float32", rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------------------------------------------------ prefill




def padded_batch(draw, lengths, pad, high=11):
    """ids (B, max(lengths)), row b with its number of real tokens, none of them first equal to pad."""
    ids = draw.integers(len(lengths), max(lengths), high=high)
    first = [max(lengths) - length for length in lengths]
    for row, start in enumerate(first):
        ids[row, :start] = pad
        if ids[row, start] == pad:
            ids[row, start] = (pad + 1) % high
    return ids


@exercise("prefill")
class TestPrefill:
    @pytest.mark.values(points=2)
    def test_equals_full(self, student, draw):
        """Without padding: the logits of the last position of the full forward pass, for any model"""
        for B, T, shape in (
            (1, 1, {}),
            (2, 2, {}),
            (4, 4, {"vocab": 4, "d_model": 4, "n_heads": 4, "d_k": 4, "d_v": 4}),
            (3, 5, {"n_layers": 3}),
        ):
            toy = Toy(draw, **shape)
            ids = draw.integers(B, T, high=4)
            logits, _ = pair(student(toy.model, ids), "prefill")
            assert_close(logits, toy.logits(ids)[:, -1], "the logits", case=f"for {B} prompts of {T} tokens")

    @pytest.mark.values(points=2)
    def test_left_padded_rows(self, student, draw):
        """Rows padded on the left give what they give alone, for any pad_id"""
        for lengths, pad in (((2, 1), 0), ((1, 4, 2), 0), ((3, 3), 5), ((5, 1, 3), 10)):
            toy, ids = Toy(draw), padded_batch(draw, lengths, pad)
            logits, _ = pair(student(toy.model, ids, pad), "prefill")
            for row, length in enumerate(lengths):
                want = toy.logits(ids[row : row + 1, ids.shape[1] - length :])[0, -1]
                case = f"for row {row} of ids = {ids.tolist()} with pad_id={pad}"
                assert_close(
                    logits[row], want, "the logits", case=case, hint="pads are not seen and do not count as positions"
                )

    @pytest.mark.values
    def test_a_later_pad_id_is_a_token(self, student, draw):
        """pad_id after the first other token is an ordinary token; without pad_id every token is"""
        toy = Toy(draw)
        cases = [([4, 0, 7], 0), ([4, 7, 0], 0), ([0, 4, 0, 0], 0), ([0, 0, 4], None), ([0, 0], None)]
        for tokens, pad in cases:
            ids = torch.tensor([tokens])
            start = next(i for i, token in enumerate(tokens) if token != pad)
            logits, _ = pair(student(toy.model, ids, pad), "prefill")
            hint = "only the run of pad_id at the left end of a row is padding"
            assert_close(
                logits, toy.logits(ids[:, start:])[:, -1], "the logits", case=given(ids=ids, pad_id=pad), hint=hint
            )

    @pytest.mark.values(points=2)
    def test_decoding_goes_on(self, student, beside, draw):
        """Its cache carries on: the decode steps after it give what each row gives alone, padded or not"""
        for lengths, pad in (((3, 3), None), ((4, 2, 1), 0)):
            toy = Toy(draw)
            ids = draw.integers(2, 3, high=11) if pad is None else padded_batch(draw, lengths, pad)
            _, cache = pair(student(toy.model, ids, pad), "prefill")
            for step in (1, 2):
                new = draw.integers(len(lengths), 1, high=11)
                ids = torch.cat([ids, new], 1)
                logits, cache = pair(beside("decode_step")(toy.model, new, cache), "decode_step")
                for row, length in enumerate(lengths):
                    want = toy.logits(ids[row : row + 1, ids.shape[1] - length - step :])[0, -1]
                    batch = "" if pad is None else " in a padded batch"
                    case = f"in decode step {step} after a prefill of {length} tokens{batch}"
                    assert_close(logits[row], want, "the logits", case=case)

    @pytest.mark.mechanism
    def test_one_pass(self, student, draw):
        """All T columns go through the model in one parallel pass, padding included"""
        for pad, pads in ((None, 0), (0, 0), (0, 2)):  # pads: columns that are padding in every row
            toy, ids = Toy(draw), padded_batch(draw, (5 - pads, 3 - pads), 0)
            ids = torch.cat([torch.zeros(2, pads, dtype=torch.int64), ids], dim=1)
            student(toy.model, ids, pad)
            message = f"the model was fed pieces of {toy.uses.calls} positions, expected one piece of 5"
            hint = "padding goes through the model, too" if pads else "the prompt is known, so no position has to wait"
            require(toy.uses.calls == [5], f"{message}: {hint}", evidence=str(toy.uses.calls))

    @pytest.mark.mechanism
    def test_refuses_empty_prompts(self, student, draw):
        """A prompt of no tokens, or of padding only, raises ValueError"""
        toy = Toy(draw)
        with raises(ValueError, when="ids of shape (2, 0)"):
            student(toy.model, torch.zeros(2, 0, dtype=torch.int64))
        for tokens in ([[0, 0]], [[0, 3], [0, 0]], [[0]], [[3], [0]]):
            with raises(ValueError, when=f"ids = {tokens} with pad_id=0"):
                student(toy.model, torch.tensor(tokens), 0)

    @pytest.mark.mechanism
    def test_the_last_position(self, student, draw):
        """A prompt may fill the model; one token more raises ValueError; pads take no position"""
        toy = Toy(draw, max_len=4)
        ids = draw.integers(1, 5, low=1, high=11)
        with raises(ValueError, when="5 tokens for a model with max_len=4"):
            student(toy.model, ids)
        padded = torch.cat([torch.zeros(1, 3, dtype=torch.int64), ids[:, :4]], 1)
        logits, _ = pair(student(toy.model, padded, 0), "prefill")
        case = "for 3 pads and 4 tokens, with max_len=4"
        assert_close(logits, toy.logits(ids[:, :4])[:, -1], "the logits", case=case)

    @pytest.mark.purity
    def test_leaves_ids_alone(self, student, draw):
        """ids is not modified, and a second call gives the same"""
        arguments = [Toy(draw).model, padded_batch(draw, (4, 2), 0), 0]
        assert_pure(lambda *args: pair(student(*args), "prefill")[0], arguments, ["model", "ids", "pad_id"])


# ----------------------------------------------------------------------------------------------------------- generate


@exercise("generate")
class TestGenerate:
    @pytest.mark.values(points=2)
    def test_equals_full_forward_passes(self, student, draw):
        """The tokens are those of greedy full forward passes, with and without the cache"""
        for B, T, n in ((1, 1, 1), (1, 2, 3), (4, 4, 3)):
            toy, ids = Toy(draw), draw.integers(B, T, high=11)
            want = toy.greedy(ids, n)
            for use_cache in (True, False):
                got = student(toy.model, ids, n, use_cache)
                assert_close(
                    got, want, "the result", case=f"for {B} prompts of {T} tokens, n={n}, use_cache={use_cache}"
                )

    @pytest.mark.values(points=2)
    def test_left_padded_rows(self, student, draw):
        """Rows of different lengths, padded on the left, continue as they do alone"""
        for lengths, pad, n in (((1, 3), 0, 2), ((4, 1, 2), 10, 3)):
            toy, ids = Toy(draw), padded_batch(draw, lengths, pad)
            for use_cache in (True, False):
                got = student(toy.model, ids, n, use_cache, pad)
                for row, length in enumerate(lengths):
                    start = ids.shape[1] - length
                    want = torch.cat([ids[row, :start], toy.greedy(ids[row : row + 1, start:], n)[0]])
                    case = f"for row {row} of ids = {ids.tolist()}, pad_id={pad}, use_cache={use_cache}"
                    assert_close(got[row], want, "the row", case=case)

    @pytest.mark.values
    def test_a_generated_pad_id_is_a_token(self, student, draw):
        """When the model itself generates pad_id, it is a token like any other"""
        while True:  # a prompt whose first new token does not stand at the beginning of a row
            toy, ids = Toy(draw), draw.integers(1, 3, high=11)
            full = toy.greedy(ids, 3)
            pad = int(full[0, 3])
            if pad != ids[0, 0]:
                break
        for use_cache in (True, False):
            case = f"when pad_id={pad} is also the first token generated, use_cache={use_cache}"
            hint = "only the run of pad_id at the left end is padding"
            got = student(toy.model, torch.cat([torch.full((1, 2), pad), ids], 1), 3, use_cache, pad)
            assert_close(got[:, 2:], full, "the result", case=case, hint=hint)

    @pytest.mark.values(points=2)
    def test_rows_end_on_their_own(self, student, draw):
        """A row that has generated eos_id repeats it; the other rows go on; an eos_id in the prompt ends nothing"""
        cases = [
            ([[3], [5], [0]], None, 5, [[3, 4, 5, 5, 5], [5, 6, 0, 1, 2], [0, 1, 2, 3, 4]]),
            ([[4], [4]], None, 5, [[4, 5, 5, 5], [4, 5, 5, 5]]),
            ([[5], [6]], None, 0, [[5, 6, 0, 0], [6, 0, 0, 0]]),
            ([[0, 0, 6], [3, 4, 5]], 0, 0, [[0, 0, 6, 0, 0, 0], [3, 4, 5, 6, 0, 0]]),
            ([[0, 4], [1, 2]], 0, 5, [[0, 4, 5, 5, 5], [1, 2, 3, 4, 5]]),
        ]
        for prompts, pad, eos, rows in cases:
            for use_cache in (True, False):
                n = len(rows[0]) - len(prompts[0])
                got = student(CountingToy(draw).model, torch.tensor(prompts), n, use_cache, pad, eos)
                case = f"for a model that counts modulo 7, prompts {prompts}, pad_id={pad}, eos_id={eos}, {use_cache=}"
                assert_close(got, torch.tensor(rows), "the result", case=case)

    @pytest.mark.values
    def test_rows_that_go_on_are_undisturbed(self, student, draw):
        """A row goes on beside a finished one exactly as it does alone"""
        while True:  # row 0 ends at its second token, row 1 does not end
            toy, ids = Toy(draw), draw.integers(2, 2, high=11)
            full = toy.greedy(ids, 4)
            eos = int(full[0, 3])
            if eos not in full[1, 2:].tolist() and eos != full[0, 2]:
                break
        want = full.clone()
        want[0, 3:] = eos
        for use_cache in (True, False):
            got = student(toy.model, ids, 4, use_cache, eos_id=eos)
            case = f"where row 0 generates eos_id second and row 1 never, use_cache={use_cache}"
            assert_close(got, want, "the result", case=case)

    @pytest.mark.values
    def test_nothing_to_generate(self, student, draw):
        """n = 0 returns the prompt and does not use the model"""
        toy, ids = Toy(draw), draw.integers(2, 3, high=11)
        for use_cache in (True, False):
            assert_close(student(toy.model, ids, 0, use_cache), ids, "the result", case=f"for n=0, use_cache={use_cache}")
        message = f"for n=0 the model was fed {toy.uses.fed} positions; nothing has to be computed"
        require(toy.uses.fed == 0, message, evidence=toy.uses.fed)

    @pytest.mark.mechanism(points=2)
    def test_what_is_fed(self, student, draw):
        """With the cache each token goes through the model once, without it everything goes through at every step"""
        for T, n in ((3, 1), (2, 3)):
            for use_cache, want in ((True, T + n - 1), (False, n * T + n * (n - 1) // 2)):
                toy = Toy(draw)
                student(toy.model, draw.integers(2, T, high=11), n, use_cache)
                fed = toy.uses.fed / 2
                case = f"with T={T}, n={n}, use_cache={use_cache}"
                message = f"{fed:g} positions of each row were fed to the model, expected {want}, {case}"
                require(fed == want, message, evidence=fed)

    @pytest.mark.mechanism
    def test_the_end_of_the_model(self, student, draw):
        """n = max_len - T + 1 fits exactly; one more raises ValueError, nothing is cropped"""
        for use_cache in (True, False):
            toy, ids = Toy(draw, max_len=6), draw.integers(1, 3, high=11)
            want = toy.greedy(ids, 4)
            got = student(toy.model, ids, 4, use_cache)
            assert_close(got, want, "the result", case=f"for T=3, n=4, max_len=6, use_cache={use_cache}")
            with raises(ValueError, when=f"T=3, n=5, max_len=6, use_cache={use_cache}"):
                student(toy.model, ids, 5, use_cache)

    @pytest.mark.mechanism
    def test_builds_no_graph(self, student, draw):
        """Gradients are off while the model runs, and the gradient mode afterwards is what it was"""
        for use_cache in (True, False):
            toy, ids = Toy(draw), draw.integers(2, 2, high=11)
            for weights in (toy.token, toy.position, toy.head):
                weights.requires_grad_()
            student(toy.model, ids, 3, use_cache)
            message = f"a graph was built while generating, use_cache={use_cache}: it costs memory and nobody needs it"
            require(not toy.uses.built_graph, message, evidence="graph")
            for before, words in ((True, ("off", "on")), (False, ("on", "off"))):
                with torch.set_grad_enabled(before):
                    student(toy.model, ids, 1, use_cache)
                    message = "gradients are {} after the call, although they were {} before".format(*words)
                    require(torch.is_grad_enabled() == before, message, evidence=words)

    @pytest.mark.mechanism
    def test_mode_of_the_model(self, student, draw):
        """train() and eval() are the caller's business"""
        for mode in (True, False):
            model = Toy(draw).model.train(mode)
            student(model, draw.integers(1, 2, high=11), 2, True)
            modes = ("train", "eval") if mode else ("eval", "train")
            message = "the model was in {} mode before the call and is in {} mode after it".format(*modes)
            require(model.training == mode, message, evidence=model.training)

    @pytest.mark.mechanism
    def test_nothing_else_of_the_model(self, student, draw):
        """It works with a model that offers embed, blocks and unembed and nothing else"""
        toy, ids = Toy(draw), draw.integers(2, 3, high=11)
        for use_cache in (True, False):
            got = student(Bare(toy.model), ids, 2, use_cache)
            assert_close(got, toy.greedy(ids, 2), "the result", case=f"with use_cache={use_cache}")

    @pytest.mark.purity
    def test_leaves_ids_alone(self, student, draw):
        """ids is not modified, and a second call gives the same"""
        for use_cache in (True, False):
            arguments = [Toy(draw).model, padded_batch(draw, (3, 2), 0), 2, use_cache, 0]
            assert_pure(student, arguments, ["model", "ids", "n", "use_cache", "pad_id"])


# ----------------------------------------------------------------------------------------------------- the arithmetic

BYTES = ("L", "B", "T", "n_kv_heads", "d_head", "bytes_per_element")


@exercise("cache_bytes")
class TestCacheBytes:
    @pytest.mark.values(points=2)
    def test_primes(self, student, reference):
        """Exact for sizes that share no factor, by position and by keyword"""
        for sizes in [(1, 1, 1, 1, 1, 1), (2, 3, 5, 7, 11, 4), (13, 2, 17, 3, 5, 1), (32, 1, 8192, 8, 128, 2)]:
            want = reference.cache_bytes(*sizes)
            case = given(**dict(zip(BYTES, sizes, strict=True)))
            assert_close(student(*sizes), want, "the size", case=case)
            assert_close(student(**dict(zip(BYTES, sizes, strict=True))), want, "the size", case=case)

    @pytest.mark.values
    def test_linear_in_everything(self, student):
        """Tripling any one size triples the bytes, and a size of 0 gives 0"""
        sizes = dict(zip(BYTES, (2, 3, 5, 7, 11, 4), strict=True))
        base = student(**sizes)
        for name in BYTES:
            assert_close(student(**{**sizes, name: 3 * sizes[name]}), 3 * base, f"the size with three times the {name}")
            assert_close(student(**{**sizes, name: 0}), 0, "the size", case=f"with {name} = 0")

    @pytest.mark.numerics
    def test_exact_when_large(self, student, reference):
        """Exact beyond what a float or 64 bits can hold"""
        for sizes in [(127, 131, 1_000_003, 97, 257, 3), (10**6 + 3, 10**6 + 33, 10**9 + 7, 101, 103, 3)]:
            assert_close(
                student(*sizes),
                reference.cache_bytes(*sizes),
                "the size",
                case=given(**dict(zip(BYTES, sizes, strict=True))),
            )


FLOPS = ("t", "L", "d_model", "n_heads", "n_kv_heads", "d_head", "d_ff", "vocab_size")


@exercise("decode_flops")
class TestDecodeFlops:
    @pytest.mark.values(points=2)
    def test_primes(self, student, reference):
        """Exact for sizes that share no factor, by position and by keyword"""
        for sizes in [
            (0, 1, 1, 1, 1, 1, 1, 1),
            (3, 2, 5, 7, 1, 11, 13, 17),
            (19, 3, 7, 10, 5, 2, 23, 29),
            (8192, 32, 4096, 32, 8, 128, 14336, 128256),
        ]:
            for B in (1, 3):
                named = dict(zip(FLOPS, sizes, strict=True))
                want = reference.decode_flops(*sizes, B)
                assert_close(student(*sizes, B), want, "the count", case=given(**named, B=B))
                assert_close(student(**named, B=B), want, "the count", case=given(**named, B=B))

    @pytest.mark.values(points=2)
    def test_part_by_part(self, student):
        """Each part alone: what remains when all other sizes are 0"""
        zero = dict.fromkeys(FLOPS, 0)
        attention = {"L": 2, "n_heads": 3, "d_head": 5}
        parts = [
            ("the FFN", {"L": 2, "d_model": 3, "d_ff": 5}, 180, "three matrices, and a multiply-add counts 2"),
            ("the logits", {"L": 2, "d_model": 3, "vocab_size": 7}, 42, "once, not in each layer"),
            ("keys and values", {"L": 2, "d_model": 3, "n_kv_heads": 2, "d_head": 5}, 240, "of n_kv_heads heads"),
            ("scores and weighted sum", {"t": 4, **attention}, 600, "over t + 1 positions"),
            ("the first token's attention", {"t": 0, **attention}, 120, "the token sees itself"),
        ]
        for name, sizes, want, hint in parts:
            assert_close(
                student(**{**zero, **sizes}),
                want,
                f"the count of {name}",
                case=given(**sizes) + ", all else 0",
                hint=hint,
            )

    @pytest.mark.values
    def test_each_cached_position(self, student):
        """One more cached position costs 4 n_heads d_head in each layer and sequence, however few the key heads"""
        sizes = {"L": 2, "d_model": 5, "n_heads": 6, "n_kv_heads": 3, "d_head": 7, "d_ff": 11, "vocab_size": 13, "B": 3}
        for t in (0, 1, 100):
            got = student(t=t + 1, **sizes) - student(t=t, **sizes)
            assert_close(
                got, 4 * 6 * 7 * 2 * 3, f"the difference between {t + 1} and {t} cached positions", case=given(**sizes)
            )

    @pytest.mark.numerics
    def test_exact_when_large(self, student, reference):
        """Exact beyond what a float can hold"""
        sizes = (10**9 + 7, 10**6 + 3, 10**5 + 3, 97, 7, 257, 10**5 + 19, 10**6 + 33, 10**4 + 7)
        assert_close(student(*sizes), reference.decode_flops(*sizes), "the count")
