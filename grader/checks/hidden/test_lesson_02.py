"""Hidden checks of lesson 02."""

import pytest
import torch

from grader.checks import exercise
from grader.checks.assertions import (
    assert_close,
    assert_finite,
    assert_float32,
    assert_moves,
    assert_pure,
    assert_same,
    assert_same_gradients,
    given,
)

SIZES = [(1, 1, 1, 1), (1, 2, 1, 1), (2, 3, 2, 2), (5, 11, 7, 13), (4, 4, 4, 4), (1, 11, 7, 13)]
"""(T_q, T_k, d_k, d_v), from the smallest up: the first that fails is the counterexample that a learner sees."""

AXES = ("query", "feature")


def triple(draw, t_q, t_k, d_k, d_v, *lead, scale=1.0):
    return draw(*lead, t_q, d_k, scale=scale), draw(*lead, t_k, d_k, scale=scale), draw(*lead, t_k, d_v)


@exercise("softmax")
class TestSoftmax:
    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student, reference, draw):
        """Each slice along `dim` is exp(x) over its sum, for any shape and any dim"""
        for shape, dim in [((2,), 0), ((2, 2), 0), ((2, 2), 1), ((4, 4), 0), ((5, 7), -2), ((2, 3, 5), 1), ((3, 3, 3), 0), ((1, 7), -1)]:
            x = draw(*shape)
            assert_close(student(x, dim), reference.softmax(x, dim), "the softmax", case=f"{given(x=x)} and dim={dim}")

    @pytest.mark.values
    def test_slices_do_not_mix(self, student, draw):
        """Changing one slice moves that slice and no other"""
        x = draw(3, 5)
        y = x.clone()
        y[1] = draw(5)
        before, after = student(x, -1), student(y, -1)
        keep = [0, 2]
        assert_same(before[keep], after[keep], "changed row 1 of x", "the softmax of the other rows")
        assert_moves(before[1], after[1], "changed row 1 of x", "its softmax")

    @pytest.mark.numerics
    def test_large_numbers(self, student, reference, draw):
        """Entries around +1000, -1000 and 10000 give no inf and no nan"""
        for shift in (1000.0, -1000.0, 10000.0, -10000.0):
            x = draw(3, 5) + shift
            got = student(x, -1)
            assert_finite(got, "the softmax", f"for numbers around {shift:g}")
            assert_close(got, reference.softmax(x, -1), "the softmax", case=f"for numbers around {shift:g}")

    @pytest.mark.numerics
    def test_rows_far_apart(self, student, reference, draw):
        """Rows at 0, +1000 and -1000 in one tensor are each stable"""
        x = draw(3, 5) + torch.tensor([[0.0], [1000.0], [-1000.0]], dtype=torch.float64)
        for dim, z in ((-1, x), (0, x.T)):
            got = student(z, dim)
            case = f"with rows around 0, +1000 and -1000, dim={dim}"
            assert_finite(got, "the softmax", case)
            assert_close(got, reference.softmax(z, dim), "the softmax", case=case, hint="each slice needs its own maximum")

    @pytest.mark.numerics
    def test_minus_infinity_gets_weight_zero(self, student, reference, draw):
        """An entry of -inf gets the weight 0"""
        x = draw(2, 5)
        x[0, 1] = x[1, 4] = x[1, 0] = -torch.inf
        assert_close(student(x, -1), reference.softmax(x, -1), "the softmax", case="with entries of -inf")

    @pytest.mark.gradient
    def test_gradient(self, student, reference, draw):
        """The gradient is that of the softmax"""
        for shape, dim in [((3,), 0), ((3, 5), -1), ((3, 5), 0)]:
            assert_same_gradients(student, reference.softmax, [draw(*shape), dim], ["x", "dim"], case=f"for shape {shape} and dim={dim}")

    @pytest.mark.purity
    def test_leaves_x_alone(self, student, draw):
        """x is not modified, and a second call gives the same"""
        assert_pure(student, [draw(3, 5), -1], ["x", "dim"])

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32 in, float32 out; non-contiguous input is fine"""
        assert_float32(student, reference.softmax, [draw(3, 5), -1])
        x = draw.strided(3, 5)
        assert_close(student(x, -1), reference.softmax(x, -1), "the softmax", case="for a non-contiguous x")

    @pytest.mark.mechanism
    def test_is_written_by_hand(self, student, draw, forbidding):
        """It is made of elementary operations, not of PyTorch's softmax"""
        with forbidding("_softmax", "_log_softmax", "_safe_softmax"):
            student(draw(2, 3), -1)


@exercise("attention")
class TestAttention:
    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student, reference, draw):
        """Every output row is the softmax-weighted sum of the values"""
        for size in SIZES:
            q, k, v = triple(draw, *size)
            assert_close(student(q, k, v), reference.attention(q, k, v), case=given(q=q, k=k, v=v), axes=AXES)

    @pytest.mark.values
    def test_leading_dimensions_are_independent(self, student, reference, draw):
        """A batch, or batch and heads, gives what each of its items gives alone"""
        for lead in [(2,), (2, 3), (3, 3), (4, 4), (1, 1)]:
            q, k, v = triple(draw, *((4,) * 4 if lead == (4, 4) else (5, 11, 7, 13)), *lead)
            assert_close(student(q, k, v), reference.attention(q, k, v), case=f"with leading dimensions {lead}", axes=AXES)

    @pytest.mark.values
    def test_permuting_keys_with_values_changes_nothing(self, student, draw):
        """Keys and values are a set of pairs: their order does not matter, but their pairing does"""
        q, k, v = triple(draw, 5, 11, 7, 13)
        order = draw.permutation(11)
        before = student(q, k, v)
        assert_same(before, student(q, k[order], v[order]), "permuted keys and values together")
        assert_moves(before, student(q, k[order], v), "permuted the keys alone")

    @pytest.mark.values
    def test_depends_on_query_and_key(self, student, draw):
        """Changing one query moves its own row and no other; changing one key moves every row"""
        q, k, v = triple(draw, 5, 11, 7, 13)
        before = student(q, k, v)
        other = q.clone()
        other[2] = draw(7)
        after = student(other, k, v)
        assert_moves(before[2], after[2], "changed query 2", "output 2")
        assert_same(before[[0, 1, 3, 4]], after[[0, 1, 3, 4]], "changed query 2", "the other outputs")
        other = k.clone()
        other[3] = draw(7)
        for row, (one, two) in enumerate(zip(before, student(q, other, v), strict=True)):
            assert_moves(one, two, "changed key 3", f"output {row}")

    @pytest.mark.values
    def test_stays_between_the_values(self, student, draw):
        """An output lies between the smallest and the largest value, even when the scores are large"""
        q, k, v = triple(draw, 5, 11, 7, 13, scale=20.0)
        got = student(q, k, v)
        low, high = v.amin(0) - 1e-9, v.amax(0) + 1e-9
        inside = (got >= low) & (got <= high)
        assert_close(inside, torch.ones_like(inside), "whether each output lies inside the range of the values", axes=AXES)

    @pytest.mark.numerics
    def test_large_scores(self, student, reference, draw):
        """Scores of some thousands give no inf and no nan"""
        q, k, v = triple(draw, 5, 11, 7, 13, scale=30.0)
        got = student(q, k, v)
        assert_finite(got, case="with scores of some thousands")
        assert_close(got, reference.attention(q, k, v), case="with scores of some thousands", axes=AXES)

    @pytest.mark.gradient
    def test_gradients(self, student, reference, draw):
        """The gradients with respect to q, k and v are those of the definition"""
        for size in [(1, 2, 2, 1), (5, 11, 7, 13), (4, 4, 4, 4)]:
            args = triple(draw, *size)
            assert_same_gradients(student, reference.attention, args, ["q", "k", "v"], case=f"(T_q, T_k, d_k, d_v) = {size}")

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """q, k and v are not modified, and a second call gives the same"""
        assert_pure(student, triple(draw, 5, 11, 7, 13), ["q", "k", "v"])

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32 in, float32 out; non-contiguous inputs are fine"""
        assert_float32(student, reference.attention, triple(draw, 5, 11, 7, 13))
        q, k, v = draw.strided(5, 7), draw.strided(11, 7), draw.strided(11, 13)
        assert_close(student(q, k, v), reference.attention(q, k, v), case="for non-contiguous inputs", axes=AXES)
