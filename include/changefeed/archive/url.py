"""The URL of an archive: it says where the files are, and never holds what opens the way to them."""

from __future__ import annotations

import re

from changefeed.errors import SettingsError

_QUERY = re.compile(r":/.*[?]", re.DOTALL)
_USER = re.compile(r":[/\\]*[^/\\]*(@|%40)", re.IGNORECASE)
_NO_PORT = re.compile(r"://[^/]*:(?![0-9]{0,5}(/|\Z))")
"""What follows a colon in the part for the host and is no port: a password, whose / ended that part too early."""
_PORT_AND_USER = re.compile(r"://[^/]*:.*@", re.DOTALL)


def check_no_secret(url: str) -> None:
    """Raises SettingsError for a URL with a user, a password or a query, such as a signature: it is shown to many.

    The message repeats nothing of it. An absolute path is no URL: there an @ or a ? is a letter as any other.
    """
    looked_at = "" if url.startswith("/") and "::" not in url else url
    if any(pattern.search(looked_at) for pattern in (_QUERY, _USER, _NO_PORT, _PORT_AND_USER)):
        raise SettingsError(
            "the archive's URL has a user, a password or a query in it, and a backfill's arguments are shown in "
            "Airflow, in its audit log and in the list of processes. Leave them out of the URL, and set them in the "
            "environment of Airflow's workers and of Spark's executors: as fsspec reads it (FSSPEC_S3_KEY, "
            "FSSPEC_HTTPS …), or as the storage's own library does (AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, "
            "AZURE_STORAGE_ACCOUNT_KEY)"
        )
