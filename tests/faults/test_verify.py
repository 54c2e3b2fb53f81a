"""verify finds each difference between source and topics, and reports equal if there is none, also under a writer."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kafka
import pytest
from both_settings import on_stock_servers_first
from faults.existing_rows import finish
from faults.feed import Feed
from integration.topic_rows import event_ids, records_of
from kafka.admin import NewTopic
from run_verify import run_verify, verify_planned

from changefeed.errors import SettingsError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import read_pipeline
from changefeed.settings.requests.verify import VerifyRequest
from changefeed.spark.connect import connect_session
from changefeed.spark.target import SparkTarget
from changefeed.verify.plan import plan_verify
from changefeed.verify.positions import read_published_end, wait_for_runs
from changefeed.verify.report import TableAccount, VerifyReport, last_reports, summary
from devstack.mysql import MysqlServer
from devstack.schema_registry import SchemaRegistry
from devstack.spark_connect import SparkConnectServer

ALL_KEYS = {
    "number": "id BIGINT PRIMARY KEY, text VARCHAR(50)",
    "pair": "a INT, b DATE, text VARCHAR(50), PRIMARY KEY (b, a)",
    "word": "code VARCHAR(20) COLLATE utf8mb4_general_ci PRIMARY KEY, number INT",
    "latin": "code CHAR(8) CHARACTER SET latin1 PRIMARY KEY, number INT",
    "raw": "code VARBINARY(8) PRIMARY KEY, number INT",
    "price": "amount DECIMAL(10, 3) PRIMARY KEY, number DOUBLE",
    "moment": "at TIMESTAMP(3) PRIMARY KEY, kind ENUM('new', 'old')",
    "huge": "id INT PRIMARY KEY, text LONGTEXT, data LONGBLOB",
    "heap": "number INT, text VARCHAR(50), price DECIMAL(6, 2)",
}
"""A table for each kind of key; the last has none."""
ROWS = {
    "number": "(-9223372036854775808, 'least'), (-1, NULL), (0, ''), (7, 'é'), (9223372036854775807, 'most')",
    "pair": "(1, '2026-01-31', 'a'), (1, '2026-02-01', 'b'), (-5, '2026-01-31', NULL)",
    "word": "('abc', 1), ('ABD', 2), ('é', 3), ('Éa', 4), ('', 5)",
    "latin": "('ab', 1), ('AC', 2), ('ü', NULL)",
    "raw": "(X'00', 1), (X'0001', 2), (X'ff', 3), (X'', 4)",
    "price": "(-12.5, 1.5), (0, -0.1), (12.500, 1e100)",
    "moment": "('2026-03-29 02:30:00.001', 'new'), ('1970-01-02 00:00:01', 'old')",
    "huge": "(1, REPEAT('é', 250000), NULL), (2, '', REPEAT(X'00ff', 150000)), (3, REPEAT('\\\\\"', 90000), '')",
    "heap": "(1, 'twice', 1.50), (1, 'twice', 1.50), (NULL, NULL, NULL), (2, 'once', -0.01)",
}


@pytest.fixture(scope="module")
def spark(spark_connect: SparkConnectServer) -> Iterator[SparkTarget]:
    with connect_session(spark_connect.url) as session:
        yield session


@pytest.fixture(params=["feed", "mariadb_feed"])
def any_feed(request: pytest.FixtureRequest) -> Feed:
    feed: Feed = request.getfixturevalue(request.param)
    return feed


def connections_of(feed: Feed, **more: str) -> PipelineConnections:
    environment = feed.env() | more
    pipeline = read_pipeline(Path(environment["CHANGEFEED_PIPELINES"]) / f"{feed.name}.yaml")
    return PipelineConnections(pipeline, lambda name: environment[f"AIRFLOW_CONN_{name.upper()}"])


def account(report: VerifyReport, table: str) -> TableAccount:
    (account,) = [each for each in report.tables if each.name.endswith(f".{table}")]
    return account


def copy_topic(feed: Feed, table: str, change: Callable[[list[Any]], list[Any]]) -> PipelineConnections:
    """The pipeline with copies of its topics; ``change`` changes the records of ``table``."""
    suffix = f".copy{next(feed.numbers)}"
    admin = kafka.KafkaAdminClient(bootstrap_servers=feed.kafka.bootstrap)
    producer = kafka.KafkaProducer(bootstrap_servers=feed.kafka.bootstrap)
    names = [row[0] for row in feed.mysql.execute(f"SHOW TABLES FROM `{feed.name}`")]
    admin.create_topics([NewTopic(f"{feed.name}.{name}{suffix}", 2, 1) for name in names])
    for name in names:
        records = records_of(feed.kafka.bootstrap, f"{feed.name}.{name}")
        for record in change(records) if name == table else records:
            producer.send(
                record.topic + suffix,
                record.value,
                record.key,
                headers=list(record.headers),
                partition=record.partition,
            )
    producer.flush()
    producer.close()
    admin.close()
    feed.settings["topics"] = {"partitions": 2, "template": "{database}.{table}" + suffix}
    feed.configure()
    return connections_of(feed)


def event_position(record: Any) -> tuple[int, ...]:
    """The position of the record's change: position of the event, number of the row, step."""
    (event_id,) = event_ids([record])
    _, where, *numbers = event_id.split("/")
    return int(where.rpartition(":")[2]), *map(int, numbers)


def with_value(record: Any, **after: Any) -> Any:
    value = json.loads(record.value)
    value["after"] |= after
    return record._replace(value=json.dumps(value).encode())


@pytest.mark.extended
@on_stock_servers_first
@pytest.mark.usefixtures("server_settings")
def test_rows_of_all_sorts_of_keys_are_equal_chunk_by_chunk(any_feed: Feed) -> None:
    feed = any_feed
    for table, columns in ALL_KEYS.items():
        feed.mysql.execute(
            f"CREATE TABLE `{feed.name}`.{table} ({columns})", f"INSERT INTO `{feed.name}`.{table} VALUES {ROWS[table]}"
        )
    feed.mysql.execute(
        f"UPDATE `{feed.name}`.word SET code = 'x' WHERE code = 'é'",
        f"UPDATE `{feed.name}`.word SET code = 'ABC' WHERE code = 'abc'",  # the same key for the server
        f"DELETE FROM `{feed.name}`.price WHERE amount = 0",
        f"UPDATE `{feed.name}`.heap SET number = 9 WHERE number = 2",
        f"DELETE FROM `{feed.name}`.heap WHERE number = 1 LIMIT 1",
    )
    feed.write()
    feed.run()
    report = run_verify(connections_of(feed), chunk_rows=2)
    assert report.outcome == "equal", summary(report)
    assert report.equal_rows == report.rows > 20
    assert {table.name.partition(".")[2] for table in report.tables} == {*ALL_KEYS, "accounts", "journal"}


@on_stock_servers_first
@pytest.mark.usefixtures("server_settings")
def test_each_fault_in_a_topic_is_found_and_named(any_feed: Feed) -> None:
    feed = any_feed
    feed.write(40)
    feed.run()
    assert run_verify(connections_of(feed)).outcome == "equal"

    def faults_after(
        change: Callable[[list[Any]], list[Any]], table: str = "journal"
    ) -> tuple[dict[str, int], VerifyReport]:
        report = run_verify(copy_topic(feed, table, change))
        assert report.outcome == "differs", summary(report)
        (differing,) = [each for each in report.tables if each.outcome == "differs"]
        assert differing.name == f"{feed.name}.{table}"
        kinds = {kind: count for kind, count in differing.kinds.items() if kind not in ("equal", "meanwhile") and count}
        return {**kinds, **differing.faults}, report

    def latest(records: list[Any]) -> int:
        """The last record of a row that still exists."""
        last = {record.key: number for number, record in enumerate(records)}
        return next(number for number in last.values() if records[number].value is not None)

    def changed_cell(records: list[Any]) -> list[Any]:
        number = latest(records)
        return [*records[:number], with_value(records[number], text="ë"), *records[number + 1 :]]

    for table in ("journal", "accounts"):
        kinds, report = faults_after(changed_cell, table)
        assert kinds == {"changed": 1}
        (result,) = report.results
        assert result.offset >= 0
        assert report.rounds == 3  # it was compared again
    assert faults_after(lambda records: records[1:])[0] == {"unpublished": 1}
    assert faults_after(lambda records: [*records[:3], records[3]._replace(value=None), *records[4:]])[0] == {
        "missing": 1
    }
    assert faults_after(lambda records: [*records[:3], records[2], *records[3:]])[0] == {"repeated": 1}
    assert faults_after(lambda records: [records[1], records[0], *records[2:]])[0] == {"disordered": 1}
    other_key = json.dumps({"id": 10_000}).encode()
    assert faults_after(lambda records: [records[0]._replace(key=other_key), *records[1:]])[0] == {
        "extra": 1,
        "unpublished": 1,
    }
    assert faults_after(lambda records: [records[0]._replace(headers=[]), *records[1:]])[0] == {
        "foreign": 1,
        "unpublished": 1,
    }


@pytest.mark.extended
def test_rows_without_a_key_are_counted(any_feed: Feed, spark: SparkTarget) -> None:
    feed = any_feed
    feed.mysql.execute(
        f"CREATE TABLE `{feed.name}`.heap ({ALL_KEYS['heap']})",
        f"INSERT INTO `{feed.name}`.heap VALUES {ROWS['heap']}",
    )
    feed.run()

    def kinds(change: Callable[[list[Any]], list[Any]]) -> dict[str, int]:
        report = run_verify(copy_topic(feed, "heap", change), spark=spark)
        heap = account(report, "heap")
        return {kind: count for kind, count in heap.kinds.items() if count} | dict(heap.faults)

    def number_of(records: list[Any]) -> int:
        return next(n for n, record in enumerate(records) if json.loads(record.value)["after"]["text"] == "twice")

    assert kinds(lambda records: records) == {"equal": 4}
    assert kinds(lambda records: [r for n, r in enumerate(records) if n != number_of(records)]) == {
        "equal": 3,
        "missing": 1,
    }
    assert kinds(lambda records: [with_value(records[0], text="else"), *records[1:]])["extra"] == 1
    assert kinds(lambda records: [records[0], *records]) == {"equal": 4, "extra": 1, "repeated": 1}


@pytest.mark.long
@pytest.mark.extended
def test_rows_that_snapshots_read_beside_their_changes_are_counted_once(any_feed: Feed) -> None:
    feed = any_feed
    feed.settings["topics"] = {"partitions": 2, "routes": [{"match": f"{feed.name}.journal", "format": "maxwell"}]}
    feed.configure()
    feed.mysql.execute(
        f"CREATE TABLE {feed.name}.heap ({ALL_KEYS['heap']})",
        f"INSERT INTO {feed.name}.heap VALUES {ROWS['heap']}",
        f"INSERT INTO {feed.name}.journal (text) VALUES ('kept'), ('changed'), ('gone')",
    )
    feed.run()
    for number in range(2):
        feed.mysql.execute(
            f"UPDATE {feed.name}.heap SET number = {number + 3} WHERE text = 'once'",
            f"UPDATE {feed.name}.journal SET text = 'changed {number}' WHERE text LIKE 'changed%'",
        )
        feed.run()
        finish(feed)
        feed.mysql.execute(f"INSERT INTO {feed.name}.heap VALUES (1, 'twice', 1.50)")
    feed.mysql.execute(
        f"DELETE FROM {feed.name}.heap WHERE text IS NULL", f"DELETE FROM {feed.name}.journal WHERE text = 'gone'"
    )
    feed.run()
    report = run_verify(connections_of(feed))
    assert report.outcome == "equal", summary(report)
    assert account(report, "heap").kinds == {"equal": 5}
    finish(feed, "--tables", f"{feed.name}.heap", "--where", "text = 'once'")
    assert run_verify(connections_of(feed)).outcome == "equal"  # no other row is reported as deleted

    def without_last(records: list[Any]) -> list[Any]:
        last = max((each for each in records if b'"op":"c"' in each.value), key=event_position)
        return [each for each in records if each is not last]

    report = run_verify(copy_topic(feed, "heap", without_last), tables=[f"{feed.name}.heap"])
    assert account(report, "heap").kinds == {"equal": 4, "missing": 1}, summary(report)


@pytest.mark.extended
def test_under_a_writer_all_rows_are_compared_and_equal(any_feed: Feed) -> None:
    feed = any_feed
    feed.write(40)
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            feed.write(2)

    runs = []

    def run_until_published(until: BinlogCoordinates) -> None:
        runs.append(until)
        feed.run()

    reports = []
    writer = threading.Thread(target=write)
    writer.start()
    try:
        while not any(table.kinds["meanwhile"] for report in reports for table in report.tables) and len(reports) < 10:
            reports.append(run_verify(connections_of(feed), run_until_published, chunk_rows=10))
    finally:
        stop.set()
        writer.join()
    for report in reports:
        assert report.outcome == "equal", summary(report)
        assert report.equal_rows == report.rows
    assert reports[-1].low != reports[-1].high  # in earlier reports the writer may have waited for the disk
    assert any(table.kinds["meanwhile"] for table in reports[-1].tables)


@pytest.mark.extended
def test_rows_that_were_there_before_the_pipeline_began_are_named_as_never_published(feed: Feed) -> None:
    feed.write(10)
    feed.mysql.execute("FLUSH BINARY LOGS")
    file, position, *_ = feed.mysql.execute("SHOW BINARY LOG STATUS")[0]
    feed.settings["start"] = f"{file}:{position}"
    feed.configure()
    feed.mysql.execute(f"INSERT INTO `{feed.name}`.journal (text) VALUES ('after')")
    feed.run()
    report = run_verify(connections_of(feed))
    journal = account(report, "journal")
    assert report.outcome == "differs"
    assert journal.kinds["unpublished"] == journal.rows - 1
    assert "published only by a snapshot" in " ".join(summary(report))


@pytest.mark.long
@pytest.mark.extended
def test_verify_after_a_seek_waits_for_no_run_that_publishes_nothing(feed: Feed) -> None:
    feed.write(5)
    feed.run()
    connections = connections_of(feed)
    feed.mysql.execute("FLUSH BINARY LOGS", f"INSERT INTO {feed.name}.journal (text) VALUES ('skipped')")
    done = feed.command("seek", feed.name, "latest", "--why", "a test", "--yes")
    assert done.returncode == 0, done.stderr
    report = run_verify(connections, wait_for_runs(connections, 0))
    assert account(report, "journal").kinds["unpublished"] == 1


def damage(records: list[Any]) -> list[Any]:
    """The records of inserts with one fault of each kind."""
    disordered, repeated, missing, changed, foreign = records[:2], records[2], records[3], records[4], records[5]
    return [
        *reversed(disordered),
        repeated,
        repeated,
        missing._replace(value=None),
        with_value(changed, text="forged"),
        foreign._replace(headers=[]),
        *records[6:],
    ]


@pytest.mark.extended
def test_command_runs_the_pipeline_and_reports_every_difference_on_spark(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    feed.write(40)
    feed.use_connect(spark_connect.url)
    early = feed.command("verify", feed.name)
    assert (early.returncode, "has sealed no window yet" in early.stderr) == (1, True), early.stderr
    equal = feed.command("verify", feed.name, "--run")
    assert equal.returncode == 0, equal.stderr + equal.stdout
    assert equal.stdout.startswith(f"{feed.name}: equal: ")
    copy_topic(feed, "journal", damage)
    feed.use_connect(spark_connect.url)
    differs = feed.command("verify", feed.name, "--tables", f"{feed.name}.*")
    assert differs.returncode == 4, differs.stderr + differs.stdout
    lines = differs.stdout.splitlines()
    assert f"{feed.name}.journal: 1 rows have other values" in lines
    at = next(number for number, line in enumerate(lines) if line.endswith(": changed"))
    assert lines[at + 1].startswith("  server: {")
    assert "forged" not in lines[at + 1]
    assert '"text":"forged"' in lines[at + 2]
    assert "1 records are in the topic twice" in differs.stdout
    (kept,) = last_reports(connections_of(feed).commit_log().read())
    assert kept.outcome == "differs"
    journal = account(kept, "journal")
    assert {kind: count for kind, count in journal.kinds.items() if kind != "equal"} == {
        "changed": 1,
        "missing": 1,
        "unpublished": 1,
    }
    assert journal.faults == {"repeated": 1, "disordered": 1, "foreign": 1}
    assert "forged" not in str(kept.to_json())


@pytest.mark.extended
def test_masks_conditions_and_each_readable_format_hold_on_both_sides(
    feed: Feed, spark_connect: SparkConnectServer, spark: SparkTarget
) -> None:
    formats = ("debezium", "flat", "maxwell", "cloudevents", "fluvio")
    feed.settings |= {
        "columns": {"mask": {f"{feed.name}.*.text": {"text": "***"}}, "exclude": [f"{feed.name}.*.hidden"]},
        "rows": {f"{feed.name}.some": "number > 5"},
        "topics": {
            "partitions": 2,
            "routes": [{"match": f"{feed.name}.in_{format}", "format": format} for format in formats],
        },
    }
    feed.configure()
    for table in ("some", *(f"in_{format}" for format in formats)):
        feed.mysql.execute(
            f"CREATE TABLE {table} (id INT PRIMARY KEY, text VARCHAR(20), hidden INT, number DECIMAL(5, 2))",
            f"INSERT INTO {table} VALUES (1, 'a', 1, 9.5), (2, 'b', 2, 10), (3, NULL, NULL, 11), (4, 'd', 4, 1)",
            f"UPDATE {table} SET number = 7.25 WHERE id = 1",
            f"UPDATE {table} SET id = 20 WHERE id = 2",
            f"DELETE FROM {table} WHERE id = 3",
            database=feed.name,
        )
    feed.mysql.execute("UPDATE some SET number = 0 WHERE id = 1", database=feed.name)
    feed.use_connect(spark_connect.url)
    feed.run(spark=True)
    report = run_verify(connections_of(feed), spark=spark)
    outcomes = {table.name.partition(".")[2]: table.outcome for table in report.tables}
    assert outcomes == {
        **dict.fromkeys(("accounts", "journal", *(f"in_{format}" for format in formats)), "equal"),
        "some": "incomplete",
    }, summary(report)
    assert account(report, "some").left_out == 1
    assert account(report, "some").equal_rows == 1
    assert account(report, "in_maxwell").equal_rows == account(report, "in_fluvio").equal_rows == 3


@pytest.mark.extended
def test_avro_is_read_by_the_schemas_of_the_registry_and_a_lost_record_is_found(
    feed: Feed, schema_registry: SchemaRegistry, spark: SparkTarget
) -> None:
    feed.settings["format"] = {"name": "avro", "registry": "registry"}
    feed.connections["REGISTRY"] = schema_registry.url
    feed.configure()
    feed.mysql.execute(
        f"CREATE TABLE pets ({ALL_KEYS['heap']}, id INT PRIMARY KEY, photo BLOB)",
        "INSERT INTO pets VALUES (1, 'a', 9.5, 1, 'x'), (NULL, NULL, NULL, 2, NULL), (3, 'c', -0.01, 3, X'00ff')",
        "UPDATE pets SET text = 'z' WHERE id = 1",
        "DELETE FROM pets WHERE id = 3",
        "ALTER TABLE pets ADD COLUMN more INT",
        "INSERT INTO pets VALUES (1, 'd', 1, 4, '', 5)",
        database=feed.name,
    )
    feed.write(10)
    feed.run()
    report = run_verify(connections_of(feed), chunk_rows=2)
    assert report.outcome == "equal", summary(report)
    assert account(report, "pets").equal_rows == 3
    # The partition of a key depends on its schema's id in the registry, so the last change is found by its event.
    copy_topic(feed, "pets", lambda records: sorted(records, key=event_position)[:-1])
    report = run_verify(connections_of(feed), spark=spark)
    assert account(report, "pets").kinds["unpublished"] == 1, summary(report)


@pytest.mark.long
@pytest.mark.extended
def test_fluvio_in_one_topic_follows_truncates_and_a_lost_record_is_found(feed: Feed) -> None:
    feed.settings |= {"format": "fluvio", "publish_ddl": "inline"}
    feed.settings["topics"] = {"template": feed.name, "shared": True, "partitions": 1}
    feed.configure()
    feed.mysql.execute(
        "INSERT INTO journal (text) VALUES ('gone'), ('gone')",
        "TRUNCATE TABLE journal",
        "INSERT INTO journal (text) VALUES ('there'), ('there'), (NULL)",
        "INSERT INTO accounts VALUES (1, 1, 'old'), (2, 2, 'two')",
        "UPDATE accounts SET text = 'new' WHERE id = 1",
        database=feed.name,
    )
    feed.run()
    report = run_verify(connections_of(feed))
    assert report.outcome == "equal", summary(report)
    assert report.equal_rows == 5
    records = records_of(feed.kafka.bootstrap, feed.name)
    kafka.KafkaAdminClient(bootstrap_servers=feed.kafka.bootstrap).create_topics([NewTopic(f"{feed.name}.copy", 1, 1)])
    producer = kafka.KafkaProducer(bootstrap_servers=feed.kafka.bootstrap)
    for record in records[:-1]:
        producer.send(f"{feed.name}.copy", record.value, headers=list(record.headers), partition=0)
    producer.close()
    feed.settings["topics"] = {"template": f"{feed.name}.copy", "shared": True, "partitions": 1}
    feed.configure()
    kinds = {
        kind: count for kind, count in account(run_verify(connections_of(feed)), "accounts").kinds.items() if count
    }
    assert kinds == {"equal": 1, "extra": 1, "unpublished": 1}


@pytest.mark.extended
def test_a_column_that_was_added_and_a_table_that_was_emptied_are_followed(feed: Feed, spark: SparkTarget) -> None:
    feed.settings["format"] = {"name": "debezium", "skipped.operations": "none"}
    feed.configure()
    feed.mysql.execute(
        "INSERT INTO journal (text) VALUES ('gone'), ('gone')",
        "INSERT INTO accounts VALUES (1, 1, 'old')",
        "TRUNCATE journal",
        "ALTER TABLE accounts ADD COLUMN note VARCHAR(10) NOT NULL DEFAULT 'new', ADD COLUMN more INT",
        "INSERT INTO journal (text) VALUES ('there')",
        "INSERT INTO accounts VALUES (2, 1, 'new', 'n', 5)",
        database=feed.name,
    )
    feed.run()
    report = run_verify(connections_of(feed), spark=spark)
    assert report.outcome == "equal", summary(report)
    kinds = dict(account(report, "accounts").kinds)
    assert {kind: count for kind, count in kinds.items() if count} == {"equal": 1, "in_part": 1}
    assert account(report, "journal").equal_rows == 1


@pytest.mark.long
@pytest.mark.extended
def test_compacted_topic_is_equal_and_rows_removed_by_retention_are_not_compared(
    feed: Feed, spark: SparkTarget
) -> None:
    feed.write(40)
    feed.run()

    def last_of_each_key(records: list[Any]) -> list[Any]:
        last = {record.key: number for number, record in enumerate(records)}
        return [record for number, record in enumerate(records) if last[record.key] == number]

    report = run_verify(copy_topic(feed, "accounts", last_of_each_key))
    assert report.outcome == "equal", summary(report)
    connections = copy_topic(feed, "journal", lambda records: records)
    topic = feed.settings["topics"]["template"].format(database=feed.name, table="journal")
    admin = kafka.KafkaAdminClient(bootstrap_servers=feed.kafka.bootstrap)
    admin.delete_records({kafka.TopicPartition(topic, 0): 3})  # in the middle of a batch
    report = run_verify(connections, spark=spark)
    assert report.outcome == "incomplete", summary(report)
    journal = account(report, "journal")
    assert journal.left_out == 3
    assert journal.equal_rows == journal.rows - 3
    assert f"the first records of topic {topic!r} were removed (retention)" in " ".join(summary(report))
    admin.delete_topics([topic])
    report = run_verify(connections)
    assert report.outcome == "differs"
    assert account(report, "journal").kinds["unpublished"] == journal.rows
    admin.create_topics([NewTopic(topic, 2, 1)])
    assert account(run_verify(connections), "journal").kinds["unpublished"] == journal.rows


@pytest.mark.extended
@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ALTER TABLE journal RENAME COLUMN text TO words", "it was altered while it was compared"),
        ("RENAME TABLE journal TO diary", "it was dropped or renamed while it was compared"),
        ("ALTER TABLE journal ADD COLUMN more INT", ""),
    ],
)
def test_table_altered_before_it_is_read_is_named_and_others_are_compared(
    feed: Feed, statement: str, words: str, spark: SparkTarget
) -> None:
    feed.write(10)
    feed.run()
    planned = plan_verify(connections_of(feed), VerifyRequest())
    feed.mysql.execute(statement, database=feed.name)
    report = verify_planned(planned, spark=spark)
    assert report.outcome == ("incomplete" if words else "equal"), summary(report)
    assert account(report, "accounts").outcome == "equal"
    assert words in " ".join(account(report, "journal").reasons)


def test_rows_that_a_server_leaves_out_of_its_results_are_noticed(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server returns fewer rows than it has: neither "equal" nor "deleted" would be right."""
    feed.write(40)
    feed.run()
    planned = plan_verify(connections_of(feed), VerifyRequest())
    monkeypatch.setattr("changefeed.source.mysql.login.session_statement", lambda: "SET sql_select_limit = 2")
    report = verify_planned(planned)
    assert report.outcome == "incomplete"
    assert "counts, found 2" in " ".join(account(report, "journal").reasons)


@pytest.mark.extended
def test_follower_is_compared_with_the_topics_at_its_position(
    feed: Feed, full_mysql_server: MysqlServer, spark: SparkTarget
) -> None:
    feed.write(40)
    feed.run()
    follower, at = full_mysql_server, read_published_end(connections_of(feed))
    (uuid,) = feed.mysql.execute("SELECT @@server_uuid")[0]
    follower.execute(
        f"CREATE DATABASE {feed.name}",
        "CREATE DATABASE IF NOT EXISTS changefeed",
        "CREATE TABLE IF NOT EXISTS changefeed.followed (pipeline VARCHAR(200) COLLATE utf8mb4_bin PRIMARY KEY, "
        "server_uuid CHAR(36), coordinates VARCHAR(300), databases_followed TEXT)",
        f"INSERT INTO changefeed.followed VALUES ('{feed.name}', '{uuid}', '{at}', '[]')",
    )
    for table in ("accounts", "journal"):
        follower.execute(feed.mysql.execute(f"SHOW CREATE TABLE {feed.name}.{table}")[0][1], database=feed.name)
        rows = feed.mysql.execute(f"SELECT * FROM {feed.name}.{table}")
        with follower.connect(database=feed.name) as connection, connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {table} VALUES ({', '.join(['%s'] * len(rows[0]))})", rows)
    feed.write(20)
    feed.run()  # the source is ahead of its follower
    connections = connections_of(feed, AIRFLOW_CONN_FOLLOWER=follower.url)
    report = run_verify(connections, follower="follower", chunk_rows=7)
    assert report.outcome == "equal", summary(report)
    assert (report.low, report.high, report.follower) == (str(at), str(at), "follower")
    assert sum(table.kinds["meanwhile"] for table in report.tables) == 0
    follower.execute(
        "UPDATE journal SET text = 'forged' ORDER BY id LIMIT 1",
        "DELETE FROM journal ORDER BY id DESC LIMIT 2",
        "INSERT INTO accounts VALUES (12345, 1, 'nobody')",
        database=feed.name,
    )
    report = run_verify(connections, spark=spark, follower="follower")
    assert {kind: count for kind, count in account(report, "journal").kinds.items() if count and kind != "equal"} == {
        "changed": 1,
        "extra": 2,
    }
    assert account(report, "accounts").kinds["unpublished"] == 1
    follower.execute(f"DELETE FROM changefeed.followed WHERE pipeline = '{feed.name}'")
    with pytest.raises(SettingsError, match=f"expected the position of pipeline '{feed.name}'"):
        run_verify(connections, follower="follower")
    follower.execute(f"DROP DATABASE {feed.name}")
