"""Studying alone: nothing of a learner's work is ever lost, and the verbs say what helps."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import grader
from grader import cli
from grader.lesson import NotebookError, load_lesson
from grader.study import copies
from grader.study.progress import Progress
from grader.study.verbs import Note, Verdict

LESSON = "00_start_here.ipynb"


@pytest.fixture
def released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A course of two lessons that a test may change."""
    course = tmp_path / "course"
    course.mkdir()
    for name in (LESSON, "02_queries_keys_values.ipynb"):
        shutil.copy(copies.COURSE / name, course / name)
    monkeypatch.setattr(copies, "COURSE", course)
    return course


@pytest.fixture
def mine(released: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "my course"
    copies.start(folder)
    return folder


def cells(path: Path) -> dict[str, dict[str, Any]]:
    return {cell["id"]: cell for cell in json.loads(path.read_text())["cells"]}


def edit(path: Path, name: str, source: str) -> None:
    notebook = json.loads(path.read_text())
    for cell in notebook["cells"]:
        if cell["id"] == name:
            cell["source"] = source
    path.write_text(json.dumps(notebook))


def test_start_makes_copies_and_leaves_an_existing_folder_as_it_is(
    mine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {path.name for path in mine.glob("*.ipynb")} == {LESSON, "02_queries_keys_values.ipynb"}
    edit(mine / LESSON, "row_sums", "my own")
    (mine / "02_queries_keys_values.ipynb").unlink()
    assert copies.start(mine) == []
    assert cells(mine / LESSON)["row_sums"]["source"] == "my own"
    assert not (mine / "02_queries_keys_values.ipynb").exists()
    assert cli.main(["study", "start", str(mine)]) == 0
    assert "was left as it is" in capsys.readouterr().out


def test_an_interrupted_start_leaves_nothing(released: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(copies, "_remember", interrupt)
    with pytest.raises(KeyboardInterrupt):
        copies.start(tmp_path / "new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["course"]


def test_start_never_overwrites_a_file_that_is_there(released: Path, tmp_path: Path) -> None:
    folder = tmp_path / "used"
    folder.mkdir()
    (folder / LESSON).write_text("somebody's")
    copies.start(folder)
    assert (folder / LESSON).read_text() == "somebody's"


def test_update_brings_the_new_text_and_keeps_answers_and_own_cells(mine: Path, released: Path) -> None:
    notebook = json.loads((mine / LESSON).read_text())
    at = next(i for i, cell in enumerate(notebook["cells"]) if cell["id"] == "row_sums")
    notebook["cells"][at]["source"] = "def row_sums(x):\n    return x.sum(-1)"
    own: dict[str, Any] = {
        "id": "mine",
        "cell_type": "code",
        "metadata": {},
        "source": "my_experiment()",
        "outputs": [],
        "execution_count": None,
    }
    notebook["cells"].insert(at + 1, own)
    (mine / LESSON).write_text(json.dumps(notebook))
    before = (mine / LESSON).read_bytes()
    new = json.loads((released / LESSON).read_text())
    new["cells"][0]["source"] = "# 00 A better beginning"
    (released / LESSON).write_text(json.dumps(new))
    changes = {change.notebook: change for change in copies.update(mine)}
    after = json.loads((mine / LESSON).read_text())["cells"]
    ids = [cell["id"] for cell in after]
    assert after[0]["source"] == "# 00 A better beginning"
    assert cells(mine / LESSON)["row_sums"]["source"] == "def row_sums(x):\n    return x.sum(-1)"
    assert ids.index("mine") == ids.index("row_sums") + 1
    backup = changes[LESSON].backup
    assert changes[LESSON].what == "updated" and backup is not None
    assert backup.read_bytes() == before, "the backup is not the former file"
    assert changes["02_queries_keys_values.ipynb"].what == "kept"
    assert {change.what for change in copies.update(mine)} == {"kept"}


def test_update_brings_a_lesson_that_is_new(mine: Path) -> None:
    (mine / LESSON).unlink()
    assert any(change.what == "made" and change.notebook == LESSON for change in copies.update(mine))


def test_reset_of_one_exercise_keeps_the_rest_and_a_backup(mine: Path) -> None:
    path = mine / "02_queries_keys_values.ipynb"
    edit(path, "softmax", "wrong")
    edit(path, "attention", "right")
    before = path.read_bytes()
    (change,) = copies.reset(mine, exercise="softmax")
    assert cells(path)["softmax"]["source"] == load_lesson("02").exercise("softmax").stub
    assert cells(path)["attention"]["source"] == "right"
    assert change.backup is not None and change.backup.read_bytes() == before


def test_reset_forgets_what_was_recorded(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(mine)
    grader.check(row_sums)
    Progress.here().record("softmax").status = "passed"
    Progress.here().save()
    (change,) = copies.reset(mine, exercise="row_sums")
    assert Progress.here().record("row_sums").status == "missing"
    assert change.backup is not None and '"failed"' in change.backup.with_suffix(".progress.json").read_text()


def test_reset_of_a_lesson_twice_keeps_both_backups(mine: Path) -> None:
    backups = []
    for text in ("one", "two"):
        edit(mine / LESSON, "row_sums", text)
        (change,) = copies.reset(mine, ["00"])
        assert change.backup is not None
        backups.append(cells(change.backup)["row_sums"]["source"])
        assert "not started" in cells(mine / LESSON)["row_sums"]["source"]
    assert backups == ["one", "two"]
    assert len(list((mine / ".grader" / "backup").rglob("*.ipynb"))) == 2


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda folder: copies.reset(folder, ["77"]), "there is no lesson '77'"),
        (lambda folder: copies.reset(folder, exercise="nothing"), "there is no exercise 'nothing'"),
        (lambda folder: copies.update(folder / "nowhere"), "is not a study folder"),
    ],
)
def test_what_does_not_exist_is_said_in_a_sentence(mine: Path, call: Any, words: str) -> None:
    with pytest.raises(NotebookError, match=words):
        call(mine)


def test_an_unreadable_copy_is_not_touched(mine: Path, released: Path) -> None:
    (mine / LESSON).write_text("{cut")
    new = json.loads((released / LESSON).read_text())
    new["cells"][0]["source"] = "# 00 Other"
    (released / LESSON).write_text(json.dumps(new))
    with pytest.raises(NotebookError, match="not a readable notebook"):
        copies.update(mine)
    assert (mine / LESSON).read_text() == "{cut"


# ------------------------------------------------------------------------------------------------ the verbs


@pytest.fixture
def here(mine: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(mine)
    return mine


def row_sums(x: Any) -> Any:
    return x.sum(dim=0)


def test_check_shows_a_table_and_keeps_the_verdict(here: Path) -> None:
    verdict = grader.check(row_sums)
    assert isinstance(verdict, Verdict) and not verdict.passed
    text, page = repr(verdict), verdict._repr_html_()
    assert "FAIL shape" in text and "Likely slip: It adds up the first axis" in text
    assert "<table" in page and "Likely slip" in page and "failed" in page
    record = Progress.here().record("row_sums")
    assert record.status == "failed" and record.attempts == 1 and record.failed


def test_an_empty_stub_is_not_started(here: Path) -> None:
    def row_sums(x: Any) -> Any:
        raise NotImplementedError("not started")

    assert repr(grader.check(row_sums)).startswith("row_sums: not started")


def test_a_passed_exercise_stays_passed(here: Path) -> None:
    def right(x: Any) -> Any:
        return x.sum(-1)

    right.__name__ = "row_sums"
    assert grader.check(right).passed  # type: ignore[union-attr]
    grader.check(row_sums)
    assert Progress.here().record("row_sums").status == "passed"


def test_an_answer_under_another_name_is_judged_but_not_recorded(here: Path) -> None:
    verdict = grader.check(lambda x: x.sum(-1), "row_sums")
    assert isinstance(verdict, Verdict) and verdict.passed
    assert Progress.here().record("row_sums").status == "missing"


def test_under_autograde_the_value_is_the_score_and_the_table_stays(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    verdict = grader.check(row_sums)
    assert 0 < float(repr(verdict)) < 1
    assert "<table" in verdict._repr_html_()


def test_hints_come_one_at_a_time_and_are_remembered(here: Path) -> None:
    hints = load_lesson("00").exercise("row_sums").hints
    for number in (1, 2, 3, 3):
        note = grader.hint(row_sums)
        assert note.title == f"Hint {number} of 3 for row_sums" and hints[number - 1] in note.text
    assert hints[0] in grader.hint(row_sums, 1).text
    assert Progress.here().record("row_sums").hints == 3
    assert "no hint 4" in grader.hint(row_sums, 4).title


def test_the_solution_asks_first(here: Path) -> None:
    grader.check(row_sums)
    first = grader.solution(row_sums)
    assert not first.code and "Your last attempt failed at" in first.text
    second = grader.solution(row_sums)
    assert second.code == load_lesson("00").exercise("row_sums").reference


def test_an_unknown_name_is_a_sentence(here: Path) -> None:
    def row_sum(x: Any) -> Any:
        return x

    note = grader.check(row_sum)
    assert isinstance(note, Note) and "no exercise 'row_sum'" in note.title and "row_sums" in note.text


def test_progress_is_a_picture_of_the_whole_course(here: Path) -> None:
    grader.check(row_sums)
    picture = grader.progress()
    assert "0 of " in repr(picture) and "x" in repr(picture).split("\n")[0]
    page = picture._repr_html_()
    assert page.count("<tr>") == len(picture.lessons) and "row_sums: failed" in page


def test_a_damaged_progress_file_is_set_aside(here: Path) -> None:
    (here / ".grader" / "progress.json").write_text("{broken")
    grader.check(row_sums)
    assert list((here / ".grader").glob("progress.unreadable-*.json"))
    assert Progress.here().record("row_sums").status == "failed"


def test_what_an_answer_prints_or_returns_is_escaped_in_the_table(here: Path) -> None:
    def row_sums(x: Any) -> Any:
        print("<script>alert(1)</script>")
        raise ValueError("<script>alert(2)</script>")

    page = grader.check(row_sums)._repr_html_()
    assert "<script>" not in page and "&lt;script&gt;alert(2)" in page
