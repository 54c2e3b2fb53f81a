"""A database of many types and keys that is changed in stages, and pipelines that publish each stage of it.

What a consumer makes of a topic is compared with what the source's SELECT shows in the end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import yaml
from consumers.values import Table, tabulated
from faults.inline_spark import InlineSpark
from integration.topic_rows import records_of

from changefeed.ingest.cut import cut
from changefeed.ingest.run import run_windows
from changefeed.model.run_identity import snapshot_identity
from changefeed.pipeline.checkpoint_store import checkpoint_store
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import plan
from changefeed.settings.file import read_pipeline
from changefeed.settings.requests.run import RunBounds
from changefeed.settings.requests.snapshot import SnapshotRequest
from changefeed.snapshot.planning import plan_snapshot
from changefeed.snapshot.run import run_snapshot
from devstack.kafka import KafkaBroker
from devstack.schema_registry import SchemaRegistry
from devstack.sql_server import SqlServer

KINDS = {
    "tiny": ("TINYINT", "-128", "127"),
    "flag": ("TINYINT(1)", "0", "1"),
    "small_u": ("SMALLINT UNSIGNED", "0", "65535"),
    "medium": ("MEDIUMINT", "-8388608", "8388607"),
    "int_u": ("INT UNSIGNED", "0", "4294967295"),
    "big": ("BIGINT", "-9223372036854775808", "9223372036854775807"),
    "big_u": ("BIGINT UNSIGNED", "0", "18446744073709551615"),
    "deci": ("DECIMAL(20,4)", "-9999999999999999.9999", "0.5000"),
    "deci_0": ("DECIMAL(5,0)", "-99999", "7"),
    "float_": ("FLOAT", "-1.25", "0.1"),
    "double_": ("DOUBLE", "-2.5e-7", "1.7976931348623157e308"),
    "bit_1": ("BIT(1)", "b'0'", "b'1'"),
    "bit_12": ("BIT(12)", "b'100000000001'", "b'000000000010'"),
    "date_": ("DATE", "'1000-01-01'", "'9999-12-31'"),
    "time_": ("TIME", "'00:00:00'", "'23:59:59'"),
    "time_6": ("TIME(6)", "'00:00:00.000001'", "'12:34:56.789'"),
    "datetime_": ("DATETIME", "'1969-12-31 23:59:59'", "'2026-01-31 12:34:56'"),
    "datetime_6": ("DATETIME(6)", "'1969-12-31 23:59:59.999999'", "'2026-01-31 12:34:56.789012'"),
    "stamp": ("TIMESTAMP NULL", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07'"),
    "stamp_3": ("TIMESTAMP(3) NULL", "'2026-03-29 01:30:00.25'", "'2026-10-25 00:30:00.999'"),
    "year_": ("YEAR", "1901", "2155"),
    "char_": ("CHAR(10)", "''", "'ä€😀'"),
    "varchar_": ("VARCHAR(100)", r"'tab\tnewline\nquote\'\"\\'", "'ä€😀'"),
    "latin": ("VARCHAR(50) CHARACTER SET latin1", "'äöü€'", "'x'"),
    "text_": ("TEXT", "REPEAT('x', 300)", "'line\r\n'"),
    "binary_": ("BINARY(4)", "X'00010000'", "X'FFFEFDFC'"),
    "varbinary_": ("VARBINARY(300)", "X'0001FF00'", "X'FF'"),
    "blob_": ("BLOB", "REPEAT(X'F7', 3000)", "X'00'"),
    "enum_": ("ENUM('a','b c','ü')", "'b c'", "'ü'"),
    "set_": ("SET('a','b','ü')", "'a,ü'", "''"),
    "json_": ("JSON", """'{"b": [1, -2.5, true, null], "a": {"ä": "x"}}'""", "'\"text\"'"),
}
"""By name of the column its type, and two values of it as SQL."""

EMPTIED = "emptied"
OUTBOX = "outbox"
TABLES = ("kinds", "pairs", "größen", "labels", EMPTIED)
"""All but the outbox, which is empty again in the end."""


@dataclass(frozen=True)
class Event:
    """A row of the outbox."""

    id: str
    aggregate: str
    payload: Mapping[str, Any]

    @property
    def insert(self) -> str:
        """What writes it."""
        document = json.dumps(self.payload, ensure_ascii=False)
        return f"INSERT INTO {OUTBOX} VALUES ('{self.id}', 'order', '{self.aggregate}', 'Placed', '{document}', 0)"


EVENTS = (
    Event("e-1", "7", {"id": 7, "total": "9.99", "who": "Zoë"}),
    Event("e-2", "8", {"id": 8, "total": "1.50", "who": "名😀"}),
    Event("e-3", "9", {"id": 9, "total": "0.00", "who": "x"}),
)

BEFORE = [
    "CREATE TABLE kinds (id BIGINT UNSIGNED PRIMARY KEY, "
    + ", ".join(f"`{name}` {kind[0]}" for name, kind in KINDS.items())
    + ")",
    "CREATE TABLE pairs (day DATE, name VARCHAR(20), n INT NOT NULL, gone INT, PRIMARY KEY (day, name))",
    "CREATE TABLE `größen` (`maß` INT PRIMARY KEY, `preis_€` DECIMAL(8,2) NOT NULL, `名前` VARCHAR(20))",
    "CREATE TABLE labels (id INT PRIMARY KEY, e ENUM('b,c','d''e') NOT NULL)",
    f"CREATE TABLE {EMPTIED} (id INT PRIMARY KEY, text VARCHAR(20))",
    f"CREATE TABLE {OUTBOX} (id CHAR(36) PRIMARY KEY, aggregatetype VARCHAR(40) NOT NULL, "
    "aggregateid VARCHAR(40) NOT NULL, type VARCHAR(40) NOT NULL, payload JSON NOT NULL, part INT NOT NULL)",
]
_NULLS = "INSERT INTO kinds (id) VALUES ({})"


def _kinds(number: int, which: int) -> str:
    return f"INSERT INTO kinds VALUES ({number}, {', '.join(kind[which] for kind in KINDS.values())})"


STAGES = [
    [
        _kinds(1, 1), _kinds(2, 2), _kinds(3, 1), _NULLS.format(4),
        "INSERT INTO pairs VALUES ('2026-01-31', 'a', 1, 1), ('2026-01-31', 'ä2', 2, NULL), ('1960-01-01', 'c', 3, 3)",
        "INSERT INTO `größen` VALUES (1, 1.50, 'x'), (2, -0.01, '名😀'), (3, 0, NULL)",
        "INSERT INTO labels VALUES (1, 'b,c'), (2, 'd''e')",
        f"INSERT INTO {EMPTIED} VALUES (1, 'one'), (2, 'two'), (3, 'three')",
    ],
    [
        _kinds(5, 2), _NULLS.format(6), _kinds(9223372036854775807, 1),
        "UPDATE kinds SET " + ", ".join(f"`{name}` = {kind[2]}" for name, kind in KINDS.items()) + " WHERE id = 1",
        "UPDATE kinds SET " + ", ".join(f"`{name}` = NULL" for name in KINDS) + " WHERE id = 2",
        "UPDATE kinds SET id = 33 WHERE id = 3",
        "UPDATE pairs SET name = CONCAT(name, '!') WHERE n > 1",
        "UPDATE pairs SET n = n + 10, gone = 7",
        "DELETE FROM pairs WHERE day < '2000-01-01'",
        "UPDATE `größen` SET `preis_€` = `preis_€` + 1, `maß` = `maß` + 1 ORDER BY `maß` DESC",
        "BEGIN", "INSERT INTO `größen` VALUES (50, 5, 'fünfzig')",
        "UPDATE `größen` SET `名前` = '五十' WHERE `maß` = 50",
        "DELETE FROM `größen` WHERE `maß` = 2", "COMMIT",
        EVENTS[0].insert, EVENTS[1].insert,
        f"DELETE FROM {OUTBOX}",
    ],
    [
        "ALTER TABLE kinds ADD added INT NOT NULL DEFAULT 5, ADD note VARCHAR(20) DEFAULT 'new'",
        "ALTER TABLE pairs DROP gone",
        "INSERT INTO kinds (id, added, note, enum_) VALUES (7, 8, NULL, 'ü')",
        "UPDATE kinds SET added = 6, note = 'ä€😀'",
        "INSERT INTO pairs VALUES ('2026-02-01', 'after', 5)",
        "UPDATE pairs SET n = n + 1",
        f"TRUNCATE {EMPTIED}",
        f"INSERT INTO {EMPTIED} VALUES (2, 'again'), (4, 'four')",
        EVENTS[2].insert,
        f"DELETE FROM {OUTBOX}",
        "DELETE FROM kinds WHERE id IN (6, 33)",
        _kinds(33, 2).removesuffix(")") + ", 1, NULL)",
    ],
]  # fmt: skip
"""What is done to the tables: the first stage before a pipeline begins, and each other is a window."""


@dataclass
class Publishing:
    """A pipeline over ``database``, with ``settings`` beside its own; TRUNCATE has an order in one partition only."""

    name: str
    database: str
    source: SqlServer
    kafka: KafkaBroker
    folder: Path
    settings: Mapping[str, Any]
    uris: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        given = {
            "name": self.name,
            "source": {"connection": "source"},
            "kafka": {"connection": "kafka"},
            "tables": {"include": [f"{self.database}.*"]},
            "topics": {
                "partitions": 2,
                "template": "{pipeline}.{table}",
                "routes": [{"match": f"{self.database}.{EMPTIED}", "partitions": 1}],
                **self.settings.get("topics", {}),
            },
            **{name: value for name, value in self.settings.items() if name != "topics"},
            "checkpoint": {"store": "table", "connection": "state"},
            "start": "snapshot",
        }
        path = self.folder / f"{self.name}.yaml"
        path.write_text(yaml.safe_dump(given))
        self.pipeline = read_pipeline(path)
        self._uris = {
            "source": self.source.url,
            "kafka": f"kafka://{self.kafka.bootstrap}",
            "state": f"sqlite:///{self.folder / f'{self.name}.db'}",
            **self.uris,
        }

    def publish(self) -> None:
        """Publish what is new."""
        connections = PipelineConnections(self.pipeline, self._uris.__getitem__)
        store = checkpoint_store(PipelineConnections(self.pipeline, self._uris.__getitem__), cast(Any, None))
        planned = plan(connections, store)
        if not planned.is_empty:
            list(run_windows(InlineSpark(), connections, cut(connections, planned, RunBounds()), store))

    def snapshot(self) -> None:
        """Publish the existing rows."""
        connections = PipelineConnections(self.pipeline, self._uris.__getitem__)
        store = checkpoint_store(PipelineConnections(self.pipeline, self._uris.__getitem__), cast(Any, None))
        request = SnapshotRequest.of({"pipeline": self.name})
        plan = plan_snapshot(connections, store, request, snapshot_identity(self.name, "1"))
        list(run_snapshot(InlineSpark(), connections, plan))

    def topic(self, table: str) -> str:
        """The topic of ``table``, whose name is made legal there."""
        return f"{self.name}.{re.sub('[^a-zA-Z0-9._-]', '_', table)}"

    def records(self, table: str) -> list[Any]:
        """All committed records of the table's topic, by partition and offset."""
        return records_of(self.kafka.bootstrap, self.topic(table))


@dataclass
class Source:
    """The database ``name`` of ``server``, and a pipeline for each of ``pipelines_of``, by name."""

    name: str
    server: SqlServer
    kafka: KafkaBroker
    folder: Path
    pipelines_of: Mapping[str, Mapping[str, Any]]
    registry: SchemaRegistry | None = None

    def __post_init__(self) -> None:
        uris = {"registry": self.registry.url} if self.registry else {}
        self.server.execute(f"CREATE DATABASE `{self.name}` CHARACTER SET utf8mb4")
        self._execute(BEFORE + STAGES[0])
        self.pipelines = {
            name: Publishing(f"{self.name}_{name}", self.name, self.server, self.kafka, self.folder, settings, uris)
            for name, settings in self.pipelines_of.items()
        }
        for pipeline in self.pipelines.values():
            pipeline.publish()  # which begins at the binlog's end
            pipeline.snapshot()
        for stage in STAGES[1:]:
            self._execute(stage)
            for pipeline in self.pipelines.values():
                pipeline.publish()

    def _execute(self, statements: list[str]) -> None:
        self.server.execute("SET time_zone = '+00:00'", *statements, database=self.name)

    def columns(self, table: str) -> dict[str, str]:
        """By name of the column its type."""
        return dict(
            self.server.execute(
                "SELECT column_name, column_type FROM information_schema.columns "
                f"WHERE table_schema = '{self.name}' AND table_name = '{table}' ORDER BY ordinal_position"
            )
        )

    def key(self, table: str) -> list[str]:
        """The columns of the primary key."""
        rows = self.server.execute(
            "SELECT column_name FROM information_schema.statistics WHERE index_name = 'PRIMARY' "
            f"AND table_schema = '{self.name}' AND table_name = '{table}' ORDER BY seq_in_index"
        )
        return [row[0] for row in rows]

    def table(self, table: str) -> Table:
        """What SELECT shows, in UTC."""
        columns = self.columns(table)
        rows = self.server.execute("SET time_zone = '+00:00'", f"SELECT * FROM `{self.name}`.`{table}`")
        return tabulated(columns, (dict(zip(columns, row, strict=True)) for row in rows))

    def check(self, table: str, found: Iterable[Mapping[str, Any]], *, lowest_first: bool = False) -> None:
        """``found`` are the rows of ``table`` as a consumer has them; columns that the source has no more are left.

        The bytes of a BIT come in the order of the server, or the ``lowest_first``, as Debezium writes them.
        """
        if lowest_first:
            bits = {name for name, type_ in self.columns(table).items() if type_.startswith("bit(")}
            found = [
                {
                    name: value[::-1] if name in bits and isinstance(value, bytes) else value
                    for name, value in row.items()
                }
                for row in found
            ]
        expected, rows = self.table(table), tabulated(self.columns(table), found)
        assert expected, f"{table} is empty, which shows nothing"
        for mine, theirs in zip(expected, rows, strict=False):
            differing = {name: (mine[name], theirs[name]) for name in mine if mine[name] != theirs[name]}
            assert not differing, f"{table}: by column what SELECT shows and what the consumer has: {differing}"
        assert len(rows) == len(expected), f"{table}: expected {expected}, found {rows}"
