"""An executor is lost between decoding and publishing, and the source is down when the retry decodes again."""

from __future__ import annotations

import os
import signal

import pytest
from faults.feed import Feed, Run, processes_of
from faults.proxy import Proxy
from faults.test_spark_killed import command_of

from devstack.spark_connect import SparkConnectServer

pytestmark = [pytest.mark.extended, pytest.mark.timeout(900)]


def executors_of(run: Run) -> list[int]:
    pids = processes_of(run.process.pid)
    return [pid for pid in pids if "CoarseGrainedExecutorBackend" in command_of(pid)]


def test_lost_executor_fails_the_run_and_the_next_run_publishes_all(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    proxy = Proxy(feed.mysql.port)
    feed.mysql_port = proxy.port
    conf = {"spark.executor.memory": "512m", "spark.task.maxFailures": "1"}
    feed.settings["spark"] = {"master": "local-cluster[2,1,768]", "conf": conf}
    feed.configure()
    try:
        for _ in range(4):  # four files are four slices, two an executor
            feed.write(20)
            feed.mysql.execute("FLUSH BINARY LOGS")
        run = feed.begin("after_decode", spark=True)
        assert run.wait_until_held(400), run.text()
        executor, *_ = executors_of(run)
        proxy.cut()
        os.kill(executor, signal.SIGKILL)
        run.go_on()
        assert run.result() == 1, run.text()
        assert "Checkpoint block" in run.text().splitlines()[-1], run.text()
        proxy.mend()
        feed.write(5)
        feed.use_connect(spark_connect.url)
        feed.run(spark=True)
        feed.check()
    finally:
        proxy.close()
