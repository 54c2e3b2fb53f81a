"""Where archived files are, and what may be read of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from changefeed.archive.url import check_no_secret


@dataclass(frozen=True)
class Archive:
    """A folder, a file or a URL with archived binlog files.

    ``root`` is what of the site file's `archives` it lies below, and no reader leaves: no link in it is followed out of
    that. Without one it is read with the rights of whoever runs the reader, by any way that fsspec knows; so the
    command reads it. Raises SettingsError for a URL with a secret in it.
    """

    url: str
    root: str | None = None

    def __post_init__(self) -> None:
        check_no_secret(self.url)


ArchiveLookup = Callable[[str], Archive]
"""Gives the archive of a URL. Raises SettingsError for one that may not be read."""
