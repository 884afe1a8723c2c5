"""The attack suite: hostile submissions, judged as a class would be.

For each: no point is gained over the honest equivalent, nothing leaks, the judge's own process and everybody else's verdict
stay as they were, a verdict is given that says what happened, and all of it in time. The answers are data, in
`attacks/answers.toml`; most of them are also run once without walls, in processes of their own, to show that they bite.

What one answer can do to the sandbox itself, wall by wall, is in `test_sandbox_walls.py`; here the judge is in play.
"""

from __future__ import annotations

import json
import os
import secrets
import socket
import sqlite3
import subprocess
import sys
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from attacks.intact import changes, fingerprint

from grader import cli
from grader.judge import judge, judge_with_stand_ins, reference
from grader.lesson import ROOT, Cell, load_lesson
from grader.report import ExerciseResult, Report, as_html, as_json, as_text
from grader.sandbox import remote
from grader.sandbox.remote import Limits, Sandbox, sandbox_available

pytestmark = pytest.mark.skipif(not sandbox_available(), reason=sandbox_available().reason)

DATA = Path(__file__).parent / "attacks"
ANSWERS: dict[str, dict[str, Any]] = tomllib.loads((DATA / "answers.toml").read_text(encoding="utf-8"))
LIMITS = Limits(
    seconds=1.5, cpu_seconds=8, memory=400 << 20, threads=20, file=1 << 20, files=200, output=1 << 20, total=5.0
)  # fmt: skip
DEADLINE = 12.0
"""Seconds within which every hostile submission has its verdict, on a machine that does other things besides."""

CANARY = f"canary-{secrets.token_hex(8)}"
SEED = secrets.randbelow(2**31)

HONEST = {
    "right": "def row_sums(x):\n    return x.sum(-1)",
    "zeros": "def row_sums(x):\n    return torch.zeros(x.shape[:-1], dtype=x.dtype)",
    "nothing": "def row_sums(x):\n    return None",
}


class Listener:
    """Takes whatever is sent to one port of 127.0.0.1, TCP and UDP."""

    def __init__(self) -> None:
        self._tcp = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._tcp.getsockname()[1]
        self._udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._udp.bind(("127.0.0.1", self.port))
        for one in (self._tcp, self._udp):
            one.settimeout(0.2)
        self._arrived: list[bytes] = []
        self._open = True
        self._threads = [threading.Thread(target=self._accept), threading.Thread(target=self._take)]
        for thread in self._threads:
            thread.start()

    def _accept(self) -> None:
        while self._open:
            try:
                connection, _ = self._tcp.accept()
            except TimeoutError:
                continue
            with connection:
                connection.settimeout(0.3)
                try:
                    self._arrived.append(connection.recv(1000))
                except OSError:
                    self._arrived.append(b"(connected)")

    def _take(self) -> None:
        while self._open:
            try:
                self._arrived.append(self._udp.recv(1000))
            except TimeoutError:
                continue

    def arrived(self) -> list[bytes]:
        """What has come, once it had the time to."""
        time.sleep(0.1)
        found, self._arrived = self._arrived, []
        return found

    def close(self) -> None:
        self._open = False
        for thread in self._threads:
            thread.join()
        self._tcp.close()
        self._udp.close()


@dataclass
class Target:
    """What attacks are after: a secret file, a gradebook, the environment, a listener."""

    folder: Path
    listener: Listener

    def fill(self, source: str) -> str:
        names = {
            "@FILE@": str(self.folder / f"{CANARY}.txt"), "@GRADEBOOK@": str(self.folder / "gradebook.db"),
            "@FOLDER@": str(self.folder), "@ROOT@": str(ROOT), "@PORT@": str(self.listener.port),
        }  # fmt: skip
        for name, value in names.items():
            source = source.replace(name, value)
        return source

    def state(self) -> Any:
        """Everything in the folder."""
        return sorted((path.name, path.read_bytes()) for path in self.folder.iterdir())

    def make_gradebook(self) -> None:
        (self.folder / "gradebook.db").unlink(missing_ok=True)
        book = sqlite3.connect(self.folder / "gradebook.db")
        book.execute("create table grade (name text, score real)")
        book.execute("insert into grade values (?, 1.5)", (CANARY,))
        book.commit()
        book.close()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    made = Target(tmp_path_factory.mktemp("target"), Listener())
    (made.folder / f"{CANARY}.txt").write_text(CANARY, encoding="utf-8")
    made.make_gradebook()
    os.environ["GRADER_TEST_CANARY"] = CANARY
    yield made
    del os.environ["GRADER_TEST_CANARY"]
    made.listener.close()


@pytest.fixture(scope="module")
def sandbox(target: Target) -> Iterator[Sandbox]:
    with Sandbox(LIMITS) as sandbox:
        yield sandbox


def cell(source: str, name: str = "row_sums", role: str = "solve", number: int = 1) -> Cell:
    return Cell("code", source, role, name, number)


def judged(sandbox: Sandbox, *cells: Cell, lesson: str = "00", seed: int = SEED) -> Report:
    found = load_lesson(lesson)
    names = [exercise.name for exercise in found.exercises]
    with sandbox.submission(cells, names=names, given=found.given, label="attack") as submission:
        return judge_with_stand_ins(found, submission, seed=seed)


def everything(report: Report) -> str:
    """All that anybody gets to read of a report."""
    return as_text(report) + as_html(report) + as_json(report)


@pytest.fixture(scope="module")
def honest(sandbox: Sandbox) -> Mapping[str, float]:
    """What the honest equivalents earn."""
    scores = {name: judged(sandbox, cell(source)).score for name, source in HONEST.items()}
    assert scores["right"] == 1 > scores["zeros"] > scores["nothing"]
    return scores


@dataclass
class Watch:
    """Looks whether an attack did anything outside."""

    sandbox: Sandbox
    target: Target

    def __enter__(self) -> Watch:
        self._box = self.sandbox.box.pid
        self._before, self._state = fingerprint(), self.target.state()
        self._started = time.monotonic()
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        if kind is not None:
            return
        took = time.monotonic() - self._started
        assert changes(self._before, fingerprint()) == []
        assert took < DEADLINE, f"{took:.1f} s"
        assert self.target.state() == self._state
        assert self.target.listener.arrived() == []
        started = time.monotonic()
        after = judged(self.sandbox, cell(HONEST["right"]))
        assert after.passed and after.score == 1 and after.printed == "", as_text(after)
        assert time.monotonic() - started < 5, "the next one had to wait"
        assert self.sandbox.box.alive and self.sandbox.box.pid == self._box, "the box had to be replaced"


def assert_harmless(report: Report, most: float) -> None:
    """No point gained, nothing leaked, nothing that acts in a terminal or a browser."""
    text = everything(report)
    assert report.score <= most, as_text(report)
    assert all(0 <= e.score <= e.points for e in report.exercises)
    assert CANARY not in text
    assert "reference.row_sums(" not in text, "the source of a hidden check"
    assert len(text) < 100_000
    controls = {c for c in as_text(report) if (c < " " and c != "\n") or "\x7f" <= c <= "\x9f" or c in "\u202e\u2028"}
    assert not controls
    assert "<script" not in as_html(report) and "<img" not in as_html(report)


@pytest.mark.parametrize("name", ANSWERS)
def test_attack(sandbox: Sandbox, target: Target, honest: Mapping[str, float], name: str) -> None:
    attack = ANSWERS[name]
    import re

    with Watch(sandbox, target):
        report = judged(sandbox, cell(target.fill(attack["cell"])))
    assert_harmless(report, honest[attack["honest"]])
    (result,) = report.exercises
    assert result.status in attack["status"], as_text(report)
    assert re.search(attack.get("says", ""), as_text(report)), as_text(report)


# ------------------------------------------------------------------------------------------------ they are real


@pytest.fixture(scope="module")
def without_walls(target: Target) -> Mapping[str, dict[str, Any]]:
    """What the same answers achieve in process: each forked from one helper, ended after some seconds."""
    wanted = {name: target.fill(attack["cell"]) for name, attack in ANSWERS.items() if attack["real"]}
    ran: dict[str, dict[str, Any]] = {}
    with (target.folder / f"{CANARY}.txt").open() as inherited:
        process = subprocess.Popen(
            [sys.executable, "-m", "attacks.without_walls"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            cwd=DATA.parent, env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{DATA.parent}"},
            pass_fds=[inherited.fileno()],
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(wanted))
            process.stdin.close()
            state = target.state()
            for line in process.stdout:
                found = json.loads(line)
                found["arrived"] = target.listener.arrived()
                found["touched"] = target.state() != state
                if found["touched"]:
                    (target.folder / "planted.txt").unlink(missing_ok=True)
                    target.make_gradebook()
                    state = target.state()
                ran[found["name"]] = found
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
    return ran


@pytest.mark.parametrize("name", [name for name, attack in ANSWERS.items() if attack["real"]])
def test_the_attack_is_real(without_walls: Mapping[str, Any], honest: Mapping[str, float], name: str) -> None:
    attack, found = ANSWERS[name], without_walls[name]
    achieved = {
        "points": found["score"] > honest[attack["honest"]],
        "leak": CANARY in found["text"] or "reference.row_sums(" in found["text"],
        "network": found["arrived"] != [],
        "touches": bool(found["changed"]) or found["touched"],
        "dies": found["died"],
    }
    assert achieved[attack["real"]], found
