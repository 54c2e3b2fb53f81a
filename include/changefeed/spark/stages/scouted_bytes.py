"""Store the bytes of a binlog file that the scout reads, for the tasks that decode it. So the server sends them only
once.

This works only if tasks run on the driver's machine. The file is in `local_folder` until the window is published. It is
as long as the binlog file, and mostly stays in the page cache.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from changefeed.binlog.events.file_frame import check_magic, dumped_chunks
from changefeed.binlog.events.framing import HEADER, HEADER_SIZE, MAGIC
from changefeed.model.coordinates import FIRST_POSITION, file_number
from changefeed.model.window import Slice

_log = logging.getLogger(__name__)

_MOST_BYTES = 1 << 30
"""The maximum stored size of one file, so that Spark's blocks have room on the disk. Later bytes are read from the
server twice."""


@dataclass(frozen=True)
class ScoutedBytes:
    """The stored bytes of binlog files, in a folder that only this user can enter."""

    folder: str

    def store(self, chunks: Iterable[bytes], slice: Slice) -> Iterator[bytes]:
        """Store ``chunks``, the dump of ``slice``, and yield each chunk after it is stored.

        If the disk is full, or a gigabyte is stored, the remaining chunks are only yielded; their slices are read from
        the server again.
        """
        with closing(_Writer(self._path(slice.file), slice.start)) as writer:
            for chunk in chunks:
                writer.write(chunk)
                yield chunk

    def of(self, slice: Slice) -> Iterator[bytes] | None:
        """The stored dump of ``slice``; None if it is not stored completely."""
        with suppress(OSError):
            if self._path(slice.file).stat().st_size >= slice.end:
                return self._chunks(slice)
        return None

    def _chunks(self, slice: Slice) -> Iterator[bytes]:
        with self._path(slice.file).open("rb", buffering=0) as stream:
            check_magic(stream, slice.file)
            yield from dumped_chunks(stream, slice.file, slice.start, slice.end)

    def _path(self, file: str) -> Path:
        """The path for the number of binlog file ``file``; the file's name comes from the server and is not trusted."""
        return Path(self.folder, f"binlog.{file_number(file)}")


class _Writer:
    """Writes a binlog file with the stored events at their original positions."""

    def __init__(self, path: Path, start: int) -> None:
        self._path, self._start = path, start
        self._beginning = bytearray(MAGIC)
        self._stream: FileIO | None = None
        self._is_full = False
        self._left_bytes = _MOST_BYTES

    def write(self, chunk: bytes) -> None:
        """Write the next bytes of the dump, unless earlier ones could not be written, or the maximum is reached."""
        self._left_bytes -= len(chunk)
        if self._is_full or self._left_bytes < 0:
            return
        try:
            if self._stream is None:
                self._stream = self._create_file(chunk)
            else:
                _write(self._stream, chunk)
        except OSError as error:
            _log.info("the rest of binlog %s is read twice, because it cannot be stored: %s", self._path.name, error)
            self._is_full = True

    def _create_file(self, chunk: bytes) -> FileIO | None:
        """The new file, once the FORMAT_DESCRIPTION is complete, which is the first event of every dump; None
        before."""
        self._beginning += chunk
        if len(self._beginning) < FIRST_POSITION + HEADER_SIZE:
            return None
        _, _, _, size, _, _ = HEADER.unpack_from(self._beginning, FIRST_POSITION)
        end = FIRST_POSITION + size
        if len(self._beginning) < end:
            return None
        stream = FileIO(self._path, "w")
        _write(stream, self._beginning[:end])
        if self._start != FIRST_POSITION:
            stream.seek(self._start)
        _write(stream, self._beginning[end:])
        return stream

    def close(self) -> None:
        """Close the file, if there is one."""
        if self._stream is not None:
            self._stream.close()


def _write(stream: FileIO, part: bytes | bytearray) -> None:
    view = memoryview(part)
    while len(view):
        view = view[stream.write(view) :]
