"""Sessions of a running Spark Connect server, for which no JVM has to start.

A server keeps a Python daemon for each session that it ever had, and the workers of each session import all modules
again. So all runs of a day share one session, which no run ends: a run reuses the workers of the run before it, and the
server does not gain a daemon with each run.
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
"""Spark Connect's default port, for a URL without one."""
_PACKAGE = Path(__file__).parents[1]


@contextmanager
def connect_session(url: str) -> Iterator[ConnectSpark]:
    """The day's session of the Connect server at ``url``, or the one that the URL names (``session_id``).

    The server's workers need the package `changefeed`. Raises SparkUnavailableError if the server cannot be reached.
    """
    _check_reachable(url)
    spark: Any = SparkSession.builder.remote(url).create() if "session_id=" in url else _shared_session(url)
    spark.release_session_on_close = False  # other runs use it
    try:
        yield ConnectSpark(spark)
    finally:
        spark.stop()


def _shared_session(url: str) -> Any:
    """The first of the day's sessions that the server has not ended.

    The server ends a session that was idle for an hour (spark.connect.session.manager.defaultSessionTimeout), and does
    not accept its id again.
    """
    url = url.rstrip(";")
    parameters = url if ";" in url else f"{url.rstrip('/')}/"
    day = f"{datetime.now(UTC):%Y-%m-%d} {_version_of_package()}"
    for number in count():
        spark: Any = SparkSession.builder.remote(f"{parameters};session_id={session_id(day, number)}").create()
        try:
            _ = spark.version  # sends a request to the server
        except SparkConnectException as error:
            spark.release_session_on_close = False
            spark.stop()  # if it were only closed, it would stay the process's default session
            if "UNAUTHENTICATED" in str(error):
                raise _without_token() from error
            if "SESSION_CLOSED" not in str(error):
                raise
        else:
            return spark
    raise AssertionError


def session_id(day: str, number: int) -> str:
    """The id of a session, a UUID, as Spark requires."""
    return str(uuid5(NAMESPACE_URL, f"changefeed {day} {number}"))


def _version_of_package() -> str:
    """A text that changes with each change of the package, so that a new session starts: workers keep imported modules
    during a session."""
    stats = [file.stat() for file in _PACKAGE.rglob("*.py")]
    return f"{len(stats)} {sum(stat.st_size for stat in stats)} {max(stat.st_mtime_ns for stat in stats)}"


def _check_reachable(url: str) -> None:
    """Raise SparkUnavailableError if the server does not accept a connection; Spark's client would try for ten
    minutes."""
    host, port = _address(url)
    try:
        socket.create_connection((host, port), timeout=10).close()
    except OSError as error:
        raise SparkUnavailableError(
            f"the Spark Connect server of `spark.connect`, {host}:{port}, cannot be reached: {error}. Check that it is "
            "running (start-connect-server.sh), and run again. A retry publishes nothing twice."
        ) from error


def _address(url: str) -> tuple[str, int]:
    """Host and port of the Connect server at ``url``, without its parameters, which may include a token."""
    try:
        parts = urlsplit(url)
        return parts.hostname or "", parts.port or CONNECT_PORT
    except ValueError:
        raise SettingsError(
            "expected `spark.connect` to be sc://host:port, then /;name=value…, found a URL that cannot be read"
        ) from None


def _without_token() -> SettingsError:
    return SettingsError(
        "the Spark Connect server of `spark.connect` expects its token, and found none or another one. Nothing was "
        "published. Set SPARK_CONNECT_AUTHENTICATE_TOKEN where the job runs, or end the URL in /;token=…; the server "
        "is then reached over TLS, or as localhost."
    )
