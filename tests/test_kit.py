"""What students get works alone, and gives nothing away."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from grader import bank, build, cli
from grader.classroom import kit as kits
from grader.classroom.course import CourseError
from grader.lesson import BEGIN, END, ROOT, load_course, read_lesson

COURSE = load_course()
LONG = 25


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("course")
    build.write_course(COURSE, folder)
    return folder


@pytest.fixture(scope="module")
def kit(tmp_path_factory: pytest.TempPathFactory, course: Path) -> Path:
    folder = tmp_path_factory.mktemp("handed out") / "kit"
    kits.make_kit(folder, COURSE, course)
    return folder


@pytest.fixture(scope="module")
def python(kit: Path) -> Path:
    """The interpreter of a fresh environment that has the packages and nothing of the whole course."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", kit / ".venv"], check=True)
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    (target,) = (kit / ".venv" / "lib").glob("python*/site-packages")
    (target / "packages.pth").write_text(packages + "\n")
    return kit / ".venv" / "bin" / "python"


def run(python: Path, kit: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    env = {"PATH": os.environ["PATH"], "HOME": str(kit)}
    return subprocess.run([python, *arguments], cwd=kit, env=env, capture_output=True, text=True, timeout=300)


def texts(kit: Path) -> dict[str, str]:
    files = [path for path in kit.rglob("*") if path.is_file() and ".venv" not in path.parts]
    files = [path for path in files if "my-course" not in path.parts and "__pycache__" not in path.parts]
    return {str(path.relative_to(kit)): path.read_text() for path in files}


def lines(text: str) -> set[str]:
    return {line.strip() for line in text.split("\n") if len(line.strip()) > LONG}


def open_to_students() -> set[str]:
    """Lines that stand in a released notebook's given text and code, or in a hint."""
    found: set[str] = set()
    for lesson in COURSE:
        for cell in build.student_notebook(lesson).cells:
            found |= lines(cell.source)
        for exercise in lesson.exercises:
            found |= {line.strip(" `") for hint in exercise.hints for line in lines(hint)} | lines(
                "\n".join(exercise.hints)
            )
    return found


def test_nothing_hidden_is_in_it(kit: Path) -> None:
    """No file of what stays with the instructor, and no line of a solution, a hidden check, a mutant or its slip."""
    found = texts(kit)
    names = " ".join(found)
    for word in (
        "hidden",
        "bank/lesson",
        "classroom",
        "sandbox",
        "audit",
        "claims",
        "solutions",
        "tests/",
        ".git/",
        ".pyc",
    ):
        assert word not in names, word
    shown = {line for name, text in found.items() if not name.endswith(".ipynb") for line in lines(text)}
    for name, text in found.items():
        if name.endswith(".ipynb"):
            shown |= {line for cell in json.loads(text)["cells"] for line in lines("".join(cell["source"]))}
    allowed = open_to_students()
    ours = {line for module in kits.MODULES for line in lines((ROOT / "grader" / module).read_text())}
    count = 0
    for lesson in COURSE:
        secret = {line for cell in lesson.cells for line in solution_lines(cell.source)}
        for entry in bank.entries(lesson.id):
            secret |= lines(entry.code(lesson))
            if isinstance(entry, bank.Mutant):
                secret.add(entry.slip)
        hidden = ROOT / "grader" / "checks" / "hidden" / f"test_lesson_{lesson.number}.py"
        public = ROOT / "grader" / "checks" / "public" / f"test_lesson_{lesson.number}.py"
        secret |= lines(hidden.read_text()) - lines(public.read_text())
        secret -= allowed | ours
        count += len(secret)
        leaked = secret & shown
        leaked -= lines(
            "\n".join(
                (ROOT / "grader" / "checks" / "public" / p.name).read_text() for p in public.parent.glob("test_*.py")
            )
        )
        assert not leaked, f"{lesson.id}: {sorted(leaked)[:5]}"
    assert count > 500, "the secrets were found"


def solution_lines(source: str) -> set[str]:
    found = re.findall(f"{BEGIN}(.*?){END}", source, re.DOTALL)
    return {line for region in found for line in lines(region)}


def test_a_lesson_in_the_kit_builds_the_same_notebook_and_has_the_same_hints(kit: Path) -> None:
    for lesson in COURSE:
        stripped = read_lesson(kit / "grader" / "lessons" / lesson.path.name)
        assert build.as_bytes(build.student_notebook(stripped)) == (kit / "course" / f"{lesson.id}.ipynb").read_bytes()
        assert [e.hints for e in stripped.exercises] == [e.hints for e in lesson.exercises]
        assert all(e.reference.strip() == e.stub.strip() for e in stripped.exercises)


def test_a_lesson_is_worked_in_it_alone(kit: Path, python: Path) -> None:
    done = run(python, kit, "-m", "grader", "study", "start", "my-course")
    assert done.returncode == 0, done.stderr
    path = kit / "my-course" / "02_queries_keys_values.ipynb"
    notebook = json.loads(path.read_text())
    lesson = next(lesson for lesson in COURSE if lesson.number == "02")
    assert run(python, kit, "-m", "grader", "check", str(path)).returncode == 1, "nothing is written yet"
    for cell in notebook["cells"]:
        if cell["metadata"].get("grader", {}).get("role") == "solve":
            cell["source"] = lesson.exercise(cell["id"]).reference
    path.write_text(json.dumps(notebook))
    done = run(python, kit, "-m", "grader", "check", str(path), "--json", "report.json")
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((kit / "report.json").read_text())
    assert report["score"] == report["max_score"] > 0
    checks = [check for exercise in report["exercises"] for check in exercise["checks"]]
    assert checks and not any(check["hidden"] for check in checks)
    script = """
import grader, sys
assert grader.__file__.startswith(sys.argv[1]), grader.__file__
from grader import check, hint, solution, progress
def softmax(x, dim):
    return x
print(check(softmax)); print(hint(softmax)); print(solution(softmax)); print(progress())
"""
    done = run(python, kit, "-c", script, str(kit))
    assert done.returncode == 0, done.stderr
    assert "softmax:" in done.stdout and "FAIL" in done.stdout
    assert lesson.exercise("softmax").hints[0].split("\n")[0] in done.stdout
    assert "handed out without solutions" in done.stdout


def test_every_right_answer_passes_what_the_kit_checks(kit: Path, python: Path) -> None:
    """No public check needs the reference, which a kit does not have."""
    answers = {lesson.id: {e.name: e.reference for e in lesson.exercises} for lesson in COURSE}
    (kit / "answers.json").write_text(json.dumps(answers))
    script = """
import json
from grader.judge import given_names, judge
from grader.lesson import Cell, load_lesson
from grader.submission import Submission
for name, answers in json.load(open("answers.json")).items():
    lesson = load_lesson(name)
    cells = [Cell("code", source, "solve", exercise) for exercise, source in answers.items()]
    report, = judge(lesson, [Submission(cells, base=given_names(lesson))])
    print(name, [e.name for e in report.exercises if not e.passed])
    assert report.passed
"""
    done = run(python, kit, "-c", script)
    (kit / "answers.json").unlink()
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(done.stdout.splitlines()) == len(COURSE)


@pytest.mark.parametrize(
    "command", [["grade", "x"], ["classroom", "init", "x"], ["kit", "x"], ["audit"], ["build"], ["claims"]]
)
def test_the_instructors_commands_say_that_they_are_not_there(kit: Path, python: Path, command: list[str]) -> None:
    done = run(python, kit, "-m", "grader", *command)
    assert done.returncode == 2 and "student's kit" in done.stderr and "Traceback" not in done.stderr


def test_the_kit_asks_for_what_it_imports_and_no_more(kit: Path) -> None:
    names = {
        re.split("[=<>]", line)[0]
        for line in (kit / "requirements.txt").read_text().split("\n")
        if line and line[0] != "#"
    }
    assert names & {"torch", "jupyterlab", "pytest", "jupytext"} and not names & kits.NOT_FOR_STUDENTS
    pins = (ROOT / "requirements.txt").read_text()
    assert all(line in pins for line in (kit / "requirements.txt").read_text().split("\n"))
    known = set(sys.stdlib_module_names) | {"grader", "IPython"} | {name.lower() for name in names}
    for name, text in texts(kit).items():
        if name.startswith("grader/") and name.endswith(".py") and "lessons/" not in name:
            for node in ast.walk(ast.parse(text)):
                modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                modules += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                for module in modules:
                    assert module.split(".")[0] in known, f"{name} imports {module}"


def test_a_kit_of_some_lessons_and_a_folder_in_use(tmp_path: Path, course: Path) -> None:
    lessons = [lesson for lesson in COURSE if lesson.number in ("00", "02")]
    kits.make_kit(tmp_path / "kit", lessons, course)
    assert sorted(p.name for p in (tmp_path / "kit" / "course").iterdir()) == [
        "00_start_here.ipynb",
        "02_queries_keys_values.ipynb",
    ]
    assert len(list((tmp_path / "kit" / "grader" / "checks" / "public").glob("test_*"))) == 2
    before = texts(tmp_path / "kit")
    with pytest.raises(CourseError, match="give a new folder"):
        kits.make_kit(tmp_path / "kit", lessons, course)
    assert texts(tmp_path / "kit") == before
    (tmp_path / "stale").mkdir()
    with pytest.raises(CourseError, match=r"00_start_here\.ipynb is missing"):
        kits.make_kit(tmp_path / "other", lessons, tmp_path / "stale")
    assert not (tmp_path / "other").exists()
    assert [path.name for path in tmp_path.iterdir()] in (["kit", "stale"], ["stale", "kit"])


def test_the_command_makes_a_kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, course: Path) -> None:
    monkeypatch.setattr(build, "COURSE", course)
    assert cli.main(["kit", str(tmp_path / "kit"), "00"]) == 0
    assert cli.main(["kit", str(tmp_path / "kit"), "00"]) == 2
