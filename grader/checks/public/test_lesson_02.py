"""Public checks of lesson 02: hand-computed cases and properties."""

import math

import pytest
import torch

from grader.checks import exercise
from grader.checks.assertions import assert_close, assert_shape, given


@exercise("softmax")
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
            assert_close(total, torch.ones_like(total), f"the sum of the weights along dim={dim}", hint="which axis does the sum run along?")


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
        assert_close(got, row.expand(5, 13), hint="the weights of each query must sum to 1 over the keys", axes=("query", "feature"))
