"""Two runs of one pipeline: the second stops before it publishes; a first run that was stopped is fenced."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from faults.feed import Feed
from integration.kafka_pipeline import Pipeline

from changefeed.errors import PipelineBusyError
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.lease import Lease
from devstack.kafka import KafkaBroker
from devstack.spark_connect import SparkConnectServer

pytestmark = pytest.mark.timeout(600)


def test_a_second_run_stops_before_it_publishes_and_the_first_goes_on(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    feed.write()
    first = feed.begin("in_open_transaction:2")
    assert first.wait_until_held(), first.text()
    before = len(feed.ids())
    feed.use_connect(spark_connect.url)
    second = feed.begin(spark=True)
    assert second.result() == 1
    assert "PipelineBusyError" in second.text()
    assert "alive" in second.text()
    assert len(feed.ids()) == before
    first.go_on()
    assert first.result() == 0, first.text()
    feed.check()


@pytest.mark.extended
def test_a_first_run_that_stood_still_is_fenced_when_it_wakes(feed: Feed) -> None:
    feed.write()
    zombie = feed.begin("in_open_transaction:2")
    assert zombie.wait_until_held(), zombie.text()
    os.kill(zombie.process.pid, signal.SIGSTOP)
    time.sleep(2.5)  # longer than lease_seconds
    feed.run()
    ids = feed.ids()
    os.kill(zombie.process.pid, signal.SIGCONT)
    zombie.go_on()
    assert zombie.result() == 1
    assert "FencedError" in zombie.text()
    assert feed.ids() == ids
    feed.check()


@pytest.mark.extended
def test_run_waits_for_a_short_run_and_with_a_long_timeout_for_all(
    kafka_broker: KafkaBroker, unique_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "changefeed.kafka.lease")
    connection = KafkaConnection(kafka_broker.bootstrap)
    topic = Pipeline(connection, unique_name).log_topic
    seconds, order = 3.0, []  # a claim is repeated in time also on a busy machine

    def claim(name: str, **timeouts: float) -> None:
        with Lease(connection, topic, unique_name, seconds, **timeouts):
            order.append(name)

    for holder, waiter in (({"brief": True}, {}), ({}, {"timeout_seconds": 60.0})):
        with Lease(connection, topic, unique_name, seconds, **holder):
            waiting = threading.Thread(target=claim, args=("waiter",), kwargs=waiter)
            waiting.start()
            time.sleep(2 * seconds)
            if not holder:
                with pytest.raises(PipelineBusyError, match="is alive"):
                    claim("impatient")
            order.append("holder")
        waiting.join(240)
    assert order == ["holder", "waiter"] * 2
    assert "which still works" in caplog.text


DRIVER = """
import sys, time
from pathlib import Path
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.lease import Lease
from changefeed.spark.task_watch import end_with_task

end_with_task()
bootstrap, topic, name, folder = sys.argv[1:]
with Lease(KafkaConnection(bootstrap), topic, name, 600):
    try:
        Path(folder, "held").touch()
        time.sleep(600)
    finally:
        Path(folder, "ends").touch()
        time.sleep(600)
"""


@pytest.mark.extended
def test_driver_in_a_container_returns_its_claim_before_it_ends(
    kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """YARN sends SIGKILL 250 ms after SIGTERM, which is too short for the end in order."""
    connection = KafkaConnection(kafka_broker.bootstrap)
    topic = Pipeline(connection, unique_name).log_topic
    arguments = [kafka_broker.bootstrap, topic, unique_name, str(tmp_path)]
    with subprocess.Popen(
        [sys.executable, "-c", DRIVER, *arguments], env={**os.environ, "CONTAINER_ID": "container_1_1_01_1"}
    ) as driver:
        try:
            wait_for(driver, tmp_path / "held")
            driver.send_signal(signal.SIGTERM)
            wait_for(driver, tmp_path / "ends")
        finally:
            driver.kill()
    with Lease(connection, topic, unique_name, 600):
        assert "did not end in order" not in caplog.text


def wait_for(process: subprocess.Popen[bytes], file: Path) -> None:
    while not file.exists():
        assert process.poll() is None
        time.sleep(0.05)
