"""The head of MariaDB's binlog: its GTID position is the one at its coordinates, whatever is logged meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest
from long_form import long

from changefeed.model.connection import MysqlConnection
from changefeed.model.gtid import GtidSet
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.source import head, mariadb_position
from devstack.identity import ProcessId
from devstack.mariadb import MariadbServer
from devstack.process import run_server

WRITERS, HEADS = 3, 300


@pytest.fixture(params=["10.11", *long("11.4"), *long("11.8")])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MariadbServer]:
    options = {"loose_slave_connections_needed_for_purge": 0}  # 11.4 and newer
    server = MariadbServer(tmp_path / "own", release=request.param, options=options, owner=ProcessId.own(), quick=True)
    with run_server(server) as running:
        running.execute("CREATE DATABASE d", "CREATE TABLE d.t (id INT AUTO_INCREMENT PRIMARY KEY)")
        yield running


def check_head(session: Session) -> str:
    """Check the head against what MariaDB computes from its binlog; returns its GTIDs."""
    found = head(session)
    assert GtidSet.parse(found.gtids) == GtidSet.parse(mariadb_position(session, found.coordinates) or "")
    return str(GtidSet.parse(found.gtids))


def head_after(server: MariadbServer, *statements: str) -> str:
    if statements:
        server.execute(*statements)
    with Session(MysqlConnection.from_uri(server.url)) as session:
        return check_head(session)


def purge_old_files(server: MariadbServer) -> None:
    server.execute("FLUSH BINARY LOGS")
    newest = server.execute("SHOW MASTER STATUS")[0][0]
    for _ in range(100):  # it keeps a file while a checkpoint of InnoDB may need it
        server.execute(f"PURGE BINARY LOGS TO '{newest}'")
        if server.execute("SHOW BINARY LOGS")[0][0] == newest:
            return
        time.sleep(0.1)
    raise AssertionError("the old files were not purged")


def test_gtids_are_those_at_the_coordinates(server: MariadbServer) -> None:
    insert = "INSERT INTO d.t VALUES ()"
    assert head_after(server, "RESET MASTER") == ""
    assert head_after(server, insert, insert) == "0-1-2"
    assert head_after(server, "SET gtid_domain_id = 7, gtid_seq_no = 9", insert) == "0-1-2,7-1-9"
    assert head_after(server, "SET gtid_seq_no = 1000", insert) == "0-1-1000,7-1-9"
    assert head_after(server, "SET gtid_seq_no = 5", insert) == "0-1-5,7-1-9"
    assert head_after(server, "SET server_id = 3, gtid_seq_no = 6", insert) == "0-3-6,7-1-9"
    assert head_after(server, "SET server_id = 1, gtid_seq_no = 4", insert) == "0-1-4,7-1-9"
    assert head_after(server, "FLUSH BINARY LOGS") == "0-1-4,7-1-9"
    assert head_after(server, "SET sql_log_bin = OFF", insert) == "0-1-4,7-1-9"
    server.restart()
    assert head_after(server) == "0-1-4,7-1-9"
    purge_old_files(server)
    assert head_after(server, "FLUSH BINARY LOGS DELETE_DOMAIN_ID = (7)") == "0-1-4"
    assert head_after(server, "RESET MASTER", "SET GLOBAL gtid_binlog_state = '0-1-50,0-3-60,8-1-1'") == "0-3-60,8-1-1"
    assert head_after(server, insert) == "0-1-61,8-1-1"


@contextmanager
def writing(server: MariadbServer) -> Iterator[None]:
    """Transactions of several sessions, each in a domain of its own and one after another."""
    is_over = Event()

    def write(domain: int) -> None:
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute(f"SET gtid_domain_id = {domain}")
            while not is_over.is_set():
                cursor.execute("INSERT INTO d.t VALUES ()")
                cursor.execute("INSERT INTO d.t VALUES (), (), ()")
                cursor.execute("DELETE FROM d.t LIMIT 2")

    with ThreadPoolExecutor(WRITERS) as threads:
        writers = [threads.submit(write, domain) for domain in range(WRITERS)]
        try:
            yield
        finally:
            is_over.set()
        for writer in writers:
            writer.result()


def test_gtids_are_those_at_the_coordinates_while_transactions_commit(server: MariadbServer) -> None:
    server.execute("SET GLOBAL max_binlog_size = 65536")  # so that it begins files meanwhile
    with writing(server), Session(MysqlConnection.from_uri(server.url)) as session:
        heads = [check_head(session) for _ in range(HEADS)]
    assert len(set(heads)) > 1


def test_head_leaves_the_transaction_of_its_session_as_it_was(server: MariadbServer) -> None:
    with Session(MysqlConnection.from_uri(server.root_url)) as session:
        session.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        assert session.row("SELECT COUNT(*) FROM d.t") == (0,)
        server.execute("INSERT INTO d.t VALUES ()")
        session.rows("INSERT INTO d.t VALUES ()")
        check_head(session)
        assert session.row("SELECT COUNT(*), @@in_transaction FROM d.t") == (1, 1)
        session.rows("ROLLBACK")
        assert session.row("SELECT COUNT(*), @@in_transaction FROM d.t") == (1, 0)
