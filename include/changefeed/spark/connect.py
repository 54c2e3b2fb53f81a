"""A session of a Spark Connect server that is up already: no JVM has to start.

Spark keeps a Python daemon for each session that a server ever had, and its workers import anew in each. So all runs of
a day share one session, which none of them ends: a run finds workers that the one before it left, and the server does
not grow by a daemon a run.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import NAMESPACE_URL, uuid5

from pyspark.errors.exceptions.connect import SparkConnectException
from pyspark.sql import SparkSession

from changefeed.errors import SettingsError, SparkUnavailableError
from changefeed.spark.target import ConnectSpark

CONNECT_PORT = 15002
"""Spark Connect's own, where a URL names none."""
_PACKAGE = Path(__file__).parents[1]


@contextmanager
def connect_session(url: str) -> Iterator[ConnectSpark]:
    """The day's session of the Connect server at ``url``; its workers need the package `changefeed`.

    The session that a URL names itself (``session_id``) is taken as it is. Raises SparkUnavailableError when nobody
    answers there.
    """
    _check_reachable(url)
    spark: Any = SparkSession.builder.remote(url).create() if "session_id=" in url else _shared_session(url)
    spark.release_session_on_close = False  # other runs are in it
    try:
        yield ConnectSpark(spark)
    finally:
        spark.stop()


def _shared_session(url: str) -> Any:
    """The first of the day's sessions that the server did not end: it ends those that nobody used for an hour
    (spark.connect.session.manager.defaultSessionTimeout), and takes their ids never again."""
    url = url.rstrip(";")
    parameters = url if ";" in url else f"{url.rstrip('/')}/"
    day = f"{datetime.now(UTC):%Y-%m-%d} {_version_of_package()}"
    for number in count():
        spark: Any = SparkSession.builder.remote(f"{parameters};session_id={session_id(day, number)}").create()
        try:
            _ = spark.version  # asks the server
        except SparkConnectException as error:
            spark.release_session_on_close = False
            spark.stop()  # closed alone it would stay the process's default session, for those after it
            if "UNAUTHENTICATED" in str(error):
                raise _without_token() from error
            if "SESSION_CLOSED" not in str(error):
                raise
        else:
            return spark
    raise AssertionError


def session_id(day: str, number: int) -> str:
    """A UUID, as Spark demands."""
    return str(uuid5(NAMESPACE_URL, f"changefeed {day} {number}"))


def _version_of_package() -> str:
    """Another one with each change of the package: workers keep what they imported as long as their session lives."""
    stats = [file.stat() for file in _PACKAGE.rglob("*.py")]
    return f"{len(stats)} {sum(stat.st_size for stat in stats)} {max(stat.st_mtime_ns for stat in stats)}"


def _check_reachable(url: str) -> None:
    """Spark's client would try for ten minutes."""
    host, port = _address(url)
    try:
        socket.create_connection((host, port), timeout=10).close()
    except OSError as error:
        raise SparkUnavailableError(
            f"the Spark Connect server of `spark.connect`, {host}:{port}, cannot be reached: {error}. Is it up "
            "(start-connect-server.sh)? A run that is tried again publishes nothing twice."
        ) from error


def _address(url: str) -> tuple[str, int]:
    """Host and port of a Connect server: its URL may hold a token besides."""
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.port or CONNECT_PORT
    except ValueError:
        raise SettingsError("`spark.connect` cannot be read: wanted sc://host:port, then /;name=value…") from None


def _without_token() -> SettingsError:
    return SettingsError(
        "the Spark Connect server of `spark.connect` expects its token, and found none or another one. Nothing was "
        "published. Set SPARK_CONNECT_AUTHENTICATE_TOKEN where the job runs, or end the URL in /;token=…; the server "
        "is then reached over TLS, or as localhost."
    )
