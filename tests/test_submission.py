"""What is run of an answer: any order, extra cells, magics, errors elsewhere; never demos, prints or checks."""

from __future__ import annotations

from pathlib import Path

import pytest

from grader.lesson import Cell
from grader.submission import (
    AnswerTimeout,
    BrokenCell,
    Forbidden,
    Missing,
    Submission,
    deadline,
    describe,
    forbid,
)


def submission(*cells: str | tuple[str, str, str]) -> Submission:
    made = []
    for number, cell in enumerate(cells, 1):
        role, name, source = cell if isinstance(cell, tuple) else ("extra", "", cell)
        made.append(Cell("code", source, role, name, number))
    return Submission(made)


def test_cells_may_stand_in_any_order() -> None:
    answer = submission(
        "def f(x):\n    return g(x) + ONE",
        "class B(A):\n    pass",
        "class A:\n    pass",
        "def g(x):\n    return x\nONE = 1",
    )
    assert answer.answer("f")(1) == 2
    assert answer.answer("B").__name__ == "B"


def test_an_assignment_that_needs_a_later_cell_is_tried_again() -> None:
    answer = submission(
        ("solve", "f", "SCALE = base() * 2\ndef f(x):\n    return x * SCALE"), "def base():\n    return 3"
    )
    assert answer.answer("f")(1) == 6


def test_only_assignments_that_an_answer_needs_are_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    answer = submission(
        f"def train():\n    open({str(trace)!r}, 'w').close()\n    return 7",
        "history = train()",
        "n = 5",
        "m = n + 1",
        ("solve", "f", "def f():\n    return m"),
    )
    assert answer.answer("f")() == 6
    assert not trace.exists(), "an experiment was run when grading"


def test_demos_checks_prints_and_plots_are_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    write = f"open({str(trace)!r}, 'w').close()"
    answer = submission(
        ("demo", "", write), ("check", "f", write), write, ("solve", "f", f"def f():\n    return 1\n{write}")
    )
    assert answer.answer("f")() == 1
    assert not trace.exists()


def test_an_error_in_another_cell_does_no_harm() -> None:
    answer = submission(
        "1 / 0\ndef helper():\n    return 2",
        "def broken(:",
        "import nonexistent_module",
        ("solve", "f", "def f():\n    return helper()"),
    )
    assert answer.answer("f")() == 2


def test_magics_are_passed_over_and_lines_keep_their_numbers() -> None:
    answer = submission(
        "%matplotlib inline\n!ls\nimport math",
        "%%bash\nrm -rf nothing",
        "%%html\n<b>bold</b>",
        ("solve", "f", "%%time\n%load_ext autoreload\ndef f(x):\n    return math.sqrt(x)"),
    )
    assert answer.answer("f")(4) == 2
    with pytest.raises(TypeError) as caught:
        answer.answer("f")("a")
    assert describe(caught.value).endswith("(in cell 4, line 4: return math.sqrt(x))")


def test_the_exercises_own_cell_has_the_last_word() -> None:
    answer = submission(("solve", "f", "def f():\n    return 'answer'"), "def f():\n    return 'experiment'")
    assert answer.answer("f")() == "answer"


def test_an_answer_outside_its_cell_is_found() -> None:
    answer = submission(("solve", "f", "# see below"), "f = lambda: 3")
    assert answer.answer("f")() == 3


def test_a_missing_answer_and_a_broken_cell_say_why() -> None:
    answer = submission(("solve", "f", "# nothing"), ("solve", "g", "def g(:\n    pass"), ("solve", "h", "h = 1 / 0"))
    with pytest.raises(Missing, match="f is missing: its cell does not define it"):
        answer.answer("f")
    with pytest.raises(Missing, match="no cell defines it"):
        answer.answer("k")
    with pytest.raises(BrokenCell, match=r"SyntaxError: .*cell 2, line 1: def g\(:"):
        answer.answer("g")
    with pytest.raises(BrokenCell, match=r"ZeroDivisionError: .*cell 3, line 1: h = 1 / 0"):
        answer.answer("h")


def test_future_imports_and_the_graders_names_are_allowed() -> None:
    answer = submission(
        "from __future__ import annotations\ndef f(x: Undefined) -> Missing:\n    return x",
        "from grader import check as judge_me\ndef g():\n    return judge_me(f)",
    )
    assert answer.answer("f")(1) == 1
    assert answer.answer("g")() is None


def test_exiting_is_only_an_error() -> None:
    answer = submission("import sys\nx = sys.exit(3)\ndef f():\n    return x", "def g():\n    return 1")
    assert answer.answer("g")() == 1


def test_used_names_are_followed_through_helpers() -> None:
    answer = submission(
        "def base():\n    return 1",
        "def helper():\n    return base()",
        "class C:\n    def m(self):\n        return helper()",
    )
    assert answer.uses("C") == {"helper", "base"}
    assert answer.uses("base") == frozenset()


def test_a_deadline_ends_a_loop_that_swallows_exceptions() -> None:
    answer = submission(
        "def f():\n    while True:\n        try:\n            pass\n        except Exception:\n            pass"
    )
    with pytest.raises(AnswerTimeout, match=r"timeout: no answer within 0\.2 s"), deadline(0.2):
        answer.answer("f")()


@pytest.mark.parametrize(
    "spelling",
    [
        "torch.softmax(x, 0)",
        "x.softmax(0)",
        "torch.nn.functional.softmax(x, 0)",
        "torch.nn.Softmax(0)(x)",
        "torch.ops.aten.softmax(x, 0)",
    ],
)
def test_a_forbidden_operator_is_noticed_in_any_spelling(spelling: str) -> None:
    import torch

    with pytest.raises(Forbidden, match="PyTorch's own softmax"), forbid(["_softmax"]):
        eval(spelling, {"torch": torch, "x": torch.zeros(3)})
    eval(spelling, {"torch": torch, "x": torch.zeros(3)})


@pytest.mark.parametrize(
    "spelling",
    [
        "torch.rms_norm(x, (3,))",
        "torch.nn.functional.rms_norm(x, (3,))",
        "torch.nn.RMSNorm(3)(x)",
        "torch.ops.aten.rms_norm(x, [3])",
        "torch.ops.aten.rms_norm.default(x, [3])",
    ],
)
def test_an_operator_that_is_composed_of_others_is_noticed_as_well(spelling: str) -> None:
    import torch

    with pytest.raises(Forbidden, match="PyTorch's own rms_norm"), forbid(["rms_norm"]):
        eval(spelling, {"torch": torch, "x": torch.zeros(3)})
    with forbid(["rms_norm"]):
        torch.nn.LayerNorm(3)(torch.zeros(3))
    eval(spelling, {"torch": torch, "x": torch.zeros(3)})


def test_waiting_is_ended_too_and_time_given_to_others_is_not_counted() -> None:
    import time

    begin = time.monotonic()
    with pytest.raises(AnswerTimeout), deadline(0.2):
        time.sleep(5)
    assert 0.5 < time.monotonic() - begin < 3
    with deadline(0.2):
        time.sleep(0.4)  # as on a machine that was busy with something else


def test_an_exception_names_the_learners_line_wherever_it_was_typed() -> None:
    namespace: dict[str, object] = {}
    exec(compile("def f(x):\n    return undefined_name", "<stdin>", "exec"), namespace)
    with pytest.raises(NameError) as caught:
        namespace["f"](1)  # type: ignore[operator]
    assert "line 2" in describe(caught.value)
