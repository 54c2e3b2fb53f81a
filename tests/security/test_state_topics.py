"""Topics with pipelines' state: no row, setting, suffix or table name can make a pipeline write to them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from faults.inline_spark import InlineSpark
from integration.settings.test_routing import pipeline_of
from integration.topic_rows import records_of

from changefeed.errors import TopicError
from changefeed.ingest.cut import cut
from changefeed.ingest.run import run_windows
from changefeed.ingest.window_run import ingest
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.topics import commit_log_settings, ensure_topics, partition_counts
from changefeed.model.topic_name import commit_log_topic, dead_letter_topic, schema_changes_topic, schema_history_topic
from changefeed.operations.backfill import plan_backfill
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import plan
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.backfill import BackfillRequest, backfill_pipeline
from changefeed.settings.requests.run import RunBounds
from changefeed.source.archive.archive import Archive
from changefeed.state.table_store import TableCheckpointStore
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer

OUTBOX = "CREATE TABLE obx (id INT PRIMARY KEY, aggregatetype TEXT, aggregateid TEXT, payload TEXT)"
TRANSACTIONS = {"provide.transaction.metadata": True}


class Attacked:
    """A pipeline on real servers, which runs one window after another."""

    def __init__(self, mysql: MysqlServer, kafka: KafkaBroker, pipeline: Pipeline, folder: Path) -> None:
        self.mysql, self.kafka = mysql, KafkaConnection(kafka.bootstrap)
        uris = {"s": mysql.url, "k": f"kafka://{kafka.bootstrap}"}
        self.connections = PipelineConnections(pipeline, uris.__getitem__)
        self.store = TableCheckpointStore(f"sqlite:///{folder / 'state.db'}")

    def run(self) -> None:
        planned = cut(self.connections, plan(self.connections, self.store), RunBounds())
        list(run_windows(InlineSpark(), self.connections, planned, self.store))

    def backfill(self, **asked: Any) -> None:
        pipeline = self.connections.pipeline
        request = BackfillRequest(pipeline=pipeline.name, **asked)
        planned = plan_backfill(self.connections, request, archive_of=Archive)
        replayed = PipelineConnections(backfill_pipeline(pipeline, request), self.connections.lookup)
        ingest(InlineSpark(), replayed, planned.window, identity=f"{pipeline.name}.backfill.1")


@pytest.mark.parametrize("routing", [{}, {"route.topic.regex": "order"}], ids=["any", "narrow"])
def test_outbox_row_cannot_write_to_a_state_topic(
    mysql_server: MysqlServer, kafka_broker: KafkaBroker, database: str, tmp_path: Path, routing: dict[str, str]
) -> None:
    own = [name(database) for name in (commit_log_topic, schema_history_topic, schema_changes_topic, dead_letter_topic)]
    chosen = [*own, f"{database}.transaction", f"changefeed_{database}_commits"]
    settings: dict[str, Any] = {
        "outbox": {"tables": ["*.obx"], "route.topic.replacement": "${routedByValue}", **routing},
        "format": {"name": "debezium", "topic.prefix": database, **TRANSACTIONS},
        "kafka": {"connection": "k", "on_bad_record": "dead_letter"},
    }
    if routing:
        settings["outbox"]["route.topic.replacement"] = "events"
    attacked = Attacked(mysql_server, kafka_broker, pipeline_of(database, **settings), tmp_path)
    mysql_server.execute(OUTBOX, database=database)
    attacked.run()
    forged = json.dumps([database, "progress", f"{database}.x", 0], separators=(",", ":"))
    rows = ", ".join(f"({number}, '{topic}', '{forged}', '{{}}')" for number, topic in enumerate(chosen))
    mysql_server.execute(f"INSERT INTO obx VALUES {rows}", database=database)
    attacked.run()
    for topic in chosen[:-1]:
        assert forged.encode() not in [record.key for record in records_of(kafka_broker.bootstrap, topic)], topic
    letters = records_of(kafka_broker.bootstrap, dead_letter_topic(database))
    assert [record.key for record in letters] == [None] * len(chosen)


@pytest.mark.parametrize(("publish_ddl", "words"), [("off", "is not for rows"), ("topic", "cannot end in")])
def test_suffix_cannot_turn_the_transaction_topic_into_a_commit_log(
    mysql_server: MysqlServer, kafka_broker: KafkaBroker, database: str, tmp_path: Path, publish_ddl: str, words: str
) -> None:
    victim = commit_log_topic(f"vic-{database}")
    format = {"name": "debezium", "topic.prefix": "changefeed", "topic.transaction": f"vic-{database}", **TRANSACTIONS}
    attacker = Attacked(
        mysql_server, kafka_broker, pipeline_of(database, format=format, publish_ddl=publish_ddl), tmp_path
    )
    ensure_topics(attacker.kafka, {victim: commit_log_settings(1)})
    attacker.run()
    mysql_server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=database)
    file = mysql_server.head().partition(":")[0]
    with pytest.raises(TopicError, match=words):
        attacker.backfill(from_file=file, suffix=".commits")
    assert records_of(kafka_broker.bootstrap, victim) == []


@pytest.mark.parametrize("topic", ["changefeed.{}.commits", "changefeed_{}_commits", "Changefeed.{}.Schema-History"])
def test_no_table_is_published_to_a_state_topic(
    mysql_server: MysqlServer, kafka_broker: KafkaBroker, database: str, tmp_path: Path, topic: str
) -> None:
    name = topic.format(f"vic-{database}")
    attacker = Attacked(
        mysql_server, kafka_broker, pipeline_of(database, topics={"shared": True, "template": name}), tmp_path
    )
    mysql_server.execute("CREATE TABLE t (id INT PRIMARY KEY)", "INSERT INTO t VALUES (1)", database=database)
    with pytest.raises(TopicError, match="keep the progress"):
        attacker.run()
    assert partition_counts(attacker.kafka, [name]) == {}
