"""Public checks of lesson 02: hand-computed cases and properties."""

import math

import pytest
import torch

from grader.checks import SOFTMAX, exercise
from grader.checks.assertions import (
    assert_close,
    assert_dtype,
    assert_moves,
    assert_same,
    assert_shape,
    given,
    require,
    shape_of,
)


def float64(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def three(got):
    """The queries, keys and values out of a result that should be a tuple of them."""
    words = f"{len(got)} items" if isinstance(got, tuple | list) else shape_of(got)
    complete = isinstance(got, tuple | list) and len(got) == 3
    require(complete, f"the result should be the tuple (q, k, v) but is {words}", evidence=words)
    return got


@exercise("qkv_projection")
class TestQkvProjection:
    @pytest.mark.shape
    def test_three_results_with_their_widths(self, student, draw):
        """The result is (q, k, v), with widths d_k, d_k and d_v"""
        for lead in [(), (2,), (2, 3)]:
            x = draw(*lead, 5, 7)
            q, k, v = three(student(x, draw(7, 3), draw(7, 3), draw(7, 11)))
            for name, got, width in (("q", q, 3), ("k", k, 3), ("v", v, 11)):
                assert_shape(got, (*lead, 5, width), name, f"for x of shape {tuple(x.shape)}, d_k = 3 and d_v = 11")

    @pytest.mark.values
    def test_one_row_by_hand(self, student):
        """The row [1, 2] gives 1 times the first row of each matrix plus 2 times the second"""
        x, Wq, Wk = float64([1.0, 2.0]), float64([1.0, 0.0], [3.0, 1.0]), float64([0.0, 1.0], [1.0, 1.0])
        Wv = float64([1.0, 2.0, 3.0], [4.0, 5.0, 6.0])
        q, k, v = three(student(x, Wq, Wk, Wv))
        assert_close(q, float64([7.0, 2.0]), "q", case=given(x=x, Wq=Wq))
        assert_close(k, float64([2.0, 3.0]), "k", case=given(x=x, Wk=Wk))
        assert_close(v, float64([9.0, 12.0, 15.0]), "v", case=given(x=x, Wv=Wv))

    @pytest.mark.values
    def test_positions_are_projected_alone(self, student, draw):
        """Changing one position moves its own query, key and value, and no other"""
        x, matrices = draw(5, 7), (draw(7, 3), draw(7, 3), draw(7, 11))
        other = x.clone()
        other[2] = draw(7)
        results = three(student(x, *matrices)), three(student(other, *matrices))
        for name, before, after in zip("qkv", *results, strict=True):
            assert_moves(before[2], after[2], "changed row 2 of x", f"row 2 of {name}")
            assert_same(before[[0, 1, 3, 4]], after[[0, 1, 3, 4]], "changed row 2 of x", f"the other rows of {name}")


@exercise("softmax", without=SOFTMAX)
class TestSoftmax:
    @pytest.mark.shape
    def test_keeps_the_shape(self, student, draw):
        """The result has the shape of the input, whatever the dimension"""
        for shape, dim in [((3,), 0), ((2, 5), -1), ((2, 5), 0), ((2, 3, 7), 1)]:
            x = draw(*shape)
            assert_shape(student(x, dim), shape, "the softmax", f"for x of shape {shape} and dim={dim}")

    @pytest.mark.values
    def test_two_numbers_by_hand(self, student):
        """softmax of [0, ln 3] is [1/4, 3/4]"""
        x = torch.tensor([0.0, math.log(3.0)], dtype=torch.float64)
        assert_close(student(x, 0), torch.tensor([0.25, 0.75], dtype=torch.float64), "the softmax", case=given(x=x))

    @pytest.mark.values
    def test_slices_sum_to_one(self, student, draw):
        """The weights along `dim` sum to 1"""
        x = draw(3, 5)
        for dim in (0, 1):
            total = student(x, dim).sum(dim)
            what = f"the sum of the weights along dim={dim}"
            assert_close(total, torch.ones_like(total), what, hint="which axis does the sum run along?")


@exercise("attention_loop")
class TestAttentionLoop:
    @pytest.mark.shape
    def test_one_row_a_query(self, student, draw):
        """The output has a row for each query and the width of the values"""
        for t_q, t_k, d_k, d_v in [(1, 1, 1, 1), (2, 3, 2, 5), (5, 3, 7, 2)]:
            q, k, v = draw(t_q, d_k), draw(t_k, d_k), draw(t_k, d_v)
            case = f"for q, k, v of shapes {(t_q, d_k)}, {(t_k, d_k)}, {(t_k, d_v)}"
            assert_shape(student(q, k, v), (t_q, d_v), "the output", case)

    @pytest.mark.values
    def test_two_queries_by_hand(self, student):
        """Scores 0 and ln 3 give the weights 1/4 and 3/4; equal scores give equal weights"""
        q, k, v = float64([1.0], [0.0]), float64([0.0], [math.log(3.0)]), float64([8.0, 0.0], [0.0, 4.0])
        want = float64([2.0, 3.0], [4.0, 2.0])
        assert_close(student(q, k, v), want, case=given(q=q, k=k, v=v), axes=("query", "feature"))

    @pytest.mark.values
    def test_constant_values_pass_through(self, student, draw):
        """When all values are equal, every output is that value"""
        q, k, row = draw(3, 2), draw(5, 2), draw(7)
        got = student(q, k, row.expand(5, 7).clone())
        hint = "the weights of each query must sum to 1 over the keys"
        assert_close(got, row.expand(3, 7), hint=hint, axes=("query", "feature"))


@exercise("attention")
class TestAttention:
    @pytest.mark.shape
    def test_one_row_a_query(self, student, draw):
        """The output has a row for each query and the width of the values"""
        for lead in [(), (2,), (2, 3)]:
            q, k, v = draw(*lead, 5, 7), draw(*lead, 11, 7), draw(*lead, 11, 13)
            assert_shape(student(q, k, v), (*lead, 5, 13), "the output", given(q=q, k=k, v=v))

    @pytest.mark.values
    def test_two_keys_by_hand(self, student):
        """A query that scores its keys 0 and ln 3 gets 1/4 of one value and 3/4 of the other"""
        q = torch.tensor([[1.0]], dtype=torch.float64)
        k = torch.tensor([[0.0], [math.log(3.0)]], dtype=torch.float64)
        v = torch.tensor([[8.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
        want = torch.tensor([[2.0, 3.0]], dtype=torch.float64)
        assert_close(student(q, k, v), want, case=given(q=q, k=k, v=v))

    @pytest.mark.values
    def test_constant_values_pass_through(self, student, draw):
        """When all values are equal, the output is that value"""
        q, k = draw(5, 7), draw(11, 7)
        row = draw(13)
        got = student(q, k, row.expand(11, 13).clone())
        hint = "the weights of each query must sum to 1 over the keys"
        assert_close(got, row.expand(5, 13), hint=hint, axes=("query", "feature"))


@exercise("cross_attention")
class TestCrossAttention:
    @pytest.mark.shape
    def test_one_row_a_position_of_x(self, student, draw):
        """The output has a row for each position of x and the width of the values"""
        for lead in [(), (2,), (2, 3)]:
            x, memory = draw(*lead, 5, 7), draw(*lead, 11, 3)
            got = student(x, memory, draw(7, 2), draw(3, 2), draw(3, 13))
            case = f"for x of shape {tuple(x.shape)}, memory of shape {tuple(memory.shape)}, d_v = 13"
            assert_shape(got, (*lead, 5, 13), case=case)

    @pytest.mark.values
    def test_two_memories_by_hand(self, student):
        """A position that scores two memories 0 and ln 3 gets 1/4 of the value of one and 3/4 of the other's"""
        x, memory, Wq, Wk = float64([0.5]), float64([0.0], [1.0]), float64([2.0]), float64([math.log(3.0)])
        Wv = float64([8.0, 4.0])
        case = given(x=x, memory=memory, Wq=Wq, Wk=Wk, Wv=Wv)
        assert_close(student(x, memory, Wq, Wk, Wv), float64([6.0, 3.0]), case=case)

    @pytest.mark.values
    def test_equal_memories_pass_through(self, student, draw):
        """When all positions of memory are equal, every output is their value"""
        x, row, Wv = draw(5, 7), draw(1, 3), draw(3, 13)
        got = student(x, row.expand(11, 3).clone(), draw(7, 2), draw(3, 2), Wv)
        hint = "the values come from memory alone, and the weights sum to 1 over its positions"
        assert_close(got, (row @ Wv).expand(5, 13), hint=hint, axes=("position of x", "feature"))


@exercise("score_asymmetry")
class TestScoreAsymmetry:
    @pytest.mark.shape
    def test_is_one_number(self, student, draw):
        """The result is a tensor without dimensions, in the dtype of x"""
        for t in (1, 5):
            got = student(draw(t, 7), draw(7, 3), draw(7, 3))
            assert_shape(got, (), "the asymmetry", f"for x of shape {(t, 7)}")
            assert_dtype(got, torch.float64, "the asymmetry", "when the inputs are float64")

    @pytest.mark.values
    def test_two_positions_by_hand(self, student):
        """The scores [[1, 2], [0, 2]] are off their transpose by sqrt(8) and have the norm 3"""
        x, Wq, Wk = float64([1.0, 0.0], [0.0, 1.0]), float64([1.0, 2.0], [0.0, 2.0]), float64([1.0, 0.0], [0.0, 1.0])
        case = given(x=x, Wq=Wq, Wk=Wk)
        assert_close(student(x, Wq, Wk), torch.tensor(8**0.5 / 3, dtype=torch.float64), "the asymmetry", case=case)

    @pytest.mark.values
    def test_one_matrix_is_symmetric(self, student, draw):
        """With the same matrix for queries and keys the asymmetry is 0; with two it is not"""
        x, W = draw(5, 7), draw(7, 3)
        zero = torch.zeros((), dtype=torch.float64)
        # a difference of two equal sums may leave the root of the rounding error
        assert_close(student(x, W, W.clone()), zero, "the asymmetry", case="with Wk = Wq", atol=1e-6)
        assert_moves(zero, student(x, W, draw(7, 3)), "with another Wk", "the asymmetry")
