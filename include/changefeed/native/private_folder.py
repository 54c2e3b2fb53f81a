"""Finds folders for files that this user's processes write once and then execute: compiled kernels, Spark's classes.

Whoever can write to such a folder can execute code as this user. So a folder is skipped if other users can write to it,
or if it is a link. Files are read from a folder of this user or of root, and written to a folder of this user.

The parent folder is the first of these:

1. ``CHANGEFEED_KERNEL_CACHE``, or numba's ``NUMBA_CACHE_DIR``;
2. `kernel-cache` in the virtual environment, if `make setup` has created it;
3. the user's cache folder;
4. the temporary folder.

Files are read also from `kernels` in the package, which a wheel brings.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def private_folder(name: str, refused: Callable[[str], None]) -> Path | None:
    """The first folder ``name`` that only this user can write to; None if there is none.

    If there is none, ``refused`` is called with the reason for each folder.
    """
    reasons = []
    for root in _roots():
        folder = root / name
        reason = privacy_problem(root) or privacy_problem(folder)
        if not reason:
            return folder
        reasons.append(f"{str(root)!r}: {reason}")
    refused("; ".join(reasons))
    return None


def trusted_folders(name: str) -> list[Path]:
    """The existing folders ``name`` that only this user or root can write to, first choice first. Creates none."""
    return [
        root / name
        for root in (*_roots(), Path(__file__).parents[1] / "kernels")
        if not trust_problem(root) and not trust_problem(root / name)
    ]


def is_trusted_file(status: os.stat_result) -> bool:
    """Whether the open file with this ``status`` is this user's or root's, and others may not write to it."""
    return stat.S_ISREG(status.st_mode) and status.st_uid in (0, os.getuid()) and not status.st_mode & _OTHERS_WRITE


def trust_problem(folder: Path) -> str:
    """Why another user than root could have written into ``folder``; '' if none could."""
    try:
        status = folder.lstat()  # the status of a link itself, because other users may change its target
        if not stat.S_ISDIR(status.st_mode):
            return "it is a link" if stat.S_ISLNK(status.st_mode) else "it is no folder"
        if status.st_uid not in (0, os.getuid()):
            return f"it is another user's ({status.st_uid})"
        if status.st_mode & _OTHERS_WRITE:
            return f"others may write to it (mode {stat.S_IMODE(status.st_mode):04o})"
        # The parents of the path with its links, and the parents of its target.
        parents = (*folder.absolute().parents, *folder.resolve().parents)
        return next((reason for parent in parents if (reason := _replacement_problem(parent))), "")
    except OSError as error:
        return f"it cannot be read ({error.strerror})"


def privacy_problem(folder: Path) -> str:
    """Why other users could write into ``folder``, which is created if it is missing; '' if they cannot."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        owner = folder.lstat().st_uid
    except OSError as error:
        return f"it cannot be created ({error.strerror})"
    if reason := trust_problem(folder):
        return reason
    if owner != os.getuid():
        return f"it is another user's ({owner})"
    return "" if os.access(folder, os.W_OK) else "it cannot be written to"


def _replacement_problem(parent: Path) -> str:
    """Why other users could replace a folder in ``parent``; '' if they cannot.

    The owner of a folder can rename its entries. Users with write permission can do so, too, unless the folder is
    sticky, as /tmp is. Root's group and the group with this user's own number do not count as other users. The owner of
    / is trusted.
    """
    status = parent.lstat()
    if parent == parent.parent:
        return ""
    if status.st_uid not in (0, os.getuid()):
        return f"others may put another one in its place ({str(parent)!r} is another user's, {status.st_uid})"
    if stat.S_ISLNK(status.st_mode) or status.st_mode & stat.S_ISVTX:
        return ""
    if status.st_mode & stat.S_IWOTH or (status.st_mode & stat.S_IWGRP and status.st_gid not in (0, os.getuid())):
        return f"others may put another one in its place (mode {stat.S_IMODE(status.st_mode):04o} of {str(parent)!r})"
    return ""


def _roots() -> list[Path]:
    chosen = os.environ.get("CHANGEFEED_KERNEL_CACHE") or os.environ.get("NUMBA_CACHE_DIR")
    of_setup = Path(sys.prefix) / "kernel-cache"
    return [
        *([Path(chosen)] if chosen else [of_setup] if of_setup.is_dir() else []),
        *_cache_of_user(),
        *_temporary_folder(),
    ]


def _cache_of_user() -> list[Path]:
    try:
        return [Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "changefeed" / "kernel"]
    except RuntimeError:  # a user without a name, and without HOME
        return []


def _temporary_folder() -> list[Path]:
    try:
        return [Path(tempfile.gettempdir()) / f"changefeed-kernel-{os.getuid()}"]
    except FileNotFoundError:  # no folder can be written to, as in a container with a read-only root file system
        return []
