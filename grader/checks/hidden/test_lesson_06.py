"""Hidden checks of lesson 06."""

import math

import pytest
import torch

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
    assert_shape,
    given,
    gradients,
    load_weights,
    number,
    raises,
    require,
)
from grader.checks.public.test_lesson_06 import exact_row, two_numbers

AXES = ("position", "feature")


def black_boxes(draw, T, d):
    """Functions (T, d) -> (T, d) by name: set-like ones, ordered ones, pooled ones, and what lies between."""
    Wq, Wk, Wv, Wh, table = draw(d, d), draw(d, d), draw(d, d), draw(d, d, scale=0.5), draw(T, d)
    future = torch.ones(T, T, dtype=torch.bool).triu(1)

    def attention(x, hidden=None):
        scores = (x @ Wq) @ (x @ Wk).T / math.sqrt(d)
        return (scores if hidden is None else scores.masked_fill(hidden, -torch.inf)).softmax(-1) @ (x @ Wv)

    def rnn(x):
        h, states = torch.zeros(d, dtype=x.dtype), []
        for row in x:
            h = torch.tanh(row @ Wq + h @ Wh)
            states.append(h)
        return torch.stack(states)

    return {
        "attention": attention,
        "causal attention": lambda x: attention(x, future),
        "an RNN": rnn,
        "the mean, at every position": lambda x: x.mean(dim=0).expand(T, d),
        "attention of x + table": lambda x: attention(x + table),
        "x + table": lambda x: x + table,
        "a layer on each position": lambda x: torch.tanh(x @ Wq),
        "a function that turns the sequence around": lambda x: x.flip(0),
        "attention plus position times 0.001": lambda x: attention(x) + 0.001 * torch.arange(T)[:, None],
        "minus the running sum": lambda x: -x.cumsum(0),
        "a function that looks at position 0 only": lambda x: x[:1].expand(T, d),
    }


@exercise("permutation_gap")
class TestPermutationGap:
    @staticmethod
    def compare(student, f, x, perm, want, case, **tolerance):
        for name, one, two in zip(("equivariance", "invariance"), two_numbers(student(f, x, perm)), want, strict=True):
            assert_close(one, two, f"the {name} gap of {case[0]}", case=case[1], **tolerance)

    @pytest.mark.values(points=3)
    def test_black_boxes(self, student, draw):
        """Attention, RNN, bag, tables and others get the gaps that the definition gives, for any reordering"""
        for T, d in [(2, 1), (3, 2), (5, 3), (4, 4)]:
            x, perm = draw(T, d), draw.permutation(T)
            for name, f in black_boxes(draw, T, d).items():
                moved = torch.stack([x[int(row)] for row in perm])
                before, after = f(x), f(moved)
                rows = [(after[i] - before[int(perm[i])]).abs().max().item() for i in range(T)]
                pooled = (after.sum(0) / T - before.sum(0) / T).abs().max().item()
                self.compare(student, f, x, perm, (max(rows), pooled), (name, f"for T={T}, d={d}, perm={perm.tolist()}"))

    @pytest.mark.values
    def test_which_way_round(self, student):
        """Row i of the reordered input is row perm[i] of x"""
        x, perm = torch.tensor([[1.0], [10.0], [100.0]], dtype=torch.float64), torch.tensor([2, 0, 1])
        case = ("a running sum", "for x = 1, 10, 100, perm = 2, 0, 1")
        self.compare(student, lambda x: x.cumsum(0), x, perm, (100.0, 63.0), case)

    @pytest.mark.values
    def test_nothing_to_see(self, student, draw):
        """No gap where nothing is reordered, and none for a constant"""
        for T in (1, 4):
            for name, f in black_boxes(draw, T, 3).items():
                self.compare(student, f, draw(T, 3), torch.arange(T), (0.0, 0.0), (name, f"for T={T} and the identity"))
        constant = draw(4, 3)
        got = two_numbers(student(lambda x: constant, draw(4, 3), draw.permutation(4)))
        require(
            got[1] == 0 and got[0] > 0, f"a function with fixed rows has the gaps {number(got[0])} and {number(got[1])}, "
            "expected a positive one and 0: its rows do not move with the input", evidence=got,
        )  # fmt: skip

    @pytest.mark.values
    def test_size_of_the_numbers(self, student, draw):
        """Large and small outputs keep their absolute differences"""
        for factor in (1e-8, 1e5):
            x, perm = draw(5, 3), draw.permutation(5)
            f = lambda x, factor=factor: factor * x.cumsum(0)  # noqa: E731
            before, after = f(x), f(x[perm])
            want = (after - before[perm]).abs().max().item(), (after.mean(0) - before.mean(0)).abs().max().item()
            self.compare(student, f, x, perm, want, (f"{factor:g} times a running sum", "for T=5, d=3"), atol=1e-13)

    @pytest.mark.values
    def test_one_function_several_inputs(self, student, draw):
        """The same f with another x has other gaps; of 40 rows, the last two alone change places"""
        weight = draw(3, 3)
        f = lambda x: torch.tanh(x @ weight).cumsum(0)  # noqa: E731
        last_two = torch.tensor([*range(38), 39, 38])
        for which, perm in (("a first", draw.permutation(5)), ("a second", draw.permutation(5)), ("a third", last_two)):
            x = draw(len(perm), 3)
            before, after = f(x), f(x[perm])
            want = (after - before[perm]).abs().max().item(), (after.mean(0) - before.mean(0)).abs().max().item()
            self.compare(student, f, x, perm, want, ("one and the same f", f"for {which} x, of shape {tuple(x.shape)}"))

    @pytest.mark.purity
    def test_black_box_is_treated_as_one(self, student, draw):
        """f is called with all of (T, d) in the dtype of x, its output may require gradients, x and perm stay as they are"""
        weight = draw(3, 3, dtype=torch.float32).requires_grad_()

        def strict(x):
            if tuple(x.shape) != (5, 3) or x.dtype != torch.float32:
                raise AssertionError(f"f got a {x.dtype} tensor of shape {tuple(x.shape)}, expected float32 and (5, 3)")
            return (x @ weight).cumsum(0)

        arguments = [strict, draw(5, 3, dtype=torch.float32), draw.permutation(5)]
        assert_pure(lambda *a: two_numbers(student(*a)), arguments, ("f", "x", "perm"))
        words = "after the call x.requires_grad is True, but it was False before"
        require(not arguments[1].requires_grad, words, evidence="requires_grad")


@exercise("sinusoidal_encoding")
class TestSinusoidalEncoding:
    @pytest.mark.values(points=3)
    def test_equals_the_definition(self, student):
        """Every entry is the sine or cosine that the formula gives"""
        for T, d_model in [(1, 2), (2, 2), (3, 4), (4, 4), (5, 6), (7, 14), (3, 128), (130, 4), (3, 1024)]:
            want = torch.stack([exact_row(p, d_model) for p in range(T)]).float()
            case = f"for T={T}, d_model={d_model}"
            assert_close(student(T, d_model), want, "the table", case=case, rtol=0, atol=1e-6, axes=AXES)

    @pytest.mark.numerics(points=2)
    def test_far_positions(self, student):
        """Positions up to 100,000 are as exact as near ones"""
        for T, d_model in [(5000, 6), (100_000, 6)]:
            got = student(T, d_model)
            rows = [257, 4098, T - 2, T - 1]
            rows = [row for row in rows if row < T]
            want = torch.stack([exact_row(p, d_model) for p in rows]).float()
            hint = "compute the angles in float64 and round at the end"
            case = f"for T={T}, d_model={d_model}"
            assert_close(got[rows], want, f"the rows {rows}", case=case, rtol=0, atol=1e-6, hint=hint)

    @pytest.mark.shape
    def test_odd_widths(self, student):
        """Every odd d_model raises a ValueError that names it"""
        for d_model in (1, 3, 63):
            with raises(ValueError, when=f"d_model={d_model}", mentions=[d_model]):
                student(2, d_model)

    @pytest.mark.purity
    def test_a_longer_table_begins_with_the_shorter(self, student):
        """Row p does not depend on T, and a second call gives the same"""
        first = student(5, 6).clone()
        assert_same(first, student(11, 6)[:5], "made the table longer", "its first rows", atol=1e-7)
        assert_same(first, student(5, 6), "called again", "the table")


def exact_matrix(delta, d_model):
    """The matrix of a step, block by block."""
    pairs = exact_row(delta, d_model).unflatten(0, (-1, 2))
    return torch.block_diag(*[torch.stack([torch.stack([c, -s]), torch.stack([s, c])]) for s, c in pairs]).float()


@exercise("shift_matrix")
class TestShiftMatrix:
    @pytest.mark.values(points=3)
    def test_equals_the_definition(self, student):
        """Blocks [[cos, -sin], [sin, cos]] along the diagonal, zeros elsewhere, for steps of any size and sign"""
        for delta, d_model in [(0, 2), (1, 2), (-1, 2), (0, 6), (2, 4), (-3, 4), (7, 14), (-11, 6), (5, 64)]:
            case, axes = f"for delta={delta}, d_model={d_model}", ("old feature", "new feature")
            got, want = student(delta, d_model), exact_matrix(delta, d_model)
            assert_close(got, want, "the matrix", case=case, rtol=0, atol=1e-6, axes=axes)

    @pytest.mark.values
    def test_steps_add_up(self, student):
        """A step of 3 and one of 4 are a step of 7; a step and its opposite are none"""
        three, four, seven = (student(delta, 6).double() for delta in (3, 4, 7))
        assert_close(three @ four, seven, "M(3) @ M(4)", case="for d_model=6", rtol=0, atol=1e-6)
        back = three @ student(-3, 6).double()
        assert_close(back, torch.eye(6, dtype=torch.float64), "M(3) @ M(-3)", case="for d_model=6", rtol=0, atol=1e-6)
        assert_moves(three, seven, "changed delta from 3 to 7", "the matrix")

    @pytest.mark.numerics
    def test_large_steps(self, student):
        """Steps of up to 100,000 positions, forward and back: every entry is as exact as for small ones"""
        for delta in (4999, 100_000, -100_000, -77_777):
            p = 50_000 - delta // 2
            matrix = student(delta, 6)
            hint = "if small steps are right, compute the angles in float64"
            case = f"for delta={delta}, d_model=6"
            got = exact_row(p, 6) @ matrix.double()
            assert_close(got, exact_row(p + delta, 6), f"PE({p}) @ M", case=case, rtol=0, atol=3e-6, hint=hint)
            axes = ("old feature", "new feature")
            assert_close(matrix, exact_matrix(delta, 6), "the matrix", case=case, rtol=0, atol=1e-6, axes=axes)

    @pytest.mark.shape
    def test_odd_widths(self, student):
        """Every odd d_model raises a ValueError that names it, for any step"""
        for delta, d_model in [(1, 1), (0, 3), (-2, 63)]:
            with raises(ValueError, when=f"delta={delta}, d_model={d_model}", mentions=[d_model]):
                student(delta, d_model)


def filled(module, table):
    """The module in float64 with this table as its parameter."""
    (name,) = module.state_dict()
    return load_weights(module, {name: table})


@exercise("LearnedPositions")
class TestLearnedPositions:
    @pytest.mark.values(points=3)
    def test_equals_the_definition(self, student, draw):
        """Position t of every leading index gets row offset + t, for all sizes and offsets, and also where x is 0"""
        for max_len, d, lead, T, offset in [
            (1, 1, (), 1, 0), (2, 1, (), 2, 0), (3, 2, (), 1, 2), (11, 7, (), 5, 0), (11, 7, (), 5, 6),
            (11, 7, (2,), 5, 3), (4, 4, (4,), 4, 0), (4, 4, (4, 4), 3, 1), (13, 5, (5,), 5, 4), (11, 3, (2, 3), 7, 4),
        ]:  # fmt: skip
            table, x = draw(max_len, d), draw(*lead, T, d)
            module = filled(student(max_len, d), table)
            want = torch.stack([x[..., t, :] + table[offset + t] for t in range(T)], dim=-2)
            case = f"for x of shape {tuple(x.shape)}, offset={offset}, max_len={max_len}"
            assert_close(module(x, offset=offset), want, case=case, axes=AXES)
            if offset == 0:
                assert_close(module(x), want, case=case.replace("offset=0", "offset not given"), axes=AXES)
        table, x = draw(7, 3), draw(2, 5, 3)
        x[0], x[1, 2] = 0.0, 0.0
        case = "for x of shape (2, 5, 3) with vectors of zeros, offset=1"
        assert_close(filled(student(7, 3), table)(x, offset=1), x + table[1:6], case=case, axes=AXES)

    @pytest.mark.values
    def test_reads_the_table_at_each_call(self, student, draw):
        """After new values are loaded, a call adds the new rows, in training and in evaluation"""
        for mode in ("training", "evaluation"):
            module, x, table = filled(student(7, 3), draw(7, 3)), draw(2, 5, 3), draw(7, 3)
            module.train(mode == "training")
            module(x)
            got = filled(module, table)(x)
            assert_close(got, x + table[:5], case=f"in {mode}, after a call and then load_state_dict", axes=AXES)

    @pytest.mark.values
    def test_pieces_equal_the_whole(self, student, draw):
        """Token by token with a growing offset gives what the whole sequence gives at once"""
        module, x = filled(student(11, 3), draw(11, 3)), draw(2, 11, 3)
        pieces = torch.cat([module(x[:, t : t + 1], offset=t) for t in range(11)], dim=1)
        assert_close(pieces, module(x), "the output of single tokens", case="for T=11 = max_len", axes=AXES)

    @pytest.mark.values(points=2)
    def test_the_table_ends(self, student, draw):
        """The first position too many raises, also with a single token; a negative offset raises; the last place is allowed"""
        module = filled(student(13, 3), draw(13, 3))
        for T, offset in [(14, 0), (1, 13), (17, 0), (5, 9), (2, 12), (1, 29), (5, -2), (1, -1), (3, -4)]:
            with raises(ValueError, when=f"max_len=13, offset={offset}, T={T}", mentions=[offset, T, 13]):
                module(draw(T, 3), offset=offset)
        module(draw(13, 3), offset=0)
        module(draw(1, 3), offset=12)
        module.eval()
        when = "in evaluation, x of shape (2, 4, 3), max_len=13, offset=11, T=4"
        with raises(ValueError, when=when, mentions=[11, 4, 13]):
            module(draw(2, 4, 3), offset=11)

    @pytest.mark.numerics(points=2)
    def test_start(self, student):
        """The table starts as independent normal draws with mean 0 and standard deviation 0.02"""
        (table,) = student(1021, 251).parameters()  # so large that chance moves none of the numbers below to its limit
        table = table.detach().double()
        spread, mean = table.std().item(), table.mean().item()
        words = f"the start has a standard deviation of {number(spread)}, expected 0.02"
        require(0.0193 < spread < 0.0207, words, evidence=spread)
        require(abs(mean) < 0.0008, f"the start has a mean of {number(mean)}, expected 0", evidence=mean)
        beyond = (table.abs() > 0.04).double().mean().item()
        require(
            0.038 < beyond < 0.053,
            f"{100 * beyond:.1f} % of the entries lie beyond two standard deviations, expected 4.6 %: "
            "draw from a normal distribution",
            evidence=beyond,
        )
        for axis, over, one in ((0, "positions", "feature"), (1, "features", "position")):
            n = table.shape[axis]
            means = table.mean(dim=axis).std().item() * math.sqrt(n)
            require(
                0.015 < means < 0.025, f"the mean over the {over} scatters by {number(means)} (times the root of their number), "
                "expected 0.02: draw every entry by itself", evidence=means,
            )  # fmt: skip
            sizes = table.square().mean(dim=axis).sqrt()
            far = int((sizes - 0.02).abs().argmax())
            size = sizes[far].item()
            require(
                0.01 < size < 0.03, f"the root mean square of {one} {far} over the {over} is {number(size)}, expected about 0.02 "
                "for each: draw every entry", evidence=size,
            )  # fmt: skip
            scatter = sizes.std().item() / 0.02 * math.sqrt(2 * n)
            require(
                0.5 < scatter < 1.5, f"the root mean squares over the {over} scatter {number(scatter)} times as much as those of "
                "independent draws: draw every entry by itself, and do not normalize", evidence=scatter,
            )  # fmt: skip
        (other,) = student(1021, 251).parameters()
        assert_moves(table, other.detach(), "made a second module", "its table")

    @pytest.mark.gradient
    def test_gradients(self, student, draw):
        """A row collects the gradient of every place where it was added, rows that were not used get 0, x gets its own"""
        module, x, weights = filled(student(7, 3), draw(7, 3)), draw(2, 4, 3).requires_grad_(), draw(2, 4, 3)
        (table,) = module.parameters()
        for offset in (0, 2, 3):
            to_table, to_x = torch.autograd.grad((module(x, offset=offset) * weights).sum(), [table, x])
            want = torch.zeros(7, 3, dtype=torch.float64)
            want[offset : offset + 4] = weights.sum(0)
            case = f"for x of shape (2, 4, 3), offset={offset}"
            assert_close(to_table, want, "the gradient with respect to the table", case=case, axes=AXES)
            assert_close(to_x, weights, "the gradient with respect to x", case=case, axes=AXES)

    @pytest.mark.purity
    def test_leaves_x_alone(self, student, draw):
        """x is not modified, also non-contiguous; a second call gives the same, in training and in evaluation"""
        module = filled(student(7, 3), draw(7, 3))
        exchanged = draw(2, 3, 5, 3).transpose(0, 1)
        for x, mode in [(draw(2, 5, 3), "training"), (draw.strided(2, 5, 3), "evaluation"), (exchanged, "training")]:
            (module.train if mode == "training" else module.eval)()
            assert_pure(lambda x, module=module: module(x, offset=1), [x], ["x"])
            (table,) = module.parameters()
            want = x + table.detach()[1:6]
            case = f"for x of shape {tuple(x.shape)}"
            assert_close(module(x, offset=1), want, f"the output in {mode}", case=case, axes=AXES)


def turned(x, positions, base=10000.0):
    """RoPE by plain loops over one (T, d) matrix, in Python's floats."""
    out = torch.empty(x.shape, dtype=torch.float64)
    T, d = x.shape
    for t in range(T):
        for i in range(d // 2):
            angle = float(positions[t]) * base ** (-2 * i / d)
            a, b = x[t, 2 * i].item(), x[t, 2 * i + 1].item()
            out[t, 2 * i] = a * math.cos(angle) - b * math.sin(angle)
            out[t, 2 * i + 1] = a * math.sin(angle) + b * math.cos(angle)
    return out


@exercise("rope")
class TestRope:
    @pytest.mark.values(points=3)
    def test_equals_the_definition(self, student, draw):
        """Features 2i and 2i+1 turn by position times base^(-2i/d), for all sizes"""
        for T, d in [(1, 2), (2, 2), (2, 4), (4, 4), (5, 6), (3, 14), (2, 128)]:
            x, positions = draw(T, d), draw.integers(T, high=50)
            case = f"for x of shape {(T, d)}, positions {positions.tolist()}"
            assert_close(student(x, positions), turned(x, positions), case=case, axes=AXES)

    @pytest.mark.values(points=2)
    def test_positions_broadcast(self, student, draw):
        """Positions of any shape that broadcasts to (..., T); leading dimensions do not mix"""
        for shape, of_positions in [
            ((2, 5, 6), (5,)), ((4, 4, 4), (4, 4)), ((2, 3, 5, 6), (5,)), ((2, 3, 5, 6), (2, 1, 5)), ((2, 3, 5, 6), (3, 5)),
            ((2, 3, 5, 6), (2, 3, 5)), ((2, 3, 1, 6), (2, 1, 1)), ((2, 3, 5, 6), (1,)), ((5, 6), (1,)), ((4, 4, 4, 4), (4,)),
            ((4, 4, 4, 4), (4, 1, 4)), ((4, 4, 4, 4), (4, 4, 1)),
        ]:  # fmt: skip
            x, positions = draw(*shape), draw.integers(*of_positions, high=50)
            full = positions.expand(shape[:-1]).reshape(-1, shape[-2])
            rows = x.reshape(-1, *shape[-2:])
            want = torch.stack([turned(one, p) for one, p in zip(rows, full, strict=True)]).reshape(shape)
            case = f"for x of shape {shape} and positions of shape {of_positions}"
            assert_close(student(x, positions), want, case=case, axes=AXES)

    @pytest.mark.values(points=2)
    def test_any_numbers_as_positions(self, student, draw):
        """Integers and floats, fractions and negative numbers"""
        x = draw(3, 6)
        for positions in (
            torch.tensor([0, 1, 7], dtype=torch.int32), torch.tensor([2.0, 0.0, 5.0]), torch.tensor([-1, -2, 4]),
            torch.tensor([0.5, 1.25, 2.75]), torch.tensor([-0.5, 1 / 3, 9.1], dtype=torch.float64),
        ):  # fmt: skip
            case = f"for positions {[round(p, 3) for p in positions.tolist()]} in {str(positions.dtype).removeprefix('torch.')}"
            assert_close(student(x, positions), turned(x, positions), case=case, axes=AXES)

    @pytest.mark.values
    def test_base(self, student, draw):
        """The base is used: 2, 500000, an integer, a fraction, one below 1"""
        x, positions = draw(5, 6), torch.arange(5)
        for base in (2.0, 500_000.0, 100, 2.5, 0.5):
            case = f"for base={base}"
            assert_close(student(x, positions, base=base), turned(x, positions, base), case=case, axes=AXES)

    @pytest.mark.values
    def test_scores_see_distances(self, student, draw):
        """Moving query and key by the same number of positions leaves their score; moving one of them does not"""
        q, k = draw(1, 6), draw(1, 6)

        def score(m, n):
            return (student(q, torch.tensor([m])) * student(k, torch.tensor([n]))).sum()

        for by in (1, 40, 1000):
            assert_same(score(5, 2), score(5 + by, 2 + by), f"moved query and key by {by}", "their score")
        assert_moves(score(5, 2), score(6, 2), "moved the query by 1", "its score")

    @pytest.mark.numerics(points=2)
    def test_far_positions(self, student, draw):
        """Positions up to 1,000,000 are exact, in float64 and in float32"""
        for far in ([5_003, 131_071], [999_999, 1_000_000], [999_999.0, 77_777.0], [-5_003, -131_071]):
            positions = torch.tensor(far)
            x = draw(2, 6)
            case = f"for positions {[int(p) for p in positions.tolist()]} in {str(positions.dtype).removeprefix('torch.')}"
            hint = "if near positions are right, compute the angles in float64, whatever x and positions are"
            want = turned(x, positions)
            assert_close(student(x, positions), want, case=case, rtol=1e-7, atol=3e-8, axes=AXES, hint=hint)
            single = x.float()
            got = student(single, positions)
            limit = 1e-5 * single.abs().max().item()
            want = turned(single, positions).float()
            assert_close(got, want, case=f"{case}, x in float32", rtol=0, atol=limit, axes=AXES, hint=hint)

    @pytest.mark.numerics
    def test_half_precision(self, student, draw):
        """float16 and bfloat16 x give their own dtype, also at far positions"""
        for dtype, tolerance in ((torch.float16, 0.01), (torch.bfloat16, 0.06)):
            x, positions = draw.uniform(3, 6, low=-1.0).to(dtype), torch.tensor([1, 2049, 70_001])
            got = student(x, positions)
            name = str(dtype).removeprefix("torch.")
            assert_dtype(got, dtype, "the output", f"for x in {name}")
            assert_finite(got, "the output", f"for x in {name}")
            want = turned(x.double(), positions).to(dtype)
            assert_close(got, want, case=f"for x in {name}, positions {positions.tolist()}", rtol=0, atol=tolerance, axes=AXES)

    @pytest.mark.gradient
    def test_gradients(self, student, reference, draw):
        """The gradient with respect to x turns back by the same angles"""
        for shape, positions in [((2, 2), torch.arange(2)), ((2, 5, 6), torch.arange(5)), ((4, 4, 4), torch.arange(4) + 7)]:
            case = f"for x of shape {shape}"
            assert_same_gradients(student, reference.rope, [draw(*shape), positions], ("x", "positions"), case=case)

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, reference, draw):
        """x and positions are not modified, also in float64 and non-contiguous; a second call gives the same"""
        for x, positions in [
            (draw(5, 6), torch.arange(5)),
            (draw(5, 6), torch.arange(5, dtype=torch.float64)),
            (draw(2, 5, 3, 6).transpose(1, 2), torch.arange(10)[::2]),  # heads split off, as attention does
        ]:
            assert_pure(student, [x, positions], ("x", "positions"))
            assert_close(student(x, positions), reference.rope(x, positions), axes=AXES)
        x = draw(1, 6)
        before = x.clone()
        student(x, torch.tensor([0])).zero_()
        assert_same(before, x, "overwrote the result for position 0", "x", hint="return a new tensor, also for position 0")
        assert_float32(student, reference.rope, [draw(2, 5, 6), torch.arange(5)])

    @pytest.mark.shape
    def test_odd_widths(self, student, draw):
        """Every odd d raises a ValueError that names it"""
        for shape in [(2, 1), (2, 3, 5, 9)]:
            with raises(ValueError, when=f"x of shape {shape}", mentions=[shape[-1]]):
                student(draw(*shape), torch.arange(shape[-2]))


class Reorders:
    """What both layouts' checks share; `order(d)` names the old feature that each new one holds."""

    @staticmethod
    def order(d):
        raise NotImplementedError

    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student, draw):
        """The last axis is reordered, for any even width and any leading dimensions"""
        for shape in [(2,), (4,), (6,), (14,), (5, 6), (4, 4), (8, 8), (6, 4, 10), (2, 3, 5, 14), (6, 6, 6), (2, 128)]:
            x = draw(*shape)
            assert_close(student(x), x[..., self.order(shape[-1])], case=f"for x of shape {shape}", axes=AXES)

    @pytest.mark.numerics
    def test_any_dtype(self, student, draw):
        """Integers, booleans, half and single precision, complex numbers, inf and nan keep dtype and values"""
        for dtype in (torch.int64, torch.bool, torch.float16, torch.float32):
            x = draw.integers(3, 10, high=100).to(dtype)
            name = str(dtype).removeprefix("torch.")
            assert_close(student(x), x[..., self.order(10)], case=f"for x in {name}", axes=AXES)
        x = torch.tensor([[2**53 + 1, 2**53 + 3, 5, 7, 9, 11]])
        require(
            student(x).tolist() == x[..., self.order(6)].tolist(), "large integers do not survive; only reorder, do not calculate"
        )
        x = torch.tensor([torch.inf, 1.0, torch.nan, 2.0, -torch.inf, 3.0])
        hint = "only reorder, do not calculate"
        assert_close(student(x), x[self.order(6)], case=given(x=x), hint=hint)
        x = torch.complex(draw(3, 6), draw(3, 6))
        got, want = student(x), x[..., self.order(6)]
        assert_shape(got, want.shape, "the output", "for x in complex128")
        assert_dtype(got, x.dtype, "the output", "for x in complex128")
        for part in ("real", "imag"):
            assert_close(getattr(got, part), getattr(want, part), f"{part} of the output", case="for x in complex128", axes=AXES)

    @pytest.mark.gradient
    def test_gradients(self, student, draw):
        """Each feature's gradient comes back to where the feature came from"""
        x = draw(3, 6)
        (got,) = gradients(student, [x], [0])
        (want,) = gradients(lambda x: x[..., self.order(6)], [x], [0])
        assert_close(got, want, "the gradient with respect to x", axes=AXES)

    @pytest.mark.purity
    def test_leaves_x_alone(self, student, draw):
        """x is not modified, also non-contiguous; a second call gives the same"""
        for x in (draw(3, 6), draw.strided(2, 3, 6)):
            assert_pure(student, [x], ["x"])
            assert_close(student(x), x[..., self.order(6)], case="for a non-contiguous x", axes=AXES)

    @pytest.mark.shape
    def test_odd_widths(self, student, draw):
        """Every odd d raises a ValueError that names it"""
        for shape in [(1,), (4, 3), (2, 3, 9)]:
            with raises(ValueError, when=f"x of shape {shape}", mentions=[shape[-1]]):
                student(draw(*shape))


@exercise("interleaved_to_half")
class TestInterleavedToHalf(Reorders):
    @staticmethod
    def order(d):
        return [*range(0, d, 2), *range(1, d, 2)]


@exercise("half_to_interleaved")
class TestHalfToInterleaved(Reorders):
    @staticmethod
    def order(d):
        return [feature for i in range(d // 2) for feature in (i, d // 2 + i)]


def slopes(n_heads):
    """Press et al.'s slopes by recursion, as their code has it."""
    if n_heads & (n_heads - 1) == 0:
        start = 2.0 ** (-(2.0 ** -(math.log2(n_heads) - 3)))
        return [start ** (h + 1) for h in range(n_heads)]
    n = 1
    while 2 * n <= n_heads:
        n *= 2
    return slopes(n) + slopes(2 * n)[0::2][: n_heads - n]


@exercise("alibi_bias")
class TestAlibiBias:
    @pytest.mark.values(points=3)
    def test_equals_the_definition(self, student):
        """Minus slope times distance, entry by entry, for squares and rectangles"""
        squares = [(1, 1, 1), (1, 2, 2), (8, 3, 3), (4, 4, 4)]
        rectangles = [(2, 1, 2), (2, 3, 5), (8, 1, 7), (2, 5, 11), (4, 7, 8)]
        for n_heads, T_q, T_k in squares + rectangles:
            want = [[[-m * abs(T_k - T_q + i - j) for j in range(T_k)] for i in range(T_q)] for m in slopes(n_heads)]
            case = f"for n_heads={n_heads}, T_q={T_q}, T_k={T_k}"
            got = student(n_heads, T_q, T_k)
            assert_close(got, torch.tensor(want), "the bias", case=case, rtol=1e-6, atol=1e-9, axes=("query", "key"))

    @pytest.mark.values(points=3)
    def test_slopes(self, student):
        """The slopes of any number of heads, powers of two or not"""
        for n_heads in [1, 2, 4, 8, 16, 32, 3, 5, 6, 7, 9, 12, 20, 24, 40, 112]:
            got = student(n_heads, 2)[:, 1, 0]
            case = f"for n_heads={n_heads}, by head"
            assert_close(got, -torch.tensor(slopes(n_heads)), "the bias one position back", case=case, rtol=1e-6, atol=1e-12)

    @pytest.mark.values(points=2)
    def test_decoding_equals_the_full_bias(self, student):
        """With fewer queries than keys, the rows are the last rows of the square"""
        whole = student(6, 11)
        for T_q in (1, 2, 5, 10):
            case = f"for T_q={T_q}, T_k=11"
            hint = "query i stands at position T_k - T_q + i"
            assert_close(student(6, T_q, 11), whole[:, 11 - T_q :], "the bias", case=case, axes=("query", "key"), hint=hint)

    @pytest.mark.values
    def test_falls_on_both_sides(self, student):
        """A key before the query and one after it, at the same distance, get the same finite penalty"""
        bias = student(3, 5)
        assert_finite(bias, "the bias")
        assert_close(bias, bias.transpose(1, 2), "the bias of a square", case="for n_heads=3, T_q=5", axes=("query", "key"))
        weights = bias[:, 2].softmax(-1)
        require(
            bool((weights[:, 2:].diff(dim=-1) < 0).all() and (weights[:, :3].diff(dim=-1) > 0).all()),
            "with equal scores, the weights of query 2 of 5 should fall with the distance on both sides", evidence=weights,
        )  # fmt: skip

    @pytest.mark.numerics
    def test_long_contexts(self, student):
        """A distance of 2,999 is exact, and the result is float32"""
        got = student(12, 1, 3_000)  # not longer: cutting the rows from a (T_k, T_k) square is wasteful, but right
        assert_dtype(got, torch.float32, "the bias", "for T_q=1, T_k=3000")
        want = -torch.tensor(slopes(12)) * 2_999
        assert_close(got[:, 0, 0], want, "the bias of the first key", case="for T_q=1, T_k=3000", rtol=1e-6)
