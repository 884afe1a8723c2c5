"""Hidden checks of lesson 04.

Rearrangements are compared with their index formula, multi-head attention with a plain loop over sequences, heads and
queries that is written here, and with PyTorch's own module.
"""

import math

import pytest
import torch
from torch import nn

from grader.checks import exercise
from grader.checks.assertions import (
    assert_close,
    assert_dtype,
    assert_finite,
    assert_float32,
    assert_moves,
    assert_pure,
    assert_same,
    assert_same_gradients,
    fail,
    given,
    gradients,
    load_weights,
    raises,
    require,
)

HEADS = [(1, 1, 1, 1), (1, 2, 1, 2), (1, 1, 2, 1), (1, 2, 2, 1), (1, 2, 2, 2), (2, 2, 2, 2), (2, 5, 3, 7), (4, 4, 4, 4),
         (3, 1, 5, 2), (1, 7, 2, 3), (1, 2, 16, 1)]  # fmt: skip
"""(B, T, H, d_k), from the smallest up: the first that fails is the counterexample that a learner sees."""

SIZES = [(1, 1, 1, 1, 1), (1, 2, 2, 1, 1), (1, 2, 2, 2, 1), (1, 2, 3, 2, 2), (2, 2, 2, 2, 2), (2, 5, 11, 3, 7),
         (3, 3, 3, 3, 3), (2, 1, 7, 3, 2), (2, 7, 3, 2, 5), (7, 1, 2, 2, 1), (1, 1, 67, 2, 1), (1, 67, 1, 1, 2)]  # fmt: skip
"""(B, T_q, T_k, H, d_k), from the smallest up."""


def one_more(draw):
    """A size of many heads that no answer can know beforehand: (1, T_q, T_k, H, d_k)."""
    t_q, t_k = (int(n) for n in draw.integers(2, low=2, high=6))
    return 1, t_q, t_k, int(draw.integers(1, low=6, high=10)), int(draw.integers(1, low=1, high=4))


NOT_DIVIDING = [(3, 2), (5, 3), (21, 4), (22, 8), (9, 6), (3, 7), (7, 14)]
"""(d_model, n_heads)."""

AXES = ("query", "feature")
MATRICES = ("Wq", "Wk", "Wv", "Wo")
LAYERS = ("W_q", "W_k", "W_v", "W_o")


# ---------------------------------------------------------------------------------------------------- rearranging


def split_by_index(x, n_heads):
    """out[b, h, t, i] = x[b, t, h * d_k + i], number by number."""
    B, T, d_model = x.shape
    d_k = d_model // n_heads
    rows = x.tolist()
    out = [[[[rows[b][t][h * d_k + i] for i in range(d_k)] for t in range(T)] for h in range(n_heads)] for b in range(B)]
    return torch.tensor(out, dtype=x.dtype)


@exercise("split_heads")
class TestSplitHeads:
    @pytest.mark.values(points=3)
    def test_equals_the_formula(self, student, draw):
        """Number i of head h at position t is x[b, t, h * d_k + i], for all sizes"""
        for B, T, H, d_k in [*HEADS, one_more(draw)[1:]]:
            x = draw(B, T, H * d_k)
            case = f"{given(x=x)} and n_heads={H}"
            assert_close(student(x, H), split_by_index(x, H), case=case, rtol=0.0, atol=0.0, axes=("position", "feature"))

    @pytest.mark.values
    def test_heads_see_one_position_each(self, student, draw):
        """Changing one position moves that position in every head, and no other position"""
        x = draw(2, 5, 21)
        other = x.clone()
        other[1, 2] = draw(21)
        before, after = student(x, 3), student(other, 3)
        change, keep = "changed position 2 of sequence 1", [0, 1, 3, 4]
        hint = "cut the last axis into heads first, then swap heads and positions"
        assert_same(before[:, :, keep], after[:, :, keep], change, "another position", hint=hint)
        assert_same(before[0], after[0], change, "the other sequence", hint=hint)
        for head in range(3):
            assert_moves(before[1, head, 2], after[1, head, 2], change, f"position 2 of head {head}", hint=hint)

    @pytest.mark.values
    def test_heads_must_divide(self, student, draw):
        """Every number of heads that does not divide d_model raises ValueError with both numbers"""
        for d_model, n_heads in NOT_DIVIDING:
            x = draw(2 * n_heads, 5, d_model)  # the total does divide, and no size is n_heads
            with raises(ValueError, when=f"d_model={d_model}, n_heads={n_heads}", mentions=[d_model, n_heads]):
                student(x, n_heads)

    @pytest.mark.gradient
    def test_gradients(self, student, reference, draw):
        """Every number gets its own gradient back"""
        for B, T, H, d_k in [(1, 2, 2, 1), (2, 5, 3, 7), (4, 4, 4, 4)]:
            case = f"for (B, T, H, d_k) = {(B, T, H, d_k)}"
            arguments = [draw(B, T, H * d_k), H]
            assert_same_gradients(student, reference.split_heads, arguments, ("x", "n_heads"), case=case)

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """x is not modified, and a second call gives the same"""
        assert_pure(student, [draw(2, 5, 21), 3], ("x", "n_heads"))

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32 in, float32 out; non-contiguous inputs are fine"""
        assert_float32(student, reference.split_heads, [draw(2, 5, 21), 3])
        for x in (draw.strided(2, 5, 21), draw(5, 2, 21).transpose(0, 1)):
            assert_close(student(x, 3), split_by_index(x, 3), case="for a non-contiguous x")


@exercise("merge_heads")
class TestMergeHeads:
    @pytest.mark.values(points=3)
    def test_undoes_the_split(self, student, draw):
        """Number h * d_k + i of position t is x[b, h, t, i], for all sizes"""
        for B, T, H, d_k in [*HEADS, one_more(draw)[1:]]:
            want = draw(B, T, H * d_k)
            x = split_by_index(want, H)
            assert_close(student(x), want, case=given(x=x), rtol=0.0, atol=0.0, axes=("position", "feature"))

    @pytest.mark.gradient
    def test_gradients(self, student, reference, draw):
        """Every number gets its own gradient back"""
        for B, T, H, d_k in [(1, 2, 2, 1), (2, 5, 3, 7), (4, 4, 4, 4)]:
            case = f"for (B, H, T, d_k) = {(B, H, T, d_k)}"
            assert_same_gradients(student, reference.merge_heads, [draw(B, H, T, d_k)], ("x",), case=case)

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """x is not modified, and a second call gives the same"""
        assert_pure(student, [draw(2, 3, 5, 7)], ("x",))

    @pytest.mark.numerics
    def test_any_memory_layout(self, student, draw):
        """Contiguous, transposed, strided and broadcast inputs give the same numbers"""
        x = draw(2, 3, 5, 7)
        layouts = {
            "a transposed x": x.transpose(1, 2).contiguous().transpose(1, 2),
            "a transposed last axis": x.mT.contiguous().mT,
            "a strided x": draw.strided(2, 3, 5, 7),
            "a broadcast x": draw(1, 1, 5, 7).expand(2, 3, 5, 7),
        }
        for name, layout in layouts.items():
            want = torch.cat([layout[:, h] for h in range(3)], dim=-1)
            assert_close(student(layout), want, case=f"for {name}", axes=("position", "feature"))

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32 in, float32 out"""
        assert_float32(student, reference.merge_heads, [draw(2, 3, 5, 7)])


# ---------------------------------------------------------------------------------------------------- the spec


def heads_by_loops(q, k, v, n_heads, mask=None):
    """The output (B, T_q, d_k) of every head: a loop over heads, sequences and queries, visible keys only."""
    B, T_q, d_model = q.shape
    T_k, d_k = k.shape[1], d_model // n_heads
    if mask is not None:
        mask = mask.broadcast_to(B, n_heads, T_q, T_k)
    outputs = []
    for h in range(n_heads):
        own = slice(h * d_k, (h + 1) * d_k)
        rows = []
        for b in range(B):
            keys, values = k[b, :, own], v[b, :, own]
            for i in range(T_q):
                seen = slice(None) if mask is None else mask[b, h, i].nonzero().flatten()
                weights = (keys[seen] @ q[b, i, own] / math.sqrt(d_k)).softmax(dim=0)  # empty: the sum below is 0
                rows.append(weights @ values[seen])
        outputs.append(torch.stack(rows).view(B, T_q, d_k))
    return outputs


def mha_by_loops(x, Wq, Wk, Wv, Wo, n_heads, mask=None, memory=None, without=None):
    """The sum over the heads (but `without`) of head_h times its rows of Wo."""
    memory = x if memory is None else memory
    d_k = x.shape[-1] // n_heads
    total = torch.zeros_like(x)
    for h, out in enumerate(heads_by_loops(x @ Wq, memory @ Wk, memory @ Wv, n_heads, mask)):
        if h != without:
            total = total + out @ Wo[h * d_k : (h + 1) * d_k]
    return total


def matrices(draw, d_model):
    """Four matrices that give scores with a spread of a few units: weights far from uniform and from one-hot."""
    spread = 1.5 * d_model**-0.5
    return [*(draw(d_model, d_model, scale=spread) for _ in range(2)), *(draw(d_model, d_model) for _ in range(2))]


def masks(draw, B, H, T_q, T_k):
    """Masks of all shapes that a caller may hand over, from the plainest to the fullest."""
    shapes = [(T_q, T_k), (1, T_k), (B, 1, 1, T_k), (B, 1, T_q, T_k), (H, T_q, T_k), (1, H, 1, T_k), (B, H, T_q, T_k)]
    return [draw.mask(*shape) for shape in shapes]


ONE_ROW = "where one query sees nothing"


def with_empty_rows(draw, B, H, T_q, T_k):
    """Masks in which some queries see nothing: in all heads, in one head, everywhere."""
    everywhere = draw.mask(T_q, T_k)
    everywhere[T_q // 2] = False
    one_head = draw.mask(B, H, T_q, T_k)
    one_head[0, H - 1, 0] = False
    sequence = draw.mask(B, 1, 1, T_k)
    sequence[0] = False
    queries = torch.ones(B, 1, T_q, 1, dtype=torch.bool)
    queries[0, 0, 0] = False
    nothing = torch.zeros(T_q, T_k, dtype=torch.bool)
    return {
        ONE_ROW: everywhere,
        "where one query of the last head sees nothing": one_head,
        "of shape (B, 1, 1, T_k) where a whole sequence sees nothing": sequence,
        "of shape (B, 1, T_q, 1) where one query sees nothing": queries,
        "that hides everything": nothing,
    }


def positive(draw, B, T, d_model):
    """Numbers between 1 and 2, and four matrices with which every score is at -2 * factor or below."""
    eye = torch.eye(d_model, dtype=torch.float64)
    return draw.uniform(B, T, d_model, low=1.0, high=2.0), lambda factor: [-factor * eye, eye, eye, eye]


def assert_hidden_do_not_matter(draw, make):
    """`make(four)` gives a function of x and mask with two heads and the matrices `four`."""
    x, four = positive(draw, 2, 5, 4)
    other, seen, hidden = x.clone(), x.clone(), torch.ones(5, 5, dtype=torch.bool)
    other[:, 3], seen[:, 1], hidden[:, 3] = -x[:, 3], 0.5 * x[:, 1], False  # half the size: its score is the highest
    for factor in (1.0, 1e6):
        attend = make(four(factor))
        before, after, moved = (attend(tokens, hidden) for tokens in (x, other, seen))
        words = f"with visible scores near {-2 * factor:.0e}, changed"
        rest = [0, 1, 2, 4]  # the query of the hidden position itself may look elsewhere
        hint = "is it hidden from every head, and do positions stay apart when the heads are split and merged?"
        hint = hint if factor == 1.0 else "a hidden score must be lower than any other, however low the others are"
        assert_same(before[:, rest], after[:, rest], f"{words} a hidden position", hint=hint)
        assert_moves(before, moved, f"{words} a visible position")


def assert_large_scores(draw, make, without=None):
    """Finite, and right: with scores this large every query takes the one best visible value."""
    x, four = positive(draw, 2, 5, 4)
    for factor in (1e3, 1e6, -1e6):
        for mask in (None, draw.mask(5, 5)):
            case = f"for scores near {-2 * factor:.0e}, {'without a mask' if mask is None else 'with a mask'}"
            got = make(four(factor))(x, mask)
            assert_finite(got, case=case)
            assert_close(got, mha_by_loops(x, *four(factor), 2, mask, without=without), case=case, axes=AXES)


def describe(B, T_q, T_k, H, d_k):
    return f"for B={B}, T_q={T_q}, T_k={T_k}, n_heads={H}, d_k={d_k}"


@exercise("multi_head_attention")
class TestMultiHeadAttentionFunction:
    NAMES = ("x", *MATRICES, "n_heads", "mask", "memory")

    @pytest.mark.values(points=4)
    def test_equals_a_loop_over_single_heads(self, student, draw):
        """It is the sum over the heads, computed head by head and query by query, for all sizes"""
        for size in [*SIZES, one_more(draw)]:
            B, T_q, _, H, d_k = size
            args = [draw(B, T_q, H * d_k), *matrices(draw, H * d_k), H]
            assert_close(student(*args), mha_by_loops(*args), case=describe(B, T_q, T_q, H, d_k), axes=AXES)

    @pytest.mark.values(points=2)
    def test_memory(self, student, draw):
        """With memory, queries come from x, keys and values from memory, whatever its length"""
        for size in [*SIZES, one_more(draw)]:
            B, T_q, T_k, H, d_k = size
            args = [draw(B, T_q, H * d_k), *matrices(draw, H * d_k), H, None, draw(B, T_k, H * d_k)]
            assert_close(student(*args), mha_by_loops(*args), case=f"{describe(*size)} and a memory", axes=AXES)

    @pytest.mark.values(points=2)
    def test_masks(self, student, draw):
        """True means visible, in every shape that broadcasts to (B, n_heads, T_q, T_k), with a memory and without"""
        for size in [(1, 2, 2, 1, 1), (2, 2, 2, 2, 2), (3, 3, 3, 3, 3), (2, 5, 7, 3, 2)]:
            B, T_q, T_k, H, d_k = size
            x, memory, four = draw(B, T_q, H * d_k), draw(B, T_k, H * d_k), matrices(draw, H * d_k)
            for mask in masks(draw, B, H, T_q, T_k):
                case = f"{describe(*size)}, a memory and a mask of shape {tuple(mask.shape)}"
                want = mha_by_loops(x, *four, H, mask, memory)
                assert_close(student(x, *four, H, mask=mask, memory=memory), want, case=case, axes=AXES)
        for B, T, H, d_k in [(1, 2, 1, 1), (2, 4, 3, 2)]:
            x, four = draw(B, T, H * d_k), matrices(draw, H * d_k)
            for mask in masks(draw, B, H, T, T):
                case = f"{describe(B, T, T, H, d_k)} and a mask of shape {tuple(mask.shape)}, without memory"
                assert_close(student(x, *four, H, mask=mask), mha_by_loops(x, *four, H, mask), case=case, axes=AXES)

    @pytest.mark.values(points=2)
    def test_rows_that_see_nothing(self, student, draw):
        """A head of a query that sees no key contributes zeros, and every gradient is finite and right"""
        B, T_q, T_k, H, d_k = 2, 3, 4, 2, 3
        args = [draw(B, T_q, H * d_k), *matrices(draw, H * d_k), H]
        memory = draw(B, T_k, H * d_k)
        for name, mask in with_empty_rows(draw, B, H, T_q, T_k).items():
            case = f"with a mask {name}"
            full = [*args, mask, memory]
            got = student(*full)
            assert_finite(got, case=case)
            assert_close(got, mha_by_loops(*full), case=case, axes=AXES)
            wrt = (0, 1, 2, 3, 4, 7)
            for index, found in zip(wrt, gradients(student, full, wrt), strict=True):
                assert_finite(found, f"the gradient with respect to {self.NAMES[index]}", case)
            assert_same_gradients(student, mha_by_loops, full, self.NAMES, wrt, case=case)

    @pytest.mark.causality
    def test_hidden_positions_do_not_matter(self, student, draw):
        """What a hidden position holds moves nothing, also when visible scores are near -1e6; a visible one does"""
        assert_hidden_do_not_matter(draw, lambda four: lambda x, mask: student(x, *four, 2, mask=mask))

    @pytest.mark.numerics
    def test_large_scores(self, student, draw):
        """Scores near a million, positive and negative, give no inf and no nan, with a mask and without"""
        assert_large_scores(draw, lambda four: lambda x, mask: student(x, *four, 2, mask=mask))

    @pytest.mark.mechanism
    def test_heads_are_alone(self, student, draw):
        """Changing the columns of head 1 in Wq, Wk or Wv moves the output of head 1 and of no other head"""
        x, four, eye = draw(2, 5, 6), matrices(draw, 6), torch.eye(6, dtype=torch.float64)
        before = student(x, *four[:3], eye, 3)  # Wo = identity: the heads side by side
        others = [0, 1, 4, 5]
        for index in range(3):
            changed = [m.clone() for m in four[:3]]
            changed[index][:, 2:4] = draw(6, 2)
            after = student(x, *changed, eye, 3)
            change = f"with Wo = the identity, changed the columns of head 1 in {MATRICES[index]}"
            assert_same(before[..., others], after[..., others], change, "the features of the other heads")
            assert_moves(before[..., 2:4], after[..., 2:4], change, "the features of head 1")

    @pytest.mark.values
    def test_equals_pytorch(self, student, draw):
        """It equals nn.MultiheadAttention with the same weights (and its inverted mask)"""
        for B, T_q, T_k, H, d_k in [(2, 4, 4, 2, 4), (2, 5, 11, 3, 7)]:
            x, memory, four, mask = draw(B, T_q, H * d_k), draw(B, T_k, H * d_k), matrices(draw, H * d_k), draw.mask(T_q, T_k)
            with torch.no_grad():
                want = torch_module(H * d_k, H, dict(zip(LAYERS, four, strict=True)))(x, memory, memory, attn_mask=~mask)[0]
            got = student(x, *four, H, mask=mask, memory=memory)
            assert_close(got, want, case=describe(B, T_q, T_k, H, d_k), axes=AXES)

    @pytest.mark.gradient(points=2)
    def test_gradients(self, student, draw):
        """The gradients with respect to x, memory and the four matrices are those of the loop over single heads"""
        for B, T_q, T_k, H, d_k in [(1, 2, 2, 1, 1), (2, 2, 2, 2, 2), (2, 3, 5, 3, 2)]:
            args = [draw(B, T_q, H * d_k), *matrices(draw, H * d_k), H]
            case = describe(B, T_q, T_k, H, d_k)
            assert_same_gradients(student, mha_by_loops, args, self.NAMES, case=case, atol=1e-8)
            args += [draw.mask(B, 1, T_q, T_k), draw(B, T_k, H * d_k)]
            case += ", a mask and a memory"
            assert_same_gradients(student, mha_by_loops, args, self.NAMES, case=case, atol=1e-8)

    @pytest.mark.values
    def test_heads_must_divide(self, student, draw):
        """Every number of heads that does not divide d_model raises ValueError with both numbers"""
        for d_model, n_heads in NOT_DIVIDING:
            with raises(ValueError, when=f"d_model={d_model}, n_heads={n_heads}", mentions=[d_model, n_heads]):
                student(draw(2 * n_heads, 5, d_model), *[draw(d_model, d_model) for _ in range(4)], n_heads)

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """x, the matrices, mask and memory are not modified, and a second call gives the same"""
        args = [draw(2, 5, 6), *matrices(draw, 6), 3, draw.mask(2, 1, 5, 7), draw(2, 7, 6)]
        args[6][0, 0, 0] = False
        assert_pure(student, args, self.NAMES)

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, draw):
        """float32 in, float32 out, also where a query sees nothing; non-contiguous inputs are fine"""
        args = [draw(2, 5, 6), *matrices(draw, 6), 3]
        assert_float32(student, mha_by_loops, args)
        assert_float32(student, mha_by_loops, [*args, with_empty_rows(draw, 2, 3, 5, 7)[ONE_ROW], draw(2, 7, 6)])
        strided = [draw.strided(2, 5, 6), *[draw.strided(6, 6) for _ in range(4)], 3, draw.mask(7, 5).T, draw.strided(2, 7, 6)]
        assert_close(student(*strided), mha_by_loops(*strided), case="for non-contiguous inputs", axes=AXES)


# ---------------------------------------------------------------------------------------------------- the module


def torch_module(d_model, n_heads, weights, biases=None):
    """nn.MultiheadAttention with these weights, given as (inputs, outputs)."""
    module = nn.MultiheadAttention(d_model, n_heads, bias=biases is not None, batch_first=True).double()
    with torch.no_grad():
        module.in_proj_weight.copy_(torch.cat([weights[name].T for name in LAYERS[:3]]))
        module.out_proj.weight.copy_(weights["W_o"].T)
        if biases is not None:
            module.in_proj_bias.copy_(torch.cat([biases[name] for name in LAYERS[:3]]))
            module.out_proj.bias.copy_(biases["W_o"])
    return module


def random_state(draw, d_model, bias):
    state = {f"{name}.weight": W.T.contiguous() for name, W in zip(LAYERS, matrices(draw, d_model), strict=True)}
    return state | ({f"{name}.bias": draw(d_model) for name in LAYERS} if bias else {})


def module_by_loops(state, x, n_heads, memory=None, mask=None):
    """The module's computation from its weights, head by head and query by query."""
    memory = x if memory is None else memory

    def linear(name, tokens):
        return tokens @ state[f"{name}.weight"].T + state.get(f"{name}.bias", 0.0)

    heads = heads_by_loops(linear("W_q", x), linear("W_k", memory), linear("W_v", memory), n_heads, mask)
    return linear("W_o", torch.cat(heads, dim=-1))


@exercise("MultiHeadAttention")
class TestMultiHeadAttentionModule:
    @pytest.mark.values(points=4)
    def test_equals_a_loop_over_single_heads(self, student, draw):
        """With given weights, and with biases, it is the loop over heads and queries, for all sizes"""
        for size in [*SIZES, one_more(draw)]:
            B, T_q, _, H, d_k = size
            for bias in (False, True):
                state, x = random_state(draw, H * d_k, bias), draw(B, T_q, H * d_k)
                with torch.no_grad():
                    got = load_weights(student(H * d_k, H, bias=bias), state)(x)
                case = f"{describe(B, T_q, T_q, H, d_k)}, bias={bias}"
                assert_close(got, module_by_loops(state, x, H), case=case, axes=AXES)

    @pytest.mark.values(points=2)
    def test_memory(self, student, draw):
        """With memory, queries come from x, keys and values from memory; it is the second argument"""
        for size in [*SIZES, one_more(draw)]:
            B, T_q, T_k, H, d_k = size
            state, x, memory = random_state(draw, H * d_k, True), draw(B, T_q, H * d_k), draw(B, T_k, H * d_k)
            with torch.no_grad():
                got = load_weights(student(H * d_k, H, bias=True), state)(x, memory)
            assert_close(got, module_by_loops(state, x, H, memory), case=f"{describe(*size)} and a memory", axes=AXES)

    @pytest.mark.values(points=2)
    def test_masks(self, student, draw):
        """True means visible, in every shape that broadcasts to (B, n_heads, T_q, T_k), with a memory and without"""
        for size in [(1, 2, 2, 1, 1), (2, 2, 2, 2, 2), (3, 3, 3, 3, 3), (2, 5, 7, 3, 2)]:
            B, T_q, T_k, H, d_k = size
            x, memory, state = draw(B, T_q, H * d_k), draw(B, T_k, H * d_k), random_state(draw, H * d_k, False)
            module = load_weights(student(H * d_k, H), state)
            for mask in masks(draw, B, H, T_q, T_k):
                case = f"{describe(*size)}, a memory and a mask of shape {tuple(mask.shape)}"
                with torch.no_grad():
                    got = module(x, memory=memory, mask=mask)
                assert_close(got, module_by_loops(state, x, H, memory, mask), case=case, axes=AXES)
        for B, T, H, d_k in [(1, 2, 1, 1), (2, 4, 3, 2)]:
            x, state = draw(B, T, H * d_k), random_state(draw, H * d_k, False)
            module = load_weights(student(H * d_k, H), state)
            for mask in masks(draw, B, H, T, T):
                case = f"{describe(B, T, T, H, d_k)} and a mask of shape {tuple(mask.shape)}, without memory"
                with torch.no_grad():
                    got = module(x, mask=mask)
                assert_close(got, module_by_loops(state, x, H, None, mask), case=case, axes=AXES)

    @pytest.mark.values(points=2)
    def test_rows_that_see_nothing(self, student, draw):
        """A head of a query that sees no key gives zeros before W_o, and all gradients are finite"""
        B, T_q, T_k, H, d_k = 2, 3, 4, 2, 3
        state = random_state(draw, H * d_k, True)
        module = load_weights(student(H * d_k, H, True), state)
        x, memory = draw(B, T_q, H * d_k).requires_grad_(), draw(B, T_k, H * d_k).requires_grad_()
        for name, mask in with_empty_rows(draw, B, H, T_q, T_k).items():
            case = f"with a mask {name}, bias=True"
            got = module(x, memory, mask)
            want = module_by_loops(state, x, H, memory, mask)
            hint = "zeros before W_o, whose bias is still added"
            assert_close(got, want, case=case, axes=AXES, hint=hint)
            leaves = {"x": x, "memory": memory} | dict(module.named_parameters())
            found = torch.autograd.grad(got.square().sum(), list(leaves.values()), allow_unused=True)
            for leaf, gradient in zip(leaves, found, strict=True):
                if gradient is not None:
                    assert_finite(gradient, f"the gradient with respect to {leaf}", case)

    @pytest.mark.causality
    def test_hidden_positions_do_not_matter(self, student, draw):
        """What a hidden position holds moves nothing, also when visible scores are near -1e6; a visible one does"""
        with torch.no_grad():
            assert_hidden_do_not_matter(draw, lambda four: self.with_matrices(student, four))

    @pytest.mark.numerics
    def test_large_scores(self, student, draw):
        """Scores near a million, positive and negative, give no inf and no nan, with a mask and without"""
        with torch.no_grad():
            assert_large_scores(draw, lambda four: self.with_matrices(student, four))

    @staticmethod
    def with_matrices(student, four):
        state = {f"{name}.weight": W.T.contiguous() for name, W in zip(LAYERS, four, strict=True)}
        module = load_weights(student(4, 2), state)
        return lambda x, mask: module(x, mask=mask)

    @pytest.mark.values
    def test_equals_pytorch(self, student, draw):
        """It equals nn.MultiheadAttention with its weights copied in (and its inverted mask)"""
        for B, T_q, T_k, H, d_k in [(2, 4, 4, 2, 4), (2, 5, 11, 3, 7)]:
            x, memory, mask = draw(B, T_q, H * d_k), draw(B, T_k, H * d_k), draw.mask(T_q, T_k)
            theirs = nn.MultiheadAttention(H * d_k, H, batch_first=True).double()
            pieces = zip(LAYERS, theirs.in_proj_weight.chunk(3), draw(3, H * d_k), strict=False)
            state = {"W_o.weight": theirs.out_proj.weight.detach(), "W_o.bias": draw(H * d_k)}
            for name, weight, bias in pieces:
                state |= {f"{name}.weight": weight.detach() * 3, f"{name}.bias": bias}
            with torch.no_grad():
                theirs.in_proj_weight.mul_(3)  # larger scores than a fresh module has
                theirs.in_proj_bias.copy_(torch.cat([state[f"{name}.bias"] for name in LAYERS[:3]]))
                theirs.out_proj.bias.copy_(state["W_o.bias"])
                want = theirs(x, memory, memory, attn_mask=~mask)[0]
                got = load_weights(student(H * d_k, H, bias=True), state)(x, memory=memory, mask=mask)
            assert_close(got, want, case=describe(B, T_q, T_k, H, d_k), axes=AXES)

    @pytest.mark.mechanism
    def test_parameters(self, student):
        """The same parameters for every number of heads: four matrices, and four biases if bias=True"""
        for bias in (False, True):
            for n_heads in (1, 2, 3, 6, 12):
                module = student(12, n_heads, bias)
                got = sum(p.numel() for p in module.parameters())
                words = f"a module with d_model=12, n_heads={n_heads}, bias={bias}"
                assert_close(got, 4 * 144 + (48 if bias else 0), f"the number of parameters of {words}")
                for name, parameter in module.named_parameters():
                    require(parameter.requires_grad, f"{name} does not require a gradient", evidence=name)
        got = sum(p.numel() for p in student(12, 3).parameters())
        assert_close(got, 576, "the number of parameters by default, without biases")

    @pytest.mark.mechanism
    def test_fresh_weights(self, student):
        """New maps start as nn.Linear does, different from each other and from those of another module"""
        one, two = (dict(student(48, 4, True).named_parameters()) for _ in range(2))
        for name in (f"{layer}.{kind}" for layer in LAYERS for kind in ("weight", "bias")):
            require(name in one, f"the module has no {name}", evidence=sorted(one))
            bound = 48**-0.5
            values = one[name].detach()
            spread = values.std().item() / (bound / math.sqrt(3))
            slack = 0.06 if name.endswith("weight") else 0.4  # 6 standard deviations for 48 * 48 numbers, and for 48
            fits = values.abs().max().item() <= bound * 1.001 and abs(spread - 1) < slack
            words = f"a standard deviation of {values.std().item():.3f}, expected about {bound / math.sqrt(3):.3f}"
            require(fits, f"{name} of a new module has {words}: PyTorch's default", evidence=name)
            assert_moves(values, two[name], "made a second module", name)
        for a, b in (("W_q", "W_k"), ("W_k", "W_v"), ("W_q", "W_v"), ("W_q", "W_o")):
            change = f"compared {a}.weight and {b}.weight of a new module"
            assert_moves(one[f"{a}.weight"], one[f"{b}.weight"], change, "one against the other")

    @pytest.mark.gradient(points=2)
    def test_gradients(self, student, draw):
        """The gradients with respect to x, memory and all parameters are right, also without memory and in eval mode"""
        for B, T_q, T_k, H, d_k in [(1, 2, 2, 1, 1), (2, 3, 5, 3, 2)]:
            state, mask, weights = random_state(draw, H * d_k, True), draw.mask(B, 1, T_q, T_k), draw(B, T_q, H * d_k)
            module = load_weights(student(H * d_k, H, bias=True), state)
            both = {"x": draw(B, T_q, H * d_k).requires_grad_(), "memory": draw(B, T_k, H * d_k).requires_grad_()}
            cases = [(both, mask, "with a memory and a mask"), ({"x": both["x"]}, None, "without memory, in eval mode")]
            for tokens, seen, words in cases:
                module.train(seen is not None)
                mine = tokens | dict(module.named_parameters())
                theirs = tokens | {name: value.clone().requires_grad_() for name, value in state.items()}
                outputs = (
                    (mine, module(**tokens, mask=seen)),
                    (theirs, module_by_loops(theirs, tokens["x"], H, tokens.get("memory"), seen)),
                )
                found = []
                for leaves, out in outputs:
                    if not out.requires_grad:
                        fail(f"no gradient flows from the output to the parameters, {words}", evidence="no gradient")
                    names = list(theirs)
                    require(set(names) <= set(leaves), f"the parameters are {sorted(leaves)}", evidence=sorted(leaves))
                    grads = torch.autograd.grad((out * weights).sum(), [leaves[n] for n in names], allow_unused=True)
                    pairs = zip(names, grads, strict=True)
                    found.append({n: torch.zeros_like(leaves[n]) if g is None else g for n, g in pairs})
                for name, want in found[1].items():
                    what = f"the gradient with respect to {name}"
                    assert_close(found[0][name], want, what, case=f"{describe(B, T_q, T_k, H, d_k)}, {words}", atol=1e-8)

    @pytest.mark.values
    def test_heads_must_divide(self, student):
        """Every number of heads that does not divide d_model raises ValueError with both numbers"""
        for d_model, n_heads in NOT_DIVIDING:
            with raises(ValueError, when=f"d_model={d_model}, n_heads={n_heads}", mentions=[d_model, n_heads]):
                student(d_model, n_heads)

    @pytest.mark.purity
    def test_same_again(self, student, draw):
        """Arguments and weights stay as they are; a second call gives the same, in training mode too"""
        state = random_state(draw, 6, True)
        module = load_weights(student(6, 3, bias=True), state).train()
        args = [draw(2, 5, 6), draw(2, 7, 6), draw.mask(2, 1, 5, 7)]
        args[2][0, 0, 0] = False
        with torch.no_grad():
            assert_pure(module, args, ("x", "memory", "mask"))
            for name, tensor in module.state_dict().items():
                if name in state:
                    assert_close(tensor, state[name], f"{name} after two calls", rtol=0.0, atol=0.0)
            assert_same(module.train()(*args), module.eval()(*args), "called eval()", atol=0.0)

    @pytest.mark.purity
    def test_changing_lengths(self, student, draw):
        """One module takes lengths 3, 7 and 2, with and without memory and mask, in turn"""
        state = random_state(draw, 6, False)
        module = load_weights(student(6, 3), state)
        with torch.no_grad():
            for B, T, T_k in ((1, 3, 3), (2, 7, 4), (3, 2, 5)):
                x, memory, mask = draw(B, T, 6), draw(B, T_k, 6), draw.mask(T, T_k)
                case = f"for a length of {T} after others"
                assert_close(module(x, memory, mask), module_by_loops(state, x, 3, memory, mask), case=f"{case}, with memory")
                assert_close(module(x), module_by_loops(state, x, 3), case=case, axes=AXES)

    @pytest.mark.purity
    def test_nothing_is_kept(self, student, draw):
        """New weights count from the next call on, for the same x and memory, in eval mode too; modules do not mix"""
        x, memory, states = draw(2, 5, 6), draw(2, 7, 6), [random_state(draw, 6, False) for _ in range(3)]
        wants = [module_by_loops(state, x, 3, memory) for state in states]  # before the calls, which might change x
        want_of_other = module_by_loops(states[0], x, 2, memory)
        module, other = student(6, 3), student(6, 2)
        cases = ("in training mode, beside a module with n_heads=2", "in eval mode, after other weights were loaded",
                 "in eval mode, after other weights were loaded once more")  # fmt: skip
        with torch.no_grad():
            for state, want, case in zip(states, wants, cases, strict=True):
                module = load_weights(module, state).train(state is states[0])
                assert_close(module(x, memory), want, case=case, axes=AXES)
            got = load_weights(other, states[0])(x, memory)
            assert_close(got, want_of_other, case="for the other module, with n_heads=2", axes=AXES)

    @pytest.mark.numerics
    def test_float32(self, student, draw):
        """A module in float32 gives float32, also where a query sees nothing; non-contiguous inputs are fine"""
        state, x, mask = random_state(draw, 6, False), draw(2, 5, 6), with_empty_rows(draw, 2, 3, 5, 5)[ONE_ROW]
        module = load_weights(student(6, 3), state)
        with torch.no_grad():
            strided = draw.strided(2, 5, 6)
            assert_close(module(strided), module_by_loops(state, strided, 3), case="for a non-contiguous x", axes=AXES)
            module = module.float()
            for options in ({}, {"mask": mask}):
                got = module(x.float(), **options)
                assert_dtype(got, torch.float32, "the output", "when x and the weights are float32")
                want = module_by_loops(state, x, 3, **options)
                assert_close(got, want, "the output in float32", rtol=1e-4, atol=1e-4, dtype=False)


# ---------------------------------------------------------------------------------------------------- counting


def count_by_head(d_model, n_heads, n_kv_heads, bias):
    """Head by head: one matrix (and bias) a query head and a key and value head; the output map at the end."""
    d_k = d_model // n_heads
    one = d_model * d_k + (d_k if bias else 0)
    return n_heads * one + 2 * n_kv_heads * one + n_heads * d_k * d_model + (d_model if bias else 0)


@exercise("attention_parameter_count")
class TestAttentionParameterCount:
    SIZES = ((1, 1), (2, 1), (2, 2), (6, 3), (12, 4), (21, 3), (35, 7), (512, 8), (4096, 32))

    @pytest.mark.values(points=2)
    def test_all_heads(self, student):
        """Without n_kv_heads it is 4 d_model^2, and as much with n_kv_heads=n_heads"""
        for d_model, n_heads in self.SIZES:
            case = f"with d_model={d_model}, n_heads={n_heads}"
            for options in ({}, {"n_kv_heads": None}, {"n_kv_heads": n_heads}):
                assert_close(student(d_model, n_heads, **options), 4 * d_model**2, "the count", case=f"{case}, {options}")

    @pytest.mark.values(points=2)
    def test_shared_keys_and_values(self, student):
        """With fewer key and value heads only W_k and W_v are narrower"""
        sizes = [(4, 2, 1), (6, 3, 1), (12, 4, 2), (35, 7, 1), (30, 6, 3), (49, 49, 1), (55, 11, 1), (4096, 32, 8)]
        for d_model, n_heads, n_kv in sizes:
            case = f"with d_model={d_model}, n_heads={n_heads}, n_kv_heads={n_kv}"
            want = count_by_head(d_model, n_heads, n_kv, False)
            assert_close(student(d_model, n_heads, n_kv), want, "the count", case=case)
            assert_close(student(d_model, n_heads, n_kv_heads=n_kv, bias=False), want, "the count", case=case)

    @pytest.mark.values(points=2)
    def test_biases(self, student):
        """Each of the four maps has a bias as long as its output"""
        for d_model, n_heads, n_kv in [(1, 1, 1), (4, 2, 1), (6, 3, 3), (12, 4, 2), (35, 7, 1), (30, 6, 3)]:
            case = f"with d_model={d_model}, n_heads={n_heads}, n_kv_heads={n_kv}, bias=True"
            want = count_by_head(d_model, n_heads, n_kv, True)
            assert_close(student(d_model, n_heads, n_kv, True), want, "the count", case=case)
            if n_kv == n_heads:
                assert_close(student(d_model, n_heads, bias=True), want, "the count", case=case)

    @pytest.mark.values
    def test_counts_a_real_module(self, student):
        """It is the number of parameters of nn.MultiheadAttention"""
        for d_model, n_heads in ((6, 3), (20, 4)):
            for bias in (False, True):
                module = nn.MultiheadAttention(d_model, n_heads, bias=bias)
                want = sum(p.numel() for p in module.parameters())
                case = f"with d_model={d_model}, n_heads={n_heads}, bias={bias}"
                assert_close(student(d_model, n_heads, bias=bias), want, "the count", case=case)

    @pytest.mark.values
    def test_heads_must_divide(self, student):
        """n_heads must divide d_model, and n_kv_heads must divide n_heads: ValueError with the two numbers"""
        for d_model, n_heads in NOT_DIVIDING:
            with raises(ValueError, when=f"d_model={d_model}, n_heads={n_heads}", mentions=[d_model, n_heads]):
                student(d_model, n_heads)
        for n_heads, n_kv in ((4, 3), (5, 2), (6, 4), (2, 4), (3, 6)):
            with raises(ValueError, when=f"d_model=120, n_heads={n_heads}, n_kv_heads={n_kv}", mentions=[n_heads, n_kv]):
                student(120, n_heads, n_kv)


# ---------------------------------------------------------------------------------------------------- ablation


def ablated_by_loops(x, Wq, Wk, Wv, Wo, n_heads, head, mask=None, memory=None):
    return mha_by_loops(x, Wq, Wk, Wv, Wo, n_heads, mask, memory, without=head)


@exercise("ablate_head")
class TestAblateHead:
    NAMES = ("x", *MATRICES, "n_heads", "head", "mask", "memory")

    @pytest.mark.values(points=3)
    def test_equals_the_other_heads(self, student, draw):
        """It is the sum over the other heads, computed one by one, for all sizes and every head"""
        for size in [*SIZES, one_more(draw)]:
            B, T_q, _, H, d_k = size
            args = [draw(B, T_q, H * d_k), *matrices(draw, H * d_k), H]
            for head in range(H):
                want = ablated_by_loops(*args, head)
                case = f"{describe(B, T_q, T_q, H, d_k)}, head={head}"
                assert_close(student(*args, head), want, case=case, axes=AXES)

    @pytest.mark.values(points=2)
    def test_mask_and_memory(self, student, draw):
        """Mask and memory work as in multi_head_attention, rows that see nothing included"""
        size = B, T_q, T_k, H, d_k = (2, 3, 5, 3, 2)
        args = [draw(B, T_q, H * d_k), *matrices(draw, H * d_k), H, 1]
        memory = draw(B, T_k, H * d_k)
        shapes = {f"of shape {tuple(mask.shape)}": mask for mask in masks(draw, B, H, T_q, T_k)}
        for name, mask in (shapes | with_empty_rows(draw, B, H, T_q, T_k)).items():
            want = ablated_by_loops(*args, mask, memory)
            case = f"{describe(*size)}, head=1, with a memory and a mask {name}"
            assert_close(student(*args, mask=mask, memory=memory), want, case=case, axes=AXES)
        got = student(*args, None, memory)
        assert_close(got, ablated_by_loops(*args, None, memory), case="with a memory and no mask", axes=AXES)
        for own in masks(draw, B, H, T_q, T_q):
            case = f"with a mask of shape {tuple(own.shape)} and no memory"
            assert_close(student(*args, own), ablated_by_loops(*args, own), case=case, axes=AXES)

    @pytest.mark.causality
    def test_hidden_positions_do_not_matter(self, student, draw):
        """What a hidden position holds moves nothing, also when visible scores are near -1e6; a visible one does"""
        assert_hidden_do_not_matter(draw, lambda four: lambda x, mask: student(x, *four, 2, 0, mask=mask))

    @pytest.mark.numerics
    def test_large_scores(self, student, draw):
        """Scores near a million, positive and negative, give no inf and no nan, with a mask and without"""
        assert_large_scores(draw, lambda four: lambda x, mask: student(x, *four, 2, 0, mask=mask), without=0)

    @pytest.mark.mechanism
    def test_the_head_is_gone(self, student, draw):
        """Nothing in the weights of the removed head moves the output; the weights of the others do"""
        x, four = draw(2, 5, 6), matrices(draw, 6)
        before = student(x, *four, 3, 1)
        for own, gone in ((slice(2, 4), True), (slice(0, 2), False), (slice(4, 6), False)):
            for index, name in enumerate(MATRICES):
                changed = [m.clone() for m in four]
                place = (own,) if name == "Wo" else (slice(None), own)
                changed[index][place] = draw(*changed[index][place].shape)
                head = own.start // 2
                change = f"with head 1 removed, changed what belongs to head {head} in {name}"
                after = student(x, *changed, 3, 1)
                if gone:
                    hint = "head h owns columns of Wq, Wk, Wv and rows of Wo"
                    assert_same(before, after, change, hint=hint)
                else:
                    assert_moves(before, after, change)

    @pytest.mark.values
    def test_contributions_add_up(self, student, draw):
        """What the removals take away adds up to the whole output"""
        for H, d_k in ((1, 3), (2, 2), (3, 2), (5, 1)):
            args = [draw(2, 3, H * d_k), *matrices(draw, H * d_k), H]
            full = mha_by_loops(*args)
            taken = sum(full - student(*args, head) for head in range(H))
            assert_close(taken, full, "the sum of what each removal takes away", case=f"with n_heads={H}", atol=1e-8)

    @pytest.mark.gradient
    def test_gradients(self, student, draw):
        """The gradients are those of the sum over the other heads; the removed head gets none"""
        for B, T_q, T_k, H, d_k in [(1, 2, 2, 1, 1), (2, 2, 2, 2, 2), (2, 3, 5, 3, 2)]:
            mask = draw.mask(B, 1, T_q, T_k)
            mask[0, 0, 0] = False
            for head in range(H):
                args = [draw(B, T_q, H * d_k), *matrices(draw, H * d_k), H, head, mask, draw(B, T_k, H * d_k)]
                case = f"{describe(B, T_q, T_k, H, d_k)}, head={head}, a mask and a memory"
                if H > 1:
                    assert_same_gradients(student, ablated_by_loops, args, self.NAMES, case=case, atol=1e-8)
                    continue
                out = student(*[a.requires_grad_() if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args])
                if out.requires_grad:  # zeros: whether a graph hangs on them is open
                    (found,) = torch.autograd.grad(out.sum(), [args[0]], allow_unused=True)
                    if found is not None:
                        assert_close(found, torch.zeros_like(found), "the gradient with respect to x", case=case)

    @pytest.mark.values
    def test_errors(self, student, draw):
        """A head that does not exist, below 0 or too large, and heads that do not divide raise ValueError"""
        x, four = draw(2, 3, 66), matrices(draw, 66)
        for n_heads, head in ((11, 11), (11, -1), (11, -11), (11, -12), (6, 66), (1, 1), (2, -1)):
            with raises(ValueError, when=f"n_heads={n_heads}, head={head}", mentions=[n_heads, head]):
                student(x, *four, n_heads, head)
        for d_model, n_heads in NOT_DIVIDING:
            with raises(ValueError, when=f"d_model={d_model}, n_heads={n_heads}, head=1", mentions=[d_model, n_heads]):
                student(draw(2 * n_heads, 5, d_model), *[draw(d_model, d_model) for _ in range(4)], n_heads, 1)

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """x, the matrices (Wo above all), mask and memory are not modified, and a second call gives the same"""
        args = [draw(2, 5, 6), *matrices(draw, 6), 3, 1, draw.mask(2, 1, 5, 7), draw(2, 7, 6)]
        args[7][0, 0, 0] = False
        assert_pure(student, args, self.NAMES)

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, draw):
        """float32 in, float32 out, also where a query sees nothing; non-contiguous inputs are fine"""
        args = [draw(2, 5, 6), *matrices(draw, 6), 3, 2]
        assert_float32(student, ablated_by_loops, args)
        assert_float32(student, ablated_by_loops, [*args, with_empty_rows(draw, 2, 3, 5, 7)[ONE_ROW], draw(2, 7, 6)])
        strided = [draw.strided(2, 5, 6), *[draw.strided(6, 6) for _ in range(4)], 3, 0]
        assert_close(student(*strided), ablated_by_loops(*strided), case="for non-contiguous inputs", axes=AXES)
