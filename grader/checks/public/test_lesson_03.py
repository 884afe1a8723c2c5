"""Public checks of lesson 03: hand-computed cases and properties."""

import math

import pytest
import torch

from grader.checks import ATTENTION, exercise
from grader.checks.assertions import assert_close, assert_shape, fail, given, number, require, shape_of


def as_number(value, what):
    """A float from a Python number or a tensor with no dimensions."""
    if isinstance(value, torch.Tensor) and value.dim() == 0:
        return value.item()
    if not isinstance(value, int | float) or isinstance(value, bool):
        hint = "; is the `return` missing?" if value is None else ""
        kind = "a tensor of shape " if isinstance(value, torch.Tensor) else ""
        fail(f"{what} should be a Python float but is {kind}{shape_of(value)}{hint}", evidence=shape_of(value))
    return float(value)


@exercise("dot_product_variance")
class TestDotProductVariance:
    @pytest.mark.shape
    def test_is_one_number(self, student, draw):
        """The result is one number, positive and finite"""
        value = as_number(student(3, 1000, draw.generator()), "the variance")
        require(0 < value < math.inf, f"the variance is {number(value)}, expected a positive number", evidence=value)

    @pytest.mark.values
    def test_grows_with_the_width(self, student, draw):
        """The variance is near d_k: about 1 for d_k = 1, about 16 for d_k = 16"""
        for d_k in (1, 16):
            value = as_number(student(d_k, 8000, draw.generator()), "the variance")
            require(
                0.75 * d_k < value < 1.25 * d_k,
                f"with d_k={d_k} and n=8000 the variance is {number(value)}, expected about {d_k}; "
                "each dot product sums d_k products of two independent N(0, 1) numbers",
                evidence=value,
            )


@exercise("scaled_dot_product_attention", without=ATTENTION)
class TestScaledDotProductAttention:
    @pytest.mark.shape
    def test_one_row_a_query(self, student, draw):
        """The output has a row for each query and the width of the values, with and without a mask"""
        for lead in [(), (2,), (2, 3)]:
            q, k, v = draw(*lead, 5, 7), draw(*lead, 11, 7), draw(*lead, 11, 13)
            assert_shape(student(q, k, v), (*lead, 5, 13), "the output", given(q=q, k=k, v=v))
            assert_shape(student(q, k, v, draw.mask(5, 11)), (*lead, 5, 13), "the output", f"{given(q=q, k=k, v=v)}, with a mask")

    @pytest.mark.values
    def test_two_keys_by_hand(self, student):
        """d_k = 4: dot products 2 ln 3 and 0 are scaled to ln 3 and 0, weights 3/4 and 1/4"""
        q = torch.tensor([[2 * math.log(3.0), 0.0, 0.0, 0.0]], dtype=torch.float64)
        k = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 1.0, 0.0, 0.0]], dtype=torch.float64)
        v = torch.tensor([[8.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
        want = torch.tensor([[6.0, 1.0]], dtype=torch.float64)
        assert_close(student(q, k, v), want, case=given(q=q, k=k, v=v), hint="the scores are divided by sqrt(4) = 2")

    @pytest.mark.values
    def test_mask_by_hand(self, student):
        """True means visible: a row that sees one key gets its value, a row that sees none gets zeros"""
        q = torch.ones(3, 1, dtype=torch.float64)
        k = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
        v = torch.tensor([[8.0], [4.0]], dtype=torch.float64)
        mask = torch.tensor([[True, False], [False, True], [False, False]])
        want = torch.tensor([[8.0], [4.0], [0.0]], dtype=torch.float64)
        assert_close(student(q, k, v, mask), want, case=given(q=q, k=k, v=v, mask=mask), axes=("query", "feature"))

    @pytest.mark.values
    def test_constant_values_pass_through(self, student, draw):
        """When all values are equal, the output is that value, also when some keys are hidden"""
        q, k, row = draw(5, 7), draw(11, 7), draw(13)
        v = row.expand(11, 13).clone()
        for mask, case in [(None, "without a mask"), (draw.mask(5, 11), "with a mask that leaves each query a key")]:
            got = student(q, k, v, mask)
            assert_close(
                got, row.expand(5, 13), case=case, hint="the visible weights of a query must sum to 1", axes=("query", "feature")
            )


@exercise("softmax_jacobian")
class TestSoftmaxJacobian:
    @pytest.mark.shape
    def test_one_matrix_a_slice(self, student, draw):
        """p of shape (..., n) gives (..., n, n)"""
        for shape in [(3,), (2, 5), (2, 3, 7)]:
            p = draw(*shape).softmax(-1)
            assert_shape(student(p), (*shape, shape[-1]), "the Jacobian", f"for p of shape {shape}")

    @pytest.mark.values
    def test_three_weights_by_hand(self, student):
        """The example of the lesson, p = (0.7, 0.2, 0.1)"""
        p = torch.tensor([0.7, 0.2, 0.1], dtype=torch.float64)
        want = torch.tensor([[0.21, -0.14, -0.07], [-0.14, 0.16, -0.02], [-0.07, -0.02, 0.09]], dtype=torch.float64)
        assert_close(student(p), want, "the Jacobian", case=given(p=p), axes=("i", "j"))

    @pytest.mark.values
    def test_rows_sum_to_zero(self, student, draw):
        """Each row sums to 0: raising all scores alike changes no weight"""
        p = draw(2, 5).softmax(-1)
        assert_close(
            student(p).sum(-1), torch.zeros(2, 5, dtype=torch.float64), "the sum of each row", case="for p of shape (2, 5)"
        )


@exercise("saturation_sweep")
class TestSaturationSweep:
    @pytest.mark.shape
    def test_three_lists(self, student, draw):
        """A dict with the keys "raw", "sqrt" and "d", each with one number for each width"""
        for dims in [[3], [2, 5, 3]]:
            sweep = student(dims, 4, draw.generator())
            require(isinstance(sweep, dict), f"the result should be a dict but is {shape_of(sweep)}", evidence=shape_of(sweep))
            require(
                set(sweep) == {"raw", "sqrt", "d"}, f'the keys are {sorted(map(str, sweep))}, expected "raw", "sqrt" and "d"',
                evidence=sorted(map(str, sweep)),
            )  # fmt: skip
            for name, values in sweep.items():
                require(
                    hasattr(values, "__len__") and len(values) == len(dims),
                    f"with dims={dims} the list {name!r} should hold {len(dims)} numbers but is {values!r:.80}",
                    evidence=shape_of(values),
                )
                for value in values:
                    as_number(value, f"an entry of {name!r}")

    @pytest.mark.values
    def test_width_one_needs_no_scaling(self, student, draw):
        """At d_k = 1 the three scalings agree, and an entropy lies between 0 and ln(n_keys)"""
        sweep = student([1], 7, draw.generator())
        raw, root, width = (as_number(sweep[name][0], f"sweep[{name!r}][0]") for name in ("raw", "sqrt", "d"))
        require(
            abs(raw - root) < 1e-4 and abs(raw - width) < 1e-4,
            f"with d_k=1 the three entropies are {number(raw)}, {number(root)} and {number(width)} but should agree; "
            "do all three start from the same scores?",
            evidence=[raw, root, width],
        )
        require(
            0 < raw < math.log(7), f"with 7 keys an entropy is {number(raw)}, expected between 0 and ln 7 = 1.946", evidence=raw
        )


@exercise("qk_norm_attention")
class TestQkNormAttention:
    @pytest.mark.shape
    def test_one_row_a_query(self, student, draw):
        """The output has a row for each query and the width of the values"""
        for lead in [(), (2,), (2, 3)]:
            q, k, v = draw(*lead, 5, 7), draw(*lead, 11, 7), draw(*lead, 11, 13)
            assert_shape(student(q, k, v, 0.5), (*lead, 5, 13), "the output", given(q=q, k=k, v=v))

    @pytest.mark.values
    def test_two_keys_by_hand(self, student):
        """Cosines 1 and 0 with tau = 1 / ln 3 give scores ln 3 and 0, weights 3/4 and 1/4"""
        q = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
        k = torch.tensor([[6.0, 8.0], [-4.0, 3.0]], dtype=torch.float64)
        v = torch.tensor([[8.0, 0.0], [0.0, 4.0]], dtype=torch.float64)
        want = torch.tensor([[6.0, 1.0]], dtype=torch.float64)
        assert_close(student(q, k, v, 1 / math.log(3.0)), want, case=f"{given(q=q, k=k, v=v)}, tau = 1 / ln 3")

    @pytest.mark.values
    def test_lengths_do_not_matter(self, student, draw):
        """Making queries and keys longer or shorter, each by a factor of its own, changes nothing"""
        q, k, v = draw(5, 7), draw(11, 7), draw(11, 13)
        longer = q * draw.uniform(5, 1, low=0.1, high=50.0), k * draw.uniform(11, 1, low=0.1, high=50.0)
        hint = "every query and every key is divided by its own length, along the last axis"
        assert_close(student(*longer, v, 0.3), student(q, k, v, 0.3), case="after changing the lengths", hint=hint)
