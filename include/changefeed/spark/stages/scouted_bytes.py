"""What the scout read of a binlog file, kept for the tasks that decode it: so that the server sends it once.

Only where tasks run on the driver's machine. The file lies in `local_folder` until the window is published, and is as
long as the binlog file: a page cache's work more than a disk's.
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
"""Of one file: what is behind them is read twice, and leaves the disk to Spark's own blocks."""


@dataclass(frozen=True)
class ScoutedBytes:
    """The kept bytes of binlog files, in a folder that only this user may enter."""

    folder: str

    def passing(self, chunks: Iterable[bytes], piece: Slice) -> Iterator[bytes]:
        """Yield ``chunks``, the dump of ``piece``, each when it is kept.

        Where there is no room for one, or a gigabyte is kept, it and the rest are not: their slices are read from the
        server.
        """
        with closing(_Writer(self._path(piece.file), piece.start)) as writer:
            for chunk in chunks:
                writer.write(chunk)
                yield chunk

    def of(self, piece: Slice) -> Iterator[bytes] | None:
        """What a dump of ``piece`` would give; None where not all of it was kept."""
        with suppress(OSError):
            if self._path(piece.file).stat().st_size >= piece.end:
                return self._chunks(piece)
        return None

    def _chunks(self, piece: Slice) -> Iterator[bytes]:
        with self._path(piece.file).open("rb", buffering=0) as stream:
            check_magic(stream, piece.file)
            yield from dumped_chunks(stream, piece.file, piece.start, piece.end)

    def _path(self, file: str) -> Path:
        """By the file's number, which no other file of a window has: its name is the server's word."""
        return Path(self.folder, f"binlog.{file_number(file)}")


class _Writer:
    """Writes a binlog file in which all that is kept stands where it stands at its server."""

    def __init__(self, path: Path, start: int) -> None:
        self._path, self._start = path, start
        self._beginning = bytearray(MAGIC)
        self._stream: FileIO | None = None
        self._is_full = False
        self._left_bytes = _MOST_BYTES

    def write(self, chunk: bytes) -> None:
        """Write the next bytes of the dump, unless some before them were not, or there are too many."""
        self._left_bytes -= len(chunk)
        if self._is_full or self._left_bytes < 0:
            return
        try:
            if self._stream is None:
                self._stream = self._begun(chunk)
            else:
                _write(self._stream, chunk)
        except OSError as error:
            _log.info("the rest of binlog %s is read twice, as it cannot be kept: %s", self._path.name, error)
            self._is_full = True

    def _begun(self, chunk: bytes) -> FileIO | None:
        """The file, when its FORMAT_DESCRIPTION is there, which comes first wherever the dump starts."""
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
