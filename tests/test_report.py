"""Reports: the score of parts, and three renderings that say the same."""

from __future__ import annotations

import html
import json

import pytest

from grader.report import CheckResult, ExerciseResult, Picture, Report, as_data, as_html, as_json, as_text


def exercise(*passed: bool, status: str = "failed", message: str = "it moved by 0.83") -> ExerciseResult:
    checks = tuple(
        CheckResult(f"check_{i}", f"Title {i}", "values", i > 0, ok, message="" if ok else message, points=i + 1)
        for i, ok in enumerate(passed)
    )
    return ExerciseResult("attention", 6.0, status, checks)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("result", "score"),
    [
        (exercise(True, True, True, status="passed"), 6.0),
        (exercise(False, False, True), 3.0),
        (exercise(True, False, False), 1.0),
        (exercise(False, False, False), 0.0),
        (exercise(True, True, True, status="missing"), 0.0),
        (exercise(status="missing"), 0.0),
    ],
)
def test_the_score_is_the_passed_share_of_the_checks_points(result: ExerciseResult, score: float) -> None:
    assert result.score == score


def test_a_repeated_message_is_said_once() -> None:
    report = Report("02", (exercise(False, False, False),))
    for text in (as_text(report), as_html(report)):
        assert text.count("it moved by 0.83") == 1 and html.unescape(text).count('the same as for "') == 2
    messages = [check["message"] for check in as_data(report)["exercises"][0]["checks"]]
    assert messages == ["it moved by 0.83"] * 3, "other tools get every message in full"


def test_after_the_first_failures_the_details_are_folded() -> None:
    checks = tuple(
        CheckResult(f"c{i}", f"title {i}", "values", True, False, message=f"message {i} " + 30 * "and so on ")
        for i in range(5)
    )
    page = as_html(Report("02", (ExerciseResult("attention", 3.0, "failed", checks),)))
    assert page.count("<details>") == 2 and all(page.count(f"message {i} {30 * 'and so on '}") == 1 for i in range(5))
    assert page.index("<details>") > page.index("message 2 ")


def test_json_holds_the_slip_in_the_message() -> None:
    check = CheckResult("c", "t", "values", True, False, message="wrong.", slip="the axis.")
    data = json.loads(as_json(Report("02", (ExerciseResult("e", 1.0, "failed", (check,)),))))
    assert data["exercises"][0]["checks"][0]["message"] == "wrong. Likely slip: the axis."


def test_everything_from_an_answer_is_escaped() -> None:
    evil = "<img src=x onerror=alert(1)>"
    check = CheckResult(
        evil, evil, "values", True, False, message=evil, slip=evil, picture=Picture(((True,),), evil, evil)
    )
    page = as_html(Report("02", (ExerciseResult(evil, 1.0, "failed", (check,), evil),), evil))
    assert "<img" not in page


def test_an_exercise_that_is_not_started_has_no_table() -> None:
    report = Report("02", (exercise(False, status="missing"),))
    assert as_text(report) == "attention: not started" and "<table" not in as_html(report)
