"""nbgrader as installed, on the real lessons: the round trip with partial scores, and the traps that we step around."""

from __future__ import annotations

import csv
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_output
from nbgrader.api import Gradebook
from nbgrader.apps import NbGraderAPI
from nbgrader.apps.exportapp import ExportApp
from nbgrader.utils import determine_grade
from traitlets.config import Config

from grader import build
from grader.classroom.splice import SANITIZE
from grader.lesson import ROOT, load_lesson

LESSONS = ("00", "02")

STYLES = {
    "row_sums": "def row_sums(x):\n    return torch.einsum('...n->...', x)",
    "qkv_projection": """
def qkv_projection(x, *weights):
    return tuple(torch.einsum('...d,dk->...k', x, w) for w in weights)""",
    "softmax": "def softmax(x, dim):\n    return (x - x.logsumexp(dim, keepdim=True)).exp()",
    "attention_loop": """
def attention_loop(q, k, v):
    return torch.stack([(torch.softmax(k @ row, 0)[:, None] * v).sum(0) for row in q])""",
    "attention": "def attention(q, k, v):\n    return torch.einsum('...qk,...kv->...qv', (q @ k.mT).softmax(-1), v)",
    "cross_attention": """
def cross_attention(x, memory, Wq, Wk, Wv):
    return attention(x @ Wq, *(memory @ w for w in (Wk, Wv)))""",
    "score_asymmetry": """
def score_asymmetry(x, Wq, Wk):
    s = torch.einsum('id,de,fe,jf->ij', x, Wq, Wk, x)
    n = s.pow(2).sum().sqrt()
    return (s - s.T).pow(2).sum().sqrt() / n if n else n * 0""",
}
"""Right answers in another style than the reference's."""

HALF = {
    "row_sums": STYLES["row_sums"],
    "qkv_projection": STYLES["qkv_projection"],
    "softmax": """
import sys
def softmax(x, dim):
    print('debug', file=sys.stderr)
    return x.exp() / x.exp().sum(dim, keepdim=True)""",
    "attention": "def attention(q, k, v):\n    return (q @ k.mT).softmax(-2) @ v",
}
"""Half right: a softmax that overflows and prints to stderr, attention along the wrong axis, the rest untouched."""


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A course with one assignment of two lessons, generated, released, handed in by three students and graded."""
    root = tmp_path_factory.mktemp("course")
    lessons = [load_lesson(number) for number in LESSONS]
    source = root / "source" / "week1"
    source.mkdir(parents=True)
    for lesson in lessons:
        (source / f"{lesson.id}.ipynb").write_bytes(build.as_bytes(build.source_notebook(lesson)))
    former = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT)
    try:
        api = NbGraderAPI(config=configuration(root))
        succeed(api.generate_assignment("week1"))
        succeed(api.release_assignment("week1"))
        released = root / "exchange" / "course" / "outbound" / "week1"
        for student, answers in (("ada", STYLES), ("bob", HALF), ("eve", {})):
            folder = root / "submitted" / student / "week1"
            folder.mkdir(parents=True)
            for lesson in lessons:
                notebook = json.loads((released / f"{lesson.id}.ipynb").read_text())
                for cell in notebook["cells"]:
                    if cell["id"] in answers:
                        cell["source"] = answers[cell["id"]]
                (folder / f"{lesson.id}.ipynb").write_text(json.dumps(notebook))
            succeed(api.autograde("week1", student))
            succeed(api.generate_feedback("week1", student))
        yield root
    finally:
        os.environ.pop("PYTHONPATH") if former is None else os.environ.update(PYTHONPATH=former)


def configuration(root: Path) -> Config:
    config = Config(build.release_config())
    config.CourseDirectory.root = str(root)
    config.CourseDirectory.course_id = "course"
    config.Exchange.root = str(root / "exchange")
    config.KernelManager.transport_encryption = "auto"
    config.Execute.timeout = 120
    config.Autograde.sanitize_preprocessors = SANITIZE
    (root / "exchange").mkdir(exist_ok=True)
    return config


def succeed(result: dict[str, Any]) -> None:
    assert result["success"], f"{result.get('error')}\n{result.get('log')}"


def scores(root: Path, student: str) -> dict[str, float]:
    """Exercise name to score in nbgrader's gradebook."""
    found = {}
    with Gradebook(f"sqlite:///{root / 'gradebook.db'}", "course") as gradebook:
        for notebook in gradebook.find_submission("week1", student).notebooks:
            for grade in notebook.grades:
                if grade.name.endswith("-check"):
                    found[grade.name.removesuffix("-check")] = grade.score
    return found


def points() -> dict[str, float]:
    return {e.name: e.points for number in LESSONS for e in load_lesson(number).exercises}


def test_a_right_answer_in_another_style_earns_everything(course: Path) -> None:
    assert scores(course, "ada") == points()


def test_half_right_answers_earn_their_part(course: Path) -> None:
    earned, full = scores(course, "bob"), points()
    assert earned["row_sums"] == full["row_sums"] and earned["qkv_projection"] == full["qkv_projection"]
    for name in ("softmax", "attention"):
        assert 0 < earned[name] < full[name], name
    for name in ("attention_loop", "cross_attention", "score_asymmetry"):
        assert earned[name] == 0, name


def test_an_empty_submission_earns_nothing(course: Path) -> None:
    assert set(scores(course, "eve").values()) == {0.0}


def test_essays_wait_for_a_person(course: Path) -> None:
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}", "course") as gradebook:
        essays = [
            g
            for n in gradebook.find_submission("week1", "ada").notebooks
            for g in n.grades
            if not g.name.endswith("-check")
        ]
        assert len(essays) == sum(cell.role == "essay" for number in LESSONS for cell in load_lesson(number).cells) > 0


def test_feedback_shows_the_table_and_no_test_source(course: Path) -> None:
    page = (course / "feedback" / "bob" / "week1" / "02_queries_keys_values.html").read_text()
    assert "what happened" in page and "Likely slip" in page
    for word in ("def test_", "assert_close(", "reference.softmax", "BEGIN SOLUTION"):
        assert word not in page, word


def test_the_export_has_a_row_for_each_student(course: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(course)
    app = ExportApp(config=configuration(course))
    app.initialize([])
    app.start()
    with (course / "grades.csv").open() as file:
        rows = {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
    assert rows["ada"] == sum(points().values()) > rows["bob"] > rows["eve"] == 0


# ------------------------------------------------------------------------------------------------ the traps


def graded_cell(*outputs: Any) -> nbformat.NotebookNode:
    metadata = build.source_notebook(load_lesson("00")).cells
    (check,) = [cell for cell in metadata if cell.id == "row_sums-check"]
    cell = new_code_cell("check(row_sums)", metadata=check.metadata)
    cell.metadata.nbgrader.points = 4.0
    cell.outputs = list(outputs)
    return cell


def result(text: str) -> nbformat.NotebookNode:
    return new_output("execute_result", data={"text/plain": text}, execution_count=1)


@pytest.mark.parametrize("text", ["np.float64(1.0)", "tensor(1.)", "True", "-1.0", "nan", "'1.0'"])
def test_trap_a_result_that_is_no_plain_number_earns_everything(text: str) -> None:
    """So a grade cell must end in a plain float that is not negative: `Verdict` does (tests/test_study.py)."""
    earned, _ = determine_grade(graded_cell(result(text)))
    assert earned == 4.0 or earned != earned or text == "'1.0'"
    assert determine_grade(graded_cell(result("1.5")))[0] == 1.5


def test_trap_no_output_earns_everything_and_more_than_the_maximum_raises() -> None:
    assert determine_grade(graded_cell())[0] == 4.0
    with pytest.raises(ValueError, match="partial credit cannot be greater"):
        determine_grade(graded_cell(result("4.5")))


def test_no_verdict_is_above_the_maximum_or_anything_but_a_plain_float(monkeypatch: pytest.MonkeyPatch) -> None:
    from grader.report import CheckResult, ExerciseResult, Report
    from grader.study.verbs import Verdict

    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    for passed, points in [(0, 4.0), (1, 4.0), (2, 4.0), (3, 0.1), (3, 4.0)]:
        checks = tuple(CheckResult(str(i), "", "values", False, i < passed) for i in range(3))
        exercise = ExerciseResult("row_sums", points, "failed", checks)
        text = repr(Verdict(Report("00_start_here", (exercise,))))
        cell = graded_cell(result(text))
        cell.metadata.nbgrader.points = points
        assert determine_grade(cell)[0] == pytest.approx(points * min(passed, 3) / 3, abs=0.005)


def test_trap_any_output_on_stderr_earns_nothing_and_ours_is_silent(course: Path) -> None:
    stderr = new_output("stream", name="stderr", text="a warning")
    assert determine_grade(graded_cell(stderr, result("4.0")))[0] == 0
    graded = nbformat.read(course / "autograded" / "bob" / "week1" / "02_queries_keys_values.ipynb", as_version=4)
    outputs = [o for cell in graded.cells if cell.get("id") == "softmax-check" for o in cell.outputs]
    assert [o.output_type for o in outputs] == ["execute_result"], "the answer printed to stderr and it came through"


def test_trap_nbgrader_runs_a_bare_alembic(course: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the interpreter's folder on PATH no gradebook opens; run.py, conftest and the command line put it there."""
    from grader import cli

    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match="alembic"):
        Gradebook(f"sqlite:///{tmp_path / 'new.db'}", "course")
    cli.put_interpreter_first_on_path()
    assert shutil.which("alembic")
    Gradebook(f"sqlite:///{tmp_path / 'new.db'}", "course").close()


def test_trap_a_cell_may_take_30_seconds_unless_told_otherwise() -> None:
    from nbgrader.preprocessors import Execute

    from grader.judge import CHECK_SECONDS

    assert Execute().timeout == 30
    assert configuration_timeout() > CHECK_SECONDS


def configuration_timeout() -> float:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        return float(configuration(Path(folder)).Execute.timeout)


def test_trap_a_copied_grade_cell(course: Path) -> None:
    """One copied grade cell ends nbgrader's own sanitizing; spliced, the submission is graded like any other."""
    from nbgrader.nbgraderformat.common import SchemaTooOldError

    folder = course / "submitted" / "cyd" / "week1"
    shutil.copytree(course / "submitted" / "bob" / "week1", folder)
    path = folder / "00_start_here.ipynb"
    notebook = json.loads(path.read_text())
    at = next(i for i, cell in enumerate(notebook["cells"]) if cell["id"] == "row_sums-check")
    notebook["cells"].insert(at, {**notebook["cells"][at], "id": "copied"})
    path.write_text(json.dumps(notebook))
    (folder / "02_queries_keys_values.ipynb").unlink()
    names = {"nbgrader": {"assignment": "week1", "notebook": "00_start_here", "student": "cyd", "db_url": ""}}
    with pytest.raises(SchemaTooOldError):
        sanitized(course, path, names, SANITIZE[1:])
    succeed(NbGraderAPI(config=configuration(course)).autograde("week1", "cyd"))
    earned = scores(course, "cyd")
    assert earned["row_sums"] == points()["row_sums"] and earned["softmax"] == 0


def sanitized(root: Path, path: Path, names: dict[str, Any], steps: list[str]) -> nbformat.NotebookNode:
    from traitlets.utils.importstring import import_item

    config, notebook = configuration(root), nbformat.read(path, as_version=4)
    names["nbgrader"]["db_url"] = f"sqlite:///{root / 'gradebook.db'}"
    for step in steps:
        notebook, _ = import_item(step)(config=config).preprocess(notebook, names)
    return notebook


def test_trap_the_assignment_list_needs_a_writable_exchange(tmp_path: Path) -> None:
    """Released assignments are listed from `Exchange.root`, which nbgrader puts where only root may write."""
    from nbgrader.exchange.default import Exchange

    assert not str(Exchange().root).startswith(str(tmp_path))
    config = configuration(tmp_path)
    assert os.access(config.Exchange.root, os.W_OK)
    assert NbGraderAPI(config=config).get_released_assignments() == set()
