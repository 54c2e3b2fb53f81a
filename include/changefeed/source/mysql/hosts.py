"""Chooses the host of a source that has several: a primary and the replicas that may be promoted."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from changefeed.errors import SourceUnavailableError
from changefeed.model.connection import MysqlConnection
from changefeed.source.mysql.session import Session, is_unreachable

_log = logging.getLogger(__name__)


def first_reachable(connections: Sequence[MysqlConnection]) -> MysqlConnection:
    """The first of ``connections`` whose server lets the user log in; a single connection without trying it.

    The caller uses it for all its sessions, so that they are on one server. Only an unreachable server leads to the
    next host: one that is busy or refuses the login is alive, and the next one may be behind it. Raises the errors of
    `Session`, and SourceUnavailableError if no server can be reached.
    """
    if not connections[1:]:
        return connections[0]
    unreachable = []
    for connection in connections:
        try:
            with Session(connection):
                return connection
        except SourceUnavailableError as error:
            if not is_unreachable(error):
                raise
            _log.warning("the next host of the source is tried: %s", error)
            unreachable.append(str(error))
    raise SourceUnavailableError("no host of the source can be reached: " + " ".join(unreachable))
