"""Runs hostile answers in process, as a judge without walls would: shows that what the suite fends off is real.

Reads attacks from standard input, JSON in a line each, forks for each, ends what does not end, and prints what became of
it. A forked process has bounds on memory, processor time and files.
"""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import time
from typing import Any

from attacks.intact import changes, fingerprint
from grader.judge import given_names, judge, reference
from grader.lesson import Cell, load_lesson
from grader.report import as_json, as_text
from grader.submission import Submission

SECONDS = 6.0
OF_THE_DEADLY = 2.5
"""Seconds for attacks that are expected to hang."""


def attacked(source: str, descriptor: int, seconds: float) -> None:
    """In a forked process: judge the answer, write the outcome to the descriptor."""
    pages = int(open("/proc/self/statm", encoding="ascii").read().split()[0])  # noqa: SIM115
    space = pages * resource.getpagesize() + (1 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (space, space))
    resource.setrlimit(resource.RLIMIT_CPU, (10, 10))
    resource.setrlimit(resource.RLIMIT_FSIZE, (16 << 20, 16 << 20))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    lesson = load_lesson("00")
    before = fingerprint()
    cells = [Cell("code", source, "solve", "row_sums", 1)]
    submission = Submission(cells, base=given_names(lesson), label="attack")
    (report,) = judge(lesson, [submission], limit=2.0 if seconds == SECONDS else 1.0, diagnose=False)
    text = as_json(report) + "\n\0" + as_text(report) + "\n\0" + "\n".join(changes(before, fingerprint()))
    os.write(descriptor, text.encode("utf-8", "replace"))


def outcome(source: str, seconds: float) -> dict[str, Any]:
    """Judge one answer in a process of its own."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 99
        try:
            os.close(reading)
            os.setsid()
            nothing = os.open(os.devnull, os.O_RDWR)
            for number in (0, 1, 2):
                os.dup2(nothing, number)
            attacked(source, writing, seconds)
            code = 0
        except BaseException:
            code = 98
        finally:
            os._exit(code)
    os.close(writing)
    data, until = b"", time.monotonic() + seconds
    while time.monotonic() < until:
        if select.select([reading], [], [], 0.1)[0]:
            chunk = os.read(reading, 1 << 16)
            data += chunk
            if not chunk:
                break
    os.close(reading)
    ended, status = os.waitpid(pid, os.WNOHANG)
    if not ended:
        os.kill(pid, signal.SIGKILL)
        status = os.waitpid(pid, 0)[1]
    report, text, changed = [*data.decode().split("\n\0"), "", ""][:3]
    died = not data
    score = 0.0 if died else float(json.loads(report).get("score", 0))
    return {
        "score": score,
        "text": report + text,
        "changed": changed.split("\n") if changed else [],
        "died": died,
        "status": status,
    }


def main() -> None:
    """Warm up once, then one fork for each attack."""
    lesson = load_lesson("00")
    right = Submission(
        [Cell("code", "def row_sums(x): return x.sum(-1)", "solve", "row_sums")], base=given_names(lesson)
    )
    assert judge(lesson, [right])[0].passed
    reference(lesson).answer("row_sums")
    for line in sys.stdin:
        source, real = json.loads(line)
        print(json.dumps(outcome(source, OF_THE_DEADLY if real == "dies" else SECONDS)), flush=True)


if __name__ == "__main__":
    main()
