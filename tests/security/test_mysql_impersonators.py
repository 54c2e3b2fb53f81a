"""Servers that impersonate the source: they get neither the password nor local files."""

from __future__ import annotations

import re
import ssl
from pathlib import Path

import pytest
from security.hostile_mysql import OK, Certificate, HostileMysql, StrippingProxy, local_infile, switch_to

from changefeed.errors import (
    FollowerError,
    SettingsError,
    SourceError,
    SourceUnavailableError,
    StateStoreUnavailableError,
)
from changefeed.model.connection import MysqlConnection
from changefeed.source.mysql.follower_session import FollowerSession
from changefeed.source.mysql.session import Session
from changefeed.state.table_store import TableCheckpointStore
from devstack.mysql import MysqlServer

PACKAGE = Path(__file__).parents[2] / "include" / "changefeed"
PASSWORD = "pl4nted-secret"
IN_CLEAR = ["mysql_clear_password", "dialog"]


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    return Certificate.create(tmp_path)


def connection_to(port: int, options: str = "") -> MysqlConnection:
    return MysqlConnection.from_uri(f"mysql://reader:{PASSWORD}@127.0.0.1:{port}/{options}")


@pytest.mark.parametrize("plugin", IN_CLEAR)
@pytest.mark.parametrize("options", ["", "?ssl_mode=disabled"])
def test_server_without_tls_gets_no_password_in_clear(plugin: str, options: str) -> None:
    with HostileMysql([switch_to(plugin), OK]) as server:
        with pytest.raises(SourceError, match=r"password.*in clear.*not verified.*Nothing.*ssl_ca"):
            Session(connection_to(server.port, options))
        assert b"reader" in server.heard
        assert PASSWORD.encode() not in server.heard


@pytest.mark.parametrize("plugin", IN_CLEAR)
@pytest.mark.parametrize("options", ["", "?ssl_verify=false"])
def test_server_with_unverified_tls_gets_no_password_in_clear(
    plugin: str, options: str, certificate: Certificate
) -> None:
    with HostileMysql([switch_to(plugin), OK], certificate=certificate) as server:
        with pytest.raises(SourceError, match="in clear"):
            Session(connection_to(server.port, options))
        assert b"reader" in server.heard
        assert PASSWORD.encode() not in server.heard


@pytest.mark.parametrize("plugin", IN_CLEAR)
def test_a_verified_server_may_ask_for_the_password_in_clear(plugin: str, certificate: Certificate) -> None:
    """Servers with LDAP or PAM require it."""
    with HostileMysql([switch_to(plugin), OK], certificate=certificate) as server:
        with pytest.raises(SourceUnavailableError):  # the server closes the connection
            Session(connection_to(server.port, f"?ssl_ca={certificate.file}"))
        assert PASSWORD.encode() + b"\0" in server.heard


def test_login_protocol_before_4_1_is_refused(certificate: Certificate) -> None:
    """Its 8 bytes reveal the password's hash, which is sufficient to log in."""
    with (
        HostileMysql([switch_to("mysql_old_password"), OK], certificate=certificate) as server,
        pytest.raises(SourceError, match=r"mysql_old_password.*Nothing"),
    ):
        Session(connection_to(server.port, f"?ssl_ca={certificate.file}"))


def test_follower_gets_no_password_in_clear() -> None:
    with HostileMysql([switch_to("mysql_clear_password"), OK]) as server:
        with pytest.raises(FollowerError, match="in clear"):
            FollowerSession(connection_to(server.port))
        assert PASSWORD.encode() not in server.heard


def test_database_of_the_state_gets_no_password_in_clear() -> None:
    with HostileMysql([switch_to("mysql_clear_password"), OK]) as server:
        with pytest.raises(StateStoreUnavailableError, match="in clear"):
            TableCheckpointStore(f"mysql+pymysql://reader:{PASSWORD}@127.0.0.1:{server.port}/state")
        assert b"reader" in server.heard
        assert PASSWORD.encode() not in server.heard


def test_certificate_for_another_server_opens_nothing(
    certificate: Certificate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Everybody can get a certificate of a public authority for a host name of their own."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate.file))
    with pytest.raises(SettingsError, match=r"ssl_verify=ca.*without ssl_ca"):
        connection_to(1, "?ssl_verify=ca")
    with HostileMysql([switch_to("mysql_clear_password"), OK], certificate=certificate) as server:
        with pytest.raises(StateStoreUnavailableError, match="in clear"):
            TableCheckpointStore(
                f"mysql+pymysql://reader:{PASSWORD}@localhost:{server.port}/state?ssl_verify_cert=true"
            )
        assert b"reader" in server.heard
        assert PASSWORD.encode() not in server.heard


@pytest.mark.parametrize(
    "options", ["?ssl_ca={ca}", "?ssl_ca={ca}&ssl_verify=ca", "?ssl_verify=true", "?ssl_verify=false"]
)
def test_stripped_tls_offer_ends_the_login_if_tls_is_required(options: str, mysql_server: MysqlServer) -> None:
    with StrippingProxy(mysql_server.port) as proxy:
        uri = mysql_server.url.replace(f":{mysql_server.port}", f":{proxy.port}/")
        asked = uri + options.format(ca=mysql_server.data / "ca.pem")
        with pytest.raises(SourceError, match=r"TLS.*Nothing was sent"):
            Session(MysqlConnection.from_uri(asked))
        assert proxy.heard == b""
        with Session(MysqlConnection.from_uri(uri)) as session:  # by default TLS is only preferred
            assert not isinstance(session.raw._sock, ssl.SSLSocket)


def test_certificate_of_another_authority_is_a_terminal_error(
    mysql_server: MysqlServer, certificate: Certificate
) -> None:
    options = f"?ssl_verify=ca&ssl_ca={mysql_server.data / 'ca.pem'}"
    with HostileMysql([OK], certificate=certificate) as server:
        with pytest.raises(SourceError, match=r"certificate.*Nothing was sent.*ssl_ca"):
            Session(connection_to(server.port, options))
        assert b"reader" not in server.heard


def test_certificate_for_another_name_requires_ssl_verify_ca(mysql_server: MysqlServer) -> None:
    """MySQL's automatic certificate has no host name, and each server has its own authority."""
    uri = f"{mysql_server.url}/?ssl_ca={mysql_server.data / 'ca.pem'}"
    with pytest.raises(SourceError, match=r"certificate.*ssl_verify=ca"):
        Session(MysqlConnection.from_uri(uri))
    with Session(MysqlConnection.from_uri(f"{uri}&ssl_verify=ca")) as session:
        assert isinstance(session.raw._sock, ssl.SSLSocket)
        ((_, cipher),) = session.rows("SHOW SESSION STATUS LIKE 'Ssl_cipher'")
        assert cipher == session.raw._sock.cipher()[0]


@pytest.mark.parametrize("kind", [Session, FollowerSession])
def test_server_that_requests_a_local_file_gets_none(kind: type[Session], tmp_path: Path) -> None:
    (tmp_path / "private").write_text("the content of a file")
    with HostileMysql([OK, *[local_infile(str(tmp_path / "private"))] * 5]) as server:
        with pytest.raises(SourceError if kind is Session else FollowerError, match="file of this machine"):
            kind(connection_to(server.port))
        assert b"SET NAMES" in server.heard
        assert b"the content" not in server.heard


def test_only_one_module_opens_mysql_connections() -> None:
    """The reference reader decodes our own dump; mysql-replication opens no connection."""
    opens = re.compile(r"pymysql\.connect\(|pymysql\.Connection\(|connections\.Connection|BinLogStreamReader\(")
    files = [file for file in PACKAGE.rglob("*.py") if opens.search(file.read_text())]
    assert [str(file.relative_to(PACKAGE)) for file in files] == ["source/mysql/login.py"]
