"""A session reads current data, under any settings of the server."""

from __future__ import annotations

import pickle
import socket
import ssl
import tempfile
import threading
from pathlib import Path
from urllib.parse import urlencode

import pytest
from cryptography.hazmat.primitives import serialization

from changefeed.errors import SettingsError, SourceError, SourceUnavailableError
from changefeed.model.connection import MysqlConnection
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.dump import DumpStream
from changefeed.source.mysql.server_schemas import wait_for_logged_ddl
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.session_settings import EVERYWHERE, MARIADB, MYSQL
from devstack.identity import ProcessId
from devstack.mysql import MysqlServer
from devstack.process import run_server
from devstack.sql_server import SqlServer

PEM_FILES = {"ssl_ca": "ca", "ssl_cert": "client-cert", "ssl_key": "client-key"}


@pytest.mark.parametrize("kind", ["mysql_server", "mariadb_server"])
def test_session_sees_later_ddl_and_rows_with_autocommit_off(
    kind: str, request: pytest.FixtureRequest, unique_name: str
) -> None:
    server: SqlServer = request.getfixturevalue(kind)
    server.execute(f"CREATE DATABASE {unique_name}", "SET GLOBAL autocommit = 0")
    columns = f"SELECT column_name FROM information_schema.columns WHERE table_schema = '{unique_name}' ORDER BY 1"
    try:
        with Session(MysqlConnection.from_uri(server.url)) as session:
            assert session.rows(columns) == []
            server.execute("SET autocommit = 1", f"CREATE TABLE {unique_name}.t (a INT)")
            assert session.rows(columns) == [("a",)]
            server.execute("SET autocommit = 1", f"INSERT INTO {unique_name}.t VALUES (1)")
            assert session.rows(f"SELECT a FROM {unique_name}.t") == [(1,)]
            server.execute("SET autocommit = 1", f"ALTER TABLE {unique_name}.t ADD b INT")
            assert session.rows(columns) == [("a",), ("b",)]
    finally:
        server.execute("SET GLOBAL autocommit = 1", f"DROP DATABASE {unique_name}")


def test_wait_for_logged_ddl_leaves_the_session_as_it_was(mysql_server: MysqlServer, unique_name: str) -> None:
    """A continuous run uses the session again."""
    mysql_server.execute(f"CREATE DATABASE {unique_name}", f"CREATE TABLE {unique_name}.t (a INT)")
    settings = "SELECT * FROM performance_schema.session_variables ORDER BY 1"
    with Session(MysqlConnection.from_uri(mysql_server.root_url)) as session:
        changing = {"timestamp", "last_insert_id", "statement_id"}
        before = [row for row in session.rows(settings) if row[0] not in changing]
        wait_for_logged_ddl(session)
        assert [row for row in session.rows(settings) if row[0] not in changing] == before
    mysql_server.execute(f"DROP DATABASE {unique_name}")


def test_server_without_accepted_tls_version_is_refused_with_a_remedy(
    mysql_80_server: MysqlServer, tmp_path: Path
) -> None:
    """MySQL 5.7.22 has TLS 1.1 at most, and is given the certificate that 8.0 made for itself."""
    key = serialization.load_pem_private_key((mysql_80_server.data / "server-key.pem").read_bytes(), None)
    (tmp_path / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )
    options = {
        "ssl-ca": str(mysql_80_server.data / "ca.pem"),
        "ssl-cert": str(mysql_80_server.data / "server-cert.pem"),
        "ssl-key": str(tmp_path / "key.pem"),
    }
    owner = ProcessId.own()
    with run_server(MysqlServer(tmp_path / "own", release="5.7", options=options, owner=owner, quick=True)) as server:
        assert server.execute("SHOW VARIABLES LIKE 'have_ssl'") == [("have_ssl", "YES")]
        with pytest.raises(SourceError, match=r"1\.2 or newer.*Upgrade the server, or .*ssl_mode=disabled"):
            Session(MysqlConnection.from_uri(server.url))
        with Session(MysqlConnection.from_uri(f"{server.url}/?ssl_mode=disabled")) as session:
            assert session.version.startswith("5.7.22")


def test_certificates_and_key_as_pem_text_open_a_verified_connection(
    mysql_server: MysqlServer, unique_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As text in an Airflow connection, they need no file on the workers. The login requires the client's own."""
    user = unique_name[:32]
    texts = {name: (mysql_server.data / f"{file}.pem").read_text() for name, file in PEM_FILES.items()}
    mysql_server.execute(f"CREATE USER {user} IDENTIFIED BY 'own' REQUIRE X509")
    try:
        uri = f"mysql://{user}:own@127.0.0.1:{mysql_server.port}/?ssl_verify=ca&{urlencode(texts)}"
        connection: MysqlConnection = pickle.loads(pickle.dumps(MysqlConnection.from_uri(uri)))
        assert "BEGIN" not in repr(connection)
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with Session(connection) as session:
            assert session.row("SELECT CURRENT_USER()") == (f"{user}@%",)
            assert isinstance(session.raw._sock, ssl.SSLSocket)
        assert list(tmp_path.iterdir()) == []
        with pytest.raises(SourceError, match="refuses user"):
            Session(MysqlConnection.from_uri(uri.partition("&ssl_cert=")[0]))
        with pytest.raises(SourceError, match=r"certificate is not accepted.*Nothing was sent"):
            Session(MysqlConnection.from_uri(uri.replace("127.0.0.1", "localhost").replace("ssl_verify=ca&", "")))
    finally:
        mysql_server.execute(f"DROP USER {user}")


@pytest.mark.parametrize("option", ["ssl_ca", "ssl_cert", "ssl_key"])
def test_text_that_is_no_certificate_is_an_error_that_does_not_show_it(mysql_server: MysqlServer, option: str) -> None:
    """Without percent-encoding, each + of a PEM text becomes a space."""
    texts = {name: (mysql_server.data / f"{file}.pem").read_text() for name, file in PEM_FILES.items()}
    texts[option] = "-----BEGIN PRIVATE KEY-----\nhunter2 \n-----END PRIVATE KEY-----\n"
    with pytest.raises(SettingsError, match=r"ssl_ca, ssl_cert or ssl_key .*Nothing was sent.*%2B") as caught:
        Session(MysqlConnection.from_uri(f"{mysql_server.url}/?{urlencode(texts)}"))
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("kind", ["mysql_server", "mariadb_server"])
def test_full_server_and_killed_statement_may_be_retried(
    kind: str, request: pytest.FixtureRequest, unique_name: str
) -> None:
    server: SqlServer = request.getfixturevalue(kind)
    user = unique_name[:32]
    server.execute(f"CREATE USER {user} IDENTIFIED BY 'own' WITH MAX_USER_CONNECTIONS 1")
    connection = MysqlConnection.from_uri(f"mysql://{user}:own@127.0.0.1:{server.port}")
    try:
        with Session(connection) as session:
            with pytest.raises(SourceUnavailableError, match=r"max_user_connections.*\(1226\)"):
                Session(connection)
            (own,) = session.row("SELECT CONNECTION_ID()")
            killer = threading.Timer(0.2, server.execute, [f"KILL QUERY {own}"])
            killer.start()
            with pytest.raises(SourceUnavailableError, match="interrupted"):
                session.rows("SELECT SLEEP(60) FROM information_schema.schemata")
            killer.join()
            server.execute(f"KILL {own}")
            for _ in range(2):  # the second time, the client knows that the connection is closed
                with pytest.raises(SourceUnavailableError):
                    session.rows("SELECT 1")
    finally:
        server.execute(f"DROP USER {user}")


@pytest.mark.parametrize("options", ["", "/?ssl_mode=disabled"])
def test_sockets_notice_a_server_that_dies_silently(mysql_server: MysqlServer, options: str) -> None:
    session = Session(MysqlConnection.from_uri(f"{mysql_server.url}{options}"))
    expected = {
        (socket.SOL_SOCKET, socket.SO_KEEPALIVE): 1,
        (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE): 15,
        (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL): 5,
        (socket.IPPROTO_TCP, socket.TCP_KEEPCNT): 3,
        (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT): 30_000,
    }

    def actual() -> dict[tuple[int, int], int]:
        return {option: session.raw._sock.getsockopt(*option) for option in expected}

    assert actual() == expected
    (file, *_) = session.rows("SHOW BINARY LOGS")[0]
    events = DumpStream(session, file=str(file), start=4, end=1 << 40).events()
    next(events)
    assert actual() == expected
    events.close()


HOSTILE = {
    "autocommit": "0",
    "completion_type": "'RELEASE'",
    "sql_mode": "'PAD_CHAR_TO_FULL_LENGTH,ANSI_QUOTES,NO_BACKSLASH_ESCAPES'",
    "time_zone": "'+09:00'",
    "sql_select_limit": "3",
    "sql_big_selects": "0",
    "max_join_size": "1",
    "sql_auto_is_null": "1",
    "sql_quote_show_create": "0",
    "max_sort_length": "8",
    "net_write_timeout": "1",
    "wait_timeout": "1",
    "max_execution_time": "1",
    "show_create_table_verbosity": "1",
    "show_gipk_in_create_table_and_information_schema": "0",
    "max_statement_time": "0.001",
    "system_versioning_asof": "'2001-01-01'",
}
"""A value of each setting with which other clients get another result, or none."""
_TABLE = "(a INT, b CHAR(9), c TIMESTAMP DEFAULT '2026-01-02 03:04:05')"


@pytest.mark.parametrize("kind", ["mysql_server", "mariadb_server"])
def test_no_setting_of_the_server_changes_what_a_session_reads(
    kind: str, request: pytest.FixtureRequest, unique_name: str
) -> None:
    server: SqlServer = request.getfixturevalue(kind)
    gipk, versioned = ("", " WITH SYSTEM VERSIONING") if kind == "mariadb_server" else ("SET sql_mode = ''", "")
    if not versioned:
        gipk = "SET sql_generate_invisible_primary_key = 1"
    values = ", ".join(f"({number}, 'x', '2026-05-05')" for number in range(50))
    made = [f"CREATE DATABASE {unique_name}", gipk, f"CREATE TABLE {unique_name}.t {_TABLE}{versioned}"]
    server.execute(*filter(None, made), f"INSERT INTO {unique_name}.t VALUES {values}")
    versions = MARIADB if versioned else MYSQL
    settings = [*EVERYWHERE, *(name for more in versions.values() for name in more)]
    assert set(HOSTILE) == {*EVERYWHERE, *(name for more in (*MYSQL.values(), *MARIADB.values()) for name in more)}
    expected = read(server, unique_name)
    assert len(expected[0]) == 50
    for name in settings:
        (kept,) = server.execute(f"SELECT @@global.{name}")[0]
        server.execute(f"SET GLOBAL {name} = {HOSTILE[name]}")
        try:
            assert read(server, unique_name) == expected, name
        finally:
            before = "DEFAULT" if kept == "DEFAULT" else repr(kept)
            server.execute("SET SESSION autocommit = 1", f"SET GLOBAL {name} = {before}")
    server.execute(f"DROP DATABASE {unique_name}")


def read(server: SqlServer, database: str) -> tuple[object, ...]:
    """Rows, columns and statement of table ``t``."""
    with Session(MysqlConnection.from_uri(server.url)) as session:
        rows = session.rows(f"SELECT * FROM {database}.t CROSS JOIN (SELECT 1) AS one ORDER BY a")
        created = session.row(f"SHOW CREATE TABLE {database}.t")
        session.rows("COMMIT")
        return rows, table_schema(session, database, "t"), created
