"""Public checks of lesson 05: hand-computed cases and properties."""

import math

import pytest
import torch

from grader.checks import exercise
from grader.checks.assertions import assert_close, assert_dtype, assert_shape, fail, given, require, show

T, F = True, False
PLACES = ("query", "key")


def assert_mask(got, shape, case):
    assert_shape(got, shape, "the mask", case)
    assert_dtype(got, torch.bool, "the mask", case)


@exercise("causal_mask")
class TestCausalMask:
    @pytest.mark.shape
    def test_shape_and_dtype(self, student):
        """The mask is boolean, one row for each query and one column for each key"""
        for t_q, t_k in [(1, 1), (3, 3), (2, 5), (5, 2)]:
            assert_mask(student(t_q, t_k), (t_q, t_k), f"for T_q = {t_q}, T_k = {t_k}")
        assert_mask(student(4), (4, 4), "for T_q = 4 and no T_k")

    @pytest.mark.values
    def test_three_positions_by_hand(self, student):
        """With three positions, query 0 sees key 0, query 1 sees keys 0 and 1, query 2 sees all"""
        want = torch.tensor([[T, F, F], [T, T, F], [T, T, T]])
        assert_close(
            student(3),
            want,
            "the mask",
            case="for T_q = 3",
            axes=PLACES,
            hint="True means that the query may see the key",
        )

    @pytest.mark.values
    def test_last_query_sees_everything(self, student):
        """The last query stands at the last key and sees every key"""
        for t_q, t_k in [(1, 1), (1, 4), (2, 5), (3, 3)]:
            row = student(t_q, t_k)[-1]
            case = f"for T_q = {t_q}, T_k = {t_k}"
            assert_close(
                row,
                torch.ones(t_k, dtype=torch.bool),
                "the last row of the mask",
                case=case,
                hint="queries and keys end together",
            )


@exercise("padding_mask")
class TestPaddingMask:
    @pytest.mark.shape
    def test_shape_and_dtype(self, student, draw):
        """The mask is boolean with the shape (B, 1, 1, T)"""
        for b, t in [(1, 1), (2, 5), (3, 3)]:
            assert_mask(student(draw.integers(b, t, high=4)), (b, 1, 1, t), f"for ids of shape {(b, t)}")

    @pytest.mark.values
    def test_two_sentences_by_hand(self, student):
        """Real tokens are visible, pads are not"""
        ids = torch.tensor([[7, 4, 9, 2], [5, 8, 0, 0]])
        want = torch.tensor([[T, T, T, T], [T, T, F, F]])[:, None, None]
        assert_close(student(ids), want, "the mask", case=given(ids=ids), hint="True means that the key may be seen")


@exercise("document_mask")
class TestDocumentMask:
    @pytest.mark.shape
    def test_shape_and_dtype(self, student, draw):
        """The mask is boolean with the shape (B, T, T)"""
        for b, t in [(1, 1), (2, 5), (3, 3)]:
            assert_mask(student(draw.integers(b, t, high=3)), (b, t, t), f"for segment_ids of shape {(b, t)}")

    @pytest.mark.values
    def test_two_documents_by_hand(self, student):
        """A document of two tokens and one of one token do not see each other, and nobody looks ahead"""
        ids = torch.tensor([[1, 1, 2]])
        want = torch.tensor([[[T, F, F], [T, T, F], [F, F, T]]])
        assert_close(student(ids), want, "the mask", case=given(segment_ids=ids), axes=PLACES)


@exercise("combined_mask")
class TestCombinedMask:
    @pytest.mark.shape
    def test_shape_and_dtype(self, student, draw):
        """The mask is boolean with the shape (B, 1, T, T)"""
        for b, t in [(1, 1), (2, 5), (3, 3)]:
            assert_mask(student(draw.integers(b, t, high=3)), (b, 1, t, t), f"for ids of shape {(b, t)}")

    @pytest.mark.values
    def test_pads_at_the_start_by_hand(self, student):
        """With a pad at the start, query 0 sees nothing and the others see the real tokens up to themselves"""
        ids = torch.tensor([[0, 6, 3]])
        want = torch.tensor([[[[F, F, F], [F, T, F], [F, T, T]]]])
        assert_close(student(ids), want, "the mask", case=given(ids=ids), axes=PLACES)


@exercise("safe_attention")
class TestSafeAttention:
    @pytest.mark.shape
    def test_one_row_a_query(self, student, draw):
        """The output has a row for each query and the width of the values"""
        for lead in [(), (2,), (2, 3)]:
            q, k, v, mask = draw(*lead, 5, 7), draw(*lead, 11, 7), draw(*lead, 11, 13), draw.mask(5, 11)
            assert_shape(student(q, k, v, mask), (*lead, 5, 13), "the output", given(q=q, k=k, v=v))

    @pytest.mark.values
    def test_hidden_key_by_hand(self, student):
        """Of three keys with the scores 0, ln 3 and ln 4 the last is hidden: the others get 1/4 and 3/4"""
        q = torch.tensor([[2.0, 0.0, 0.0, 0.0]], dtype=torch.float64)  # sqrt(d_k) = 2
        k = torch.zeros(3, 4, dtype=torch.float64)
        k[:, 0] = torch.tensor([1.0, 3.0, 4.0]).double().log()
        v, mask = torch.eye(3, dtype=torch.float64), torch.tensor([[T, T, F]])
        want = torch.tensor([[0.25, 0.75, 0.0]], dtype=torch.float64)
        hint = "the mask belongs before the softmax, and the scores are divided by sqrt(d_k)"
        assert_close(
            student(q, k, v, mask),
            want,
            "the output",
            case="with the identity as values, so that it shows the weights",
            hint=hint,
        )

    @pytest.mark.numerics
    def test_empty_row_gives_zeros(self, student, draw):
        """A query that sees nothing gets zeros"""
        q, k, v = draw(2, 3), draw(3, 3), draw(3, 2)
        mask = torch.tensor([[F, F, F], [T, F, T]])[:2]
        got = student(q, k, v, mask)[0]
        assert_close(
            got,
            torch.zeros_like(got),
            "the output of a query that sees nothing",
            hint="what does the softmax of such a row give?",
        )


class BothWays:
    """What a conversion between the two meanings of True must do, in either direction."""

    @pytest.mark.shape
    def test_shape_and_dtype(self, student):
        """The shape stays, and the result is boolean"""
        for shape in [(1, 1), (2, 5), (2, 1, 3, 3)]:
            assert_mask(student(torch.ones(shape, dtype=torch.bool)), shape, f"for a mask of shape {shape}")

    @pytest.mark.values
    def test_two_positions_by_hand(self, student):
        """Every entry means the opposite, and none changes its place"""
        mask = torch.tensor([[T, F], [T, T]])
        assert_close(student(mask), torch.tensor([[F, T], [F, F]]), "the mask", case=given(mask=mask), axes=PLACES)


@exercise("to_torch_mha_mask")
class TestToTorchMhaMask(BothWays):
    pass


@exercise("from_torch_mha_mask")
class TestFromTorchMhaMask(BothWays):
    pass


@exercise("shift_labels")
class TestShiftLabels:
    @pytest.mark.shape
    def test_one_pair_less_than_tokens(self, student):
        """n tokens give n - 1 inputs and n - 1 targets"""
        for shape in [(2,), (2, 5), (2, 3, 4)]:
            pair = student(torch.arange(math.prod(shape)).view(shape))
            require(
                isinstance(pair, tuple | list) and len(pair) == 2,
                f"the result should be the pair (inputs, targets) but is {show(pair)}",
            )
            for name, part in zip(("inputs", "targets"), pair, strict=True):
                assert_shape(part, (*shape[:-1], shape[-1] - 1), name, f"for ids of shape {shape}")

    @pytest.mark.values
    def test_a_sentence_by_hand(self, student):
        """The target at each position is the token that comes next"""
        ids = torch.tensor([[1, 7, 4, 9, 2]])
        want = (torch.tensor([[1, 7, 4, 9]]), torch.tensor([[7, 4, 9, 2]]))
        assert_close(
            student(ids), want, "(inputs, targets)", case=given(ids=ids), hint="targets[t] is the token after inputs[t]"
        )


@exercise("masked_cross_entropy")
class TestMaskedCrossEntropy:
    @pytest.mark.shape
    def test_is_one_number(self, student, draw):
        """The loss is a tensor without dimensions"""
        for lead in [(1,), (5,), (2, 3)]:
            assert_shape(
                student(draw(*lead, 7), draw.integers(*lead, high=7)),
                (),
                "the loss",
                f"for logits of shape {(*lead, 7)}",
            )

    @pytest.mark.values
    def test_mean_over_the_counted_by_hand(self, student):
        """Targets with the probabilities 1/2 and 1/4 and an ignored one give (ln 2 + ln 4) / 2"""
        p = torch.tensor([[0.5, 0.25, 0.25], [0.5, 0.25, 0.25], [0.1, 0.1, 0.8]], dtype=torch.float64)
        targets = torch.tensor([0, 1, -100])
        want = torch.tensor((math.log(2) + math.log(4)) / 2, dtype=torch.float64)
        case = "with the probabilities 1/2 and 1/4 at counted positions and 1/10 at one that is ignored"
        assert_close(
            student(p.log(), targets), want, "the loss", case=case, hint="divide by the number of positions that count"
        )

    @pytest.mark.numerics
    def test_nothing_counts(self, student, draw):
        """If no position counts, the loss is 0.0"""
        got = student(draw(3, 5), torch.full((3,), -100))
        assert_close(got, torch.zeros((), dtype=torch.float64), "the loss", case="when every target is ignored")


@exercise("completion_loss_mask")
class TestCompletionLossMask:
    @pytest.mark.shape
    def test_shape_and_dtype(self, student):
        """The mask is boolean with the shape (B, T)"""
        for b, t in [(1, 1), (2, 5), (3, 3)]:
            assert_mask(student(torch.ones(b, dtype=torch.int64), t), (b, t), f"for {b} prompt lengths and T = {t}")

    @pytest.mark.values
    def test_a_prompt_of_three_by_hand(self, student):
        """After a prompt of three tokens, the prediction at position 2 is the first that counts"""
        lengths = torch.tensor([3])
        want = torch.tensor([[F, F, T, T, T]])
        hint = "position 2 reads the last token of the prompt and predicts the first of the answer"
        assert_close(
            student(lengths, 5), want, "the mask", case=f"{given(prompt_lengths=lengths)} and T = 5", hint=hint
        )


@exercise("is_causal")
class TestIsCausal:
    @pytest.mark.causality
    def test_running_sum_against_mean_over_time(self, student, draw):
        """A running sum is causal, a mean over the whole sequence is not"""
        assert_verdicts(
            student,
            draw,
            (lambda x: x.cumsum(1), True, "a running sum over time"),
            (lambda x: x + x.mean(1, keepdim=True), False, "a model that adds the mean over the whole sequence"),
        )


def assert_verdict_type(verdict):
    value = verdict.item() if isinstance(verdict, torch.Tensor) and verdict.numel() == 1 else verdict
    value = bool(value) if type(value).__name__ == "bool_" else value  # numpy's
    words = "is the `return` missing?" if verdict is None else "return True or False"
    require(isinstance(value, bool), f"is_causal returned {show(verdict)}; {words}", evidence=show(verdict))


def assert_verdicts(student, draw, *models, questions=7):
    """The verdicts on all models (function, whether it is causal, in words) are right; the first wrong one is told.

    The first model is the causal one. So that only an answer that looks at the models can know when it is asked about
    that one, the order is drawn, and some of the others are asked about again until there are `questions` in all; once
    in 16 times the causal model is, too. Of all fixed sequences of answers none fits more often than once in `questions`.
    """
    again = draw.integers(max(questions - len(models), 0), low=1, high=len(models)).tolist()
    if int(draw.integers(high=16)) == 0:
        again.append(0)
    asked = [*range(len(models)), *again]
    verdicts = [[] for _ in models]
    for place in draw.permutation(len(asked)).tolist():
        f, _, _ = models[asked[place]]
        verdict = student(black_box(f))
        assert_verdict_type(verdict)
        verdicts[asked[place]].append(bool(verdict))
    for (_, truth, model), found in zip(models, verdicts, strict=True):
        happened = f"{model} is {'causal' if truth else 'not causal'}, but is_causal returned {not truth}"
        if truth in found:
            happened += f" (and {truth} when it was asked about the same model another time)"
        require(set(found) == {truth}, happened, evidence=not truth)


def black_box(f):
    """f as an answer gets it: all look alike, and none takes inputs for which a (T, T) matrix would fill the memory."""

    def box(x):
        if x.dim() > 1 and (x.shape[1] > 1000 or x.shape[:2].numel() > 20_000):
            fail(f"f was called with x of shape {tuple(x.shape)}; it takes up to 1000 positions, and B T up to 20 000")
        return f(x)

    return box
