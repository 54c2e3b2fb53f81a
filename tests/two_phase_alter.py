"""ALTERs as MariaDB logs them with binlog_alter_two_phase: where they begin, and where they end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pymysql

from devstack.sql_server import SqlServer

TWO_PHASE = "SET SESSION binlog_alter_two_phase = ON"
TABLE = "(id INT PRIMARY KEY, a INT, b INT)"
EXCHANGE = "RENAME COLUMN a TO b, RENAME COLUMN b TO a, ALGORITHM=COPY"


@contextmanager
def begun_alter(server: SqlServer, database: str, table: str, clauses: str) -> Iterator[Callable[[], None]]:
    """An ALTER whose beginning is logged, and which ends with the block: it waits for a reader of its table.

    Yields what ends it sooner, so that the server rolls it back.
    """
    sql, before = f"ALTER TABLE {table} {clauses}", server.head()
    with server.connect(database=database) as altering, server.connect(database=database, autocommit=False) as reading:

        def alter() -> None:
            with altering.cursor() as cursor:
                cursor.execute(TWO_PHASE)
                with suppress(pymysql.err.OperationalError):  # where it is rolled back
                    cursor.execute(sql)

        def roll_back() -> None:
            server.execute(f"KILL QUERY {altering.thread_id()}")
            thread.join()

        with reading.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
        thread = threading.Thread(target=alter)
        thread.start()
        try:
            while server.head() == before:
                time.sleep(0.02)
            yield roll_back
        finally:
            reading.rollback()
            thread.join()


def alter_at_once(server: SqlServer, database: str, *, between: Callable[[], object] = lambda: None) -> None:
    """Two ALTERs that begin one after the other and are committed the other way round, a third ALTER that is rolled
    back, and rows of their tables before, between and after; all rows have 10 in `a` and 20 in `b`.

    ``between`` is called while all three are under way.
    """

    def insert(table: str, number: int) -> None:
        server.execute(f"INSERT INTO {table} (id, a, b) VALUES ({number}, 10, 20)", database=database)

    for table in ("t0", "t1", "t2"):
        insert(table, 1)
    with begun_alter(server, database, "t0", EXCHANGE), begun_alter(server, database, "t2", EXCHANGE) as roll_back:
        with begun_alter(server, database, "t1", EXCHANGE):
            server.execute("INSERT INTO journal (text) VALUES ('x')", database=database)
            between()
        insert("t1", 2)
        roll_back()
    for table, number in (("t2", 2), ("t0", 2)):
        insert(table, number)
    server.execute(TWO_PHASE, f"ALTER TABLE t2 {EXCHANGE}", "CREATE INDEX i ON t2 (a)", database=database)
    insert("t2", 3)
