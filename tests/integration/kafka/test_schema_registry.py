"""Schemas in a registry: ids by content, compatibility of altered tables, and a registry that refuses or is away."""

from __future__ import annotations

import http.server
import pickle
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from avro_java import JavaAvro
from integration.kafka.test_kafka_security import self_signed
from ruled_registry import RuledRegistry

from changefeed.errors import CompatibilityError, RegistryError, RegistryUnavailableError, SettingsError
from changefeed.formats.avro import AvroFormat
from changefeed.formats.avro_schema import avro_text
from changefeed.formats.format import FormatSettings
from changefeed.formats.schema_ids import LocalIds, SubjectNames
from changefeed.kafka.schema_registry import client
from changefeed.kafka.schema_registry.client import Registry
from changefeed.kafka.schema_registry.connection import RegistryConnection
from changefeed.kafka.schema_registry.subjects import Subjects
from changefeed.model.password_source import PasswordSource
from changefeed.model.table_schema import Column, Default, TableSchema
from devstack.identity import ProcessId
from devstack.process import run_server
from devstack.schema_registry import SchemaRegistry

ORDERS = TableSchema(
    "shop",
    "orders",
    (Column("id", "int", nullable=False), Column("price", "int", nullable=True), Column("note", "text", nullable=True)),
    (0,),
)


def with_column(column: Column) -> TableSchema:
    """The table with a further column."""
    return replace(ORDERS, columns=(*ORDERS.columns, column))


def with_price(**changes: Any) -> TableSchema:
    """The table with another definition of `price`."""
    id, price, note = ORDERS.columns
    return replace(ORDERS, columns=(id, replace(price, **changes), note))


def value_text(table: TableSchema) -> str:
    """The schema of the table's values."""
    return avro_text(AvroFormat("p", 0, LocalIds()).value_schema(table))


def subjects_of(registry: Registry, topic: str) -> Subjects:
    """The subjects of a pipeline that has one topic."""
    return Subjects(registry, lambda _database, _table: topic, f"{topic}-statements")


@pytest.fixture(scope="module")
def registry(schema_registry: SchemaRegistry) -> Iterator[Registry]:
    with JavaAvro() as java, RuledRegistry(schema_registry.url, java) as ruled:
        yield Registry(RegistryConnection.from_uri(ruled.url))


@pytest.fixture
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "_WAIT", lambda _state: 0)


def test_a_schema_has_the_id_that_it_was_registered_with_whoever_asks_and_when(
    registry: Registry, unique_name: str
) -> None:
    first, second = subjects_of(registry, unique_name), subjects_of(registry, unique_name)
    old, new = value_text(ORDERS), value_text(with_column(Column("more", "int", nullable=True)))
    ids = [first.of_table(ORDERS, "value", old), first.of_table(ORDERS, "value", new)]
    assert ids[0] != ids[1]
    assert [second.of_table(ORDERS, "value", text) for text in (old, new, old)] == [*ids, ids[0]]
    assert registry.schemas(f"{unique_name}-value", latest=False) == [old, new]


def test_subjects_by_record_name_keep_tables_of_one_topic_apart(registry: Registry, unique_name: str) -> None:
    people = replace(ORDERS, table="people", columns=(ORDERS.columns[0], Column("price", "varchar", nullable=False)))
    for names, subjects in (
        (SubjectNames.TOPIC, [f"{unique_name}-value"]),
        (SubjectNames.RECORD, [f"{unique_name}.shop.{table}.Envelope" for table in ("orders", "people")]),
        (
            SubjectNames.TOPIC_RECORD,
            [f"{unique_name}-{unique_name}.shop.{table}.Envelope" for table in ("orders", "people")],
        ),
    ):
        format = AvroFormat.of(
            FormatSettings(
                unique_name,
                0,
                schema_ids=subjects_of(registry, unique_name),
                options={"value.subject.name.strategy": str(names)},
            )
        )
        format.value(ORDERS, "c")
        registry._ask("PUT", f"config/{subjects[0]}", {"compatibility": "FULL_TRANSITIVE"})
        if names is SubjectNames.TOPIC:
            with pytest.raises(CompatibilityError, match=f"'{unique_name}-value'"):
                format.value(people, "c")
        else:
            format.value(people, "c")
        assert [len(registry.schemas(subject, latest=False)) for subject in subjects] == [1] * len(subjects)


def test_ids_that_are_known_are_not_asked_for(unique_name: str) -> None:
    nowhere = Registry(RegistryConnection("http://127.0.0.1:1"))
    known = {(f"{unique_name}-value", "1" * 64): 7}
    subjects = replace(subjects_of(nowhere, unique_name), known=known)
    text = value_text(ORDERS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("changefeed.kafka.schema_registry.subjects.digest", lambda _text: "1" * 64)
        assert subjects.of_table(ORDERS, "value", text) == 7


ALTERED = [
    # level, the table as it is altered, and the words of its refusal; None where it is taken
    ("BACKWARD", with_column(Column("more", "int", nullable=True)), None),
    ("BACKWARD", with_column(Column("more", "int", nullable=False, default=Default("5"))), None),
    ("BACKWARD", with_column(Column("more", "int", nullable=False)), "changed are 'more'"),
    ("BACKWARD", replace(ORDERS, columns=ORDERS.columns[:2]), None),
    ("BACKWARD", with_price(data_type="bigint"), None),
    ("BACKWARD", with_price(data_type="tinyint"), None),
    ("BACKWARD", with_price(data_type="text"), "changed are 'price'"),
    ("BACKWARD", with_price(nullable=False), "changed are 'price'"),
    ("FORWARD", with_price(data_type="bigint"), "changed are 'price'"),
    ("FORWARD", with_column(Column("more", "int", nullable=False)), None),
    ("FORWARD", replace(ORDERS, columns=ORDERS.columns[:2]), None),
    ("FULL", with_column(Column("more", "int", nullable=False)), "changed are 'more'"),
    ("FULL_TRANSITIVE", with_column(Column("more", "int", nullable=True)), None),
    ("NONE", with_price(data_type="text"), None),
]


@pytest.mark.parametrize(("level", "altered", "refused"), ALTERED)
def test_an_altered_table_that_the_registry_refuses_is_named_with_its_columns(
    registry: Registry, unique_name: str, level: str, altered: TableSchema, refused: str | None
) -> None:
    subject = f"{unique_name}-value"
    subjects = subjects_of(registry, unique_name)
    subjects.of_table(ORDERS, "value", value_text(ORDERS))
    registry._ask("PUT", f"config/{subject}", {"compatibility": level})
    if refused is None:
        subjects.of_table(altered, "value", value_text(altered))
        return
    with pytest.raises(CompatibilityError) as caught:
        subjects.of_table(altered, "value", value_text(altered))
    for words in (
        refused,
        "incompatible with an earlier schema, details: [",
        f"table {altered.database}.{altered.table}",
        f"subject {subject!r}",
        f"is {level}",
    ):
        assert words in str(caught.value)
    assert registry.schemas(subject, latest=False) == [value_text(ORDERS)]


def test_a_transitive_level_looks_at_all_versions_and_a_plain_one_at_the_last(
    registry: Registry, unique_name: str
) -> None:
    # As a column that came and went: readers of the third version cannot read the first.
    versions = [ORDERS, replace(ORDERS, columns=ORDERS.columns[:2]), with_column(Column("x", "int", nullable=True))]
    last = replace(versions[2], columns=tuple(replace(c, data_type="int") for c in versions[2].columns))
    for level, words in {"BACKWARD": None, "BACKWARD_TRANSITIVE": "changed are 'note', 'x'"}.items():
        topic = f"{unique_name}-{level}"
        subjects = subjects_of(registry, topic)
        for version in versions[:2]:
            subjects.of_table(version, "value", value_text(version))
        registry._ask("PUT", f"config/{topic}-value", {"compatibility": level})
        if words is None:
            subjects.of_table(last, "value", value_text(last))
        else:
            with pytest.raises(CompatibilityError, match=words):
                subjects.of_table(last, "value", value_text(last))


def test_a_schema_that_a_registry_refuses_at_once_is_named(registry: Registry, unique_name: str) -> None:
    subjects = subjects_of(registry, f"{unique_name}-refused")
    with pytest.raises(CompatibilityError, match=r"shop.orders.*says: Schema being registered is incompatible"):
        subjects.of_table(ORDERS, "value", value_text(ORDERS))


@pytest.mark.usefixtures("no_pause")
def test_wrong_registry_login_is_an_error_without_the_password(session_folder: Path, tmp_path: Path) -> None:
    arguments = ["-auth", RegistryConnection("", "me", "hush-hush").login().authorization or ""]
    server = SchemaRegistry(session_folder / "locked-registry", arguments=arguments, owner=ProcessId.own())
    with run_server(server):
        plain = server.url.partition("//")[2]
        right = Registry(RegistryConnection.from_uri(f"http://me:hush-hush@{plain}"))
        assert right.schemas("any", latest=True) == []
        for login in ("", "me:wrong-word@"):
            with pytest.raises(RegistryError, match="set login and password") as caught:
                Registry(RegistryConnection.from_uri(f"http://{login}{plain}")).level("any")
            assert "wrong-word" not in str(caught.value)
        source = PasswordSource("registry", ("cat", str(tmp_path / "password")))
        connection = RegistryConnection.from_uri(f"http://me:unused@{plain}")
        renewing: Registry = pickle.loads(pickle.dumps(Registry(replace(connection, password_source=source))))
        (tmp_path / "password").write_text("wrong-word")
        with pytest.raises(RegistryUnavailableError, match=r"`passwords` of the site's file.*Run again") as unavailable:
            renewing.level("any")
        assert "wrong-word" not in str(unavailable.value)
        (tmp_path / "password").unlink()
        with pytest.raises(RegistryUnavailableError, match=r"'registry', failed: it ended with exit code 1"):
            renewing.level("any")
        (tmp_path / "password").write_text("hush-hush")
        assert renewing.schemas("any", latest=True) == []


@pytest.mark.usefixtures("no_pause")
def test_registry_with_tls_checks_authority_and_client_certificate(
    session_folder: Path,
) -> None:
    folder = session_folder / "tls-registry"
    folder.mkdir()
    authority, own = self_signed(folder)
    arguments = ["-cert", str(own), "-key", str(own), "-clients", str(authority)]
    with run_server(SchemaRegistry(folder, arguments=arguments, owner=ProcessId.own())) as server:
        options: dict[str, Path | str] = {"ssl_ca": authority, "ssl_cert": own, "ssl_key": own}

        def asked(*names: str) -> str:
            query = urlencode({name: str(options[name]) for name in names})
            return Registry(RegistryConnection.from_uri(f"{server.url}/?{query}")).level("any")

        assert asked(*options) == "BACKWARD"
        options = dict.fromkeys(options, authority.read_text() + own.read_text())  # as PEM text
        assert asked(*options) == "BACKWARD"
        options = {"ssl_ca": authority, "ssl_cert": own, "ssl_key": own}
        with pytest.raises(SettingsError, match=r"certificate that is not trusted.*ssl_ca"):
            asked("ssl_cert", "ssl_key")
        with pytest.raises(RegistryUnavailableError, match=rf"{server.url} was asked 4 times"):
            asked("ssl_ca")
        options["ssl_ca"] = folder / "none.pem"
        with pytest.raises(SettingsError, match=r"certificates .* cannot be read.*No such file"):
            asked("ssl_ca")


@pytest.mark.usefixtures("no_pause")
def test_a_registry_that_is_not_there_is_asked_a_few_times() -> None:
    with pytest.raises(RegistryUnavailableError, match=r"http://127.0.0.1:1 was asked 4 times"):
        Registry(RegistryConnection.from_uri("http://me:hush@127.0.0.1:1")).level("any")


class Stumbling(http.server.BaseHTTPRequestHandler):
    """Answers what its server has left, one after the other."""

    def do_GET(self) -> None:
        status, body = self.server.answers.pop(0)  # type: ignore[attr-defined]
        self.send_response(status)
        self.send_header("Location", "http://127.0.0.1:1/")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def stumbling() -> Iterator[http.server.HTTPServer]:
    server = http.server.HTTPServer(("127.0.0.1", 0), Stumbling)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.usefixtures("no_pause")
def test_busy_registry_is_retried_and_another_service_is_an_error(
    stumbling: http.server.HTTPServer,
) -> None:
    registry = Registry(RegistryConnection.from_uri(f"http://127.0.0.1:{stumbling.server_port}"))
    level = (200, b'{"compatibilityLevel":"FULL"}')
    stumbling.answers = [(503, b"{}"), (500, b""), (429, b""), level]  # type: ignore[attr-defined]
    assert registry.level("any") == "FULL"
    stumbling.answers = [(404, b"{}"), level]  # type: ignore[attr-defined]
    assert registry.level("any") == "FULL", "the registry's default"
    stumbling.answers = [(500, b"{}")] * 4  # type: ignore[attr-defined]
    with pytest.raises(RegistryUnavailableError, match="500 4 times"):
        registry.level("any")
    for answer, words in {
        (200, b"<html>"): "that of a registry",
        (422, b'{"message":"no"}'): "422",
        (302, b""): "elsewhere",
    }.items():
        stumbling.answers = [answer] * 2  # type: ignore[attr-defined]
        with pytest.raises(RegistryError, match=words):
            registry.level("any")


@pytest.mark.parametrize(
    ("uri", "url"),
    [
        ("http://registry:8081", "http://registry:8081"),
        ("http://registry:8081/https", "https://registry:8081"),
        ("https://u:p%40@registry/apis/ccompat/v7?ssl_verify=false", "https://registry/apis/ccompat/v7"),
        ("http://[::1]:8081/", "http://[::1]:8081"),
    ],
)
def test_forms_of_a_registry_s_uri(uri: str, url: str) -> None:
    assert RegistryConnection.from_uri(uri).url == url


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("mysql://u:hush@h", "found scheme 'mysql'"),
        ("http://u:hu/sh@h", "cannot be read"),
        ("http://u:hush@h:port", "cannot be read"),
        ("http://u:hush@h?ca=x", "unknown option 'ca'"),
        ("", "found none"),
    ],
)
def test_a_wrong_uri_is_refused_without_its_password(uri: str, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as caught:
        RegistryConnection.from_uri(uri)
    assert "hush" not in str(caught.value)
    assert "sh@" not in str(caught.value)
