"""Archives of binlog files: their locations, and the folders and URLs below which they may be read.

A URL is compared with a root component by component. Forms that have several spellings (`..`, percent encoding, a chain
of fsspec) are refused, not resolved. Each process that opens a file resolves symbolic links. A URL never has
credentials.
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
"""A colon in the host part, without a port after it: the text is a password, and its / ends the host part too early."""
_PORT_AND_USER = re.compile(r"\A(?>.*?://[^/]*?:).*@", re.DOTALL)


def check_no_secret(url: str) -> None:
    """Raises SettingsError for a URL with a user, a password or a query (such as a signature): many users can see URLs.

    The message does not quote the URL. In an absolute path, which is not a URL, @ and ? are ordinary characters.
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

    ``root`` is the entry of the site file's `archives` that contains the archive; readers follow no link that leads out
    of the root. Without a root, as in the command, the reader has the rights of its own user and may use any protocol
    of fsspec. Raises SettingsError for a URL with a secret.
    """

    url: str
    root: str | None = None

    def __post_init__(self) -> None:
        check_no_secret(self.url)


ArchiveLookup = Callable[[str], Archive]
"""Returns the archive of a URL. Raises SettingsError for a URL that may not be read."""


LOCAL = "file"
PROTOCOLS = {LOCAL: LOCAL, "s3": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfs", "az": "abfs", "http": "http",
             "https": "https"}  # fmt: skip
"""The protocols that may be read through Airflow, each with its canonical name."""
_WEB = ("http", "https")
"""Protocols of arbitrary servers. Their roots are exactly one archive, because the server decides what is below a
URL."""

_LONGEST = 1024
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_NO_HOST, _BUCKET = re.compile(""), re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_HOST = re.compile(r"([a-z0-9.-]+|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")
_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}")


@dataclass(frozen=True)
class Location:
    """A folder or URL in a form that can be compared."""

    protocol: str
    host: str
    """A bucket, a container, or a host with its port; '' for a local folder."""
    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Location:
        """Parse an absolute path or a URL; raises ValueError for another text, which the error does not quote."""
        if len(text) > _LONGEST or not text.isprintable() or "\\" in text:
            raise ValueError(f"it is longer than {_LONGEST} characters, or has invisible ones, or backslashes")
        if "::" in text:
            raise ValueError("it is a chain (::), one part of which reads another")
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
            raise ValueError("its host is missing, invalid or in place of a path")
        parts = tuple(part for part in path.split("/") if part not in ("", "."))
        if ".." in parts:
            raise ValueError("it has '..' in its path")
        return cls(protocol, host, parts)

    def is_below(self, root: Location) -> bool:
        """Whether this is ``root`` or below it; on web servers, whether it is ``root`` itself."""
        if (self.protocol, self.host) != (root.protocol, root.host):
            return False
        return self.parts == root.parts if self.protocol in _WEB else self.parts[: len(root.parts)] == root.parts

    def __str__(self) -> str:
        path = "/".join(self.parts)
        return f"/{path}" if self.protocol == LOCAL else f"{self.protocol}://{self.host}/{path}"


def archive_below(url: str, roots: Iterable[str]) -> Archive:
    """The archive of ``url``, if it is below one of ``roots``.

    Raises SettingsError for a URL that is not below a root, and for a URL or root with a secret or in an unsupported
    form. The message does not name the roots, and quotes the URL only if its form is supported.
    """
    check_no_secret(url)
    try:
        location = Location.parse(url)
    except ValueError as error:
        raise SettingsError(
            f"the archive cannot be read through Airflow: {error}. Expected a folder or URL below one that the "
            "administrator lists under `archives` of the site file (CHANGEFEED_SITE)"
        ) from None
    for number, text in enumerate(roots, 1):
        try:
            root = Location.parse(text)
        except ValueError as error:
            raise SettingsError(f"number {number} of `archives` in the site file cannot be used: {error}") from None
        if location.is_below(root) and is_inside(str(location), str(root)):
            if location.protocol in _WEB:
                return Archive(text, text)  # the URL unchanged: with a slash at its end it would be another page
            return Archive(str(location), str(root))
    raise SettingsError(
        f"archive {url!r} may not be read through Airflow: it is not below a folder or URL that the administrator "
        "lists under `archives` of the site file (CHANGEFEED_SITE). Without one no archive is read; ask for "
        "it to be added"
    )


def is_inside(path: str, root: str) -> bool:
    """Whether ``path`` is ``root`` or below it after all links are resolved on this machine. URLs have no links."""
    if not root.startswith("/"):
        return True
    real, real_root = os.path.realpath(path), os.path.realpath(root)
    return os.path.commonpath([real, real_root]) == real_root
