"""Hidden checks of lesson 02."""

import pytest
import torch

from grader.checks import SOFTMAX, exercise
from grader.checks.assertions import (
    assert_close,
    assert_finite,
    assert_float32,
    assert_moves,
    assert_pure,
    assert_same,
    assert_same_gradients,
    given,
    require,
    shape_of,
)

SIZES = [(1, 1, 1, 1), (1, 2, 1, 1), (2, 3, 2, 2), (3, 2, 2, 1), (5, 11, 7, 13), (4, 4, 4, 4), (1, 11, 7, 13), (2, 67, 3, 2)]
"""(T_q, T_k, d_k, d_v), from the smallest up: the first that fails is the counterexample that a learner sees."""

AXES = ("query", "feature")


def triple(draw, t_q, t_k, d_k, d_v, *lead, scale=1.0):
    return draw(*lead, t_q, d_k, scale=scale), draw(*lead, t_k, d_k, scale=scale), draw(*lead, t_k, d_v)


def three(got):
    """The queries, keys and values out of a result that should be a tuple of them."""
    words = f"{len(got)} items" if isinstance(got, tuple | list) else shape_of(got)
    complete = isinstance(got, tuple | list) and len(got) == 3
    require(complete, f"the result should be the tuple (q, k, v) but is {words}", evidence=words)
    return got


@exercise("qkv_projection")
class TestQkvProjection:
    NAMES = ("x", "Wq", "Wk", "Wv")

    @staticmethod
    def arguments(draw, t, d_model, d_k, d_v, *lead):
        return [draw(*lead, t, d_model), draw(d_model, d_k), draw(d_model, d_k), draw(d_model, d_v)]

    @staticmethod
    def compare(got, want, case):
        for name, one, two in zip("qkv", three(got), want, strict=True):
            assert_close(one, two, name, case=case, axes=("position", "feature"))

    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student, reference, draw):
        """q, k and v are x times their matrices, for all sizes"""
        for size in [(1, 1, 1, 1), (1, 2, 1, 1), (2, 2, 2, 2), (4, 4, 4, 4), (5, 7, 3, 11), (1, 5, 13, 2)]:
            args = self.arguments(draw, *size)
            case = given(**dict(zip(self.NAMES, args, strict=True)))
            self.compare(student(*args), reference.qkv_projection(*args), case)

    @pytest.mark.values
    def test_leading_dimensions_are_independent(self, student, reference, draw):
        """A batch, or batch and heads, gives what each of its items gives alone"""
        prime, equal = (5, 7, 3, 11), (4, 4, 4, 4)
        for size, lead in [(prime, (2,)), (equal, (4,)), (equal, (4, 4)), (prime, (2, 3)), ((1, 7, 3, 11), (1, 1))]:
            args = self.arguments(draw, *size, *lead)
            self.compare(student(*args), reference.qkv_projection(*args), f"for x of shape {(*lead, *size[:2])}")

    @pytest.mark.values
    def test_each_matrix_has_its_own_result(self, student, draw):
        """Changing Wq moves q alone, changing Wk moves k alone, changing Wv moves v alone"""
        args = self.arguments(draw, 5, 7, 3, 11)
        before = three(student(*args))
        for index in (0, 1, 2):
            changed = list(args)
            changed[index + 1] = draw(*args[index + 1].shape)
            for other, one, two in zip("qkv", before, three(student(*changed)), strict=True):
                compare = assert_moves if other == "qkv"[index] else assert_same
                compare(one, two, f"changed {self.NAMES[index + 1]}", other)

    @pytest.mark.gradient
    def test_gradients(self, student, reference, draw):
        """The gradients with respect to x and the three matrices are those of the products"""
        for size in [(1, 2, 1, 1), (5, 7, 3, 11), (4, 4, 4, 4)]:
            args = self.arguments(draw, *size)
            case = f"for (T, d_model, d_k, d_v) = {size}"
            assert_same_gradients(student, reference.qkv_projection, args, self.NAMES, case=case)

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """x and the matrices are not modified, and a second call gives the same"""
        assert_pure(student, self.arguments(draw, 5, 7, 3, 11), self.NAMES)

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32 in, float32 out; non-contiguous inputs are fine"""
        assert_float32(student, reference.qkv_projection, self.arguments(draw, 5, 7, 3, 11))
        args = [draw.strided(2, 5, 7), draw.strided(7, 3), draw.strided(7, 3), draw.strided(7, 11)]
        self.compare(student(*args), reference.qkv_projection(*args), "for non-contiguous inputs")


@exercise("softmax", without=SOFTMAX)
class TestSoftmax:
    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student, reference, draw):
        """Each slice along `dim` is exp(x) over its sum, for any shape and any dim"""
        small = [((2,), 0), ((2, 2), 0), ((2, 2), 1), ((4, 4), 0), ((1, 7), -1), ((5, 7), -2)]
        for shape, dim in [*small, ((2, 3, 5), 1), ((3, 3, 3), 0), ((2, 3, 2, 5), 1)]:
            x = draw(*shape)
            assert_close(student(x, dim), reference.softmax(x, dim), "the softmax", case=f"{given(x=x)} and dim={dim}")

    @pytest.mark.values
    def test_slices_do_not_mix(self, student, draw):
        """Changing one slice moves that slice and no other"""
        x = draw(3, 5)
        y = x.clone()
        y[1] = draw(5)
        before, after = student(x, -1), student(y, -1)
        keep = [0, 2]
        assert_same(before[keep], after[keep], "changed row 1 of x", "the softmax of the other rows")
        assert_moves(before[1], after[1], "changed row 1 of x", "its softmax")

    @pytest.mark.numerics
    def test_large_numbers(self, student, reference, draw):
        """Entries around +1000, -1000 and 10000 give no inf and no nan"""
        for shift in (1000.0, -1000.0, 10000.0, -10000.0):
            x = draw(3, 5) + shift
            got = student(x, -1)
            assert_finite(got, "the softmax", f"for numbers around {shift:g}")
            assert_close(got, reference.softmax(x, -1), "the softmax", case=f"for numbers around {shift:g}")

    @pytest.mark.numerics
    def test_rows_far_apart(self, student, reference, draw):
        """Rows at 0, +1000 and -1000 in one tensor are each stable"""
        x = draw(3, 5) + torch.tensor([[0.0], [1000.0], [-1000.0]], dtype=torch.float64)
        for dim, z in ((-1, x), (0, x.T)):
            got = student(z, dim)
            case = f"with rows around 0, +1000 and -1000, dim={dim}"
            assert_finite(got, "the softmax", case)
            want = reference.softmax(z, dim)
            assert_close(got, want, "the softmax", case=case, hint="each slice needs its own maximum")

    @pytest.mark.numerics
    def test_minus_infinity_gets_weight_zero(self, student, reference, draw):
        """An entry of -inf gets the weight 0"""
        x = draw(2, 5)
        x[0, 1] = x[1, 4] = x[1, 0] = -torch.inf
        for shift in (0.0, -1e6):
            got, want = student(x + shift, -1), reference.softmax(x + shift, -1)
            case = f"with entries of -inf beside numbers around {shift:g}"
            assert_close(got, want, "the softmax", case=case)
            hidden = got[x == -torch.inf]
            assert_close(hidden, torch.zeros_like(hidden), "the weights of the entries of -inf", case=case, atol=0.0)

    @pytest.mark.numerics
    def test_small_weights_keep_their_digits(self, student, reference, draw):
        """A weight of 1e-9 or 1e-50 is small, but neither 0 nor larger than it should be"""
        x = draw(2, 4) + torch.tensor([0.0, -20.0, -40.0, -120.0], dtype=torch.float64)
        hint = "do not cut off or raise small numbers"
        got, want = student(x, -1), reference.softmax(x, -1)
        for row in range(4):
            case = f"in column {row} of x = {x[0].round(decimals=1).tolist()}, ..."
            assert_close(got[:, row], want[:, row], "the softmax", case=case, atol=0.0, hint=hint)

    @pytest.mark.gradient
    def test_gradient(self, student, reference, draw):
        """The gradient is that of the softmax"""
        for shape, dim in [((3,), 0), ((3, 5), -1), ((3, 5), 0)]:
            case = f"for shape {shape} and dim={dim}"
            assert_same_gradients(student, reference.softmax, [draw(*shape), dim], ["x", "dim"], case=case)

    @pytest.mark.purity
    def test_leaves_x_alone(self, student, draw):
        """x is not modified, and a second call gives the same"""
        assert_pure(student, [draw(3, 5), -1], ["x", "dim"])

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32 in, float32 out; non-contiguous input is fine"""
        assert_float32(student, reference.softmax, [draw(3, 5), -1])
        x = draw.strided(3, 5)
        assert_close(student(x, -1), reference.softmax(x, -1), "the softmax", case="for a non-contiguous x")


@exercise("attention_loop")
class TestAttentionLoop:
    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student, reference, draw):
        """Every output row is the softmax-weighted sum of the values"""
        for size in [*SIZES[:3], (3, 2, 1, 2), (5, 3, 2, 7), (3, 5, 7, 2), (4, 4, 4, 4), (1, 5, 2, 3), (1, 37, 2, 1)]:
            q, k, v = triple(draw, *size)
            assert_close(student(q, k, v), reference.attention_loop(q, k, v), case=given(q=q, k=k, v=v), axes=AXES)

    @pytest.mark.values
    def test_queries_do_not_mix(self, student, draw):
        """Changing one query moves its own row and no other; a query alone gives the row that it gives among others"""
        q, k, v = triple(draw, 5, 3, 2, 7)
        before = student(q, k, v)
        other = q.clone()
        other[2] = draw(2)
        after = student(other, k, v)
        assert_moves(before[2], after[2], "changed query 2", "output 2")
        assert_same(before[[0, 1, 3, 4]], after[[0, 1, 3, 4]], "changed query 2", "the other outputs")
        assert_same(before[3:4], student(q[3:4], k, v), "asked query 3 alone", "its output")

    @pytest.mark.values
    def test_every_key_and_value_counts(self, student, draw):
        """Each value, and each key, reaches every output"""
        q, k, v = triple(draw, 3, 5, 2, 7, scale=0.5)  # no weight vanishes
        before = student(q, k, v)
        for j in range(5):
            for name, args in (("key", [q, k.clone(), v]), ("value", [q, k, v.clone()])):
                args[1 if name == "key" else 2][j] += 1.0
                for row, (one, two) in enumerate(zip(before, student(*args), strict=True)):
                    assert_moves(one, two, f"added 1 to {name} {j}", f"output {row}")

    @pytest.mark.values
    def test_permuting_keys_with_values_changes_nothing(self, student, draw):
        """Keys and values are a set of pairs: their order does not matter, but their pairing does"""
        q, k, v = triple(draw, 3, 5, 2, 7)
        order = draw.permutation(5)
        before = student(q, k, v)
        assert_same(before, student(q, k[order], v[order]), "permuted keys and values together")
        assert_moves(before, student(q, k[order], v), "permuted the keys alone")

    @pytest.mark.numerics
    def test_large_scores(self, student, reference, draw):
        """Scores of a thousand and more give no inf and no nan"""
        q, k, v = triple(draw, 3, 5, 2, 7, scale=40.0)
        got = student(q, k, v)
        assert_finite(got, case="with scores of a thousand and more")
        assert_close(got, reference.attention_loop(q, k, v), case="with scores of a thousand and more", axes=AXES)
        q, k = torch.tensor([[1000.0]]).double(), torch.tensor([[1.0], [0.999], [0.0], [-1.0]]).double()
        v = draw(4, 2)
        case = "with the scores 1000, 999, 0 and -1000"
        assert_close(student(q, k, v), reference.attention_loop(q, k, v), case=case, axes=AXES)

    @pytest.mark.gradient
    def test_gradients(self, student, reference, draw):
        """The gradients with respect to q, k and v are those of the definition"""
        for size in [(1, 2, 2, 1), (3, 5, 2, 7), (4, 4, 4, 4)]:
            args = triple(draw, *size)
            case = f"for (T_q, T_k, d_k, d_v) = {size}"
            assert_same_gradients(student, reference.attention_loop, args, ["q", "k", "v"], case=case)

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """q, k and v are not modified, and a second call gives the same"""
        assert_pure(student, triple(draw, 3, 5, 2, 7), ["q", "k", "v"])

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32 in, float32 out; non-contiguous inputs are fine"""
        assert_float32(student, reference.attention_loop, triple(draw, 3, 5, 2, 7))
        q, k, v = draw.strided(3, 2), draw.strided(5, 2), draw.strided(5, 7)
        assert_close(student(q, k, v), reference.attention_loop(q, k, v), case="for non-contiguous inputs", axes=AXES)


@exercise("attention")
class TestAttention:
    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student, reference, draw):
        """Every output row is the softmax-weighted sum of the values"""
        for size in SIZES:
            q, k, v = triple(draw, *size)
            assert_close(student(q, k, v), reference.attention(q, k, v), case=given(q=q, k=k, v=v), axes=AXES)

    @pytest.mark.values
    def test_leading_dimensions_are_independent(self, student, reference, draw):
        """A batch, or batch and heads, gives what each of its items gives alone"""
        for lead in [(1,), (2,), (2, 3), (3, 3), (4, 4), (1, 1), (2, 3, 2)]:
            q, k, v = triple(draw, *((4,) * 4 if lead == (4, 4) else (5, 11, 7, 13)), *lead)
            case = f"with leading dimensions {lead}"
            assert_close(student(q, k, v), reference.attention(q, k, v), case=case, axes=AXES)

    @pytest.mark.values
    def test_permuting_keys_with_values_changes_nothing(self, student, draw):
        """Keys and values are a set of pairs: their order does not matter, but their pairing does"""
        q, k, v = triple(draw, 5, 11, 7, 13)
        order = draw.permutation(11)
        before = student(q, k, v)
        assert_same(before, student(q, k[order], v[order]), "permuted keys and values together")
        assert_moves(before, student(q, k[order], v), "permuted the keys alone")

    @pytest.mark.values
    def test_depends_on_query_and_key(self, student, draw):
        """Changing one query moves its own row and no other; changing one key moves every row"""
        q, k, v = triple(draw, 5, 11, 7, 13, scale=0.5)  # no weight vanishes
        before = student(q, k, v)
        other = q.clone()
        other[2] = draw(7)
        after = student(other, k, v)
        assert_moves(before[2], after[2], "changed query 2", "output 2")
        assert_same(before[[0, 1, 3, 4]], after[[0, 1, 3, 4]], "changed query 2", "the other outputs")
        other = k.clone()
        other[3] = draw(7)
        for row, (one, two) in enumerate(zip(before, student(q, other, v), strict=True)):
            assert_moves(one, two, "changed key 3", f"output {row}")

    @pytest.mark.values
    def test_stays_between_the_values(self, student, draw):
        """An output lies between the smallest and the largest value, even when the scores are large"""
        q, k, v = triple(draw, 5, 11, 7, 13, scale=20.0)
        got = student(q, k, v)
        low, high = v.amin(0) - 1e-9, v.amax(0) + 1e-9
        inside = (got >= low) & (got <= high)
        what = "whether each output lies inside the range of the values"
        assert_close(inside, torch.ones_like(inside), what, axes=AXES)

    @pytest.mark.numerics
    def test_large_scores(self, student, reference, draw):
        """Scores of some thousands give no inf and no nan"""
        q, k, v = triple(draw, 5, 11, 7, 13, scale=30.0)
        got = student(q, k, v)
        assert_finite(got, case="with scores of some thousands")
        assert_close(got, reference.attention(q, k, v), case="with scores of some thousands", axes=AXES)

    @pytest.mark.gradient
    def test_gradients(self, student, reference, draw):
        """The gradients with respect to q, k and v are those of the definition"""
        for size in [(1, 2, 2, 1), (5, 11, 7, 13), (4, 4, 4, 4)]:
            args = triple(draw, *size)
            case = f"for (T_q, T_k, d_k, d_v) = {size}"
            assert_same_gradients(student, reference.attention, args, ["q", "k", "v"], case=case)

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """q, k and v are not modified, and a second call gives the same"""
        assert_pure(student, triple(draw, 5, 11, 7, 13), ["q", "k", "v"])

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32 in, float32 out; non-contiguous inputs are fine"""
        assert_float32(student, reference.attention, triple(draw, 5, 11, 7, 13))
        q, k, v = draw.strided(5, 7), draw.strided(11, 7), draw.strided(11, 13)
        assert_close(student(q, k, v), reference.attention(q, k, v), case="for non-contiguous inputs", axes=AXES)


@exercise("cross_attention")
class TestCrossAttention:
    NAMES = ("x", "memory", "Wq", "Wk", "Wv")
    AXES = ("position of x", "feature")

    @staticmethod
    def arguments(draw, t_q, t_k, d_model, d_memory, d_k, d_v, *lead, scale=1.0):
        x, memory = draw(*lead, t_q, d_model, scale=scale), draw(*lead, t_k, d_memory, scale=scale)
        return [x, memory, draw(d_model, d_k), draw(d_memory, d_k), draw(d_memory, d_v)]

    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student, reference, draw):
        """Queries come from x, keys and values from memory, and attention does the rest"""
        small = [(1, 1, 1, 1, 1, 1), (1, 2, 1, 1, 1, 1), (2, 3, 1, 2, 1, 2), (3, 2, 2, 2, 2, 2)]
        for size in [*small, (4,) * 6, (5, 11, 3, 2, 7, 13), (11, 5, 2, 3, 7, 13)]:
            args = self.arguments(draw, *size)
            case = given(**dict(zip(self.NAMES, args, strict=True)))
            assert_close(student(*args), reference.cross_attention(*args), case=case, axes=self.AXES)

    @pytest.mark.values
    def test_leading_dimensions_are_independent(self, student, reference, draw):
        """Each sequence of a batch reads its own memory"""
        prime, equal, one = (5, 11, 3, 2, 7, 13), (4,) * 6, (1, 3, 2, 2, 2, 2)
        for size, lead in [(one, (1, 1)), (prime, (2,)), (equal, (4,)), (equal, (4, 4)), (prime, (2, 3))]:
            args = self.arguments(draw, *size, *lead)
            case = f"with leading dimensions {lead}"
            assert_close(student(*args), reference.cross_attention(*args), case=case, axes=self.AXES)

    @pytest.mark.values
    def test_positions_of_x_do_not_see_each_other(self, student, draw):
        """Changing one position of x moves its own output and no other"""
        x, *rest = self.arguments(draw, 5, 5, 3, 3, 2, 7, scale=0.3)  # no weight vanishes
        other = x.clone()
        other[2] = draw(3)
        before, after = student(x, *rest), student(other, *rest)
        assert_moves(before[2], after[2], "changed position 2 of x", "output 2", hint="the queries come from x")
        keep = [0, 1, 3, 4]
        hint = "keys and values come from memory alone"
        assert_same(before[keep], after[keep], "changed position 2 of x", "the other outputs", hint=hint)

    @pytest.mark.values
    def test_every_position_of_memory_is_seen(self, student, draw):
        """Changing any position of memory moves every output: there is no mask"""
        for t_q, t_k in ((3, 3), (2, 5), (5, 2)):
            x, memory, *rest = self.arguments(draw, t_q, t_k, 3, 2, 2, 7, scale=0.3)  # no weight vanishes
            before = student(x, memory, *rest)
            for j in range(t_k):
                other = memory.clone()
                other[j] += 1.0
                change = f"changed position {j} of memory (T_q = {t_q}, T_k = {t_k})"
                for row, (one, two) in enumerate(zip(before, student(x, other, *rest), strict=True)):
                    assert_moves(one, two, change, f"output {row}")

    @pytest.mark.values
    def test_order_of_memory_does_not_matter(self, student, draw):
        """Permuting the positions of memory changes nothing; permuting those of x permutes the outputs"""
        x, memory, *rest = self.arguments(draw, 5, 11, 3, 2, 7, 13)
        before = student(x, memory, *rest)
        assert_same(before, student(x, memory[draw.permutation(11)], *rest), "permuted the positions of memory")
        order = draw.permutation(5)
        after = student(x[order], memory, *rest)
        assert_same(before[order], after, "permuted the positions of x", "each position's output")

    @pytest.mark.values
    def test_memory_equal_to_x_is_self_attention(self, student, reference, draw):
        """With memory = x it is the self-attention of x"""
        x, Wq, Wk, Wv = draw(5, 3), draw(3, 2), draw(3, 2), draw(3, 7)
        want = reference.attention(*reference.qkv_projection(x, Wq, Wk, Wv))
        assert_close(student(x, x.clone(), Wq, Wk, Wv), want, case="with memory = x", axes=self.AXES)

    @pytest.mark.numerics
    def test_large_scores(self, student, reference, draw):
        """Scores of a thousand and more give no inf and no nan"""
        args = self.arguments(draw, 5, 11, 3, 2, 7, 13, scale=30.0)
        got = student(*args)
        assert_finite(got, case="with scores of a thousand and more")
        want = reference.cross_attention(*args)
        assert_close(got, want, case="with scores of a thousand and more", axes=self.AXES)

    @pytest.mark.gradient
    def test_gradients(self, student, reference, draw):
        """The gradients with respect to x, memory and the three matrices are those of the definition"""
        for size in [(1, 2, 2, 1, 1, 1), (5, 11, 3, 2, 7, 13), (4,) * 6]:
            args = self.arguments(draw, *size)
            assert_same_gradients(student, reference.cross_attention, args, self.NAMES, case=f"for sizes {size}")

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """x, memory and the matrices are not modified, and a second call gives the same"""
        assert_pure(student, self.arguments(draw, 5, 11, 3, 2, 7, 13), self.NAMES)

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32 in, float32 out; non-contiguous inputs are fine"""
        assert_float32(student, reference.cross_attention, self.arguments(draw, 5, 11, 3, 2, 7, 13))
        args = [draw.strided(*shape) for shape in ((2, 5, 3), (2, 11, 2), (3, 7), (2, 7), (2, 13))]
        want = reference.cross_attention(*args)
        assert_close(student(*args), want, case="for non-contiguous inputs", axes=self.AXES)


@exercise("score_asymmetry")
class TestScoreAsymmetry:
    NAMES = ("x", "Wq", "Wk")

    @staticmethod
    def arguments(draw, t, d_model, d_k):
        return [draw(t, d_model), draw(d_model, d_k), draw(d_model, d_k)]

    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student, reference, draw):
        """It is the norm of S - S^T over the norm of S, for all sizes"""
        for size in [(2, 2, 1), (2, 2, 2), (3, 2, 1), (4, 4, 4), (5, 7, 3), (11, 5, 2), (5, 3, 13)]:
            args = self.arguments(draw, *size)
            case = given(**dict(zip(self.NAMES, args, strict=True)))
            assert_close(student(*args), reference.score_asymmetry(*args), "the asymmetry", case=case)
        x, Wq, noise = self.arguments(draw, 5, 7, 3)
        close = [x, Wq, Wq + 0.01 * noise]  # a small difference of large numbers: needs the full precision
        want = reference.score_asymmetry(*close)
        assert_close(student(*close), want, "the asymmetry", case="with Wk = Wq plus a little noise")

    @pytest.mark.values
    def test_one_position_is_symmetric(self, student, draw):
        """A single position has one score, and that is symmetric"""
        got = student(*self.arguments(draw, 1, 7, 3))
        assert_close(got, torch.zeros((), dtype=torch.float64), "the asymmetry", case="for T = 1", atol=1e-6)

    @pytest.mark.values
    def test_opposite_directions_give_two(self, student, draw):
        """Where "i scores j" is always minus "j scores i", the asymmetry is 2"""
        W = draw(7, 2)
        turned = torch.stack([W[:, 1], -W[:, 0]], dim=1)  # q_i . k_j = det(q_i, q_j), up to the sign
        got = student(draw(5, 7), W, turned)
        case = "where Wk is Wq turned by 90 degrees, so that S^T = -S"
        assert_close(got, torch.tensor(2.0, dtype=torch.float64), "the asymmetry", case=case)

    @pytest.mark.numerics
    def test_zero_scores_are_symmetric(self, student, draw):
        """Scores that are all 0 give 0.0 in the dtype of x, not nan"""
        for dtype in (torch.float64, torch.float32):
            x, Wq, Wk = (a.to(dtype) for a in self.arguments(draw, 5, 7, 3))
            orthogonal = torch.eye(4, dtype=dtype)
            cases = {
                "with x = 0": (torch.zeros_like(x), Wq, Wk),
                "with Wq = 0": (x, torch.zeros_like(Wq), Wk),
                "with queries that are orthogonal to all keys": (draw(3, 2).to(dtype), orthogonal[:2], orthogonal[2:]),
            }
            for case, args in cases.items():
                assert_close(student(*args), torch.zeros((), dtype=dtype), "the asymmetry", case=case)

    @pytest.mark.numerics
    def test_does_not_depend_on_the_scale(self, student, draw):
        """Scores that are all multiplied by the same number have the same asymmetry"""
        x, Wq, Wk = self.arguments(draw, 5, 7, 3)
        before = student(x, Wq, Wk)
        for factor in (1000.0, 1e-10, 1e-15, -1.0):
            change = f"multiplied all scores by {factor:g}"
            assert_same(before, student(x, Wq * factor, Wk), change, "the asymmetry", atol=1e-7)

    @pytest.mark.values
    def test_depends_on_the_input(self, student, draw):
        """Another x moves it; another order of the positions, or swapping Wq and Wk, does not"""
        x, Wq, Wk = self.arguments(draw, 5, 7, 3)
        before = student(x, Wq, Wk)
        assert_moves(before, student(draw(5, 7), Wq, Wk), "with another x", "the asymmetry")
        assert_same(before, student(x[draw.permutation(5)], Wq, Wk), "permuted the positions of x", "the asymmetry")
        assert_same(before, student(x, Wk, Wq), "swapped Wq and Wk", "the asymmetry")

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """x, Wq and Wk are not modified, and a second call gives the same"""
        assert_pure(student, self.arguments(draw, 5, 7, 3), self.NAMES)

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32 in, float32 out; non-contiguous inputs are fine"""
        assert_float32(student, reference.score_asymmetry, self.arguments(draw, 5, 7, 3))
        args = [draw.strided(5, 7), draw.strided(7, 3), draw.strided(7, 3)]
        want = reference.score_asymmetry(*args)
        assert_close(student(*args), want, "the asymmetry", case="for non-contiguous inputs")
