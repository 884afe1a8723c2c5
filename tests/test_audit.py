"""What the audit finds and how it says it; that it finds nothing in the course is in `test_bank`."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from grader import audit as audit_module
from grader import bank
from grader.audit import as_html, as_json, as_text, audit
from grader.bank import BankError, Mutant, Variant
from grader.judge import check_files
from grader.lesson import ROOT, load_course, load_lesson

COURSE = load_course()


def test_every_entry_belongs_to_an_exercise_and_every_slip_is_a_sentence() -> None:
    for lesson in COURSE:
        names = {exercise.name for exercise in lesson.exercises}
        for entry in bank.entries(lesson.id):
            assert entry.exercise in names, f"{lesson.id}: {entry.exercise}/{entry.name}"
            if isinstance(entry, Mutant):
                assert len(entry.slip) > 15 and entry.slip.rstrip().endswith((".", "?", ")")), (
                    f"{entry.name}: {entry.slip!r}"
                )


def test_a_survivor_a_rejected_right_answer_and_an_idle_check_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = (
        Mutant(exercise="row_sums", name="right", source="def row_sums(x):\n    return x.sum(-1)", slip="-"),
        Mutant(exercise="row_sums", name="wrong", source="def row_sums(x):\n    return x.sum(0)", slip="-"),
        Variant(exercise="row_sums", name="wrong_too", source="def row_sums(x):\n    return x.mean(-1)"),
    )
    monkeypatch.setattr(bank, "entries", lambda lesson: entries)
    result = audit([load_lesson("00")])
    assert not result.clean and result.exercises[0].survivors == ("right",)
    assert any("'right' survives" in fault for fault in result.faults)
    assert any("'wrong_too' is rejected" in fault for fault in result.faults)
    assert result.exercises[0].idle
    data = json.loads(as_json(result))
    assert data["totals"]["survivors"] == 1 and data["exercises"][0]["kills"]["right"] == []
    assert "SURVIVES" in as_text(result) and "<td class=" in as_html(result)


def test_a_rejected_reference_and_a_stub_that_earns_points_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    lesson = load_lesson("00")
    wrong = bank.mutants(lesson.id, "row_sums")[0].submission(lesson, audit_module.reference(lesson).namespace)
    monkeypatch.setattr(audit_module, "reference", lambda _: wrong)
    assert any("the reference is rejected" in fault for fault in audit([lesson]).faults)
    monkeypatch.undo()
    monkeypatch.setattr("grader.lesson.STUB", "return x.sum(-1)")
    assert any("the empty stub is judged 'passed'" in fault for fault in audit([lesson]).faults)


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Mutant(exercise="row_sums", name="m", slip="-", replace={"no such text": "x"}), "stands 0 times"),
        (Mutant(exercise="row_sums", name="m", slip="-", replace={"x": "y"}), "quote a text that stands once"),
        (
            Mutant(exercise="row_sums", name="m", slip="-", replace={"x.sum(dim=-1)": "x.sum(dim=-1)"}),
            "is the reference itself",
        ),
        (Mutant(exercise="row_sums", name="m", slip="-"), "needs either source or replace"),
    ],
)
def test_an_entry_that_does_not_fit_is_named(entry: Mutant, words: str) -> None:
    with pytest.raises(BankError, match=f"00_start_here: row_sums/m.*{words}"):
        entry.code(load_lesson("00"))


def test_every_class_of_checks_names_an_exercise_of_its_lesson_and_every_check_has_a_title() -> None:
    for lesson in COURSE:
        names = {exercise.name for exercise in lesson.exercises}
        for path in check_files(lesson):
            assert set(re.findall(r'^@exercise\("(\w+)"', path.read_text(), flags=re.MULTILINE)) <= names, path
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                    assert ast.get_docstring(node), f"{path.name}: {node.name} has no title"


def test_public_checks_need_no_reference_and_no_bank() -> None:
    for lesson in COURSE:
        for path in check_files(lesson, hidden=False):
            tree = ast.parse(path.read_text())
            names = {
                argument.arg
                for node in ast.walk(tree)
                if isinstance(node, ast.FunctionDef)
                for argument in node.args.args
            }
            assert "reference" not in names, f"{path.name} asks for the reference"
            assert "grader.bank" not in path.read_text() and "solutions" not in path.read_text()


FLOORS = {
    "__main__": 7,
    "cli": 6,
    "__init__": 6,
    "study": 5,
    "classroom": 5,
    "audit": 5,
    "judge": 4,
    "checks": 3,
    "sandbox": 2,
    "bank": 2,
    "submission": 1,
    "build": 1,
    "splice": 1,
    "claims": 1,
    "lesson": 0,
    "report": 0,
}


def test_imports_go_down_only() -> None:
    for path in (ROOT / "grader").rglob("*.py"):
        room = path.relative_to(ROOT / "grader").parts[0].removesuffix(".py")
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
            if isinstance(node, ast.ImportFrom) and node.module == "grader":
                modules = [f"grader.{alias.name}" for alias in node.names]
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            for module in modules:
                parts = module.split(".")
                if parts[0] == "grader" and len(parts) > 1 and parts[1] != room and parts[1] in FLOORS:
                    assert FLOORS[parts[1]] < FLOORS[room], (
                        f"{path.relative_to(ROOT)} imports {module}, which is not below it"
                    )


def test_every_room_has_its_floor() -> None:
    rooms = {
        Path(p).name.removesuffix(".py")
        for p in (ROOT / "grader").iterdir()
        if p.suffix == ".py" or (p / "__init__.py").exists()
    }
    assert rooms == set(FLOORS)
