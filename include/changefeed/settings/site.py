"""What the administrator of an Airflow site allows beyond what is safe for everybody.

Pipelines may be written, and backfills started, by people who may not run code on the workers, nor read their files.
What could let them do so anyway is named here, in a file that only the administrator writes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from pydantic import Field, model_validator

from changefeed.errors import SettingsError
from changefeed.settings.section import ConnectionId, Section
from changefeed.settings.yaml_file import read_section
from changefeed.source.archive.archive import Archive, ArchiveLookup, archive_below

SITE_VARIABLE = "CHANGEFEED_SITE"


class ConnectionPair(Section):
    """A source and a cluster that a pipeline made over REST may bring together, and the database of its state table."""

    source: ConnectionId
    kafka: ConnectionId
    checkpoint: ConnectionId | None = None


class ArchiveRoot(Section):
    """A folder or URL below which backfills may read archived binlog files: those of pipelines of ``source``, or of all
    pipelines. In YAML the folder or URL alone, where it is for all."""

    url: str
    source: ConnectionId | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_url(cls, given: Any) -> Any:
        return {"url": given} if isinstance(given, str) else given


class Site(Section):
    """The file that CHANGEFEED_SITE names. Without one nothing of this is allowed."""

    archives: list[ArchiveRoot] = Field(default=[])
    """Folders and URLs below which backfills may read archived binlog files."""
    notifiers: list[str] = Field(default=[])
    """Classes of Airflow notifiers that a pipeline's `alerts.notify` may name, each with its module."""
    connections: list[ConnectionPair] = Field(default=[])
    """What pipelines made over REST may connect, besides what a pipeline that the same user may edit connects."""
    spark_conf: list[str] = Field(default=[])
    """Names of `spark.conf`, besides those of sizes, that may be set over REST."""
    hosts: list[str] = Field(default=[])
    """Names, with a port where it is not the scheme's own, under which browsers reach Airflow, besides that of
    `[api] base_url`."""

    def check_notifier(self, name: str) -> None:
        """Raise SettingsError for a class that alerts may not be sent with: it would be called on the workers."""
        if name not in self.notifiers:
            raise SettingsError(f"{name!r} is not among `notifiers` {site_file()}: no alert is sent with it")


def site_file() -> str:
    """Of which file a key is wanted, for messages: `of the site's file, '/etc/changefeed.yaml' …`."""
    named = os.environ.get(SITE_VARIABLE)
    if named:
        return f"of the site's file, {named!r} ({SITE_VARIABLE}), which its administrator writes"
    return f"of the site's file, which its administrator writes: {SITE_VARIABLE} is not set, so there is none"


def load_site() -> Site:
    """What is allowed on this machine; raises SettingsError where the file cannot be read or is wrong."""
    named = os.environ.get(SITE_VARIABLE)
    if not named:
        return Site()
    path = Path(named)
    if not path.is_file():
        raise SettingsError(f"{SITE_VARIABLE} names {named!r}, which is no file: write it, or unset the variable")
    return read_section(path, Site)


def site_archive(source: str) -> ArchiveLookup:
    """Looks up archives for pipelines of the connection ``source``.

    It raises SettingsError for one that lies below none of the site file's `archives` that are for these, of which
    there are none without a site file, and where that file is wrong. It is read anew by each call: what an
    administrator takes back is refused at once, also to a task that is cleared.
    """

    def archive(url: str) -> Archive:
        return archive_below(url, [root.url for root in load_site().archives if root.source in (None, source)])

    return archive
