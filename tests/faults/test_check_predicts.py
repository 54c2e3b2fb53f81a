"""`check` fails where the next run is refused, with the words that the run ends with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kafka
import pytest
from faults.feed import Feed, Runner, fresh_feed

from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.process import started
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


def checked(feed: Feed) -> dict[str, Any]:
    run = feed.fork_command("", "check", feed.name, "--json")
    code, text = run.result(), run.text()
    assert '{\n  "pipelines"' in text, text
    ((report,), _) = json.JSONDecoder().raw_decode(text[text.index('{\n  "pipelines"') :])[0].values()
    assert code == (1 if report["wrong"] else 0), report
    return dict(report)


def predicted(feed: Feed, *words: str) -> None:
    """What check fails with has the words, and is what the run ends with."""
    (wrong,) = checked(feed)["wrong"]
    ids = feed.ids()
    run = feed.begin()
    assert run.result() == 2, run.text()
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
    assert checked(stock)["wrong"] == []
    stock.settings["rows"] = {f"{stock.name}.accounts": "verzion > 0"}
    stock.configure()
    stock.write(20)
    predicted(stock, "SettingsError", "'verzion'", "did you mean 'version'")
    del stock.settings["rows"]
    stock.configure()
    stock.write(40)
    run = stock.begin("after_transaction_commit:2")
    assert run.wait_until_held(), run.text()
    run.kill()
    stock.settings["skip"] = ["d"]
    stock.configure()
    predicted(stock, "SettingsError", "was published in part", "settings changed")
    del stock.settings["skip"]
    stock.configure()
    stock.run()
    kept = stock.state.read_bytes()
    stock.state.unlink()
    predicted(stock, "CheckpointError", f"changefeed recover {stock.name}")
    stock.state.write_bytes(kept)
    admin = kafka.KafkaAdminClient(bootstrap_servers=stock.kafka.bootstrap)
    admin.delete_topics([f"{stock.name}.accounts"])
    while f"{stock.name}.accounts" in admin.list_topics():
        pass
    stock.write(5)
    predicted(stock, "TopicError", f"topic '{stock.name}.accounts' was removed: Kafka's id for it was")
    assert f"{stock.name}.accounts" not in admin.list_topics(), "the run made it not again, which would hide that"
    admin.close()


@pytest.mark.extended
def test_check_fails_as_the_run_does_for_a_purged_reset_or_other_binlog(
    kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> None:
    with started(MysqlServer(tmp_path / "own", owner=ProcessId.own(), quick=True)) as server:
        feed = Feed(unique_name, server, kafka_broker, tmp_path, runner)
        feed.write(5)
        feed.run()
        feed.write(5)
        server.execute("FLUSH BINARY LOGS")
        (last, *_) = server.execute("SHOW BINARY LOG STATUS")[0]
        server.execute(f"PURGE BINARY LOGS TO '{last}'")
        predicted(feed, "BinlogGoneError", "is not on the server", last)
        server.execute("RESET BINARY LOGS AND GTIDS")
        feed.write(1)
        predicted(feed, "BinlogGoneError", "was reset")
        server.stop()
        (server.data / "auto.cnf").unlink()  # the server makes itself a new server_uuid
        server.start()
        feed.write(1)
        predicted(feed, "BinlogGoneError", "found server")
