"""What an answer may use: time, memory, processes, files, output."""

from __future__ import annotations

import resource
from dataclasses import asdict, dataclass
from pathlib import Path

LIMIT = "limit: "
"""Begins the name under which the exception of a limit that was hit crosses the wall."""


@dataclass(frozen=True)
class Limits:
    """Caps for one submission.

    Args:
        seconds: wall time that one call of the answer may take; also for running its cells.
        total: wall time that the judge waits for one submission, all calls and processes together.
        cpu_seconds: processor time of the whole submission.
        memory: bytes beyond what Python and PyTorch occupy.
        threads: threads at once; other processes cannot be started at all.
        file: bytes of one file; a submission has a private folder that is emptied when it ends.
        files: files and folders at once.
        output: bytes of printed text; the first of them are kept.
    """

    seconds: float = 10.0
    total: float = 120.0
    cpu_seconds: int = 120
    memory: int = 2 << 30
    threads: int = 64
    file: int = 16 << 20
    files: int = 2_000
    output: int = 4 << 20

    def said(self, limit: str) -> str:
        """The verdict when a limit was hit."""
        return {
            "memory": f"memory: more than {_size(self.memory)}",
            "threads": f"processes: more than {self.threads} threads",
            "processes": "processes: an answer may not start another process",
            "output": f"output: more than {_size(self.output)} printed",
            "file": f"files: a file larger than {_size(self.file)}, or too many",
            "files": f"files: more than {self.files} files",
            "time": f"timeout: no answer within {self.seconds:g} s",
            "total": f"timeout: more than {self.total:g} s for all checks together",
            "cpu": f"timeout: more than {self.cpu_seconds} s of processor time",
        }.get(limit, f"crashed: limit {limit}")

    def as_dict(self) -> dict[str, float]:
        """The caps as plain numbers."""
        return asdict(self)

    def apply(self) -> None:
        """Set this process's resource limits; they cannot be raised again."""
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        space = pages * resource.getpagesize() + self.memory
        for kind, soft, hard in (
            (resource.RLIMIT_AS, space, space),
            (resource.RLIMIT_CPU, self.cpu_seconds, self.cpu_seconds + 1),
            (resource.RLIMIT_FSIZE, self.file, self.file),
            (resource.RLIMIT_NPROC, self.threads + 16, self.threads + 16),
            (resource.RLIMIT_NOFILE, 128, 128),
            (resource.RLIMIT_CORE, 0, 0),
            (resource.RLIMIT_MEMLOCK, 0, 0),
            (resource.RLIMIT_MSGQUEUE, 0, 0),
        ):
            ceiling = resource.getrlimit(kind)[1]
            if ceiling != resource.RLIM_INFINITY:
                soft, hard = min(soft, ceiling), min(hard, ceiling)
            resource.setrlimit(kind, (soft, hard))


def _size(count: float) -> str:
    return f"{count / (1 << 20):.0f} MB"
