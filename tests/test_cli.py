"""The command line that other tools call: formats, exit codes, one sentence for bad input."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from grader import cli
from grader.lesson import load_lesson

Write = Callable[..., Path]


def references(lesson: str) -> dict[str, str]:
    return {e.name: e.reference for e in load_lesson(lesson).exercises}


def test_check_writes_the_fixed_json_and_exits_0_when_all_passes(
    write_answer: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "report.json"
    assert cli.main(["check", str(write_answer("00")), "--json", str(target)]) == 0
    data = json.loads(target.read_text())
    assert set(data) == {"lesson", "score", "max_score", "exercises"}
    assert data["lesson"] == "00_start_here" and data["score"] == data["max_score"] == 1
    (exercise,) = data["exercises"]
    assert set(exercise) == {"name", "score", "points", "status", "checks"}
    assert exercise["name"] == "row_sums" and exercise["status"] == "passed" and exercise["score"] == exercise["points"]
    assert exercise["checks"]
    for check in exercise["checks"]:
        assert set(check) == {"name", "kind", "hidden", "passed", "message"}
        assert check["passed"] is True and isinstance(check["hidden"], bool)
    assert "row_sums: passed" in capsys.readouterr().out


def test_json_can_go_to_standard_output_alone(write_answer: Write, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", str(write_answer("00")), "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["lesson"] == "00_start_here"


def test_check_exits_1_when_some_fail_and_names_the_status(write_answer: Write, tmp_path: Path) -> None:
    answers = references("02") | {
        "softmax": "def softmax(x, dim):\n    return x",
        "attention": "def attention(q, k, v):\n    return q.nothing",
        "score_asymmetry": load_lesson("02").exercise("score_asymmetry").stub,
    }
    target = tmp_path / "report.json"
    assert cli.main(["check", str(write_answer("02", answers)), "--json", str(target)]) == 1
    status = {e["name"]: e["status"] for e in json.loads(target.read_text())["exercises"]}
    assert status["softmax"] == "failed" and status["attention"] == "error" and status["score_asymmetry"] == "missing"
    assert status["qkv_projection"] == "passed"


def test_a_percent_file_is_checked_like_a_notebook(tmp_path: Path) -> None:
    path = tmp_path / "answer.py"
    path.write_text('# %% solve="row_sums"\ndef row_sums(x):\n    return x.sum(-1)\n')
    assert cli.main(["check", str(path)]) == 0
    path.write_text("def row_sums(x):\n    return x.sum(-1)\n")
    assert cli.main(["check", str(path)]) == 0


def test_the_lessons_own_source_passes() -> None:
    assert cli.main(["check", str(load_lesson("02").path)]) == 0


def test_an_untidy_notebook_is_judged_by_its_answers(write_answer: Write) -> None:
    """Any order, extra cells, magics, plots, errors in unrelated cells, long outputs, no metadata."""
    path = write_answer("02")
    notebook: dict[str, Any] = json.loads(path.read_text())
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = [{"output_type": "stream", "name": "stdout", "text": "x" * 100_000}]

    def extra(source: str) -> dict[str, Any]:
        return {"cell_type": "code", "metadata": {}, "source": source, "outputs": [], "execution_count": None}

    cells = notebook["cells"][::-1]
    cells.insert(0, extra("%matplotlib widget\n!pip list\nundefined_name + 1"))
    cells.insert(3, extra("import matplotlib.pyplot as plt\nplt.plot(data)\nwhile True: pass"))
    cells.append(extra("this is not python"))
    for cell in cells:
        cell.get("metadata", {}).pop("nbgrader", None)
    notebook["cells"] = cells
    path.write_text(json.dumps(notebook))
    assert cli.main(["check", str(path)]) == 0


def test_a_missing_exercise_is_said_in_a_sentence_and_the_others_are_judged(
    write_answer: Write, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_answer("02")
    notebook = json.loads(path.read_text())
    notebook["cells"] = [
        c for c in notebook["cells"] if c["metadata"].get("grader", {}).get("name") != "score_asymmetry"
    ]
    path.write_text(json.dumps(notebook))
    target = tmp_path / "report.json"
    assert cli.main(["check", str(path), "--json", str(target)]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1 and "has no score_asymmetry" in captured.err
    status = {e["name"]: e["status"] for e in json.loads(target.read_text())["exercises"]}
    assert status.pop("score_asymmetry") == "missing" and set(status.values()) == {"passed"}


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.ipynb", "{"), ("a.ipynb", '{"cells": []}'), ("a.txt", "x"), ("a.py", "x = 1"), ("nothing.ipynb", None)],
)
def test_unusable_input_is_one_sentence_and_exit_2(
    tmp_path: Path, name: str, content: str | None, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    assert cli.main(["check", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith("grader: ") and captured.err.count("\n") == 1


def test_a_report_that_cannot_be_written_is_one_sentence(
    write_answer: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["check", str(write_answer("00")), "--json", "/proc/nothing/x.json"]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_an_unknown_lesson_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["audit", "99"], ["build", "99"]):
        assert cli.main(command) == 2
        assert "there is no lesson '99'" in capsys.readouterr().err


def test_build_check_says_what_drifted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.main(["build", "00", "--check"]) == 0
    monkeypatch.setattr("grader.build.drift", lambda lessons, complete: ["00_start_here.ipynb is missing"])
    assert cli.main(["build", "00", "--check"]) == 1
    assert "00_start_here.ipynb is missing" in capsys.readouterr().out


def test_audit_exits_1_on_a_survivor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from grader import bank
    from grader.bank import Mutant

    assert cli.main(["audit", "00", "--json", "-"]) == 0
    assert json.loads(capsys.readouterr().out)["totals"]["survivors"] == 0
    right = Mutant(
        exercise="row_sums", name="in_fact_right", source="def row_sums(x):\n    return x.sum(-1)", slip="none"
    )
    monkeypatch.setattr(bank, "entries", lambda lesson: (right,))
    assert cli.main(["audit", "00"]) == 1
    out = capsys.readouterr().out
    assert "FAULT 00_start_here row_sums: the mutant 'in_fact_right' survives" in out


def test_help_and_a_pipe_are_quick_and_plain(write_answer: Write) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "grader", "check", str(write_answer("00"))],
        capture_output=True,
        text=True,
        cwd=cli.__file__[:-14],
    )
    assert done.returncode == 0 and "\x1b" not in done.stdout + done.stderr and done.stderr == ""
