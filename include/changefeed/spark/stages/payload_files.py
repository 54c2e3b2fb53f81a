"""Files with the payloads of finished batches, if all tasks run on the driver's machine.

Through Spark, a payload would cost the JVM as much CPU as its decoding costs a worker: it is copied from Arrow into
rows, stored, shuffled, sorted and copied back.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from zlib import crc32


@dataclass(frozen=True, slots=True)
class FilePart:
    """The part of a file that has a payload."""

    path: str
    start: int
    size_bytes: int
    checksum: int
    """The payload's CRC-32."""

    def read(self) -> bytes:
        """The payload. Raises OSError if the file is missing, too short, or has other bytes than were written."""
        with Path(self.path).open("rb", buffering=0) as file:
            file.seek(self.start)
            payload = file.read(self.size_bytes)
        if len(payload) != self.size_bytes:
            raise OSError(
                f"expected {self.size_bytes} bytes of a decoded batch at {self.start} of {self.path!r}, "
                f"found {len(payload)}"
            )
        if (found := crc32(payload)) != self.checksum:
            raise OSError(
                f"expected checksum {self.checksum:08x} of a decoded batch at {self.start} of {self.path!r}, found "
                f"{found:08x}: the file was damaged since it was written. Nothing of the batch was published; check "
                "the disk, and run again"
            )
        return payload


class PayloadFile:
    """A new file in ``folder`` that one task writes; a context manager, after which the file stays."""

    def __init__(self, folder: str) -> None:
        self._file = tempfile.NamedTemporaryFile("wb", buffering=0, prefix="batches-", dir=folder, delete=False)  # noqa: SIM115 - closed in __exit__
        self._end = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, payload: bytes) -> FilePart:
        """Write ``payload``, and return its part of the file. Raises OSError if the disk is full."""
        view = memoryview(payload)
        while len(view):
            view = view[self._file.write(view) :]
        start, self._end = self._end, self._end + len(payload)
        return FilePart(self._file.name, start, len(payload), crc32(payload))


def payload_file(folder: str | None) -> AbstractContextManager[PayloadFile | None]:
    """A new `PayloadFile` in ``folder``; None without a folder, so that payloads go through Spark."""
    return nullcontext() if folder is None else PayloadFile(folder)


@contextmanager
def own_folder() -> Iterator[str]:
    """A folder for the payloads of one task, removed at the end of the block.

    It is in the folder of Spark's executor, if there is one; Spark removes that even if the task is killed.
    """
    folders = os.environ.get("SPARK_LOCAL_DIRS") or os.environ.get("LOCAL_DIRS") or ""
    where = folders.partition(",")[0] or None
    with tempfile.TemporaryDirectory(prefix="changefeed-", dir=where, ignore_cleanup_errors=True) as folder:
        yield folder
