"""Hidden checks of lesson 01."""

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
    raises,
    require,
)

STEP_SIZES = [(1, 1, 1), (1, 1, 2), (2, 2, 2), (2, 3, 5), (5, 7, 3), (4, 4, 4)]
"""(B, d_in, d_h), from the smallest up: the first that fails is the counterexample that a learner sees."""

SCAN_SIZES = [(1, 1, 1, 1), (1, 2, 1, 1), (2, 2, 1, 2), (2, 3, 2, 2), (2, 5, 3, 7), (5, 2, 7, 3), (4, 4, 4, 4), (1, 11, 2, 3),
              (2, 37, 2, 3)]  # fmt: skip
"""(B, T, d_in, d_h)"""

STEP = ("x", "h", "Wx", "Wh", "b")
SCAN = ("x", "h0", "Wx", "Wh", "b")
TABLE = {"what": "the table", "axes": ("output", "input")}


def step_inputs(draw, B, d_in, d_h, make=None):
    make = make or draw
    return [make(B, d_in), make(B, d_h), make(d_in, d_h), make(d_h, d_h), draw(d_h)]


def scan_inputs(draw, B, T, d_in, d_h, make=None):
    make = make or draw
    scale = d_h**-0.5  # keeps tanh away from saturation, so that the past still shows
    return [make(B, T, d_in), make(B, d_h), make(d_in, d_h) * d_in**-0.5, make(d_h, d_h) * scale, draw(d_h) * 0.3]


@exercise("rnn_step")
class TestRnnStep:
    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student, reference, draw):
        """The new state is tanh(x Wx + h Wh + b), for any batch and widths"""
        for size in STEP_SIZES:
            args = step_inputs(draw, *size)
            case = given(**dict(zip(STEP, args, strict=True)))
            assert_close(student(*args), reference.rnn_step(*args), "the new state", case=case, axes=("sequence", "feature"))

    @pytest.mark.values
    def test_sequences_do_not_mix(self, student, draw):
        """Changing the input and the state of one sequence moves its own new state and no other"""
        x, h, Wx, Wh, b = step_inputs(draw, 3, 2, 5)
        before = student(x, h, Wx, Wh, b)
        for name in ("x", "h"):
            other = {"x": x.clone(), "h": h.clone()}
            other[name][1] = draw(other[name].shape[1])
            after = student(other["x"], other["h"], Wx, Wh, b)
            assert_moves(before[1], after[1], f"changed {name}[1]", "the new state of sequence 1")
            assert_same(before[[0, 2]], after[[0, 2]], f"changed {name}[1]", "the new states of the other sequences")

    @pytest.mark.gradient
    def test_gradients(self, student, reference, draw):
        """The gradients with respect to the input, the state and the weights are those of the definition"""
        for size in [(1, 1, 1), (2, 3, 5), (4, 4, 4)]:
            args = [0.5 * a for a in step_inputs(draw, *size)]
            assert_same_gradients(student, reference.rnn_step, args, STEP, case=f"(B, d_in, d_h) = {size}")

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """The inputs are not modified, and a second call gives the same"""
        assert_pure(student, step_inputs(draw, 2, 3, 5), STEP)

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32 in, float32 out; non-contiguous inputs are fine"""
        assert_float32(student, reference.rnn_step, step_inputs(draw, 2, 3, 5))
        args = step_inputs(draw, 2, 3, 5, make=draw.strided)
        assert_close(student(*args), reference.rnn_step(*args), "the new state", case="for non-contiguous inputs")


    @pytest.mark.numerics
    def test_large_sums(self, student, reference, draw):
        """A sum of some thousands saturates at -1 or 1, without nan"""
        args = step_inputs(draw, 2, 3, 5)
        args[0] *= 3000.0
        got = student(*args)
        assert_finite(got, "the new state", "for sums of some thousands")
        assert_close(got, reference.rnn_step(*args), "the new state", case="for sums of some thousands")


@exercise("rnn_scan")
class TestRnnScan:
    @pytest.mark.values(points=2)
    def test_equals_the_steps_one_by_one(self, student, reference, draw):
        """The outputs are the states of the single steps in order, and h_T is the last of them"""
        for size in SCAN_SIZES:
            args = scan_inputs(draw, *size)
            h, states = args[1], []
            for t in range(size[1]):
                h = reference.rnn_step(args[0][:, t], h, *args[2:])
                states.append(h)
            outputs, h_T = student(*args)
            case = given(**dict(zip(SCAN, args, strict=True)))
            assert_close(outputs, torch.stack(states, 1), "outputs", case=case, axes=("position", "feature"))
            assert_close(h_T, h, "h_T", case=case)

    @pytest.mark.values
    def test_cut_anywhere(self, student, draw):
        """Scanning the first piece, then the second from the state that it left, gives the uncut result"""
        x, h0, *weights = scan_inputs(draw, 2, 5, 3, 7)
        outputs, h_T = student(x, h0, *weights)
        for cut in (1, 3, 4):
            first, middle = student(x[:, :cut], h0, *weights)
            second, last = student(x[:, cut:], middle, *weights)
            case = f"with 5 positions cut after {cut}"
            hint = "the second piece starts from the state that the first one left"
            assert_close(torch.cat([first, second], 1), outputs, "the outputs of the two pieces", case=case, hint=hint)
            assert_close(last, h_T, "h_T of the second piece", case=case, hint=hint)

    @pytest.mark.causality
    def test_the_past_is_unaffected_by_the_future(self, student, draw):
        """Changing x[:, t] leaves the outputs before t as they were, and moves output t and those after it"""
        x, h0, *weights = scan_inputs(draw, 2, 5, 3, 7)
        before = student(x, h0, *weights)[0]
        for t in (4, 2, 0):
            changed = x.clone()
            changed[:, t] = draw(2, 3)
            after = student(changed, h0, *weights)[0]
            for s in range(5):
                check = assert_same if s < t else assert_moves
                hint = "an output may depend only on its own and earlier positions, and does on all of them"
                check(before[:, s], after[:, s], f"changed x[:, {t}]", f"outputs[:, {s}]", hint=hint)

    @pytest.mark.values
    def test_starts_from_h0(self, student, draw):
        """Changing h0 moves every output and h_T"""
        x, h0, *weights = scan_inputs(draw, 2, 3, 3, 7)
        before, last_before = student(x, h0, *weights)
        after, last_after = student(x, draw(2, 7), *weights)
        for t in range(3):
            assert_moves(before[:, t], after[:, t], "changed h0", f"outputs[:, {t}]")
        assert_moves(last_before, last_after, "changed h0", "h_T")

    @pytest.mark.purity
    def test_remembers_nothing(self, student, reference, draw):
        """A scan that starts from zeros starts from zeros, whatever was scanned before"""
        x, h0, *weights = scan_inputs(draw, 2, 3, 3, 7)
        student(x, h0, *weights)
        zeros = torch.zeros_like(h0)
        want = reference.rnn_scan(x, zeros, *weights)
        assert_close(student(x, zeros, *weights), want, "(outputs, h_T)", case="with h0 = 0, after a scan with another h0")

    @pytest.mark.values
    def test_sequences_do_not_mix(self, student, draw):
        """Changing one sequence of the batch moves its own outputs and no other's"""
        x, h0, *weights = scan_inputs(draw, 3, 4, 2, 5)
        before = student(x, h0, *weights)[0]
        changed = x.clone()
        changed[1] = draw(4, 2)
        after = student(changed, h0, *weights)[0]
        assert_moves(before[1], after[1], "changed sequence 1", "the outputs of sequence 1")
        assert_same(before[[0, 2]], after[[0, 2]], "changed sequence 1", "the outputs of the other sequences")

    @pytest.mark.gradient(points=2)
    def test_gradients(self, student, reference, draw):
        """The gradients with respect to x, h0 and the weights are those of the definition"""
        for size in [(1, 1, 1, 1), (1, 2, 1, 1), (2, 5, 3, 7), (4, 4, 4, 4), (1, 23, 2, 3)]:
            args = scan_inputs(draw, *size)
            assert_same_gradients(student, reference.rnn_scan, args, SCAN, case=f"(B, T, d_in, d_h) = {size}")

    @pytest.mark.gradient
    def test_the_last_state_reaches_the_beginning(self, student, reference, draw):
        """A gradient flows from h_T back to h0 and to x[:, 0]"""
        x, h0, *weights = scan_inputs(draw, 2, 5, 3, 7)

        def last(function):
            return lambda x, h0: function(x, h0, *weights)[1]

        assert_same_gradients(
            last(student), last(reference.rnn_scan), [x, h0], ["x", "h0"], case="for a loss on h_T alone"
        )

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """The inputs are not modified, and a second call gives the same"""
        assert_pure(student, scan_inputs(draw, 2, 3, 5, 7), SCAN)

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32 in, float32 out; non-contiguous inputs are fine"""
        assert_float32(student, reference.rnn_scan, scan_inputs(draw, 2, 5, 3, 7))
        args = scan_inputs(draw, 2, 5, 3, 7, make=draw.strided)
        assert_close(student(*args), reference.rnn_scan(*args), "(outputs, h_T)", case="for non-contiguous inputs")


def random_table(draw, T):
    """A random table of dependences that is not symmetric; with room for it, one output and one input without any."""
    table = draw.mask(T, T)
    if T > 2:
        table[int(draw.integers(1, high=T))] = False
        table[:, int(draw.integers(1, high=T))] = False
    return table


def mixing(draw, table):
    """A matrix with the Trues of `table` as its nonzero entries, of either sign and not near zero."""
    size = draw.uniform(*table.shape, low=0.5, high=1.5)
    return torch.where(draw(*table.shape) > 0, size, -size) * table


@exercise("dependency_matrix")
class TestDependencyMatrix:
    @pytest.mark.values(points=2)
    def test_finds_any_table(self, student, draw):
        """A linear map has exactly the dependences of its matrix, row = output, column = input"""
        for T, d in [(1, 1), (2, 1), (3, 3), (5, 1)]:
            table = random_table(draw, T)
            matrix = mixing(draw, table)
            case = f"for a linear map of T={T} positions"
            assert_close(student(lambda x, matrix=matrix: matrix @ x, draw(T, d)), table, case=case, **TABLE)

    @pytest.mark.causality
    def test_the_layers_of_the_lesson(self, student, reference, draw):
        """RNN and causal attention: lower triangle; attention: all; a 3-wide convolution: a band"""
        T, d = 4, 3
        x, everything = draw(T, d), torch.ones(T, T, dtype=torch.bool)
        zero, Wx, Wh, b = torch.zeros(1, d, dtype=torch.float64), draw(d, d), draw(d, d), draw(d)
        kernel = draw(d, d, 3)

        def attend(x, mask):
            return (x @ x.T * 0.1).masked_fill(~mask, -torch.inf).softmax(-1) @ x

        layers = [
            ("attention", lambda x: attend(x, everything), everything),
            ("causal attention", lambda x: attend(x, everything.tril()), everything.tril()),
            ("an RNN", lambda x: reference.rnn_scan(x[None], zero, Wx, Wh, b)[0][0], everything.tril()),
            (
                "a 3-wide convolution",
                lambda x: torch.nn.functional.conv1d(x.T[None], kernel, padding=1)[0].T,
                everything.tril(1) & everything.triu(-1),
            ),
        ]
        for name, layer, table in layers:
            assert_close(student(layer, x), table, case=f"for {name}", **TABLE)

    @pytest.mark.values
    def test_is_the_table_at_x(self, student, draw):
        """Where the dependences of a function vary with its input, the table is the one at x"""
        x = draw(5, 3)
        x[:, 0] = torch.tensor([1.0, -1.0, 1.0, 1.0, -1.0])

        def gated(x):
            earlier = torch.cat([torch.zeros_like(x[:1]), x[:-1]])
            return torch.where(x[:, :1] > 0, earlier, x)

        table = torch.eye(5, dtype=torch.bool)
        table[2, 1] = table[3, 2] = True
        case = "for a function that copies the position before where feature 0 is positive, as in x[2] and x[3]"
        got = student(gated, x)
        assert_close(got, table, case=case, hint="start each change from the x that was given", **TABLE)

    @pytest.mark.numerics(points=2)
    def test_saturated_layers(self, student, draw):
        """A saturated tanh and a sign hide small changes; the dependence is there all the same"""
        table = random_table(draw, 4)
        matrix = mixing(draw, table)
        x = 3.0 * torch.where(draw(4, 7) > 0, 1.0, -1.0).double()
        hint = "try large changes as well"
        assert_close(student(lambda x: matrix @ torch.tanh(50 * x), x), table, case="for a saturated tanh", hint=hint, **TABLE)
        assert_close(student(lambda x: matrix @ torch.sign(x), x), table, case="for a sign", hint=hint, **TABLE)

    @pytest.mark.numerics
    def test_every_size(self, student, draw):
        """Changes of about 0.1, 1, 10 and 100 are all tried: a function that answers to one of them alone is seen through"""
        table = draw.mask(3, 3)
        matrix, x = mixing(draw, table), torch.zeros(3, 5, dtype=torch.float64)
        for size in (0.1, 1.0, 10.0, 100.0):
            low, high = 0.3 * size, 3 * size

            def window(x, low=low, high=high):
                return matrix @ ((x.abs() > low) & (x.abs() < high)).to(x.dtype)

            case = f"for a function that tells only whether |x| lies between {low:g} and {high:g}, at x = 0"
            assert_close(student(window, x), table, case=case, hint=f"try changes of size {size:g}", **TABLE)

    @pytest.mark.numerics
    def test_enough_draws(self, student, draw):
        """Each row is changed at least four times with each of the four sizes"""
        x, changes = draw(3, 2), [0, 0, 0]

        def nothing_moves(z):
            rows = (z != x).any(-1).tolist()
            if sum(rows) == 1:
                changes[rows.index(True)] += 1
            return torch.zeros_like(z)

        student(nothing_moves, x.clone())
        for row, count in enumerate(changes):
            require(
                count >= 16,
                f"where no output ever moved, row {row} of x alone was changed {count} times; "
                "expected at least 16: four draws of each of the sizes 0.1, 1, 10 and 100",
                evidence=count,
            )

    @pytest.mark.numerics
    def test_the_size_of_a_move(self, student, draw):
        """One feature that moves by 10 sqrt(eps) of the dtype is a move; a move of the size of rounding is none"""
        table = draw.mask(3, 3)
        for dtype, times in ((torch.float64, 10.0), (torch.float32, 10.0), (torch.float32, 0.003)):
            x, size = draw(3, 13, dtype=dtype), times * torch.finfo(dtype).eps ** 0.5

            def steps(z, x=x, size=size):
                out = torch.zeros_like(z)
                out[:, 0] = size * ((z != x).any(-1) & table).any(-1)
                return out

            name = str(dtype).removeprefix("torch.")
            case = f"where one of 13 features moves by {size:.1e} in {name}"
            hint = "any feature that moves counts" if times > 1 else f"that is rounding in {name}: take the eps of the dtype of x"
            assert_close(student(steps, x), table & (times > 1), case=case, hint=hint, **TABLE)

    @pytest.mark.numerics
    def test_no_gradient_to_lean_on(self, student, draw):
        """A rounded and detached function depends on its input although it has no gradient"""
        table = random_table(draw, 4)
        matrix = mixing(draw, table)
        x = draw(4, 7)
        got = student(lambda x: (matrix @ torch.round(x)).detach(), x)
        assert_close(got, table, case="for a function that rounds and detaches its result", **TABLE)

    @pytest.mark.numerics
    def test_normalizing_layers(self, student, draw):
        """Layers that ignore a shift or a scale of a position's features still depend on it"""
        table = random_table(draw, 4)
        matrix = mixing(draw, table)
        x, level = draw(4, 5), torch.ones(4, 5, dtype=torch.float64)
        hint = "change the features in different directions"

        def center(x):
            return x - x.mean(-1, keepdim=True)

        def unit(x):
            return x / (x.norm(dim=-1, keepdim=True) + 1e-30)

        for name, f, at in [
            ("a layer that subtracts each position's mean", lambda x: matrix @ center(x), x),
            ("a layer that divides each position by its length", lambda x: matrix @ unit(x), x),
            ("a layer that subtracts each position's mean, at an x of ones", lambda x: matrix @ center(x), level),
        ]:
            assert_close(student(f, at), table, case=f"for {name}", hint=hint, **TABLE)

    @pytest.mark.numerics(points=2)
    def test_dead_sides(self, student, draw):
        """Functions that are flat on one side are seen through: several draws, both signs"""
        table = random_table(draw, 6)
        table[0] = True
        matrix = mixing(draw, table)
        x = torch.full((6, 2), 0.5, dtype=torch.float64)
        hint = "take the union over several draws, with both signs"
        got = student(lambda x: matrix @ torch.relu(x), -x)
        assert_close(got, table, case="for a ReLU with all inputs at -0.5", hint=hint, **TABLE)
        got = student(lambda x: matrix @ torch.relu(-x), x)
        assert_close(got, table, case="for relu(-x) with all inputs at 0.5", hint=hint, **TABLE)

    @pytest.mark.values
    def test_inputs_at_zero(self, student, draw):
        """An input that is zero can be depended on, also where the output can only fall or all features must change"""
        table = random_table(draw, 4)
        matrix, x = mixing(draw, table), torch.zeros(4, 3, dtype=torch.float64)
        assert_close(student(lambda x: matrix @ x, x), table, case="for a linear map at x = 0", **TABLE)
        got = student(lambda x: -(matrix.abs() @ x.abs()), x)
        assert_close(got, table, case="for f(x) = -|M| |x| at x = 0", hint="a move counts in either direction", **TABLE)
        got = student(lambda x: (matrix @ x.prod(-1, keepdim=True)).expand_as(x), x)
        case = "for a function of the product of a position's features, at x = 0"
        assert_close(got, table, case=case, hint="change all features of the row together", **TABLE)

    @pytest.mark.values
    def test_any_feature(self, student, draw):
        """One input feature that matters, one output feature that moves: enough for a dependence"""
        table = random_table(draw, 4)
        matrix, x = mixing(draw, table), draw(4, 3)
        for source, target in [(0, 2), (2, 1)]:

            def f(x, source=source, target=target):
                out = torch.ones_like(x)
                out[:, target] = matrix @ x[:, source]
                return out

            case = f"when output feature {target} depends on input feature {source} and nothing else does on anything"
            assert_close(student(f, x), table, case=case, **TABLE)

    @pytest.mark.values
    def test_moves_that_cancel(self, student, draw):
        """Output features that always sum to the same number still move"""
        table = random_table(draw, 4)
        matrix = mixing(draw, table)

        def centered(x):
            mixed = matrix @ x
            return mixed - mixed.mean(-1, keepdim=True)

        assert_close(student(centered, draw(4, 3)), table, case="for outputs whose features sum to 0", **TABLE)

    @pytest.mark.numerics
    def test_faint_but_real(self, student, draw):
        """A weight of one millionth is a dependence, also beside a large constant"""
        table = random_table(draw, 4)
        matrix = 1e-6 * mixing(draw, table)
        hint = "a move counts above sqrt(eps) of the dtype, about 1.5e-8 here"
        got = student(lambda x: matrix @ x + 1000.0, draw(4, 3))
        assert_close(got, table, case="for weights around 1e-6 and outputs around 1000", hint=hint, **TABLE)

    @pytest.mark.numerics
    def test_rounding_is_no_dependence(self, student, draw):
        """What moves by rounding errors alone does not depend"""
        T = 5
        kernel = torch.tensor([1.0, -0.7, 0.4] + 9 * [0.0], dtype=torch.float64)
        spectrum = torch.fft.rfft(kernel)[:, None]
        band = torch.ones(T, T, dtype=torch.bool).tril() & torch.ones(T, T, dtype=torch.bool).triu(-2)
        hint = "a move of the size of a rounding error does not count"

        def by_transform(x):
            return torch.fft.irfft(torch.fft.rfft(x, n=12, dim=0) * spectrum, n=12, dim=0)[:T]

        got = student(by_transform, draw(T, 3))
        assert_close(got, band, case="for a convolution by Fourier transform", hint=hint, **TABLE)
        table = random_table(draw, 4)
        matrix = mixing(draw, table)

        def there_and_back(x):
            detour = 1e6 * torch.sin(x.sum(0))
            return matrix @ x + detour - detour

        got = student(there_and_back, draw(4, 3))
        assert_close(got, table, case="for a function that adds a large number and takes it away again", hint=hint, **TABLE)

    @pytest.mark.purity
    def test_leaves_x_alone(self, student, draw):
        """x is not modified, even by a function that writes to its argument; a second call gives the same"""
        table = random_table(draw, 4)
        matrix, x = mixing(draw, table), draw(4, 3)

        def careless(x):
            x *= 2.0
            return matrix @ x

        old = x.clone()
        got = student(careless, x)
        assert_same(old, x, "called it with a function that writes to its argument", "x", atol=0.0)
        assert_close(got, table, case="for a function that writes to its argument", **TABLE)
        again = student(careless, x)
        assert_close(again, got, "the table of a second call", axes=("output", "input"))

    @pytest.mark.numerics
    def test_keeps_the_dtype(self, student, draw):
        """f gets inputs of the dtype of x: a float32 layer can be examined"""
        table = random_table(draw, 4)
        matrix = mixing(draw, table).float()
        got = student(lambda x: matrix @ x, draw(4, 3, dtype=torch.float32))
        assert_close(got, table, case="for a linear map in float32", **TABLE)


def rounds(needs, T):
    """Rounds until all T outputs are there, when output t waits for the outputs `needs(t)`: the longest chain, by counting."""
    depth = []
    for t in range(T):
        depth.append(1 + max((depth[s] for s in needs(t)), default=0))
    return max(depth)


def hops(reach, T):
    """Hops from position 0 to position T - 1, when one hop leads from s to anything up to s + reach: by walking."""
    place, count = 0, 0
    while place < T - 1:
        place, count = place + reach, count + 1
    return count


@exercise("sequential_steps")
class TestSequentialSteps:
    @pytest.mark.values(points=2)
    def test_equals_the_longest_chain(self, student, draw):
        """The number of steps is the longest chain of outputs that wait for each other, for any length"""
        for T in [1, 2, 3, 5, 11, 64, int(draw.integers(low=500, high=3000))]:
            for kind in ("rnn", "attention", "conv"):
                want = rounds(lambda t, kind=kind: range(max(t - 1, 0), t) if kind == "rnn" else (), T)
                assert_close(student(kind, T), want, "the number of steps", case=f'for "{kind}" and T={T}')

    @pytest.mark.values
    def test_refuses_what_it_does_not_know(self, student):
        """An unknown kind and a length below 1 raise ValueError"""
        for kind in ("lstm", "RNN", ""):
            with raises(ValueError, when=f"with kind={kind!r}"):
                student(kind, 5)
        for kind in ("rnn", "attention", "conv"):
            for T in (0, -3):
                with raises(ValueError, when=f'with "{kind}" and T={T}'):
                    student(kind, T)


@exercise("path_length")
class TestPathLength:
    @pytest.mark.values
    def test_one_and_two_positions(self, student):
        """A single position has nothing to cross, 0 hops; two neighbors are 1 hop apart, for every kind"""
        for kind in ("rnn", "attention", "conv"):
            for T, want in [(1, 0), (2, 1)]:
                assert_close(student(kind, T), want, "the number of hops", case=f'for "{kind}" and T={T}')

    @pytest.mark.values(points=2)
    def test_equals_a_walk(self, student, draw):
        """The number of hops is that of a walk from position 0 to position T - 1"""
        wide = 2 * int(draw.integers(low=10, high=500)) + 1
        for T in [1, 2, 3, 4, 5, 7, 11, 64, int(draw.integers(low=500, high=3000))]:
            assert_close(student("rnn", T), hops(1, T), "the number of hops", case=f'for "rnn" and T={T}')
            assert_close(student("attention", T), hops(T, T), "the number of hops", case=f'for "attention" and T={T}')
            for k in (3, 5, 7, 9, 11, wide):
                case = f'for "conv", T={T} and k={k}: each layer reaches {k // 2} positions to either side'
                assert_close(student("conv", T, k), hops(k // 2, T), "the number of layers", case=case)

    @pytest.mark.values
    def test_the_default_is_three_wide(self, student):
        """Without k the convolution is 3 wide; a k given by name counts"""
        assert_close(student("conv", 6), 5, "the number of layers", case='for "conv", T=6 without k')
        assert_close(student("conv", 6, k=5), 3, "the number of layers", case='for "conv", T=6, k=5')

    @pytest.mark.values
    def test_refuses_what_it_does_not_know(self, student):
        """An unknown kind, a length below 1, an even kernel and one without neighbors raise ValueError"""
        for kind, T, k in [("lstm", 5, 3), ("Conv", 5, 3), ("rnn", 0, 3), ("attention", -1, 3), ("conv", 0, 3)]:
            with raises(ValueError, when=f"with kind={kind!r} and T={T}"):
                student(kind, T, k)
        for k in (4, 2, 1, 0, -3):
            for T in (5, 1):
                with raises(ValueError, when=f'with "conv", T={T} and k={k}'):
                    student("conv", T, k)

    @pytest.mark.values
    def test_k_is_for_convolutions_only(self, student):
        """An RNN and attention have no kernel: k is not looked at"""
        for kind, want in [("rnn", 4), ("attention", 1)]:
            for k in (2, 1, 0, 7):
                assert_close(student(kind, 5, k), want, "the number of hops", case=f'for "{kind}", T=5 and k={k}')


@exercise("rnn_flops")
class TestRnnFlops:
    @pytest.mark.values(points=2)
    def test_counts_the_multiply_adds(self, student, draw):
        """The count is 2 for each multiply-add of the two maps at every position"""
        other = tuple(draw.integers(3, low=5, high=25).tolist())
        for B, T, d in [(1, 1, 1), (1, 1, 2), (1, 2, 1), (2, 1, 1), (2, 3, 5), (4, 4, 4), other]:
            positions = sum(1 for _ in range(B) for _ in range(T))
            each = sum(2 for _ in ("Wx", "Wh") for _ in range(d) for _ in range(d))
            assert_close(student(B, T, d), positions * each, "the count", case=f"for B={B}, T={T}, d={d}")

    @pytest.mark.numerics
    def test_is_exact_for_large_sizes(self, student):
        """Large counts are exact whole numbers"""
        B, T, d = 1009, 1_000_003, 8191
        assert_close(student(B, T, d), 4 * B * T * d * d, "the count", case=f"for B={B}, T={T}, d={d}")


def attention_count(B, T, d_model, H, causal):
    """The multiply-adds of attention, pair by pair."""
    pairs = sum(1 for query in range(T) for key in range(T) if key <= query or not causal)
    return 2 * B * (4 * T * d_model * d_model + H * pairs * 2 * (d_model // H))


@exercise("attention_flops")
class TestAttentionFlops:
    @pytest.mark.values(points=2)
    def test_counts_the_multiply_adds(self, student):
        """Four projections, and for each pair of a query and a key a score and a share of the sum"""
        for B, T, d, H in [(1, 1, 1, 1), (1, 2, 1, 1), (1, 1, 2, 2), (2, 1, 2, 1), (2, 5, 21, 3), (4, 4, 4, 4), (3, 11, 26, 13)]:
            case = f"for B={B}, T={T}, d_model={d}, H={H}"
            assert_close(student(B, T, d, H), attention_count(B, T, d, H, False), "the count", case=case)

    @pytest.mark.values(points=2)
    def test_causal_counts_visible_pairs(self, student):
        """Under a causal mask query t has t + 1 keys: T (T + 1) / 2 pairs; the projections stay as they were"""
        for B, T, d, H in [(1, 1, 1, 1), (1, 2, 1, 1), (1, 3, 2, 2), (2, 4, 6, 3), (2, 5, 21, 3), (4, 4, 4, 4), (3, 11, 26, 13)]:
            case = f"for B={B}, T={T}, d_model={d}, H={H}, causal"
            want = attention_count(B, T, d, H, True)
            assert_close(student(B, T, d, H, causal=True), want, "the count", case=case)

    @pytest.mark.numerics
    def test_is_exact_for_large_sizes(self, student):
        """Large counts are exact whole numbers"""
        B, T, d, H = 1009, 1_000_003, 3 * 8191, 3
        for causal, pairs in [(False, T * T), (True, T * (T + 1) // 2)]:
            want = 8 * B * T * d * d + 4 * B * pairs * d
            case = f"for B={B}, T={T}, d_model={d}, H={H}, causal={causal}"
            assert_close(student(B, T, d, H, causal), want, "the count", case=case)

    @pytest.mark.values
    def test_heads_must_divide(self, student):
        """A number of heads that does not divide d_model raises ValueError"""
        for d, H in [(10, 4), (7, 2), (4, 8)]:
            with raises(ValueError, when=f"with d_model={d} and H={H}"):
                student(2, 5, d, H)


@exercise("crossover_length")
class TestCrossoverLength:
    @pytest.mark.values(points=2)
    def test_both_sides_cost_the_same(self, student):
        """At the crossover the T^2 part and the projections take the same FLOPs, for any width"""
        for d in (1, 2, 3, 7, 64, 768, 1_000_003):
            want = 8 * d * d // (4 * d)
            case = f"for d_model={d}: at T={want} both 4 T^2 d and 8 T d^2 are {4 * want * want * d}"
            assert_close(student(d), want, "the crossover", case=case)

    @pytest.mark.values(points=2)
    def test_with_the_feed_forward_network(self, student):
        """With d_ff the two matrices of the feed-forward network count on the linear side"""
        for d, d_ff in [(1, 1), (2, 3), (7, 11), (4, 4), (4, 16), (512, 1376), (4096, 16384)]:
            want = (8 * d * d + 4 * d * d_ff) // (4 * d)
            case = f"for d_model={d}, d_ff={d_ff}: at T={want} both sides are {4 * want * want * d}"
            assert_close(student(d, d_ff=d_ff), want, "the crossover", case=case)
