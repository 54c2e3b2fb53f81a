"""A session reads what is there now, whatever the server's settings make of other clients."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from changefeed.errors import SourceError
from changefeed.model.connection import MysqlConnection
from changefeed.source.mysql.session import Session
from devstack.identity import ProcessId
from devstack.mysql import MysqlServer
from devstack.process import started
from devstack.sql_server import SqlServer


@pytest.mark.parametrize("kind", ["mysql_server", "mariadb_server"])
def test_a_session_sees_later_definitions_and_rows_where_the_server_s_autocommit_is_off(
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


def test_server_with_no_accepted_version_of_tls_is_refused_with_what_to_do(
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
    with started(MysqlServer(tmp_path / "own", release="5.7", options=options, owner=owner, quick=True)) as server:
        assert server.execute("SHOW VARIABLES LIKE 'have_ssl'") == [("have_ssl", "YES")]
        with pytest.raises(SourceError, match=r"1\.2 or newer.*Upgrade the server, or .*ssl_mode=disabled"):
            Session(MysqlConnection.from_uri(server.url))
        with Session(MysqlConnection.from_uri(f"{server.url}/?ssl_mode=disabled")) as session:
            assert session.version.startswith("5.7.22")
