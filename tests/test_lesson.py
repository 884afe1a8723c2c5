"""The source format: what is read, and that every mistake in a source is named with file, line and mend."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from grader.lesson import (
    LessonError,
    NotebookError,
    clear_solution,
    exercise_index,
    find_lesson,
    load_course,
    read_lesson,
    read_notebook,
)

GOOD = '''# %% [markdown]
# # 02 A title
# %%
import torch
# %% solve="double" points=2 difficulty=1 importance=2 minutes=3
def double(x):
    """Twice x."""
    ### BEGIN SOLUTION
    return 2 * x
    ### END SOLUTION
# %% check="double"
check(double)
# %% [markdown] hints="double"
# 1. one
# 2. two
# 3. three
'''


def read(tmp_path: Path, text: str) -> object:
    path = tmp_path / "02_title.py"
    path.write_text(text)
    return read_lesson(path)


def test_a_lesson_is_read_with_its_exercise(tmp_path: Path) -> None:
    path = tmp_path / "02_title.py"
    path.write_text(GOOD)
    lesson = read_lesson(path)
    assert (lesson.id, lesson.number, lesson.title) == ("02_title", "02", "02 A title")
    assert [cell.role for cell in lesson.cells] == ["text", "given", "solve", "check", "hints"]
    exercise = lesson.exercise("double")
    assert exercise.points == 2.0
    assert exercise.hints == ("one", "two", "three")
    assert exercise.reference == 'def double(x):\n    """Twice x."""\n    return 2 * x'
    assert exercise.stub.endswith('    # YOUR CODE HERE\n    raise NotImplementedError("not started")')


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ('solve="double"', 'solvee="double"', 5, "unknown key"),
        ("minutes=3", "minute=3", 5, "unknown key 'minute'"),
        ("points=2", 'points="two"', 5, "points='two'"),
        ("points=2 ", "", 5, "points=None"),
        ('check="double"', 'check="doubel"', 11, "has no exercise"),
        ('# %% check="double"\ncheck(double)\n', "", 5, "has no check cell"),
        ('# %% [markdown] hints="double"', "# %% [markdown]", 5, "has no hints cell"),
        ("    ### END SOLUTION\n", "", 5, "1 '### BEGIN SOLUTION' and 0 '### END SOLUTION'"),
        ("# 3. three\n", "", 13, "has 2 hints"),
        ("# # 02 A title", "# A title", 1, "has no title"),
        (
            '# %% check="double"\ncheck(double)\n',
            '# %% check="double"\n1\n# %% check="double"\n2\n',
            13,
            "stands twice",
        ),
        ('# %% check="double"', '# %% [markdown] check="double"', 11, "is a markdown cell"),
        ('solve="double"', 'solve="double" check="double"', 5, "both"),
    ],
)
def test_a_mistake_in_a_source_names_file_line_and_mend(
    tmp_path: Path, old: str, new: str, line: int, words: str
) -> None:
    assert old in GOOD
    with pytest.raises(LessonError) as caught:
        read(tmp_path, GOOD.replace(old, new, 1))
    message = str(caught.value)
    assert message.startswith(f"02_title.py:{line}: ")
    assert words in message
    assert "; " in message, "the mend is missing"


def test_a_second_exercise_of_the_same_name_is_refused(tmp_path: Path) -> None:
    again = GOOD[GOOD.index('# %% solve="double"') : GOOD.index('# %% check="double"')]
    with pytest.raises(LessonError, match=r"02_title\.py:11: .*stands twice.*line 5"):
        read(tmp_path, GOOD.replace('# %% check="double"', again + '# %% check="double"', 1))


def test_every_region_is_cleared_at_its_indentation() -> None:
    source = "class A:\n    def f(self):\n        ### BEGIN SOLUTION\n        x = 1\n        ### END SOLUTION\n"
    cleared = clear_solution(source)
    assert "x = 1" not in cleared and "SOLUTION" not in cleared
    assert '        raise NotImplementedError("not started")' in cleared


def test_exercise_names_are_unique_in_the_course_and_the_quick_index_agrees_with_the_reader() -> None:
    names = {exercise.name: lesson.id for lesson in load_course() for exercise in lesson.exercises}
    assert dict(exercise_index()) == names
    assert len(names) == sum(len(lesson.exercises) for lesson in load_course())


# ------------------------------------------------------------------------------------------------ answers


def unusable(path: Path) -> str:
    with pytest.raises(NotebookError) as caught:
        find_lesson(read_notebook(path))
    message = str(caught.value)
    assert "\n" not in message and str(path) in message
    return message


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("absent.ipynb", None, "does not exist"),
        ("essay.docx", b"x", "expected a lesson's notebook"),
        ("cut.ipynb", b'{"cells": [{"cell_type": "code", "sour', "not complete JSON"),
        ("empty.ipynb", b"", "is empty"),
        ("list.ipynb", b"[1, 2]", "not a notebook of format 4"),
        ("old.ipynb", b'{"worksheets": [], "nbformat": 3}', "not a notebook of format 4"),
        ("cell.ipynb", b'{"cells": [3]}', "cell 1"),
        ("source.ipynb", b'{"cells": [{"cell_type": "code", "source": 3}]}', "cell 1"),
        ("latin.ipynb", b"\xff\xfe{}", "UTF-8"),
        ("deep.ipynb", b"[" * 200_000, "deeply"),
        ("other.ipynb", b'{"cells": [], "metadata": {"grader": {"lesson": "77_cooking"}}}', "'77_cooking'"),
        ("none.ipynb", b'{"cells": [{"cell_type": "code", "source": "x = 1"}]}', "no exercise of any lesson"),
        ("none.py", b"x = 1\n", "no exercise of any lesson"),
    ],
)
def test_a_file_that_is_no_answer_gets_one_sentence(
    tmp_path: Path, name: str, content: bytes | None, words: str
) -> None:
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    assert words in unusable(path)


def test_a_folder_is_no_answer(tmp_path: Path) -> None:
    assert "a folder" in unusable(tmp_path)


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "huge.ipynb"
    with path.open("wb") as file:
        file.truncate(60_000_000)
    assert "60 MB" in unusable(path)


def test_the_lesson_is_recognised_by_metadata_by_exercises_or_by_file_name(tmp_path: Path) -> None:
    def notebook(name: str, metadata: dict[str, object], source: str) -> Path:
        path = tmp_path / name
        cell = {"cell_type": "code", "metadata": {}, "source": [source], "outputs": []}
        path.write_text(json.dumps({"cells": [cell], "metadata": metadata, "nbformat": 4}))
        return path

    for path in (
        notebook("a.ipynb", {"grader": {"lesson": "02_queries_keys_values"}}, ""),
        notebook("b.ipynb", {}, "def softmax(x, dim):\n    return x"),
        notebook("02_queries_keys_values.ipynb", {}, "x = 1"),
    ):
        assert find_lesson(read_notebook(path)).number == "02"
