"""Hidden checks of lesson 03."""

import math
import statistics

import pytest
import torch

from grader.checks import ATTENTION, exercise
from grader.checks.assertions import (
    assert_close,
    assert_dtype,
    assert_finite,
    assert_float32,
    assert_moves,
    assert_pure,
    assert_same,
    assert_same_gradients,
    given,
    gradients,
    number,
    require,
)

SIZES = [(1, 1, 1, 1), (1, 2, 2, 1), (2, 3, 3, 2), (5, 11, 7, 13), (4, 4, 4, 4), (1, 11, 7, 13), (11, 5, 3, 2), (2, 67, 3, 2)]
"""(T_q, T_k, d_k, d_v), from the smallest up: the first that fails is the counterexample that a learner sees."""

AXES = ("query", "feature")


def triple(draw, t_q, t_k, d_k, d_v, *lead, scale=1.0):
    return draw(*lead, t_q, d_k, scale=scale), draw(*lead, t_k, d_k, scale=scale), draw(*lead, t_k, d_v)


TRANSPOSED = "for non-contiguous inputs, (B, T, H, d) with heads and positions swapped"


def transposed_heads(draw):
    """q, k and v with 2 sequences and 3 heads, whose leading axes no view can join."""
    return [t.transpose(1, 2) for t in (draw(2, 5, 3, 7), draw(2, 11, 3, 7), draw(2, 11, 3, 13))]


def holey(draw, *shape, empty):
    """A random mask in which the rows `empty` see nothing."""
    mask = draw.mask(*shape)
    mask[..., empty, :] = False
    return mask


def twin_generators(draw):
    """Two generators with the same seed."""
    one = draw.generator()
    two = torch.Generator()
    two.set_state(one.get_state())
    return one, two


def reproducible(call, draw, what):
    """Equal seeds give equal results, whatever the global random state; a second call and another seed give new ones."""
    one, two = twin_generators(draw)
    torch.manual_seed(1)
    first, second = call(one), call(one)
    torch.manual_seed(2)
    again = call(two)
    require(
        first == again, f"two generators with the same seed gave {what} of {number(first)} and {number(again)}; "
        "draw every random number from `generator`", evidence=again,
    )  # fmt: skip
    require(
        first != second, f"two calls in a row with one generator gave the same {what}, {number(first)}; "
        "do not seed the generator again, and do not return a fixed number", evidence=second,
    )  # fmt: skip
    other = call(draw.generator())
    require(first != other, f"generators with different seeds gave the same {what}, {number(first)}", evidence=other)


@exercise("dot_product_variance")
class TestDotProductVariance:
    @pytest.mark.values(points=2)
    def test_is_d_k_at_every_width(self, student, draw):
        """The variance is d_k within its sampling error, for widths from 1 to 256"""
        for d_k, n in [(1, 8000), (1, 8000), (2, 8000), (3, 8000), (37, 4000), (256, 2000)]:
            value = float(student(d_k, n, draw.generator()))
            slack = 6 * math.sqrt((2 + 6 / d_k) / n)
            require(
                abs(value / d_k - 1) < slack,
                f"with d_k={d_k} and n={n} the variance is {number(value)}, expected {d_k} within {100 * slack:.0f} %",
                evidence=value,
            )

    @pytest.mark.values
    def test_scatters_like_n_samples(self, student, draw):
        """Repeated calls scatter as the variance of n products of two normal numbers does"""
        for d_k, n in ((1, 9000), (16, 1000)):
            generator = draw.generator()
            scatter = statistics.stdev(float(student(d_k, n, generator)) for _ in range(40))
            expected = d_k * math.sqrt((2 + 6 / d_k) / n)
            require(
                0.55 * expected < scatter < 1.8 * expected,
                f"with d_k={d_k} and n={n}, the results of 40 calls have a standard deviation of {number(scatter)}, "
                f"expected about {expected:.2g}; are there n independent pairs of vectors of N(0, 1) numbers, each used once?",
                evidence=scatter,
            )

    @pytest.mark.values
    def test_all_n_pairs_count(self, student, draw):
        """With n = 1000, repeated calls do not scatter as they would with fewer than 1000 pairs"""
        generator = draw.generator()
        scatter = statistics.stdev(float(student(1, 1000, generator)) for _ in range(400))
        require(
            scatter < 1.22 * math.sqrt(8 / 1000),  # 6 standard deviations above that of a right answer
            f"with d_k=1 and n=1000, the results of 400 calls have a standard deviation of {number(scatter)}, expected about "
            f"{math.sqrt(8 / 1000):.2g}; are there n queries and n keys, each used once?",
            evidence=scatter,
        )

    @pytest.mark.purity
    def test_draws_from_the_generator(self, student, draw):
        """The generator, and nothing else, decides the result"""
        reproducible(lambda generator: float(student(3, 1000, generator)), draw, "a variance")


@exercise("scaled_dot_product_attention", without=ATTENTION)
class TestScaledDotProductAttention:
    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student, reference, draw):
        """Without a mask, every row is the softmax of q k^T / sqrt(d_k), times v"""
        for size in SIZES:
            q, k, v = triple(draw, *size)
            want = reference.scaled_dot_product_attention(q, k, v)
            assert_close(student(q, k, v), want, case=given(q=q, k=k, v=v), axes=AXES)

    @pytest.mark.values(points=2)
    def test_mask_equals_the_definition(self, student, reference, draw):
        """With a mask, every row is that of the visible keys alone"""
        for t_q, t_k, d_k, d_v in SIZES:
            q, k, v = triple(draw, t_q, t_k, d_k, d_v)
            mask = draw.mask(t_q, t_k)
            want = torch.stack(
                [
                    reference.scaled_dot_product_attention(row[None], k[seen], v[seen])[0]
                    for row, seen in zip(q, mask, strict=True)
                ]
            )
            assert_close(student(q, k, v, mask), want, case=given(q=q, k=k, v=v, mask=mask), axes=AXES)

    @pytest.mark.values
    def test_leading_dimensions_and_broadcast_masks(self, student, reference, draw):
        """Batch and heads are independent; a mask may have fewer dimensions than the scores, or size 1 in some"""
        q, k, v = triple(draw, 5, 11, 7, 13, 2, 3)
        few = [(5, 11), (11,), (1, 11), (3, 5, 11), (3, 1, 11)]
        for shape in [*few, (2, 1, 1, 11), (2, 1, 5, 11), (1, 3, 5, 11), (2, 3, 5, 11)]:
            mask = draw.mask(*shape)
            want = reference.scaled_dot_product_attention(q, k, v, mask)
            assert_close(student(q, k, v, mask), want, case=f"for q of shape (2, 3, 5, 7) and a mask of shape {shape}", axes=AXES)
        q, k, v = triple(draw, 5, 3, 2, 7, 2, 3, 2)
        for mask in (None, draw.mask(2, 1, 1, 5, 3)):
            case = "with leading dimensions (2, 3, 2)" + ("" if mask is None else " and a mask of shape (2, 1, 1, 5, 3)")
            want = reference.scaled_dot_product_attention(q, k, v, mask)
            assert_close(student(q, k, v, mask), want, case=case, axes=AXES)
        q, k, v = triple(draw, 4, 4, 4, 4, 4, 4)
        mask = draw.mask(4, 1, 4, 4)
        for case, options in [("without a mask", {}), ("with a mask of shape (4, 1, 4, 4)", {"mask": mask})]:
            want = reference.scaled_dot_product_attention(q, k, v, **options)
            assert_close(student(q, k, v, **options), want, case=f"for all sizes 4, {case}", axes=AXES)

    @pytest.mark.values
    def test_scale_is_used_as_given(self, student, reference, draw):
        """A scale that is given replaces 1 / sqrt(d_k), also 0, 1 and a negative one"""
        for size in [(1, 2, 2, 1), (5, 11, 7, 13)]:
            q, k, v = triple(draw, *size)
            for scale in (0.0, 1, 0.3, -0.7, 2.0):
                for mask in (None, draw.mask(size[0], size[1])):
                    want = reference.scaled_dot_product_attention(q, k, v, mask=mask, scale=scale)
                    case = f"{given(q=q, k=k, v=v)}, scale={scale}" + ("" if mask is None else ", with a mask")
                    assert_close(student(q, k, v, mask=mask, scale=scale), want, case=case, axes=AXES)

    @pytest.mark.causality
    def test_hidden_keys_have_no_influence(self, student, draw):
        """Changing a hidden key and its value moves nothing; changing a visible one moves the row"""
        q, k, v = triple(draw, 5, 11, 7, 13)
        mask = draw.mask(5, 11)
        mask[:, 3] = torch.tensor([True, False, True, False, True])
        before = student(q, k, v, mask)
        k2, v2 = k.clone(), v.clone()
        k2[3], v2[3] = draw(7, scale=5.0), draw(13, scale=5.0)
        after = student(q, k2, v2, mask)
        hint = "the mask is True where a query may see a key"
        for row in range(5):
            if mask[row, 3]:
                assert_moves(before[row], after[row], f"changed key 3, which query {row} sees", f"output {row}", hint=hint)
            else:
                assert_same(
                    before[row], after[row], f"changed key 3, which is hidden from query {row}", f"output {row}", hint=hint
                )

    @pytest.mark.values
    def test_weights(self, student, draw):
        """Hidden weights are exactly 0, visible ones positive, and each row of weights sums to 1"""
        q, k, _ = triple(draw, 5, 11, 7, 13)
        mask = draw.mask(5, 11)
        weights = student(q, k, torch.eye(11, dtype=torch.float64), mask)
        axes = ("query", "key")
        assert_close(weights != 0, mask, "whether a weight is other than 0", axes=axes, case="with the identity as values")
        assert_close(weights.sum(-1), torch.ones(5, dtype=torch.float64), "the sum of the weights of each query")

    @pytest.mark.numerics(points=2)
    def test_rows_that_see_nothing(self, student, reference, draw):
        """A query that sees no key gets zeros, and the other rows are as ever"""
        for size, empty in [((1, 1, 1, 1), [0]), ((2, 3, 2, 2), [1]), ((5, 11, 7, 13), [0, 3]), ((4, 4, 4, 4), [0, 1, 2, 3])]:
            q, k, v = triple(draw, *size)
            mask = holey(draw, size[0], size[1], empty=empty)
            got = student(q, k, v, mask)
            case = f"(T_q, T_k, d_k, d_v) = {size}, rows {empty} see nothing"
            assert_finite(got, case=case)
            assert_close(got, reference.scaled_dot_product_attention(q, k, v, mask), case=case, axes=AXES)
        q, k, v = triple(draw, 3, 5, 2, 2, 2)
        mask = torch.tensor([[[True]], [[False]]]).expand(2, 1, 5)
        want = reference.scaled_dot_product_attention(q, k, v, mask)
        assert_close(
            student(q, k, v, mask), want, case="with a mask of shape (2, 1, 5) that hides all keys of the second item", axes=AXES
        )
        mask = torch.tensor([[True], [False], [True]])
        want = reference.scaled_dot_product_attention(q, k, v, mask)
        assert_close(
            student(q, k, v, mask), want, case="with a mask of shape (3, 1) that hides all keys from query 1", axes=AXES
        )

    @pytest.mark.gradient(points=2)
    def test_gradients_with_rows_that_see_nothing(self, student, reference, draw):
        """With rows that see nothing, the gradients are finite and right"""
        for size, empty in [((1, 2, 1, 1), [0]), ((5, 11, 7, 13), [0, 3]), ((4, 4, 4, 4), [0, 1, 2, 3])]:
            q, k, v = triple(draw, *size)
            mask = holey(draw, size[0], size[1], empty=empty)
            case = f"(T_q, T_k, d_k, d_v) = {size}, rows {empty} see nothing"
            for name, found in zip("qkv", gradients(student, [q, k, v], [0, 1, 2], mask=mask), strict=True):
                assert_finite(found, f"the gradient with respect to {name}", case)
            assert_same_gradients(
                student, reference.scaled_dot_product_attention, [q, k, v], ["q", "k", "v"], case=case, mask=mask
            )

    @pytest.mark.gradient
    def test_gradients(self, student, reference, draw):
        """The gradients with respect to q, k and v are those of the definition, with mask and scale too"""
        for size in [(1, 2, 2, 1), (5, 11, 7, 13), (4, 4, 4, 4)]:
            args = triple(draw, *size)
            for options, words in [
                ({}, ""),
                ({"mask": draw.mask(size[0], size[1])}, ", with a mask"),
                ({"scale": 0.3}, ", scale=0.3"),
            ]:
                case = f"(T_q, T_k, d_k, d_v) = {size}{words}"
                assert_same_gradients(
                    student, reference.scaled_dot_product_attention, args, ["q", "k", "v"], case=case, **options
                )

    @pytest.mark.numerics
    def test_large_scores(self, student, reference, draw):
        """Scores of some hundreds and of some thousands give no inf and no nan, with and without a mask"""
        for size in (10.0, 30.0):
            q, k, v = triple(draw, 5, 11, 7, 13, scale=size)
            for mask in (None, draw.mask(5, 11)):
                case = f"with scores of some {size**2:.0f}" + ("" if mask is None else " and a mask")
                got = student(q, k, v, mask)
                assert_finite(got, case=case)
                assert_close(got, reference.scaled_dot_product_attention(q, k, v, mask), case=case, axes=AXES)

    @pytest.mark.numerics
    def test_hidden_key_with_the_best_score(self, student, reference, draw):
        """A hidden key stays hidden although its score is far above, or the visible scores are far below"""
        v = draw(3, 2)
        q = torch.ones(1, 4, dtype=torch.float64)
        mask = torch.tensor([[True, False, True]])
        for low, high in [(-1.0, 0.0), (-200.0, 0.0), (-4990.0, 0.0), (0.0, 4990.0), (-4999.0, 5000.0)]:
            k = torch.tensor([[low], [high], [low - 1.0]], dtype=torch.float64).expand(3, 4) / 2  # scores low, high, low - 1
            want = reference.scaled_dot_product_attention(q, k, v, mask)
            case = f"with visible scores of {low:g} and {low - 1:g} beside a hidden one of {high:g}"
            assert_close(student(q, k, v, mask), want, case=case)

    @pytest.mark.numerics
    def test_half_precision(self, student, reference, draw):
        """float16 and bfloat16 work, with a mask and with a row that sees nothing, and stay in their dtype"""
        args = triple(draw, 5, 11, 7, 13)
        low = torch.full((5, 4), 6.0), torch.full((11, 4), -6.0), draw(11, 13)
        for dtype, slack in [(torch.float16, 1e-2), (torch.bfloat16, 8e-2)]:
            for inputs, mask, words in [
                (args, None, ""),
                (args, draw.mask(5, 11), ", with a mask"),
                (args, holey(draw, 5, 11, empty=[2]), ", row 2 sees nothing"),
                (low, holey(draw, 5, 11, empty=[2]), ", all scores are -72, row 2 sees nothing"),
            ]:
                half = [t.to(dtype) for t in inputs]
                case = f"in {str(dtype).removeprefix('torch.')}{words}"
                got = student(*half, mask)
                assert_dtype(got, dtype, case=case)
                assert_finite(got, case=case)
                want = reference.scaled_dot_product_attention(*(t.double() for t in half), mask)
                assert_close(got, want, case=case, rtol=slack, atol=slack, dtype=False, axes=AXES)
                for name, found in zip("qkv", gradients(student, half, [0, 1, 2], mask=mask), strict=True):
                    assert_finite(found, f"the gradient with respect to {name}", case)

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """q, k, v and the mask are not modified, and a second call gives the same"""
        args = [*triple(draw, 5, 11, 7, 13), holey(draw, 5, 11, empty=[2])]
        assert_pure(student, args, ["q", "k", "v", "mask"])
        assert_pure(student, args[:3], ["q", "k", "v"])

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32 in, float32 out; non-contiguous inputs are fine"""
        for mask in (None, holey(draw, 5, 11, empty=[2])):
            assert_float32(student, reference.scaled_dot_product_attention, triple(draw, 5, 11, 7, 13), mask=mask)
        q, k, v = draw.strided(5, 7), draw.strided(11, 7), draw.strided(11, 13)
        mask = draw.mask(11, 5).T
        mask = mask | ~mask.any(-1, keepdim=True)
        want = reference.scaled_dot_product_attention(q, k, v, mask)
        assert_close(student(q, k, v, mask), want, case="for non-contiguous inputs", axes=AXES)
        q, k, v = transposed_heads(draw)
        for mask in (None, draw.mask(2, 1, 1, 11)):
            want = reference.scaled_dot_product_attention(q, k, v, mask)
            case = TRANSPOSED + ("" if mask is None else ", with a mask of shape (2, 1, 1, 11)")
            assert_close(student(q, k, v, mask), want, case=case, axes=AXES)


@exercise("softmax_jacobian")
class TestSoftmaxJacobian:
    @pytest.mark.values(points=2)
    def test_is_the_derivative_of_the_softmax(self, student, draw):
        """It equals the derivative of the softmax as autograd finds it"""
        for n in (1, 2, 3, 7):
            z = draw(n, scale=2.0)
            want = torch.autograd.functional.jacobian(lambda x: x.softmax(-1), z)
            p = z.softmax(-1)
            assert_close(student(p), want, "the Jacobian", case=given(p=p), axes=("i", "j"))

    @pytest.mark.values
    def test_every_slice_has_its_own(self, student, reference, draw):
        """Each slice along the last axis gives its own matrix, for any leading dimensions"""
        for shape in [(1, 2), (2, 2), (3, 3), (3, 5), (2, 3, 7), (4, 4, 4), (1, 1, 1), (2, 3, 5, 7)]:
            p = draw(*shape).softmax(-1)
            assert_close(
                student(p), reference.softmax_jacobian(p), "the Jacobian", case=f"for p of shape {shape}", axes=("i", "j")
            )
        p = draw.strided(3, 5).softmax(-1).T.contiguous().T
        assert_close(student(p), reference.softmax_jacobian(p), "the Jacobian", case="for a non-contiguous p", axes=("i", "j"))
        p = draw(2, 3, 5).softmax(-1).transpose(0, 1)
        case = "for a p whose leading axes are swapped"
        assert_close(student(p), reference.softmax_jacobian(p), "the Jacobian", case=case, axes=("i", "j"))

    @pytest.mark.numerics
    def test_saturated_weights(self, student, draw):
        """One-hot weights give exactly 0 everywhere, and a single key as well"""
        for n in (1, 3):
            p = torch.eye(n, dtype=torch.float64)
            want = torch.zeros(n, n, n, dtype=torch.float64)
            assert_close(student(p), want, "the Jacobian", case=given(p=p), rtol=0.0, atol=0.0)

    @pytest.mark.numerics
    def test_small_weights_keep_their_digits(self, student, reference, draw):
        """Weights as small as 1e-12 give entries that are right to many digits"""
        p = (draw(3, 5) + torch.tensor([0.0, -9.0, -18.0, -27.0, 0.0])).softmax(-1)
        got, want = student(p), reference.softmax_jacobian(p)
        assert_close(got, want, "the Jacobian", case="for weights down to 1e-12", rtol=1e-6, atol=1e-18, axes=("i", "j"))

    @pytest.mark.purity
    def test_leaves_p_alone(self, student, draw):
        """p is not modified, and a second call gives the same"""
        assert_pure(student, [draw(3, 5).softmax(-1)], ["p"])

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32 in, float32 out"""
        assert_float32(student, reference.softmax_jacobian, [draw(3, 5).softmax(-1)])
        assert_dtype(student(draw(3, 5).softmax(-1).half()), torch.float16, "the Jacobian", "for a float16 p")


ENTROPIES = {
    16: ((1.378, 0.36), (3.688, 0.15), (4.1281, 0.011)),
    24: ((1.070, 0.28), (3.687, 0.125), (4.1384, 0.0055)),
    64: ((0.583, 0.16), (3.686, 0.085), (4.1512, 0.0016)),
    256: ((0.266, 0.1), (3.686, 0.06), (4.1570, 0.0005)),
}
"""Width: expected mean entropy and slack of raw, sqrt and d, for 64 keys. Monte Carlo; a slack is above 6 standard deviations."""


@exercise("saturation_sweep")
class TestSaturationSweep:
    @pytest.mark.values(points=2)
    def test_known_entropies(self, student, draw):
        """The mean entropies over 64 keys are those of random queries, in nats, each at the place of its width"""
        for dims in ([16], [64, 16, 24, 256]):
            sweep = student(dims, 64, draw.generator())
            for index, d_k in enumerate(dims):
                for name, (want, slack) in zip(("raw", "sqrt", "d"), ENTROPIES[d_k], strict=True):
                    got = float(sweep[name][index])
                    require(
                        abs(got - want) < slack,
                        f"with dims={dims} and 64 keys, sweep[{name!r}][{index}], for d_k={d_k}, is {number(got)}, "
                        f"expected {want} within {slack}",
                        evidence=got,
                    )

    @pytest.mark.values
    def test_scores_are_dot_products(self, student, draw):
        """The scores are dot products of vectors, so that a long query is sharper than a short one"""
        values = [float(value) for value in student([3] * 60, 16, draw.generator())["raw"]]
        require(
            len(set(values)) > 1, "with dims=[3, 3, 3, ...] all entropies are the same; draw anew for each width", evidence=values
        )
        mean = statistics.mean(values)
        require(
            1.877 < mean < 2.01,
            f"with d_k=3 and 16 keys, 60 unscaled entropies have the mean {number(mean)}, expected 1.94; "
            "are the scores dot products of random vectors?",
            evidence=mean,
        )

    @pytest.mark.values
    def test_draws_anew_for_each_entry(self, student, draw):
        """Each entry of dims has keys of its own: entries of one call are no more alike than those of different calls"""
        generator = draw.generator()
        calls = [[float(value) for value in student([1] * 8, 2, generator)["raw"]] for _ in range(8)]
        within = math.sqrt(statistics.mean(map(statistics.variance, calls)))
        between = statistics.stdev(map(statistics.mean, calls))
        require(
            between <= 2 * within,  # 0.35 times it in a right answer, 18 times it where all entries share their keys
            f"with 8 widths of 1 and 2 keys, the entropies of a call deviate by {number(within)} from each other, but the means "
            f"of 8 calls by {number(between)}; are the keys drawn anew for each entry of dims?",
            evidence=between,
        )

    @pytest.mark.values
    def test_few_keys(self, student, draw):
        """n_keys is the number of keys: one key has entropy 0, two keys at most ln 2"""
        for n_keys in (1, 2, 5):
            sweep = student([2, 256], n_keys, draw.generator())
            for name in ("raw", "sqrt", "d"):
                for got in map(float, sweep[name]):
                    require(
                        -1e-6 <= got <= math.log(n_keys) + 1e-5 and not (n_keys > 1 and got < 1e-6),
                        f"with n_keys={n_keys} an entropy in {name!r} is {number(got)}, expected at most {math.log(n_keys):.4g}",
                        evidence=got,
                    )
            top = float(sweep["d"][1])
            require(
                top > math.log(n_keys) - 0.01,
                f"with {n_keys} keys and scores over d_k=256 the entropy is {number(top)}, expected about {math.log(n_keys):.3g}",
                evidence=top,
            )

    @pytest.mark.numerics
    def test_saturated_weights_give_no_nan(self, student, draw):
        """At width 1024, unscaled, where weights underflow to 0, the entropy is a small number and not nan"""
        got = float(student([1024], 64, draw.generator())["raw"][0])
        require(0.02 < got < 0.35, f"with d_k=1024 the unscaled entropy is {number(got)}, expected about 0.13", evidence=got)

    @pytest.mark.values
    def test_averages_over_many_queries(self, student, draw):
        """Repeated calls agree as closely as means over 512 queries do"""
        generator = draw.generator()
        values = [float(student([64], 16, generator)["raw"][0]) for _ in range(40)]
        scatter = statistics.stdev(values)
        require(
            scatter < 0.033,
            f"with d_k=64 and 16 keys, 40 unscaled entropies deviate by {number(scatter)}, expected about 0.02; "
            "is it the mean over 512 queries?",
            evidence=scatter,
        )

    @pytest.mark.purity
    def test_draws_from_the_generator(self, student, draw):
        """The generator, and nothing else, decides the result; dims is not modified"""
        reproducible(lambda generator: float(student([5], 7, generator)["sqrt"][0]), draw, "an entropy")
        dims = [7, 2, 5]
        student(dims, 3, draw.generator())
        require(dims == [7, 2, 5], f"the call changed dims from [7, 2, 5] to {dims}", evidence=list(dims))


@exercise("qk_norm_attention")
class TestQkNormAttention:
    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student, reference, draw):
        """Every row is the softmax of the cosines over tau, times v"""
        for size in SIZES:
            q, k, v = triple(draw, *size)
            for tau in (1, 0.37, 2.5):
                want = reference.qk_norm_attention(q, k, v, tau)
                assert_close(student(q, k, v, tau), want, case=f"{given(q=q, k=k, v=v)}, tau = {tau}", axes=AXES)

    @pytest.mark.values
    def test_leading_dimensions_and_tau_for_each_head(self, student, reference, draw):
        """Batch and heads are independent; tau may be a tensor, one number or one for each head"""
        prime = (5, 11, 7, 13)
        for lead, size in [((2,), prime), ((2, 3), prime), ((4, 4), (4,) * 4), ((7, 3), (7, 3, 7, 3)), ((2, 3, 2), (3, 2, 5, 1))]:
            q, k, v = triple(draw, *size, *lead)
            for tau in (draw.uniform(1, low=0.1, high=2.0)[0], draw.uniform(lead[-1], 1, 1, low=0.1, high=2.0)):
                want = reference.qk_norm_attention(q, k, v, tau)
                case = f"with leading dimensions {lead} and tau of shape {tuple(tau.shape)}"
                assert_close(student(q, k, v, tau), want, case=case, axes=AXES)

    @pytest.mark.values
    def test_directions_and_values_count(self, student, draw):
        """Turning a query round moves its row and no other, turning a key every row; doubling the values doubles the output"""
        q, k, v = triple(draw, 5, 11, 7, 13)
        before = student(q, k, v, 0.4)
        other = q.clone()
        other[2] = -other[2]
        after = student(other, k, v, 0.4)
        assert_moves(before[2], after[2], "turned query 2 round", "output 2")
        keep = [0, 1, 3, 4]
        assert_same(before[keep], after[keep], "turned query 2 round", "the other outputs")
        other = k.clone()
        other[3] = -other[3]
        for row, (one, two) in enumerate(zip(before, student(q, other, v, 0.4), strict=True)):
            assert_moves(one, two, "turned key 3 round", f"output {row}")
        assert_close(
            student(q, k, 2 * v, 0.4), 2 * before, case="after doubling v", axes=AXES, hint="the values are not normalized"
        )

    @pytest.mark.numerics
    def test_zero_vectors(self, student, reference, draw):
        """A zero query attends to all keys alike, a zero key scores 0, and there is no nan"""
        q, k, v = triple(draw, 3, 5, 7, 2)
        q[1], k[2] = 0.0, 0.0
        got = student(q, k, v, 0.2)
        assert_finite(got, case="with a zero query and a zero key")
        assert_close(got, reference.qk_norm_attention(q, k, v, 0.2), case="with a zero query and a zero key", axes=AXES)

    @pytest.mark.numerics
    def test_short_and_long_vectors(self, student, reference, draw):
        """Vectors with lengths from 1e-9 to 1e6 are normalized like any other, and a small tau is safe"""
        q, k, v = triple(draw, 5, 11, 7, 13)
        want = reference.qk_norm_attention(q, k, v, 0.3)
        for size in (1e-4, 1e-7, 1e6):
            got = student(q * size, k * size, v, 0.3)
            assert_close(got, want, case=f"for vectors {size:g} times as long", rtol=1e-4, atol=1e-5, axes=AXES)
        got = student(q * 1e-9, k * 1e-9, v, 0.3)  # lengths that 1e-12 may be added to
        assert_close(got, want, case="for vectors 1e-09 times as long", rtol=1e-2, atol=2e-2, axes=AXES)
        got = student(q, k, v, 1e-3)
        assert_finite(got, case="with tau = 0.001")
        assert_close(got, reference.qk_norm_attention(q, k, v, 1e-3), case="with tau = 0.001", axes=AXES)

    @pytest.mark.gradient(points=2)
    def test_gradients(self, student, reference, draw):
        """The gradients with respect to q, k, v and tau are those of the definition"""
        for size in [(1, 2, 2, 1), (5, 11, 7, 13), (4, 4, 4, 4)]:
            q, k, v = triple(draw, *size)
            args = [q, k, v, draw.uniform(1, low=0.2, high=1.0)[0]]
            assert_same_gradients(
                student, reference.qk_norm_attention, args, ["q", "k", "v", "tau"], case=f"(T_q, T_k, d_k, d_v) = {size}"
            )
        q, k, v = triple(draw, 5, 11, 7, 13, 2, 3)
        args = [q, k, v, draw.uniform(3, 1, 1, low=0.2, high=1.0)]
        assert_same_gradients(
            student, reference.qk_norm_attention, args, ["q", "k", "v", "tau"], case="with tau of shape (3, 1, 1)"
        )

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """q, k, v and tau are not modified, and a second call gives the same"""
        assert_pure(student, [*triple(draw, 5, 11, 7, 13), torch.tensor(0.5, dtype=torch.float64)], ["q", "k", "v", "tau"])

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32 in, float32 out; non-contiguous inputs are fine"""
        assert_float32(student, reference.qk_norm_attention, [*triple(draw, 5, 11, 7, 13), 0.5])
        q, k, v = draw.strided(5, 7), draw.strided(11, 7), draw.strided(11, 13)
        assert_close(
            student(q, k, v, 0.5), reference.qk_norm_attention(q, k, v, 0.5), case="for non-contiguous inputs", axes=AXES
        )
        q, k, v = transposed_heads(draw)
        assert_close(student(q, k, v, 0.5), reference.qk_norm_attention(q, k, v, 0.5), case=TRANSPOSED, axes=AXES)
