"""Payloads of finished batches in files, where all tasks share the driver's machine: Spark moves where they are.

Through Spark a payload costs its JVM as much CPU as decoding costs a worker: it is copied from Arrow into rows, kept,
shuffled, sorted and copied back.
"""

from __future__ import annotations

import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Self


class PayloadFile:
    """A new file in ``folder`` that one task writes; a context manager, behind which the file stays."""

    def __init__(self, folder: str) -> None:
        self._file = tempfile.NamedTemporaryFile("wb", buffering=0, prefix="batches-", dir=folder, delete=False)  # noqa: SIM115 - closed in __exit__
        self._end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, payload: bytes) -> str:
        """Write ``payload``, and return what `payload_at` reads it by. Raises OSError where there is no room for it."""
        view = memoryview(payload)
        while len(view):
            view = view[self._file.write(view) :]
        start, self._end = self._end, self._end + len(payload)
        return f"{start} {len(payload)} {self._file.name}"


def payload_file(folder: str | None) -> AbstractContextManager[PayloadFile | None]:
    """A `PayloadFile`; None where there is no folder, and payloads go through Spark."""
    return nullcontext() if folder is None else PayloadFile(folder)


def payload_at(where: str) -> bytes:
    """What `PayloadFile.write` said to be at ``where``. Raises OSError where the file is gone, or ends early."""
    start, size, path = where.split(" ", 2)
    with Path(path).open("rb", buffering=0) as file:
        file.seek(int(start))
        payload = file.read(int(size))
    if len(payload) != int(size):
        raise OSError(f"wanted {size} bytes of a decoded batch at {start} of {path!r}, found {len(payload)} there")
    return payload
