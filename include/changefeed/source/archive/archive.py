"""Archives of binlog files: where they are, and the folders and URLs below which they may be read.

A URL is compared with a root component by component, and only in one spelling. What two programs could read in two ways
(`..`, percent encoding, a chain of fsspec) is refused rather than resolved. Symbolic links are resolved where they are
followed, by each process that opens a file. The URL never holds what opens the way to the files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from changefeed.errors import SettingsError

_QUERY = re.compile(r"\A(?>.*?:/).*[?]", re.DOTALL)
_USER = re.compile(r":[/\\]*+[^/\\:]*(@|%40)", re.IGNORECASE)
_NO_PORT = re.compile(r"://[^/]*:(?![0-9]{0,5}(/|\Z))")
"""What follows a colon in the part for the host and is no port: a password, whose / ended that part too early."""
_PORT_AND_USER = re.compile(r"\A(?>.*?://[^/]*?:).*@", re.DOTALL)


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


LOCAL = "file"
PROTOCOLS = {LOCAL: LOCAL, "s3": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfs", "az": "abfs", "http": "http",
             "https": "https"}  # fmt: skip
"""Those that may be read through Airflow, with the name that stands for its synonyms."""
_WEB = ("http", "https")
"""Protocols of servers of any kind: a root names one archive exactly, as what lies below it is the server's word."""

_LONGEST = 1024
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_NO_HOST, _BUCKET = re.compile(""), re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HOST = re.compile(r"([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")


@dataclass(frozen=True)
class Location:
    """A folder or URL in the one spelling in which it is compared."""

    protocol: str
    host: str
    """A bucket, a container, or a host with its port; '' of a local folder."""
    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Location:
        """Read an absolute path or a URL; raises ValueError, whose words repeat nothing of it."""
        if len(text) > _LONGEST or not text.isprintable() or "\\" in text:
            raise ValueError(f"it is longer than {_LONGEST} characters, or has some that do not show, or backslashes")
        if "::" in text:
            raise ValueError("it is a chain (::), which reads what another part of it names")
        if _ESCAPE.search(text):
            raise ValueError("it has percent-encoded characters: write them as they are")
        scheme = _SCHEME.match(text)
        if scheme is None and not text.startswith("/"):
            raise ValueError("it is neither an absolute path nor a URL")
        protocol = PROTOCOLS.get(scheme[1].lower(), "") if scheme else LOCAL
        if not protocol:
            raise ValueError(f"its scheme is none of {', '.join(PROTOCOLS)}")
        if scheme and any(character in text for character in "?#@"):
            raise ValueError("it has a user, a query or a fragment")
        host, _, path = (text[scheme.end() :] if scheme else text).partition("/")
        host = host.lower() if protocol in _WEB else host
        shape = _NO_HOST if protocol == LOCAL else _HOST if protocol in _WEB else _BUCKET
        if not shape.fullmatch(host):
            raise ValueError("it has a host where a path should begin, or none, or one that cannot be")
        parts = tuple(part for part in path.split("/") if part not in ("", "."))
        if ".." in parts:
            raise ValueError("it has '..' in its path")
        return cls(protocol, host, parts)

    def is_below(self, root: Location) -> bool:
        """Whether this is ``root`` or below it; of web servers only that very one is."""
        if (self.protocol, self.host) != (root.protocol, root.host):
            return False
        return self.parts == root.parts if self.protocol in _WEB else self.parts[: len(root.parts)] == root.parts

    def __str__(self) -> str:
        path = "/".join(self.parts)
        return f"/{path}" if self.protocol == LOCAL else f"{self.protocol}://{self.host}/{path}"


def archive_below(url: str, roots: Iterable[str]) -> Archive:
    """The archive of ``url``, if it lies below one of ``roots``.

    Raises SettingsError where it does not, for a URL with a secret or in a form that is not compared, and for such a
    root. The message does not name the roots, and repeats the URL only where it has one of these forms.
    """
    check_no_secret(url)
    try:
        location = Location.parse(url)
    except ValueError as error:
        raise SettingsError(
            f"the archive cannot be read through Airflow: {error}. Wanted a folder or URL below one that the "
            "administrator lists under `archives` of the site file (CHANGEFEED_SITE)"
        ) from None
    for number, text in enumerate(roots, 1):
        try:
            root = Location.parse(text)
        except ValueError as error:
            raise SettingsError(f"number {number} of `archives` in the site file cannot be used: {error}") from None
        if location.is_below(root) and is_inside(str(location), str(root)):
            if location.protocol in _WEB:
                return Archive(text, text)  # as it was named: with a slash at its end it is another page
            return Archive(str(location), str(root))
    raise SettingsError(
        f"archive {url!r} may not be read through Airflow: it lies below no folder or URL that the administrator lists "
        "under `archives` of the site file (CHANGEFEED_SITE). Without one no archive is read; ask for it to be added"
    )


def is_inside(path: str, root: str) -> bool:
    """Whether a local ``path`` is ``root`` or below it with all links followed on this machine; a URL has none."""
    if not root.startswith("/"):
        return True
    real, real_root = os.path.realpath(path), os.path.realpath(root)
    return os.path.commonpath([real, real_root]) == real_root
