"""Public checks of lesson 00."""

import pytest
import torch

from grader.checks import exercise
from grader.checks.assertions import assert_close, assert_dtype, assert_shape, given


@exercise("row_sums")
class TestRowSums:
    @pytest.mark.shape
    def test_last_dimension_disappears(self, student, draw):
        """The result has the shape of x without its last dimension"""
        for shape in [(3,), (2, 3), (5, 2, 3)]:
            assert_shape(student(draw(*shape)), shape[:-1], "the result", f"for x of shape {shape}")

    @pytest.mark.values
    def test_two_rows_by_hand(self, student):
        """The sums of [1, 2, 3] and [10, 20, 30] are 6 and 60"""
        x = torch.tensor([[1.0, 2.0, 3.0], [10.0, 20.0, 30.0]])
        assert_close(student(x), torch.tensor([6.0, 60.0]), "the result", case=given(x=x))

    @pytest.mark.values
    def test_one_column(self, student, draw):
        """A single column is its own sum"""
        x = draw(5, 1)
        assert_close(student(x), x[:, 0], "the result", case="for x of shape (5, 1)")

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, draw):
        """float32 in, float32 out; float64 in, float64 out"""
        for dtype in (torch.float32, torch.float64):
            assert_dtype(student(draw(2, 3).to(dtype)), dtype, "the result", f"for x in {dtype}".replace("torch.", ""))
