"""A window with one large file, decoded while it is cut, through Spark into Kafka."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from changefeed.errors import SourceError
from changefeed.ingest import slicing
from changefeed.ingest import window_run as ingest_module
from changefeed.ingest.slicing import Cutting
from changefeed.ingest.window_run import ingest
from changefeed.model.window import Slice
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import plan
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import KafkaSettings, SourceSettings, SparkSettings, TableSettings
from changefeed.settings.topic_settings import TopicSettings
from changefeed.source.mysql.server_ids import ServerIds
from changefeed.spark.progress import StageCount, show_progress
from changefeed.spark.progress_line import read_log_text
from changefeed.spark.stages import decoding
from changefeed.spark.stages.batch_store import ShuffledBatches
from changefeed.spark.stages.messages import Failure
from changefeed.spark.target import SparkTarget
from changefeed.state.table_store import TableCheckpointStore
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.topics import read_topics

SLICE_BYTES = 4_000
FAILURE = Failure("SourceError", "no")


def connections_of(
    name: str, mysql: MysqlServer, kafka: KafkaBroker, server_ids: str | None = None
) -> PipelineConnections:
    """A pipeline that begins at the current head of the server's binlog, in a new file."""
    mysql.execute("FLUSH BINARY LOGS")
    (file, *_) = mysql.execute("SHOW BINARY LOG STATUS")[0]
    pipeline = Pipeline(
        name=name,
        source=SourceSettings(connection="mysql", server_ids=server_ids),
        kafka=KafkaSettings(connection="kafka"),
        tables=TableSettings(include=[f"{name}.*"]),
        topics=TopicSettings(partitions=2),
        start=f"{file}:4",
        spark=SparkSettings(slice_bytes=SLICE_BYTES),
        publish_ddl="off",
    )
    return PipelineConnections(pipeline, {"mysql": mysql.url, "kafka": f"kafka://{kafka.bootstrap}"}.__getitem__)


def with_columns_that_change(mysql: MysqlServer, name: str) -> list[dict[str, object]]:
    """Insert rows into a table that gets a column in the middle of every tenth insert; return the expected rows."""
    rows: list[dict[str, object]] = []
    with mysql.connect() as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE `{name}`")
        cursor.execute(f"CREATE TABLE `{name}`.t (id INT PRIMARY KEY, text VARCHAR(200))")
        columns: list[str] = []
        for number in range(120):
            if number % 10 == 9:
                columns.append(f"c{number}")
                cursor.execute(f"ALTER TABLE `{name}`.t ADD COLUMN c{number} INT AFTER id")
            row = {"id": number, "text": "x" * 150} | dict.fromkeys(columns, number)
            cursor.execute(f"INSERT INTO `{name}`.t ({', '.join(row)}) VALUES %s", (tuple(row.values()),))
            rows.append(row)
    return rows


@pytest.mark.parametrize("has_server_ids", [False, True])
def test_columns_have_the_names_of_each_rows_time_in_any_order_of_slices(
    spark: SparkTarget,
    mysql_server: MysqlServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    server_id: int,
    tmp_path: Path,
    has_server_ids: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The log has the number of slices and of topic-partitions, and how many slices are decoded if each has a task."""
    caplog.set_level("INFO", "changefeed.spark.progress")
    monkeypatch.setattr("changefeed.spark.progress.LOG_EVERY_SECONDS", 0.01)
    cuttings: list[Cutting] = []

    def recorded(*args: object, **options: object) -> object:
        for cutting in cut_slices(*args, **options):  # type: ignore[arg-type]
            cuttings.append(cutting)
            yield cutting

    cut_slices = slicing.cut_slices
    monkeypatch.setattr(ingest_module, "cut_slices", recorded)
    ids = f"{server_id}-{server_id + 1}" if has_server_ids else None
    connections = connections_of(unique_name, mysql_server, kafka_broker, ids)
    rows = with_columns_that_change(mysql_server, unique_name)
    window = plan(connections, TableCheckpointStore(f"sqlite:///{tmp_path / 'state.db'}")).window
    manifest = ingest(spark, connections, window)
    assert manifest.row_count == len(rows)
    slices = sum(len(each.slices) for each in cuttings)
    assert slices > 5
    logged = [read_log_text(f"INFO {record.name}: {record.message}") for record in caplog.records]
    decoded = [progress.parts for stage, progress in filter(None, logged) if stage == "decode"]
    assert slices in {parts.total for parts in decoded if parts}
    assert {parts.done is None for parts in decoded if parts and parts.total == slices} == {has_server_ids}
    published = {
        progress.parts.total for stage, progress in filter(None, logged) if stage == "publish" and progress.parts
    }
    assert published == {2}
    records = read_topics(kafka_broker.bootstrap, [f"{unique_name}.t"])
    published = sorted((record.value["after"] for record in records), key=lambda row: int(row["id"]))
    assert json.dumps(published, sort_keys=True) == json.dumps(rows, sort_keys=True)


def test_a_slice_that_stops_the_run_leaves_no_thread_and_no_reader(
    spark: SparkTarget, full_mysql_server: MysqlServer, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path
) -> None:
    connections = connections_of(unique_name, full_mysql_server, kafka_broker)
    with_columns_that_change(full_mysql_server, unique_name)
    full_mysql_server.execute(
        "SET SESSION binlog_format = STATEMENT", f"UPDATE `{unique_name}`.t SET text = 'y' WHERE id > 0"
    )
    window = plan(connections, TableCheckpointStore(f"sqlite:///{tmp_path / 'state.db'}")).window
    before = threading.enumerate()
    with pytest.raises(SourceError, match="a change in statement format"):
        ingest(spark, connections, window)
    left = [each.name for each in threading.enumerate() if each.name.startswith("changefeed-") and each not in before]
    assert left == []
    dumps = [row for row in full_mysql_server.execute("SHOW PROCESSLIST") if row[4].startswith("Binlog Dump")]
    assert dumps == []
    assert not list(read_topics(kafka_broker.bootstrap, [f"{unique_name}.t"]))


@pytest.fixture
def jobs(spark: SparkTarget, monkeypatch: pytest.MonkeyPatch) -> Iterator[decoding.Decoding]:
    """Two jobs: the job of the first slice ends with an error, the other never ends."""

    def endless(_job: object, slices: Iterable[Slice], _count: object) -> Iterator[Failure]:
        for slice in slices:
            while slice.number:
                time.sleep(0.1)
            yield FAILURE

    monkeypatch.setattr(decoding, "decode_slices", endless)
    job = SimpleNamespace(server_ids=ServerIds("p"), reads_one_by_one=False, readers=lambda slices: slices)
    with (
        show_progress(spark, "decode") as tasks,
        decoding.Decoding(spark, StageCount(spark, "slices"), ShuffledBatches(spark)) as started,
    ):
        for number in range(2):
            started.add(job, [Slice(number, "bin.000001", 4, 100)], tasks)  # type: ignore[arg-type]
        yield started
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("changefeed-decode")]


@pytest.mark.timeout(120)
def test_an_error_ends_the_jobs_beside_it(jobs: decoding.Decoding) -> None:
    assert next(jobs.read_remaining()) == FAILURE


@pytest.mark.timeout(120)
def test_an_error_is_known_while_other_slices_are_still_cut(jobs: decoding.Decoding) -> None:
    while not (results := list(jobs.read_ended())):
        time.sleep(0.1)
    assert results == [FAILURE]
    assert list(jobs.read_ended()) == []
