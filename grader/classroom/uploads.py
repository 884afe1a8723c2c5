"""A student's folder on disk, which may hold anything: what is taken from it, and under which names."""

from __future__ import annotations

import errno
import filecmp
import os
import shutil
import stat
from pathlib import Path
from typing import BinaryIO

MAX_FILES = 5_000
MAX_PATH = 240
"""Bytes of a path below a submission's folder, so that it fits under any other name as well (`stored_as`)."""

EXTRA_BYTES = 20_000_000
"""Other files of a submission go beside the graded notebooks, as with nbgrader, up to this size altogether."""

INERT = frozenset(
    {".png", ".jpg", ".jpeg", ".gif", ".webp", ".txt", ".md", ".csv", ".tsv", ".json", ".npy", ".npz", ".pt"}
)
"""What a browser shows or saves, and neither a browser nor Python runs when it lies beside a notebook."""


class RefusedSubmission(Exception):
    """A submission that is not graded at all: one printable sentence that says why and what to do."""

    def __init__(self, reason: str) -> None:
        super().__init__(printable(reason))


def printable(text: str) -> str:
    """`text` without anything that a terminal obeys or cannot write."""
    return "".join(c if c.isprintable() else "?" for c in text)


def files_of(folder: Path) -> list[Path]:
    """The files of a submission, relative to its folder, in order.

    A symbolic link or a device would bring the instructor's own files into the feedback.

    Raises:
        RefusedSubmission: naming the first of these, or a path that is too long; too many files.
    """
    if folder.is_symlink():
        raise RefusedSubmission(f"{folder.name} is a symbolic link; ask for the files themselves")
    found: list[Path] = []
    waiting, seen = [""] if folder.is_dir() else [], 0
    while waiting:
        top = waiting.pop()
        for entry in _entries(folder, top):
            path = os.path.join(top, entry.name)
            seen += 1
            if seen > MAX_FILES:
                raise RefusedSubmission(
                    f"it has more than {MAX_FILES:,} files and folders; ask for the notebooks and what they need"
                )
            if len(os.fsencode(path)) > MAX_PATH:
                raise RefusedSubmission(
                    f"the path {path[:40]}... has more than {MAX_PATH} bytes; ask for fewer folders and shorter names"
                )
            if entry.is_dir(follow_symlinks=False):
                waiting.append(path)
            elif entry.is_file(follow_symlinks=False):
                found.append(Path(path))
            else:
                kind = "a symbolic link" if entry.is_symlink() else "not a regular file"
                raise RefusedSubmission(f"{path} is {kind}; ask for the files themselves")
    return sorted(found)


def _entries(folder: Path, top: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder / top) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise RefusedSubmission(f"the folder {top or folder.name} cannot be read: {error.strerror}") from None


def open_regular(path: Path) -> BinaryIO:
    """A submitted file, opened for reading; no link is followed.

    Raises:
        RefusedSubmission: not a regular file, or it cannot be read.
    """
    try:
        file = open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")  # noqa: SIM115
    except OSError as error:
        why = "a symbolic link" if error.errno == errno.ELOOP else error.strerror
        raise RefusedSubmission(f"{path.name} cannot be read: {why}") from None
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise RefusedSubmission(f"{path.name} is not a regular file")
    return file


# ------------------------------------------------------------------------------------------- beside the graded notebook


def stored_as(path: Path) -> Path:
    """Under which name a student's file goes beside the graded notebook.

    Formgrader hands these files to a browser that is logged in as the instructor: a page or a drawing would run its
    scripts there. And a module would be imported by whoever opens the notebook and runs it.
    """
    return path if path.suffix.lower() in INERT else path.with_name(f"{path.name}.txt")


def copy_extras(submitted: Path, source: Path, target: Path) -> None:
    """Fill a new folder with the course's own files, and those of a submission that are in nobody's way.

    Raises:
        RefusedSubmission: `submitted` is no longer what can be graded.
    """
    target.mkdir()
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if path.is_file() and not path.is_symlink() and _is_extra(name):
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, target / name)
            (target / name).chmod(0o444)
    left = EXTRA_BYTES
    for name in sorted(filter(_is_extra, files_of(submitted)), key=lambda name: (stored_as(name) != name, name)):
        new = target / stored_as(name)
        if os.path.lexists(target / name) or os.path.lexists(new):
            continue
        try:
            new.parent.mkdir(parents=True, exist_ok=True)
        except (FileExistsError, NotADirectoryError):
            continue
        with open_regular(submitted / name) as file:
            left -= os.fstat(file.fileno()).st_size
            if left < 0:
                break
            with new.open("xb") as copy:
                shutil.copyfileobj(file, copy)
        new.chmod(0o444)


def _is_extra(name: Path) -> bool:
    return not name.name.startswith(".") and not any(part.endswith(".ipynb") for part in name.parts)


def swap_in(new: Path, folder: Path, keep: set[str]) -> None:
    """Everything in `folder` but the files in `keep` makes room for what is in `new`."""
    folder.mkdir(exist_ok=True)
    for entry in list(os.scandir(folder)):
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry)
        elif entry.name not in keep or entry.is_symlink():
            os.unlink(entry)
    for entry in list(os.scandir(new)):
        os.rename(entry, folder / entry.name)


def disarm(folder: Path, source: Path) -> None:
    """Give what nbgrader copied of a submission the names of `stored_as`; the course's own files keep theirs."""
    for top, _, names in os.walk(folder):
        for name in names:
            old = Path(top, name)
            new, own = stored_as(old), source / old.relative_to(folder)
            if old.suffix == ".ipynb" or new == old or (own.is_file() and filecmp.cmp(old, own, shallow=False)):
                continue
            if os.path.lexists(new):
                old.unlink()
            else:
                old.rename(new)
