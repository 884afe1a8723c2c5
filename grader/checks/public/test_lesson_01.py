"""Public checks of lesson 01: hand-computed cases and properties."""

import math

import pytest
import torch

from grader.checks import exercise
from grader.checks.assertions import assert_close, assert_shape, given, require

LN2 = math.log(2.0)  # tanh(ln 2) = (2 - 1/2) / (2 + 1/2) = 0.6


def column(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)[:, None]


@exercise("rnn_step")
class TestRnnStep:
    @pytest.mark.shape
    def test_one_state_a_sequence(self, student, draw):
        """The new state has a row for each sequence and a column for each state feature"""
        for B, d_in, d_h in [(1, 1, 1), (2, 3, 5), (5, 7, 3)]:
            got = student(draw(B, d_in), draw(B, d_h), draw(d_in, d_h), draw(d_h, d_h), draw(d_h))
            assert_shape(got, (B, d_h), "the new state", f"for B={B}, d_in={d_in}, d_h={d_h}")

    @pytest.mark.values
    def test_one_number_by_hand(self, student):
        """3 ln 2 from the input, -ln 2 from the state and -ln 2 from the bias make tanh(ln 2) = 0.6"""
        x, h, Wx, Wh, b = column(3.0), column(LN2), column(LN2), column(-1.0), column(-LN2)[0]
        assert_close(
            student(x, h, Wx, Wh, b), column(0.6), "the new state", case=given(x=x, h=h, Wx=Wx, Wh=Wh, b=b)
        )

    @pytest.mark.values
    def test_stays_between_minus_one_and_one(self, student, draw):
        """No state leaves [-1, 1], however large the input"""
        got = student(draw(5, 3, scale=50.0), draw(5, 7, scale=50.0), draw(3, 7), draw(7, 7), draw(7))
        outside = got.abs() > 1
        hint = "tanh goes around the whole sum"
        assert_close(outside, torch.zeros_like(outside), "whether a state lies outside [-1, 1]", hint=hint)


@exercise("rnn_scan")
class TestRnnScan:
    @pytest.mark.shape
    def test_a_state_for_each_position_and_the_last(self, student, draw):
        """The outputs are (B, T, d_h) and the last state is (B, d_h)"""
        for B, T, d_in, d_h in [(1, 1, 1, 1), (2, 5, 3, 7), (5, 2, 7, 3)]:
            got = student(draw(B, T, d_in), draw(B, d_h), draw(d_in, d_h), draw(d_h, d_h), draw(d_h))
            require(
                isinstance(got, tuple) and len(got) == 2,
                "the result should be the tuple (outputs, h_T)",
                evidence=type(got).__name__,
            )
            case = f"for B={B}, T={T}, d_in={d_in}, d_h={d_h}"
            assert_shape(got[0], (B, T, d_h), "outputs", case)
            assert_shape(got[1], (B, d_h), "h_T", case)

    @pytest.mark.values
    def test_three_steps_by_hand(self, student):
        """x = 1, 0, 0 with weights 1 and 0.5: each state is tanh of half the one before"""
        x, h0, Wx, Wh, b = column(1.0, 0.0, 0.0)[None], column(0.0), column(1.0), column(0.5), column(0.0)[0]
        states = [math.tanh(1.0)]
        for _ in range(2):
            states.append(math.tanh(0.5 * states[-1]))
        outputs, h_T = student(x, h0, Wx, Wh, b)
        case = given(x=x, h0=h0, Wx=Wx, Wh=Wh, b=b)
        assert_close(outputs, column(*states)[None], "outputs", case=case, axes=("position", "feature"))
        assert_close(h_T, column(states[-1]), "h_T", case=case)

    @pytest.mark.values
    def test_last_state_is_the_last_output(self, student, draw):
        """h_T equals outputs[:, -1]"""
        for T in (1, 2, 5):
            outputs, h_T = student(draw(2, T, 3), draw(2, 7), draw(3, 7), draw(7, 7), draw(7))
            assert_close(h_T, outputs[:, -1], "h_T", case=f"for T={T}")


@exercise("dependency_matrix")
class TestDependencyMatrix:
    @pytest.mark.shape
    def test_is_a_square_of_booleans(self, student, draw):
        """The table is bool and (T, T)"""
        for T, d in [(1, 1), (2, 3), (3, 2)]:
            want = torch.eye(T, dtype=torch.bool)
            assert_close(student(lambda x: 2 * x, draw(T, d)), want, "the table", case=f"for f(x) = 2 x, T={T}, d={d}")

    @pytest.mark.values
    def test_a_shift_by_hand(self, student, draw):
        """When each output copies the input before it, the table has its Trues below the diagonal: row t, column t - 1"""
        want = torch.tensor([[False, False, False], [True, False, False], [False, True, False]])
        got = student(lambda x: torch.cat([torch.zeros_like(x[:1]), x[:-1]]), draw(3, 2))
        assert_close(got, want, "the table", axes=("output", "input"), hint="rows are outputs, columns are inputs")

    @pytest.mark.causality
    def test_running_sum_is_causal(self, student, draw):
        """A running sum depends on its own and earlier positions: a lower triangle"""
        want = torch.ones(4, 4, dtype=torch.bool).tril()
        case = "for f = running sum along the positions"
        got = student(lambda x: x.cumsum(0), draw(4, 3))
        assert_close(got, want, "the table", case=case, axes=("output", "input"))


@exercise("sequential_steps")
class TestSequentialSteps:
    @pytest.mark.values
    def test_four_positions_by_hand(self, student):
        """Four positions: the RNN needs 4 rounds, attention and convolution one"""
        for kind, want in [("rnn", 4), ("attention", 1), ("conv", 1)]:
            assert_close(student(kind, 4), want, "the number of steps", case=f'for "{kind}" and T=4')


@exercise("path_length")
class TestPathLength:
    @pytest.mark.values
    def test_eight_positions_by_hand(self, student):
        """Eight positions: 7 hops in the RNN, 1 in attention, 7 layers of 3-wide convolutions, 4 of 5-wide ones"""
        for kind, k, want in [("rnn", 3, 7), ("attention", 3, 1), ("conv", 3, 7), ("conv", 5, 4)]:
            assert_close(student(kind, 8, k), want, "the number of hops", case=f'for "{kind}", T=8 and k={k}')


@exercise("rnn_flops")
class TestRnnFlops:
    @pytest.mark.values
    def test_by_hand(self, student):
        """One sequence of 4 positions, width 2: two products of 2 * 2 multiply-adds at each position, 64 FLOPs"""
        assert_close(student(1, 4, 2), 64, "the count", case="for B=1, T=4, d=2")


@exercise("attention_flops")
class TestAttentionFlops:
    @pytest.mark.values
    def test_by_hand(self, student):
        """T = 4, width 2: 128 FLOPs in the projections, 128 for the 16 pairs, 80 for the 10 causal ones"""
        assert_close(student(1, 4, 2, 1), 256, "the count", case="for B=1, T=4, d_model=2, H=1")
        assert_close(student(1, 4, 2, 1, True), 208, "the count", case="for B=1, T=4, d_model=2, H=1, causal")


@exercise("crossover_length")
class TestCrossoverLength:
    @pytest.mark.values
    def test_the_base_model(self, student):
        """d_model = 512 and d_ff = 2048: T = 1024 against the projections, 3072 against all linear maps"""
        assert_close(student(512), 1024, "the crossover", case="for d_model=512")
        assert_close(student(512, 2048), 3072, "the crossover", case="for d_model=512, d_ff=2048")
