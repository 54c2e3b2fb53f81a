"""Archived binlog files, wherever fsspec can read: a folder, https://, s3://, gs:// and others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import fsspec
from fsspec.implementations.local import LocalFileSystem

from changefeed.binlog.events.file_frame import check_magic, dumped_chunks
from changefeed.binlog.search.finder import ResumePoint
from changefeed.errors import BinlogGoneError, ChangefeedError, SettingsError, SourceUnavailableError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.window import BinlogFile
from changefeed.source.archive.archive import Archive, Location, is_inside

MOST_FILES = 100_000
"""More binlog files are in no archive; a list of them is held in memory, and stands in plans."""

_NAME = re.compile(r"[^/\\]{1,240}\.[0-9]{6,10}")
_WRONG = (FileNotFoundError, NotADirectoryError, PermissionError, ValueError, TypeError, ImportError)
"""What storages raise for an archive that is not there, may not be read or cannot be; all else may pass."""


class ArchivedBinlogs:
    """`Binlogs` of a folder or of one file. Files are those with a number at the end (``binlog.000012``).

    Raises SettingsError for a folder, a URL or a file that cannot be read, or that a link leads to out of the archive's
    root; SourceUnavailableError for a storage that does not answer now; BinlogGoneError where it has no binlog file;
    and BinlogFormatError for a file that is encrypted or is not a binlog. What is in a file that is none stands in no
    message.
    """

    def __init__(self, archive: Archive) -> None:
        self.archive = archive

    def files(self) -> Sequence[BinlogFile]:
        """The archived files by their number."""
        return [file for file, _ in self._archived]

    def end(self) -> ResumePoint:
        """The end of the last file."""
        last = self.files()[-1]
        return ResumePoint(BinlogCoordinates(last.name, last.size_bytes))

    def previous_gtids(self, file: str) -> str:  # noqa: ARG002 - the protocol's
        """Unknown: an archive is searched from its first file on."""
        return ""

    def chunks(self, file: str, start: int, end: int) -> Iterator[bytes]:
        """The file's FORMAT_DESCRIPTION, then its bytes in ``[start, end)``."""
        with self._open(file) as stream:
            check_magic(stream, file)
            yield from dumped_chunks(stream, file, start, end)

    def tail(self, file: BinlogFile, most_bytes: int) -> bytes:
        """The last bytes of a file."""
        with self._open(file.name) as stream:
            stream.seek(max(0, file.size_bytes - most_bytes))
            return bytes(stream.read(most_bytes))

    @contextmanager
    def _open(self, file: str) -> Iterator[Any]:
        path = next((path for archived, path in self._archived if archived.name == file), None)
        if path is None:
            raise BinlogGoneError(f"archive {self.archive.url!r} has no file {file!r} any more")
        with self._readable(f"file {file!r} of archive"), self._filesystem.open(self._checked(path), "rb") as stream:
            yield stream

    @cached_property
    def _filesystem(self) -> Any:
        return self._opened[0]

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        url = self.archive.url
        with self._readable("archive"):
            if self.archive.root is None:
                return fsspec.core.url_to_fs(url)  # type: ignore[no-any-return]
            location = Location.parse(url)
            # Not by its URL, which fsspec would take apart its own way. A server may not send us on to another one.
            options = {"allow_redirects": False} if location.protocol in ("http", "https") else {}
            filesystem = fsspec.filesystem(location.protocol, **options)
            return filesystem, self._checked(filesystem._strip_protocol(url))

    @cached_property
    def _archived(self) -> list[tuple[BinlogFile, str]]:
        with self._readable("archive"):
            wanted = ((path, name) for path in self._paths() if _NAME.fullmatch(name := _name_of(path)))
            listed = [(path, name) for path, name in islice(wanted, MOST_FILES + 1) if name.isprintable()]
            if len(listed) > MOST_FILES:
                raise SettingsError(f"archive {self.archive.url!r} has more than {MOST_FILES:,} binlog files")
            entries = [(path, name, self._filesystem.info(self._checked(path))) for path, name in listed]
        archived = [
            (BinlogFile(name, int(entry["size"] or 0)), path)
            for path, name, entry in entries
            if entry.get("type") == "file"
        ]
        if not archived:
            raise BinlogGoneError(
                f"archive {self.archive.url!r} has no file with a binlog's name, such as binlog.000012"
            )
        bases = {file.name.rpartition(".")[0] for file, _ in archived}
        if len(bases) > 1:
            raise SettingsError(
                f"archive {self.archive.url!r} holds binlogs of several names ({', '.join(sorted(bases)[:5])}): they "
                "have no order. Give each server its own folder."
            )
        return sorted(archived, key=lambda item: item[0].number)

    def _paths(self) -> Iterator[str]:
        """What stands in the folder, or the file itself; of a folder on this machine without a list of all of it."""
        filesystem, root = self._opened
        if isinstance(filesystem, LocalFileSystem) and Path(root).is_dir():
            with os.scandir(root) as entries:
                yield from (entry.path for entry in entries)
            return
        for path in filesystem.ls(root, detail=False):
            # What a server lists is its word: only what stands in this very folder is ours.
            if self.archive.root is None or str(path) in (root, f"{root.rstrip('/')}/{_name_of(str(path))}"):
                yield str(path)

    def _checked(self, path: str) -> str:
        """The path of what is opened, all links followed; raises SettingsError where they lead out of the root."""
        root = self.archive.root
        if root is None or not root.startswith("/"):
            return path
        if not is_inside(path, root):
            raise SettingsError(
                f"{_name_of(path)!r} in archive {self.archive.url!r} is a link out of the root that `archives` of the "
                "site file (CHANGEFEED_SITE) allows: it is not followed. Put the file itself there"
            )
        return os.path.realpath(path)

    @contextmanager
    def _readable(self, what: str) -> Iterator[None]:
        try:
            yield
        except ChangefeedError:
            raise
        except Exception as error:  # each storage has its own
            told = error if self.archive.root is None else None
            cannot = f"{what} {self.archive.url!r} cannot be read: {self._reason(error)}"
            if isinstance(error, _WRONG):
                raise SettingsError(
                    f"{cannot}. Wanted a folder, a file, or a URL that fsspec knows, readable by Airflow's workers and "
                    "by Spark's."
                ) from told
            raise SourceUnavailableError(cannot) from told

    def _reason(self, error: Exception) -> str:
        """Why something cannot be read: through Airflow not in a storage's own words, which may repeat what it sent."""
        if self.archive.root is None or isinstance(error, ImportError):
            return f"{type(error).__name__}: {error}"
        known = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else ""
        return f"{type(error).__name__}{': ' if known else ''}{known}"


def _name_of(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
