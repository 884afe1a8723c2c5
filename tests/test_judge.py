"""Verdicts: right answers pass, wrong ones fail in words that help, empty ones are not started."""

from __future__ import annotations

import pytest
import torch

from grader import judge as judge_module
from grader.checks.collection import CheckFileError
from grader.judge import given_names, judge, judge_with_stand_ins, reference
from grader.lesson import Cell, Lesson, load_lesson
from grader.report import ExerciseResult, Report
from grader.submission import Submission


def verdict(lesson: Lesson, name: str, source: str, **options: object) -> ExerciseResult:
    answer = Submission([Cell("code", source, "solve", name, 7)], base=reference(lesson).namespace)
    (report,) = judge(lesson, [answer], only=[name], **options)  # type: ignore[arg-type]
    return report.exercises[0]


def failed(result: ExerciseResult) -> dict[str, str]:
    return {check.name: check.message for check in result.checks if not check.passed}


def test_the_reference_passes_with_full_points(lesson_02: Lesson) -> None:
    (report,) = judge(lesson_02, [reference(lesson_02)])
    assert report.passed and report.score == report.max_score == sum(e.points for e in lesson_02.exercises)


def test_an_empty_stub_is_not_started_and_earns_nothing(lesson_02: Lesson) -> None:
    cells = [Cell("code", e.stub, "solve", e.name) for e in lesson_02.exercises]
    (report,) = judge(lesson_02, [Submission(cells, base=given_names(lesson_02))])
    assert {e.status for e in report.exercises} == {"missing"} and report.score == 0


def test_an_answer_that_pytorch_cannot_compute_is_started(lesson_02: Lesson) -> None:
    """PyTorch has NotImplementedErrors of its own."""
    source = "def softmax(x, dim):\n    seen = torch.ones(2, 2, dtype=torch.bool)\n    return x * (seen @ seen)"
    result = verdict(lesson_02, "softmax", source)
    assert result.status == "error"
    assert all("not implemented for 'Bool'" in message for message in failed(result).values())


def test_a_default_dtype_that_was_changed_harms_nobody(lesson_02: Lesson) -> None:
    """Neither what is judged next, nor what the caller had."""
    lesson = load_lesson("06")
    source = lesson.exercise("sinusoidal_encoding").reference.replace(
        '    """', '    torch.set_default_dtype(torch.float64)\n    """', 1
    )
    cells = [*lesson.reference_cells, Cell("code", source, "solve", "sinusoidal_encoding")]
    leak = Submission(cells, base=given_names(lesson))
    torch.set_default_dtype(torch.float64)
    try:
        _, report = judge(lesson, [leak, reference(lesson)], only=["sinusoidal_encoding", "alibi_bias"])
        assert torch.get_default_dtype() is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert report.passed


def test_a_known_slip_is_named_once(lesson_02: Lesson) -> None:
    result = verdict(
        lesson_02, "attention", "def attention(q, k, v):\n    w = torch.softmax(q @ k.mT, -2)\n    return w @ v"
    )
    slips = [check.slip for check in result.checks if check.slip]
    assert result.status == "failed" and 0 < result.score < result.points
    assert len(slips) == 1 and "dim=-2" in slips[0]


def test_an_unknown_mistake_gets_no_slip(lesson_02: Lesson) -> None:
    result = verdict(
        lesson_02, "attention", "def attention(q, k, v):\n    return torch.softmax(1.37 * q @ k.mT, -1) @ v"
    )
    assert result.status == "failed" and not any(check.slip for check in result.checks)


def test_a_message_shows_the_smallest_counterexample_and_a_picture(lesson_02: Lesson) -> None:
    result = verdict(
        lesson_02, "attention", "def attention(q, k, v):\n    return torch.softmax(1.37 * q @ k.mT, -1) @ v"
    )
    (check,) = [check for check in result.checks if check.name == "equals_the_definition"]
    assert "with q = [[" in check.message, "the smallest case is not shown with its numbers"


def test_a_picture_marks_the_wrong_cells(lesson_02: Lesson) -> None:
    source = (
        "def attention(q, k, v):\n    out = torch.softmax(q @ k.mT, -1) @ v\n    out[..., -1, 1:] += 1\n    return out"
    )
    pictures = [check.picture for check in verdict(lesson_02, "attention", source).checks if check.picture]
    assert any(p.rows == "query" and not any(map(any, p.wrong[:-1])) and all(p.wrong[-1][1:]) for p in pictures)
    assert "x: wrong" in pictures[0].text() and "&times;" in pictures[0].html()


def test_an_exception_shows_the_learners_own_line(lesson_02: Lesson) -> None:
    result = verdict(lesson_02, "softmax", "def softmax(x, dim):\n    y = x.exp()\n    return y / y.sum(axes=dim)")
    assert result.status == "error" and result.score == 0
    for message in failed(result).values():
        assert (
            message.startswith("your code raised TypeError") and "cell 7, line 3: return y / y.sum(axes=dim)" in message
        )
        assert "grader/" not in message and "Traceback" not in message


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return None", "is the `return` missing?"),
        ("return 3", "an int"),
        ("return x.tolist()", "a list"),
        ("return [x]", "a list"),
        ("return x.bool()", "bool"),
        ("return x * float('nan')", "nan"),
    ],
)
def test_what_is_no_tensor_is_said_in_words(lesson_02: Lesson, body: str, words: str) -> None:
    result = verdict(lesson_02, "softmax", f"def softmax(x, dim):\n    {body}")
    assert not result.passed
    assert any(words in message for message in failed(result).values()), failed(result)


def test_a_loop_without_end_is_a_timeout_and_the_other_exercises_are_judged(lesson_02: Lesson) -> None:
    cells = [
        Cell("code", "def softmax(x, dim):\n    while True:\n        pass", "solve", "softmax"),
        Cell("code", "def qkv_projection(x, a, b, c):\n    return x @ a, x @ b, x @ c", "solve", "qkv_projection"),
    ]
    (report,) = judge(
        lesson_02, [Submission(cells, base=given_names(lesson_02))], limit=0.3, only=["softmax", "qkv_projection"]
    )
    assert report.exercise("softmax").status == "timeout"
    assert report.exercise("softmax").note == "timeout: no answer within 0.3 s"
    assert report.exercise("qkv_projection").passed


def with_attention(lesson_02: Lesson, source: str) -> Submission:
    """The reference solutions of lesson 02 with this in the place of attention; "" leaves it out."""
    sources = {e.name: e.reference for e in lesson_02.exercises} | {"attention": source}
    cells = [Cell("code", text, "solve", name) for name, text in sources.items() if text]
    return Submission(cells, base=given_names(lesson_02))


def test_an_error_counts_once(lesson_02: Lesson) -> None:
    answer = with_attention(lesson_02, "def attention(q, k, v):\n    return torch.softmax(q @ k.mT, -2) @ v")
    own = answer.namespace["attention"]
    report = judge_with_stand_ins(lesson_02, answer)
    assert not report.exercise("attention").passed
    assert report.exercise("cross_attention").passed
    assert "course's own attention" in report.exercise("cross_attention").note
    assert answer.namespace["attention"] is own, "the stand-in was left in the answer"
    only = judge_with_stand_ins(lesson_02, answer, only=["cross_attention"])
    assert only.exercise("cross_attention").passed, "judged alone, the earlier exercise was not looked at"


def test_a_loop_without_end_counts_once(lesson_02: Lesson) -> None:
    answer = with_attention(lesson_02, "def attention(q, k, v):\n    while True:\n        pass")
    report = judge_with_stand_ins(lesson_02, answer, limit=0.5)
    assert report.exercise("attention").status == "timeout"
    assert {e.name for e in report.exercises if not e.passed} == {"attention"}


@pytest.mark.parametrize("before", ["stub", "nothing"])
def test_an_exercise_is_not_blamed_for_an_earlier_one_that_is_not_started(lesson_02: Lesson, before: str) -> None:
    answer = with_attention(lesson_02, lesson_02.exercise("attention").stub if before == "stub" else "")
    report = judge_with_stand_ins(lesson_02, answer)
    assert report.exercise("attention").status == "missing" and report.exercise("attention").score == 0
    assert report.exercise("cross_attention").passed
    assert "course's own attention" in report.exercise("cross_attention").note
    assert ("attention" in answer.namespace) is (before == "stub"), "the stand-in was left in the answer"


def test_nobody_gets_an_exercise_by_calling_another(lesson_02: Lesson) -> None:
    """The reference of attention does not use attention_loop, which nearly is the answer."""
    source = """
def attention(q, k, v):
    lead = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    q, k, v = (t.expand(*lead, *t.shape[-2:]) for t in (q, k, v))
    if not lead:
        return attention_loop(q, k, v)
    rows = [attention_loop(a, b, c) for a, b, c in zip(q.flatten(0, -3), k.flatten(0, -3), v.flatten(0, -3))]
    return torch.stack(rows).unflatten(0, lead)
"""
    cells = [
        Cell("code", "def attention_loop(q, k, v):\n    return None", "solve", "attention_loop"),
        Cell("code", source, "solve", "attention"),
    ]
    answer = Submission(cells, base=reference(lesson_02).namespace)
    report = judge_with_stand_ins(lesson_02, answer, only=["attention_loop", "attention"])
    assert report.score == 0 and not report.exercise("attention").note
    alone = Submission(cells[1:], base=reference(lesson_02).namespace)
    assert judge_with_stand_ins(lesson_02, alone, only=["attention"]).passed


def test_a_neighbour_that_is_not_there_fails_the_checks_that_need_it_alone() -> None:
    lesson = load_lesson("08")
    source = lesson.exercise("decode_step").reference.replace("def decode_step", "def my_step")
    source += "\n\n" + lesson.exercise("prefill").reference.replace("decode_step(", "my_step(")
    others = [c for c in lesson.reference_cells if c.role == "solve" and c.name not in ("decode_step", "prefill")]
    cells = [*others, Cell("code", "x = 1", "solve", "decode_step"), Cell("code", source, "solve", "prefill")]
    (report,) = judge(lesson, [Submission(cells, base=given_names(lesson))], only=["prefill"])
    result = report.exercise("prefill")
    assert result.status == "failed" and result.score > 0.8 * result.points
    assert all("your decode_step, and decode_step is missing" in message for message in failed(result).values())


def test_a_slip_is_named_also_where_another_exercise_reads_what_an_answer_made() -> None:
    """A mutant's prefill is followed by the mutant's decode_step: the learner's cache has a form of its own."""
    lesson = load_lesson("08")
    swapped = lesson.exercise("decode_step").reference
    for one, other in (
        ("return model.unembed(x[:, -1]), (counts[:, -1:], new_layers)",
         "return model.unembed(x[:, -1]), (new_layers, counts[:, -1:])"),
        ("seen, layers = cache", "layers, seen = cache"),
    ):  # fmt: skip
        assert swapped.count(one) == 1
        swapped = swapped.replace(one, other)
    wrong = lesson.exercise("prefill").reference.replace("if pad_id is not None:", "if False:")
    cells = [Cell("code", swapped, "solve", "decode_step"), Cell("code", wrong, "solve", "prefill")]
    (report,) = judge(lesson, [Submission(cells, base=reference(lesson).namespace)], only=["decode_step", "prefill"])
    assert report.exercise("decode_step").passed
    slips = [check.slip for check in report.exercise("prefill").checks if check.slip]
    assert len(slips) == 1 and "not used" in slips[0]


def test_an_error_of_its_own_still_counts(lesson_02: Lesson) -> None:
    cells = [
        Cell("code", "def attention(q, k, v):\n    return v", "solve", "attention"),
        Cell(
            "code",
            "def cross_attention(x, m, a, b, c):\n    return attention(m @ a, m @ b, m @ c)",
            "solve",
            "cross_attention",
        ),
    ]
    report = judge_with_stand_ins(
        lesson_02, Submission(cells, base=given_names(lesson_02)), only=["attention", "cross_attention"]
    )
    assert not report.exercise("cross_attention").passed


def test_an_answer_cannot_change_what_comes_after_it(lesson_02: Lesson) -> None:
    source = (
        "def softmax(x, dim):\n    torch.manual_seed(1)\n    torch.set_default_dtype(torch.float64)\n"
        "    torch.set_grad_enabled(False)\n    print('x' * 10_000)\n    return x"
    )
    before = torch.get_rng_state()
    answer = Submission([Cell("code", source, "solve", "softmax")], base=given_names(lesson_02))
    (report,) = judge(lesson_02, [answer], only=["softmax"])
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_default_dtype() is torch.float32 and torch.is_grad_enabled()
    assert len(report.printed) < 2_100


def test_inputs_follow_the_seed(lesson_02: Lesson) -> None:
    def messages(seed: int) -> dict[str, str]:
        return failed(
            verdict(
                lesson_02,
                "attention",
                "def attention(q, k, v):\n    return 2 * v.mean(-2, keepdim=True) + 0 * q[..., :1]",
                seed=seed,
            )
        )

    assert messages(1) == messages(1) != messages(2)


def test_without_hidden_checks_the_public_ones_judge_without_a_reference(
    lesson_02: Lesson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(judge_module, "_reference_or_none", lambda _: None)
    (report,) = judge(lesson_02, [reference(lesson_02)], hidden=False, diagnose=False)
    assert report.passed and all(not check.hidden for e in report.exercises for check in e.checks)


def test_a_broken_check_file_is_not_a_verdict(
    lesson_02: Lesson, monkeypatch: pytest.MonkeyPatch, tmp_path: object
) -> None:
    from pathlib import Path

    path = Path(str(tmp_path)) / "test_broken.py"
    path.write_text("\nimport nothing_of_the_kind\n")
    monkeypatch.setattr(judge_module, "check_files", lambda lesson, hidden: [path])
    with pytest.raises(CheckFileError, match=r"test_broken\.py:2: ModuleNotFoundError: .*nothing_of_the_kind"):
        judge(lesson_02, [reference(lesson_02)])


def test_reports_of_one_session_do_not_mix(lesson_02: Lesson) -> None:
    good = Submission([], base=reference(lesson_02).namespace)
    bad = Submission(
        [Cell("code", "def softmax(x, dim):\n    return x", "solve", "softmax")], base=reference(lesson_02).namespace
    )
    reports: list[Report] = judge(lesson_02, [good, bad, good], only=["softmax"])
    assert [report.passed for report in reports] == [True, False, True]
