"""Public checks of lesson 07: hand-computed cases, shapes, names and one property of each part."""

import math

import pytest
import torch

from grader.checks import NORMS, RMS_NORM, exercise
from grader.checks.assertions import (
    assert_close,
    assert_dtype,
    assert_moves,
    assert_same,
    assert_shape,
    fail,
    given,
    load_weights,
    raises,
    require,
)

ROW = (1.0, 1.0, 7.0, 7.0)
"""The lesson's token: mean 4, variance 9, mean square 25."""


def float64(*values):
    return torch.tensor(values, dtype=torch.float64)


def rms(x):
    """RMSNorm without gain and eps, as the lesson computes it by hand."""
    return x / x.square().mean(-1, keepdim=True).sqrt()


def silent(x):
    return torch.zeros_like(x)


def twice(x):
    return 2 * x


def same(x):
    return x


def block_shapes(d_model, d_ff):
    """The parameters of a DecoderBlock by name."""
    return {
        "norm1.weight": (d_model,),
        "qkv.weight": (3 * d_model, d_model),
        "out.weight": (d_model, d_model),
        "norm2.weight": (d_model,),
        "gate.weight": (d_ff, d_model),
        "up.weight": (d_ff, d_model),
        "down.weight": (d_model, d_ff),
    }


def assert_names_and_shapes(found, want, what):
    """The tensors of a module are the ones that the stub lists."""
    missing, extra = sorted(want.keys() - found.keys()), sorted(found.keys() - want.keys())
    if missing or extra:
        lacks = [f"lacks {', '.join(missing)}"] if missing else []
        adds = [f"has {', '.join(extra)}, which the docstring does not list"] if extra else []
        fail(f"{what} {' and '.join(lacks + adds)}", evidence=sorted(found))
    for name, shape in want.items():
        require(
            found[name] == shape,
            f"{name} has shape {found[name]}, expected {shape}",
            evidence=(name, found[name]),
        )


@exercise("layer_norm", without=NORMS)
class TestLayerNorm:
    @pytest.mark.shape
    def test_keeps_the_shape(self, student, draw):
        """The result has the shape of x, for any leading dimensions"""
        for lead in [(), (5,), (2, 5), (2, 3, 5)]:
            x = draw(*lead, 7)
            assert_shape(student(x, draw(7), draw(7)), x.shape, case=f"for x of shape {tuple(x.shape)}")

    @pytest.mark.values
    def test_one_token_by_hand(self, student):
        """(1, 1, 7, 7) and (0, 0, 6, 6) have the variance 9; with eps=7 the root is 4"""
        gain, bias = float64(1.0, 2.0, 1.0, 2.0), float64(0.0, 0.0, 10.0, 10.0)
        want = float64(-0.75, -1.5, 10.75, 11.5)
        for x, mean in ((float64(*ROW), 4), (float64(0.0, 0.0, 6.0, 6.0), 3)):
            case = given(x=x, gain=gain, bias=bias, eps=7.0)
            hint = f"the mean is {mean}, the mean of the squared deviations 9, and eps belongs under the root"
            assert_close(student(x, gain, bias, eps=7.0), want, case=case, hint=hint)

    @pytest.mark.values
    def test_a_token_alone(self, student, draw):
        """A position by itself gives what it gives inside a batch"""
        x, gain, bias = draw(2, 5, 7), draw(7), draw(7)
        hint = "mean and variance belong to one position: the last axis only"
        assert_close(student(x, gain, bias)[1, 3], student(x[1, 3], gain, bias), "position 3 of sequence 1", hint=hint)


@exercise("rms_norm", without=RMS_NORM)
class TestRmsNorm:
    @pytest.mark.shape
    def test_keeps_the_shape(self, student, draw):
        """The result has the shape of x, for any leading dimensions"""
        for lead in [(), (5,), (2, 5), (2, 3, 5)]:
            x = draw(*lead, 7)
            assert_shape(student(x, draw(7)), x.shape, case=f"for x of shape {tuple(x.shape)}")

    @pytest.mark.values
    def test_one_token_by_hand(self, student):
        """(1, 1, 7, 7) and (0, 0, 6, 8) have the mean square 25; with eps=11 the root is 6"""
        gain = float64(6.0, 3.0, 6.0, 0.0)
        hint = "the mean of the squares is 25, eps belongs under the root, and the gain multiplies as it is"
        for x, want in ((float64(*ROW), float64(1.0, 0.5, 7.0, 0.0)), (float64(0, 0, 6, 8), float64(0, 0, 6, 0))):
            case = given(x=x, gain=gain, eps=11.0)
            assert_close(student(x, gain, eps=11.0), want, case=case, hint=hint)

    @pytest.mark.values
    def test_a_token_alone(self, student, draw):
        """A position by itself gives what it gives inside a batch"""
        x, gain = draw(2, 5, 7), draw(7)
        hint = "the mean of the squares belongs to one position: the last axis only"
        assert_close(student(x, gain)[1, 3], student(x[1, 3], gain), "position 3 of sequence 1", hint=hint)


@exercise("feed_forward")
class TestFeedForward:
    @pytest.mark.shape
    def test_comes_back_to_d_model(self, student, draw):
        """The result has the shape of x, whatever d_ff"""
        for lead, d, f in [((), 3, 7), ((5,), 7, 3), ((2, 5), 3, 7), ((2, 3, 5), 7, 11)]:
            x = draw(*lead, d)
            got = student(x, draw(d, f), draw(f), draw(f, d), draw(d))
            assert_shape(got, x.shape, case=f"for x of shape {tuple(x.shape)} and d_ff = {f}")

    @pytest.mark.values
    def test_the_example_of_the_lesson(self, student):
        """x = (1, 2) is widened to (1, 2, -1) and comes back as (0.6827, 1.7958)"""
        x, W1 = float64(1.0, 2.0), float64([1.0, 0.0, -1.0], [0.0, 1.0, 0.0])
        W2 = float64([1.0, 0.0], [0.0, 1.0], [1.0, 1.0])
        one, two, minus = (z / 2 * (1 + math.erf(z / math.sqrt(2))) for z in (1.0, 2.0, -1.0))
        got = student(x, W1, float64(0.0, 0.0, 0.0), W2, float64(0.0, 0.0))
        hint = "GELU stands between the two maps, and it is the exact one, with erf"
        assert_close(
            got, float64(one + minus, two + minus), case=given(x=x, W1=W1, W2=W2) + " and no biases", hint=hint
        )

    @pytest.mark.values
    def test_positions_are_alone(self, student, draw):
        """Changing one position moves its own output and no other"""
        x, weights = draw(2, 5, 7), (draw(7, 11), draw(11), draw(11, 7), draw(7))
        other = x.clone()
        other[1, 2] = draw(7)
        before, after = student(x, *weights), student(other, *weights)
        own = torch.zeros(2, 5, dtype=torch.bool)
        own[1, 2] = True
        change = "changed position 2 of sequence 1"
        assert_moves(before[own], after[own], change, "its output")
        assert_same(before[~own], after[~own], change, "the output of the others", hint="the FFN never mixes positions")


@exercise("swiglu")
class TestSwiglu:
    @pytest.mark.shape
    def test_comes_back_to_d_model(self, student, draw):
        """The result has the shape of x, whatever d_ff"""
        for lead, d, f in [((), 3, 7), ((5,), 7, 3), ((2, 5), 3, 7), ((2, 3, 5), 7, 11)]:
            x = draw(*lead, d)
            got = student(x, draw(d, f), draw(d, f), draw(f, d))
            assert_shape(got, x.shape, case=f"for x of shape {tuple(x.shape)} and d_ff = {f}")

    @pytest.mark.values
    def test_one_unit_by_hand(self, student):
        """A gate of 2 and an up of -2 give SiLU(2) times -2; the way down scales it"""
        x, Wg, Wu, Wd = float64(1.0, 1.0), float64([2.0], [0.0]), float64([0.0], [-2.0]), float64([1.0, 10.0])
        unit = 2 / (1 + math.exp(-2.0)) * -2
        hint = "SiLU(z) = z * sigmoid(z) acts on the gate, then the two are multiplied"
        assert_close(student(x, Wg, Wu, Wd), float64(unit, 10 * unit), case=given(x=x, Wg=Wg, Wu=Wu, Wd=Wd), hint=hint)

    @pytest.mark.values
    def test_positions_are_alone(self, student, draw):
        """Changing one position moves its own output and no other"""
        x, weights = draw(2, 5, 7), (draw(7, 11), draw(7, 11), draw(11, 7))
        other = x.clone()
        other[1, 2] = draw(7)
        before, after = student(x, *weights), student(other, *weights)
        own = torch.zeros(2, 5, dtype=torch.bool)
        own[1, 2] = True
        change = "changed position 2 of sequence 1"
        assert_moves(before[own], after[own], change, "its output")
        assert_same(before[~own], after[~own], change, "the output of the others", hint="the FFN never mixes positions")


@exercise("prenorm_block")
class TestPrenormBlock:
    @pytest.mark.shape
    def test_keeps_the_shape(self, student, draw):
        """The result has the shape of x"""
        for shape in [(5, 7), (2, 5, 7), (2, 3, 5, 7)]:
            got = student(draw(*shape), rms, twice, rms, same)
            assert_shape(got, shape, case=f"for x of shape {shape}")

    @pytest.mark.values
    def test_the_token_of_the_lesson(self, student):
        """(1, 1, 7, 7) becomes u = (1.2, 1.2, 8.4, 8.4) and y = (1.6, 1.6, 11.2, 11.2)"""
        x = float64(ROW)
        got = student(x, rms, same, rms, twice)
        case = f"{given(x=x)}, RMSNorm, attention(z) = z and ffn(z) = 2 z"
        assert_close(
            got, float64((1.6, 1.6, 11.2, 11.2)), case=case, hint="each plus sign adds the stream before the norm"
        )

    @pytest.mark.values
    def test_silent_sublayers_leave_x(self, student, draw):
        """With sub-layers that return zeros the block is the identity"""
        x = draw(2, 5, 7, scale=3.0)
        hint = "what is added back must not have passed a norm"
        assert_close(student(x, rms, silent, rms, silent), x, case="for attention and ffn that return zeros", hint=hint)


@exercise("postnorm_block")
class TestPostnormBlock:
    @pytest.mark.shape
    def test_keeps_the_shape(self, student, draw):
        """The result has the shape of x"""
        for shape in [(5, 7), (2, 5, 7), (2, 3, 5, 7)]:
            got = student(draw(*shape), rms, twice, rms, same)
            assert_shape(got, shape, case=f"for x of shape {shape}")

    @pytest.mark.values
    def test_two_numbers_by_hand(self, student):
        """With norms that add 1 and that double, x = 1 becomes u = 4 and y = 24"""
        x = float64([1.0])
        got = student(x, lambda z: z + 1, lambda z: 2 * z, lambda z: 2 * z, lambda z: z + 4)
        case = "with x = 1, norm1(z) = z + 1, attention(z) = 2 z, norm2(z) = 2 z and ffn(z) = z + 4"
        assert_close(got, float64([24.0]), case=case, hint="u = norm1(1 + 2) = 4, y = norm2(4 + 8) = 24")

    @pytest.mark.values
    def test_the_stream_has_size_one(self, student, draw):
        """With RMSNorm every position of the output has RMS 1, however long x is"""
        got = student(draw(2, 5, 7, scale=30.0), rms, twice, rms, same)
        size = got.square().mean(-1).sqrt()
        assert_close(
            size, torch.ones_like(size), "the RMS of the output", hint="the norm is the last thing that happens"
        )


@exercise("shape_walk")
class TestShapeWalk:
    @pytest.mark.shape
    def test_names_in_order(self, student):
        """The result is a dict with the 18 names, in order"""
        got = student(2, 5, 21, 3, 40)
        require(
            isinstance(got, dict),
            f"the result should be a dict but is a {type(got).__name__}",
            evidence=type(got).__name__,
        )
        want = [
            "x", "norm1", "qkv", "q", "k", "v", "scores", "weights", "heads", "merged", "out", "u",
            "norm2", "gate", "up", "hidden", "down", "y",
        ]  # fmt: skip
        for place, name in enumerate(want):
            found = list(got)[place] if place < len(got) else "nothing"
            require(
                found == name,
                f"entry {place} of the dict is {found!r}, expected {name!r}",
                evidence=list(map(str, got)),
            )
        require(len(got) == 18, f"the dict has {len(got)} entries, expected 18", evidence=list(map(str, got)))

    @pytest.mark.values
    def test_the_example_of_the_lesson(self, student):
        """B=2, T=4, d_model=8, n_heads=2, d_ff=16 gives the table of the lesson"""
        walk = student(2, 4, 8, 2, 16)
        table = {
            "x": (2, 4, 8), "qkv": (2, 4, 24), "q": (2, 2, 4, 4), "scores": (2, 2, 4, 4), "merged": (2, 4, 8),
            "gate": (2, 4, 16), "hidden": (2, 4, 16), "down": (2, 4, 8), "y": (2, 4, 8),
        }  # fmt: skip
        for name, shape in table.items():
            assert_close(walk.get(name), shape, f"the shape of {name}")

    @pytest.mark.values
    def test_heads_must_divide(self, student):
        """A number of heads that does not divide d_model raises ValueError"""
        with raises(ValueError, when="d_model=10, n_heads=4", mentions=[10, 4]):
            student(2, 5, 10, 4, 16)


@exercise("DecoderBlock")
class TestDecoderBlock:
    @pytest.mark.shape
    def test_keeps_the_shape(self, student):
        """(B, T, d_model) goes in and comes out"""
        for B, T, d_model, n_heads, d_ff in [(1, 1, 6, 3, 11), (2, 5, 6, 3, 11), (4, 4, 16, 4, 4)]:
            got = student(d_model, n_heads, d_ff)(torch.zeros(B, T, d_model) + 0.5)
            assert_shape(got, (B, T, d_model), case=f"for d_model={d_model}, n_heads={n_heads}, d_ff={d_ff}")

    @pytest.mark.shape
    def test_parameter_names(self, student):
        """Its parameters are the seven of the docstring, by name and shape"""
        found = {name: tuple(p.shape) for name, p in student(6, 3, 11).named_parameters()}
        assert_names_and_shapes(found, block_shapes(6, 11), "DecoderBlock(6, 3, 11)")

    @pytest.mark.values
    def test_the_token_of_the_lesson(self, student):
        """A token alone, with identity values and a closed FFN: (1, 1, 7, 7) becomes (1.2, 1.2, 8.4, 8.4)"""
        block, x, eye = student(4, 2, 3), float64(ROW).reshape(1, 1, 4), torch.eye(4, dtype=torch.float64)
        state = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in block_shapes(4, 3).items()}
        state |= {"norm1.weight": torch.ones(4), "norm2.weight": torch.ones(4), "out.weight": eye}
        state["qkv.weight"] = torch.cat([eye, eye, eye])
        load_weights(block, state)
        want = float64((1.2, 1.2, 8.4, 8.4)).reshape(1, 1, 4)
        hint = "one token attends to itself only, so attention returns norm1(x), and that is added to x"
        assert_close(block(x), want, case="for B = T = 1 and a gate of zeros", hint=hint)

    @pytest.mark.causality
    def test_the_last_token_moves_only_itself(self, student, draw):
        """Changing the last position moves its own output and no earlier one"""
        block, x = student(6, 3, 11).double(), draw(2, 5, 6)
        other = x.clone()
        other[:, -1] = draw(2, 6)
        before, after = block(x), block(other)
        change = "changed the last position"
        assert_same(
            before[:, :-1],
            after[:, :-1],
            change,
            "an earlier output",
            hint="look at the mask, and at how heads are split and merged",
        )
        assert_moves(before[:, -1], after[:, -1], change, "its output")

    @pytest.mark.values
    def test_heads_must_divide(self, student):
        """A number of heads that does not divide d_model raises ValueError"""
        with raises(ValueError, when="d_model=10, n_heads=4", mentions=[10, 4]):
            student(10, 4, 16)


@exercise("block_parameter_count")
class TestBlockParameterCount:
    @pytest.mark.values
    def test_the_example_of_the_lesson(self, student):
        """d=8, f=16: 384 for the gated FFN alone, 256 for the plain one"""
        for gated, want in ((True, 384), (False, 256)):
            got = student(8, 16, gated=gated, norms=False, attention=False)
            assert_close(
                got, want, "the count", case=f"for d_model=8, d_ff=16, gated={gated}, without attention and norms"
            )

    @pytest.mark.values
    def test_the_whole_block(self, student):
        """The defaults count 4 d^2 + 3 d f + 2 d"""
        for d, f in ((1, 1), (3, 5), (3, 12), (8, 16)):
            assert_close(student(d, f), 4 * d * d + 3 * d * f + 2 * d, "the count", case=f"for d_model={d}, d_ff={f}")


@exercise("TinyGPT")
class TestTinyGPT:
    @pytest.mark.shape
    def test_logits_for_every_position(self, student, draw):
        """Ids (B, T) give logits (B, T, vocab_size)"""
        model = student(11, 6, 3, 2, 7, 5)
        for B, T in [(1, 1), (2, 3), (3, 5)]:
            got = model(draw.integers(B, T, high=11))
            assert_shape(got, (B, T, 11), "the logits", f"for ids of shape {(B, T)}")
            assert_dtype(got, torch.float32, "the logits", "for a model as it is made")

    @pytest.mark.shape
    def test_parameter_names(self, student):
        """Its parameters are the ones of the docstring, by name and shape; the tied head adds none"""
        found = {name: tuple(p.shape) for name, p in student(11, 6, 3, 2, 7, 5).named_parameters()}
        want = {"tokens.weight": (11, 6), "positions.weight": (5, 6), "norm.weight": (6,)}
        for layer in (0, 1):
            want |= {f"blocks.{layer}.{name}": shape for name, shape in block_shapes(6, 7).items()}
        if "tokens.weight" not in found and "head.weight" in found:  # one parameter, reached first by its other name
            found["tokens.weight"] = found.pop("head.weight")
        assert_names_and_shapes(found, want, "TinyGPT(11, 6, 3, 2, 7, 5)")

    @pytest.mark.causality
    def test_the_last_token_moves_only_its_logits(self, student):
        """Changing the last token moves its own logits and no earlier ones"""
        model = student(11, 6, 3, 2, 7, 5).double()
        ids = torch.tensor([[3, 1, 4, 1, 5]])
        other = torch.tensor([[3, 1, 4, 1, 9]])
        before, after = model(ids), model(other)
        assert_same(before[:, :-1], after[:, :-1], "changed the last token", "the logits of an earlier position")
        assert_moves(before[:, -1], after[:, -1], "changed the last token", "its logits")

    @pytest.mark.values
    def test_first_loss(self, student, draw):
        """The loss of a new model is near ln(vocab_size)"""
        for V in (7, 50):
            ids, targets = draw.integers(4, 16, high=V), draw.integers(4, 16, high=V)
            with torch.no_grad():
                logits = student(V, 32, 4, 2, 48, 16)(ids)
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten()).item()
            require(
                abs(loss - math.log(V)) < 0.15,
                f"the first loss is {loss:.2f} for a vocabulary of {V}, expected about ln {V} = {math.log(V):.2f}; "
                "are all matrices drawn with standard deviation 0.02?",
                evidence=round(loss, 1),
            )

    @pytest.mark.values
    def test_too_long_an_input(self, student, draw):
        """More tokens than max_len raise ValueError"""
        with raises(ValueError, when="T=6, max_len=5", mentions=[6, 5]):
            student(11, 6, 3, 2, 7, 5)(draw.integers(2, 6, high=11))
