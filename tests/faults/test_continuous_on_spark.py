"""A continuous run with Spark's own processes loses servers and parts of Spark: nothing is lost or published twice."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.conftest import Pair, run_for
from faults.feed import Feed, Run, Runner, processes_of
from faults.test_continuous import (
    LATER_STAGES,
    check_ended_by_handover,
    check_goes_on_at_the_follower,
    check_published_by,
    has_rows,
    run_bounded,
    sealed,
    wait,
    write_until,
    write_until_held,
    writing,
)
from faults.test_spark_cluster import executors, hold, use_cluster
from long_form import long

from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.process import run_server
from devstack.spark_cluster import SparkCluster

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1200)]

OUTAGE_SECONDS = 60.0
"""Longer than the timeout of each request, and shorter than that of a transaction, in which a run may wait for Kafka
without an error."""

SPARKS = pytest.mark.parametrize("spark_feed", ["local", *long("connect", "cluster")], indirect=True)


def use_spark(feed: Feed, where: str, request: pytest.FixtureRequest) -> None:
    """Let the next runs use a local master in a process of their own, the Connect server, or the cluster."""
    if where == "connect":
        feed.use_connect(request.getfixturevalue("spark_connect").url)
    elif where == "cluster":
        cluster: SparkCluster = request.getfixturevalue("spark_cluster")
        feed.environment["SPARK_CONF_DIR"] = str(cluster.conf_folder)
        use_cluster(feed, cluster)


@pytest.fixture
def spark_feed(continuous: Feed, request: pytest.FixtureRequest) -> Feed:
    """A feed whose runs, of ten minutes each, use the Spark that the test's parameter names."""
    use_spark(continuous, request.param, request)
    run_for(continuous, "10m")
    return continuous


def begin(feed: Feed, windows: int = 2) -> Run:
    """Begin a run, and wait until it has sealed some windows."""
    feed.write(3)
    run = feed.begin(spark=True)
    write_until(feed, lambda: len(sealed(run)) >= windows, run)
    return run


@pytest.fixture
def own_mysql(tmp_path: Path) -> Iterator[MysqlServer]:
    """A server that the test stops."""
    with run_server(MysqlServer(tmp_path / "mysql", owner=ProcessId.own(), quick=True)) as server:
        yield server


@pytest.mark.long
@SPARKS
def test_run_goes_on_after_kafka_was_down_for_a_minute(spark_feed: Feed) -> None:
    feed = spark_feed
    run = begin(feed)
    with writing(feed):
        feed.kafka.kill()
        time.sleep(OUTAGE_SECONDS)
        assert run.process.poll() is None, run.text()
        feed.kafka.start()
    check_published_by(run, feed)


@pytest.mark.parametrize("how", ["stop", *long("kill")])
@pytest.mark.parametrize("where", ["local", *long("connect", "cluster")])
def test_run_goes_on_after_mysql_was_restarted(
    own_mysql: MysqlServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    tmp_path: Path,
    runner: Runner,
    where: str,
    how: str,
    request: pytest.FixtureRequest,
) -> None:
    feed = Feed(unique_name, own_mysql, kafka_broker, tmp_path, runner)
    use_spark(feed, where, request)
    run_for(feed, "10m")
    run = begin(feed)
    try:
        for _ in range(2):
            feed.write(20)
            getattr(own_mysql, how)()
            wait(lambda: "the run tries again" in run.text(), run)
            own_mysql.start()
            feed.write(5)
            wait(lambda: has_rows(feed), run)
    finally:
        run.kill()
    run_bounded(feed)


@SPARKS
def test_ddl_in_each_window_publishes_each_row_with_its_columns(spark_feed: Feed) -> None:
    """Each statement finds the table empty, as a consumer does not apply DDL to the rows that it has."""
    feed = spark_feed
    run = begin(feed)
    changes = [
        "ADD COLUMN a INT NOT NULL DEFAULT 7 FIRST",
        "RENAME COLUMN a TO b",
        "MODIFY b VARCHAR(20) AFTER text",
        "ADD COLUMN c ENUM('x', 'y') NOT NULL DEFAULT 'y' AFTER id, DROP COLUMN b",
        "DROP COLUMN c",
    ]
    for number, change in enumerate(changes):
        feed.mysql.execute(
            "DELETE FROM journal",
            f"ALTER TABLE journal {change}",
            "INSERT INTO journal (text) VALUES ('after'), ('it')",
            f"CREATE TABLE new{number} (id INT PRIMARY KEY, text TEXT)",
            f"INSERT INTO new{number} VALUES (1, 'new')",
            database=feed.name,
        )
        feed.write(1)
        wait(lambda: has_rows(feed), run)
    for number in range(len(changes)):
        assert len(feed.records(f"new{number}")) == 1
    check_published_by(run, feed)


@pytest.mark.long
@SPARKS
def test_run_that_slept_while_another_went_on_publishes_nothing_twice(
    spark_feed: Feed, request: pytest.FixtureRequest
) -> None:
    feed = spark_feed
    limit_cores(feed, request)
    asleep = begin(feed)
    with writing(feed):
        time.sleep(feed.random.random())
        for pid in processes_of(asleep.process.pid):
            os.kill(pid, signal.SIGSTOP)
        other = feed.begin(spark=True)
        wait(lambda: len(sealed(other)) > 2, other)
        for pid in processes_of(asleep.process.pid):
            os.kill(pid, signal.SIGCONT)
        time.sleep(3)
        before = sealed(other)[-1]
        wait(lambda: sealed(other)[-1] > before + 1 or asleep.process.poll() is None, other)
    asleep.kill()
    check_published_by(other, feed)


@pytest.mark.long
@SPARKS
def test_run_that_is_killed_is_followed_by_one_that_repeats_nothing(spark_feed: Feed) -> None:
    feed = spark_feed
    first = begin(feed)
    with writing(feed):
        time.sleep(feed.random.random())
        first.kill()
        second = begin(feed)
    check_published_by(second, feed)


def limit_cores(feed: Feed, request: pytest.FixtureRequest) -> None:
    """On the cluster, leave one of the two executors to another run."""
    if "cluster" in request.node.name:
        use_cluster(feed, request.getfixturevalue("spark_cluster"), conf={"spark.cores.max": "1"})


def begin_handing_over(feed: Feed) -> Run:
    """Begin a run that takes over and hands over, as those of Airflow."""
    return feed.begin_python("", str(Path(__file__).with_name("handover_run.py")), feed.name)


@pytest.mark.long
@SPARKS
def test_next_run_takes_over_without_a_gap(spark_feed: Feed, request: pytest.FixtureRequest) -> None:
    feed = spark_feed
    limit_cores(feed, request)
    older = begin_handing_over(feed)
    write_until(feed, lambda: len(sealed(older)) > 3, older)
    with writing(feed):
        newer = begin_handing_over(feed)
        wait(lambda: len(sealed(newer)) > 3, newer)
    check_ended_by_handover(older)
    assert sealed(newer)[1] > sealed(older)[-1], "the older run sealed at most the window that it had begun"
    check_published_by(newer, feed)


@pytest.mark.long
@pytest.mark.parametrize("spark_feed", ["cluster"], indirect=True)
def test_next_run_goes_on_after_the_older_one_if_the_cluster_has_room_for_one(spark_feed: Feed) -> None:
    """The older run has all executors until its time is over, and then 90 seconds."""
    feed = spark_feed
    run_for(feed, "10s")
    older = begin_handing_over(feed)
    write_until(feed, lambda: len(sealed(older)) > 1, older)
    newer = begin_handing_over(feed)
    with writing(feed):
        assert older.result() == 0, older.text()
        assert "has taken over" not in older.text()
        wait(lambda: len(sealed(newer)) > 1, newer)
    check_published_by(newer, feed)


@pytest.mark.parametrize("stage", LATER_STAGES)
def test_killed_at_a_stage_on_a_local_master_the_next_run_repeats_nothing(continuous: Feed, stage: str) -> None:
    feed = continuous
    feed.settings["spark"] = {"master": "local[2]"}
    run_for(feed, "10m")
    feed.write(5)
    run = feed.begin(f"{stage}:2", spark=True)
    write_until_held(feed, run)
    feed.write(5)
    run.kill()
    run_bounded(feed)


@pytest.mark.long
@pytest.mark.parametrize("stage", ["in_decode", "in_open_transaction", "after_transaction_commit"])
def test_killed_at_a_stage_of_executors_the_next_run_repeats_nothing(
    continuous: Feed, spark_cluster: SparkCluster, stage: str
) -> None:
    feed = continuous
    feed.environment["SPARK_CONF_DIR"] = str(spark_cluster.conf_folder)
    run_for(feed, "10m")
    feed.write(5)
    with writing(feed):
        run = hold(feed, spark_cluster, f"{stage}:2")
    run.kill()
    run.file.unlink(missing_ok=True)
    run_bounded(feed)


@pytest.mark.long
@pytest.mark.parametrize("where", ["local", "connect", "cluster"])
@pytest.mark.parametrize("pair", [MysqlServer], indirect=True, ids=["mysql"])
def test_run_goes_on_at_the_next_host_after_a_failover(
    pair: Pair, pair_feed: Feed, where: str, request: pytest.FixtureRequest
) -> None:
    source, follower = pair
    feed = pair_feed
    feed.hosts = f"127.0.0.1:{source.port},127.0.0.1:{follower.port}"
    use_spark(feed, where, request)
    run_for(feed, "10m")
    run = begin(feed)
    check_goes_on_at_the_follower(run, pair, feed)


@pytest.mark.parametrize("spark_feed", ["cluster"], indirect=True)
def test_run_goes_on_after_its_executors_were_killed(spark_feed: Feed, spark_cluster: SparkCluster) -> None:
    feed = spark_feed
    run = begin(feed)
    with writing(feed):
        for _ in range(2):
            victims = [*executors(spark_cluster)]
            assert victims
            for executor in victims:
                executor.kill()
            before = sealed(run)[-1]
            wait(lambda before=before: sealed(run)[-1] > before + 2, run)  # type: ignore[misc]
    check_published_by(run, feed)
