"""Hidden checks of lesson 05."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

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
    fail,
    given,
    gradients,
)
from grader.checks.public.test_lesson_05 import assert_mask, assert_verdicts

PLACES = ("query", "key")
AXES = ("query", "feature")


def table(rows, columns, rule):
    """The mask that a rule for (row, column) describes: the specification as two plain loops."""
    return torch.tensor([[bool(rule(i, j)) for j in range(columns)] for i in range(rows)], dtype=torch.bool).view(
        rows, columns
    )


@exercise("causal_mask")
class TestCausalMask:
    @pytest.mark.values(points=2)
    def test_square(self, student):
        """With as many queries as keys, query i sees the keys up to i"""
        for n in (1, 2, 3, 4, 7, 16):
            want = table(n, n, lambda i, j: j <= i)
            assert_close(
                student(n),
                want,
                "the mask",
                case=f"for T_q = {n} and no T_k",
                axes=PLACES,
                hint="which triangle does it keep?",
            )
            assert_close(student(n, n), want, "the mask", case=f"for T_q = T_k = {n}", axes=PLACES)

    @pytest.mark.values(points=2)
    def test_more_keys_than_queries(self, student):
        """With fewer queries than keys, the triangle ends in the bottom right corner"""
        for t_q, t_k in [(1, 2), (1, 7), (2, 3), (2, 5), (3, 4), (5, 11), (3, 300)]:
            want = table(t_q, t_k, lambda i, j, past=t_k - t_q: j <= i + past)
            hint = "the last query is the newest token: it sees every key"
            assert_close(
                student(t_q, t_k), want, "the mask", case=f"for T_q = {t_q}, T_k = {t_k}", axes=PLACES, hint=hint
            )
        assert_close(student(2, T_k=3), student(2, 3), "the mask", case="with T_k given by name", axes=PLACES)

    @pytest.mark.values
    def test_fewer_keys_than_queries(self, student):
        """With more queries than keys, the first queries see nothing"""
        for t_q, t_k in [(2, 1), (3, 2), (5, 2), (7, 3)]:
            want = table(t_q, t_k, lambda i, j, past=t_k - t_q: j <= i + past)
            assert_close(student(t_q, t_k), want, "the mask", case=f"for T_q = {t_q}, T_k = {t_k}", axes=PLACES)

    @pytest.mark.causality
    def test_decoding_sees_what_training_saw(self, student):
        """The last rows of the square mask are the mask of the last queries alone"""
        whole = student(7)
        for t_q in (1, 2, 6):
            case = f"for the last {t_q} of 7 positions"
            assert_close(
                student(t_q, 7),
                whole[-t_q:],
                "the mask",
                case=case,
                axes=PLACES,
                hint="compare it with the last rows of causal_mask(7)",
            )

    @pytest.mark.purity
    def test_earlier_calls_do_not_matter(self, student):
        """Earlier calls with other sizes do not matter"""
        for n in (3, 7, 3):
            assert_mask(student(n), (n, n), f"in a row of calls with 3, 7 and 3 positions, at {n}")


@exercise("padding_mask")
class TestPaddingMask:
    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student, draw):
        """A key is visible exactly where its id is not the pad id, wherever that is"""
        for b, t in [(1, 1), (1, 3), (2, 2), (4, 4), (2, 7), (5, 3)]:
            ids = draw.integers(b, t, high=3)
            assert_close(student(ids), (ids != 0)[:, None, None], "the mask", case=given(ids=ids), axes=PLACES)

    @pytest.mark.values
    def test_rows_at_the_edge(self, student):
        """Pads at the start, in the middle, everywhere and nowhere are treated alike"""
        ids = torch.tensor([[0, 0, 5, 6], [5, 0, 0, 6], [0, 0, 0, 0], [1, 2, 3, 4]])
        for row in ids:
            assert_close(student(row[None]), (row != 0)[None, None, None], "the mask", case=given(ids=row[None]))

    @pytest.mark.values(points=2)
    def test_pad_id(self, student, draw):
        """Another pad id counts, also a negative or a large one, and 0 is then an ordinary token"""
        for pad_id, low, high in [
            (1, 0, 3),
            (-1, -1, 2),
            (50256, 50255, 50258),
            (2, -1, 4),
            (2**24 + 1, 2**24, 2**24 + 3),
        ]:
            ids = draw.integers(3, 7, low=low, high=high)
            ids[0, :4] = torch.tensor([pad_id, 0, -5, -100])
            case = f"{given(ids=ids[0])} in row 0 and pad_id = {pad_id}"
            assert_close(student(ids, pad_id), (ids != pad_id)[:, None, None], "the mask", case=case)
            assert_close(student(ids, pad_id=pad_id), (ids != pad_id)[:, None, None], "the mask", case=case)

    @pytest.mark.values
    def test_broadcasts_over_heads_and_queries(self, student, draw):
        """Applied to scores of shape (B, H, T_q, T_k), it hides the same keys in each head and for each query"""
        ids = draw.integers(3, 3, high=2)
        got = student(ids).expand(3, 3, 3, 3)
        assert_close(
            got,
            (ids != 0)[:, None, None].expand(3, 3, 3, 3),
            "the mask over the scores",
            case=given(ids=ids),
            axes=PLACES,
        )

    @pytest.mark.values
    def test_large_ids(self, student):
        """Only the pad id itself is filler, not an id that agrees with it in its last 8, 16 or 32 bits"""
        for pad_id in (0, 3):
            ids = pad_id + torch.tensor([[0, 2**8, 2**16, 2**32]])
            case = f"{given(ids=ids)} and pad_id = {pad_id}"
            assert_close(student(ids, pad_id), (ids != pad_id)[:, None, None], "the mask", case=case)

    @pytest.mark.purity
    def test_leaves_ids_alone(self, student, draw):
        """ids are not modified; int32 and non-contiguous ids are fine"""
        for pad_id in (0, 1):
            assert_pure(student, [draw.integers(2, 5, high=3), pad_id], ["ids", "pad_id"])
        ids = draw.integers(5, 2, high=3).to(torch.int32).T
        assert_close(student(ids), (ids != 0)[:, None, None], "the mask", case="for transposed int32 ids")


@exercise("document_mask")
class TestDocumentMask:
    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student, draw):
        """A query sees a key exactly when both have one segment id and the key is not in the future"""
        for b, t in [(1, 1), (1, 2), (1, 3), (4, 4), (2, 5), (2, 7), (3, 11)]:
            ids = draw.integers(b, t, low=1, high=4).sort(dim=-1).values
            got = student(ids)
            for row, mask in zip(ids.tolist(), got, strict=True):
                want = table(t, t, lambda i, j, s=row: j <= i and s[i] == s[j])
                assert_close(mask, want, "the mask", case=f"for a row of segment_ids {row}", axes=PLACES)

    @pytest.mark.values
    def test_only_equality_of_ids_counts(self, student):
        """Any numbering gives the same mask: from 0, falling, negative, large"""
        want = table(5, 5, lambda i, j: j <= i and (i < 2) == (j < 2))
        for first, second in [
            (0, 1),
            (1, 0),
            (1, 2),
            (7, 3),
            (-1, -2),
            (-1, 1),
            (0, 10**6),
            (1, 3),
            (2**24, 2**24 + 1),
            (3, 3 + 2**32),
            (-100, 5),
        ]:
            ids = torch.tensor([[first, first, second, second, second]])
            assert_close(student(ids)[0], want, "the mask", case=given(segment_ids=ids), axes=PLACES)

    @pytest.mark.values
    def test_a_document_in_two_parts(self, student):
        """Equal ids are one document, also with another document between them"""
        ids = torch.tensor([[4, 4, 9, 4]])
        want = table(4, 4, lambda i, j: j <= i and (i == 2) == (j == 2))
        assert_close(student(ids)[0], want, "the mask", case=given(segment_ids=ids), axes=PLACES)

    @pytest.mark.values
    def test_long_rows(self, student):
        """A long document is not cut: its last position sees its first"""
        ids = torch.cat([torch.full((1, 211), 7), torch.full((1, 102), 8)], 1)
        want = ((ids[:, :, None] == ids[:, None]) & (torch.arange(313)[:, None] >= torch.arange(313)))[0]
        hint = "is a key hidden for being far away?"
        assert_close(student(ids)[0], want, "the mask", case="for documents of 211 and 102 positions", hint=hint)

    @pytest.mark.values
    def test_rows_are_unrelated(self, student, draw):
        """Changing one row's segment ids moves that row's mask and no other"""
        ids = torch.tensor([[1, 1, 2, 2], [1, 2, 2, 2], [3, 3, 3, 4], [1, 1, 1, 1]])
        before = student(ids)
        other = ids.clone()
        other[1] = torch.tensor([1, 1, 1, 2])
        after = student(other)
        assert_same(
            before[[0, 2, 3]], after[[0, 2, 3]], "changed the segment ids of row 1", "the masks of the other rows"
        )
        assert_moves(before[1], after[1], "changed the segment ids of row 1", "its mask")

    @pytest.mark.causality
    def test_packed_equals_separate(self, student, draw):
        """Attention over a packed row gives what its documents give one by one"""
        parts = [draw(n, 3) for n in (3, 1, 2)]
        alone = [F.scaled_dot_product_attention(p, p, p, is_causal=True) for p in parts]
        x, mask = torch.cat(parts), student(torch.tensor([[5, 5, 5, 6, 7, 7]]))[0]
        got = (x @ x.T / math.sqrt(3)).masked_fill(~mask, -math.inf).softmax(-1) @ x
        hint = "is a key of another document, or of the future, visible?"
        assert_close(
            got, torch.cat(alone), "the output for three packed documents", hint=hint, axes=("position", "feature")
        )

    @pytest.mark.purity
    def test_leaves_segment_ids_alone(self, student, draw):
        """segment_ids are not modified; int32 and non-contiguous ids are fine"""
        assert_pure(student, [draw.integers(2, 5, high=3)], ["segment_ids"])
        ids = torch.tensor([[1, 4], [1, 4], [2, 5]], dtype=torch.int32).T
        want = table(3, 3, lambda i, j: j <= i and (i < 2) == (j < 2)).expand(2, 3, 3)
        assert_close(student(ids), want, "the mask", case="for transposed int32 ids", axes=PLACES)


@exercise("combined_mask")
class TestCombinedMask:
    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student, draw):
        """A key is visible exactly when it is no pad and not in the future"""
        for b, t in [(1, 1), (1, 2), (1, 3), (4, 4), (2, 7), (5, 3)]:
            ids = draw.integers(b, t, high=3)
            got = student(ids)
            for row, mask in zip(ids.tolist(), got, strict=True):
                want = table(t, t, lambda i, j, s=row: j <= i and s[j] != 0)[None]
                assert_close(mask, want, "the mask", case=f"for a row of ids {row}", axes=PLACES)

    @pytest.mark.values
    def test_without_pads_it_is_causal(self, student, draw):
        """Without pads it is the causal mask"""
        for t in (1, 2, 5):
            ids = draw.integers(2, t, low=1, high=9)
            want = table(t, t, lambda i, j: j <= i).expand(2, 1, t, t)
            assert_close(student(ids), want, "the mask", case=given(ids=ids), axes=PLACES)

    @pytest.mark.values
    def test_pad_queries(self, student):
        """The row of a pad shows the real tokens up to it; where there are none it stays empty"""
        for row in ([6, 3, 0, 0], [0, 0, 6, 3], [0, 0, 0, 0], [6, 0, 3, 0]):
            want = table(4, 4, lambda i, j, s=row: j <= i and s[j] != 0)[None, None]
            ids = torch.tensor([row])
            hint = "a pad is hidden as a key; as a query it is like any other position"
            assert_close(student(ids), want, "the mask", case=given(ids=ids), axes=PLACES, hint=hint)

    @pytest.mark.values
    def test_pad_id(self, student, draw):
        """Another pad id counts, and 0 is then an ordinary token"""
        for pad_id, low, high in [(1, 0, 3), (-1, -1, 2), (50256, 50255, 50258)]:
            ids = draw.integers(2, 5, low=low, high=high)
            ids[0, :3] = torch.tensor([0, pad_id, 2])
            want = (ids != pad_id)[:, None, None] & table(5, 5, lambda i, j: j <= i)
            assert_close(
                student(ids, pad_id), want, "the mask", case=f"{given(ids=ids)} and pad_id = {pad_id}", axes=PLACES
            )
            assert_close(
                student(ids, pad_id=pad_id),
                want,
                "the mask",
                case=f"{given(ids=ids)} and pad_id = {pad_id}",
                axes=PLACES,
            )

    @pytest.mark.purity
    def test_leaves_ids_alone(self, student, draw):
        """ids are not modified, and calls with other sizes, small or large, do not matter"""
        for pad_id in (0, 1):
            assert_pure(student, [draw.integers(2, 5, high=3), pad_id], ["ids", "pad_id"])
        for b, t in [(2, 3), (2, 7), (1, 211), (2, 3), (3, 3)]:
            ids = draw.integers(b, t, high=3)
            want = (ids != 0)[:, None, None] & (torch.arange(t)[:, None] >= torch.arange(t))
            assert_close(
                student(ids), want, "the mask", case=f"in a row of calls, for ids of shape {(b, t)}", axes=PLACES
            )


SIZES = [(1, 1, 1, 1), (1, 2, 1, 1), (2, 3, 2, 2), (5, 11, 7, 13), (4, 4, 4, 4), (1, 11, 7, 13), (11, 5, 7, 3)]
"""(T_q, T_k, d_k, d_v), from the smallest up."""


def triple(draw, t_q, t_k, d_k, d_v, *lead, scale=1.0):
    return draw(*lead, t_q, d_k, scale=scale), draw(*lead, t_k, d_k, scale=scale), draw(*lead, t_k, d_v)


def with_empty_rows(draw, *shape):
    """A random mask in which the first row of all, and about a third of the others, see nothing."""
    empty = draw.uniform(*shape[:-1], 1) < 0.35
    empty.view(-1)[0] = True
    return draw.mask(*shape) & ~empty


def by_deletion(q, k, v, mask):
    """Attention of one sequence by its meaning: each query meets the keys that it may see, and no others."""
    rows = []
    for query, seen in zip(q, mask, strict=True):
        weights = (k[seen] @ query / math.sqrt(len(query))).softmax(0)
        rows.append(weights @ v[seen] if seen.any() else v.new_zeros(v.shape[-1]))
    return torch.stack(rows)


@exercise("safe_attention")
class TestSafeAttention:
    @pytest.mark.values(points=2)
    def test_hidden_keys_might_as_well_not_exist(self, student, draw):
        """Each query gets what attention over its visible keys alone gives"""
        for size in SIZES:
            q, k, v = triple(draw, *size)
            mask = draw.mask(size[0], size[1], visible=0.5)
            case = f"(T_q, T_k, d_k, d_v) = {size}, {given(mask=mask)}"
            assert_close(student(q, k, v, mask), by_deletion(q, k, v, mask), case=case, axes=AXES)

    @pytest.mark.numerics(points=2)
    def test_empty_rows_are_exact_zeros(self, student, draw):
        """A query that sees nothing gets exact zeros, the other queries are untouched by it"""
        for size in SIZES:
            q, k, v = triple(draw, *size)
            mask = with_empty_rows(draw, size[0], size[1])
            case = f"(T_q, T_k, d_k, d_v) = {size}, {given(mask=mask)}"
            got = student(q, k, v, mask)
            assert_finite(got, case=case)
            assert_close(got, by_deletion(q, k, v, mask), case=case, axes=AXES)
            empty = got[~mask.any(-1)]
            assert_close(
                empty,
                torch.zeros_like(empty),
                "the output of the queries that see nothing",
                case=case,
                rtol=0.0,
                atol=0.0,
            )

    @pytest.mark.values(points=2)
    def test_leading_dimensions_and_mask_shapes(self, student, reference, draw):
        """Batches and heads are independent, and every mask that broadcasts to the scores is understood"""
        for lead, shapes in [
            ((2,), [(5, 11), (2, 5, 11), (1, 11), (2, 1, 11), (5, 1)]),
            ((2, 3), [(5, 11), (2, 1, 1, 11), (2, 1, 5, 11), (2, 3, 5, 11), (3, 5, 11), (1, 1, 5, 11), (1, 1)]),
            ((2, 2), [(2, 1, 1, 11), (2, 5, 11), (2, 1, 5, 11)]),
        ]:
            q, k, v = triple(draw, 5, 11, 7, 13, *lead)
            for shape in shapes:
                masks = [draw.uniform(*shape) < 0.5]
                if shape[-1] > 1:  # few rows may all be empty: the second mask has none
                    masks = [with_empty_rows(draw, *shape), draw.mask(*shape)]
                for mask in masks:
                    case = f"for scores of shape {(*lead, 5, 11)} and a mask of shape {shape}"
                    assert_close(student(q, k, v, mask), reference.safe_attention(q, k, v, mask), case=case, axes=AXES)

    @pytest.mark.causality
    def test_hidden_keys_have_no_influence(self, student, draw):
        """Changing a key and its value moves the queries that see it and no others"""
        q, k, v = triple(draw, 5, 7, 3, 2)
        mask = draw.mask(5, 7)
        mask[:, 3] = torch.tensor([True, False, True, False, False])
        mask[4] = False  # and one query sees nothing at all
        before = student(q, k, v, mask)
        k, v = k.clone(), v.clone()
        k[3], v[3] = draw(3), draw(2) + 50
        after = student(q, k, v, mask)
        hint = "a hidden key has a weight of exactly 0, and it is missing from the sum below the fraction as well"
        assert_same(
            before[[1, 3, 4]],
            after[[1, 3, 4]],
            "changed key 3 and its value",
            "the output of queries that may not see it",
            hint=hint,
        )
        for query in (0, 2):
            assert_moves(
                before[query], after[query], "changed key 3 and its value", f"output {query}, which may see it,"
            )
        weights = student(q, k, torch.eye(7, dtype=q.dtype), mask)[~mask]
        case = "with the identity as values, so that the output shows the weights"
        assert_close(weights, torch.zeros_like(weights), "the weights of hidden keys", case=case, rtol=0.0, atol=0.0)

    @pytest.mark.numerics
    def test_hidden_scores_may_be_huge(self, student, draw):
        """Hidden scores of 1000 and of 1e6 get no weight and do no harm"""
        for height in (1e3, 1e6):
            q, k, v = triple(draw, 3, 5, 4, 2)
            q[:, 0], k[:, 0] = 2.0, 0.0
            k[1, 0], k[4, 0] = height, -height
            mask = torch.ones(3, 5, dtype=torch.bool)
            mask[:, 1] = False
            got = student(q, k, v, mask)
            case = f"with a hidden score of {height:g}"
            assert_finite(got, case=case)
            assert_close(got, by_deletion(q, k, v, mask), case=case, axes=AXES)

    @pytest.mark.gradient
    def test_gradients_beside_huge_hidden_scores(self, student, reference, draw):
        """The gradients are finite and right beside hidden scores of 1000 and of 1e6, above the visible ones and below"""
        for height in (1e3, 1e6):
            q, k, v = triple(draw, 3, 5, 4, 2)
            q[:, 0], k[:, 0] = 2.0, 0.0
            k[1, 0], k[4, 0] = height, -height
            mask = draw.mask(3, 5)
            mask[:, 1], mask[:, 4], mask[:, 2] = False, False, True
            mask[2] = False  # and one query sees nothing at all
            case = f"with hidden scores of plus and minus {height:g}"
            for name, gradient in zip("qkv", _gradients(student, (q, k, v, mask)), strict=True):
                hint = "is an exp taken of hidden scores and dropped only afterwards? Its gradient is 0 * inf"
                assert_finite(gradient, f"the gradient with respect to {name}", f"{case}; {hint}")
            names = ["q", "k", "v", "mask"]
            assert_same_gradients(student, reference.safe_attention, (q, k, v, mask), names, wrt=(0, 1, 2), case=case)

    @pytest.mark.numerics
    def test_visible_scores_may_be_very_low(self, student, draw):
        """Visible scores near -1000 and -1e6 still beat every hidden key, next to rows near 0 and +1000"""
        for depth in (-1e3, -1e6):
            q, k, v = triple(draw, 4, 5, 4, 2)
            q[:, 0], k[:, 0] = torch.tensor([0.0, 1000.0, depth, depth], dtype=torch.float64), 2.0
            mask = draw.mask(4, 5)
            got = student(q, k, v, mask)
            case = f"with rows of scores near 0, +1000 and {depth:g}"
            assert_finite(got, case=case)
            # scores near -1e6 have lost some digits before the softmax
            hint = "a hidden score must be lower than any visible one can be"
            assert_close(got, by_deletion(q, k, v, mask), case=case, axes=AXES, hint=hint, rtol=1e-6, atol=1e-8)

    @pytest.mark.gradient(points=2)
    def test_gradients(self, student, reference, draw):
        """The gradients of q, k and v are finite and right, with and without empty rows"""
        for size in [(1, 2, 2, 1), (2, 3, 2, 2), (4, 4, 4, 4), (5, 11, 7, 13)]:
            args = triple(draw, *size)
            for mask in (
                with_empty_rows(draw, *size[:2]),
                draw.mask(*size[:2]),
                torch.zeros(size[:2], dtype=torch.bool),
            ):
                case = f"(T_q, T_k, d_k, d_v) = {size}, {int((~mask.any(-1)).sum())} of {size[0]} rows empty"
                for name, gradient in zip("qkv", _gradients(student, (*args, mask)), strict=True):
                    assert_finite(gradient, f"the gradient with respect to {name}", case)
                names = ["q", "k", "v", "mask"]
                assert_same_gradients(student, reference.safe_attention, (*args, mask), names, wrt=(0, 1, 2), case=case)

    @pytest.mark.numerics(points=2)
    def test_half_precision(self, student, draw):
        """float16 works, forward and backward, with hidden keys and with empty rows"""
        q, k, v = (t.half() for t in triple(draw, 4, 5, 4, 2))
        mask = with_empty_rows(draw, 4, 5)
        got = student(q, k, v, mask)
        assert_dtype(got, torch.float16, case="when the inputs are float16")
        assert_finite(got, case="in float16")
        want = by_deletion(q.double(), k.double(), v.double(), mask)
        assert_close(got, want, "the output in float16", dtype=False, rtol=1e-2, atol=1e-2, axes=AXES)
        for name, gradient in zip("qkv", _gradients(student, (q, k, v, mask)), strict=True):
            assert_finite(gradient, f"the gradient with respect to {name}", "in float16")

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """q, k, v and the mask are not modified, and a second call gives the same"""
        assert_pure(student, [*triple(draw, 5, 7, 3, 2), with_empty_rows(draw, 5, 7)], ["q", "k", "v", "mask"])

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32 in, float32 out; non-contiguous inputs are fine"""
        mask = with_empty_rows(draw, 5, 11)
        assert_float32(student, reference.safe_attention, [*triple(draw, 5, 11, 7, 13), mask])
        q, k, v, mask = draw.strided(5, 7), draw.strided(11, 7), draw.strided(11, 13), with_empty_rows(draw, 11, 5).T
        assert_close(
            student(q, k, v, mask), reference.safe_attention(q, k, v, mask), case="for non-contiguous inputs", axes=AXES
        )


def _gradients(student, arguments):
    return gradients(student, arguments, (0, 1, 2))


class BothWays:
    """What a conversion between the two meanings of True must do, in either direction."""

    @pytest.mark.values
    def test_entry_by_entry(self, student, draw):
        """Every entry is converted by itself, for masks of any shape"""
        for shape in [(1,), (2, 3), (4, 4), (5, 11), (1, 1, 3, 3), (2, 1, 1, 7), (2, 1, 5, 5), (2, 3, 5, 7), ()]:
            mask = draw.uniform(math.prod(shape)).view(shape) < 0.5
            assert_close(student(mask), mask.logical_not(), "the mask", case=given(mask=mask), axes=PLACES)

    @pytest.mark.values
    def test_empty_and_full_rows(self, student):
        """Rows in which nothing or everything is visible are converted like all others"""
        for mask in (
            torch.zeros(2, 3, dtype=torch.bool),
            torch.ones(2, 3, dtype=torch.bool),
            torch.tensor([[True] * 3, [False] * 3]),
        ):
            assert_close(student(mask), mask.logical_not(), "the mask", case=given(mask=mask), axes=PLACES)

    @pytest.mark.purity
    def test_leaves_the_mask_alone(self, student, draw):
        """The mask is not modified, and the result is a new tensor"""
        mask = draw.mask(3, 5)
        assert_pure(student, [mask], ["mask"])
        kept = mask.clone()
        student(mask).logical_not_()
        assert_close(
            mask, kept, "the argument", case="after the result was changed", axes=PLACES, hint="the two share memory"
        )


@exercise("to_torch_mha_mask")
class TestToTorchMhaMask(BothWays):
    @pytest.mark.mechanism
    def test_module_hides_what_the_course_hides(self, student, draw):
        """nn.MultiheadAttention with the converted mask gives weight to the visible keys only"""
        mask = torch.tensor([[True, False, False], [True, True, False], [False, True, True]])
        weights = weights_of_module(draw, student(mask))
        assert_close(weights > 0, mask, "where nn.MultiheadAttention puts weight", axes=PLACES)


@exercise("from_torch_mha_mask")
class TestFromTorchMhaMask(BothWays):
    @pytest.mark.mechanism
    def test_reads_the_mask_of_the_module(self, student, draw):
        """A key is visible exactly where nn.MultiheadAttention with the original mask puts weight"""
        mask = torch.tensor([[False, True, True], [False, False, True], [True, False, False]])
        weights = weights_of_module(draw, mask)
        assert_close(
            student(mask),
            weights > 0,
            "the mask",
            axes=PLACES,
            hint="compared with the weights of nn.MultiheadAttention",
        )

    @pytest.mark.values
    def test_there_and_back(self, student, reference, draw):
        """It undoes to_torch_mha_mask, and to_torch_mha_mask undoes it"""
        mask = draw.mask(2, 1, 4, 4)
        assert_close(student(reference.to_torch_mha_mask(mask)), mask, "the mask after both conversions", axes=PLACES)
        assert_close(reference.to_torch_mha_mask(student(mask)), mask, "the mask after both conversions", axes=PLACES)


def weights_of_module(draw, mask):
    x = draw(1, mask.shape[-1], 4)
    module = nn.MultiheadAttention(4, 1, bias=False, batch_first=True).double()
    with torch.no_grad():
        return module(x, x, x, attn_mask=mask)[1][0]


@exercise("shift_labels")
class TestShiftLabels:
    @pytest.mark.values(points=2)
    def test_target_is_the_next_token(self, student, draw):
        """inputs[t] is token t and targets[t] is token t + 1, in every row"""
        for b, n in [(1, 2), (1, 3), (2, 2), (4, 4), (2, 7), (5, 3)]:
            ids = draw.integers(b, n, high=50)
            inputs = torch.tensor([[row[t] for t in range(n - 1)] for row in ids.tolist()])
            targets = torch.tensor([[row[t + 1] for t in range(n - 1)] for row in ids.tolist()])
            assert_close(
                student(ids), (inputs, targets), "(inputs, targets)", case=given(ids=ids), axes=("row", "position")
            )

    @pytest.mark.values
    def test_counting(self, student):
        """In a sequence that counts, every target is its input plus 1"""
        inputs, targets = student(torch.arange(12)[None])
        assert_close(
            targets, inputs + 1, "the targets of 0, 1, 2, ... 11", hint="is the sequence shifted once, and to the left?"
        )
        assert_close(inputs[0, 0], torch.tensor(0), "the first input")

    @pytest.mark.values
    def test_leading_dimensions(self, student, draw):
        """The sequence is the last axis, with any leading dimensions or none"""
        for shape in [(7,), (3, 3), (2, 3, 5), (3, 3, 3), (2, 1, 3, 4)]:
            ids = draw.integers(*shape, high=50)
            n = shape[-1]
            want = (ids.narrow(-1, 0, n - 1), ids.narrow(-1, 1, n - 1))
            assert_close(
                student(ids), want, "(inputs, targets)", case=f"for ids of shape {shape}", axes=("row", "position")
            )

    @pytest.mark.values
    def test_one_token(self, student):
        """A single token gives no pair: two empty tensors"""
        for shape in [(1,), (3, 1)]:
            empty = torch.zeros(*shape[:-1], 0, dtype=torch.int64)
            assert_close(
                student(torch.zeros(shape, dtype=torch.int64)),
                (empty, empty),
                "(inputs, targets)",
                case=f"for ids of shape {shape}",
            )

    @pytest.mark.values
    def test_special_ids_are_ordinary(self, student):
        """Pads, negative and large numbers are moved like any other id, and int32 stays int32"""
        ids = torch.tensor([[0, 5, -100, 2**24 + 1, 0, 0]], dtype=torch.int32)
        want = (ids.narrow(-1, 0, 5), ids.narrow(-1, 1, 5))
        assert_close(student(ids), want, "(inputs, targets)", case=given(ids=ids))

    @pytest.mark.purity
    def test_leaves_ids_alone(self, student, draw):
        """ids are not modified, and a second call gives the same"""
        assert_pure(student, [draw.integers(2, 5, high=9)], ["ids"])


def loss_case(draw, *lead, V=7, ignore_index=-100, share=0.4):
    """Random logits, and targets of which the first is counted, the last (of several) ignored, the others at random."""
    targets = draw.integers(*lead, high=V)
    n = targets.numel()
    ignored = draw.uniform(n) < share
    ignored[0] = False
    if n > 1:
        ignored[-1] = True
    if 0 <= ignore_index < V:  # counted targets are some other class
        targets = (targets + (targets == ignore_index)) % V
    targets.view(-1)[ignored] = ignore_index
    return draw(*lead, V), targets


@exercise("masked_cross_entropy")
class TestMaskedCrossEntropy:
    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student, draw):
        """The loss is the sum of -log p over the counted positions, divided by their number"""
        for lead, V in [((1,), 2), ((2,), 3), ((5,), 7), ((2, 3), 7), ((4, 4), 4), ((3, 3), 3), ((2, 3, 5), 7)]:
            logits, targets = loss_case(draw, *lead, V=V)
            terms = [
                row.exp().sum().log() - row[t]
                for row, t in zip(logits.reshape(-1, V), targets.flatten().tolist(), strict=True)
                if t != -100
            ]
            case = f"for logits of shape {(*lead, V)}, {len(terms)} of {targets.numel()} positions counted"
            assert_close(student(logits, targets), torch.stack(terms).mean(), "the loss", case=case)

    @pytest.mark.values(points=2)
    def test_padding_changes_nothing(self, student, draw):
        """Adding ignored positions does not move the loss; grading them does"""
        logits, targets = loss_case(draw, 2, 5)
        before = student(logits, targets)
        longer, ignored = torch.cat([logits, draw(2, 6, 7)], 1), torch.cat([targets, torch.full((2, 6), -100)], 1)
        hint = "divide by the number of counted positions"
        assert_same(before, student(longer, ignored), "added 6 ignored positions to each row", "the loss", hint=hint)
        graded = ignored.clone()
        graded[:, 5:] = draw.integers(2, 6, high=7)
        assert_moves(before, student(longer, graded), "let these positions count", "the loss")

    @pytest.mark.values
    def test_one_mean_over_all(self, student, draw):
        """Every counted position has the same weight, in a short row and in a long one"""
        logits, targets = loss_case(draw, 2, 6)
        targets[0], targets[1] = torch.tensor([1, -100, -100, -100, -100, -100]), torch.tensor([1, 2, 3, 4, 5, 6])
        keep = targets != -100
        want = F.cross_entropy(logits[keep], targets[keep])
        assert_close(student(logits, targets), want, "the loss", case="with 1 counted position in row 0 and 6 in row 1")

    @pytest.mark.values
    def test_class_zero_counts(self, student, draw):
        """Class 0 is a class like any other, and so is the last"""
        logits = draw(4, 7)
        for targets in (torch.tensor([0, 0, 0, 0]), torch.tensor([0, 3, -100, 6]), torch.tensor([6, 6, -100, 0])):
            want = F.cross_entropy(logits, targets)
            assert_close(student(logits, targets), want, "the loss", case=given(targets=targets))

    @pytest.mark.values(points=2)
    def test_ignore_index(self, student, draw):
        """Another ignore_index counts, also one that is a class, and -100 is then nothing special"""
        for ignore_index in (0, 3, 6, -1, 999):
            logits, targets = loss_case(draw, 2, 6, ignore_index=ignore_index)
            want = F.cross_entropy(logits.view(-1, 7), targets.view(-1), ignore_index=ignore_index)
            for got in (student(logits, targets, ignore_index), student(logits, targets, ignore_index=ignore_index)):
                assert_close(got, want, "the loss", case=f"with ignore_index = {ignore_index}")
        logits, targets = loss_case(draw, 13, V=307, ignore_index=137)
        targets[0] = 306
        want = F.cross_entropy(logits, targets, ignore_index=137)
        assert_close(student(logits, targets, 137), want, "the loss", case="with V = 307 and ignore_index = 137")

    @pytest.mark.gradient(points=2)
    def test_gradient(self, student, reference, draw):
        """The gradient of the logits is that of the definition, and 0 at ignored positions"""
        for lead in [(2,), (5,), (2, 6)]:
            logits, targets = loss_case(draw, *lead)
            assert_same_gradients(
                student,
                reference.masked_cross_entropy,
                [logits, targets],
                ["logits", "targets"],
                case=f"for {lead} positions",
            )

    @pytest.mark.gradient(points=2)
    def test_nothing_counts(self, student, draw):
        """If no position counts, the loss is 0.0 and backward() gives gradients of 0"""
        for lead, ignore_index in [((1,), -100), ((3,), -100), ((2, 5), -100), ((2, 5), 3)]:
            logits = draw(*lead, 7).requires_grad_()
            loss = student(logits, torch.full(lead, ignore_index), ignore_index)
            case = f"when all of {lead} positions are ignored"
            assert_close(loss, torch.zeros((), dtype=torch.float64), "the loss", case=case)
            if not loss.requires_grad:
                fail(
                    f"loss.backward() would raise {case}: the loss is not connected with the logits",
                    evidence="no gradient",
                )
            loss.backward()
            if logits.grad is not None:
                assert_close(logits.grad, torch.zeros_like(logits), "the gradient of the logits", case=case)

    @pytest.mark.numerics
    def test_large_logits(self, student, draw):
        """Logits of 1000 and -1000 give neither inf nor nan"""
        x, targets = loss_case(draw, 6)
        heights = torch.tensor([[0.0], [1e3], [-1e3]] * 2, dtype=torch.float64)
        for logits in (x * 1000, x + 1000, x - 1000, x + heights):
            got = student(logits, targets)
            assert_finite(got, "the loss", "for logits of some thousands")
            assert_close(got, F.cross_entropy(logits, targets), "the loss", case="for logits of some thousands")

    @pytest.mark.values
    def test_ignored_logits_have_no_influence(self, student, draw):
        """Changing the logits at an ignored position does not move the loss; at a counted one it does"""
        logits, targets = loss_case(draw, 6)
        before = student(logits, targets)
        for position, counted in ((5, False), (0, True)):
            other = logits.clone()
            other[position] = draw(7, scale=1e4)
            after = student(other, targets)
            if counted:
                assert_moves(before, after, "changed the logits at a counted position", "the loss")
            else:
                assert_same(before, after, "changed the logits at an ignored position", "the loss")

    @pytest.mark.purity
    def test_leaves_arguments_alone(self, student, draw):
        """logits and targets are not modified, and a second call gives the same"""
        assert_pure(student, loss_case(draw, 2, 6), ["logits", "targets"])

    @pytest.mark.numerics
    def test_follows_the_dtype(self, student, reference, draw):
        """float32 in, float32 out; non-contiguous inputs are fine"""
        logits, targets = loss_case(draw, 2, 6)
        assert_float32(student, reference.masked_cross_entropy, [logits, targets])
        assert_dtype(
            student(logits.float(), torch.full((2, 6), -100)),
            torch.float32,
            "the loss",
            "when nothing counts and logits are float32",
        )
        logits, targets = draw.strided(2, 6, 7), targets.T.contiguous().T
        assert_close(
            student(logits, targets),
            reference.masked_cross_entropy(logits, targets),
            "the loss",
            case="for non-contiguous inputs",
        )


@exercise("completion_loss_mask")
class TestCompletionLossMask:
    @pytest.mark.values(points=2)
    def test_equals_the_definition(self, student):
        """Position t counts exactly when token t + 1 belongs to the answer"""
        for T, lengths in [
            (1, [1]),
            (1, [2]),
            (2, [2]),
            (3, [1, 3]),
            (4, [4, 1, 2, 3]),
            (5, [2, 5, 3]),
            (7, [6, 2]),
            (3, [3, 3, 1]),
        ]:
            want = table(len(lengths), T, lambda b, t, p=lengths: t + 1 >= p[b])
            lengths = torch.tensor(lengths)
            case = f"{given(prompt_lengths=lengths)} and T = {T}"
            assert_close(
                student(lengths, T),
                want,
                "the mask",
                case=case,
                axes=("row", "position"),
                hint="which token does position t predict?",
            )

    @pytest.mark.values
    def test_without_prompt_and_without_answer(self, student):
        """Prompts of 0 and 1 tokens leave all targets, prompts of T tokens leave one, longer ones none"""
        lengths = torch.tensor([0, 1, 4, 5, 6, 100])
        want = table(6, 4, lambda b, t: (True, True, t == 3, False, False, False)[b])
        assert_close(
            student(lengths, 4),
            want,
            "the mask",
            case=f"{given(prompt_lengths=lengths)} and T = 4",
            axes=("row", "position"),
        )

    @pytest.mark.values
    def test_long_rows(self, student):
        """Long prompts and long rows are cut at the same place as short ones"""
        lengths = torch.tensor([0, 97, 256, 300, 301, 2**16, 2**32])
        want = torch.arange(300) + 1 >= lengths[:, None]
        case = f"{given(prompt_lengths=lengths)} and T = 300"
        assert_close(student(lengths, 300), want, "the mask", case=case, axes=("row", "position"))

    @pytest.mark.values(points=2)
    def test_lines_up_with_the_targets(self, student, draw):
        """The counted targets of shift_labels are the tokens of the answer, all of them and no others"""
        for n, lengths in [(4, [2]), (8, [3, 7, 1, 5])]:
            answer = torch.tensor([[100 * (b + 1) + i for i in range(n)] for b in range(len(lengths))])
            mask = student(torch.tensor(lengths), n - 1)
            for row, length, counted in zip(answer, lengths, mask, strict=True):
                got = row[1:][counted]
                case = f"the row {row.tolist()} with a prompt of {length} tokens"
                assert_close(
                    got,
                    row[max(length, 1) :],
                    "the graded targets",
                    case=case,
                    hint="is the first token of the answer graded?",
                )

    @pytest.mark.values
    def test_rows_are_unrelated(self, student):
        """Changing one prompt's length moves its own row and no other"""
        before, after = student(torch.tensor([2, 3, 4]), 5), student(torch.tensor([2, 5, 4]), 5)
        assert_same(before[[0, 2]], after[[0, 2]], "changed the length of prompt 1", "the other rows")
        assert_moves(before[1], after[1], "changed the length of prompt 1", "its row")

    @pytest.mark.purity
    def test_leaves_prompt_lengths_alone(self, student):
        """prompt_lengths are not modified; int32 is fine"""
        assert_pure(student, [torch.tensor([2, 5, 1]), 4], ["prompt_lengths", "T"])
        want = table(2, 4, lambda b, t: t + 1 >= (2, 4)[b])
        assert_close(
            student(torch.tensor([2, 4], dtype=torch.int32), 4),
            want,
            "the mask",
            case="for int32 lengths",
            axes=("row", "position"),
        )


# ------------------------------------------------------------------------------------------------ models for is_causal


def weights(T):
    """Fixed numbers between 0.5 and 1.5, (T, T), which begin alike for all T."""
    i = torch.arange(T, dtype=torch.float64)
    return 1 + 0.5 * torch.cos(2.1 * i[:, None] + 1.3 * i * i + 0.4)


def past(T):
    return torch.ones(T, T, dtype=torch.bool).tril()


def mixing(visible=past):
    """A model whose output t is a weighted sum of the inputs that row t of visible(T) shows."""
    mixers = {}  # for small T only: the answer chooses how many different ones there are

    def f(x):
        T = x.shape[1]
        mixer = mixers[T] if T in mixers else weights(T) * visible(T)
        if T <= 16:
            mixers[T] = mixer
        return mixer @ x

    return f


def past_and(*cells):
    """The causal mask plus single cells, given as functions of T that return (row, column)."""

    def visible(T):
        mask = past(T).clone()
        for cell in cells:
            row, column = cell(T)
            if 0 <= row < T and 0 <= column < T:
                mask[row, column] = True
        return mask

    return visible


def heads(draw, visible):
    """Attention with one head for each mask, concatenated: (B, T, 2 * heads)."""
    maps = [(draw(8, 3, scale=0.3), draw(8, 3, scale=0.3), draw(8, 2)) for _ in visible]

    def f(x):
        parts = []
        for (wq, wk, wv), mask in zip(maps, visible, strict=True):
            scores = (x @ wq) @ (x @ wk).mT
            parts.append(scores.masked_fill(~mask(x.shape[1]), -math.inf).softmax(-1) @ (x @ wv))
        return torch.cat(parts, -1)

    return f


def everything(T):
    return torch.ones(T, T, dtype=torch.bool)


def fft_convolution(x, scale):
    """A causal convolution by Fourier transforms: the past does not depend on the future, but its last digits do."""
    T = x.shape[1]
    kernel = torch.fft.rfft(weights(T)[0], 2 * T)[:, None]
    return scale * torch.fft.irfft(torch.fft.rfft(x, 2 * T, dim=1) * kernel, 2 * T, dim=1)[:, :T]


def running_mean(x):
    return x.cumsum(1) / torch.arange(1, x.shape[1] + 1, dtype=x.dtype)[:, None]


@exercise("is_causal")
class TestIsCausal:
    """Each check has a model without a leak beside those with one: an answer that always says the same passes none."""

    @pytest.mark.causality
    def test_mask_off_by_one(self, student, draw):
        """Finds a mask that shows one position too many, and a shift that wraps around"""
        too_many, wraps = mixing(lambda T: everything(T).tril(1)), lambda x: x.roll(1, dims=1)
        assert_verdicts(
            student,
            draw,
            (mixing(), True, "a model whose output t is a weighted sum of the inputs 0 to t"),
            (too_many, False, "a model whose output t reads the inputs 0 to t + 1"),
            (wraps, False, "a shift by one place that brings the last input to the front (roll)"),
        )

    @pytest.mark.causality
    def test_attention(self, student, draw):
        """Tells causal attention from attention without a mask, with an inverted one, with one open head of four"""
        inverted, one_open = [lambda T: past(T).T], [past, past, everything, past]
        assert_verdicts(
            student,
            draw,
            (heads(draw, [past]), True, "attention with a causal mask"),
            (heads(draw, [everything]), False, "attention without a mask"),
            (heads(draw, inverted), False, "attention in which every query sees itself and its future"),
            (heads(draw, one_open), False, "attention in which one head of four has no mask"),
        )

    @pytest.mark.causality
    def test_single_row(self, student, draw):
        """Finds a leak into a single output row: the first, the middle one, the last but one"""
        models = [(mixing(past_and(lambda T: (T - 1, 0))), True, "a weighted sum of the past")]
        for row, where in (
            (lambda T: 0, "the first row"),
            (lambda T: T // 2, "the middle row"),
            (lambda T: T - 2, "the last row but one"),
        ):
            model = f"a weighted sum of the past in which {where} alone also reads the last input"
            models.append((mixing(past_and(lambda T, r=row: (r(T), T - 1))), False, model))
        but_last = mixing(lambda T: past(T) | (torch.arange(T) < T - 1))
        words = "a model whose mask hides the last position only, and nothing else of the future,"
        assert_verdicts(student, draw, *models, (but_last, False, words))

    @pytest.mark.causality
    def test_far_ahead_and_near(self, student, draw):
        """Finds a leak from exactly one place far ahead, and leaks inside blocks of four positions"""
        up_to = mixing(lambda T: everything(T).tril(-3))
        ahead = mixing(lambda T: past(T) | torch.ones(T, T, dtype=torch.bool).triu(9).tril(9))
        models = [
            (up_to, True, "a model whose output t reads the inputs up to t - 3"),
            (ahead, False, "a weighted sum of the past in which output t also reads the input t + 9"),
        ]
        for row, column in ((0, 1), (1, 2), (3, 8), (2, 7)):
            single = mixing(past_and(lambda T, cell=(row, column): cell))
            model = f"a weighted sum of the past in which output {row} also reads the input {column}"
            models.append((single, False, model))
        block = mixing(lambda T: past(T) | (torch.arange(T)[:, None] // 4 == torch.arange(T) // 4))
        words = "a model in which the four positions of a block see each other"
        assert_verdicts(student, draw, *models, (block, False, words))

    @pytest.mark.causality
    def test_one_channel(self, student, draw):
        """Finds a leak in one channel of the output, and one from a single channel of the input"""
        channel = torch.zeros(8, dtype=torch.float64)
        channel[5] = 1.0
        causal, open_ = mixing(), mixing(everything)
        beside = lambda x: torch.cat([causal(x), x.tanh()], -1)  # noqa: E731
        out_of_one = lambda x: causal(x) + open_(x) * channel  # noqa: E731
        into_one = lambda x: causal(x) + open_(x * channel)  # noqa: E731
        cancels = lambda x: causal(x) + (open_(x) - causal(x))[..., :1] * torch.tensor([1.0, -1.0] * 4, dtype=x.dtype)  # noqa: E731
        assert_verdicts(
            student,
            draw,
            (beside, True, "a weighted sum of the past beside a map of each input"),
            (out_of_one, False, "a weighted sum that reads the future in output channel 5 alone"),
            (into_one, False, "a weighted sum that reads the future of input channel 5 alone"),
            (cancels, False, "a weighted sum whose channels read the future with alternating signs"),
        )

    @pytest.mark.causality
    def test_norm_over_time(self, student, draw):
        """Tells a norm over the features from a norm over time"""
        causal, open_ = mixing(), mixing(everything)
        over_features = lambda x: F.layer_norm(causal(x), (8,))  # noqa: E731
        over_time = lambda x: F.layer_norm(causal(x), causal(x).shape[1:])  # noqa: E731
        first_norm = lambda x: open_(F.layer_norm(x, (8,), eps=1e-30))  # noqa: E731
        scaled = lambda x: causal(x) / (causal(x).square().mean(1, keepdim=True) + 1e-5).sqrt()  # noqa: E731
        assert_verdicts(
            student,
            draw,
            (over_features, True, "a causal model with a layer norm over its features"),
            (over_time, False, "a causal model with a layer norm over time and features together"),
            (first_norm, False, "a model without a mask that normalizes each input first"),
            (scaled, False, "a causal model whose channels are divided by their root mean square over time"),
        )

    @pytest.mark.causality
    def test_pooled_statistic(self, student, draw):
        """Finds a faint trace of the whole sequence, a gate made from it, a future multiplied by the own input"""
        faint = lambda x: running_mean(x) + 1e-3 * x.mean(1, keepdim=True)  # noqa: E731
        gate = lambda x: running_mean(x) * x.mean(1, keepdim=True).sigmoid()  # noqa: E731
        product = lambda x: x * (x.flip(1).cumsum(1).flip(1) - x)  # noqa: E731
        assert_verdicts(
            student,
            draw,
            (running_mean, True, "a running mean"),
            (faint, False, "a running mean plus a thousandth of the mean over the whole sequence"),
            (gate, False, "a running mean times a gate that is made from the whole sequence"),
            (product, False, "a model whose output t is the input t times the sum of all later inputs"),
        )

    @pytest.mark.causality
    def test_without_a_gradient(self, student, draw):
        """Finds leaks that pass through a detached maximum or a comparison"""
        running = lambda x: x.cummax(1).values.detach()  # noqa: E731
        by_maximum = lambda x: x / x.detach().abs().amax((1, 2), keepdim=True)  # noqa: E731
        sign = lambda x: x.cumsum(1) + 0.5 * (x.sum((1, 2), keepdim=True) > 0).to(x.dtype)  # noqa: E731
        assert_verdicts(
            student,
            draw,
            (running, True, "a detached running maximum"),
            (by_maximum, False, "a model that divides by the (detached) largest entry of the whole sequence"),
            (sign, False, "a running sum plus 1/2 if the sum over the whole sequence is positive"),
        )

    @pytest.mark.causality
    def test_only_long_inputs(self, student, draw):
        """Finds leaks that show only beyond 8 positions"""
        first_eight = mixing(lambda T: past(T) & (torch.arange(T) < 8))
        built_for_eight = mixing(lambda T: past(T) | (torch.arange(T)[:, None] >= 8))
        switch = lambda x: x.cumsum(1) if x.shape[1] < 12 else x.cumsum(1) + x.mean(1, keepdim=True)  # noqa: E731
        assert_verdicts(
            student,
            draw,
            (first_eight, True, "a model that reads the first eight positions of the past"),
            (built_for_eight, False, "a model whose mask ends at position 8: later outputs read everything"),
            (switch, False, "a running sum that adds the mean of the whole sequence from a length of 12 on"),
            questions=4,  # nearly all lengths are tried before these leaks show
        )

    @pytest.mark.causality
    def test_only_some_lengths(self, student, draw):
        """Finds leaks that show at some lengths only: at 1, up to 2, at exactly 7, where blocks of four are incomplete"""
        short = mixing(lambda T: everything(T) if T <= 2 else past(T))
        seven = mixing(lambda T: everything(T) if T == 7 else past(T))
        alone = lambda x: x + (x.roll(1, dims=0) if x.shape[1] == 1 else 0.0)  # noqa: E731
        rest = mixing(lambda T: past(T) | (torch.arange(T)[:, None] >= T - T % 4))
        assert_verdicts(
            student,
            draw,
            (lambda x: x[..., :1], True, "a model that gives back one channel of its input"),
            (short, False, "a model that leaves its mask out for inputs of 2 positions or fewer"),
            (seven, False, "a model whose mask is missing for inputs of exactly 7 positions"),
            (alone, False, "a model that mixes the samples of a batch where T = 1, and only there,"),
            (rest, False, "a model whose last block of fewer than four positions has no mask"),
        )

    @pytest.mark.causality
    def test_one_sample(self, student, draw):
        """Finds a leak in one sample of the batch only"""
        causal, open_ = mixing(), mixing(everything)
        models = [(lambda x: causal(x).tanh(), True, "a causal model with tanh")]
        for sample in (0, 1, 2):
            chosen = lambda x, s=sample: (torch.arange(len(x)) == s)[:, None, None]  # noqa: E731
            leaks = lambda x, c=chosen: torch.where(c(x), open_(x), causal(x))  # noqa: E731
            models.append((leaks, False, f"a model whose mask is missing for sample {sample} of the batch"))
        assert_verdicts(student, draw, *models)

    @pytest.mark.causality
    def test_batch_taken_for_time(self, student, draw):
        """Finds one sample leaking into another"""
        causal = mixing()
        turned = lambda x: causal(x.transpose(0, 1)).transpose(0, 1)  # noqa: E731
        assert_verdicts(
            student,
            draw,
            (lambda x: causal(x) - x, True, "a weighted sum of the past minus the input"),
            (turned, False, "a model that takes the batch axis for time"),
            (lambda x: causal(x) - x.mean(0), False, "a model that subtracts the mean over the batch"),
            (lambda x: causal(x) + x[-1:], False, "a model in which every sample reads the last one"),
        )

    @pytest.mark.numerics
    def test_large_outputs(self, student, draw):
        """Accepts rounding in outputs of 1e8, and still finds a leak in them"""
        convolution = lambda x: fft_convolution(x, 1e8)  # noqa: E731
        leak = lambda x: fft_convolution(x, 1e8) + 1e5 * x.mean(1, keepdim=True)  # noqa: E731
        words = "a causal convolution by Fourier transforms, with outputs of 1e8"
        assert_verdicts(
            student,
            draw,
            (convolution, True, words),
            (leak, False, f"{words}, plus the mean over the whole sequence, times 1e5,"),
        )

    @pytest.mark.numerics
    def test_small_outputs(self, student, draw):
        """Finds a leak in outputs of 1e-12"""
        causal, open_ = mixing(), mixing(everything)
        assert_verdicts(
            student,
            draw,
            (lambda x: 1e-12 * causal(x), True, "a causal model with outputs of 1e-12"),
            (lambda x: 1e-12 * open_(x), False, "a model without a mask, with outputs of 1e-12,"),
        )

    @pytest.mark.numerics
    def test_constant_output(self, student, draw):
        """Accepts outputs that are zero whatever the input is, and tells them from outputs that are mostly zero"""
        zeros = torch.zeros(1, 1, 3, dtype=torch.float64)
        last = lambda x: torch.where(torch.arange(x.shape[1])[:, None] == 0, x[:, -1:], 0.0)  # noqa: E731
        assert_verdicts(
            student,
            draw,
            (lambda x: zeros.expand(*x.shape[:2], 3), True, "a model that returns zeros whatever its input is"),
            (last, False, "a model that returns zeros, but the last input at position 0,"),
        )

    @pytest.mark.values
    def test_networks(self, student, draw):
        """Tells a block with dropout switched off from a recurrent network that reads both ways"""
        block = nn.Sequential(nn.Linear(8, 4), nn.GELU(), nn.Dropout(0.5)).double().eval()
        both = nn.RNN(8, 3, batch_first=True, bidirectional=True).double()
        causal = mixing()
        dropout = "a causal model with dropout that is switched off"
        assert_verdicts(
            student,
            draw,
            (lambda x: block(causal(x)).detach(), True, dropout),
            (lambda x: both(x)[0].detach(), False, "a recurrent network that reads in both directions"),
        )
