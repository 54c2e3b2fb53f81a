"""Debezium's JDBC sink and transforms in a Kafka Connect worker, and the tables that they write."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import kafka
from consumers.source import Publishing
from integration.topic_rows import records_of
from kafka.admin import KafkaAdminClient

from devstack.connect import ConnectWorker
from devstack.consumers import JDBC_SINK
from devstack.home import Home
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.postgresql import USER, PostgresqlServer
from devstack.sql_server import SqlServer

_SECONDS = 120.0

SINK = {
    "connector.class": "io.debezium.connector.jdbc.JdbcSinkConnector",
    "tasks.max": "1",
    "insert.mode": "upsert",
    "delete.enabled": "true",
    "truncate.enabled": "true",
    "primary.key.mode": "record_key",
    "schema.evolution": "basic",
    "quote.identifiers": "true",
    "collection.name.format": "${source.table}",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    # A NULL in a column with a default would become the default.
    "key.converter.replace.null.with.default": "false",
    "value.converter.replace.null.with.default": "false",
    # The sink takes no header whose text is JSON, as that of __debezium.newkey is: it ends.
    "header.converter": "org.apache.kafka.connect.storage.StringConverter",
    "consumer.override.isolation.level": "read_committed",
    "consumer.override.auto.offset.reset": "earliest",
}

UNWRAPPED = {
    "transforms": "unwrap",
    "transforms.unwrap.type": "io.debezium.transforms.ExtractNewRecordState",
}
"""Rows in place of envelopes. It makes a tombstone of a delete, and drops the tombstone after it."""


def has_value(record: Any) -> bool:
    """Whether it is no tombstone."""
    return record.value is not None


def is_insert(record: Any) -> bool:
    """Whether it is of a row that was inserted."""
    return has_value(record) and json.loads(record.value)["payload"]["op"] == "c"


OUTBOX_EVENTS = {
    "transforms": "outbox",
    "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
    "transforms.outbox.table.expand.json.payload": "true",
    "transforms.outbox.route.topic.replacement": "${routedByValue}_events",
    # Without it the transform leaves the partition open, as a source may, and a sink's worker ends.
    "transforms.outbox.table.fields.additional.placement": "part:partition",
    "collection.name.format": "${topic}",
    # The key is a text, which the sink takes for no row's.
    "primary.key.mode": "record_value",
    "primary.key.fields": "id",
    "delete.enabled": "false",
}
"""Payloads of an outbox table as rows of a table for each kind of aggregate."""


class Target:
    """A database that a sink writes to."""

    def __init__(self, server: SqlServer | PostgresqlServer, name: str) -> None:
        self.server, self.name = server, name
        if isinstance(server, PostgresqlServer):
            server.query(f'CREATE DATABASE "{name}"')
        else:
            server.execute(f"CREATE DATABASE `{name}` CHARACTER SET utf8mb4")

    def settings(self) -> dict[str, str]:
        """Where and as whom the sink connects."""
        if isinstance(self.server, PostgresqlServer):
            url, user, password = self.server.jdbc_url(self.name), USER, self.server.password
        else:
            there = urlsplit(self.server.root_url)
            # Else the sink takes a table of another database for its own.
            url = f"jdbc:mariadb://{there.hostname}:{there.port}/{self.name}?nullDatabaseMeansCurrent=true"
            user, password = str(there.username), str(there.password)
        return {"connection.url": url, "connection.username": user, "connection.password": password}

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of ``table``, in UTC."""
        if isinstance(self.server, PostgresqlServer):
            return list(self.server.query(f'SELECT * FROM "{table}"', self.name))
        names = [row[0] for row in self.server.execute(f"SHOW COLUMNS FROM `{self.name}`.`{table}`")]
        rows = self.server.execute("SET time_zone = '+00:00'", f"SELECT * FROM `{self.name}`.`{table}`")
        return [dict(zip(names, row, strict=True)) for row in rows]


class Sinks:
    """A Connect worker whose connectors are sinks."""

    def __init__(self, worker: ConnectWorker, broker: KafkaBroker) -> None:
        self._worker, self._broker = worker, broker

    def sink(
        self,
        name: str,
        target: Target,
        pipeline: Publishing,
        tables: Iterable[str],
        settings: Mapping[str, str] | None = None,
        *,
        taken: Callable[[Any], bool] = lambda record: True,  # noqa: ARG005
    ) -> None:
        """Have the JDBC sink ``name`` write the topics of ``tables``; returns when it has written all records that are
        ``taken``: of those that a transform drops it commits no offset."""
        topics = [pipeline.topic(table) for table in tables]
        ours = {"topics": ",".join(topics), **SINK, **target.settings(), **(settings or {})}
        self._worker.add(name, ours)
        self._wait(name, topics, taken)

    def _wait(self, name: str, topics: list[str], taken: Callable[[Any], bool]) -> None:
        """Its offsets are those of the records that it has written; control records of transactions follow them."""
        expected: dict[kafka.TopicPartition, int] = {}
        for topic in topics:
            for record in filter(taken, records_of(self._broker.bootstrap, topic)):
                expected[kafka.TopicPartition(topic, record.partition)] = record.offset + 1
        admin = KafkaAdminClient(bootstrap_servers=self._broker.bootstrap)
        deadline = time.monotonic() + _SECONDS
        try:
            while True:
                self._worker.check(name)
                done = admin.list_group_offsets([f"connect-{name}"])[f"connect-{name}"]
                left = {p: offset for p, offset in expected.items() if p not in done or done[p].offset < offset}
                if not left:
                    return
                assert time.monotonic() < deadline, f"connector {name} has not written {left} in {_SECONDS:.0f} s"
                time.sleep(0.3)
        finally:
            admin.close()


@contextmanager
def sinks(folder: Path, broker: KafkaBroker) -> Iterator[Sinks]:
    """A worker, for the time of the context."""
    properties = {"offset.flush.interval.ms": 500}
    jars = [JDBC_SINK.fetch(Home.default())]
    worker = ConnectWorker(
        folder, broker.bootstrap, properties=properties, heap="512m", jars=jars, owner=ProcessId.own()
    )
    worker.start()
    try:
        yield Sinks(worker, broker)
    finally:
        worker.stop(grace=0)
