"""Shows the progress of downloads: a bar on a terminal; lines in a log, and for downloads side by side."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

MEGABYTE = 1_000_000


class Download(Protocol):
    """The progress display of a download."""

    def update(self, size: int) -> None:
        """Show that *size* bytes in total have arrived."""


class _Lines:
    """Prints a line for each quarter of the download."""

    def __init__(self, title: str, total: int) -> None:
        self._title = title
        self._total = total
        self._quarters = 0
        print(f"{title}: {total / MEGABYTE:.0f} MB to fetch", flush=True)

    def update(self, size: int) -> None:
        quarters = 4 * size // max(self._total, 1)
        if self._quarters < quarters < 4:
            self._quarters = quarters
            print(f"{self._title}: {size / MEGABYTE:.0f} of {self._total / MEGABYTE:.0f} MB", flush=True)


class _Bar:
    """Shows a progress bar."""

    def __init__(self, progress: Progress, title: str, total: int) -> None:
        self._progress = progress
        self._task = progress.add_task(title, total=total)

    def update(self, size: int) -> None:
        self._progress.update(self._task, completed=size)


@contextmanager
def download(title: str, total: int) -> Iterator[Download]:
    """Show the progress of the download *title* of about *total* bytes, and at the end its duration."""
    began = time.monotonic()
    if sys.stdout.isatty() and threading.current_thread() is threading.main_thread():
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeElapsedColumn())
        with Progress(*columns) as progress:
            yield _Bar(progress, title, total)
    else:
        yield _Lines(title, total)
    print(f"{title}: done in {time.monotonic() - began:.0f} s", flush=True)


def bytes_below(folder: Path) -> int:
    """Total size of the files below *folder*; files that are deleted meanwhile are skipped."""
    size = 0
    for path in folder.rglob("*"):
        try:
            size += path.lstat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue
    return size
