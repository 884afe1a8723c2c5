"""Public checks of lesson 04: hand-computed cases and properties."""

import math

import pytest
import torch
import torch.nn.functional as F

from grader.checks import exercise
from grader.checks.assertions import (
    assert_close,
    assert_moves,
    assert_same,
    assert_shape,
    given,
    load_weights,
    raises,
    require,
)


def float64(*rows):
    return torch.tensor(rows, dtype=torch.float64)


@exercise("split_heads")
class TestSplitHeads:
    @pytest.mark.shape
    def test_shape(self, student, draw):
        """(B, T, d_model) becomes (B, H, T, d_k)"""
        for B, T, H, d_k in [(1, 1, 1, 1), (2, 5, 3, 7), (2, 4, 2, 4)]:
            case = f"for x of shape {(B, T, H * d_k)} and n_heads={H}"
            assert_shape(student(draw(B, T, H * d_k), H), (B, H, T, d_k), case=case)

    @pytest.mark.values
    def test_by_hand(self, student):
        """The example of the lesson: two positions, two heads, the numbers 0 to 7"""
        x = float64([[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]])
        want = float64([[[0.0, 1.0], [4.0, 5.0]], [[2.0, 3.0], [6.0, 7.0]]])
        hint = "each head holds its own features of every position"
        assert_close(student(x, 2), want, case=f"{given(x=x)}, n_heads=2", hint=hint)

    @pytest.mark.values
    def test_heads_must_divide(self, student, draw):
        """10 features and 4 heads: ValueError that names both numbers"""
        with raises(ValueError, when="d_model=10, n_heads=4", mentions=[10, 4]):
            student(draw(2, 8, 10), 4)


@exercise("merge_heads")
class TestMergeHeads:
    @pytest.mark.shape
    def test_shape(self, student, draw):
        """(B, H, T, d_k) becomes (B, T, H * d_k)"""
        for B, H, T, d_k in [(1, 1, 1, 1), (2, 3, 5, 7), (2, 2, 4, 4)]:
            assert_shape(student(draw(B, H, T, d_k)), (B, T, H * d_k), case=f"for x of shape {(B, H, T, d_k)}")

    @pytest.mark.values
    def test_by_hand(self, student):
        """Heads [[0, 1], [4, 5]] and [[2, 3], [6, 7]] become the rows 0 1 2 3 and 4 5 6 7"""
        x = float64([[[0.0, 1.0], [4.0, 5.0]], [[2.0, 3.0], [6.0, 7.0]]])
        want = float64([[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]])
        hint = "a row of the result is one position: head 0, then head 1"
        assert_close(student(x), want, case=given(x=x), hint=hint)

    @pytest.mark.values
    def test_positions_stay_apart(self, student, draw):
        """Changing position 2 of one head moves position 2 of the result and no other"""
        x = draw(2, 3, 5, 7)
        other = x.clone()
        other[0, 1, 2] = draw(7)
        before, after = student(x), student(other)
        change, keep = "changed position 2 of head 1", [0, 1, 3, 4]
        hint = "swap heads and positions before you join the last two axes"
        assert_same(before[:, keep], after[:, keep], change, "another position of the result", hint=hint)
        assert_moves(before[0, 2], after[0, 2], change, "position 2 of the result", hint=hint)


def two_heads():
    """Width 2, two heads: head 0 sees (1, 0) with queries times ln 3, head 1 sees (0, 1)."""
    eye = torch.eye(2, dtype=torch.float64)
    x = float64([[1.0, 0.0], [0.0, 1.0]])
    return x, eye * math.log(3.0), eye, eye, float64([1.0, 2.0], [3.0, 4.0])


@exercise("multi_head_attention")
class TestMultiHeadAttentionFunction:
    @pytest.mark.shape
    def test_shape(self, student, draw):
        """The output has the shape of x, with and without mask and memory"""
        for B, T_q, T_k, H, d_k in [(1, 1, 1, 1, 1), (2, 5, 11, 3, 7)]:
            d = H * d_k
            x, memory, matrices = draw(B, T_q, d), draw(B, T_k, d), [draw(d, d) for _ in range(4)]
            case = f"for x of shape {(B, T_q, d)}, n_heads={H}"
            assert_shape(student(x, *matrices, H), x.shape, case=case)
            assert_shape(student(x, *matrices, H, mask=draw.mask(T_q, T_q)), x.shape, case=f"{case}, with a mask")
            assert_shape(student(x, *matrices, H, memory=memory), x.shape, case=f"{case}, memory of length {T_k}")

    @pytest.mark.values
    def test_two_heads_by_hand(self, student):
        """Head 0 finds 3/4 and 1/2, head 1 finds 1/2 and 3/4, and Wo mixes them"""
        x, *matrices = two_heads()
        want = float64([[2.25, 3.5], [2.75, 4.0]])
        case = f"{given(x=x)}, Wq = ln 3 times the identity, Wk = Wv = the identity, Wo = [[1, 2], [3, 4]], n_heads=2"
        assert_close(student(x, *matrices, 2), want, case=case)

    @pytest.mark.values
    def test_one_head_is_attention(self, student, draw):
        """With n_heads=1 it is plain attention between the four products"""
        x, (Wq, Wk, Wv, Wo) = draw(2, 5, 6), [draw(6, 6) for _ in range(4)]
        want = F.scaled_dot_product_attention(x @ Wq, x @ Wk, x @ Wv) @ Wo
        assert_close(student(x, Wq, Wk, Wv, Wo, 1), want, case="with n_heads=1", axes=("query", "feature"))

    @pytest.mark.values
    def test_heads_must_divide(self, student, draw):
        """10 features and 4 heads: ValueError that names both numbers"""
        with raises(ValueError, when="d_model=10, n_heads=4", mentions=[10, 4]):
            student(draw(2, 8, 10), *[draw(10, 10) for _ in range(4)], 4)


@exercise("MultiHeadAttention")
class TestMultiHeadAttentionModule:
    @pytest.mark.shape
    def test_shape(self, student):
        """The output has the shape of x, with and without mask and memory"""
        module = student(6, 3)
        x, memory = torch.zeros(2, 5, 6), torch.zeros(2, 7, 6)
        assert_shape(module(x), (2, 5, 6), case="for x of shape (2, 5, 6)")
        mask = torch.ones(5, 7, dtype=torch.bool)
        got = module(x, memory=memory, mask=mask)
        assert_shape(got, (2, 5, 6), case="for x of shape (2, 5, 6), memory of shape (2, 7, 6) and a mask")

    @pytest.mark.shape
    def test_parameters_by_name(self, student):
        """The parameters, and all that state_dict() holds, are W_q, W_k, W_v and W_o, with biases only if asked for"""
        for bias, H in ((False, 2), (True, 3)):
            want = {f"{name}.weight": (6, 6) for name in ("W_q", "W_k", "W_v", "W_o")}
            want |= {f"{name}.bias": (6,) for name in ("W_q", "W_k", "W_v", "W_o")} if bias else {}
            module, words = student(6, H, bias=bias), f"a module with d_model=6, n_heads={H}, bias={bias}"
            got = {name: tuple(p.shape) for name, p in module.named_parameters()}
            assert_close(got, want, f"the parameters of {words}")
            saved = {name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
            assert_close(saved, want, f"state_dict() of {words}")

    @pytest.mark.values
    def test_two_heads_by_hand(self, student):
        """With the weights of the hand-computed example it gives 2.25, 3.5 and 2.75, 4"""
        x, *matrices = two_heads()
        names = ("W_q", "W_k", "W_v", "W_o")
        state = {f"{name}.weight": W.T.contiguous() for name, W in zip(names, matrices, strict=True)}
        got = load_weights(student(2, 2), state)(x)
        assert_close(got, float64([[2.25, 3.5], [2.75, 4.0]]), case=f"{given(x=x)}, with n_heads=2")

    @pytest.mark.values
    def test_heads_must_divide(self, student):
        """10 features and 4 heads: the constructor raises a ValueError that names both numbers"""
        with raises(ValueError, when="d_model=10, n_heads=4", mentions=[10, 4]):
            student(10, 4)


@exercise("attention_parameter_count")
class TestAttentionParameterCount:
    @pytest.mark.values
    def test_by_hand(self, student):
        """The examples of the lesson: 256 with four heads, 192 with two key and value heads"""
        got = student(8, 4)
        require(not isinstance(got, torch.Tensor), "the count is a tensor, expected an int", evidence="a tensor")
        assert_close(got, 256, "the count", case="with d_model=8, n_heads=4")
        assert_close(student(8, 4, 2), 192, "the count", case="with d_model=8, n_heads=4, n_kv_heads=2")

    @pytest.mark.values
    def test_constant_in_the_heads(self, student):
        """The count does not depend on the number of heads"""
        for n_heads in (1, 2, 3, 4, 6, 12):
            assert_close(student(12, n_heads), 576, "the count", case=f"with d_model=12, n_heads={n_heads}")

    @pytest.mark.values
    def test_heads_must_divide(self, student):
        """10 features and 4 heads: ValueError that names both numbers"""
        with raises(ValueError, when="d_model=10, n_heads=4", mentions=[10, 4]):
            student(10, 4)


@exercise("ablate_head")
class TestAblateHead:
    @pytest.mark.shape
    def test_shape(self, student, draw):
        """The output has the shape of x, whichever head is removed"""
        x, matrices = draw(2, 5, 6), [draw(6, 6) for _ in range(4)]
        for head in range(3):
            assert_shape(student(x, *matrices, 3, head), (2, 5, 6), case=f"with n_heads=3, head={head}")

    @pytest.mark.values
    def test_by_hand(self, student):
        """Of 3/4 (1, 2) + 1/2 (3, 4) the second part is left without head 0, the first without head 1"""
        x, *matrices = two_heads()
        case = f"{given(x=x)}, Wq = ln 3 times the identity, Wk = Wv = the identity, Wo = [[1, 2], [3, 4]], n_heads=2"
        assert_close(student(x, *matrices, 2, 0), float64([[1.5, 2.0], [2.25, 3.0]]), case=f"{case}, head=0")
        assert_close(student(x, *matrices, 2, 1), float64([[0.75, 1.5], [0.5, 1.0]]), case=f"{case}, head=1")

    @pytest.mark.values
    def test_no_such_head(self, student, draw):
        """With three heads, head 3 raises a ValueError that names head and n_heads"""
        x, matrices = draw(2, 5, 33), [draw(33, 33) for _ in range(4)]
        with raises(ValueError, when="n_heads=3, head=3", mentions=[3]):
            student(x, *matrices, 3, 3)
        with raises(ValueError, when="n_heads=11, head=57", mentions=[11, 57]):
            student(x, *matrices, 11, 57)
