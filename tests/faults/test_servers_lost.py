"""Broker, network and quota fail in the middle of a run: the next run leaves no gap and no duplicate."""

from __future__ import annotations

import os
import signal
import time

import pytest
from faults.feed import TABLES, Feed
from faults.proxy import Proxy
from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from long_form import long

from devstack.spark_connect import SparkConnectServer

pytestmark = pytest.mark.timeout(1200)


@pytest.mark.extended
@pytest.mark.parametrize("stage", ["in_open_transaction:2", *long("after_transaction_commit", "before_seal")])
def test_a_broker_killed_and_restarted_costs_at_most_the_run(feed: Feed, stage: str) -> None:
    feed.write()
    run = feed.begin(stage)
    assert run.wait_until_held(), run.text()
    feed.kafka.kill()
    feed.kafka.start()
    run.go_on()
    assert run.result() in (0, 1), run.text()
    feed.write(5)
    feed.run_until_current()
    feed.check()


@pytest.mark.extended
def test_frozen_broker_costs_at_most_the_run(feed: Feed) -> None:
    """Connections stay open, and the broker does not answer for longer than a transaction may stay open."""
    feed.configure(transaction_seconds=2, transaction_timeout_seconds=5)
    feed.write()
    run = feed.begin("in_open_transaction:2")
    assert run.wait_until_held(), run.text()
    assert feed.kafka.pid is not None
    os.kill(feed.kafka.pid, signal.SIGSTOP)
    try:
        run.go_on()
        time.sleep(7)
    finally:
        os.kill(feed.kafka.pid, signal.SIGCONT)
    assert run.result() in (0, 1), run.text()
    feed.write(5)
    feed.run_until_current()
    feed.check()


@pytest.mark.extended
def test_a_broker_that_takes_no_records_for_now_costs_at_most_the_run(feed: Feed) -> None:
    """It refuses each batch from the second transaction on, as after a change of limits or quotas."""
    feed.write()
    run = feed.begin("after_transaction_commit")
    assert run.wait_until_held(), run.text()

    def takes(size_bytes: int) -> None:
        topics = [f"{feed.name}.{table}" for table in TABLES]
        configs = {"max.message.bytes": str(size_bytes)}
        with KafkaAdminClient(bootstrap_servers=feed.kafka.bootstrap) as admin:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs) for topic in topics])

    takes(150)  # more than the marker that ends a transaction, less than a row
    run.go_on()
    assert run.result() in (1, 2), run.text()
    assert feed.name in run.text().splitlines()[-1]
    takes(1_000_000)
    feed.write(5)
    feed.run_until_current()
    feed.check()


@pytest.mark.extended
def test_the_network_to_mysql_cut_in_decoding_costs_at_most_the_run(feed: Feed, mysql_proxy: Proxy) -> None:
    feed.write()
    run = feed.begin("in_decode")
    assert run.wait_until_held(), run.text()
    mysql_proxy.cut()
    run.go_on()
    assert run.result() in (0, 1), run.text()
    refused = feed.begin()
    assert refused.result() == 1
    assert "SourceUnavailableError" in refused.text()
    mysql_proxy.mend()
    feed.write(5)
    feed.run_until_current()
    feed.check()


def test_record_refused_by_topic_stops_run_with_its_key_and_next_run_continues(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    feed.settings["topics"] = {"partitions": 2, "configs": {"max.message.bytes": "1000"}}
    feed.configure()
    feed.write(3)
    feed.mysql.execute(
        f"ALTER TABLE `{feed.name}`.accounts MODIFY text VARCHAR(4000)",
        f"REPLACE INTO `{feed.name}`.accounts VALUES (7, 1, REPEAT('x', 3000))",
    )
    feed.use_connect(spark_connect.url)
    run = feed.begin(spark=True)
    assert run.result() == 1
    assert "BadRecordError" in run.text()
    assert f"{feed.name}.accounts" in run.text()
    assert '{"id":7}' in run.text()
    feed.configure(on_bad_record="dead_letter")
    feed.run(spark=True)
    letters = feed.command("windows", feed.name, "--json")
    assert '"dead_letters": 1' in letters.stdout


@pytest.mark.extended
def test_a_statement_in_statement_format_stops_the_run_before_anything_is_sealed(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    feed.write(3)
    feed.run()
    feed.mysql.execute(
        "SET SESSION binlog_format = 'STATEMENT'", f"UPDATE `{feed.name}`.accounts SET version = version + 100"
    )
    feed.use_connect(spark_connect.url)
    run = feed.begin(spark=True)
    assert run.result() == 1, run.text()
    assert "statement format" in run.text()
    assert "UPDATE" in run.text()
    assert '"number": 2' not in feed.command("windows", feed.name, "--json").stdout
