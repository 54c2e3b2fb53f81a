"""What one task decoded, kept until all of it is there: in memory, and past a bound in a temporary file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self

import pyarrow as pa

_MEMORY_BYTES = 32 << 20


def spool_folder() -> str | None:
    """Spark's own folder for what lasts no longer than a job, where the cluster has one; None for the machine's."""
    folders = os.environ.get("SPARK_LOCAL_DIRS") or os.environ.get("LOCAL_DIRS") or ""
    return folders.partition(",")[0] or None


class Spool:
    """Arrow batches of one schema, written once and then read in their order; a context manager.

    The file is Arrow's stream format (https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format), in
    Spark's own folder for such things where the cluster has one.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_MEMORY_BYTES, dir=spool_folder())  # noqa: SIM115 - closed in __exit__

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Keep all of ``batches``. Raises OSError where there is no room for them."""
        writer: pa.RecordBatchStreamWriter | None = None
        for batch in batches:
            if writer is None:
                writer = pa.ipc.new_stream(self._file, batch.schema)
            writer.write_batch(batch)
        if writer is not None:
            writer.close()

    def read(self) -> Iterator[pa.RecordBatch]:
        """What was written, a batch at a time."""
        if self._file.tell():
            self._file.seek(0)
            yield from pa.ipc.open_stream(self._file)
