"""Landlock: a process gives up, for good, every file, TCP port and signal that is not on a list.

Three system calls through ctypes; their numbers are the same on every architecture. See landlock(7).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION_FLAG = 1
_PATH_BENEATH = 1
_PR_SET_NO_NEW_PRIVS = 38

_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_EXECUTE, _WRITE_FILE, _TRUNCATE = 1 << 0, 1 << 1, 1 << 14
_REMOVE_DIR, _REMOVE_FILE, _MAKE_DIR, _MAKE_REGULAR = 1 << 4, 1 << 5, 1 << 7, 1 << 8
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE

_libc = ctypes.CDLL(None, use_errno=True)


class LandlockError(OSError):
    """The kernel refused."""


class _Ruleset(ctypes.Structure):
    _fields_ = [("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = [("allowed", ctypes.c_uint64), ("fd", ctypes.c_int32)]


def _call(number: int, *args: object) -> int:
    result = int(_libc.syscall(ctypes.c_long(number), *args))
    if result < 0:
        error = ctypes.get_errno()
        raise LandlockError(error, os.strerror(error))
    return result


def abi() -> int:
    """The kernel's version of Landlock; 0 where there is none."""
    try:
        return _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    except LandlockError:
        return 0


def restrict(read: Iterable[str], write: Iterable[str], devices: Iterable[str] = ()) -> None:
    """Keep only: reading below `read`, reading and changing what is below `write`, reading and writing `devices`.

    Everything else that this kernel's Landlock knows is given up: executing, TCP (version 4), signals to processes
    outside and abstract sockets (version 6). Paths that do not exist are left out.

    Raises:
        LandlockError: when the kernel has no Landlock.
    """
    version = _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))
    handled = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    rules = _Ruleset(handled, 3 if version >= 4 else 0, 3 if version >= 6 else 0)
    size = ctypes.sizeof(rules) if version >= 6 else 16 if version >= 4 else 8
    ruleset = _call(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        reading = _READ_FILE | _READ_DIR
        changing = reading | _WRITE_FILE | _TRUNCATE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REGULAR
        for paths, rights in ((read, reading), (write, changing), (devices, _READ_FILE | _WRITE_FILE)):
            for path in paths:
                _allow(ruleset, path, rights & handled)
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _FILE_RIGHTS
        rule = _PathBeneath(rights, place)
        _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), ctypes.byref(rule), ctypes.c_uint32(0))
    finally:
        os.close(place)
