"""Judging in other processes: on this machine, or on a cluster of dask.distributed.

A job is plain data: what was handed in, what was released, and no more of the course. Only the caller writes anything.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from grader.classroom.course import CourseError
from grader.lesson import LessonError, NotebookError
from grader.sandbox.limits import Limits
from grader.splice import Json

_TRIES = 2
"""A job whose process is lost is given to another one this often altogether."""

_SECONDS = 20 * Limits.total
"""Wall time for each notebook of a job, far above what the sandbox lets an answer have: then its process is ended."""


@dataclass(frozen=True)
class Job:
    """One submission to judge.

    `notebooks` holds for each notebook's name its text as `submitted` and as `released`, and the digest of the
    `checks` that must judge it.
    """

    student: str
    key: str
    secret: str
    isolation: str
    notebooks: dict[str, dict[str, str]]


@dataclass(frozen=True)
class Verdict:
    """What came of a job: records and finished notebooks, or one sentence why there are none.

    `state` is `graded`, `refused` (by what was handed in) or `failed` (not the student's doing).
    """

    state: str
    reason: str = ""
    records: dict[str, Any] | None = None
    notebooks: dict[str, str] | None = None
    seconds: float = 0.0


_one_at_a_time = threading.Lock()


def judge_job(job: Job) -> Verdict:
    """Judge a submission in this process. Never raises for what a student handed in."""
    from grader.classroom.grading import bench, judge_notebook
    from grader.classroom.uploads import RefusedSubmission
    from grader.sandbox.box import BoxError

    start = time.perf_counter()
    records: dict[str, Any] = {}
    finished: dict[str, str] = {}
    with _one_at_a_time:  # pytest and the sandbox serve one thread
        try:
            for name, texts in job.notebooks.items():
                notebook = prepared(texts["submitted"], texts["released"])
                record = judge_notebook(notebook, job.secret, job.isolation, name)
                if record is not None and record.checks != texts["checks"]:
                    return Verdict(
                        "failed", "the checks changed while grading, or this worker has another copy of them; run again"
                    )
                records[name] = None if record is None else record.as_data()
                finished[name] = with_verdicts(notebook, records[name])
        except RefusedSubmission as error:
            return Verdict("refused", f"{name}: {error}")
        except BoxError as error:
            bench(job.isolation).close()
            return Verdict("failed", str(error))
        except (NotebookError, LessonError) as error:
            return Verdict("failed", str(error))
        except Exception as error:
            line = str(error).strip().split("\n")[-1][:300]
            return Verdict("failed", f"the judge broke at {name}: {type(error).__name__}: {line}")
    return Verdict("graded", "", records, finished, time.perf_counter() - start)


def prepared(submitted: str, released: str) -> Json:
    """The released notebook with what the student wrote, cleaned.

    Raises:
        RefusedSubmission: when what was handed in is no notebook.
    """
    from grader.classroom.sanitize import clean_notebook
    from grader.classroom.splice import carry_over, read_released
    from grader.classroom.uploads import RefusedSubmission

    try:
        data = json.loads(submitted)
        if "\\ud" in submitted.lower():  # perhaps half of a surrogate pair, which no file can hold
            data = json.loads(json.dumps(data, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        raise RefusedSubmission("it is not complete JSON; ask for a new upload") from None
    notebook = carry_over(read_released(released), data)
    clean_notebook(notebook)
    return notebook


def with_verdicts(notebook: Json, record: dict[str, Any] | None) -> str:
    """The file of the graded notebook."""
    import nbformat

    from grader.classroom.grading import put_verdicts
    from grader.classroom.results import Record

    if record is not None:
        put_verdicts(notebook, Record.from_data(record))
    return str(nbformat.v4.writes(nbformat.from_dict(notebook))) + "\n"


class Pool(Protocol):
    """Where jobs are judged."""

    def run(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, Verdict]]:
        """Judge all jobs; verdicts come as they are ready."""


# ------------------------------------------------------------------------------------------- on this machine


class LocalPool:
    """Worker processes of this machine, each with its own sandbox."""

    def __init__(self, workers: int) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._wanted = workers
        self._idle: list[_Worker] = []
        self._busy: dict[_Worker, tuple[Job, int]] = {}

    def __enter__(self) -> LocalPool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._idle:
            worker.dismiss()
        for worker in [*self._idle, *self._busy]:
            worker.end()

    @property
    def pids(self) -> list[int]:
        return [worker.process.pid or 0 for worker in [*self._idle, *self._busy]]

    def run(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, Verdict]]:
        """Judge all jobs; verdicts come as they are ready. No more jobs are read ahead than there are workers."""
        waiting: list[tuple[Job, int]] = []
        more = True
        while True:
            while more and len(self._busy) + len(waiting) < self._wanted:
                job = next(jobs, None)
                more = job is not None
                if job is not None:
                    waiting.append((job, 1))
            while waiting and len(self._busy) < self._wanted:
                worker = self._idle.pop() if self._idle else _Worker(self._context)
                self._busy[worker] = waiting.pop(0)
                worker.give(self._busy[worker][0])
            if not self._busy:
                return
            until = min(worker.until for worker in self._busy)
            ready = wait([worker.connection for worker in self._busy], max(0.0, until - time.monotonic()))
            now = time.monotonic()
            late = {worker for worker in self._busy if worker.connection not in ready and worker.until <= now}
            for worker in [worker for worker in self._busy if worker.connection in ready or worker in late]:
                job, tries = self._busy.pop(worker)
                verdict = None if worker in late else worker.take()
                if verdict is not None:
                    self._idle.append(worker)
                    yield job, verdict
                    continue
                worker.end()
                if worker in late:
                    yield job, Verdict("failed", f"no verdict after {_seconds(job) / 60:.0f} minutes: it was given up")
                elif tries < _TRIES:
                    waiting.append((job, tries + 1))
                else:
                    yield job, Verdict("failed", f"the judging process was lost {tries} times; see the machine's log")


def _seconds(job: Job) -> float:
    return _SECONDS * len(job.notebooks)


class _Worker:
    """One process that judges, and the pipe to it."""

    def __init__(self, context: Any) -> None:
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs,), daemon=True)
        self.process.start()
        theirs.close()
        self.until = 0.0

    def give(self, job: Job) -> None:
        self.until = time.monotonic() + _seconds(job)
        with contextlib.suppress(OSError):  # a dead process is noticed when its verdict is taken
            self.connection.send(job)

    def take(self) -> Verdict | None:
        """The verdict, or None when the process is gone."""
        try:
            verdict: Verdict = self.connection.recv()
            return verdict
        except (EOFError, OSError):
            return None

    def dismiss(self) -> None:
        """Let it go by itself, its sandbox too; it has no job."""
        with contextlib.suppress(OSError):
            self.connection.send(None)
        self.process.join(10)

    def end(self) -> None:
        """End it at once, whatever it does; nothing to do when it is gone."""
        self.connection.close()
        self.process.kill()
        self.process.join()


def _work(connection: Connection) -> None:
    """A worker's life: judge until the coordinator is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the coordinator ends its workers itself
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    from grader.classroom.grading import close_benches

    while True:
        try:
            job = connection.recv()
        except (EOFError, OSError):
            job = None
        if job is None:
            close_benches()
            return
        with contextlib.suppress(BrokenPipeError):
            connection.send(judge_job(job))


# ------------------------------------------------------------------------------------------- on a cluster


class ClusterPool:
    """The workers of a dask.distributed cluster; each needs this package, of the same version, on its path.

    Raises (start):
        CourseError: distributed is not installed, or there is no scheduler at the address.
    """

    def __init__(self, address: str) -> None:
        try:
            from distributed import Client
        except ImportError:
            raise CourseError("--scheduler needs dask.distributed: pip install distributed") from None
        try:
            self._client = Client(address, timeout=20, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise CourseError(f"no scheduler answers at {address}: {error}; start one with `dask scheduler`") from None

    def __enter__(self) -> ClusterPool:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def run(self, jobs: Iterator[Job]) -> Iterator[tuple[Job, Verdict]]:
        """Judge all jobs; verdicts come as they are ready. A job of a lost worker goes to another one."""
        from distributed import as_completed

        open_jobs: dict[Any, Job] = {}
        done = as_completed(loop=self._client.loop)
        while True:
            room = 2 * max(1, sum(self._client.nthreads().values())) - len(open_jobs)
            for job in (job for _, job in zip(range(room), jobs, strict=False)):
                future = self._client.submit(judge_job, job, pure=False, retries=_TRIES)
                open_jobs[future.key] = job
                done.add(future)
            if not open_jobs:
                return
            future = next(done)
            job = open_jobs.pop(future.key)
            try:
                verdict = future.result()
            except Exception as error:
                verdict = Verdict("failed", f"no worker could judge it: {type(error).__name__}: {error}")
            future.release()
            yield job, verdict
