"""Public checks of lesson 06: hand-computed cases and properties."""

import math

import pytest
import torch

from grader.checks import exercise
from grader.checks.assertions import (
    assert_close,
    assert_dtype,
    assert_shape,
    fail,
    given,
    number,
    raises,
    require,
    shape_of,
)


def two_numbers(got):
    """The two gaps as floats."""
    words = f"{len(got)} items" if isinstance(got, tuple | list) else shape_of(got)
    require(
        isinstance(got, tuple | list) and len(got) == 2,
        f"the result should be the tuple (equivariance_gap, invariance_gap) but is {words}",
        evidence=words,
    )
    values = []
    for name, value in zip(("the equivariance gap", "the invariance gap"), got, strict=True):
        if isinstance(value, torch.Tensor) and value.dim() == 0:
            value = value.item()
        if not isinstance(value, int | float) or isinstance(value, bool):
            fail(f"{name} should be a number but is {shape_of(value)}", evidence=shape_of(value))
        values.append(float(value))
    return values


@exercise("permutation_gap")
class TestPermutationGap:
    @pytest.mark.shape
    def test_two_numbers(self, student, draw):
        """The result is a tuple of two numbers, neither negative"""
        for T in (1, 3):
            gaps = two_numbers(student(lambda x: x.cumsum(0), draw(T, 2), torch.arange(T).flip(0)))
            require(
                min(gaps) >= 0, f"for T={T} the gaps are {number(gaps[0])} and {number(gaps[1])}; a gap is never negative",
                evidence=gaps,
            )  # fmt: skip

    @pytest.mark.values
    def test_running_sum_by_hand(self, student):
        """The running sums of 1, 2 are 1, 3 (mean 2); of 2, 1 they are 2, 3 (mean 2.5): gaps 2 and 0.5"""
        x = torch.tensor([[1.0], [2.0]], dtype=torch.float64)
        got = two_numbers(student(lambda x: x.cumsum(0), x, torch.tensor([1, 0])))
        hint = "the reordered output is 3, 1 and is compared with 2, 3"
        assert_close(got[0], 2.0, "the equivariance gap of a running sum", case=given(x=x), hint=hint)
        assert_close(got[1], 0.5, "the invariance gap of a running sum", case=given(x=x))

    @pytest.mark.values
    def test_attention_has_no_gap(self, student, draw):
        """Attention without mask and positions: both gaps are 0, for any reordering"""
        for T in (2, 5):
            x, perm = draw(T, 3), draw.permutation(T)
            got = two_numbers(student(lambda x: (x @ x.T).softmax(-1) @ x, x, perm))
            for name, value in zip(("equivariance", "invariance"), got, strict=True):
                require(
                    value < 1e-9,
                    f"with perm = {perm.tolist()}, the {name} gap of attention is {number(value)}, expected 0: "
                    "its outputs move with its inputs",
                    evidence=value,
                )


def exact_row(p, d_model):
    """A row of the sinusoidal table, by the formula."""
    angles = [p * 10000.0 ** (-2 * i / d_model) for i in range(d_model // 2)]
    return torch.tensor([f(a) for a in angles for f in (math.sin, math.cos)], dtype=torch.float64)


@exercise("sinusoidal_encoding")
class TestSinusoidalEncoding:
    @pytest.mark.shape
    def test_shape_and_dtype(self, student):
        """T positions and d_model features give (T, d_model) in float32"""
        for T, d_model in [(1, 2), (5, 14), (14, 6)]:
            got = student(T, d_model)
            assert_shape(got, (T, d_model), "the table", f"for T={T}, d_model={d_model}")
            assert_dtype(got, torch.float32, "the table")

    @pytest.mark.values
    def test_table_of_the_lesson(self, student):
        """The rows 0, 1 and 2 of the lesson's example, d_model = 4"""
        want = torch.tensor(
            [[0.0, 1.0, 0.0, 1.0], [0.841471, 0.540302, 0.0099998, 0.99995], [0.909297, -0.416147, 0.0199987, 0.9998]]
        )
        hint = "columns: sin p, cos p, sin p/100, cos p/100"
        axes = ("position", "feature")
        assert_close(student(3, 4), want, "the table", case="for T=3, d_model=4", rtol=0, atol=2e-6, axes=axes, hint=hint)

    @pytest.mark.values
    def test_pairs_lie_on_the_circle(self, student):
        """sin^2 + cos^2 = 1 in every pair: both have the same frequency"""
        squares = student(11, 6).double() ** 2
        assert_close(
            squares[:, 0::2] + squares[:, 1::2],
            torch.ones(11, 3, dtype=torch.float64),
            "feature 2i squared + feature 2i+1 squared",
            case="for T=11, d_model=6",
            atol=1e-6,
            axes=("position", "pair"),
        )

    @pytest.mark.shape
    def test_odd_width(self, student):
        """An odd d_model raises a ValueError that names it"""
        with raises(ValueError, when="d_model=7", mentions=[7]):
            student(5, 7)


@exercise("shift_matrix")
class TestShiftMatrix:
    @pytest.mark.shape
    def test_shape_and_dtype(self, student):
        """A square matrix of d_model rows in float32"""
        for d_model in (2, 6):
            got = student(3, d_model)
            assert_shape(got, (d_model, d_model), "the matrix", f"for delta=3, d_model={d_model}")
            assert_dtype(got, torch.float32, "the matrix")

    @pytest.mark.values
    def test_one_pair_by_hand(self, student):
        """d_model = 2, delta = 1: [[cos 1, -sin 1], [sin 1, cos 1]]"""
        want = torch.tensor([[0.540302, -0.841471], [0.841471, 0.540302]])
        hint = "the row vector (sin a, cos a) stands on the left"
        assert_close(student(1, 2), want, "the matrix", case="for delta=1, d_model=2", rtol=0, atol=2e-6, hint=hint)

    @pytest.mark.values
    def test_takes_a_step(self, student):
        """A row of the table times the matrix is the row delta positions further on"""
        for p, delta, d_model in [(0, 1, 4), (1, 1, 4), (5, 3, 6), (11, -7, 14)]:
            want = exact_row(p + delta, d_model)
            got = exact_row(p, d_model) @ student(delta, d_model).double()
            assert_close(got, want, f"PE({p}) @ M", case=f"for delta={delta}, d_model={d_model}", rtol=0, atol=1e-5)

    @pytest.mark.shape
    def test_odd_width(self, student):
        """An odd d_model raises a ValueError that names it"""
        with raises(ValueError, when="d_model=5", mentions=[5]):
            student(1, 5)


@exercise("LearnedPositions")
class TestLearnedPositions:
    @pytest.mark.shape
    def test_one_table(self, student):
        """One parameter of shape (max_len, d_model) that is trained, and nothing else"""
        parameters = [tuple(p.shape) for p in student(11, 6).parameters() if p.requires_grad]
        entries = [tuple(t.shape) for t in student(11, 6).state_dict().values()]
        buffers = [name for name, _ in student(11, 6).named_buffers()]
        for what, shapes in (("trained parameters", parameters), ("entries of state_dict()", entries)):
            require(
                shapes == [(11, 6)],
                f"LearnedPositions(11, 6) has {what} of the shapes {shapes or 'none'}, expected one, (11, 6)",
                evidence=shapes,
            )
        require(not buffers, f"LearnedPositions(11, 6) has the buffers {buffers}, expected none", evidence=buffers)

    @pytest.mark.shape
    def test_keeps_the_shape(self, student):
        """The output has the shape of x, whatever the leading dimensions"""
        module = student(11, 6)
        for shape in [(1, 6), (5, 6), (2, 5, 6), (2, 3, 11, 6)]:
            assert_shape(module(torch.zeros(shape)), shape, "the output", f"for x of shape {shape}, max_len=11")

    @pytest.mark.values
    def test_adds_a_row_a_position(self, student):
        """Position t gets row offset + t of the table"""
        module = student(7, 4)
        (table,) = module.parameters()
        for T, offset in [(1, 0), (3, 0), (3, 2), (1, 6)]:
            got = module(torch.ones(T, 4), offset=offset)
            want = 1 + table.detach()[offset : offset + T]
            case = f"for x of ones, T={T}, offset={offset}"
            assert_close(got, want, case=case, rtol=1e-6, atol=1e-6, axes=("position", "feature"))

    @pytest.mark.values
    def test_the_table_ends(self, student):
        """A position beyond max_len raises a ValueError that names the numbers"""
        module = student(7, 4)
        with raises(ValueError, when="max_len=7, offset=5, T=3", mentions=[5, 3, 7]):
            module(torch.zeros(3, 4), offset=5)


@exercise("rope")
class TestRope:
    @pytest.mark.shape
    def test_keeps_shape_and_dtype(self, student, draw):
        """The output has the shape and the dtype of x"""
        for shape in [(1, 2), (5, 6), (2, 3, 5, 6)]:
            x = draw(*shape, dtype=torch.float32)
            got = student(x, torch.arange(shape[-2]))
            assert_shape(got, shape, "the output", f"for x of shape {shape}")
            assert_dtype(got, torch.float32, "the output", "for x in float32")

    @pytest.mark.values
    def test_by_hand(self, student):
        """(1, 0, 1, 0) at position 1: the first pair turns by 1, the second by 1/100"""
        x = torch.tensor([[1.0, 0.0, 1.0, 0.0]], dtype=torch.float64)
        want = torch.tensor([[math.cos(1), math.sin(1), math.cos(0.01), math.sin(0.01)]], dtype=torch.float64)
        assert_close(student(x, torch.tensor([1])), want, case=given(x=x) + ", position 1", hint="pairs are (0, 1) and (2, 3)")

    @pytest.mark.values
    def test_position_zero(self, student, draw):
        """At position 0 nothing is turned"""
        x = draw(3, 4)
        assert_close(student(x, torch.zeros(3, dtype=torch.int64)), x, case="with all positions 0")

    @pytest.mark.values
    def test_keeps_lengths(self, student, draw):
        """Turning changes no length"""
        x = draw(5, 6)
        got = student(x, torch.arange(5)).norm(dim=-1)
        assert_close(got, x.norm(dim=-1), "the length of each vector", case="for x of shape (5, 6)")

    @pytest.mark.shape
    def test_odd_width(self, student, draw):
        """An odd d raises a ValueError that names it"""
        with raises(ValueError, when="x of shape (2, 7)", mentions=[7]):
            student(draw(2, 7), torch.arange(2))


@exercise("interleaved_to_half")
class TestInterleavedToHalf:
    @pytest.mark.values
    def test_six_features(self, student):
        """a0 b0 a1 b1 a2 b2 becomes a0 a1 a2 b0 b1 b2"""
        x, want = torch.tensor([10.0, 20.0, 11.0, 21.0, 12.0, 22.0]), torch.tensor([10.0, 11.0, 12.0, 20.0, 21.0, 22.0])
        assert_close(student(x), want, case=given(x=x))

    @pytest.mark.shape
    def test_keeps_the_shape(self, student, draw):
        """The output has the shape of x"""
        for shape in [(2,), (5, 6), (2, 3, 5, 6)]:
            assert_shape(student(draw(*shape)), shape, "the output", f"for x of shape {shape}")

    @pytest.mark.shape
    def test_odd_width(self, student, draw):
        """An odd d raises a ValueError that names it"""
        with raises(ValueError, when="x of shape (2, 7)", mentions=[7]):
            student(draw(2, 7))


@exercise("half_to_interleaved")
class TestHalfToInterleaved:
    @pytest.mark.values
    def test_six_features(self, student):
        """a0 a1 a2 b0 b1 b2 becomes a0 b0 a1 b1 a2 b2"""
        x, want = torch.tensor([10.0, 11.0, 12.0, 20.0, 21.0, 22.0]), torch.tensor([10.0, 20.0, 11.0, 21.0, 12.0, 22.0])
        assert_close(student(x), want, case=given(x=x))

    @pytest.mark.shape
    def test_keeps_the_shape(self, student, draw):
        """The output has the shape of x"""
        for shape in [(2,), (5, 6), (2, 3, 5, 6)]:
            assert_shape(student(draw(*shape)), shape, "the output", f"for x of shape {shape}")

    @pytest.mark.shape
    def test_odd_width(self, student, draw):
        """An odd d raises a ValueError that names it"""
        with raises(ValueError, when="x of shape (2, 7)", mentions=[7]):
            student(draw(2, 7))


@exercise("alibi_bias")
class TestAlibiBias:
    @pytest.mark.shape
    def test_shape_and_dtype(self, student):
        """(n_heads, T_q, T_k) in float32; T_k is T_q where it is not given"""
        for arguments, shape in [((1, 1), (1, 1, 1)), ((2, 5), (2, 5, 5)), ((3, 5, 11), (3, 5, 11))]:
            got = student(*arguments)
            assert_shape(got, shape, "the bias", f"for alibi_bias{arguments}")
            assert_dtype(got, torch.float32, "the bias")

    @pytest.mark.values
    def test_one_new_query(self, student):
        """The decoding row of the lesson: slope 1/2, four keys"""
        want = torch.tensor([-1.5, -1.0, -0.5, 0.0])
        hint = "the one query stands at the last key"
        assert_close(student(8, 1, 4)[0, 0], want, "the row of head 1 of 8", case="for T_q=1, T_k=4", hint=hint)

    @pytest.mark.values
    def test_six_heads(self, student):
        """Six heads have the slopes 1/4, 1/16, 1/64, 1/256, 1/2, 1/8"""
        want = -torch.tensor([1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 2, 1 / 8])
        assert_close(student(6, 2)[:, 1, 0], want, "the bias one position back, by head,", case="for n_heads=6, T_q=2")
