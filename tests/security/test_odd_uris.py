"""Passwords with characters that are special in URIs: errors must not contain them."""

from __future__ import annotations

import itertools
import traceback
from collections.abc import Callable, Iterator

import pytest

from changefeed.airflow.connections import airflow_lookup, server_lookup
from changefeed.errors import ChangefeedError, SettingsError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.schema_registry.connection import RegistryConnection
from changefeed.model.connection import MysqlConnection, kafka_parts
from changefeed.state.table_store import TableCheckpointStore

HALVES = ("pl4nted", "s3cret")
ODD = "/?#@:[]%&=;, \\\n"


def odd_passwords() -> Iterator[str]:
    """Two halves of a secret around one or two special characters, also after digits, which may look like a port."""
    for letters in itertools.chain(ODD, map("".join, itertools.product(ODD, repeat=2))):
        yield letters.join(HALVES)
        yield f"12{letters}{HALVES[0]}={HALVES[1]}"


def describe_result(call: Callable[[], object]) -> str:
    try:
        result = call()
    except ChangefeedError as error:
        return "".join(traceback.format_exception(error)) + repr(error)
    return f"{result!r} {result}"


def assert_hidden_by(parse: Callable[[str], object], form: str) -> None:
    """No odd password is in the error of ``parse``."""
    for password in odd_passwords():
        said = describe_result(lambda password=password: parse(form.format(password)))
        if "MysqlConnection(" in said:
            continue  # a valid URI, whose repr shows hosts and user
        assert [half for half in HALVES if half in said] == [], (password, said)


@pytest.mark.parametrize(
    "form",
    [
        "mysql://u:{}@127.0.0.1:1/shop",
        "mysql://u:{}@127.0.0.1",
        "mysql://{}@127.0.0.1:1/?ssl_ca=/x",
        "mysql://u:{}",
        "mysql://u:x@127.0.0.1:{}",
        "mysql://u:x@127.0.0.1/?connect_timeout_seconds={}",
        "mysql:/u:{}@127.0.0.1",
        "mysql:u:{}@127.0.0.1",
        "u:{}@127.0.0.1",
        "{}",
    ],
)
def test_error_for_any_mysql_uri_hides_its_password(form: str) -> None:
    assert_hidden_by(MysqlConnection.from_uri, form)


@pytest.mark.parametrize("form", ["mysql://u:{}@h1,h2", "mysql://u:{}@h1:1,h2:2/?ssl_ca=/x", "mysql://{}@h1,h2"])
def test_error_for_any_list_of_hosts_hides_its_password(form: str) -> None:
    assert_hidden_by(MysqlConnection.all_from_uri, form)


@pytest.mark.parametrize(
    "form",
    [
        "kafka://u:{}@127.0.0.1:1",
        "kafka://u:{}@127.0.0.1",
        "kafka://127.0.0.1:1,u:{}@h",
        "kafka://u:{}",
        "kafka:u:{}@h",
    ],
)
def test_error_for_any_kafka_uri_hides_its_password(form: str) -> None:
    for password in odd_passwords():
        said = describe_result(
            lambda password=password: KafkaConnection(*kafka_parts(form.format(password)), 0.01).check_options()
        )
        assert [half for half in HALVES if half in said] == [], (password, said)


def test_password_is_not_parsed_as_host_or_user() -> None:
    """If a / ? or # in the password ends the host part too early, the apparent host is half of the password."""
    for uri in (
        "mysql://u:12/pl4nted@h",
        "mysql://u:12?ssl_ca=pl4nted@h",
        "mysql://u:12?pl4nted=x@h",
        "mysql://u:12#x@h",
    ):
        with pytest.raises(SettingsError, match="cannot be read"):
            MysqlConnection.from_uri(uri)


@pytest.mark.parametrize("look_up", [airflow_lookup, server_lookup])
@pytest.mark.parametrize(
    "value",
    [
        "spark://u:pl4nted/s3cret@h",
        "spark://u:pl4nted?s3cret@h:1",
        "spark://u:pl4nted#s3cret@h:s3cret",
        "spark://u:[pl4nteds3cret@h",
        "http://u:x@h:s3cret/?__extra__=pl4nted",
        '{"conn_type": "mysql", "password": "pl4nted"',
        '{"conn_type": "mysql", "passwort": "pl4nted"}',
        '{"conn_type": "mysql", "extra": "pl4nted"}',
        '{"conn_type": "mysql", "port": "pl4nted"}',
        "pl4nted",
    ],
)
def test_unreadable_airflow_connection_is_named_without_its_text(
    look_up: Callable[[str], str], value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ODD", value)
    with pytest.raises(SettingsError, match="connection") as caught:
        MysqlConnection.from_uri(look_up("odd"))
    said = "".join(traceback.format_exception(caught.value))
    assert [half for half in HALVES if half in said] == [], said


@pytest.mark.parametrize("option", ["ssl_ca=", "ssl_verify", "ssl_cert=x&ssl_key="])
def test_option_without_a_value_is_refused(option: str) -> None:
    """Templates with an unset variable produce them. An ignored `ssl_ca=` would turn off the verification of TLS."""
    for form, read in (
        ("mysql://u:p@h/?{}", MysqlConnection.from_uri),
        ("https://u:p@h/?{}", RegistryConnection.from_uri),
    ):
        with pytest.raises(SettingsError, match=r"option 'ssl_.*' of .* has no value"):
            read(form.format(option))
    with pytest.raises(SettingsError, match=r"option 'security.protocol' of .* has no value"):
        kafka_parts("kafka://h/?security.protocol=&sasl.password=p")
    with pytest.raises(SettingsError, match=r"option 'ssl_ca' of the state table's connection has no value"):
        TableCheckpointStore("mysql+pymysql://u:p@h/state?ssl_ca=")
    with pytest.raises(SettingsError, match=r"'ssl_key' of the state table's connection is PEM text.*path") as caught:
        TableCheckpointStore("mysql+pymysql://u:p@h/state?ssl_key=-----BEGIN%20KEY-----pl4nted")
    assert "pl4nted" not in str(caught.value)
