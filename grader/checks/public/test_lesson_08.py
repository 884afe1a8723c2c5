"""Public checks of lesson 08: hand-computed cases, and that a cache agrees with the computation without one."""

import math

import pytest
import torch

from grader.checks import exercise
from grader.checks.assertions import (
    assert_close,
    assert_dtype,
    assert_same,
    assert_shape,
    fail,
    given,
    require,
    shape_of,
)


class Uses:
    """How a model was used: its pieces one by one, positions fed and sent through a block, whether a graph was built."""

    def __init__(self):
        self.forget()

    def forget(self):
        """Set the counts back."""
        self.calls, self.fed, self.through_blocks, self.built_graph = [], 0, 0, False


class ToyBlock:
    """A block as answers get it: what the lesson's table lists. tanh instead of norms, and no FFN."""

    def __init__(self, layer, sizes, uses):
        self._layer, self._sizes, self._uses = layer, sizes, uses

    def qkv(self, x):
        self._uses.through_blocks += x.shape[0] * x.shape[1]
        return split(x, self._layer[0], self._sizes)

    def finish(self, x, heads):
        self._uses.built_graph |= heads.requires_grad
        return join(x, heads, self._layer[1])


class ToyModel:
    """A model as answers get it: what the lesson's table lists, and the mode, which they leave alone."""

    def __init__(self, token, position, head, blocks, uses):
        self._token, self._position, self._head, self._uses = token, position, head, uses
        self.blocks, self.training = blocks, True

    def __getattr__(self, name):
        raise AttributeError(f"a model offers embed, blocks and unembed, and nothing else that you may use: no {name}")

    def embed(self, ids, positions):
        last = len(self._position) - 1
        if int(positions.min()) < 0 or int(positions.max()) > last:
            asked = f"positions {int(positions.min())} to {int(positions.max())} were asked for"
            raise ValueError(f"{asked}, but this model has 0 to {last}")
        self._uses.calls.append(ids.shape[1])
        self._uses.fed += ids.numel()
        return self._token[ids] + self._position[positions]

    def unembed(self, x):
        return x @ self._head

    def train(self, mode=True):
        self.training = mode
        return self

    def eval(self):
        return self.train(False)


class Toy:
    """A random model with learned positions, and what the checks know of it.

    Answers get `model` alone. What is expected of them is computed here, from the same weights, and nothing of that
    can be reached from the model.
    """

    def __init__(self, draw, *, vocab=11, d_model=5, n_heads=3, d_k=2, d_v=4, n_layers=2, max_len=16):
        self.token, self.position = draw(vocab, d_model), draw(max_len, d_model, scale=2.0)
        self.head = draw(d_model, vocab)
        self.sizes = (n_heads, d_k, d_v)
        width = n_heads * (2 * d_k + d_v)
        self.layers = [(draw(d_model, width), draw(n_heads * d_v, d_model)) for _ in range(n_layers)]
        self.uses = Uses()
        blocks = [ToyBlock(layer, self.sizes, self.uses) for layer in self.layers]
        self.model = ToyModel(self.token, self.position, self.head, blocks, self.uses)

    def logits(self, ids):
        """The logits of every position, by the full forward pass, without any cache."""
        x = self.token[ids] + self.position[: ids.shape[1]]
        for w_in, w_out in self.layers:
            q, k, v = split(x, w_in, self.sizes)
            x = join(x, torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True), w_out)
        return x @ self.head

    def greedy(self, ids, n):
        """n more tokens for each row, by full forward passes."""
        for _ in range(n):
            ids = torch.cat([ids, self.logits(ids)[:, -1].argmax(-1, keepdim=True)], dim=1)
        return ids


class CountingToy(Toy):
    """A model that always says the next number: after token t comes (t + 1) % vocab."""

    def __init__(self, draw, vocab=7, max_len=16):
        super().__init__(draw, vocab=vocab, d_model=vocab, max_len=max_len)
        self.token.copy_(torch.eye(vocab))
        self.head.copy_(torch.eye(vocab).roll(1, dims=1))
        for weights in (self.position, *(w_out for _, w_out in self.layers)):
            weights.zero_()


def split(x, w_in, sizes):
    """Queries, keys and values of a block."""
    n_heads, d_k, d_v = sizes
    return (torch.tanh(x) @ w_in).unflatten(-1, (n_heads, -1)).transpose(1, 2).split((d_k, d_k, d_v), dim=-1)


def join(x, heads, w_out):
    """What a block makes of its input and of attention's output."""
    return x + torch.tanh(heads.transpose(1, 2).flatten(2) @ w_out)


def pair(got, what):
    """The two things that an exercise returns."""
    if not isinstance(got, tuple | list) or len(got) != 2:
        size = f"{len(got)} items" if isinstance(got, tuple | list) else shape_of(got)
        fail(f"{what} should return two things, the result and the new cache, but returned {size}", evidence=size)
    return got


def held(cache, what="length", case=""):
    """How many positions a cache says that it holds."""
    length = cache.length
    if not isinstance(length, int) or isinstance(length, bool):
        is_method = callable(length)
        kind = "a method" if is_method else "a tensor" if isinstance(length, torch.Tensor) else shape_of(length)
        hint = "; make it an attribute or put @property above it" if is_method else ""
        fail(f"{what} should be an int but is {kind}{hint}{f', {case}' if case else ''}", evidence=kind)
    return length


def append(cache, k, v, max_len):
    """Append what fits; a refusal is said in words."""
    before = held(cache)
    try:
        got = cache.append(k, v)
    except ValueError as error:
        room = f"{before} + {k.shape[2]} positions with max_len={max_len}"
        fail(f"append refused {room}, saying {str(error)!r}; exactly max_len positions fit", evidence="refused")
    return pair(got, "append")


def in_pieces(student, sizes, tensors, visible=None):
    """attend_with_cache over pieces of these lengths; the outputs joined again."""
    cache, outs = None, []
    pieces = zip(*(t.split(sizes, dim=2) for t in tensors), strict=True)
    masks = visible.split(sizes, dim=1) if visible is not None else [None] * len(sizes)
    for piece, mask in zip(pieces, masks, strict=True):
        got = student(*piece, cache) if mask is None else student(*piece, cache, mask)
        out, cache = pair(got, "attend_with_cache")
        outs.append(out)
    return torch.cat(outs, dim=2)


@exercise("append_changes_the_past")
class TestAppendChangesThePast:
    @pytest.mark.shape
    def test_gives_one_number(self, student, draw):
        """The result is a tensor with no dimensions"""
        got = student(lambda x: x.cumsum(1), draw(2, 5, 3))
        assert_shape(got, (), "the change")
        assert_dtype(got, torch.float64, "the change")

    @pytest.mark.values
    def test_a_mean_by_hand(self, student):
        """An encoder that gives every position the mean of all: appending 6 to 0, 0 moves the old outputs by 2"""
        x = torch.tensor([[[0.0], [0.0], [6.0]]], dtype=torch.float64)
        got = student(lambda x: x.mean(1, keepdim=True).expand_as(x), x)
        assert_close(got, torch.tensor(2.0, dtype=torch.float64), "the change", hint="before: mean 0, after: mean 2")

    @pytest.mark.values
    def test_a_running_sum_keeps_the_past(self, student, draw):
        """A running sum never changes its past: 0"""
        got = student(lambda x: x.cumsum(1), draw(2, 5, 3))
        assert_close(
            got,
            torch.zeros((), dtype=torch.float64),
            "the change",
            hint="the appended position itself is not part of the past",
        )


@exercise("KVCache")
class TestKVCache:
    @pytest.mark.shape
    def test_holds_what_was_appended(self, student, draw):
        """After 3 and 2 positions it gives back 5, and its length, an int, says so"""
        cache = student(2, 3, 7, 5, 4, dtype=torch.float64)
        assert_close(held(cache), 0, "the length of a new cache")
        for new, length in ((3, 3), (2, 5)):
            keys, values = append(cache, draw(2, 3, new, 5), draw(2, 3, new, 4), 7)
            assert_shape(keys, (2, 3, length, 5), "the keys", f"after {length} positions")
            assert_shape(values, (2, 3, length, 4), "the values", f"after {length} positions")
            case = f"after {length} positions"
            assert_close(held(cache, case=case), length, "the length", case=case)

    @pytest.mark.values
    def test_two_appends_by_hand(self, student):
        """Keys 1, 2 and then 3 come back as 1, 2, 3: oldest first"""
        cache = student(1, 1, 4, 1, dtype=torch.float64)
        first = torch.tensor([[[[1.0], [2.0]]]], dtype=torch.float64)
        second = torch.tensor([[[[3.0]]]], dtype=torch.float64)
        append(cache, first, 10 * first, 4)
        keys, values = append(cache, second, 10 * second, 4)
        want = torch.tensor([[[[1.0], [2.0], [3.0]]]], dtype=torch.float64)
        assert_close(keys, want, "the keys")
        assert_close(values, 10 * want, "the values")

    @pytest.mark.values
    def test_a_fork_goes_its_own_way(self, student, draw):
        """What is appended to a fork does not show in the original"""
        cache = student(2, 3, 7, 5, dtype=torch.float64)
        append(cache, draw(2, 3, 2, 5), draw(2, 3, 2, 5), 7)
        twin = cache.fork()
        new = draw(2, 3, 1, 5)
        append(cache, new, new, 7)
        append(twin, draw(2, 3, 2, 5), draw(2, 3, 2, 5), 7)
        case = "after 2 positions, a fork, 1 position in the original and 2 in the fork"
        assert_close(held(twin), 4, "the length of the fork", case=case)
        assert_close(held(cache), 3, "the length of the original", case=case)
        keys, _ = append(cache, new[:, :, :0], new[:, :, :0], 7)
        assert_close(
            keys[:, :, 2:], new, "the newest key of the original", case=case, hint="the fork needs storage of its own"
        )


@exercise("attend_with_cache")
class TestAttendWithCache:
    @pytest.mark.shape
    def test_one_row_a_new_query(self, student, draw):
        """The output has a row for each new position, whatever the cache holds"""
        cache = None
        for new in (3, 1, 2):
            out, cache = pair(
                student(draw(2, 3, new, 5), draw(2, 3, new, 5), draw(2, 3, new, 4), cache), "attend_with_cache"
            )
            assert_shape(out, (2, 3, new, 4), "the output", f"for {new} new positions")

    @pytest.mark.values
    def test_three_tokens_by_hand(self, student):
        """Keys 0, ln 2, ln 5 with values 8, 4, 0 give the third query the output 2"""
        q = torch.ones(1, 1, 1, 1, dtype=torch.float64)
        cache = None
        for key, value, want in ((0.0, 8.0, 8.0), (math.log(2), 4.0, 16 / 3), (math.log(5), 0.0, 2.0)):
            out, cache = pair(student(q, key * q, value * q, cache), "attend_with_cache")
            assert_close(
                out,
                want * q,
                case=f"for the token with the value {value:g}",
                hint="it sees all earlier tokens and itself",
            )

    @pytest.mark.values
    def test_pieces_give_the_whole(self, student, draw):
        """One call with all positions gives the same as one call for each"""
        tensors = draw(2, 3, 5, 7), draw(2, 3, 5, 7), draw(2, 3, 5, 4)
        whole, pieces = in_pieces(student, [5], tensors), in_pieces(student, [1] * 5, tensors)
        assert_same(whole, pieces, "fed the positions one at a time instead of all at once")

    @pytest.mark.values
    def test_padding_is_not_seen(self, student, draw):
        """A position that is not visible never counts, not even in a later call"""
        q, k, v = draw(1, 2, 3, 5), draw(1, 2, 3, 5), draw(1, 2, 3, 4)
        other = v.clone()
        other[:, :, 0] = draw(1, 2, 4)
        visible = torch.tensor([[False, True]])
        results = []
        for values in (v, other):
            first, cache = pair(student(q[:, :, :2], k[:, :, :2], values[:, :, :2], None, visible), "attend_with_cache")
            second, _ = pair(student(q[:, :, 2:], k[:, :, 2:], values[:, :, 2:], cache), "attend_with_cache")
            results.append((first, second))
        (first, second), (first_after, second_after) = results
        assert_same(first, first_after, "changed the value of the invisible position 0", "the output of the same call")
        assert_same(
            second, second_after, "changed the value of the invisible position 0", "the output of the next call"
        )


@exercise("decode_step")
class TestDecodeStep:
    @pytest.mark.shape
    def test_gives_one_row_of_logits(self, student, draw):
        """The logits are (B, V), for one new token and for several"""
        toy, cache = Toy(draw), None
        for new in (3, 1):
            logits, cache = pair(student(toy.model, draw.integers(2, new, high=11), cache), "decode_step")
            assert_shape(logits, (2, 11), "the logits", f"for {new} new tokens")

    @pytest.mark.values
    def test_token_by_token_equals_full(self, student, draw):
        """Token by token, every step gives the logits of the full forward pass"""
        toy, ids = Toy(draw), draw.integers(2, 4, high=11)
        want, cache = toy.logits(ids), None
        for t in range(4):
            logits, cache = pair(student(toy.model, ids[:, t : t + 1], cache), "decode_step")
            hint = "is it at its position, and does it see the cached tokens?" if t else ""
            assert_close(logits, want[:, t], "the logits", case=f"after token {t}", hint=hint)


@exercise("prefill")
class TestPrefill:
    @pytest.mark.shape
    def test_gives_one_row_of_logits(self, student, draw):
        """The logits are (B, V)"""
        logits, _ = pair(student(Toy(draw).model, draw.integers(2, 5, high=11)), "prefill")
        assert_shape(logits, (2, 11), "the logits")

    @pytest.mark.values
    def test_equals_full(self, student, draw):
        """The logits are those of the last position of the full forward pass"""
        toy = Toy(draw)
        for length in (1, 4):
            ids = draw.integers(2, length, high=11)
            logits, _ = pair(student(toy.model, ids), "prefill")
            assert_close(logits, toy.logits(ids)[:, -1], "the logits", case=f"for prompts of {length} tokens")

    @pytest.mark.values
    def test_padding_changes_nothing(self, student, draw):
        """A prompt padded on the left gives the logits that it gives alone"""
        toy, ids = Toy(draw), draw.integers(1, 3, low=1, high=11)
        padded = torch.cat([torch.zeros(1, 2, dtype=torch.int64), ids], dim=1)
        logits, _ = pair(student(toy.model, padded, 0), "prefill")
        assert_close(
            logits,
            toy.logits(ids)[:, -1],
            "the logits",
            case=given(ids=padded, pad_id=0),
            hint="pads are not seen and do not count as positions",
        )


@exercise("generate")
class TestGenerate:
    @pytest.mark.shape
    def test_appends_n_tokens(self, student, draw):
        """The result is the prompt followed by n tokens; n = 0 gives the prompt"""
        toy, ids = Toy(draw), draw.integers(2, 3, high=11)
        for n in (0, 1, 3):
            got = student(toy.model, ids, n, True)
            assert_shape(got, (2, 3 + n), "the result", f"for n={n}")
            assert_dtype(got, torch.int64, "the result", f"for n={n}")
            assert_same(ids, got[:, :3], f"generated {n} tokens", "the prompt at the beginning of the result")

    @pytest.mark.values
    def test_counting_by_hand(self, student, draw):
        """A model that always says the next number continues 2, 3 with 4, 5, 6"""
        for use_cache in (True, False):
            got = student(CountingToy(draw).model, torch.tensor([[2, 3]]), 3, use_cache)
            assert_close(got, torch.tensor([[2, 3, 4, 5, 6]]), "the result", case=f"with use_cache={use_cache}")

    @pytest.mark.values
    def test_with_and_without_cache_agree(self, student, draw):
        """With and without the cache the tokens are the same"""
        toy, ids = Toy(draw), draw.integers(2, 3, high=11)
        assert_close(
            student(toy.model, ids, 4, True),
            student(toy.model, ids, 4, False),
            "the result with use_cache=True",
            case="where use_cache=False gives what is expected",
        )


@exercise("cache_bytes")
class TestCacheBytes:
    @pytest.mark.values
    def test_by_hand(self, student):
        """2 layers, 1 sequence of 3 tokens, 2 heads of width 4, 2 bytes each: 192 bytes"""
        got = student(L=2, B=1, T=3, n_kv_heads=2, d_head=4, bytes_per_element=2)
        assert_close(got, 192, "the size", hint="a key and a value for each layer, sequence, position and stored head")

    @pytest.mark.shape
    def test_is_an_int(self, student):
        """The size is an int"""
        got = student(1, 1, 1, 1, 1, 1)
        require(
            isinstance(got, int) and not isinstance(got, bool),
            f"the size should be an int but is {shape_of(got)}",
            evidence=shape_of(got),
        )


@exercise("decode_flops")
class TestDecodeFlops:
    @pytest.mark.values
    def test_by_hand(self, student):
        """The example of the lesson: 432 FLOPs"""
        got = student(t=3, L=1, d_model=4, n_heads=2, n_kv_heads=1, d_head=2, d_ff=8, vocab_size=10)
        assert_close(got, 432, "the count", hint="compare with the sum worked by hand above the exercise, part by part")

    @pytest.mark.shape
    def test_is_an_int(self, student):
        """The count is an int"""
        got = student(1, 1, 1, 1, 1, 1, 1, 1)
        require(
            isinstance(got, int) and not isinstance(got, bool),
            f"the count should be an int but is {shape_of(got)}",
            evidence=shape_of(got),
        )

    @pytest.mark.values
    def test_a_batch_multiplies(self, student):
        """Five sequences cost five times one"""
        sizes = {"t": 7, "L": 2, "d_model": 3, "n_heads": 5, "n_kv_heads": 1, "d_head": 4, "d_ff": 11, "vocab_size": 13}
        assert_close(student(**sizes, B=5), 5 * student(**sizes), "the count for B=5")
