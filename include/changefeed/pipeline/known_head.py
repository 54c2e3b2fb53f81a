"""The head of an earlier plan of this process, of which MariaDB's GTID position is known.

Before MariaDB 11.4 the server reads a binlog file up to a position to compute the GTID position there, which a
continuous run would let it do for its newest file at each plan.
"""

from __future__ import annotations

from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.source.mysql.binlogs import file_identity_once
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.source import Head

_SURE_SECONDS = 10
"""The least age of a file whose head is remembered. An identity has the second of the file's begin: after RESET MASTER
in the same second it is the same. The rest is for a RESET that waits, which begins the file with its own begin time."""


def remember_head(connections: PipelineConnections, window: Window, head: Head) -> None:
    """Remember ``head``, which MariaDB had at the plan of ``window``, for the next plan with ``connections``."""
    newest = window.newest
    if newest is not None and newest.begun_seconds + _SURE_SECONDS < head.seconds:
        connections.known_heads.clear()
        connections.known_heads[window.server_uuid, newest] = head


def known_head(connections: PipelineConnections, session: Session, server_uuid: str, file: str) -> Head | None:
    """The remembered head in ``file``, if it is still the same file; None if there is none. Raises what
    `file_identity_once` raises."""
    if not connections.known_heads:
        return None
    return connections.known_heads.get((server_uuid, file_identity_once(session, server_uuid, file)))
