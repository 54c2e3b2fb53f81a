"""Two workloads, each in the binlog of a running server: written once, kept in `.devstack/bench` with its data.

- bulk: 1,000,000 rows, 2,000 INSERTs of 500 rows over 20 tables of 11 columns;
- oltp: 600,000 autocommit statements of one row each on the same tables, a third each INSERT, UPDATE, DELETE by key.

Nothing follows a workload in its server's binlog, so that a reader finds no more work after it.
CHANGEFEED_BENCH_SCALE=0.1 makes a tenth of them, in servers of their own.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import islice

from bench_decode import COLUMNS, SCALE, TABLE, random_row
from pymysql.constants import CLIENT

from devstack.home import Home
from devstack.identity import ProcessId
from devstack.mysql import MysqlServer

DATABASE = "bench"
TABLES = tuple(f"t{number}" for number in range(20))
INSERTS, ROWS_EACH, TRANSACTIONS = round(2000 * SCALE), 500, round(600_000 * SCALE)
PACKET = 200
"""Statements that are sent at once."""
OPTIONS: dict[str, str | int] = {
    "binlog_row_metadata": "FULL",
    "max_binlog_size": 1 << 30,  # MySQL's own default
    "binlog_expire_logs_seconds": 0,
    "innodb_buffer_pool_size": "512M",
    "innodb_redo_log_capacity": "512M",
    "innodb_flush_log_at_trx_commit": 0,
}


@dataclass(frozen=True)
class Workload:
    """A range of the server's binlog, ``[start, head)``, in one file. Its rows were counted while it was written."""

    name: str
    file: str
    start: int
    head: int
    start_gtids: str
    head_gtids: str
    rows: int
    messages: int
    """Messages in Debezium's format: one for each row change, and a tombstone for each delete."""


@contextmanager
def live_server(name: str) -> Iterator[tuple[MysqlServer, Workload]]:
    """The server of the workload ``name``, running, and its workload; both are created if they are missing."""
    folder = Home.default().root / "bench" / f"live-{name}-{SCALE:g}"
    server = MysqlServer(folder / "mysql", options=OPTIONS, owner=ProcessId.own())
    server.start()
    try:
        facts = folder / "workload.json"
        if not facts.exists():
            print(f"writing the workload {name} into {server.directory}, once", flush=True)
            facts.write_text(json.dumps(asdict(_write(server, name))))
        yield server, Workload(**json.loads(facts.read_text()))
    finally:
        server.stop()


def _write(server: MysqlServer, name: str) -> Workload:
    server.execute(
        f"DROP DATABASE IF EXISTS {DATABASE}",
        f"CREATE DATABASE {DATABASE}",
        *(f"CREATE TABLE {DATABASE}.{table} {TABLE}" for table in TABLES),
    )
    rng = random.Random(1)
    rows = _run(server, "bulk", _bulk(rng), 1)
    return rows if name == "bulk" else _run(server, name, _oltp(rng), PACKET)


def _bulk(rng: random.Random) -> Iterator[str]:
    for number in range(INSERTS):
        rows = ", ".join(random_row(rng) for _ in range(ROWS_EACH))
        yield f"INSERT INTO {TABLES[number % len(TABLES)]} {COLUMNS} VALUES {rows}"


def _oltp(rng: random.Random) -> Iterator[str]:
    """Deletes go through the tables' keys from the first; updates change keys that are not deleted."""
    last_key = INSERTS * ROWS_EACH // len(TABLES)
    last_deleted = TRANSACTIONS // 3 // len(TABLES) + 1
    for number in range(TRANSACTIONS):
        match number % 3:
            case 0:
                yield f"INSERT INTO {rng.choice(TABLES)} {COLUMNS} VALUES {random_row(rng)}"
            case 1:
                key = rng.randint(last_deleted + 1, last_key)
                yield f"UPDATE {rng.choice(TABLES)} SET a = {number}, score = {rng.random()!r} WHERE id = {key}"
            case _:
                key, table = divmod(number // 3, len(TABLES))
                yield f"DELETE FROM {TABLES[table]} WHERE id = {key + 1}"


def _run(server: MysqlServer, name: str, statements: Iterator[str], at_once: int) -> Workload:
    began, rows, tombstones = time.monotonic(), 0, 0
    with (
        server.connect(database=DATABASE, client_flag=CLIENT.MULTI_STATEMENTS) as connection,
        connection.cursor() as cursor,
    ):

        def where() -> tuple[str, int, str]:
            cursor.execute("SHOW BINARY LOG STATUS")
            file, position, _, _, gtids = cursor.fetchone()
            return file, position, gtids.replace("\n", "")

        cursor.execute("FLUSH BINARY LOGS")
        file, start, start_gtids = where()
        while packet := list(islice(statements, at_once)):
            cursor.execute("; ".join(packet))
            for number, statement in enumerate(packet):
                if number:
                    cursor.nextset()
                rows += cursor.rowcount
                tombstones += cursor.rowcount if statement.startswith("DELETE") else 0
        last, head, head_gtids = where()
        cursor.execute("FLUSH BINARY LOGS")
    if last != file:
        raise SystemExit(f"{name} does not fit into one binlog file: {file} to {last}")
    print(f"{name}: {rows:,} rows in {head - start:,} bytes, {time.monotonic() - began:.0f} s", flush=True)
    return Workload(name, file, start, head, start_gtids, head_gtids, rows, rows + tombstones)
