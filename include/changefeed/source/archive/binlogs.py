"""Reads archived binlog files by fsspec, from a folder, https://, s3://, gs:// and others."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from changefeed.binlog.events.file_frame import check_magic, dumped_chunks
from changefeed.binlog.search.finder import ResumePoint
from changefeed.errors import BinlogGoneError, ChangefeedError, SettingsError, SourceUnavailableError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.window import BinlogFile
from changefeed.source.archive.archive import Archive, Location, is_inside

MOST_FILES = 100_000
"""The most binlog files in an archive; the list of files is stored in memory and in plans."""

_NAME = re.compile(r"[^/\\]{1,240}\.[0-9]{6,10}")
_WRONG = (FileNotFoundError, NotADirectoryError, PermissionError, ValueError, TypeError, ImportError)
"""Errors of storages for an archive that is missing or cannot be read. After any other error a retry may succeed."""


class ArchivedBinlogs:
    """The `Binlogs` in a folder, or one binlog file. A binlog file's name ends in a number (``binlog.000012``).

    No error message quotes a file. The errors:

    - SettingsError: a folder, a URL or a file cannot be read, or a link to it leads out of the archive's root;
    - SourceUnavailableError: the storage does not answer now;
    - BinlogGoneError: the archive has no binlog file;
    - BinlogFormatError: a file is encrypted or is not a binlog.
    """

    def __init__(self, archive: Archive) -> None:
        self.archive = archive

    def files(self) -> Sequence[BinlogFile]:
        """The archived files, in the order of their numbers."""
        return [file for file, _ in self._archived]

    def end(self) -> ResumePoint:
        """The end of the last file."""
        last = self.files()[-1]
        return ResumePoint(BinlogCoordinates(last.name, last.size_bytes))

    def previous_gtids(self, file: str) -> str:  # noqa: ARG002 - the protocol's
        """Always '', for unknown GTIDs: an archive is searched from its first file on."""
        return ""

    def chunks(self, file: str, start: int, end: int) -> Iterator[bytes]:
        """Yield the file's FORMAT_DESCRIPTION, then its bytes in ``[start, end)``."""
        with self._open(file) as stream:
            check_magic(stream, file)
            yield from dumped_chunks(stream, file, start, end)

    def first_events(self, file: str, start: int, end: int) -> Iterator[bytes]:
        """As `chunks`, which loads no kernels."""
        return self.chunks(file, start, end)

    def tail(self, file: BinlogFile, most_bytes: int) -> bytes:
        """The last ``most_bytes`` bytes of a file, or the complete file if it is smaller."""
        with self._open(file.name) as stream:
            stream.seek(max(0, file.size_bytes - most_bytes))
            return bytes(stream.read(most_bytes))

    @contextmanager
    def _open(self, file: str) -> Iterator[Any]:
        path = next((path for archived, path in self._archived if archived.name == file), None)
        if path is None:
            raise BinlogGoneError(f"archive {self.archive.url!r} has no file {file!r} any more")
        with (
            self._translate_errors(f"file {file!r} of archive"),
            self._filesystem.open(self._check_path(path), "rb") as stream,
        ):
            yield stream

    @cached_property
    def _filesystem(self) -> Any:
        return self._opened[0]

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        import fsspec  # imports asyncio, and most runs read no archive

        url = self.archive.url
        with self._translate_errors("archive"):
            if self.archive.root is None:
                return fsspec.core.url_to_fs(url)  # type: ignore[no-any-return]
            location = Location.parse(url)
            # fsspec gets the parts, not the URL, which it would parse in its own way. Redirects to other servers are
            # refused.
            options = {"allow_redirects": False} if location.protocol in ("http", "https") else {}
            filesystem = fsspec.filesystem(location.protocol, **options)
            return filesystem, self._check_path(filesystem._strip_protocol(url))

    @cached_property
    def _archived(self) -> list[tuple[BinlogFile, str]]:
        with self._translate_errors("archive"):
            requested = ((path, name) for path in self._paths() if _NAME.fullmatch(name := _name_of(path)))
            listed = [(path, name) for path, name in islice(requested, MOST_FILES + 1) if name.isprintable()]
            if len(listed) > MOST_FILES:
                raise SettingsError(f"archive {self.archive.url!r} has more than {MOST_FILES:,} binlog files")
            entries = [(path, name, self._filesystem.info(self._check_path(path))) for path, name in listed]
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
        """Yield the paths in the folder, or the file itself.

        A local folder is read only as far as the caller iterates."""
        from fsspec.implementations.local import LocalFileSystem

        filesystem, root = self._opened
        if isinstance(filesystem, LocalFileSystem) and Path(root).is_dir():
            with os.scandir(root) as entries:
                yield from (entry.path for entry in entries)
            return
        for path in filesystem.ls(root, detail=False):
            # A server's list is not trusted: paths that are not directly in this folder are skipped.
            if self.archive.root is None or str(path) in (root, f"{root.rstrip('/')}/{_name_of(str(path))}"):
                yield str(path)

    def _check_path(self, path: str) -> str:
        """The path with all links resolved; raises SettingsError if they lead out of the root."""
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
    def _translate_errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except ChangefeedError:
            raise
        except Exception as error:  # each storage has its own errors
            cause = error if self.archive.root is None else None
            cannot = f"{what} {self.archive.url!r} cannot be read: {self._reason(error)}"
            if isinstance(error, _WRONG):
                raise SettingsError(
                    f"{cannot}. Expected a folder, a file, or a URL that fsspec knows, readable by Airflow's workers "
                    "and by Spark's."
                ) from cause
            raise SourceUnavailableError(cannot) from cause

    def _reason(self, error: Exception) -> str:
        """Why something cannot be read.

        With a root the text of the storage, which may quote file content, is omitted.
        """
        if self.archive.root is None or isinstance(error, ImportError):
            return f"{type(error).__name__}: {error}"
        known = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else ""
        return f"{type(error).__name__}{': ' if known else ''}{known}"


def _name_of(path: str) -> str:
    return path.rstrip("/").rpartition("/")[2]
