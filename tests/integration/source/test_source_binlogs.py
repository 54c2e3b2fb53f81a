"""The binlog files of a server, as a dialog lists them."""

from __future__ import annotations

import time

import pytest

from changefeed.model.connection import MysqlConnection
from changefeed.operations import source_binlogs as listing
from changefeed.operations.source_binlogs import source_binlogs
from changefeed.source.mysql.session import Session
from devstack.sql_server import SqlServer


@pytest.mark.extended
@pytest.mark.parametrize("kind", ["mysql_server", "mariadb_server"])
def test_newest_binlogs_come_first_with_size_and_begin(
    kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: SqlServer = request.getfixturevalue(kind)
    server.execute("FLUSH BINARY LOGS", "FLUSH BINARY LOGS")
    shown = [(str(name), int(size)) for name, size, *_ in server.execute("SHOW BINARY LOGS")]
    with Session(MysqlConnection.from_uri(server.root_url)) as session:
        found = source_binlogs(session)
        newest = source_binlogs(session, most=2)
        assert [file.name for file in found.files] == [name for name, _ in reversed(shown)][: listing.MOST]
        assert (found.files[1].name, found.files[1].size_bytes) == shown[-2], "a closed file does not grow"
        assert (len(newest.files), newest.more) == (2, True)
        times = [found.begun_seconds[file] or 0 for file in found.files[:3]]
        assert sorted(times, reverse=True) == times
        assert abs(times[0] - time.time()) < 600
        read: list[str] = []
        monkeypatch.setattr(listing, "file_identity", lambda *arguments: read.append(arguments[2]))
        source_binlogs(session, found)
    assert set(read) <= {found.files[0].name}, "only of a file that has grown"
