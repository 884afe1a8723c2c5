"""An instructor's course with nbgrader's own commands, through the walls: scores, feedback, what cannot get in."""

from __future__ import annotations

import csv
import html
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbgrader.api import Gradebook
from seminar import ROW_SUMS, SCRIPT, copy_of, hand_in, handed_in, nbgrader, own, scores

from grader.checks.collection import CheckFileError
from grader.classroom import course as courses
from grader.classroom.grading import GradingError, feedback, judge_notebook, number_for, put_verdicts
from grader.classroom.results import Record, checks_digest, course_secret, seed_for
from grader.classroom.sanitize import clean_cell, clean_html, clean_markdown, clean_notebook, markdown2html
from grader.classroom.splice import carry_over, read_released
from grader.classroom.uploads import INERT, RefusedSubmission, files_of, stored_as
from grader.lesson import ROOT, load_lesson
from grader.report import CheckResult, ExerciseResult, Picture, Report
from grader.sandbox.remote import sandbox_available
from grader.splice import Json

# ------------------------------------------------------------------------------------------ the round trip


@pytest.fixture(scope="module")
def course(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A course of one short lesson, handed in by a class and graded with nbgrader's own commands, walls up."""
    if not sandbox_available():
        pytest.skip(sandbox_available().reason)
    root = copy_of(handed_in(), tmp_path_factory.mktemp("walls"))
    nbgrader(root, "release_assignment", "week1")
    link = hand_in(root, "lnk", {"row_sums": ROW_SUMS}) / "notes.txt"
    link.symlink_to(root / "gradebook.db")
    with pytest.raises(AssertionError, match=r"notes\.txt is a symbolic link"):
        nbgrader(root, "autograde", "week1")  # it says so, and grades all the others
    shutil.rmtree(root / "submitted" / "lnk")
    nbgrader(root, "generate_feedback", "week1")
    nbgrader(root, "export")
    yield root


def test_the_course_is_graded_through_nbgraders_own_commands(course: Path) -> None:
    earned = scores(course)
    full = load_lesson("00").exercise("row_sums").points
    assert earned["ada"] == full and earned["eve"] == 0
    assert 0 < earned["bob"] < full
    assert set(earned) == {"ada", "bob", "eve", "spy", "xss"}
    with (course / "grades.csv").open() as file:
        exported = {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
    assert {s: exported[s] for s in ("ada", "bob", "eve")} == {s: earned[s] for s in ("ada", "bob", "eve")}


def test_no_students_code_runs_in_nbgraders_process_or_in_a_kernel(course: Path) -> None:
    """The spy looks for the course, the gradebook and the solutions from inside an answer."""
    assert scores(course)["spy"] == load_lesson("00").exercise("row_sums").points


def test_essays_wait_for_a_person(course: Path) -> None:
    with Gradebook(f"sqlite:///{course / 'gradebook.db'}", course.name) as gradebook:
        assert gradebook.find_submission("week1", "ada").needs_manual_grade
        assert not gradebook.find_submission("week1", "eve").needs_manual_grade


def test_the_feedback_has_table_message_and_hint_and_no_source_of_a_check(course: Path) -> None:
    page = (course / "feedback" / "bob" / "week1" / "00_start_here.html").read_text()
    lesson = load_lesson("00")
    assert "what happened" in page and "A hint:" in page
    for word in ("def test_", "assert_close(", "reference.row_sums", "BEGIN SOLUTION"):
        assert word not in page, word
    passed = (course / "feedback" / "ada" / "week1" / "00_start_here.html").read_text()
    assert "A hint:" not in passed and f"of {len(lesson.exercises)}" not in passed


class Acting(HTMLParser):
    """Collects what would act in a browser."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.scripts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("iframe", "object", "embed", "svg", "form", "base"):
            self.found.append(tag)
        for name, value in attrs:
            squeezed = "".join((value or "").split()).lower()
            if name.startswith("on") or squeezed.startswith(("javascript:", "vbscript:")):
                self.found.append(f"{tag} {name}={value}")
        self.last = tag

    def handle_data(self, data: str) -> None:
        if "alert(" in data and self.lasttag == "script":
            self.found.append(f"script: {data}")
        if "\\href" in data and self.lasttag not in ("script", "pre", "code", "span"):
            self.found.append(f"TeX: {data[:80]}")


def acting(page: str) -> list[str]:
    parser = Acting()
    parser.feed(page)
    return parser.found


def test_no_script_of_a_student_reaches_a_feedback_page(course: Path) -> None:
    page = (course / "feedback" / "xss" / "week1" / "00_start_here.html").read_text()
    assert "alert(" in page, "the hostile text is shown, as text"
    ours = acting((course / "feedback" / "ada" / "week1" / "00_start_here.html").read_text())
    assert acting(page) == ours == []


def test_no_script_of_a_student_reaches_formgrader(course: Path) -> None:
    """Rendered with formgrader's own template and the course's configuration."""
    from nbconvert.exporters import HTMLExporter
    from nbgrader.server_extensions.formgrader import handlers

    config = courses.Course.open(course).config
    config.HTMLExporter.template_name = "formgrade"
    config.HTMLExporter.extra_template_basedirs = [handlers.template_path]
    notebook = nbformat.read(course / "autograded" / "xss" / "week1" / "00_start_here.ipynb", as_version=4)
    resources: dict[str, Any] = dict.fromkeys(
        ("assignment_id", "submission_id", "notebook_id", "base_url", "mathjax_url"), "x"
    )
    resources |= {"index": 0, "total": 1, "notebook_path": "x", "first_name": "", "last_name": "", "student": "xss"}
    page, _ = HTMLExporter(config=config).from_notebook_node(notebook, resources=resources)
    clean = nbformat.read(course / "autograded" / "eve" / "week1" / "00_start_here.ipynb", as_version=4)
    other, _ = HTMLExporter(config=config).from_notebook_node(clean, resources=resources)
    assert "alert(" in page
    assert acting(page) == acting(other)


def test_a_link_in_a_submission_brings_nothing_into_the_course(course: Path) -> None:
    """The other submissions were graded; the linked gradebook was not copied anywhere."""
    assert not (course / "autograded" / "lnk" / "week1").exists()


# ------------------------------------------------------------------------------------------ splicing


def released() -> Json:
    from grader import build

    return read_released(build.as_bytes(build.student_notebook(load_lesson("02"))).decode())


def test_a_students_own_cells_and_edited_imports_are_carried_over() -> None:
    frame, answered = released(), released()
    given = next(c for c in answered["cells"] if c["metadata"].get("grader", {}).get("role") == "given")
    given["source"] = "import math\n" + given["source"]
    answered["cells"].insert(5, own("def helper(x):\n    return x", "code", id="x" * 99))
    answered["cells"] += [own("one"), own("two"), {**given, "source": "a copy"}]  # of one id
    cells = carry_over(frame, answered)["cells"]
    mine = [c for c in cells if c["metadata"].get("grader", {}).get("role") == "own"]
    assert [c["source"].split("\n")[0] for c in mine] == ["import math", "def helper(x):", "one", "two"]
    assert [c["id"] for c in mine] == [f"own-{n}" for n in (1, 2, 3, 4)] and all(
        "nbgrader" not in c["metadata"] for c in mine
    )
    assert [c for c in cells if c not in mine] == frame["cells"]


@pytest.mark.parametrize(
    "broken", [None, [], {}, {"cells": 3}, {"cells": [{"cell_type": "code"}] * 3000}, {"worksheets": []}]
)
def test_what_is_no_notebook_is_refused_with_a_sentence(broken: Any) -> None:
    with pytest.raises(RefusedSubmission):
        carry_over(released(), broken)


def test_strange_cells_do_no_harm() -> None:
    strange: list[Any] = [
        None,
        3,
        {"cell_type": "task"},
        {"cell_type": "code", "source": [1]},
        {"cell_type": "code", "metadata": []},
    ]
    strange.append({"cell_type": "code", "source": "1", "id": 7, "metadata": {"grader": "x", "nbgrader": 5}})
    assert carry_over(released(), {"cells": strange})["cells"] == released()["cells"]


def test_links_and_pipes_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "n.ipynb").write_text("{}")
    files_of(tmp_path / "a")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    with pytest.raises(RefusedSubmission, match="symbolic link"):
        files_of(tmp_path / "b")
    os.mkfifo(tmp_path / "a" / "pipe")
    with pytest.raises(RefusedSubmission, match="pipe is not a regular file"):
        files_of(tmp_path / "a")


def test_no_other_file_of_a_student_is_a_page_to_the_browser() -> None:
    """Whatever an extension means on this machine, formgrader serves the stored file as data, text or a plain picture."""
    import mimetypes

    from nbgrader.server_extensions.formgrader.handlers import SubmissionFilesHandler

    handler = SubmissionFilesHandler.__new__(SubmissionFilesHandler)
    kinds = {*mimetypes.types_map, *mimetypes.common_types, *INERT, ".HTML", ".xhtml", ".svgz", ".mht", ".py", ""}
    for kind in kinds:
        handler.absolute_path = str(stored_as(Path(f"a/x{kind}")))
        served = handler.get_content_type()
        assert not re.search("html|xml|svg|script|pdf|flash|multipart|x-python", served), (kind, served)
        assert served == "text/plain" or kind.lower() in INERT, kind


# ------------------------------------------------------------------------------------------ cleaning


def test_cleaned_markdown_keeps_its_text() -> None:
    text = "> quote\n\na < b, `x<y`, **bold** <sub>2</sub> <details>\n\n$a<b$ [paper](https://arxiv.org)"
    assert clean_markdown(text).replace("&lt;", "<") == text
    page = markdown2html({"cell": {}}, clean_markdown(text))
    for part in ("<blockquote>", "<strong>bold</strong>", "<sub>2</sub>", 'href="https://arxiv.org"'):
        assert part in page


@pytest.mark.parametrize("text", SCRIPT.strip().split("\n"))
def test_either_barrier_alone_holds(text: str) -> None:
    from nbconvert.filters import markdown2html as stock

    assert acting(markdown2html({"cell": {}}, text)) == []
    assert acting(stock(clean_markdown(text))) == []
    assert acting(clean_html(text)) == []


def test_pictures_of_the_lesson_and_attachments_stay() -> None:
    data = "data:image/png;base64,iVBORw0KGgo="
    assert data in clean_html(f'<img src="{data}">') and "fig/a.png" in clean_html('<img src="fig/a.png">')
    assert "evil" not in clean_html('<img src="//evil/x.png"><img src="https://evil/y.png">')


MERMAID = ("```mermaid\n{}\n```", "> ```mermaid\n> {}\n> ```", "- ```mermaid\n  {}\n  ```", "1. ~~~mermaid\n   {}\n   ~~~",
           "```&#109;ermaid\n{}\n```", "```mermaid-x\n{}\n```")  # fmt: skip


@pytest.mark.parametrize("text", MERMAID)
def test_no_diagram_is_drawn(text: str) -> None:
    page = markdown2html({"cell": {}}, clean_markdown(text.format("graph TD; A")))
    assert "mermaid" not in re.sub(r"<[^>]*>[^<]*", lambda tag: tag[0].split(">")[0], page) and "graph TD; A" in page
    assert "ermaid" not in clean_html('<div class="jp-Mermaid"><pre class="mermaid">graph TD</pre></div>')


def test_python_in_a_fence_is_coloured_and_other_languages_are_plain() -> None:
    assert 'class="highlight"' in markdown2html({"cell": {}}, "```python\nimport math\n```")
    assert "<span" not in markdown2html({"cell": {}}, "```perl\nuse strict;\n```")


@pytest.mark.parametrize(
    "to",
    ["plots.html", "./a", "../x", "/logout", "//evil", "\\\\evil", "https:logout", "http:/logout", "%2e%2e/x", "data:,x",
     "?a=1", "ftp://x/y", "file:///etc/passwd"],
)  # fmt: skip
def test_a_link_leads_elsewhere_or_nowhere(to: str) -> None:
    page = markdown2html({"cell": {}}, clean_markdown(f"[open]({to}) and [again][1]\n\n[1]: {to}"))
    assert "href" not in page and ">open</a>" in page
    assert "href" not in clean_html(f'<a href="{to}">x</a>') and "cite" not in clean_html(f'<q cite="{to}">x</q>')


@pytest.mark.parametrize("to", ["https://arxiv.org/abs/1", "HTTP://x.org", "mailto:a@b.c", "#below"])
def test_a_link_that_leads_elsewhere_stays(to: str) -> None:
    assert f'href="{to}"' in markdown2html({"cell": {}}, clean_markdown(f"[open]({to})"))


@pytest.mark.parametrize(
    "source",
    ["/logout", "../../logout", "a/../x.png", "./../x.png", "%2e%2e/x.png", "..%2fx.png", "//evil/x.png", "/x.png",
     "\\evil\\x.png", "x.png?logout", "logout", "https://evil/x.png", ".hidden/x.png", "a//b.png", "plots.html"],
)  # fmt: skip
def test_a_picture_asks_the_server_for_nothing_but_a_picture_of_its_folder(source: str) -> None:
    page = markdown2html({"cell": {}}, clean_markdown(f"![plot]({source})"))
    assert "src" not in page and "plot" in page
    assert "src" not in clean_html(f'<img src="{source}">')


def test_pictures_beside_the_notebook_stay() -> None:
    for source in ("plot.png", "fig/a-b_c.2.JPG", "Übung.webp", "my%20plot.gif"):
        page = markdown2html({"cell": {}}, clean_markdown(f"![plot]({source})"))
        assert 'src="' in page and "plot" in page, source


def test_a_picture_in_the_middle_of_the_text_becomes_an_attachment() -> None:
    cell = own(f"![p](data:image/png;base64,{'iVBORw0KGgo' * 5_000}=)", metadata={"grader": {"role": "own"}})
    clean_cell(cell)
    assert cell["source"] == "![p](attachment:pasted-1)"
    assert 'src="data:image/png;base64,iVBOR' in markdown2html({"cell": cell}, cell["source"])


LENGTHY = ["x" + "\n" * 40_000 + "x", "\\begin{a}" * 8_000, "\\\\(" * 8_000, "\\\\[" * 8_000, "[" * 40_000]


@pytest.mark.parametrize("number", range(len(LENGTHY)))
def test_no_text_takes_longer_than_a_few_seconds(number: int) -> None:
    from nbconvert.filters.strings import strip_files_prefix

    notebook = released()
    notebook["cells"] = [own(LENGTHY[number], metadata={"grader": {"role": "own"}}) for _ in range(3)]
    begun = time.process_time()
    clean_notebook(notebook)
    for cell in notebook["cells"]:
        page = strip_files_prefix(markdown2html({"cell": cell}, cell["source"]))
        assert "is shown as text" in page and html.escape(cell["source"][:20]) in page.replace("&#91;", "[")
    assert time.process_time() - begun < 3


def test_much_text_in_many_cells_is_shown_as_text_from_a_bound_on() -> None:
    notebook = released()
    given = [cell for cell in notebook["cells"] if cell["cell_type"] == "markdown"]
    notebook["cells"] += [
        own("**x**" + "y" * 15_000, metadata={"grader": {"role": "own"}}, id=f"{n}") for n in range(9)
    ]
    clean_notebook(notebook)
    pages = [markdown2html({"cell": cell}, cell["source"]) for cell in notebook["cells"][-9:]]
    assert ["<strong>x</strong>" in page for page in pages] == [True] * 3 + [False] * 6
    assert not any("shown as text" in markdown2html({"cell": cell}, cell["source"]) for cell in given)


# ------------------------------------------------------------------------------------------ judging


def exercise(passed: int, of: int = 3, points: float = 4.0) -> ExerciseResult:
    checks = tuple(
        CheckResult(str(i), f"check {i}", "values", True, i < passed, message="wrong <b>") for i in range(of)
    )
    return ExerciseResult("row_sums", points, "passed" if passed == of else "failed", checks)


@pytest.mark.parametrize(("passed", "points"), [(0, 4.0), (1, 4.0), (3, 4.0), (3, 0.1), (2, 10), (1, 1.0)])
def test_the_number_for_nbgrader_is_plain_and_within_the_cells_points(passed: int, points: float) -> None:
    text = number_for(exercise(passed), points)
    assert 0 <= float(text) <= points and repr(float(text)) == text
    assert float(text) == pytest.approx(points * passed / 3, abs=0.011)


def test_an_impossible_score_is_an_error_not_a_grade() -> None:
    class Wrong(ExerciseResult):
        score = 9.0

    with pytest.raises(GradingError, match="impossible score"):
        number_for(Wrong("row_sums", 4.0, "failed"), 4.0)


def test_a_grade_cell_that_nobody_can_judge_is_an_error_not_full_marks() -> None:
    notebook = released()
    check = next(c for c in notebook["cells"] if c["id"] == "softmax-check")
    notebook["cells"].append(
        {**check, "id": "mine", "metadata": {"nbgrader": {**check["metadata"]["nbgrader"], "grade_id": "mine"}}}
    )
    with pytest.raises(GradingError, match="'mine' belongs to no exercise"):
        judge_notebook(notebook, "secret", "none", "n")
    notebook = released()
    notebook["metadata"]["grader"] = {"lesson": "77_gone"}
    with pytest.raises(GradingError, match="77_gone"):
        judge_notebook(notebook, "secret", "none", "n")


def test_a_broken_check_file_gives_no_grade(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from grader import judge

    broken = tmp_path / "test_broken.py"
    broken.write_text("import nothing_of_that_name\n")
    monkeypatch.setattr(judge, "check_files", lambda *_a, **_k: [broken])
    with pytest.raises(CheckFileError):
        judge_notebook(released(), "secret", "none", "n")


def test_records_survive_the_way_to_a_file_and_back() -> None:
    picture = Picture(((True, False),), "row", "step")
    check = CheckResult("a", "title", "shape", True, False, 2.0, "message", picture, "slip")
    record = Record(
        "a", "b", 7, "sandbox", Report("02", (ExerciseResult("softmax", 3.0, "failed", (check,), "note"),), "out")
    )
    assert Record.from_data(json.loads(json.dumps(record.as_data()))) == record


def test_the_seed_is_the_courses_secret_and_the_answers(tmp_path: Path) -> None:
    secret = course_secret(tmp_path)
    assert course_secret(tmp_path) == secret and len(secret) == 64
    assert (tmp_path / ".grader" / "secret").stat().st_mode & 0o77 == 0
    assert seed_for(secret, "a") == seed_for(secret, "a") != seed_for(secret, "b") != seed_for("other", "b")


def test_the_digest_of_the_checks_follows_the_check_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from grader.classroom import results

    shutil.copytree(ROOT / "grader", tmp_path / "grader", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(results, "PACKAGE", tmp_path / "grader")
    lesson = load_lesson("00")
    before = checks_digest.__wrapped__(lesson)
    assert before == checks_digest.__wrapped__(lesson)
    for part in ("checks/hidden/test_lesson_00.py", "bank/lesson_00.py", "checks/assertions.py", "judge.py"):
        path = tmp_path / "grader" / part
        path.write_text(path.read_text() + "\n# corrected\n")
        after = checks_digest.__wrapped__(lesson)
        assert after != before, part
        before = after


def test_feedback_escapes_what_came_from_the_answer() -> None:
    result = exercise(1)
    text = feedback(Report("00_start_here", (result,), "<i>printed</i>"), result, ("use $a<b$", "2", "3"))
    assert "wrong &lt;b&gt;" in text and "&lt;i&gt;printed" in text and "use $a&lt;b$" in text
    assert text.index("A hint:") > text.index("</table>")
    assert "A hint:" not in feedback(Report("x", (exercise(3),)), exercise(3), ("h", "2", "3"))


def test_verdicts_are_one_output_and_remember_the_seed() -> None:
    notebook = released()
    record = Record("a", "b", 7, "none", Report("02_queries_keys_values", tuple(
        ExerciseResult(e.name, e.points, "missing") for e in load_lesson("02").exercises
    )))  # fmt: skip
    put_verdicts(notebook, record)
    cells = [c for c in notebook["cells"] if c["id"].endswith("-check")]
    assert cells and all([o["output_type"] for o in c["outputs"]] == ["execute_result"] for c in cells)
    assert notebook["metadata"]["grader"]["judged"] == {"answers": "a", "checks": "b", "seed": 7, "isolation": "none"}


# ------------------------------------------------------------------------------------------ making a course


def test_init_keeps_what_it_would_overwrite_and_hands_none_of_it_out(tmp_path: Path) -> None:
    root = tmp_path / "my course"
    plan = courses.parse_assignments(["week1=00"])
    assert all(line.startswith("wrote") for line in courses.init(root, plan))
    assert all(line.startswith("kept") for line in courses.init(root, plan))
    notebook = root / "source" / "week1" / "00_start_here.ipynb"
    notebook.write_text("my own version")
    (said,) = [line for line in courses.init(root, plan) if not line.startswith("kept")]
    (backup,) = (root / "backup").rglob("*.ipynb")
    assert backup.read_text() == "my own version" and str(backup.relative_to(root)) in said
    assert [path.name for path in (root / "source").rglob("*") if path.is_file()] == ["00_start_here.ipynb"]
    opened = courses.Course.open(root)
    assert opened.isolation == "sandbox" and os.access(opened.config.Exchange.root, os.W_OK)
    assert opened.config.CourseDirectory.course_id == "my-course"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["week1=99"], "there is no lesson '99'"), (["../up=00"], "cannot be an assignment's name"),
        (["a=00", "a=01"], "stands twice"), (["a="], "has no lessons"), (["a=00,00"], "names a lesson twice"),
    ],
)  # fmt: skip
def test_assignments_that_cannot_be_are_named(words: list[str], said: str) -> None:
    with pytest.raises(courses.CourseError, match=said):
        courses.parse_assignments(words)


def test_every_lesson_is_an_assignment_by_default() -> None:
    assert all(name == f"lesson-{lessons[0].number}" for name, lessons in courses.parse_assignments([]).items())


def test_a_folder_that_is_no_course_is_named(tmp_path: Path) -> None:
    with pytest.raises(courses.CourseError, match="classroom init"):
        courses.Course.open(tmp_path)
    (tmp_path / courses.CONFIG).write_text("1 / 0")
    with pytest.raises(courses.CourseError, match="ZeroDivisionError"):
        courses.Course.open(tmp_path)
    with pytest.raises(courses.CourseError, match="lessons themselves"):
        courses.init(ROOT / "solutions", {})


def test_without_a_sandbox_nothing_is_graded_unless_told(
    monkeypatch: pytest.MonkeyPatch, capsys: Any, tmp_path: Path
) -> None:
    from grader import cli
    from grader.sandbox import box

    class No:
        reason = "the sandbox needs bubblewrap"

        def __bool__(self) -> bool:
            return False

    monkeypatch.setattr(box, "sandbox_available", No)
    assert cli.main(["classroom", "init", str(tmp_path / "c"), "week1=00"]) == 2
    assert "bubblewrap" in capsys.readouterr().err and not (tmp_path / "c").exists()
    assert cli.main(["classroom", "init", str(tmp_path / "c"), "week1=00", "--isolation", "none"]) == 0
    assert courses.Course.open(tmp_path / "c").isolation == "none"
    courses.init(tmp_path / "d", courses.parse_assignments(["week1=00"]))
    (tmp_path / "d" / "release" / "week1").mkdir(parents=True)
    assert cli.main(["grade", str(tmp_path / "d")]) == 2
    assert "--isolation none" in capsys.readouterr().err
    with pytest.raises(GradingError, match="Nothing was graded"):
        judge_notebook(released(), "secret", "sandbox", "n")
