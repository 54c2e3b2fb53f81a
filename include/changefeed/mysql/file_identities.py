"""Reading which binlog files a server has, beyond their names."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor

from changefeed.binlog.events.framing import HEADER
from changefeed.connection import MysqlConnection
from changefeed.coordinates import FIRST_POSITION
from changefeed.file_identity import FileIdentity
from changefeed.mysql.dump import DumpStream
from changefeed.mysql.source import session_on
from changefeed.window import Window

_AT_ONCE = 8
"""Connections: one alone waits for the network most of the time."""


def file_identity(connection: MysqlConnection, server_uuid: str, file: str) -> FileIdentity:
    """The identity of ``file`` on the server ``server_uuid``, over a connection of its own that is proved to be there.

    Raises what `session_on` and `DumpStream` raise.
    """
    dump = DumpStream(session_on(connection, server_uuid), file=file, start=FIRST_POSITION, end=1 << 62)
    seconds, _, server_id, _, _, _ = HEADER.unpack_from(dump.first_event())
    return FileIdentity(file, seconds, server_id)


def window_files(connection: MysqlConnection, window: Window, files: Iterable[str]) -> dict[str, FileIdentity]:
    """The identities of ``files``, those of ``window``, by name: what each reader of one of them has to find.

    Raises BinlogGoneError where the server's binlog is not the one that the window was frozen in.
    """
    newest = window.newest
    names = sorted({*files, newest.name} if newest else set(files))
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        read = threads.map(lambda name: file_identity(connection, window.server_uuid, name), names)
        identities = dict(zip(names, read, strict=True))
    if newest is not None:
        newest.check(identities[newest.name])
    return identities
