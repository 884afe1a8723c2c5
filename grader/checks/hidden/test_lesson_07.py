"""Hidden checks of lesson 07.

The parts are compared with plain loops over positions, heads and queries that are written here from the formulas; the
gradients with the reference's.
"""

import itertools
import math
from functools import lru_cache

import pytest
import torch

from grader.checks import NORMS, RMS_NORM, exercise
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
    fail,
    given,
    load_weights,
    raises,
    require,
    shape_of,
)

SHAPES = [(2,), (3,), (1,), (7,), (1, 1, 2), (4, 4), (5, 7), (2, 5, 7), (4, 4, 4), (2, 3, 5, 7), (1, 2, 1, 3, 2)]
"""Shapes of x whose last axis counts the features, from the smallest up."""


def scalar(value):
    return torch.tensor(value, dtype=torch.float64)


def all_but(shape, place):
    """A boolean mask over the leading axes, False at one place."""
    mask = torch.ones(shape, dtype=torch.bool)
    mask[place] = False
    return mask


def assert_positions_alone(function, x, new, what):
    """Changing one position moves its own output and no other, in its own sequence or another."""
    place = (1, 2)
    other = x.clone()
    other[place] = new
    before, after = function(x), function(other)
    others = all_but(x.shape[:-1], place)
    change = "changed position 2 of sequence 1"
    assert_same(before[others], after[others], change, "the output of another position", hint=what)
    assert_moves(before[place], after[place], change, "its own output")


def assert_half(student, reference, arguments):
    """float16 and bfloat16 give their own dtype back, near the result in float64."""
    for dtype, tolerance in ((torch.float16, 0.02), (torch.bfloat16, 0.15)):
        half = [argument.to(dtype) for argument in arguments]
        with torch.no_grad():
            got, want = student(*half), reference(*(argument.double() for argument in half))
        name = str(dtype).removeprefix("torch.")
        assert_dtype(got, dtype, "the output", f"when the inputs are {name}")
        assert_close(got.double(), want, f"the output in {name}", rtol=tolerance, atol=tolerance)


# ---------------------------------------------------------------------------------------------------- norms


def layer_norm_by_rows(x, gain, bias, eps=1e-5):
    """The definition, one position and one feature at a time, in Python numbers."""
    d = x.shape[-1]
    rows = []
    for row in x.reshape(-1, d).tolist():
        mean = sum(row) / d
        variance = sum((value - mean) ** 2 for value in row) / d
        rows.append([g * (v - mean) / math.sqrt(variance + eps) + b for v, g, b in zip(row, gain, bias, strict=True)])
    return scalar(rows).reshape(x.shape)


def rms_norm_by_rows(x, gain, eps=1e-6):
    """The definition, one position and one feature at a time, in Python numbers."""
    d = x.shape[-1]
    rows = []
    for row in x.reshape(-1, d).tolist():
        size = math.sqrt(sum(value**2 for value in row) / d + eps)
        rows.append([g * v / size for v, g in zip(row, gain.tolist(), strict=True)])
    return scalar(rows).reshape(x.shape)


@exercise("layer_norm", without=NORMS)
class TestLayerNorm:
    NAMES = ("x", "gain", "bias")
    AXES = ("position", "feature")

    @staticmethod
    def arguments(draw, *shape, scale=2.0, shift=1.0):
        d = shape[-1]
        return [draw(*shape, scale=scale) + shift, draw(d), draw(d)]

    @pytest.mark.values(points=3)
    def test_equals_the_definition(self, student, draw):
        """It is gain * (x - mean) / sqrt(variance + eps) + bias, feature by feature, for all sizes"""
        for shape in SHAPES:
            x, gain, bias = self.arguments(draw, *shape)
            want = layer_norm_by_rows(x, gain.tolist(), bias.tolist())
            assert_close(student(x, gain, bias), want, case=given(x=x, gain=gain, bias=bias), axes=self.AXES)

    @pytest.mark.values(points=2)
    def test_eps_inside_the_root(self, student, draw):
        """eps is 1e-5 by default, can be given, and is added to the variance"""
        for scale, eps in ((1e-3, None), (1e-6, None), (1.0, 0.5), (1.0, 3.0), (1e-3, 1e-12)):
            x, gain, bias = self.arguments(draw, 5, 7, scale=scale, shift=0.0)
            options = {} if eps is None else {"eps": eps}
            want = layer_norm_by_rows(x, gain.tolist(), bias.tolist(), **options)
            case = f"for features of size {scale:g} and eps={'1e-5, the default' if eps is None else eps}"
            assert_close(student(x, gain, bias, **options), want, case=case, axes=self.AXES)
        x, gain, bias = self.arguments(draw, 2, 3)
        want = layer_norm_by_rows(x, gain.tolist(), bias.tolist(), 0.5)
        assert_close(student(x, gain, bias, 0.5), want, case="with eps as the fourth argument")

    @pytest.mark.values
    def test_positions_are_alone(self, student, draw):
        """Changing one position moves no other, in its own sequence or another"""
        gain, bias = draw(7), draw(7)
        hint = "mean and variance belong to one position"
        assert_positions_alone(lambda x: student(x, gain, bias), draw(3, 5, 7), draw(7), hint)

    @pytest.mark.numerics
    def test_a_constant_position(self, student, draw):
        """Equal features give the bias, with finite gradients"""
        x, gain, bias = torch.full((2, 7), 3.0, dtype=torch.float64).requires_grad_(), draw(7), draw(7)
        got = student(x, gain, bias)
        assert_close(got, bias.expand(2, 7), case="for x = 3 everywhere")
        (found,) = torch.autograd.grad((got * draw(2, 7)).sum(), [x])
        assert_finite(found, "the gradient", "for x = 3 everywhere")

    @pytest.mark.numerics
    def test_a_large_mean(self, student, draw):
        """Features of 3000 plus or minus 1 come out right in float32, beside positions around 0 as well"""
        hint = ""
        several = torch.tensor([[0.0], [3000.0], [-3000.0], [1.0], [3000.0], [0.0]])
        for shift in (0.0, 3000.0, -3000.0, several):
            x, gain, bias = (t.float() for t in self.arguments(draw, 6, 16, scale=1.0, shift=shift))
            want = layer_norm_by_rows(x.double(), gain.tolist(), bias.tolist())
            around = "0, 3000, -3000, 1, 3000 and 0, position by position," if shift is several else f"{shift:g}"
            case = f"for features around {around} in float32"
            got = student(x, gain, bias)
            assert_close(got, want, case=case, rtol=5e-3, atol=5e-3, dtype=False, hint=hint)
            hint = "mean(x^2) - mean^2 loses its digits: square the deviations"  # around 0 it was right

    @pytest.mark.gradient(points=2)
    def test_gradients(self, student, reference, draw):
        """The gradients with respect to x, gain and bias are those of the definition, statistics included"""
        for shape in [(2,), (3,), (4, 4), (2, 5, 7)]:
            args = self.arguments(draw, *shape)
            assert_same_gradients(
                student, reference.layer_norm, args, self.NAMES, case=f"for x of shape {shape}", atol=1e-8
            )

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """x, gain and bias are not modified, and a second call gives the same"""
        assert_pure(student, self.arguments(draw, 2, 5, 7), self.NAMES)

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32, float16 and bfloat16 come back as they went in; non-contiguous inputs are fine"""
        assert_float32(student, reference.layer_norm, self.arguments(draw, 2, 5, 7))
        assert_half(student, reference.layer_norm, self.arguments(draw, 2, 5, 7))
        args = [draw.strided(2, 5, 7), draw.strided(7), draw.strided(7)]
        assert_close(student(*args), reference.layer_norm(*args), case="for non-contiguous inputs")


@exercise("rms_norm", without=RMS_NORM)
class TestRmsNorm:
    NAMES = ("x", "gain")
    AXES = ("position", "feature")

    @staticmethod
    def arguments(draw, *shape, scale=2.0):
        return [draw(*shape, scale=scale) + 0.5 * scale, draw(shape[-1])]

    @pytest.mark.values(points=3)
    def test_equals_the_definition(self, student, draw):
        """It is gain * x / sqrt(mean(x^2) + eps), feature by feature, for all sizes"""
        for shape in SHAPES:
            x, gain = self.arguments(draw, *shape)
            want = rms_norm_by_rows(x, gain)
            assert_close(student(x, gain), want, case=given(x=x, gain=gain), axes=self.AXES)

    @pytest.mark.values(points=2)
    def test_eps_inside_the_root(self, student, draw):
        """eps is 1e-6 by default, can be given, and is added to the mean of the squares"""
        for scale, eps in ((1e-3, None), (1e-6, None), (1.0, 0.5), (1.0, 3.0), (1e-3, 1e-12)):
            x, gain = self.arguments(draw, 5, 7, scale=scale)
            options = {} if eps is None else {"eps": eps}
            case = f"for features of size {scale:g} and eps={'1e-6, the default' if eps is None else eps}"
            assert_close(student(x, gain, **options), rms_norm_by_rows(x, gain, **options), case=case, axes=self.AXES)
        x, gain = self.arguments(draw, 2, 3)
        assert_close(student(x, gain, 0.5), rms_norm_by_rows(x, gain, 0.5), case="with eps as the third argument")

    @pytest.mark.values
    def test_positions_are_alone(self, student, draw):
        """Changing one position moves no other, in its own sequence or another"""
        gain = draw(7)
        hint = "the mean of the squares belongs to one position"
        assert_positions_alone(lambda x: student(x, gain), draw(3, 5, 7), draw(7), hint)

    @pytest.mark.numerics
    def test_a_position_of_zeros(self, student, draw):
        """Zeros give zeros, with finite gradients"""
        x, gain = draw(3, 7), draw(7)
        x[1] = 0
        x.requires_grad_()
        got = student(x, gain)
        case = "for a position of zeros"
        assert_close(got[1], torch.zeros(7, dtype=torch.float64), "its output", case=case)
        (found,) = torch.autograd.grad((got * draw(3, 7)).sum(), [x])
        assert_finite(found, "the gradient", case)

    @pytest.mark.gradient(points=2)
    def test_gradients(self, student, reference, draw):
        """The gradients with respect to x and gain are those of the definition, the root included"""
        for shape in [(1,), (2,), (4, 4), (2, 5, 7)]:
            args = self.arguments(draw, *shape)
            assert_same_gradients(
                student, reference.rms_norm, args, self.NAMES, case=f"for x of shape {shape}", atol=1e-8
            )

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """x and gain are not modified, and a second call gives the same"""
        assert_pure(student, self.arguments(draw, 2, 5, 7), self.NAMES)

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32, float16 and bfloat16 come back as they went in; non-contiguous inputs are fine"""
        assert_float32(student, reference.rms_norm, self.arguments(draw, 2, 5, 7))
        assert_half(student, reference.rms_norm, self.arguments(draw, 2, 5, 7))
        args = [draw.strided(2, 5, 7), draw.strided(7)]
        assert_close(student(*args), reference.rms_norm(*args), case="for non-contiguous inputs")


# ---------------------------------------------------------------------------------------------------- FFNs

WIDTHS = [
    ((), 1, 1),
    ((1,), 1, 2),
    ((2,), 2, 1),
    ((), 3, 5),
    ((4, 4), 4, 4),
    ((5,), 7, 3),
    ((2, 5), 3, 7),
    ((2, 3, 5), 7, 11),
]
"""(leading dimensions, d_model, d_ff), from the smallest up."""


def gelu(z):
    return z / 2 * (1 + math.erf(z / math.sqrt(2)))


def silu(z):
    return z / (1 + math.exp(-z)) if z > -700 else 0.0


def dot(row, matrix):
    """A row times a matrix, in Python numbers."""
    return [sum(r * m for r, m in zip(row, column, strict=True)) for column in zip(*matrix, strict=True)]


def feed_forward_by_rows(x, W1, b1, W2, b2):
    """The definition, one position and one hidden unit at a time."""
    rows = []
    for row in x.reshape(-1, x.shape[-1]).tolist():
        hidden = [gelu(z + b) for z, b in zip(dot(row, W1.tolist()), b1.tolist(), strict=True)]
        rows.append([z + b for z, b in zip(dot(hidden, W2.tolist()), b2.tolist(), strict=True)])
    return scalar(rows).reshape(x.shape)


def swiglu_by_rows(x, Wg, Wu, Wd):
    """The definition, one position and one hidden unit at a time."""
    rows = []
    for row in x.reshape(-1, x.shape[-1]).tolist():
        gates, ups = dot(row, Wg.tolist()), dot(row, Wu.tolist())
        rows.append(dot([silu(g) * u for g, u in zip(gates, ups, strict=True)], Wd.tolist()))
    return scalar(rows).reshape(x.shape)


@exercise("feed_forward")
class TestFeedForward:
    NAMES = ("x", "W1", "b1", "W2", "b2")

    @staticmethod
    def arguments(draw, lead, d, f):
        return [draw(*lead, d), draw(d, f), draw(f), draw(f, d), draw(d)]

    @pytest.mark.values(points=3)
    def test_equals_the_definition(self, student, draw):
        """It is GELU(x W1 + b1) W2 + b2 with the exact GELU, unit by unit, for all sizes"""
        for size in WIDTHS:
            args = self.arguments(draw, *size)
            case = given(**dict(zip(self.NAMES, args, strict=True)))
            # tighter than usual: a constant in float32 costs eight digits, and must show
            axes, want = ("position", "feature"), feed_forward_by_rows(*args)
            assert_close(student(*args), want, case=case, rtol=1e-10, atol=1e-11, axes=axes)

    @pytest.mark.values
    def test_every_parameter_counts(self, student, draw):
        """Changing any one of the two matrices and two biases moves the output"""
        args = self.arguments(draw, (5,), 7, 7)
        before = student(*args)
        for index in range(1, 5):
            changed = list(args)
            changed[index] = draw(*args[index].shape)
            assert_moves(before, student(*changed), f"changed {self.NAMES[index]}")

    @pytest.mark.values
    def test_positions_are_alone(self, student, draw):
        """Changing one position moves no other, in its own sequence or another"""
        weights = self.arguments(draw, (), 5, 5)[1:]
        assert_positions_alone(lambda x: student(x, *weights), draw(3, 5, 5), draw(5), "the FFN never mixes positions")

    @pytest.mark.numerics
    def test_large_hidden_values(self, student, draw):
        """Hidden values of 1000 and -1000 give no inf and no nan, forward and backward"""
        x = scalar([[1000.0], [-1000.0], [60.0], [-60.0]]).requires_grad_()
        one, zero = torch.ones(1, 1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        got = student(x, one, zero, one, zero)
        case = "for hidden values of 1000, -1000, 60 and -60"
        assert_finite(got, case=case)
        assert_close(got, scalar([[1000.0], [0.0], [60.0], [0.0]]), case=case)
        (found,) = torch.autograd.grad(got.sum(), [x])
        assert_finite(found, "the gradient", case)

    @pytest.mark.gradient
    def test_gradients(self, student, reference, draw):
        """The gradients with respect to x, the matrices and the biases are those of the definition"""
        for size in [((), 1, 2), ((4,), 4, 4), ((2, 5), 3, 7)]:
            args = self.arguments(draw, *size)
            assert_same_gradients(student, reference.feed_forward, args, self.NAMES, case=f"for (lead, d, f) = {size}")

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """x, the matrices and the biases are not modified, and a second call gives the same"""
        assert_pure(student, self.arguments(draw, (2, 5), 3, 7), self.NAMES)

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32, float16 and bfloat16 come back as they went in; non-contiguous inputs are fine"""
        assert_float32(student, reference.feed_forward, self.arguments(draw, (2, 5), 3, 7), tolerance=1e-4)
        arguments = [0.5 * argument for argument in self.arguments(draw, (2, 5), 3, 7)]
        assert_half(student, reference.feed_forward, arguments)
        shapes = ((2, 5, 3), (3, 7), (7,), (7, 3), (3,))
        args = [draw.strided(*shape) for shape in shapes]
        assert_close(student(*args), reference.feed_forward(*args), case="for non-contiguous inputs")


@exercise("swiglu")
class TestSwiglu:
    NAMES = ("x", "Wg", "Wu", "Wd")

    @staticmethod
    def arguments(draw, lead, d, f):
        return [draw(*lead, d), draw(d, f), draw(d, f), draw(f, d)]

    @pytest.mark.values(points=3)
    def test_equals_the_definition(self, student, draw):
        """It is (SiLU(x Wg) * (x Wu)) Wd, unit by unit, for all sizes, and for gates that are nearly closed"""
        for size in WIDTHS:
            args = self.arguments(draw, *size)
            case = given(**dict(zip(self.NAMES, args, strict=True)))
            assert_close(student(*args), swiglu_by_rows(*args), case=case, axes=("position", "feature"))
        x = scalar([[-6.0, 1.0], [-12.0, 1.0], [-18.0, 1.0]])
        args = [x, scalar([[1.0], [0.0]]), scalar([[0.0], [2.0]]), scalar([[1e6, -1e6]])]
        case = "for gates of -6, -12 and -18, ups of 2 and Wd = [[1e6, -1e6]]"
        assert_close(student(*args), swiglu_by_rows(*args), case=case, hint="SiLU(-18) is -2.7e-7 and not 0")

    @pytest.mark.values
    def test_linear_in_the_up_branch(self, student, draw):
        """Doubling Wu doubles the output; doubling Wg does not"""
        x, Wg, Wu, Wd = self.arguments(draw, (5,), 7, 3)
        before = student(x, Wg, Wu, Wd)
        hint = "only the gate goes through SiLU"
        assert_close(student(x, Wg, 2 * Wu, Wd), 2 * before, "the output with 2 Wu", hint=hint)
        assert_moves(2 * before, student(x, 2 * Wg, Wu, Wd), "with 2 Wg in place of 2 Wu")

    @pytest.mark.values
    def test_positions_are_alone(self, student, draw):
        """Changing one position moves no other, in its own sequence or another"""
        weights = self.arguments(draw, (), 5, 5)[1:]
        assert_positions_alone(lambda x: student(x, *weights), draw(3, 5, 5), draw(5), "the FFN never mixes positions")

    @pytest.mark.numerics
    def test_large_gates(self, student, draw):
        """Gates of 1000 and -1000 give no inf and no nan, forward and backward"""
        x = scalar([[1000.0, 1.0], [-1000.0, 1.0], [60.0, 1.0], [-60.0, 1.0]]).requires_grad_()
        Wg, Wu, Wd = scalar([[1.0], [0.0]]), scalar([[0.0], [2.0]]), scalar([[1.0, -1.0]])
        got = student(x, Wg, Wu, Wd)
        case = "for gates of 1000, -1000, 60 and -60"
        assert_finite(got, case=case)
        assert_close(got, scalar([[2000.0, -2000.0], [0.0, 0.0], [120.0, -120.0], [0.0, 0.0]]), case=case)
        (found,) = torch.autograd.grad(got[:, 0].sum(), [x])
        assert_finite(found, "the gradient", case)

    @pytest.mark.gradient
    def test_gradients(self, student, reference, draw):
        """The gradients with respect to x and the three matrices are those of the definition"""
        for size in [((), 1, 2), ((4,), 4, 4), ((2, 5), 3, 7)]:
            args = self.arguments(draw, *size)
            assert_same_gradients(student, reference.swiglu, args, self.NAMES, case=f"for (lead, d, f) = {size}")

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """x and the matrices are not modified, and a second call gives the same"""
        assert_pure(student, self.arguments(draw, (2, 5), 3, 7), self.NAMES)

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32, float16 and bfloat16 come back as they went in; non-contiguous inputs are fine"""
        assert_float32(student, reference.swiglu, self.arguments(draw, (2, 5), 3, 7), tolerance=1e-4)
        arguments = [0.5 * argument for argument in self.arguments(draw, (2, 5), 3, 7)]
        assert_half(student, reference.swiglu, arguments)
        args = [draw.strided(*shape) for shape in ((2, 5, 3), (3, 7), (3, 7), (7, 3))]
        assert_close(student(*args), reference.swiglu(*args), case="for non-contiguous inputs")


# ---------------------------------------------------------------------------------------------------- wiring


def prenorm(x, norm1, attention, norm2, ffn):
    u = x + attention(norm1(x))
    return u + ffn(norm2(u))


def postnorm(x, norm1, attention, norm2, ffn):
    u = norm1(x + attention(x))
    return norm2(u + ffn(u))


class Parts:
    """Four different functions for a block, which count their calls: two norms, a mixer of positions, an FFN."""

    def __init__(self, draw, T, d, dtype=torch.float64):
        self.calls = []
        g1, g2, mix, W, A, C = draw(d), draw(d), draw(T, T), draw(d, d), draw(d, d), draw(d, d)
        g1, g2, mix, W, A, C = (t.to(dtype) for t in (g1, g2, mix, W, A, C))

        def unit(x, eps):
            return x / (x.square().mean(-1, keepdim=True) + eps).sqrt()

        self.functions = {
            "norm1": lambda x: g1 * unit(x, 0.1),
            "attention": lambda x: torch.tanh(mix @ x @ W),
            "norm2": lambda x: g2 * unit(x - x.mean(-1, keepdim=True), 0.2),
            "ffn": lambda x: torch.sin(x @ A) @ C,
        }

    def __iter__(self):
        """The four in the order of the exercise's arguments; each call is noted."""

        def counting(name):
            def call(x):
                self.calls.append(name)
                return self.functions[name](x)

            return call

        return iter([counting(name) for name in ("norm1", "attention", "norm2", "ffn")])

    def prenorm(self, x):
        return prenorm(x, *self.functions.values())

    def postnorm(self, x):
        return postnorm(x, *self.functions.values())


WIRING_SHAPES = [(1, 1), (1, 2), (2, 2), (4, 4), (5, 7), (2, 5, 7), (4, 4, 4), (1, 1, 3), (2, 3, 5, 7)]


def assert_order_of_calls(student, parts, x, order):
    """Each of the four functions is called once, in the order of the formula."""
    student(x, *parts)
    for name in order:
        times = parts.calls.count(name)
        require(times == 1, f"{name} was called {times} times, expected once", evidence=parts.calls)
    require(
        parts.calls == order,
        f"the order of the calls is {', '.join(parts.calls)}; expected {', '.join(order)}",
        evidence=parts.calls,
    )


def assert_leaves_x_alone(student, draw, wanted):
    """x stays as it is, also when every function gives back the tensor that it was given."""
    x = draw(5, 7)
    kept = x.clone()
    got = student(x, *[lambda z: z] * 4)
    case = "for four functions that return their very argument"
    assert_close(got, wanted(kept), case=case, hint="add with a + b, not in place")
    assert_close(x, kept, "the argument x after the call", case=case, hint="add with a + b, not in place")


def assert_leaves_results_alone(student, formula, draw):
    """What the four functions are given and return, and may keep, stays as it was."""
    x, kept = draw(2, 5, 7), {}
    for name, function in Parts(draw, 5, 7).functions.items():

        def keeping(z, name=name, function=function):
            result = function(z)
            kept[name] = (result, result.clone())
            return result

        kept[name] = keeping
    student(x, *list(kept.values()))
    for name, entry in kept.items():
        require(isinstance(entry, tuple), f"{name} was never called", evidence=name)
        after, before = entry
        hint = "add with a + b, not in place"
        assert_close(after, before, f"the tensor that {name} returned, looked at after the call", hint=hint)
    passed = []

    def same(z):
        passed.append((z, z.clone()))
        return z

    student(draw(5, 7), *[same] * 4)
    for number, (after, before) in enumerate(passed, 1):
        what = f"the tensor that went through function {number} of 4 unchanged, looked at after the call"
        assert_close(after, before, what, hint="add with a + b, not in place")
    # behind the wall what an answer hands to a function is a copy there; what it gets back may be a view of its own
    x, functions = draw(5, 5), [lambda z: z, lambda z: z.mT] * 2
    case = "for norms that return their very argument and sub-layers that return its transpose, a view of it"
    try:
        got = student(x, *functions)
    except RuntimeError as error:
        if "single memory location" not in str(error):
            raise
        fail(f"a sum is written into a tensor that is part of it, {case}; add with a + b, not in place", evidence="in place")
    assert_close(got, formula(x, *functions), case=case, hint="add with a + b, not in place")


def block_gradient(student, parts, x):
    def run(x):
        return student(x, *parts)

    return run


@exercise("prenorm_block")
class TestPrenormBlock:
    @pytest.mark.values(points=3)
    def test_equals_the_formula(self, student, draw):
        """u = x + attention(norm1(x)), y = u + ffn(norm2(u)), for four different functions and all sizes"""
        for shape in WIRING_SHAPES:
            parts, x = Parts(draw, *shape[-2:]), draw(*shape, scale=3.0)
            assert_close(student(x, *parts), parts.prenorm(x), case=given(x=x), axes=("position", "feature"))

    @pytest.mark.mechanism
    def test_each_part_once(self, student, draw):
        """Each of the four functions is called exactly once, in order"""
        parts = Parts(draw, 5, 7)
        assert_order_of_calls(student, parts, draw(2, 5, 7), ["norm1", "attention", "norm2", "ffn"])

    @pytest.mark.values
    def test_one_silent_sublayer(self, student, draw):
        """With one sub-layer silent, the other half is left"""
        x, parts = draw(2, 5, 7), Parts(draw, 5, 7)
        norm1, attention, norm2, ffn = parts
        names = parts.functions
        only_ffn = x + names["ffn"](names["norm2"](x))
        assert_close(
            student(x, norm1, torch.zeros_like, norm2, ffn), only_ffn, case="for an attention that returns zeros"
        )
        only_attention = x + names["attention"](names["norm1"](x))
        got = student(x, norm1, attention, norm2, torch.zeros_like)
        assert_close(got, only_attention, case="for an ffn that returns zeros")

    @pytest.mark.gradient
    def test_gradients(self, student, draw):
        """The gradient with respect to x goes through both sub-layers, both norms and past them"""
        for shape in [(1, 2), (4, 4), (2, 5, 7)]:
            parts, x = Parts(draw, *shape[-2:]), draw(*shape)
            run = block_gradient(student, parts, x)
            assert_same_gradients(run, parts.prenorm, [x], ("x",), case=f"for x of shape {shape}")

    @pytest.mark.purity
    def test_leaves_x_alone(self, student, draw):
        """x is not modified, also when a function returns the very tensor that it was given"""
        assert_leaves_x_alone(student, draw, lambda x: 4 * x)
        x, parts = draw(2, 5, 7), Parts(draw, 5, 7)
        assert_pure(lambda x: student(x, *parts), [x], ["x"])

    @pytest.mark.purity
    def test_leaves_results_alone(self, student, draw):
        """What a function was given or returned is not modified: it may return that very tensor or a view, and keep it"""
        assert_leaves_results_alone(student, prenorm, draw)

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, draw):
        """float32 in, float32 out; modules serve as functions; non-contiguous x is fine"""
        parts = Parts(draw, 5, 7, torch.float32)
        x = draw(2, 5, 7, dtype=torch.float32)
        assert_dtype(student(x, *parts), torch.float32, "the output", "when x is float32")
        norm, linear = torch.nn.LayerNorm(7).double(), torch.nn.Linear(7, 7).double()
        x = draw.strided(2, 5, 7)
        with torch.no_grad():
            u = x + linear(norm(x))
            want = u + linear(norm(u))
            assert_close(student(x, norm, linear, norm, linear), want, case="for modules and a non-contiguous x")


@exercise("postnorm_block")
class TestPostnormBlock:
    @pytest.mark.values(points=3)
    def test_equals_the_formula(self, student, draw):
        """u = norm1(x + attention(x)), y = norm2(u + ffn(u)), for four different functions and all sizes"""
        for shape in WIRING_SHAPES:
            parts, x = Parts(draw, *shape[-2:]), draw(*shape, scale=3.0)
            assert_close(student(x, *parts), parts.postnorm(x), case=given(x=x), axes=("position", "feature"))

    @pytest.mark.mechanism
    def test_each_part_once(self, student, draw):
        """Each of the four functions is called exactly once, in order"""
        parts = Parts(draw, 5, 7)
        assert_order_of_calls(student, parts, draw(2, 5, 7), ["attention", "norm1", "ffn", "norm2"])

    @pytest.mark.values
    def test_silent_sublayers(self, student, draw):
        """With sub-layers that return zeros the result is norm2(norm1(x))"""
        x, parts = draw(2, 5, 7, scale=3.0), Parts(draw, 5, 7)
        norm1, _, norm2, _ = parts
        names = parts.functions
        got = student(x, norm1, torch.zeros_like, norm2, torch.zeros_like)
        assert_close(got, names["norm2"](names["norm1"](x)), case="for attention and ffn that return zeros")

    @pytest.mark.gradient
    def test_gradients(self, student, draw):
        """The gradient with respect to x goes through both sub-layers, both sums and both norms"""
        for shape in [(1, 2), (4, 4), (2, 5, 7)]:
            parts, x = Parts(draw, *shape[-2:]), draw(*shape)
            run = block_gradient(student, parts, x)
            assert_same_gradients(run, parts.postnorm, [x], ("x",), case=f"for x of shape {shape}")

    @pytest.mark.purity
    def test_leaves_x_alone(self, student, draw):
        """x is not modified, also when a function returns the very tensor that it was given"""
        assert_leaves_x_alone(student, draw, lambda x: 4 * x)
        x, parts = draw(2, 5, 7), Parts(draw, 5, 7)
        assert_pure(lambda x: student(x, *parts), [x], ["x"])

    @pytest.mark.purity
    def test_leaves_results_alone(self, student, draw):
        """What a function was given or returned is not modified: it may return that very tensor or a view, and keep it"""
        assert_leaves_results_alone(student, postnorm, draw)

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, draw):
        """float32 in, float32 out; modules serve as functions; non-contiguous x is fine"""
        parts = Parts(draw, 5, 7, torch.float32)
        x = draw(2, 5, 7, dtype=torch.float32)
        assert_dtype(student(x, *parts), torch.float32, "the output", "when x is float32")
        norm, linear = torch.nn.LayerNorm(7).double(), torch.nn.Linear(7, 7).double()
        x = draw.strided(2, 5, 7)
        with torch.no_grad():
            u = norm(x + linear(x))
            want = norm(u + linear(u))
            assert_close(student(x, norm, linear, norm, linear), want, case="for modules and a non-contiguous x")


# ---------------------------------------------------------------------------------------------------- counting

WALKS = [
    (1, 1, 1, 1, 1),
    (2, 4, 8, 2, 16),
    (2, 5, 21, 3, 40),
    (4, 4, 16, 4, 4),
    (3, 1, 7, 7, 5),
    (1, 13, 22, 11, 2),
    (5, 2, 6, 1, 6),
]
"""(B, T, d_model, n_heads, d_ff)."""


def walk_of_tensors(B, T, d_model, n_heads, d_ff):
    """The shapes of a block that is really computed."""
    x = torch.zeros(B, T, d_model)
    qkv = x @ torch.zeros(d_model, 3 * d_model)
    q, k, v = (piece.view(B, T, n_heads, -1).transpose(1, 2) for piece in qkv.split(d_model, dim=-1))
    scores = q @ k.transpose(-2, -1)
    heads = scores @ v
    merged = heads.transpose(1, 2).reshape(B, T, d_model)
    gate = x @ torch.zeros(d_model, d_ff)
    tensors = [x, x, qkv, q, k, v, scores, scores, heads, merged, merged, x, x, gate, gate, gate, x, x]
    names = [
        "x", "norm1", "qkv", "q", "k", "v", "scores", "weights", "heads", "merged", "out", "u",
        "norm2", "gate", "up", "hidden", "down", "y",
    ]  # fmt: skip
    return {name: tuple(tensor.shape) for name, tensor in zip(names, tensors, strict=True)}


@exercise("shape_walk")
class TestShapeWalk:
    @pytest.mark.values(points=3)
    def test_equals_a_computed_block(self, student):
        """The shapes are those of tensors that go through a block, for all sizes"""
        for sizes in WALKS:
            case = "for B={}, T={}, d_model={}, n_heads={}, d_ff={}".format(*sizes)
            got, want = student(*sizes), walk_of_tensors(*sizes)
            assert_close(got, want, "the walk", case=case)
            require(
                list(got) == list(want), f"the order of the names is {', '.join(map(str, got))}", evidence=list(got)
            )

    @pytest.mark.values
    def test_every_size_counts(self, student):
        """A second call with one size changed gives the shapes of the new sizes"""
        sizes = {"B": 2, "T": 5, "d_model": 21, "n_heads": 3, "d_ff": 40}
        student(*sizes.values())
        for name, size in (("B", 3), ("T", 4), ("d_model", 42), ("n_heads", 7), ("d_ff", 50)):
            changed = sizes | {name: size}
            case = f"called with {name}={sizes[name]} and then with {name}={size}"
            assert_close(student(*changed.values()), walk_of_tensors(**changed), "the second walk", case=case)

    @pytest.mark.shape
    def test_tuples_of_ints(self, student):
        """Every shape is a tuple of ints"""
        for name, shape in student(2, 5, 21, 3, 40).items():
            require(
                isinstance(shape, tuple), f"{name} is {shape_of(shape)}, expected a tuple", evidence=shape_of(shape)
            )
            for size in shape:
                require(type(size) is int, f"{name} holds {size!r}, expected an int", evidence=type(size).__name__)

    @pytest.mark.values
    def test_by_keyword(self, student):
        """The arguments have the names of the docstring"""
        got = student(B=2, T=5, d_model=21, n_heads=3, d_ff=40)
        assert_close(got, walk_of_tensors(2, 5, 21, 3, 40), "the walk", case="with all arguments by keyword")

    @pytest.mark.values
    def test_heads_must_divide(self, student):
        """Every number of heads that does not divide d_model raises ValueError with both numbers"""
        for d_model, n_heads in ((21, 2), (21, 5), (3, 7), (22, 4), (9, 6)):
            with raises(ValueError, when=f"d_model={d_model}, n_heads={n_heads}", mentions=[d_model, n_heads]):
                student(2, 5, d_model, n_heads, 40)


FLAGS = ("gated", "norms", "bias", "attention")


@lru_cache
def held(kind, *arguments, **options):
    """The number of parameters of one module."""
    return sum(p.numel() for p in kind(*arguments, **options).parameters())


def counted_modules(d_model, d_ff, gated, norms, bias, attention):
    """The count of a block that is built of PyTorch's modules."""
    linear = torch.nn.Linear
    total = held(linear, d_model, d_ff, bias=bias) * (2 if gated else 1) + held(linear, d_ff, d_model, bias=bias)
    if attention:
        total += held(linear, d_model, 3 * d_model, bias=bias) + held(linear, d_model, d_model, bias=bias)
    return total + (2 * held(torch.nn.RMSNorm, d_model) if norms else 0)


@exercise("block_parameter_count")
class TestBlockParameterCount:
    @pytest.mark.values(points=3)
    def test_equals_built_modules(self, student):
        """It counts what modules built that way hold, for every combination of the flags"""
        for d_model, d_ff in ((1, 1), (4, 4), (5, 7), (11, 2), (3, 12)):
            for flags in itertools.product((True, False), repeat=4):
                options = dict(zip(FLAGS, flags, strict=True))
                got, want = student(d_model, d_ff, **options), counted_modules(d_model, d_ff, **options)
                words = ", ".join(f"{name}={value}" for name, value in options.items())
                assert_close(got, want, "the count", case=f"for d_model={d_model}, d_ff={d_ff}, {words}")

    @pytest.mark.values
    def test_defaults_and_order(self, student):
        """The flags stand in the order gated, norms, bias, attention and default to a DecoderBlock"""
        for given_flags in (
            (),
            (False,),
            (False, False),
            (False, False, True),
            (True, False, True, False),
            (False, True),
        ):
            flags = (*given_flags, *(True, True, False, True)[len(given_flags) :])
            case = f"for d_model=5, d_ff=7 and the flags {given_flags} by position"
            assert_close(student(5, 7, *given_flags), counted_modules(5, 7, *flags), "the count", case=case)
        got = student(d_model=5, d_ff=7)
        assert_close(
            got, counted_modules(5, 7, True, True, False, True), "the count", case="with d_model=5, d_ff=7 by keyword"
        )

    @pytest.mark.values
    def test_large_models_exactly(self, student):
        """Large sizes are counted exactly, as an int"""
        for d, f in ((12345, 49151), (123_456_789, 987_654_321)):
            got, case = student(d, f), f"for d_model={d}, d_ff={f}"
            kind = type(got).__name__
            require(type(got) is int, f"the count is of type {kind}, expected int, {case}", evidence=kind)
            assert_close(got, 4 * d * d + 3 * d * f + 2 * d, "the count", case=case)


# ---------------------------------------------------------------------------------------------------- modules

BLOCKS = [
    (1, 1, 2, 1, 3),
    (1, 2, 2, 2, 2),
    (1, 3, 6, 2, 5),
    (2, 4, 8, 2, 16),
    (2, 5, 21, 3, 11),
    (4, 4, 16, 4, 4),
    (3, 1, 6, 3, 5),
]
"""(B, T, d_model, n_heads, d_ff), from the smallest up."""

LONG, PLACES = 601, [0, 64, 128, 256, 300, 512, 600]
"""A long input, and the positions of it that are looked at."""

LARGE = 300.0
"""The stream is drawn this large so that the eps of the norms, which may be chosen differently, is not seen."""


def block_state(draw, d_model, d_ff, prefix=""):
    """Random weights for a DecoderBlock, by name; none of them small enough to be overlooked."""

    def matrix(rows, columns):
        return draw(rows, columns, scale=1.5 / math.sqrt(columns))

    return {
        f"{prefix}norm1.weight": 1 + 0.5 * draw(d_model),
        f"{prefix}qkv.weight": matrix(3 * d_model, d_model),
        f"{prefix}out.weight": matrix(d_model, d_model),
        f"{prefix}norm2.weight": 1 + 0.5 * draw(d_model),
        f"{prefix}gate.weight": matrix(d_ff, d_model),
        f"{prefix}up.weight": matrix(d_ff, d_model),
        f"{prefix}down.weight": matrix(d_model, d_ff),
    }


def model_state(draw, V, d_model, n_layers, d_ff, max_len):
    """Random weights for a TinyGPT, by name."""
    state = {
        "tokens.weight": draw(V, d_model, scale=LARGE),
        "positions.weight": draw(max_len, d_model, scale=LARGE),
        "norm.weight": 1 + 0.5 * draw(d_model),
    }
    for layer in range(n_layers):
        state |= block_state(draw, d_model, d_ff, f"blocks.{layer}.")
    return state | {"head.weight": state["tokens.weight"]}


def load(module, state):
    """The module in float64 with these weights; head.weight is tokens.weight, and may have no name of its own."""
    return load_weights(module, state, optional=["head.weight"])


def rms(x, gain):
    return gain * x / x.square().mean(-1, keepdim=True).sqrt()


def block_by_loops(state, x, n_heads, prefix="", positions=None):
    """The block from its formula: loops over heads and queries; no mask, just the keys up to the query.

    With `positions` only the outputs at these are computed, and returned in that order.
    """
    positions = list(range(x.shape[1])) if positions is None else list(positions)
    weight = {name.removeprefix(prefix): tensor for name, tensor in state.items() if name.startswith(prefix)}
    d_model = x.shape[-1]
    d_k = d_model // n_heads
    h = rms(x, weight["norm1.weight"])
    q, k, v = (h @ weight["qkv.weight"][i * d_model : (i + 1) * d_model].T for i in range(3))
    merged = torch.zeros_like(x)
    for head, t in itertools.product(range(n_heads), positions):
        own = slice(head * d_k, (head + 1) * d_k)
        scores = (k[:, : t + 1, own] * q[:, t, None, own]).sum(-1) / math.sqrt(d_k)  # (B, t + 1)
        merged[:, t, own] = (scores.softmax(-1).unsqueeze(-1) * v[:, : t + 1, own]).sum(1)
    u = (x + merged @ weight["out.weight"].T)[:, positions]
    h = rms(u, weight["norm2.weight"])
    gate = h @ weight["gate.weight"].T
    return u + (gate * torch.sigmoid(gate) * (h @ weight["up.weight"].T)) @ weight["down.weight"].T


def assert_same_block(block, state, x, n_heads, case):
    """What the block adds to x is what the formula adds (x itself is so large that it would hide small errors)."""
    got = block(x)
    assert_shape(got, x.shape, case=case)
    assert_dtype(got, x.dtype, case=case)
    want = block_by_loops(state, x, n_heads) - x
    assert_close(got - x, want, "the output minus x", case=case, axes=("position", "feature"))


def model_by_loops(state, ids, n_heads, n_layers):
    """The model from its formula."""
    x = torch.stack([state["tokens.weight"][row] for row in ids]) + state["positions.weight"][: ids.shape[1]]
    for layer in range(n_layers):
        x = block_by_loops(state, x, n_heads, f"blocks.{layer}.")
    return rms(x, state["norm.weight"]) @ state["tokens.weight"].T


def module_gradients(module, argument, weights):
    """The gradients of a fixed projection of the output with respect to all parameters (and a floating argument)."""
    leaves = dict(module.named_parameters())
    frozen = [name for name, parameter in leaves.items() if not parameter.requires_grad]
    require(not frozen, f"no gradient reaches {', '.join(frozen)}: requires_grad is False", evidence=frozen)
    if "tokens.weight" not in leaves and "head.weight" in leaves:  # one parameter under its other name
        leaves["tokens.weight"] = leaves.pop("head.weight")
    if argument.is_floating_point():
        argument = argument.clone().requires_grad_()
        leaves["x"] = argument
    out = module(argument)
    require(out.requires_grad, "no gradient flows from the output to the parameters", evidence="no gradient")
    found = torch.autograd.grad((out * weights).sum(), list(leaves.values()), allow_unused=True)
    return {n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(leaves.items(), found, strict=True)}


def assert_module_gradients(student, reference, argument, weights, case):
    got, want = (module_gradients(module, argument, weights) for module in (student, reference))
    for name, tensor in want.items():
        require(name in got, f"{name} is missing among the parameters", evidence=sorted(got))
        assert_close(got[name], tensor, f"the gradient with respect to {name}", case=case)


def made_by_keyword(student, **sizes):
    """What the class makes of sizes that are given by name."""
    try:
        return student(**sizes)
    except TypeError as error:
        if "keyword argument" not in str(error):
            raise
        names = ", ".join(f"{name}={size}" for name, size in sizes.items())
        fail(f"called with {names}, it raised TypeError: keep the names of the stub's arguments", evidence="TypeError")


@exercise("DecoderBlock")
class TestDecoderBlock:
    @pytest.mark.values(points=4)
    def test_equals_loops_over_heads_and_queries(self, student, draw):
        """With given weights it is the block of the formula, computed head by head and query by query, for all sizes"""
        for B, T, d_model, n_heads, d_ff in BLOCKS:
            state, x = block_state(draw, d_model, d_ff), draw(B, T, d_model, scale=LARGE)
            block = load(student(d_model, n_heads, d_ff), state)
            case = f"for B={B}, T={T}, d_model={d_model}, n_heads={n_heads}, d_ff={d_ff}"
            with torch.no_grad():
                assert_same_block(block, state, x, n_heads, case)

    @pytest.mark.values
    def test_one_silent_sublayer(self, student, draw):
        """With out = 0 the FFN is left, with down = 0 the attention, with both the identity"""
        d_model, n_heads, d_ff = 6, 3, 5
        x = draw(2, 5, d_model, scale=LARGE)
        for silenced in (("out",), ("down",), ("out", "down")):
            state = block_state(draw, d_model, d_ff)
            state |= {f"{name}.weight": torch.zeros_like(state[f"{name}.weight"]) for name in silenced}
            block = load(student(d_model, n_heads, d_ff), state)
            with torch.no_grad():
                assert_same_block(block, state, x, n_heads, f"for zeros in {' and '.join(silenced)}")

    @pytest.mark.causality(points=2)
    def test_every_position(self, student, draw):
        """Changing position t moves no output before t, and moves every one from t on"""
        T, d_model = 5, 6
        x, block = draw(2, T, d_model, scale=3.0), load(student(d_model, 3, 7), block_state(draw, d_model, 7))
        with torch.no_grad():
            before = block(x)
            for t in range(T):
                other = x.clone()
                other[:, t] = draw(2, d_model, scale=3.0)
                after = block(other)
                change = f"changed position {t}"
                hint = "a position sees itself and the past"
                assert_same(before[:, :t], after[:, :t], change, "an earlier output", hint=hint)
                for later in range(t, T):
                    assert_moves(before[:, later], after[:, later], change, f"output {later}", hint=hint)

    @pytest.mark.causality
    def test_long_inputs(self, student, draw):
        """In an input of 40 positions the last sees the first, and a prefix gives what it gives in the whole"""
        x, block = draw(2, 40, 6, scale=3.0), load(student(6, 3, 7), block_state(draw, 6, 7))
        with torch.no_grad():
            whole = block(x)
            for T in (1, 7, 20, 39):
                change = f"left out all positions of 40 but the first {T}"
                assert_same(block(x[:, :T]), whole[:, :T], change, "an output that remains", hint="the mask follows T")
            other = x.clone()
            other[:, 0] = draw(2, 6, scale=3.0)
            assert_moves(whole[:, -1], block(other)[:, -1], "changed position 0 of 40", "the last output")

    @pytest.mark.causality
    def test_very_long_inputs(self, student, draw):
        """In inputs of 601 and 2051 positions every one sees its whole past and nothing else"""
        # float32 halves the time of the longer one; x of size 300 has five digits after the point there
        longer = (2051, [1024, 1030, 1500, 2048, 2050], torch.float32, 1e-3)
        for T, places, dtype, slack in ((LONG, PLACES, torch.float64, 1e-7), longer):
            state, x = block_state(draw, 2, 3), draw(1, T, 2, scale=LARGE)
            x[:, : T // 3] += 2 * LARGE  # what a window leaves out is not like the rest
            x = x.to(dtype)
            block = load(student(2, 1, 3), state).to(dtype)
            with torch.no_grad():
                got = block(x)
            assert_shape(got, x.shape, case=f"for T={T}")
            wanted = block_by_loops(state, x.double(), 1, positions=places)
            for i, place in enumerate(places):
                found, want = got[:, place].double() - x[:, place], wanted[:, i] - x[:, place]
                hint = "position t sees 0 ... t, for any T: no fixed size of a mask, no window"
                what = f"the output minus x at position {place}"
                assert_close(found, want, what, case=f"for T={T}", rtol=slack, atol=slack, hint=hint)

    @pytest.mark.causality
    def test_hugely_negative_scores(self, student, draw):
        """Visible scores near -1e6, -1e12, -1e32 or -1e44 still beat the future"""
        d_model, eye = 4, torch.eye(4, dtype=torch.float64)
        state = block_state(draw, d_model, 7) | {"norm1.weight": torch.ones(d_model, dtype=torch.float64)}
        x = draw.uniform(1, 5, d_model, low=1.0, high=2.0)
        other = x.clone()
        other[:, -1] = -x[:, -1]
        for size in (1e3, 1e6, 1e16, 1e22):
            state["qkv.weight"] = torch.cat([-size * eye, size * eye, eye])
            block, near = load(student(d_model, 2, 7), state), f"scores near {-size * size:.0e}"
            with torch.no_grad():
                before, after = block(x), block(other)
            assert_finite(before, case=f"for {near}")
            hint = "if the other checks of causality pass, the masked scores are not low enough: use -inf"
            change = f"with {near}, changed the last position"
            assert_same(before[:, :-1], after[:, :-1], change, "an earlier output", hint=hint)

    @pytest.mark.numerics
    def test_scores_of_any_size(self, student, draw):
        """Scores that are all 0, and scores near 1e2, 1e3 and 1e6 of either sign, give the weights of the softmax"""
        d_model, eye = 4, torch.eye(4, dtype=torch.float64)
        for size in (0.0, 10.0, -10.0, 40.0, -40.0, 1e3, -1e3):
            state = block_state(draw, d_model, 7) | {"norm1.weight": torch.ones(d_model, dtype=torch.float64)}
            state["qkv.weight"] = torch.cat([size * eye, (abs(size) or 1.0) * eye, eye])
            # so large that no usual eps changes a score of 1e6; what the block adds still has ten digits
            x = draw.uniform(1, 5, d_model, low=1e5, high=2e5)
            block, case = load(student(d_model, 2, 7), state), f"for scores near {size * abs(size):g}"
            with torch.no_grad():
                got, want = block(x) - x, block_by_loops(state, x, 2) - x
            hint = "mask by position, subtract the largest visible score, and cut nothing off: softmax does the rest"
            axes = ("position", "feature")
            assert_close(got, want, "the output minus x", case=case, rtol=1e-5, atol=1e-6, axes=axes, hint=hint)

    @pytest.mark.values
    def test_sequences_are_alone(self, student, draw):
        """Changing one sequence of the batch moves no other"""
        x, block = draw(3, 5, 6), load(student(6, 3, 7), block_state(draw, 6, 7))
        other = x.clone()
        other[1] = draw(5, 6)
        with torch.no_grad():
            before, after = block(x), block(other)
        assert_same(before[[0, 2]], after[[0, 2]], "changed sequence 1", "the output of another sequence")
        assert_moves(before[1], after[1], "changed sequence 1", "its output")

    @pytest.mark.mechanism
    def test_fresh_parameters(self, student):
        """A new block has gains of 1 and matrices as nn.Linear makes them, different ones each time"""
        blocks = [dict(student(48, 4, 80).named_parameters()) for _ in range(2)]
        for name, parameter in blocks[0].items():
            require(parameter.requires_grad, f"{name} does not require a gradient", evidence=name)
            values = parameter.detach()
            if parameter.dim() == 1:
                assert_close(values, torch.ones_like(values), f"{name} of a new block", dtype=False)
                continue
            bound = 1 / math.sqrt(values.shape[1])
            fits = values.abs().max().item() <= bound * 1.001 and 0.9 < values.std().item() / bound * math.sqrt(3) < 1.1
            words = f"a standard deviation of {values.std().item():.3f}, expected {bound / math.sqrt(3):.3f}"
            require(fits, f"{name} of a new block has {words}: PyTorch's default", evidence=name)
            assert_moves(values, blocks[1][name], "made a second block", name)

    @pytest.mark.gradient(points=2)
    def test_gradients(self, student, reference, draw):
        """The gradients with respect to x and all seven parameters are those of the formula"""
        for B, T, d_model, n_heads, d_ff in [(1, 2, 2, 1, 3), (4, 4, 16, 4, 4), (2, 5, 6, 3, 7)]:
            state, x, weights = block_state(draw, d_model, d_ff), draw(B, T, d_model, scale=LARGE), draw(B, T, d_model)
            mine, theirs = (load(made(d_model, n_heads, d_ff), state) for made in (student, reference.DecoderBlock))
            case = f"for B={B}, T={T}, d_model={d_model}, n_heads={n_heads}"
            assert_module_gradients(mine, theirs, x, weights, case)

    @pytest.mark.purity
    def test_same_again(self, student, draw):
        """x and the weights stay as they are; a second call gives the same, in training mode too"""
        state, x = block_state(draw, 6, 7), draw(2, 5, 6, scale=LARGE)
        block = load(student(6, 3, 7), state).train()
        assert_pure(block, [x], ["x"])
        for name, tensor in block.state_dict().items():
            if name in state:
                assert_close(tensor, state[name], f"{name} after two calls", rtol=0.0, atol=0.0)
        assert_same(block.train()(x), block.eval()(x), "called eval()", atol=0.0)

    @pytest.mark.numerics
    def test_changing_lengths(self, student, draw):
        """One block takes lengths 3, 7, 1, 2 and 1 in turn, and non-contiguous inputs"""
        state = block_state(draw, 6, 7)
        block = load(student(6, 3, 7), state)
        with torch.no_grad():
            for B, T in ((1, 3), (2, 7), (2, 1), (3, 2), (3, 1)):
                assert_same_block(block, state, draw(B, T, 6, scale=LARGE), 3, f"for a length of {T} after others")
            x = LARGE * draw.strided(2, 5, 6).transpose(0, 1)
            assert_same_block(block, state, x, 3, "for a non-contiguous x")

    @pytest.mark.numerics
    def test_small_inputs(self, student, draw):
        """Inputs of size 0.5 are normalized like others: eps does not show"""
        for B, T in ((1, 1), (2, 5)):
            state, x = block_state(draw, 6, 7), draw(B, T, 6, scale=0.5)
            block = load(student(6, 3, 7), state)
            want = block_by_loops(state, x, 3)
            with torch.no_grad():
                # the tolerance admits any usual eps (at most 1e-5)
                assert_close(block(x), want, case="for an x of size 0.5", rtol=5e-3, atol=5e-3, hint="which eps?")

    @pytest.mark.numerics
    def test_float32(self, student, draw):
        """A block in float32 gives float32, near the float64 result"""
        state, x = block_state(draw, 6, 7), draw(2, 5, 6, scale=3.0)
        block = load(student(6, 3, 7), state).float()
        with torch.no_grad():
            got = block(x.float())
        assert_dtype(got, torch.float32, "the output", "when x and the weights are float32")
        assert_close(got, block_by_loops(state, x, 3), "the output in float32", rtol=1e-4, atol=1e-4, dtype=False)

    @pytest.mark.values
    def test_heads_must_divide(self, student):
        """Every number of heads that does not divide d_model raises ValueError with both numbers"""
        for d_model, n_heads in ((21, 2), (21, 5), (3, 7), (22, 4), (9, 6)):
            with raises(ValueError, when=f"d_model={d_model}, n_heads={n_heads}", mentions=[d_model, n_heads]):
                student(d_model, n_heads, 8)

    @pytest.mark.values
    def test_by_keyword(self, student, draw):
        """The arguments have the names of the stub"""
        state, x = block_state(draw, 6, 7), draw(2, 5, 6, scale=LARGE)
        block = load(made_by_keyword(student, d_model=6, n_heads=3, d_ff=7), state)
        with torch.no_grad():
            assert_same_block(block, state, x, 3, "with all arguments by keyword")


MODELS = [
    # (B, T, V, d_model, n_heads, n_layers, d_ff, max_len)
    (1, 1, 2, 2, 1, 1, 1, 1),
    (1, 2, 3, 2, 2, 1, 3, 2),
    (3, 3, 3, 3, 3, 3, 3, 3),
    (2, 5, 11, 6, 3, 2, 7, 13),
    (1, 3, 5, 4, 2, 7, 3, 5),
]


@exercise("TinyGPT")
class TestTinyGPT:
    @staticmethod
    def made(student, draw, V=11, d_model=6, n_heads=3, n_layers=2, d_ff=7, max_len=5):
        state = model_state(draw, V, d_model, n_layers, d_ff, max_len)
        return load(student(V, d_model, n_heads, n_layers, d_ff, max_len), state), state

    @pytest.mark.values(points=4)
    def test_equals_the_formula(self, student, draw):
        """With given weights the logits are those of the formula, computed with loops, for all sizes"""
        for B, T, *sizes in MODELS:
            model, state = self.made(student, draw, *sizes)
            ids = draw.integers(B, T, high=sizes[0])
            words = "for B={}, T={}, vocab_size={}, d_model={}, n_heads={}, n_layers={}, d_ff={}, max_len={}"
            with torch.no_grad():
                got = model(ids)
            want = model_by_loops(state, ids, sizes[2], sizes[3])
            assert_close(got, want, "the logits", case=words.format(B, T, *sizes), axes=("position", "word"))
        V = 70_000  # more than 16 bits hold
        model, state = self.made(student, draw, V, d_model=2, n_heads=1, n_layers=1, d_ff=1, max_len=4)
        ids = torch.tensor([[256, 32_768, 65_536, V - 1]])
        with torch.no_grad():
            got = model(ids)
        assert_close(got, model_by_loops(state, ids, 1, 1), "the logits", case=f"{given(ids=ids)}, vocab_size={V}")

    @pytest.mark.mechanism(points=2)
    def test_the_head_is_the_token_table(self, student, draw):
        """Loading or changing tokens.weight changes the head with it: they are one parameter"""
        model, state = self.made(student, draw)
        ids = draw.integers(2, 5, high=11)
        state["tokens.weight"] = draw(11, 6, scale=LARGE)
        load_weights(model, {"tokens.weight": state["tokens.weight"]})
        with torch.no_grad():
            got = model(ids)
        hint = "head.weight has to be tokens.weight itself, not a copy"
        want = model_by_loops(state, ids, 3, 2)
        assert_close(got, want, "the logits after new values were loaded into tokens.weight", hint=hint)
        assert_close(model.head.weight, model.tokens.weight, "head.weight", hint=hint)

    @pytest.mark.mechanism
    def test_still_tied_after_a_step(self, student, draw):
        """After a step of training head and tokens are still equal, and moved"""
        model, _ = self.made(student, draw)
        before = model.tokens.weight.detach().clone()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model(draw.integers(2, 5, high=11)).square().mean().backward()
        optimizer.step()
        assert_close(model.head.weight, model.tokens.weight, "head.weight after a step of training")
        assert_moves(before, model.tokens.weight, "after a step of training", "tokens.weight")

    @pytest.mark.causality(points=2)
    def test_every_position(self, student, draw):
        """Changing token t moves no logits before t, and moves those from t on"""
        model, _ = self.made(student, draw)
        ids = draw.integers(2, 5, high=11)
        with torch.no_grad():
            before = model(ids)
            for t in range(5):
                other = ids.clone()
                other[:, t] = (ids[:, t] + 1 + draw.integers(2, high=10)) % 11
                after = model(other)
                change = f"changed token {t}"
                assert_same(before[:, :t], after[:, :t], change, "the logits of an earlier position")
                for later in range(t, 5):
                    assert_moves(before[:, later], after[:, later], change, f"the logits of position {later}")

    @pytest.mark.causality
    def test_long_inputs(self, student, draw):
        """In an input of 40 tokens the last sees the first, and a prefix gives what it gives in the whole"""
        model, _ = self.made(student, draw, max_len=40)
        ids = draw.integers(2, 40, high=11)
        with torch.no_grad():
            whole = model(ids)
            for T in (1, 7, 20, 39):
                change = f"left out all tokens of 40 but the first {T}"
                assert_same(model(ids[:, :T]), whole[:, :T], change, "logits that remain", atol=1e-6)
            other = ids.clone()
            other[:, 0] = (ids[:, 0] + 1) % 11
            assert_moves(whole[:, -1], model(other)[:, -1], "changed token 0 of 40", "the last logits")

    @pytest.mark.causality
    def test_very_long_inputs(self, student, draw):
        """In an input of 601 tokens every position sees its whole past and nothing else"""
        model, state = self.made(student, draw, V=5, d_model=2, n_heads=1, n_layers=1, d_ff=3, max_len=LONG)
        ids = draw.integers(1, LONG, high=5)
        with torch.no_grad():
            got = model(ids)
        assert_shape(got, (1, LONG, 5), "the logits", f"for T={LONG}")
        x = state["tokens.weight"][ids] + state["positions.weight"]
        final = block_by_loops(state, x, 1, "blocks.0.", positions=PLACES)
        wanted = rms(final, state["norm.weight"]) @ state["tokens.weight"].T
        for i, place in enumerate(PLACES):
            assert_close(got[:, place], wanted[:, i], f"the logits at position {place}", case=f"for T={LONG}")

    @pytest.mark.values
    def test_changing_lengths(self, student, draw):
        """Every call starts at position 0, whatever came before it: lengths 3, 1, 5, 2 and 1 in turn"""
        for mode in ("train", "eval"):
            model, state = self.made(student, draw, n_heads=1, n_layers=1)
            getattr(model, mode)()
            for B, T in ((2, 3), (2, 1), (1, 5), (1, 2), (1, 1)):
                ids = draw.integers(B, T, high=11)
                with torch.no_grad():
                    got = model(ids)
                case = f"for T={T} after calls with other lengths, in {mode} mode"
                hint = "a call knows nothing of the calls before it"
                assert_close(got, model_by_loops(state, ids, 1, 1), "the logits", case=case, hint=hint)

    @pytest.mark.values
    def test_positions_count(self, student, draw):
        """The same token gets other logits at another position, from row 0 of the table on"""
        model, state = self.made(student, draw)
        ids = torch.full((1, 5), 3)
        with torch.no_grad():
            got = model(ids)
        for t in range(4):
            assert_moves(
                got[:, t], got[:, t + 1], f"with token 3 everywhere, went from position {t} to {t + 1}", "the logits"
            )
        with torch.no_grad():
            got = model(ids[:, :2])
        assert_close(got, model_by_loops(state, ids[:, :2], 3, 2), "the logits", case="for T=2 of max_len=5")

    @pytest.mark.values
    def test_new_weights_count(self, student, draw):
        """A call uses the weights as they are, also when an earlier call saw others, in training and evaluation"""
        for mode in ("train", "eval"):
            model, _ = self.made(student, draw)
            getattr(model, mode)()
            ids = draw.integers(2, 5, high=11)
            state = model_state(draw, 11, 6, 2, 7, 5)
            with torch.no_grad():
                model(ids)
                got = load(model, state)(ids)
            case = f"when new weights were loaded after a first call, in {mode} mode"
            hint = "keep nothing of a table between calls"
            assert_close(got, model_by_loops(state, ids, 3, 2), "the logits", case=case, hint=hint)

    @pytest.mark.mechanism
    def test_blocks_have_their_own_weights(self, student, draw):
        """There are n_layers blocks, and changing the weights of one changes no other"""
        for n_layers in (1, 2, 3):
            model, _ = self.made(student, draw, n_layers=n_layers)
            found = len(model.blocks)
            require(found == n_layers, f"there are {found} blocks, expected n_layers={n_layers}", evidence=found)
        with torch.no_grad():
            others = [model.blocks[i].qkv.weight.detach().clone() for i in (0, 2)]
            model.blocks[1].qkv.weight.add_(1.0)
        for i, before in zip((0, 2), others, strict=True):
            hint = "[block] * n_layers is one block, n_layers times"
            change = "changed the weights of block 1"
            assert_same(before, model.blocks[i].qkv.weight, change, f"the weights of block {i}", hint=hint)

    @pytest.mark.mechanism(points=2)
    def test_initialization(self, student):
        """Every row of every matrix is drawn by itself, normal with mean 0 and standard deviation 0.02; the gains are 1"""
        first, second = (dict(student(97, 48, 4, 2, 64, 32).named_parameters()) for _ in range(2))
        for name, parameter in first.items():
            values = parameter.detach()
            if values.dim() == 1:
                assert_close(values, torch.ones_like(values), f"{name} of a new model", dtype=False)
                continue
            spread, middle = values.std().item(), values.mean().item()
            fits = 0.018 < spread < 0.022 and abs(middle) < 0.003
            words = f"mean {middle:.3f} and standard deviation {spread:.3f}, expected 0 and 0.02"
            require(fits, f"{name} of a new model has {words}", evidence=name)
            # 3 for a normal distribution, 1.8 for a uniform one; the smallest matrix here gives 3 +- 0.13
            tails = ((values.double() - middle) / spread).pow(4).mean().item()
            words = f"the mean fourth power of its standardized entries is {tails:.1f}, expected about 3"
            require(2.2 < tails < 4.5, f"{name} of a new model is not normal: {words}", evidence=name)
            assert_moves(values, second[name], "made a second model", name)
            rows = values.double().std(dim=1)
            # a row of 48 numbers comes out beyond these once in 1e11 times
            words = f"from {rows.min():.3f} to {rows.max():.3f}, expected about 0.02 in every row"
            fits = rows.min() > 0.008 and rows.max() < 0.036
            require(fits, f"the standard deviations of the rows of {name} go {words}", evidence=name)
        matrices = {name: parameter.detach() for name, parameter in first.items() if parameter.dim() == 2}
        for (one, left), (other, right) in itertools.combinations(matrices.items(), 2):
            height, width = map(min, zip(left.shape, right.shape, strict=True))
            words = f"{other} starts with the numbers of {one}; each of them is drawn by itself"
            equal = torch.equal(left[:height, :width], right[:height, :width])
            require(not equal, words, evidence=(one, other))
        require(
            all(p.requires_grad for p in first.values()), "a parameter does not require a gradient", evidence="frozen"
        )

    @pytest.mark.mechanism
    def test_follows_the_seed(self, student):
        """torch.manual_seed decides every number of a new model"""
        models = []
        for _ in range(2):
            torch.manual_seed(7)
            models.append(dict(student(11, 6, 3, 2, 7, 5).named_parameters()))
        for name, parameter in models[0].items():
            what = f"{name} of a second model, made after the same torch.manual_seed"
            hint = "draw from torch's global generator"
            assert_close(models[1][name], parameter, what, rtol=0.0, atol=0.0, hint=hint)

    @pytest.mark.gradient(points=2)
    def test_gradients(self, student, reference, draw):
        """The gradients with respect to all parameters are those of the formula, both uses of the table added"""
        for B, T, V, *sizes in [(1, 2, 3, 2, 1, 1, 3, 2), (2, 3, 11, 6, 3, 2, 7, 4)]:
            state = model_state(draw, V, sizes[0], *sizes[2:])
            mine, theirs = (load(made(V, *sizes), state) for made in (student, reference.TinyGPT))
            ids, weights = draw.integers(B, T, high=V), draw(B, T, V)
            assert_module_gradients(mine, theirs, ids, weights, f"for B={B}, T={T}, vocab_size={V}")

    @pytest.mark.purity
    def test_same_again(self, student, draw):
        """The ids stay as they are; a second call gives the same, in training mode too"""
        model, _ = self.made(student, draw)
        ids = draw.integers(2, 5, high=11)
        assert_pure(model.train(), [ids], ["ids"])
        assert_same(model.train()(ids), model.eval()(ids), "called eval()", "the logits", atol=0.0)

    @pytest.mark.values
    def test_length_limit(self, student, draw):
        """max_len tokens are fine, one more raises ValueError with both numbers, at any time, training or not"""
        for mode in ("train", "eval"):
            model, _ = self.made(student, draw, max_len=7)
            getattr(model, mode)()
            for T in (3, 8, 7, 17):
                ids, when = draw.integers(1, T, high=11), f"T={T}, max_len=7 in {mode} mode"
                with torch.no_grad():
                    if T > 7:
                        with raises(ValueError, when=when, mentions=[T, 7]):
                            model(ids)
                    else:
                        assert_shape(model(ids), (1, T, 11), "the logits", f"for {when}")

    @pytest.mark.values
    def test_heads_must_divide(self, student):
        """A number of heads that does not divide d_model raises ValueError"""
        for d_model, n_heads in ((9, 2), (22, 4)):
            with raises(ValueError, when=f"d_model={d_model}, n_heads={n_heads}"):
                student(11, d_model, n_heads, 1, 8, 5)

    @pytest.mark.values
    def test_by_keyword(self, student, draw):
        """The arguments have the names of the stub"""
        sizes = {"vocab_size": 11, "d_model": 6, "n_heads": 3, "n_layers": 2, "d_ff": 7, "max_len": 5}
        state, ids = model_state(draw, 11, 6, 2, 7, 5), draw.integers(2, 5, high=11)
        model = load(made_by_keyword(student, **sizes), state)
        with torch.no_grad():
            got = model(ids)
        assert_close(got, model_by_loops(state, ids, 3, 2), "the logits", case="with all arguments by keyword")

    @pytest.mark.numerics
    def test_small_tables(self, student, draw):
        """Tables of size 0.3 give vectors of full size before the head: eps does not show"""
        model, state = self.made(student, draw)
        for name in ("tokens.weight", "positions.weight", "head.weight"):
            state[name] = state[name] * (0.3 / LARGE)
        ids = draw.integers(2, 5, high=11)
        with torch.no_grad():
            got = load(model, state)(ids)
        want = model_by_loops(state, ids, 3, 2)
        # the tolerance admits any usual eps (at most 1e-5)
        assert_close(got, want, "the logits", case="for tables of size 0.3", rtol=5e-3, atol=5e-3, hint="which eps?")

    @pytest.mark.numerics
    def test_float32(self, student, draw):
        """In float32 the logits are float32, near the float64 result"""
        model, state = self.made(student, draw)
        ids = draw.integers(2, 5, high=11)
        with torch.no_grad():
            got = model.float()(ids)
        assert_dtype(got, torch.float32, "the logits", "when the weights are float32")
        want = model_by_loops(state, ids, 3, 2)
        assert_close(got, want, "the logits in float32", rtol=1e-3, atol=1e-2, dtype=False)
