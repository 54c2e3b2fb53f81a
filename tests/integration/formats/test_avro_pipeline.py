"""A pipeline with format avro, through Spark into Kafka: its records are read by deserialisers that are not ours."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from avro_java import JavaAvro
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from integration.kafka_pipeline import committed
from ruled_registry import RuledRegistry

from changefeed.cli.tail import read_lines
from changefeed.errors import CompatibilityError
from changefeed.ingest.cut import cut
from changefeed.ingest.run import run_windows
from changefeed.kafka.schema_registry.client import Registry
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import plan
from changefeed.pipeline.registered_ids import registered_ids
from changefeed.pipeline.schema_history import load_history
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import KafkaSettings, SourceSettings, TableSettings
from changefeed.settings.requests.run import RunBounds
from changefeed.settings.topic_settings import TopicSettings
from changefeed.spark.target import SparkTarget
from changefeed.state.table_store import TableCheckpointStore
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.schema_registry import SchemaRegistry


class Feed:
    """A pipeline, run window by window, and what Confluent's deserialisers read of its topics."""

    def __init__(
        self, spark: SparkTarget, mysql: MysqlServer, kafka: KafkaBroker, registry: RuledRegistry,
        name: str, server_id: int, folder: Path,
    ) -> None:  # fmt: skip
        pipeline = Pipeline(
            name=name,
            source=SourceSettings(connection="mysql", server_ids=f"{server_id}-{server_id + 8}"),
            kafka=KafkaSettings(connection="kafka", compression="zstd"),
            tables=TableSettings(include=[f"{name}.*"]),
            topics=TopicSettings(partitions=1),
            start="latest",
            format={"name": "avro", "registry": "registry"},  # type: ignore[arg-type]  # as YAML has it
        )
        uris = {"mysql": mysql.url, "kafka": f"kafka://{kafka.bootstrap}", "registry": registry.url}
        self.connections = PipelineConnections(pipeline, uris.__getitem__)
        self._spark, self._kafka = spark, kafka.bootstrap
        self._store = TableCheckpointStore(f"sqlite:///{folder / 'state.db'}")
        client = SchemaRegistryClient({"url": registry.url})
        self._read = AvroDeserializer(client)
        plan(self.connections, self._store)  # the first checkpoint, before there is anything

    @property
    def registry(self) -> Registry:
        assert self.connections.registry is not None
        return self.connections.registry

    def window(self) -> None:
        """Publish and commit what is new, and first what an earlier run left."""
        planned = plan(self.connections, self._store)
        for _ in run_windows(self._spark, self.connections, cut(self.connections, planned, RunBounds()), self._store):
            pass

    def known_ids(self) -> dict[tuple[str, str], int]:
        """What the driver of the next window hands to its tasks."""
        return dict(
            registered_ids(self.connections, load_history(self.connections), plan(self.connections, self._store).window)
        )

    def records(self, topic: str) -> list[tuple[Any, Any]]:
        return [
            (self._of(MessageField.KEY, topic, record.key), self._of(MessageField.VALUE, topic, record.value))
            for record in committed(self._kafka, topic)
        ]

    def tailed(self, topic: str) -> list[list[Any]]:
        """Key and value of each record as `changefeed tail` shows them."""
        found = read_lines(self.connections.kafka, [topic], self.registry.schema, from_beginning=True, follow=False)
        return [[line["key"], line["value"]] for line in map(json.loads, found)]

    def raw(self, topic: str) -> list[bytes]:
        return [record.value for record in committed(self._kafka, topic) if record.value is not None]

    def _of(self, field: str, topic: str, data: bytes | None) -> Any:
        return None if data is None else self._read(data, SerializationContext(topic, field))


@pytest.fixture
def feed(
    spark: SparkTarget,
    mysql_server: MysqlServer,
    kafka_broker: KafkaBroker,
    registry: RuledRegistry,
    database: str,
    server_id: int,
    tmp_path: Path,
) -> Feed:
    return Feed(spark, mysql_server, kafka_broker, registry, database, server_id, tmp_path)


@pytest.fixture(scope="module")
def java() -> Iterator[JavaAvro]:
    with JavaAvro() as running:
        yield running


@pytest.fixture(scope="module")
def registry(schema_registry: SchemaRegistry, java: JavaAvro) -> Iterator[RuledRegistry]:
    with RuledRegistry(schema_registry.url, java) as running:
        yield running


def test_table_altered_in_a_window_is_read_by_each_schema_version(
    feed: Feed, mysql_server: MysqlServer, database: str, java: JavaAvro
) -> None:
    mysql_server.execute(
        f"USE `{database}`",
        "CREATE TABLE orders (id INT PRIMARY KEY, price DECIMAL(8,2), note VARCHAR(20) NOT NULL DEFAULT 'none')",
        "INSERT INTO orders (id, price) VALUES (1, 12.50)",
        "ALTER TABLE orders ADD COLUMN more INT",
        "INSERT INTO orders VALUES (2, -1, 'größe', 7)",
        "ALTER TABLE orders ADD COLUMN sure BIGINT NOT NULL DEFAULT 5, DROP COLUMN price",
        "INSERT INTO orders (id, note) VALUES (3, 'three')",
        "ALTER TABLE orders MODIFY more BIGINT, ALTER note SET DEFAULT 'other'",
        "UPDATE orders SET id = 4, more = 5000000000 WHERE id = 3",
        "TRUNCATE orders",
    )
    feed.window()
    topic = f"{database}.orders"
    records = feed.records(topic)
    assert [(key and key["id"], value and value["op"], value and value["after"]) for key, value in records] == [
        (1, "c", {"id": 1, "price": records[0][1]["after"]["price"], "note": "none"}),
        (2, "c", {"id": 2, "price": records[1][1]["after"]["price"], "note": "größe", "more": 7}),
        (3, "c", {"id": 3, "note": "three", "more": None, "sure": 5}),
        (3, "d", None),
        (3, None, None),
        (4, "c", {"id": 4, "note": "three", "more": 5000000000, "sure": 5}),
        (None, "t", None),
    ]
    assert [str(records[number][1]["after"]["price"]) for number in (0, 1)] == ["12.50", "-1.00"]
    assert feed.tailed(topic) == json.loads(json.dumps(records, default=str)), "`changefeed tail` reads the same"
    assert records[3][1]["before"] == {"id": 3, "note": "three", "more": None, "sure": 5}
    versions = feed.registry.schemas(f"{topic}-value", latest=False)
    assert len(versions) == 4
    assert len(feed.registry.schemas(f"{topic}-key", latest=False)) == 1
    notes = [_after(json.loads(version), "note") for version in versions]
    assert [note["default"] for note in notes] == ["none", "none", "none", "other"]
    by_id = {feed.registry.id_of(f"{topic}-value", version): version for version in versions}
    for data in feed.raw(topic):
        writer = by_id[int.from_bytes(data[1:5], "big")]
        for schema in versions[versions.index(writer) :]:
            assert json.loads(java.read(writer, data[5:], schema))["source"]["table"] == "orders"
    changes = [value for _, value in feed.records(f"changefeed.{database}.schema-changes")]
    assert [change["kind"] for change in changes] == ["CREATE", "ALTER", "ALTER", "ALTER", "TRUNCATE"]
    names = [column["name"] for column in changes[2]["tableChanges"][0]["table"]["columns"]]
    assert names == ["id", "note", "more", "sure"]
    known = feed.known_ids()
    assert {subject for subject, _ in known} == {f"{topic}-key", f"{topic}-value"}
    assert set(known.values()) <= {
        *by_id,
        feed.registry.id_of(f"{topic}-key", feed.registry.schemas(f"{topic}-key", latest=True)[0]),
    }
    assert [number for (subject, _), number in known.items() if subject.endswith("-value")] == [
        max(filter(None, by_id))
    ]


def _after(envelope: dict[str, Any], column: str) -> dict[str, Any]:
    fields: list[dict[str, Any]] = envelope["fields"][0]["type"][1]["fields"]
    return next(field for field in fields if field["name"] == column)


@pytest.mark.extended
def test_a_change_that_does_not_fit_stops_the_run_by_column_until_it_is_allowed(
    feed: Feed, mysql_server: MysqlServer, database: str
) -> None:
    mysql_server.execute(
        f"USE `{database}`",
        "CREATE TABLE orders (id INT PRIMARY KEY, price INT)",
        "CREATE TABLE untouched (id INT PRIMARY KEY, price INT)",
        "INSERT INTO orders VALUES (1, 12)",
        "INSERT INTO untouched VALUES (1, 12)",
    )
    feed.window()
    topic = f"{database}.orders"
    mysql_server.execute(
        f"USE `{database}`",
        "ALTER TABLE untouched MODIFY price VARCHAR(20)",
        "INSERT INTO orders VALUES (2, 13)",
        "ALTER TABLE orders MODIFY price VARCHAR(20)",
        "INSERT INTO orders VALUES (3, 'much')",
    )
    for _ in range(2):
        with pytest.raises(CompatibilityError, match=rf"table {topic} .*'{topic}-value'.*BACKWARD.*are 'price'"):
            feed.window()
    assert [key["id"] for key, _ in feed.records(topic)] == [1]
    feed.registry._ask("PUT", f"config/{topic}-value", {"compatibility": "NONE"})
    feed.window()
    assert [value["after"]["price"] for _, value in feed.records(topic)] == [12, 13, "much"]
    assert len(feed.registry.schemas(f"{database}.untouched-value", latest=False)) == 1, "it has no new rows"

    feed.registry._ask("PUT", f"config/{topic}-value", {"compatibility": "BACKWARD"})
    mysql_server.execute(
        f"USE `{database}`",
        "ALTER TABLE untouched MODIFY price INT",
        "INSERT INTO untouched VALUES (2, 14)",
        "DROP TABLE orders",
        "CREATE TABLE orders (id INT PRIMARY KEY, must INT NOT NULL)",
        "INSERT INTO orders VALUES (4, 5)",
    )
    words = r"'must'.*of other tables neither.*to NONE.*on_incompatible: register.*`tables\.exclude`"
    with pytest.raises(CompatibilityError, match=words):
        feed.window()
    assert len(feed.records(f"{database}.untouched")) == 1, "nothing of the window is published"
    feed.registry._ask("PUT", f"config/{topic}-value", {"compatibility": "NONE"})
    feed.window()
    assert feed.records(topic)[-1][1]["after"] == {"id": 4, "must": 5}
    assert len(feed.records(f"{database}.untouched")) == 2


@pytest.mark.extended
def test_table_made_anew_is_registered_by_setting_and_level_is_as_before(
    feed: Feed, mysql_server: MysqlServer, database: str
) -> None:
    settings = {"format": {"name": "avro", "registry": "registry", "on_incompatible": "register"}}
    pipeline = Pipeline.model_validate({**feed.connections.pipeline.model_dump(), **settings})
    feed.connections = PipelineConnections(pipeline, feed.connections.lookup)
    mysql_server.execute(
        f"USE `{database}`",
        "CREATE TABLE orders (id INT PRIMARY KEY, price INT)",
        "INSERT INTO orders VALUES (1, 12)",
    )
    feed.window()
    topic = f"{database}.orders"
    mysql_server.execute(
        f"USE `{database}`",
        "INSERT INTO orders VALUES (2, 13)",
        "DROP TABLE orders",
        "CREATE TABLE orders (code VARCHAR(9) PRIMARY KEY, must INT NOT NULL)",
        "INSERT INTO orders VALUES ('a', 5)",
        "ALTER TABLE orders MODIFY must VARCHAR(20) NOT NULL",
        "INSERT INTO orders VALUES ('b', 'x')",
    )
    feed.window()
    assert feed.registry.own_level(f"{topic}-value") is feed.registry.own_level(f"{topic}-key") is None
    feed.registry.set_level(f"{topic}-value", "FULL_TRANSITIVE")
    mysql_server.execute(
        f"ALTER TABLE `{database}`.orders ADD COLUMN more INT NOT NULL",
        f"INSERT INTO `{database}`.orders VALUES ('c', 'y', 7)",
    )
    feed.window()
    assert feed.registry.own_level(f"{topic}-value") == "FULL_TRANSITIVE"
    assert [(key, value["after"]) for key, value in feed.records(topic)] == [
        ({"id": 1}, {"id": 1, "price": 12}),
        ({"id": 2}, {"id": 2, "price": 13}),
        ({"code": "a"}, {"code": "a", "must": 5}),
        ({"code": "b"}, {"code": "b", "must": "x"}),
        ({"code": "c"}, {"code": "c", "must": "y", "more": 7}),
    ]
    assert len(feed.registry.schemas(f"{topic}-value", latest=False)) == 4


@pytest.mark.extended
def test_masked_columns_are_text_and_left_out_ones_are_not_in_the_schema(
    feed: Feed, mysql_server: MysqlServer, database: str
) -> None:
    pipeline = feed.connections.pipeline
    columns = {
        "exclude": ["*.people.secret"],
        "mask": {"*.people.pay": {"text": "***"}, "*.people.name": {"characters": 2}, "*.people.born": {"text": None}},
    }
    masked = Pipeline.model_validate({**pipeline.model_dump(), "columns": columns})
    feed.connections = PipelineConnections(masked, feed.connections.lookup)
    mysql_server.execute(
        f"USE `{database}`",
        "CREATE TABLE people (secret INT, id INT PRIMARY KEY, name VARCHAR(20) NOT NULL, pay INT NOT NULL, born DATE)",
        "INSERT INTO people VALUES (7, 1, 'größe', 5000, '2001-02-03')",
    )
    feed.window()
    ((key, value),) = feed.records(f"{database}.people")
    assert key == {"id": 1}
    assert value["after"] == {"id": 1, "name": "gr", "pay": "***", "born": None}
