"""Lock files between processes."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold_lock(path: Path, waiting: str) -> Iterator[None]:
    """Hold a lock on the file *path*. If another process holds it, print *waiting* once, and wait.

    The kernel releases the lock when its holder ends. The file is not deleted.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(waiting, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield
