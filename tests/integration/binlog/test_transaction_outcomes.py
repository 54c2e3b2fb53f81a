"""Rows that were rolled back or only prepared, in slices of any size: the messages result in SELECT's rows."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pymysql
import pytest
from encode_batches import encode_batches, encoder, messages_of
from integration.binlog.test_slices import fresh_file
from integration.topic_rows import select_rows, topic_rows

from changefeed.binlog import prepared_rows
from changefeed.binlog.decoder import KernelDecoder
from changefeed.binlog.prepared_rows import PreparedBefore, PreparedRows
from changefeed.binlog.search.scout import scout
from changefeed.formats.debezium import DebeziumFormat
from changefeed.model.route import Route
from changefeed.model.slice_report import SliceReport
from changefeed.model.transaction_event import PreparedTransaction
from changefeed.model.window import Slice
from changefeed.records.block import MessageBlock
from changefeed.records.filter_chain import FilterChain
from changefeed.spark.stages.transaction_outcomes import resolve_transactions
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.sql_server import SqlServer


class Decoded:
    """A file's messages as a window would publish them."""

    def __init__(self, path: Path, database: str, slice_bytes: int) -> None:
        self._data, self._file = path.read_bytes(), path.name
        self.database, self.looked_back = database, 0
        complete_file = Slice(0, path.name, 4, len(self._data))
        self.slices = list(scout([self._data[4:]], complete_file, slice_bytes).slices)
        blocks: list[MessageBlock] = []
        reports: list[SliceReport] = []
        for slice in self.slices:
            for item in self._read(slice, Before(self, slice)):
                if isinstance(item, MessageBlock):
                    blocks.append(item)
                else:
                    reports.append(item)
        self.transaction_outcomes = resolve_transactions(self.slices, reports)
        self.rows = reports[0].rows
        blocks.sort(key=lambda block: (block.topic, block.partition, block.slice, block.number))
        chain = FilterChain(self.transaction_outcomes.filters, encoder())
        self.messages = [
            (batch.topic, message) for batch in chain.rest(encode_batches(blocks)) for message in messages_of([batch])
        ]
        for topic in {topic for topic, _ in self.messages}:
            order = [(m.position, m.sequence) for t, m in self.messages if t == topic]
            assert order == sorted(set(order)), "progress counts on by position and sequence"

    def _read(self, slice: Slice, before: PreparedBefore | None) -> Any:
        decoder = self.decoder(self.database)
        decoder.prepared_rows = PreparedRows(before)
        return decoder.decode(self.chunks(slice), slice)

    @staticmethod
    def decoder(database: str) -> KernelDecoder:
        def route(of: str, table: str) -> Route | None:
            return Route(table, 1) if of == database else None

        return KernelDecoder(route, lambda *_: None, DebeziumFormat("p", 0), "uuid")

    def chunks(self, slice: Slice) -> list[bytes]:
        description = self._data[4 : 4 + int.from_bytes(self._data[13:17], "little")]
        preamble = [] if slice.start == 4 else [description]
        return [*preamble, self._data[slice.start : slice.end]]

    def records(self, table: str) -> list[Any]:
        return [
            SimpleNamespace(key=message.key, value=message.value) for topic, message in self.messages if topic == table
        ]

    @property
    def ids(self) -> list[bytes]:
        return [message.event_id for _, message in self.messages]


class Before:
    """The transactions prepared before a slice, found by reading everything before it."""

    def __init__(self, decoded: Decoded, slice: Slice) -> None:
        self._decoded, self._slice = decoded, slice

    def find(self, xid: str) -> PreparedTransaction:
        rows = PreparedRows(None)
        decoder = self._decoded.decoder("")
        decoder.prepared_rows = rows
        span = Slice(0, self._slice.file, 4, self._slice.start)
        list(decoder.decode(self._decoded.chunks(span), span))
        self._decoded.looked_back += 1
        return rows.left[xid]

    def rows(self, prepared: PreparedTransaction) -> Iterator[MessageBlock | SliceReport]:
        span = Slice(self._slice.number, prepared.file, prepared.start, prepared.end)
        return self._decoded.decoder(self._decoded.database).decode(self._decoded.chunks(span), span)


TABLES = {"a": "InnoDB", "m": "MyISAM"}


def make(server: SqlServer, database: str) -> None:
    server.execute(f"CREATE DATABASE IF NOT EXISTS `{database}`")
    for table, engine in TABLES.items():
        server.execute(f"CREATE TABLE `{database}`.{table} (id INT PRIMARY KEY, t VARCHAR(400)) ENGINE={engine}")


class Scribbler:
    """Random transactions of two sessions, with all kinds of rollback."""

    def __init__(self, server: SqlServer, database: str, seed: int) -> None:
        self._random = random.Random(seed)
        self._maria = isinstance(server, MariadbServer)
        settings = "SET SESSION innodb_lock_wait_timeout = 1, SESSION transaction_isolation = 'READ-COMMITTED'"
        if self._maria:
            settings = settings.replace("transaction_isolation", "tx_isolation")
        else:
            settings += f", SESSION binlog_transaction_compression = {seed % 2}"
        self._sessions = [server.connect(database=database, autocommit=True, init_command=settings) for _ in range(2)]
        self._prepared: list[str] = []
        self._key = 0

    def scribble(self, transactions: int) -> None:
        for number in range(transactions):
            session = self._random.choice(self._sessions)
            if self._random.random() < 0.4:
                self._xa(session, number % 5)
            else:
                self._plain(session)
            if self._prepared and self._random.random() < 0.5:
                self._end_prepared()
        while self._prepared:
            self._end_prepared()
        for session in self._sessions:
            session.close()

    def _end_prepared(self) -> None:
        xid = self._prepared.pop(self._random.randrange(len(self._prepared)))
        self._run(self._random.choice(self._sessions), f"XA {self._random.choice(['COMMIT', 'ROLLBACK'])} '{xid}'")

    def _plain(self, session: pymysql.Connection[Any]) -> None:
        self._run(session, "BEGIN")
        self._work(session, 7)
        self._run(session, self._random.choice(["COMMIT", "COMMIT", "ROLLBACK"]))

    def _xa(self, session: pymysql.Connection[Any], slot: int) -> None:
        xid = f"x{slot}"
        if xid in self._prepared:
            return
        self._run(session, f"XA START '{xid}'")
        self._work(session, slot)
        self._run(session, f"XA END '{xid}'")
        match self._random.randrange(6):
            case 0:
                self._run(session, f"XA COMMIT '{xid}' ONE PHASE")
            case 1:
                self._run(session, f"XA ROLLBACK '{xid}'")
            case _:
                if self._run(session, f"XA PREPARE '{xid}'"):
                    self._prepared.append(xid)
                    self._leave(session)  # so that another session may end it, and this one go on

    def _leave(self, session: pymysql.Connection[Any]) -> None:
        """Connect anew, once the server has ended the old session.

        MariaDB 11.4 answers OK to an XA COMMIT that arrives while the session that prepared is being ended, and logs
        it, but loses the rows: in 3 of 3,429 attempts.
        """
        owner = session.thread_id()
        session.close()
        session.connect()
        with session.cursor() as cursor:
            while cursor.execute(f"SELECT 1 FROM information_schema.processlist WHERE id = {owner}"):
                time.sleep(0.001)

    def _work(self, session: pymysql.Connection[Any], slot: int) -> None:
        """Changes of rows whose keys modulo 8 are ``slot``, so that nothing waits for prepared transactions."""
        savepoints = 0
        for _ in range(self._random.randrange(1, 9)):
            key = self._random.randrange(self._key + 1) * 8 + slot
            match self._random.randrange(9 if self._maria else 7):
                case 0 | 1 | 2:
                    count = self._random.choice([1, 2, 40])
                    keys = [(self._key + row) * 8 + slot for row in range(count)]
                    self._key += count
                    self._run(session, "INSERT INTO a VALUES " + ", ".join(f"({at}, REPEAT('x', 300))" for at in keys))
                case 3:
                    self._run(session, f"DELETE FROM a WHERE id = {key}")
                case 4:
                    new = self._random.choice(["t = RAND()", f"id = {key + 80_000}"])
                    self._run(session, f"UPDATE a SET {new} WHERE id = {key}")
                case 5:
                    savepoints += 1
                    self._run(session, f"SAVEPOINT `s {savepoints % 3}`")
                case 6:
                    self._run(session, f"ROLLBACK TO `S {self._random.randrange(3)}`")
                case 7:
                    self._key += 1
                    self._run(session, f"INSERT INTO m VALUES ({self._key}, 'm')")
                case 8:
                    self._run(session, "CREATE TEMPORARY TABLE IF NOT EXISTS tt (id INT)")
                    self._run(session, "DROP TEMPORARY TABLE IF EXISTS tt")

    @staticmethod
    def _run(session: pymysql.Connection[Any], sql: str) -> bool:
        """Whether it succeeded: missing savepoints and locks of prepared transactions are expected."""
        with contextlib.suppress(pymysql.err.MySQLError), session.cursor() as cursor:
            cursor.execute(sql)
            return True
        return False


def check(server: SqlServer, database: str, seed: int) -> None:
    path = fresh_file(server)
    make(server, database)
    Scribbler(server, database, seed).scribble(60)
    server.execute("FLUSH BINARY LOGS")
    ids = []
    for slice_bytes in (1, 2_000, 20_000, 100_000_000):
        decoded = Decoded(path, database, slice_bytes)
        for table in TABLES:
            assert topic_rows(decoded.records(table)) == select_rows(server, database, table), (
                seed,
                slice_bytes,
                table,
            )
        transaction_outcomes = decoded.transaction_outcomes
        if slice_bytes == 2_000:
            assert decoded.looked_back
            assert transaction_outcomes.rolled_back or isinstance(
                server, MysqlServer
            )  # with GTIDs it logs none of these
        ids.append(sorted(decoded.ids))
        assert len(ids[-1]) == len(set(ids[-1]))
    assert all(each == ids[0] for each in ids)


@pytest.mark.parametrize("seed", range(4))
def test_mysql_messages_of_random_transactions_equal_select(
    full_mysql_server: MysqlServer, database: str, seed: int
) -> None:
    check(full_mysql_server, database, seed)


@pytest.mark.parametrize("seed", range(4))
def test_mariadb_messages_of_random_transactions_equal_select(
    full_mariadb_server: MariadbServer, unique_name: str, seed: int
) -> None:
    check(full_mariadb_server, unique_name, seed)
    full_mariadb_server.execute(f"DROP DATABASE `{unique_name}`")


@pytest.mark.parametrize("server_fixture", ["full_mysql_server", "full_mariadb_server"])
def test_xa_transactions_larger_than_memory_come_at_their_xa_commit(
    request: pytest.FixtureRequest, unique_name: str, server_fixture: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server: SqlServer = request.getfixturevalue(server_fixture)
    path = fresh_file(server)
    make(server, unique_name)
    digits = " UNION ALL ".join(f"SELECT {digit} AS d" for digit in range(10))
    tables = ", ".join(f"({digits}) AS t{number}" for number in range(5))
    key = "t0.d + 10 * t1.d + 100 * t2.d + 1000 * t3.d + 10000 * t4.d"
    rows = f"SELECT {key}, 'x' FROM {tables} WHERE t4.d < 2"  # 20,000: more than the kernel's buffer holds
    for xid, end in (("a", "ROLLBACK"), ("b", "COMMIT")):
        work = (f"XA START '{xid}'", f"INSERT INTO a {rows}", f"XA END '{xid}'", f"XA PREPARE '{xid}'")
        server.execute(*work, database=unique_name)
        server.execute("INSERT INTO m VALUES (1, 'm')", database=unique_name)
        server.execute(f"XA {end} '{xid}'", f"DELETE FROM `{unique_name}`.m")
    server.execute("FLUSH BINARY LOGS")
    for held_bytes in (prepared_rows.HELD_BYTES, 0):
        monkeypatch.setattr(prepared_rows, "HELD_BYTES", held_bytes)
        decoded = Decoded(path, unique_name, 100_000_000)
        assert decoded.transaction_outcomes.prepared
        for table in TABLES:
            assert topic_rows(decoded.records(table)) == select_rows(server, unique_name, table)
        assert decoded.rows == {f"{unique_name}.a": {"c": 20_000}, f"{unique_name}.m": {"c": 2, "d": 2}}
    server.execute(f"DROP DATABASE `{unique_name}`")
