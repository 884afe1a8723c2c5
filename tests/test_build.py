"""The builder: reproducible, complete, and nothing of a solution in what is released."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest

from grader import build
from grader.lesson import BEGIN, END, Lesson, load_course, load_lesson

COURSE = load_course()
IDS = [lesson.id for lesson in COURSE]


@pytest.fixture(params=COURSE, ids=IDS)
def lesson(request: pytest.FixtureRequest) -> Lesson:
    found: Lesson = request.param
    return found


def solution_lines(lesson: Lesson) -> set[str]:
    """The lines inside solution regions that are long enough to be told from anything else, and stand nowhere outside."""
    found = set()
    for cell in lesson.cells:
        inside: list[str] = []
        outside: list[str] = []
        here = outside
        for line in map(str.strip, cell.source.split("\n")):
            if line in (BEGIN, END):
                here = inside if line == BEGIN else outside
            else:
                here.append(line)
        found |= {line for line in inside if len(line) > 25 and not any(line in other for other in outside)}
    return found


def test_the_course_is_what_the_sources_build() -> None:
    assert build.drift(COURSE) == []


def test_a_released_notebook_contains_no_solution_and_no_marker(lesson: Lesson) -> None:
    notebook = build.student_notebook(lesson)
    answers = [
        cell.source for cell in notebook.cells if cell.metadata.get("grader", {}).get("role") in ("solve", "essay")
    ]
    for line in solution_lines(lesson):
        assert not any(line in source for source in answers), f"the stub shows {line!r}"
    text = build.as_bytes(notebook).decode()
    for word in ("BEGIN SOLUTION", "END SOLUTION", "HIDDEN TESTS", "BEGIN MARK SCHEME"):
        assert word not in text
    for exercise in lesson.exercises:
        assert exercise.reference not in text
        for hint in exercise.hints:
            assert json.dumps(hint, ensure_ascii=False)[1:-1] not in text, "a hint stands in the notebook"


def test_a_released_notebook_has_a_stub_for_every_exercise_and_essay(lesson: Lesson) -> None:
    notebook = build.student_notebook(lesson)
    cells = {cell.id: cell for cell in notebook.cells}
    assert len(cells) == len(notebook.cells), "cell ids are not unique"
    for exercise in lesson.exercises:
        assert cells[exercise.name].source == exercise.stub
        assert cells[f"{exercise.name}-check"].metadata.nbgrader.points == exercise.points
        assert f"`{exercise.name}`" in cells[f"{exercise.name}-about"].source
    for cell in lesson.cells:
        if cell.role == "essay":
            assert cells[cell.name].source.endswith("YOUR ANSWER HERE")
    assert all(not cell.get("outputs") for cell in notebook.cells)


def test_building_twice_and_in_another_process_gives_the_same_bytes(tmp_path: Path) -> None:
    lesson = load_lesson("02")
    assert build.as_bytes(build.student_notebook(lesson)) == build.as_bytes(build.student_notebook(lesson))
    script = (
        "import sys; from pathlib import Path; from grader import build; from grader.lesson import load_lesson;"
        "build.write_course([load_lesson('02')], Path(sys.argv[1]))"
    )
    for seed in ("1", "2"):
        folder = tmp_path / seed
        subprocess.run(
            [sys.executable, "-c", script, str(folder)], check=True, env={"PYTHONHASHSEED": seed}, cwd=build.ROOT
        )
    first, second = ((tmp_path / seed / f"{lesson.id}.ipynb").read_bytes() for seed in ("1", "2"))
    assert first == second == build.as_bytes(build.student_notebook(lesson))


def test_a_release_is_byte_for_byte_what_nbgrader_generates(tmp_path: Path) -> None:
    """`nbgrader generate_assignment` on the classroom source gives the cells that we release."""
    from nbgrader.apps import NbGraderAPI
    from traitlets.config import Config

    lesson = load_lesson("00")
    (tmp_path / "source" / "week1").mkdir(parents=True)
    (tmp_path / "source" / "week1" / f"{lesson.id}.ipynb").write_bytes(build.as_bytes(build.source_notebook(lesson)))
    config = Config(build.release_config())
    config.CourseDirectory.root = str(tmp_path)
    config.CourseDirectory.course_id = "course"
    config.IncludeHeaderFooter.header = ""
    result = NbGraderAPI(config=config).generate_assignment("week1")
    assert result["success"], result.get("log")
    made = nbformat.read(tmp_path / "release" / "week1" / f"{lesson.id}.ipynb", as_version=4)
    assert json.loads(build.as_bytes(made)) == json.loads(build.as_bytes(build.student_notebook(lesson)))


def test_drift_is_named(tmp_path: Path) -> None:
    lesson = load_lesson("00")
    path = build.write_course([lesson], tmp_path)[0]
    assert build.drift([lesson], tmp_path) == []
    assert build.write_course([lesson], tmp_path) == [], "an equal file was written again"
    notebook = json.loads(path.read_text())
    notebook["cells"][3]["source"] = "edited by hand"
    path.write_text(json.dumps(notebook))
    (sentence,) = build.drift([lesson], tmp_path)
    assert path.name in sentence and "cell 4" in sentence
    path.rename(tmp_path / "16_extra.ipynb")
    assert build.drift([lesson], tmp_path) == [f"{path.name} is missing", "16_extra.ipynb has no source in solutions/"]


@pytest.mark.slow
def test_every_solved_notebook_runs_top_to_bottom(lesson: Lesson, tmp_path: Path) -> None:
    """In a fresh kernel, with every check passed and no output on stderr; pictures have a text after them."""
    notebook = build.execute(build.solved_notebook(lesson), tmp_path)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            assert output.output_type != "error"
            assert not (output.output_type == "stream" and output.name == "stderr"), output.text
        if cell.metadata.get("grader", {}).get("role") == "check":
            (output,) = cell.outputs
            assert f"{cell.metadata.grader.name}: passed" in output.data["text/plain"]


def test_a_solved_notebook_that_fails_names_lesson_and_error(tmp_path: Path) -> None:
    notebook = build.solved_notebook(load_lesson("00"))
    notebook.cells[1].source = "1 / 0"
    with pytest.raises(build.BuildError, match=r"00_start_here: .*ZeroDivisionError"):
        build.execute(notebook, tmp_path)
