"""`check` fails if the next run would be refused, with the same message."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kafka
import pytest
from faults.feed import Feed, Runner, fresh_feed
from kafka.admin import ConfigResource, ConfigResourceType

from changefeed.model.topic_name import commit_log_topic, schema_history_topic
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.process import run_server
from devstack.spark_connect import SparkConnectServer

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def stock(
    mysql_server: MysqlServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    tmp_path: Path,
    runner: Runner,
    spark_connect: SparkConnectServer,
) -> Iterator[Feed]:
    with fresh_feed(mysql_server, kafka_broker, unique_name, tmp_path, runner) as fresh:
        fresh.use_connect(spark_connect.url)
        yield fresh


def run_check(feed: Feed) -> dict[str, Any]:
    run = feed.fork_command("", "check", feed.name, "--json")
    code, text = run.result(), run.text()
    assert '{\n  "pipelines"' in text, text
    ((report,), _) = json.JSONDecoder().raw_decode(text[text.index('{\n  "pipelines"') :])[0].values()
    assert code == (1 if report["wrong"] else 0), report
    return dict(report)


def check_predicts(feed: Feed, *words: str, code: int = 2) -> None:
    """Check that `check` fails with these words, and that the run ends with the same message and exit ``code``."""
    (wrong,) = run_check(feed)["wrong"]
    ids = feed.ids()
    run = feed.begin()
    assert run.result() == code, run.text()
    assert wrong in run.text(), (wrong, run.text()[-2000:])
    assert [word for word in words if word not in wrong] == [], wrong
    assert feed.ids() == ids


def test_lines_have_levels_a_summary_and_the_partitions_that_a_topic_has(stock: Feed) -> None:
    stock.write(5)
    stock.run()
    stock.settings["topics"] = {"partitions": 5}
    stock.configure()
    run = stock.fork_command("", "check", stock.name)
    assert run.result() == 0, run.text()
    assert f"{stock.name}: OK   {stock.name}.accounts: topic '{stock.name}.accounts', 2 partitions by key" in run.text()
    differs = f"{stock.name}: WARN topic '{stock.name}.accounts' has 2 partitions, and the pipeline's settings say 5"
    assert differs in run.text()
    assert run.text().splitlines()[-1].endswith(" OK, 2 WARN, 0 FAIL")


@pytest.mark.extended
def test_check_fails_as_the_run_does_for_settings_topics_columns_and_lost_state(stock: Feed) -> None:
    stock.write(5)
    stock.run()
    assert run_check(stock)["wrong"] == []
    stock.settings["rows"] = {f"{stock.name}.accounts": "verzion > 0"}
    stock.configure()
    stock.write(20)
    check_predicts(stock, "SettingsError", "'verzion'", "did you mean 'version'")
    del stock.settings["rows"]
    stock.configure()
    stock.write(40)
    run = stock.begin("after_transaction_commit:2")
    assert run.wait_until_held(), run.text()
    run.kill()
    stock.settings["skip"] = ["d"]
    stock.configure()
    check_predicts(stock, "SettingsError", "was published in part", "settings changed")
    del stock.settings["skip"]
    stock.configure()
    stock.run()
    kept = stock.state.read_bytes()
    stock.state.unlink()
    check_predicts(stock, "CheckpointError", f"changefeed recover {stock.name}")
    stock.state.write_bytes(kept)
    admin = kafka.KafkaAdminClient(bootstrap_servers=stock.kafka.bootstrap)
    admin.delete_topics([f"{stock.name}.accounts"])
    while f"{stock.name}.accounts" in admin.list_topics():
        pass
    stock.write(5)
    check_predicts(stock, "TopicError", f"topic '{stock.name}.accounts' was removed: Kafka's id for it was")
    assert f"{stock.name}.accounts" not in admin.list_topics(), "the run made it not again, which would hide that"
    admin.close()


def altered_topic(feed: Feed, topic: str, policy: str) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=feed.kafka.bootstrap)
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, {"cleanup.policy": policy})])
    admin.close()


def lose_records(feed: Feed, topic: str) -> None:
    """Delete records of a compacted topic, as a retention policy does that is removed later."""
    altered_topic(feed, topic, "compact,delete")
    admin = kafka.KafkaAdminClient(bootstrap_servers=feed.kafka.bootstrap)
    admin.delete_records({kafka.TopicPartition(topic, 0): 2})
    admin.close()
    altered_topic(feed, topic, "compact")


@pytest.mark.parametrize(
    "log_of",
    [commit_log_topic, pytest.param(schema_history_topic, marks=pytest.mark.extended)],
    ids=["commit log", "schema history"],
)
def test_check_fails_as_the_run_does_for_a_log_that_kafka_deletes_from(
    stock: Feed, log_of: Callable[[str], str]
) -> None:
    topic = log_of(stock.name)
    stock.write(5)
    stock.run()
    stock.write(5)
    for policy in ("delete", "compact,delete"):
        altered_topic(stock, topic, policy)
        check_predicts(stock, "TopicError", f"topic '{topic}'", f"cleanup.policy={policy}, expected compact")
    altered_topic(stock, topic, "compact")
    stock.run()
    stock.write(5)
    lose_records(stock, topic)
    check_predicts(stock, "CheckpointError", f"topic '{topic}' begins at offset 2, expected 0")


@pytest.mark.extended
def test_a_retry_of_a_window_whose_log_lost_records_since_publishes_nothing(stock: Feed) -> None:
    """A retry of Airflow's job does not plan, so the lease checks this, too."""
    stock.write(5)
    stock.run()
    stock.write(20)
    window = json.loads(stock.command("plan", stock.name, "--json").stdout)["window"]
    lose_records(stock, commit_log_topic(stock.name))
    ids = stock.ids()
    run = stock.begin(windows=[window])
    assert run.result() == 2, run.text()
    assert "begins at offset 2, expected 0" in run.text()
    assert stock.ids() == ids


def test_check_fails_as_the_run_does_where_brokers_allow_no_such_timeout(
    mysql_server: MysqlServer, unique_name: str, tmp_path: Path, runner: Runner, spark_connect: SparkConnectServer
) -> None:
    """A run uses no longer timeout than its settings say: a fence of 60 seconds would be refused here."""
    properties = {"transaction.max.timeout.ms": 30_000}
    with (
        run_server(KafkaBroker(tmp_path / "own", properties=properties, owner=ProcessId.own(), quick=True)) as broker,
        fresh_feed(mysql_server, broker, unique_name, tmp_path, runner) as feed,
    ):
        feed.use_connect(spark_connect.url)
        feed.configure(transaction_timeout_seconds=30)
        assert run_check(feed)["wrong"] == []
        feed.write(5)
        feed.run()
        feed.check()
        feed.write(5)
        feed.configure()
        check_predicts(feed, "SettingsError", "a timeout of 120 seconds", "transaction.max.timeout.ms or less")


@pytest.mark.extended
def test_check_fails_as_the_run_does_for_a_purged_reset_or_other_binlog(
    kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> None:
    with run_server(MysqlServer(tmp_path / "own", owner=ProcessId.own(), quick=True)) as server:
        feed = Feed(unique_name, server, kafka_broker, tmp_path, runner)
        feed.write(5)
        feed.run()
        feed.write(5)
        server.execute("FLUSH BINARY LOGS")
        (last, *_) = server.execute("SHOW BINARY LOG STATUS")[0]
        server.execute(f"PURGE BINARY LOGS TO '{last}'")
        check_predicts(feed, "BinlogGoneError", "is not on the server", last)
        server.execute("RESET BINARY LOGS AND GTIDS")
        feed.write(1)
        check_predicts(feed, "BinlogGoneError", "was reset")
        server.stop()
        (server.data / "auto.cnf").unlink()  # the server makes itself a new server_uuid
        server.start()
        feed.write(1)
        check_predicts(feed, "SourceUnavailableError", "found server", code=1)
