"""One process at a time."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def exclusive(path: Path, waiting: str) -> Iterator[None]:
    """Hold the lock file *path*; prints *waiting* once if another process holds it, and waits.

    The kernel gives the lock back when its holder ends, however it ends. The file itself stays.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(waiting, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
