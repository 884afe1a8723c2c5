"""The command line: arguments and exit codes. How anything is done stands in the modules that it calls.

Modules are imported by the command that needs them, so that each command starts as fast as it can.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

OK, FAILED, UNUSABLE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Expected errors end in one sentence on stderr and exit 2."""
    parser = _parser()
    options = parser.parse_args(arguments)
    from grader.lesson import LessonError, NotebookError

    try:
        return int(options.run(options))
    except (NotebookError, LessonError) as error:
        return _complain(str(error))
    except KeyboardInterrupt:
        return _complain("interrupted; nothing was lost, run the command again")
    except BrokenPipeError:
        return FAILED


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
    check.set_defaults(run=_check)

    audit = commands.add_parser("audit", help="the bank against the checks: the kill matrix")
    audit.add_argument("lessons", nargs="*", metavar="LESSON", help="lesson ids or numbers (all by default)")
    audit.add_argument("--json", type=Path, metavar="F", help="also write the matrix as JSON ('-' for standard output)")
    audit.add_argument("--html", type=Path, metavar="F", help="also write the matrix as a page")
    audit.add_argument("--exercise", metavar="NAME", help="audit one exercise")
    audit.add_argument("--seeds", type=int, default=1, metavar="N", help="how many sets of random inputs (1)")
    audit.set_defaults(run=_audit)
    return parser


def _lessons(names: Sequence[str]) -> list:  # type: ignore[type-arg]
    from grader.lesson import NotebookError, load_course, load_lesson

    try:
        return [load_lesson(name) for name in names] if names else list(load_course())
    except KeyError as error:
        raise NotebookError(str(error.args[0])) from None


def _write(target: Path, text: str) -> None:
    from grader.lesson import NotebookError

    if str(target) == "-":
        print(text, end="")
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    except OSError as error:
        raise NotebookError(f"cannot write {target}: {error.strerror}; give a path in a folder that you may write to") from None


def _audit(options: argparse.Namespace) -> int:
    from grader import audit

    def say(what: str) -> None:
        if sys.stderr.isatty():
            print(f"\r\033[Kaudit: {what}", end="", file=sys.stderr, flush=True)

    result = audit.audit(_lessons(options.lessons), seeds=options.seeds, only=options.exercise, progress=say)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    if options.json:
        _write(options.json, audit.as_json(result))
    if options.html:
        _write(options.html, audit.as_html(result))
    if str(options.json) != "-":
        print(audit.as_text(result))
    return OK if result.clean and result.exercises else FAILED


def _build(options: argparse.Namespace) -> int:
    raise NotImplementedError


def _check(options: argparse.Namespace) -> int:
    raise NotImplementedError
