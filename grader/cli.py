"""The command line: arguments and exit codes. How anything is done stands in the modules that it calls.

Modules are imported by the command that needs them, so that each command starts as fast as it can.
"""

from __future__ import annotations

import argparse
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from grader.lesson import Lesson, LessonError, Notebook, NotebookError

if TYPE_CHECKING:
    from grader.report import Report

OK, FAILED, UNUSABLE = 0, 1, 2

CELLS_SECONDS = 60.0
"""How long the cells of an answer may take before any check is asked."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Expected errors end in one sentence on stderr and exit 2."""
    options = _parser().parse_args(arguments)
    put_interpreter_first_on_path()
    try:
        return int(options.run(options))
    except (NotebookError, LessonError) as error:
        return _complain(str(error))
    except ImportError as error:
        if (error.name or "").split(".")[0] != "grader":
            raise
        return _complain(f"this is a student's kit, which has no `{options.command}`; use the whole course")
    except KeyboardInterrupt:
        return _complain("interrupted; nothing was lost, run the command again")
    except BrokenPipeError:
        return FAILED


def put_interpreter_first_on_path() -> None:
    """nbgrader runs a bare `alembic`: let it be the one beside this interpreter."""
    folder = str(Path(sys.executable).parent)
    paths = os.environ.get("PATH", "").split(os.pathsep)
    if paths[0] != folder:
        os.environ["PATH"] = os.pathsep.join([folder, *filter(None, paths)])


def _complain(sentence: str) -> int:
    print(f"grader: {sentence}", file=sys.stderr)
    return UNUSABLE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="grader", description="Build, check and grade the Transformer notebooks.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    build = commands.add_parser("build", help="solutions/ to course/")
    build.add_argument("--check", action="store_true", help="compare instead of writing; name what drifted")
    build.add_argument("--solved", action="store_true", help="also execute the solved notebooks into build/solved/")
    build.add_argument("lessons", nargs="*", metavar="LESSON", help="lesson ids or numbers (all by default)")
    build.set_defaults(run=_build)

    check = commands.add_parser("check", help="all available checks on one notebook or percent file")
    check.add_argument("notebook", type=Path, metavar="NOTEBOOK")
    check.add_argument("--json", type=Path, metavar="F", help="also write the report as JSON ('-' for standard output)")
    check.add_argument("--isolation", choices=["none", "sandbox"], default="none", help="where the answer runs")
    check.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="draw the same inputs again (by default new ones with --isolation sandbox)",
    )
    check.set_defaults(run=_check)

    study = commands.add_parser("study", help="a learner's own copies of the course")
    actions = study.add_subparsers(dest="action", required=True, metavar="start|update|reset")
    for action, what in (
        ("start", "make the copies"),
        ("update", "bring new lessons, keep answers"),
        ("reset", "back to the stubs"),
    ):
        verb = actions.add_parser(action, help=what)
        verb.add_argument("folder", type=Path, metavar="DIR")
        if action == "reset":
            verb.add_argument("lessons", nargs="*", metavar="LESSON", help="lesson ids or numbers (all by default)")
            verb.add_argument("--exercise", metavar="NAME", help="only this exercise's cell")
        verb.set_defaults(run=_study)

    _add_instructors_commands(commands)

    claims = commands.add_parser(
        "claims", help="which lesson and cell answers for each statement of the seed documents"
    )
    claims.add_argument("--markdown", type=Path, metavar="F", help="write the table to a file instead")
    claims.set_defaults(run=_claims)

    audit = commands.add_parser("audit", help="the bank against the checks: the kill matrix")
    audit.add_argument("lessons", nargs="*", metavar="LESSON", help="lesson ids or numbers (all by default)")
    audit.add_argument("--json", type=Path, metavar="F", help="also write the matrix as JSON ('-' for standard output)")
    audit.add_argument("--html", type=Path, metavar="F", help="also write the matrix as a page")
    audit.add_argument("--exercise", metavar="NAME", help="audit one exercise")
    audit.add_argument("--seeds", type=int, default=1, metavar="N", help="how many sets of random inputs (1)")
    audit.set_defaults(run=_audit)
    return parser


def _add_instructors_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    isolation = {"choices": ["none", "sandbox"], "default": "", "help": "where answers run (the course's setting)"}
    classroom = commands.add_parser("classroom", help="an instructor's course for nbgrader")
    init = classroom.add_subparsers(dest="action", required=True, metavar="init").add_parser("init", help="make it")
    init.add_argument("folder", type=Path, metavar="DIR")
    init.add_argument("assignments", nargs="*", metavar="NAME=LESSONS", help="week1=01,02 (by default one a lesson)")
    init.add_argument("--isolation", choices=["none", "sandbox"], default="sandbox", help="where answers run")
    init.set_defaults(run=_classroom)

    for name, what in (("grade", "a whole class in parallel"), ("regrade", "judge again; show what changed and why")):
        command = commands.add_parser(name, help=what)
        command.add_argument("folder", type=Path, metavar="DIR", help="the course")
        command.add_argument("assignment", nargs="?", default="", metavar="ASSIGNMENT", help="all by default")
        command.add_argument("-j", "--jobs", type=int, default=0, metavar="N", help="worker processes (one a core)")
        command.add_argument("--scheduler", default="", metavar="ADDRESS", help="judge on a dask.distributed cluster")
        command.add_argument("--isolation", **isolation)  # type: ignore[arg-type]
        command.set_defaults(run=_grade)

    kit = commands.add_parser("kit", help="what students get: the course without solutions and hidden checks")
    kit.add_argument("folder", type=Path, metavar="DIR")
    kit.add_argument("lessons", nargs="*", metavar="LESSON", help="lesson ids or numbers (all by default)")
    kit.set_defaults(run=_kit)


def _classroom(options: argparse.Namespace) -> int:
    from grader.classroom.commands import classroom_init

    return classroom_init(options.folder, options.assignments, options.isolation)


def _grade(options: argparse.Namespace) -> int:
    from grader.classroom.commands import grade

    return grade(
        options.folder,
        options.assignment,
        workers=options.jobs,
        scheduler=options.scheduler,
        isolation=options.isolation,
        again=options.command == "regrade",
    )


def _kit(options: argparse.Namespace) -> int:
    from grader.classroom.kit import make_kit

    for line in make_kit(options.folder, _lessons(options.lessons)):
        print(line)
    return OK


def _lessons(names: Sequence[str]) -> list[Lesson]:
    from grader.lesson import load_course, load_lesson

    try:
        return [load_lesson(name) for name in names] if names else list(load_course())
    except KeyError as error:
        raise NotebookError(str(error.args[0])) from None


def _write(target: Path, text: str) -> None:
    if str(target) == "-":
        print(text, end="")
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise NotebookError(
            f"cannot write {target}: {error.strerror}; give a path in a folder that you may write to"
        ) from None


def _audit(options: argparse.Namespace) -> int:
    from grader import audit
    from grader.bank import BankError

    try:
        result = audit.audit(
            _lessons(options.lessons),
            seeds=options.seeds,
            only=options.exercise,
            progress=lambda what: _progress(f"auditing {what}"),
        )
    except BankError as error:
        raise NotebookError(f"the bank of lesson {error}") from None
    _progress("")
    if options.json:
        _write(options.json, audit.as_json(result))
    if options.html:
        _write(options.html, audit.as_html(result))
    if str(options.json) != "-":
        print(audit.as_text(result))
    return OK if result.clean and result.exercises else FAILED


def _progress(what: str) -> None:
    """One moving line on a terminal, nothing in a pipe."""
    if sys.stderr.isatty():
        print(f"\r\033[K{what}", end="", file=sys.stderr, flush=True)


def _build(options: argparse.Namespace) -> int:
    from grader import build

    lessons = _lessons(options.lessons)
    if not lessons:
        raise NotebookError("there are no lessons in solutions/; expected files named NN_slug.py")
    if options.check:
        found = build.drift(lessons, complete=not options.lessons)
        for sentence in found:
            print(sentence)
        print(
            "course/ differs from solutions/: run `python3 run.py build`"
            if found
            else "course/ is what solutions/ builds"
        )
        return FAILED if found else OK
    changed = build.write_course(lessons, say=lambda lesson: _progress(f"building {lesson}"))
    _progress("")
    for path in changed:
        print(f"wrote course/{path.name}")
    print(f"{len(lessons)} lessons, {len(changed)} notebooks changed")
    if options.solved:
        try:
            for path in build.write_solved(lessons, say=lambda lesson: _progress(f"executing {lesson}")):
                print(f"executed build/solved/{path.name}")
        except build.BuildError as error:
            _progress("")
            print(error, file=sys.stderr)
            return FAILED
        _progress("")
    return OK


def _check(options: argparse.Namespace) -> int:
    from grader.lesson import find_lesson, read_notebook
    from grader.report import as_json, as_text

    notebook = read_notebook(options.notebook)
    lesson = find_lesson(notebook)
    seed = options.seed
    if seed is None:  # a grade must not depend on inputs that somebody can know beforehand
        seed = secrets.randbelow(2**31) if options.isolation == "sandbox" else 0
    judged = _judged_in_sandbox if options.isolation == "sandbox" else _judged_here
    report = judged(notebook, lesson, options.notebook, seed)
    if options.json:
        _write(options.json, as_json(report))
    if str(options.json) != "-":
        print(as_text(report))
    if options.isolation == "sandbox":
        print(f"inputs drawn with --seed {seed}", file=sys.stderr if str(options.json) == "-" else sys.stdout)
    absent = [e.name for e in report.exercises if e.status == "missing" and e.note.startswith(f"{e.name} is missing: ")]
    if absent:
        return _complain(
            f"{options.notebook} has no {' and no '.join(absent)}; lesson {lesson.id} asks for it: "
            "restore the exercise's cell (`study reset` does it) and write your answer there"
        )
    return OK if report.passed else FAILED


def _judged_in_sandbox(notebook: Notebook, lesson: Lesson, path: Path, seed: int) -> Report:
    from grader.judge import judge_with_stand_ins
    from grader.sandbox.remote import BoxError, Sandbox

    names = [exercise.name for exercise in lesson.exercises]
    try:
        with (
            Sandbox() as sandbox,
            sandbox.submission(notebook.cells, names=names, given=lesson.given, label=path.name) as submission,
        ):
            return judge_with_stand_ins(lesson, submission, seed=seed)
    except BoxError as error:
        raise NotebookError(str(error)) from None


def _judged_here(notebook: Notebook, lesson: Lesson, path: Path, seed: int) -> Report:
    from grader.judge import given_names, judge_with_stand_ins
    from grader.submission import AnswerTimeout, Submission, deadline

    try:
        with deadline(CELLS_SECONDS):
            submission = Submission(
                notebook.cells,
                names=[exercise.name for exercise in lesson.exercises],
                base=given_names(lesson),
                label=path.name,
            )
    except AnswerTimeout:
        raise NotebookError(
            f"the cells of {path} took more than {CELLS_SECONDS:g} s; move long computations out of the exercises' cells"
        ) from None
    return judge_with_stand_ins(lesson, submission, seed=seed)


def _study(options: argparse.Namespace) -> int:
    from grader.study import copies

    if options.action == "start":
        changes = copies.start(options.folder)
        if not changes:
            print(
                f"{options.folder} exists already and was left as it is; "
                f"`study update {options.folder}` brings new lessons"
            )
    elif options.action == "update":
        changes = copies.update(options.folder)
    else:
        changes = copies.reset(options.folder, options.lessons, options.exercise or "")
    for change in changes:
        print(change)
    return OK


def _claims(options: argparse.Namespace) -> int:
    from grader import claims
    from grader.lesson import load_course

    listed, course = claims.load_claims(), load_course()
    table = claims.as_markdown(listed, course)
    _write(options.markdown or Path("-"), table)
    found = claims.faults(listed, course)
    for sentence in found:
        print(sentence, file=sys.stderr)
    return FAILED if found else OK
