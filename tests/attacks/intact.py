"""What a hostile answer must not change in the process that judges it: a fingerprint, to be compared before and after."""

from __future__ import annotations

import ast
import builtins
import json
import os
import resource
import signal
import sys
import threading
from typing import Any

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

import grader.judge
import grader.report
from grader.checks import assertions, check, collection, inputs

Fingerprint = dict[str, Any]

_PLACES: tuple[Any, ...] = (
    torch, torch.Tensor, torch.nn.functional, torch.autograd, torch.nn.Module, json, builtins, pytest, ast, os, signal,
    InteractiveShell, assertions, inputs.Draw, check, check.Check, collection, grader.judge, grader.report,
    grader.report.Report, grader.report.ExerciseResult, grader.report.CheckResult,
)  # fmt: skip


def fingerprint() -> Fingerprint:
    """Every function and class that judging uses, by identity, and the state of the process."""
    found: Fingerprint = {}
    for place in _PLACES:
        for name, value in list(vars(place).items()):
            if callable(value) or isinstance(value, property | staticmethod | classmethod):
                found[f"{place.__name__}.{name}"] = id(value)
    cwd, mask = os.getcwd(), os.umask(0o22)
    os.umask(mask)
    found |= {
        "environment": dict(os.environ) | {"PYTEST_CURRENT_TEST": ""},
        "folder": cwd,
        "umask": mask,
        "signals": [str(signal.getsignal(n)) for n in signal.valid_signals()],
        "alarm": signal.getitimer(signal.ITIMER_REAL),
        "recursion": sys.getrecursionlimit(),
        "dtype": str(torch.get_default_dtype()),
        "gradients": torch.is_grad_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "threads of torch": torch.get_num_threads(),
        "finders": [id(finder) for finder in sys.meta_path],
        "path hooks": [id(hook) for hook in sys.path_hooks],
        "tracing": [str(sys.gettrace()), str(sys.getprofile()), str(threading.gettrace())],
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "limits": [
            resource.getrlimit(kind) for kind in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_NOFILE)
        ],
        "descriptors": len(os.listdir("/proc/self/fd")),
        "planted modules": sorted(name for name in sys.modules if name.startswith("grader.leak")),
        "output": [id(sys.stdout), id(sys.stderr)],
    }
    return found


def changes(before: Fingerprint, after: Fingerprint) -> list[str]:
    """What is not as it was; things that came newly (a lazily imported module) do not count."""
    return [name for name, value in before.items() if name not in after or after[name] != value]
