"""Archived binlog files, wherever fsspec can read: a folder, https://, s3://, gs:// and others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import fsspec

from changefeed.archive.url import check_no_secret
from changefeed.binlog.events.file_frame import check_magic, dumped_chunks
from changefeed.binlog.search.finder import ResumePoint
from changefeed.coordinates import BinlogCoordinates
from changefeed.errors import BinlogGoneError, SettingsError
from changefeed.window import BinlogFile


class ArchivedBinlogs:
    """`Binlogs` of a folder or of one file. Files are those with a number at the end (``binlog.000012``).

    Raises SettingsError for a folder or URL that cannot be read, BinlogGoneError where it has no binlog file, and
    BinlogFormatError for a file that is encrypted or is not a binlog.
    """

    def __init__(self, url: str) -> None:
        check_no_secret(url)
        self.url = url

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
        path = next(path for archived, path in self._archived if archived.name == file)
        with self._filesystem.open(path, "rb") as stream:
            check_magic(stream, file)
            yield from dumped_chunks(stream, file, start, end)

    @cached_property
    def _filesystem(self) -> Any:
        return self._opened[0]

    @cached_property
    def _opened(self) -> tuple[Any, str]:
        try:
            return fsspec.core.url_to_fs(self.url)  # type: ignore[no-any-return]
        except (ValueError, ImportError) as error:
            raise SettingsError(f"archive {self.url!r} cannot be read here: {error}") from error

    @cached_property
    def _archived(self) -> list[tuple[BinlogFile, str]]:
        filesystem, root = self._opened
        try:
            listed = filesystem.ls(root, detail=True)
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"archive {self.url!r} cannot be listed: {error}. Wanted a folder, a file, or a URL that "
                "fsspec knows, readable by Airflow's workers and by Spark's."
            ) from error
        archived = []
        for entry in listed:
            name = str(entry["name"]).rstrip("/").rpartition("/")[2]
            if entry.get("type") == "file" and _is_binlog_name(name):
                archived.append((BinlogFile(name, int(entry["size"])), str(entry["name"])))
        if not archived:
            raise BinlogGoneError(f"archive {self.url!r} has no file with a binlog's name, such as binlog.000012")
        bases = {file.name.rpartition(".")[0] for file, _ in archived}
        if len(bases) > 1:
            raise SettingsError(
                f"archive {self.url!r} holds binlogs of several names ({', '.join(sorted(bases))}): they have "
                "no order. Give each server its own folder."
            )
        return sorted(archived, key=lambda item: item[0].number)


def _is_binlog_name(name: str) -> bool:
    base, dot, number = name.rpartition(".")
    return bool(base and dot) and number.isdigit() and len(number) >= 6
