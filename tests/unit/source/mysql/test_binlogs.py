"""Binlog files that a server purges while they are searched."""

from __future__ import annotations

from typing import cast

import pymysql
import pytest

from changefeed.errors import SourceError, SourceUnavailableError
from changefeed.model.connection import MysqlConnection
from changefeed.model.gtid import GtidSet
from changefeed.source.mysql.binlogs import ServerBinlogs
from changefeed.source.mysql.session import Session, translate_errors

_UUID, _FOREIGN = "11111111-1111-1111-1111-111111111111", "22222222-2222-2222-2222-222222222222"


class _Server:
    """A session of MySQL 8.4 with two files. The older one has transactions 1 to 5; 1 to 9 of another server were in a
    backup that it was restored from."""

    is_mariadb = False
    version_number = (8, 4)
    connection = MysqlConnection("127.0.0.1", 3306, "reader", "")

    def __init__(self) -> None:
        self.gtids_before = {"bin.000007": "", "bin.000008": f"{_UUID}:1-5"}

    def purge(self) -> None:
        del self.gtids_before["bin.000007"]

    def variable(self, name: str) -> str:
        assert name == "gtid_purged"
        (oldest, *_) = self.gtids_before.values()
        return f"{_FOREIGN}:1-9" + f",\n{oldest}" * bool(oldest)

    def named_row(self, _sql: str) -> dict[str, str]:
        return {"File": "bin.000008", "Position": "400", "Executed_Gtid_Set": f"{_UUID}:1-6,{_FOREIGN}:1-9"}

    def row(self, sql: str) -> tuple[str]:
        assert sql == "SELECT @@server_uuid"
        return (_UUID,)

    def rows(self, sql: str, *values: str) -> list[tuple[object, ...]]:
        if sql == "SHOW BINARY LOGS":
            return [(name, "400", "No") for name in self.gtids_before]
        assert sql.startswith("SHOW BINLOG EVENTS")
        with translate_errors(self.connection):
            (file,) = values or (next(iter(self.gtids_before)),)
            if file not in self.gtids_before:
                raise pymysql.OperationalError(1220, "Error when executing command: Could not find target log")
            return [(file, 127, "Previous_gtids", 1, 198, self.gtids_before[file])]


def test_unlogged_transactions_are_those_before_the_oldest_file_of_now() -> None:
    server = _Server()
    binlogs = ServerBinlogs(cast(Session, server))
    assert [file.name for file in binlogs.files()] == ["bin.000007", "bin.000008"]
    assert binlogs.logged_before("bin.000007") == ""
    server.purge()
    assert binlogs.unlogged == GtidSet.parse(f"{_FOREIGN}:1-9")


def test_file_that_is_purged_before_it_is_read_may_be_retried() -> None:
    server = _Server()
    binlogs = ServerBinlogs(cast(Session, server))
    binlogs.files()
    server.purge()
    with pytest.raises(SourceUnavailableError, match=r"'bin\.000007'.* was purged meanwhile.*Run again"):
        binlogs.previous_gtids("bin.000007")


def test_file_that_is_listed_and_cannot_be_read_stops_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    server = _Server()

    def refuse(sql: str, *_values: str) -> list[tuple[object, ...]]:
        if sql == "SHOW BINARY LOGS":
            return [("bin.000008", "400", "No")]
        raise SourceError("answered with error 1220: Wrong offset or I/O error")

    monkeypatch.setattr(server, "rows", refuse)
    with pytest.raises(SourceError, match="I/O error"):
        ServerBinlogs(cast(Session, server)).logged_before("bin.000008")
