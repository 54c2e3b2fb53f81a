"""Stock servers: rows without column names are read with the schema of their own place in the binlog."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import replace

import orjson
import pytest
from any_topics import AnyTopics
from seeds import choose_seed

from changefeed.binlog.search.scout import scout
from changefeed.binlog.search.scouting import number_slices
from changefeed.ddl import Table
from changefeed.ddl.history import SchemaHistory
from changefeed.model.connection import MysqlConnection
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.slice_report import SliceReport
from changefeed.model.window import Slice, Window, file_slices
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.schema_learning import learn_history
from changefeed.records.block import MessageBlock
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import KafkaSettings, SourceSettings, TableSettings
from changefeed.source.mysql import source
from changefeed.source.mysql.catalog import table_schema
from changefeed.source.mysql.session import Session
from changefeed.spark.stages.decode_task import DecodeTask
from changefeed.spark.stages.dump import open_dump
from changefeed.spark.stages.readers import KernelReader
from devstack.sql_server import SqlServer

STEPS = 150
TYPES = (
    "INT",
    "BIGINT UNSIGNED",
    "VARCHAR(40)",
    "VARCHAR(40) CHARACTER SET latin1",
    "ENUM('a','ü','it''s')",
    "SET('x','y','z')",
    "DECIMAL(8,3)",
    "VARBINARY(20)",
    "DATETIME(3)",
)


class Script:
    """A random sequence of definitions and changes; the same for each server that it is run on."""

    def __init__(self, database: str, seed: int) -> None:
        self._database, self._random = database, random.Random(seed)
        self._tables: dict[str, dict[str, str]] = {}
        self._count = 0

    def statements(self, steps: int) -> Iterator[str]:
        for _ in range(3):
            yield self._create()
        for _ in range(steps):
            yield from self._step()

    def _step(self) -> Iterator[str]:
        pick = self._random
        name = pick.choice(sorted(self._tables))
        columns = self._tables[name]
        table = f"`{self._database}`.`{name}`"
        own = [column for column in columns if column != "id"]
        match pick.randrange(12):
            case 0:
                column = self._name("c")
                kind = pick.choice(TYPES)
                place = pick.choice(["", " FIRST", " AFTER id"])
                items = list(columns.items())
                at = {"": len(items), " FIRST": 0, " AFTER id": [key for key, _ in items].index("id") + 1}[place]
                self._tables[name] = dict([*items[:at], (column, kind), *items[at:]])
                yield f"ALTER TABLE {table} ADD COLUMN {column} {kind}{place}"
            case 1 if len(own) > 1:
                gone = pick.choice(own)
                del columns[gone]
                yield f"ALTER TABLE {table} DROP COLUMN {gone}"
            case 2 if own:
                old, new = pick.choice(own), self._name("r")
                self._tables[name] = {new if key == old else key: kind for key, kind in columns.items()}
                yield f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}"
            case 3:
                new = self._name("t")
                self._tables[new] = self._tables.pop(name)
                yield f"RENAME TABLE {table} TO `{self._database}`.`{new}`"
            case 4 if len(self._tables) > 2:
                del self._tables[name]
                yield f"DROP TABLE {table}"
            case 5 if len(self._tables) < 6:
                yield self._create()
            case 6:
                yield f"TRUNCATE TABLE {table}"
            case 7:  # as gh-ost does it
                copy, old = self._name("g"), self._name("o")
                kind = pick.choice(TYPES)
                yield f"CREATE TABLE `{self._database}`.{copy} LIKE {table}"
                yield f"ALTER TABLE `{self._database}`.{copy} ADD COLUMN {copy}_x {kind}"
                yield (f"RENAME TABLE {table} TO `{self._database}`.{old}, `{self._database}`.{copy} TO {table}")
                self._tables[old] = dict(columns)
                columns[f"{copy}_x"] = kind
        yield from self._changes(name)

    def _changes(self, name: str) -> Iterator[str]:
        if name not in self._tables:
            return
        table, columns = f"`{self._database}`.`{name}`", self._tables[name]
        names = [column for column in columns if column != "id"]
        for _ in range(3):
            values = ", ".join(self._value(columns[column]) for column in names)
            listed = ", ".join(names)
            yield f"INSERT INTO {table} ({listed}) VALUES ({values})" if names else f"INSERT INTO {table} () VALUES ()"
        if names:
            column = self._random.choice(names)
            yield f"UPDATE {table} SET {column} = {self._value(columns[column])} ORDER BY id DESC LIMIT 2"
        yield f"DELETE FROM {table} ORDER BY id LIMIT 1"

    def _create(self) -> str:
        name = self._name("t")
        columns = {"id": "INT AUTO_INCREMENT PRIMARY KEY"}
        columns |= {self._name("c"): self._random.choice(TYPES) for _ in range(3)}
        self._tables[name] = columns
        listed = ", ".join(f"{column} {kind}" for column, kind in columns.items())
        return f"CREATE TABLE `{self._database}`.`{name}` ({listed})"

    def _name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _value(self, kind: str) -> str:
        pick = self._random
        match kind.split("(")[0]:
            case "INT":
                return str(pick.randint(-5, 5))
            case "BIGINT UNSIGNED":
                return str(2**64 - pick.randint(1, 9))
            case "ENUM":
                return pick.choice(["'a'", "'ü'", "'it''s'", "NULL"])
            case "SET":
                return pick.choice(["'x'", "'x,z'", "''"])
            case "DECIMAL":
                return f"{pick.randint(-999, 999)}.125"
            case "VARBINARY":
                return "x'00ff10'"
            case "DATETIME":
                return "'2026-01-02 03:04:05.678'"
        return pick.choice(["'grün'", "'x'", "NULL"])


def job_of(server: SqlServer, database: str, start: BinlogCoordinates, server_id: int) -> DecodeTask:
    pipeline = Pipeline(
        name="p",
        source=SourceSettings(connection="mysql", server_ids=f"{server_id}-{server_id + 8}"),
        kafka=KafkaSettings(connection="-"),
        tables=TableSettings(include=[f"{database}.*"]),
        publish_ddl="off",
    )
    connections = PipelineConnections(pipeline, {"mysql": server.url}.__getitem__)
    with connections.session() as session:
        uuid = source.server_uuid(session)
    return DecodeTask(
        connections=connections, server_uuid=uuid, topics=AnyTopics(), identity="p", frozen_at_ms=0, start=start
    )


def rows(job: DecodeTask, slices: list[Slice]) -> list[object]:
    """What the slices' messages say, in binlog order; truncates among them."""
    found = []
    for window_slice in slices:
        for item in KernelReader(job).read(window_slice):
            if isinstance(item, MessageBlock):
                for message in item.messages():
                    if message.value is not None:
                        value = orjson.loads(message.value)
                        place = (window_slice.number, message.position, message.sequence, item.partition)
                        values_read = [
                            value["source"]["table"],
                            value["op"],
                            message.key,
                            value["before"],
                            value["after"],
                        ]
                        found.append((place, values_read))
            else:
                assert isinstance(item, SliceReport)
    return [values_read for _, values_read in sorted(found, key=lambda one: one[0])]


def head_of(server: SqlServer) -> BinlogCoordinates:
    with Session(MysqlConnection.from_uri(server.url)) as session:
        return source.head(session).coordinates


def whole_files(job: DecodeTask) -> list[Slice]:
    with job.connections.session() as session:
        head = source.head(session).coordinates
        window = Window("p", 1, job.server_uuid, job.start, head, "", "", 0)
        return list(file_slices(window, source.binlog_files(session)))


def check_learned(history: SchemaHistory, server: SqlServer, database: str) -> None:
    with Session(MysqlConnection.from_uri(server.url)) as session:
        names = session.rows("SELECT table_name FROM information_schema.tables WHERE table_schema = %s", database)
        expected = {str(name): table_schema(session, database, str(name)) for (name,) in names}
    known = {
        name.table: entry.schema if isinstance(entry, Table) else entry
        for name, entry in history.timeline.latest.tables.items()
        if name.database == database
    }
    assert known == expected


@pytest.mark.random
@pytest.mark.parametrize(
    ("full_server", "stock_server"),
    [("full_mysql_server", "mysql_server"), ("full_mariadb_server", "mariadb_server")],
)
def test_rows_of_a_stock_server_equal_full_metadata_for_any_slices_and_ddl(
    full_server: str, stock_server: str, unique_name: str, server_id: int, request: pytest.FixtureRequest
) -> None:
    seed = choose_seed()
    full: SqlServer = request.getfixturevalue(full_server)
    stock: SqlServer = request.getfixturevalue(stock_server)
    starts = {}
    for server in (full, stock):
        server.execute(f"CREATE DATABASE `{unique_name}` CHARACTER SET utf8mb4")
        starts[server] = head_of(server)
        with server.connect() as connection, connection.cursor() as cursor:
            cursor.execute("SET sql_mode = 'NO_ENGINE_SUBSTITUTION'")
            for number, statement in enumerate(Script(unique_name, seed).statements(STEPS)):
                cursor.execute(statement)
                if number in (100, 300):
                    cursor.execute("FLUSH BINARY LOGS")
    full_job = job_of(full, unique_name, starts[full], server_id)
    expected = rows(full_job, whole_files(full_job))
    assert len(expected) > STEPS

    job = job_of(stock, unique_name, starts[stock], server_id)
    with job.connections.session() as session:
        history = learn_history(session, job.server_uuid, job.start)
    assert SchemaHistory.from_json(json.loads(json.dumps(history.to_json()))).to_json() == history.to_json()
    check_learned(history, stock, unique_name)
    one_by_one = replace(job, history=history)
    assert rows(one_by_one, whole_files(job)) == expected

    slices, statements = [], []
    for window_slice in whole_files(job):
        found = scout(open_dump(job, window_slice), window_slice, 2_000)
        slices += found.slices
        statements += found.statements
    initial = replace(history, timeline=replace(history.timeline, entries=()))
    followed = initial
    for statement in statements:
        followed = followed.advance(statement)
    check_learned(followed, stock, unique_name)
    assert len(slices) > 20
    assert rows(replace(job, history=followed), number_slices(slices)) == expected
