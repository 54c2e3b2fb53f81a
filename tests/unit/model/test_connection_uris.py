"""Connections are read from Airflow's URIs, and their secrets do not show."""

from __future__ import annotations

import pickle
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from changefeed.errors import SettingsError
from changefeed.kafka.connection import KafkaConnection
from changefeed.model.connection import MysqlConnection, from_environment, kafka_parts, variable_of

SECRET = "p@ss:w/rd?#%é"


def test_a_mysql_uri_is_read_with_its_escapes() -> None:
    found = MysqlConnection.from_uri(f"mysql://me%40home:{quote(SECRET, safe='')}@db.example:3307/shop?ssl_ca=/ca.pem")
    assert (found.host, found.port, found.user, found.password) == ("db.example", 3307, "me@home", SECRET)
    assert found.options == {"ssl_ca": "/ca.pem"}


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=30))
def test_any_password_passes_through_a_uri(password: str) -> None:
    assert MysqlConnection.from_uri(f"mysql://u:{quote(password, safe='')}@h").password == password


@pytest.mark.parametrize(
    ("uri", "host", "port"),
    [
        ("mysql://h", "h", 3306),
        ("mysql+pymysql://u:p@h:1/", "h", 1),
        ("mysql://u@[::1]:3307", "::1", 3307),
    ],
)
def test_ports_and_forms_of_a_mysql_uri(uri: str, host: str, port: int) -> None:
    found = MysqlConnection.from_uri(uri)
    assert (found.host, found.port) == (host, port)


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("h1", [("h1", 3306)]),
        ("h1,h2", [("h1", 3306), ("h2", 3306)]),
        ("h1,h2:3310", [("h1", 3310), ("h2", 3310)]),  # as Airflow's fields host and port
        ("h1:1,h2:2,[::1]:3", [("h1", 1), ("h2", 2), ("::1", 3)]),
        ("h1%2Ch2%2c[::1]", [("h1", 3306), ("h2", 3306), ("::1", 3306)]),
    ],
)
def test_hosts_of_a_source_share_user_password_and_options(hosts: str, expected: list[tuple[str, int]]) -> None:
    uri = f"mysql://me%40home:{quote(SECRET, safe='')}@{hosts}/?ssl_ca=%2Fca.pem&ssl_verify=ca"
    found = MysqlConnection.all_from_uri(uri)
    assert [(each.host, each.port) for each in found] == expected
    assert {(each.user, each.password) for each in found} == {("me@home", SECRET)}
    assert all(each.options == {"ssl_ca": "/ca.pem", "ssl_verify": "ca"} for each in found)


@pytest.mark.parametrize("hosts", ["h1,", ",h1", "h1,h2:port", "h1;h2,h3", "h1 ,h2", "h1,[h2]"])
def test_wrong_list_of_hosts_is_refused_without_its_password(hosts: str) -> None:
    with pytest.raises(SettingsError) as caught:
        MysqlConnection.all_from_uri(f"mysql://u:hush@{hosts}/")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("postgresql://u:hush@h", "found scheme 'postgresql'"),
        ("mysql://", "has no host"),
        ("mysql://u:hush@h:port", "cannot be read"),
        ("mysql://u:hush@h1,h2", "names several hosts"),
        ("mysql://u:hush@h1:3306,h2:3306/", "names several hosts"),
        ("mysql://u:hush@h1%2ch2", "names several hosts"),
        ("mysql://u:hush@h?ssl_cafile=x", "unknown option 'ssl_cafile'"),
        ("mysql://u:hush@h?ssl_mode=off", "expected 'preferred' or 'disabled'"),
        ("mysql://u:hush@h?ssl_mode=disabled&ssl_ca=x", "has ssl_mode=disabled, and 'ssl_ca', which asks for TLS"),
        ("", "found none"),
        ("h:3306", "found none"),
    ],
)
def test_a_wrong_mysql_uri_is_refused_without_its_password(uri: str, words: str) -> None:
    with pytest.raises(SettingsError) as caught:
        MysqlConnection.from_uri(uri)
    assert words in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_kafka_uri_may_name_several_brokers_and_librdkafkas_options() -> None:
    uri = "kafka://one:9092,two:9093/?security.protocol=SASL_SSL&sasl.username=me&sasl.password=p%40ss"
    assert kafka_parts(uri) == (
        "one:9092,two:9093",
        {"security.protocol": "SASL_SSL", "sasl.username": "me", "sasl.password": "p@ss"},
    )


@pytest.mark.parametrize("uri", ["kafka://me:hush@one:9092", "kafka://:hush@one", "kafka://one:1,me:hush@two:2"])
def test_login_before_the_brokers_of_a_kafka_uri_is_refused_with_where_it_belongs(uri: str) -> None:
    with pytest.raises(SettingsError, match=r"user or a password before its brokers.*sasl\.username") as refused:
        kafka_parts(uri)
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize("uri", ["kafka://", "http://one:9092", ""])
def test_a_wrong_kafka_uri_is_refused(uri: str) -> None:
    with pytest.raises(SettingsError):
        kafka_parts(uri)


def test_secrets_do_not_show() -> None:
    mysql = MysqlConnection.from_uri(f"mysql://me:{quote(SECRET, safe='')}@h")
    kafka = KafkaConnection(*kafka_parts(f"kafka://h:9092/?sasl.username=me&sasl.password={quote(SECRET, safe='')}"))
    for shown in (repr(mysql), str(mysql), f"{mysql}", repr(kafka), str(kafka), repr([mysql, kafka])):
        assert SECRET not in shown
        assert "me" in shown


def test_connection_is_pickled_with_all_fields() -> None:
    mysql = MysqlConnection.from_uri("mysql://me:hush@h")
    assert pickle.loads(pickle.dumps(mysql)) == mysql


def test_a_connection_comes_from_the_variable_that_airflow_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_MYSQL_SHOP", "mysql://h")
    assert variable_of("mysql_shop") == "AIRFLOW_CONN_MYSQL_SHOP"
    assert from_environment("mysql_shop") == "mysql://h"


@pytest.mark.parametrize("value", [None, ""])
def test_missing_connection_is_reported_with_its_variable(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_MYSQL_SHOP", raising=False)
    if value is not None:
        monkeypatch.setenv("AIRFLOW_CONN_MYSQL_SHOP", value)
    with pytest.raises(SettingsError, match="AIRFLOW_CONN_MYSQL_SHOP"):
        from_environment("mysql_shop")


def test_brokers_may_be_names_and_ipv6_addresses() -> None:
    assert kafka_parts("kafka://h,[::2]:9092/")[0] == "h,[::2]:9092"
