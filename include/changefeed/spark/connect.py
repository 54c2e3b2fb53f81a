"""A session of a Spark Connect server that is up already: no JVM has to start."""

from __future__ import annotations

import socket
from urllib.parse import urlsplit

from pyspark.sql import SparkSession

from changefeed.errors import SettingsError, SparkUnavailableError

CONNECT_PORT = 15002
"""Spark Connect's own, where a URL names none."""


def connect_session(url: str) -> SparkSession:
    """A session of the Connect server at ``url``; its workers need the package `changefeed`, see `warm_up`.

    Raises SparkUnavailableError when nobody answers there.
    """
    _check_reachable(url)
    return SparkSession.builder.remote(url).create()


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


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is a client of a Connect server, which has no SparkContext."""
    return type(spark).__module__.startswith("pyspark.sql.connect")
