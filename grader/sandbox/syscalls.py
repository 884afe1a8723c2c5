"""A seccomp filter: system calls that no answer needs fail.

It closes what files and namespaces do not: starting processes, tracing, memory that outlives a process or escapes its
limits (System V segments, memfd), io_uring, new namespaces, sockets, other processes' signals, limits and priorities.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _MODE_FILTER = 38, 22, 2
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _FIRST = 0, 4, 16
"""Offsets in what the filter sees: the call's number, the machine, the low half of the first argument."""
_CLONE_THREAD = 0x00010000

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""Machine: its audit number, and its column in the table."""

_DENIED: dict[str, tuple[int | None, int | None]] = {
    # programs
    "execve": (59, 221), "execveat": (322, 281),
    # other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "pidfd_send_signal": (424, 424), "tkill": (200, 130),
    "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240), "setpriority": (141, 140),
    "sched_setaffinity": (203, 122), "sched_setscheduler": (144, 119), "sched_setparam": (142, 118),
    "sched_setattr": (314, 274), "ioprio_set": (251, 30), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "process_madvise": (440, 440), "process_mrelease": (448, 448),
    # namespaces, mounts, the machine
    "unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41),
    "chroot": (161, 51), "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430),
    "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "quotactl": (179, 60), "acct": (163, 89),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "reboot": (169, 142), "swapon": (167, 224), "swapoff": (168, 225),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171), "clock_adjtime": (305, 266),
    "sethostname": (170, 161), "setdomainname": (171, 162), "syslog": (103, 116), "vhangup": (153, 58),
    "personality": (135, 92), "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None),
    # doors into the kernel
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427), "bpf": (321, 280),
    "perf_event_open": (298, 241), "userfaultfd": (323, 282), "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "fanotify_init": (300, 262),
    # memory and messages that outlive a process or escape its limits
    "shmget": (29, 194), "shmat": (30, 196), "shmctl": (31, 195), "msgget": (68, 186), "semget": (64, 190),
    "mq_open": (240, 180), "memfd_create": (319, 279), "memfd_secret": (447, 447),
    # owners and attributes
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "setxattr": (188, 5),
    "lsetxattr": (189, 6), "fsetxattr": (190, 7),
    # the network; a pair of connected sockets stays possible
    "socket": (41, 198), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
}  # fmt: skip
_PROCESSES: tuple[tuple[int | None, int | None], ...] = ((57, None), (58, None))
"""fork, vfork. They fail as when there are too many processes: "Resource temporarily unavailable"."""
_MODES: tuple[tuple[int | None, int | None], ...] = ((90, None), (91, 52), (268, 53), (452, 452))
"""chmod, fchmod, fchmodat, fchmodat2. They do nothing and say so to nobody: copying a file ends with one."""
_CLONE, _CLONE3, _KILL_CALL, _TGKILL, _PRLIMIT = (56, 220), (435, 435), (62, 129), (234, 131), (302, 261)


def supported() -> bool:
    """Whether the filter knows this machine."""
    return platform.machine() in _ARCHITECTURES and struct.calcsize("P") == 8


def _program(pid: int) -> list[tuple[int, int, int, int]]:
    """The filter, as (code, jump if true, jump if false, operand); `pid` is the only one that may be signalled."""
    audit, column = _ARCHITECTURES[platform.machine()]
    refuse, too_many = (_RETURN, 0, 0, _ERRNO | errno.EPERM), (_RETURN, 0, 0, _ERRNO | errno.EAGAIN)
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE), (_JUMP_EQUAL, 1, 0, audit), (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, _NUMBER), (_JUMP_GREATER_EQUAL, 0, 1, 0x40000000), refuse,
        (_JUMP_EQUAL, 0, 1, _CLONE3[column]), (_RETURN, 0, 0, _ERRNO | errno.ENOSYS),  # libc then takes clone
        (_JUMP_EQUAL, 0, 4, _CLONE[column]), (_LOAD, 0, 0, _FIRST), (_JUMP_SET, 0, 1, _CLONE_THREAD),
        (_RETURN, 0, 0, _ALLOW), too_many,
    ]  # fmt: skip
    for call, allowed in ((_KILL_CALL, pid), (_TGKILL, pid), (_PRLIMIT, 0)):
        program += [
            (_JUMP_EQUAL, 0, 4, call[column]), (_LOAD, 0, 0, _FIRST), (_JUMP_EQUAL, 0, 1, allowed),
            (_RETURN, 0, 0, _ALLOW), refuse,
        ]  # fmt: skip
    nothing = (_RETURN, 0, 0, _ERRNO)
    for table, answer in ((_PROCESSES, too_many), (_MODES, nothing), (_DENIED.values(), refuse)):
        for numbers in table:
            number = numbers[column]
            if number is not None:
                program += [(_JUMP_EQUAL, 0, 1, number), answer]
    return [*program, (_RETURN, 0, 0, _ALLOW)]


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_void_p)]


def restrict() -> None:
    """Install the filter for this process and all that it starts; it stays.

    Raises:
        OSError: when the kernel refuses, or does not know the filter's machine.
    """
    if not supported():
        raise OSError(errno.ENOSYS, f"no filter of system calls for {platform.machine()}")
    code = b"".join(struct.pack("<HBBI", *line) for line in _program(os.getpid()))
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Filter(len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(program), 0, 0) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"the kernel refused the filter of system calls: {os.strerror(error)}")
