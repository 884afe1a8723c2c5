"""Hidden checks of lesson 00."""

import pytest

from grader.checks import exercise
from grader.checks.assertions import assert_close, assert_pure, assert_same_gradients, given


@exercise("row_sums")
class TestRowSums:
    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student, reference, draw):
        """Every number is the sum of a row, for any number of dimensions"""
        for shape in [(1,), (3,), (2, 2), (4, 4), (2, 3, 5), (3, 3, 3), (2, 3, 5, 7)]:
            x = draw(*shape)
            assert_close(student(x), reference.row_sums(x), "the result", case=given(x=x))

    @pytest.mark.gradient
    def test_gradient(self, student, reference, draw):
        """The gradient reaches every entry of x"""
        assert_same_gradients(student, reference.row_sums, [draw(2, 3)], ["x"])

    @pytest.mark.purity
    def test_leaves_x_alone(self, student, draw):
        """x is not modified, and a second call gives the same"""
        assert_pure(student, [draw(2, 3)], ["x"])
