"""The archives that may be read through Airflow: those that the site file allows."""

from __future__ import annotations

from changefeed.archive.archive import Archive
from changefeed.archive.roots import archive_below
from changefeed.pipelines.site import load_site


def site_archive(url: str) -> Archive:
    """The archive of ``url``, as an `ArchiveLookup`.

    Raises SettingsError where it lies below none of the site file's `archives`, of which there are none without a site
    file, and where that file is wrong. It is read anew by each call: what an administrator takes back is refused at
    once, also to a task that is cleared.
    """
    return archive_below(url, load_site().archives)
