"""The format `debezium` beside Debezium's MySQL connector: both read the same binlog, and say the same."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from integration.debezium_connector import LAST_TABLE, BinlogRange, Record, records_of
from integration.debezium_tables import definitions, statements

from changefeed.binlog.decoder import KernelDecoder
from changefeed.ddl.names import TableName
from changefeed.errors import BinlogFormatError
from changefeed.formats.format import Format, Shown
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import FIRST_POSITION
from changefeed.model.route import Route
from changefeed.model.slice_report import SliceReport
from changefeed.model.statement import Statement
from changefeed.model.table_schema import TableSchema
from changefeed.model.window import Slice
from changefeed.records.block import Message, MessageBlock
from changefeed.settings.column_settings import ColumnSettings
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes
from changefeed.source.mysql.server_schemas import current_schemas
from changefeed.source.mysql.session import Session
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer

pytestmark = pytest.mark.extended

DATABASE = "debezium_check"
CONNECTORS: dict[str, dict[str, Any]] = {
    "plain": {},
    "other": {
        "decimal.handling.mode": "string",
        "time.precision.mode": "microseconds",
        "bigint.unsigned.handling.mode": "precise",
        "binary.handling.mode": "hex",
        "tombstones.on.delete": False,
        "skipped.operations": "none",
    },
    "rows": {
        "skip.messages.without.change": True,
        "message.key.columns": f"{DATABASE}.keyless:a ; (.*).PAIRS:rest,Name",
        "skipped.operations": "d, t",
        "time.precision.mode": "connect",
        "binary.handling.mode": "base64-url-safe",
        "provide.transaction.metadata": True,
    },
    "iso": {"time.precision.mode": "isostring", "binary.handling.mode": "base64"},
    "nano": {"time.precision.mode": "nanoseconds"},
}
"""By topic prefix the options that connector and format get."""
_TIMES = [f"{DATABASE}.{column}" for column in ("always.time_", "always.time_3", "always.time_6", "defaults.time_")]
_DATETIMES = [
    f"{DATABASE}.{table}.datetime_{digits}" for table in ("always", "zero_always") for digits in ("", "3", "6")
]
EXCLUDED = {"rows": [f"{DATABASE}.pairs.n", *_TIMES], "iso": _TIMES, "nano": _DATETIMES}
"""By topic prefix columns that are left out: values of NOT NULL columns that the mode cannot say end the connector."""

OURS = {
    "float_m": "FLOAT(M,D) is the shortest text of its single, not that of the double next to it",
    "json_": "numbers of documents are spelled shorter",
    "json_o": "times in documents have all digits of their fraction, and bytes say their type",
    "year_": "year 0 is 0, not 1900",
    "datetime_": "years before 100 are what they are (in Debezium: enable.time.adjuster)",
    "datetime_6": "as datetime_",
}
"""Columns of which some values differ, and how ours do."""
OUR_SCHEMAS = {
    "geo.optional": "NOT NULL is not optional",
    "polygon_.optional": "NOT NULL is not optional",
    "big.default": "all digits",
    "char_.default": "a quote is one quote",
    "binary_.default": "its bytes, not text about them",
}
"""Properties of fields in schemas that differ, and how ours do."""


@dataclass(frozen=True)
class DebeziumRun:
    """What the connectors wrote of each table, and the binlog that they read."""

    records: Mapping[str, Mapping[str, list[Record]]]
    data: bytes
    window_slice: Slice
    schemas: Mapping[str, TableSchema]

    def messages(
        self, pipeline: Pipeline, format: Format | None = None
    ) -> tuple[Mapping[str, list[Message]], list[Statement]]:
        """Those of ``pipeline`` of the same binlog, by table, in its ``format``."""
        format = format or compile_routes(pipeline).format(7)

        def route(database: str, table: str) -> Route | None:
            routed = compile_routes(pipeline).of(database, table)
            return routed.route if routed else None

        decoder = KernelDecoder(
            route,
            lambda _database, table: self.schemas[table] if format.needs_definitions else None,
            format,
            "uuid",
            columns=pipeline.column_rules({}.__getitem__),
            transactions=Route(topic, 1) if (topic := compile_routes(pipeline).transaction_topic) else None,
        )
        made, statements = defaultdict(list), []
        for item in decoder.decode([memoryview(self.data)[FIRST_POSITION:]], self.window_slice):
            if isinstance(item, MessageBlock):
                made[item.topic] += item.messages()
            elif isinstance(item, SliceReport):
                statements += item.statements
        return made, statements


@pytest.fixture(scope="module")
def debezium_run(
    full_mysql_server: MysqlServer, kafka_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> DebeziumRun:
    """One Connect worker reads it all, once."""
    database = DATABASE
    with full_mysql_server.connect() as connection, connection.cursor() as cursor:
        cursor.execute("SET sql_mode = '', time_zone = '+00:00'")
        cursor.execute(f"CREATE DATABASE {database}")
        cursor.execute(f"USE {database}")
        for definition in (*definitions(), f"CREATE TABLE {LAST_TABLE} (id INT PRIMARY KEY)"):
            cursor.execute(definition)
        cursor.execute("FLUSH BINARY LOGS")
        cursor.execute("SHOW BINARY LOG STATUS")
        file, position, _, _, gtids = cursor.fetchone()
        for statement in (*statements(), "TRUNCATE TABLE keyless", f"INSERT INTO {LAST_TABLE} VALUES (1)"):
            cursor.execute(statement)
        cursor.execute("FLUSH BINARY LOGS")
    data = (full_mysql_server.data / file).read_bytes()
    binlog_range = BinlogRange(database, file, position, gtids.replace("\n", ""))
    settings = {name: {key: _property(value) for key, value in given.items()} for name, given in CONNECTORS.items()}
    for name, columns in EXCLUDED.items():
        settings[name]["column.exclude.list"] = ",".join(columns)
    folder: Path = tmp_path_factory.mktemp("connect")
    records: dict[str, dict[str, list[Record]]] = {name: defaultdict(list) for name in CONNECTORS}
    for name, made in records_of(folder, full_mysql_server, kafka_broker, binlog_range, settings).items():
        for record in made:
            records[name][record.topic.removeprefix(f"{name}.{database}.")].append(record)
    with Session(MysqlConnection.from_uri(full_mysql_server.root_url)) as session:
        tables = current_schemas(session).tables
    schemas = {name.table: entry.schema for name, entry in tables.items() if name == TableName(database, name.table)}
    return DebeziumRun(records, data, Slice(0, file, FIRST_POSITION, len(data)), schemas)


def _property(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _pipeline(name: str, format: dict[str, Any]) -> Pipeline:
    """One that writes as the connector ``name`` does."""
    return Pipeline.model_validate(
        {
            "name": name,
            "source": {"connection": "s"},
            "kafka": {"connection": "k"},
            "tables": {"include": [f"{DATABASE}.*"]},
            "topics": {"template": "{table}", "partitions": 1},
            "format": format,
            "columns": {"exclude": EXCLUDED.get(name, [])},
        }
    )


def _debezium(name: str, *, schemas: bool) -> Pipeline:
    return _pipeline(name, {"name": "debezium", **CONNECTORS[name], "schemas": schemas})


@pytest.mark.parametrize("schemas", [False, True], ids=["payload", "schemas"])
@pytest.mark.parametrize("name", CONNECTORS)
def test_records_are_those_of_debezium_field_by_field(debezium_run: DebeziumRun, name: str, schemas: bool) -> None:
    messages, _ = debezium_run.messages(_debezium(name, schemas=schemas))
    found: set[str] = set()
    for table, records in debezium_run.records[name].items():
        if table == f"{name}.transaction":
            continue
        theirs = [record for record in records if _is_reported(record)]
        assert [m.key is None for m in messages[table]] == [r.key is None for r in theirs], table
        for message, record in zip(messages[table], theirs, strict=True):
            where = f"{table} {record.key!r}"
            for ours, theirs in ((message.key, record.key), (message.value, record.value)):
                expected = _read(theirs)
                if not schemas and expected is not None:
                    expected = expected["payload"]
                for path, mine, other in _differences(_read(ours), expected, ()):
                    assert _may_differ(path), f"{where}, {'.'.join(path)}: expected {other!r}, found {mine!r}"
                    found.add(path[-1])
            wanted_headers = {k: v for k, v in record.headers.items() if not k.startswith("__debezium.context.")}
            assert dict(message.headers) == wanted_headers, where
    assert set(OURS) <= found, "what differs is fewer than docs/reference/formats/debezium.md says"


def test_records_in_avro_have_the_values_of_debezium_field_by_field(debezium_run: DebeziumRun) -> None:
    pipeline = _pipeline("plain", {"name": "avro", "registry": "r"})
    format = compile_routes(pipeline).format(7)
    assert isinstance(format, Shown)
    messages, _ = debezium_run.messages(pipeline, format)
    compared = 0
    for table, records in debezium_run.records["plain"].items():
        for message, record in zip(messages[table], filter(_is_reported, records), strict=True):
            for ours, theirs in ((message.key, record.key), (message.value, record.value)):
                assert (ours is None) == (theirs is None), table
                if ours is not None and theirs is not None:
                    for path, mine, other in _differences(_read(format.show(ours)), _read(theirs)["payload"], ()):
                        where = f"{table} {record.key!r}, {'.'.join(path)}"
                        may_differ = path[-2:] == ("source", "thread") or _may_differ(path)
                        assert may_differ, f"{where}: expected {other!r}, found {mine!r}"
                    compared += 1
    assert compared > 50


def test_a_truncate_is_the_record_of_debezium(debezium_run: DebeziumRun) -> None:
    pipeline = _debezium("other", schemas=True)
    _, done = debezium_run.messages(pipeline)
    format = compile_routes(pipeline).format(7)
    (truncated,) = (statement for statement in done if statement.sql.startswith("TRUNCATE"))
    ours = _read(format.truncate(truncated, debezium_run.schemas["keyless"]))
    (theirs,) = (
        value for r in debezium_run.records["other"]["keyless"] if (value := _read(r.value))["payload"]["op"] == "t"
    )
    assert list(ours["payload"]["source"]) == list(theirs["payload"]["source"])
    for path, mine, other in _differences(ours, theirs, ()):
        assert _may_differ(path), f"{path}: expected {other}, found {mine}"
    format = compile_routes(_debezium("plain", schemas=False)).format(7)
    assert format.truncate(truncated, debezium_run.schemas["keyless"]) is None


@pytest.mark.parametrize(("mode", "lost"), [("connect", "time_"), ("isostring", "time_"), ("nanoseconds", "datetime_")])
def test_what_a_mode_cannot_say_of_a_column_without_null_is_refused(
    debezium_run: DebeziumRun, mode: str, lost: str
) -> None:
    pipeline = _pipeline("plain", {"name": "debezium", "time.precision.mode": mode})
    with pytest.raises(BinlogFormatError, match="a column without NULL has a TIME or DATETIME that the format's"):
        debezium_run.messages(pipeline)
    every = pipeline.model_copy(update={"columns": ColumnSettings(exclude=[f"*.*.{lost}*"])})
    assert debezium_run.messages(every)


@pytest.mark.parametrize("schemas", [False, True], ids=["payload", "schemas"])
def test_records_of_transactions_are_those_of_debezium(debezium_run: DebeziumRun, schemas: bool) -> None:
    topic = "rows.transaction"
    messages, _ = debezium_run.messages(_debezium("rows", schemas=schemas))
    theirs = debezium_run.records["rows"][topic]
    assert 0 <= len(messages[topic]) - len(theirs) <= 1, "the connector was stopped when it had read the last row"
    for message, record in zip(messages[topic], theirs, strict=False):
        key, value = _read(record.key), _read(record.value)
        ours = _read(message.value)
        for each in (value, ours) if schemas else (value,):
            each["payload"]["data_collections"] = _sorted(each["payload"]["data_collections"])
        if not schemas:
            key, value, ours["data_collections"] = key["payload"], value["payload"], _sorted(ours["data_collections"])
        assert (_read(message.key), ours) == (key, value)
    counts = [count for m in messages[topic] if (count := _payload(m)["event_count"]) is not None]
    assert {0, 1} < set(counts), "of tables that are left out, and of others"


def _payload(message: Message) -> Any:
    value = _read(message.value)
    return value.get("payload", value)


def _sorted(collections: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    """By name: Debezium has them in the order of a hash map."""
    return sorted(collections, key=lambda each: str(each["data_collection"])) if collections is not None else None


def _is_reported(record: Record) -> bool:
    """Not a tombstone without a key, which has no information, nor a truncate, which is a statement here."""
    value = _read(record.value)
    return (record.key, value) != (None, None) and (value is None or value["payload"]["op"] != "t")


def _read(text: bytes | None) -> Any:
    return None if text is None else json.loads(text)


def _differences(ours: Any, theirs: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Where they differ, in their order of fields too; an element of a list is called by its `field`."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if list(ours) != list(theirs):
            yield (*path, "(fields)"), list(ours), list(theirs)
        for name in ours.keys() & theirs.keys():
            yield from _differences(ours[name], theirs[name], (*path, name))
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            name = str(other.get("field", number)) if isinstance(other, dict) else str(number)
            yield from _differences(mine, other, (*path, name))
    elif ours != theirs or type(ours) is not type(theirs):
        yield path, ours, theirs


def _may_differ(path: tuple[str, ...]) -> bool:
    if path[-1] in ("ts_ms", "ts_us", "ts_ns"):
        return "source" not in path  # when it was processed
    if path[0] == "schema" or "schema" in path:
        return ".".join(path[-2:]) in OUR_SCHEMAS
    return path[-2:] == ("source", "version") or (path[-1] in OURS and path[-2] in ("before", "after"))
