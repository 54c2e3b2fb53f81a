"""Folders for what this user's processes prepare once and run from then on: compiled kernels, Spark's classes.

Whoever can write there runs code as whoever reads it. So each is this user's own, and one that others may write to,
that is another's, or that a link leads to is passed over.

``CHANGEFEED_KERNEL_CACHE`` (or numba's ``NUMBA_CACHE_DIR``) says where; without it they are in the virtual
environment's `kernel-cache`, where `make setup` has made one, else in the user's cache folder, or in the temporary one
where that cannot be written.
"""

from __future__ import annotations

import os
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path


def private_folder(name: str, refused: Callable[[str], None]) -> Path | None:
    """The first folder ``name`` that only this user can write to; None where there is none.

    Then ``refused`` is called with why each was passed over.
    """
    reasons = []
    for root in _roots():
        folder = root / name
        reason = not_private(root) or not_private(folder)
        if not reason:
            folder.chmod(0o700)
            return folder
        reasons.append(f"{str(root)!r}: {reason}")
    refused("; ".join(reasons))
    return None


def not_private(folder: Path) -> str:
    """Why somebody else could put something into ``folder``, which is made where it is missing; '' where none could."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        status = folder.lstat()  # of a link itself: others may change where it leads
    except OSError as error:
        return f"it cannot be made ({error.strerror})"
    if not stat.S_ISDIR(status.st_mode):
        return "it is a link"
    if status.st_uid != os.getuid():
        return f"it is another user's ({status.st_uid})"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write to it (mode {stat.S_IMODE(status.st_mode):04o})"
    # The path as it is written, with the links in it, and the one that it leads to.
    for parent in (*folder.absolute().parents, *folder.resolve().parents):
        if reason := _replaceable(parent):
            return reason
    return "" if os.access(folder, os.W_OK) else "it cannot be written to"


def _replaceable(parent: Path) -> str:
    """Why somebody else could put another folder in the place of one in ``parent``; '' where none could.

    Who owns a folder may rename what is in it, and so may who writes to it, unless it is sticky, as /tmp is. A group
    that is root's, or has this user only (as its number says), is nobody else. Whoever owns / owns all programs.
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
        Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "changefeed" / "kernel",
        Path(tempfile.gettempdir()) / f"changefeed-kernel-{os.getuid()}",
    ]
