"""Speculation: a second copy of a publishing task fences the first, and the run succeeds."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from faults.conftest import LONG
from faults.feed import PROJECT, Feed, Run
from faults.inline_spark import InlineSpark, Result, TaskInput

from changefeed.errors import FencedError
from changefeed.ingest.window_run import ingest
from changefeed.model import fault_point
from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import plan
from changefeed.settings.file import read_pipeline
from changefeed.spark.conf import job_conf
from changefeed.state.table_store import TableCheckpointStore
from devstack.port import LOCALHOST
from devstack.spark_cluster import SparkCluster

pytestmark = [pytest.mark.extended, pytest.mark.timeout(900)]


def connections_of(feed: Feed) -> PipelineConnections:
    environment = feed.env()
    path = Path(environment["CHANGEFEED_PIPELINES"]) / f"{feed.name}.yaml"
    return PipelineConnections(read_pipeline(path), lambda name: environment[f"AIRFLOW_CONN_{name.upper()}"])


def window_of(feed: Feed) -> Window:
    return plan(connections_of(feed), TableCheckpointStore(feed.env()["AIRFLOW_CONN_STATE"])).window


class CopyingSpark(InlineSpark):
    """Starts a second copy of the publishing task while the first has an open transaction, as Spark does for slow
    tasks.

    As with Spark, the first copy that comes to its end is the task's result, and the other is ended; one that fails is
    none, as long as another is at work.
    """

    may_copy_tasks = True

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.failed: list[BaseException] = []
        self._in_transaction = [threading.Event(), threading.Event()]
        self._released = threading.Event()
        self._copy = threading.local()
        monkeypatch.setattr(fault_point, "reach", self._reached)

    def _reached(self, stage: str) -> None:
        if stage == "in_open_transaction":
            self._in_transaction[self._copy.number].set()
            assert self._released.wait(240)

    def results_of(self, tasks: Sequence[TaskInput], stage: Callable[[TaskInput], Iterable[Result]]) -> list[Result]:
        def run(number: int) -> list[Result]:
            self._copy.number = number
            return super(CopyingSpark, self).results_of(tasks, stage)

        with ThreadPoolExecutor(2) as threads:
            first = threads.submit(run, 0)
            assert self._in_transaction[0].wait(240)
            second = threads.submit(run, 1)
            assert self._in_transaction[1].wait(240)  # it took over
            self._released.set()
            try:
                return first.result()
            except FencedError as error:
                self.failed.append(error)
            return second.result()


def test_a_task_that_its_own_copy_fenced_is_no_result_and_the_copys_counts(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.write(20)
    window = window_of(feed)
    spark = CopyingSpark(monkeypatch)
    manifest = ingest(spark, connections_of(feed), window)
    assert len(spark.failed) == 1
    assert manifest.message_count > 0
    monkeypatch.undo()
    feed.run()  # commits it
    feed.check()


def submit_window(feed: Feed, window: Window, cluster: SparkCluster) -> Run:
    """Submit jobs/ingest.py to a cluster with speculation."""
    held, log = feed.folder / "held", feed.folder / "submitted.log"
    environment = feed.env() | {
        "CHANGEFEED_FAULT": "in_open_transaction",
        "CHANGEFEED_FAULT_FILE": str(held),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": LOCALHOST,
        "SPARK_CONF_DIR": str(cluster.conf_folder),
    }
    conf = job_conf({}, cluster.url) | {
        "spark.speculation": "true",
        "spark.speculation.interval": "50ms",
        "spark.speculation.task.duration.threshold": "1s",
        "spark.executor.memory": "512m",
        "spark.ui.enabled": "false",
        **{f"spark.executorEnv.{name}": environment[name] for name in environment if name.startswith("CHANGEFEED_")},
        "spark.executorEnv.PYTHONPATH": environment["PYTHONPATH"],
    }
    options = [word for name, value in conf.items() for word in ("--conf", f"{name}={value}")]
    program = str(Path(sys.executable).with_name("spark-submit"))
    plan = feed.folder / "plan.json"
    plan.write_text(json.dumps({"plan": {"windows": [window.to_json()]}}))
    job = [str(PROJECT / "jobs" / "ingest.py"), str(plan), feed.name]
    with log.open("w") as output:
        process = subprocess.Popen(
            [program, "--master", cluster.url, *options, *job],
            env=environment,
            cwd=feed.folder,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    return Run(process, log, held)


if LONG:  # it takes six JVMs

    def test_sparks_own_copy_takes_over_and_the_run_ends_well(feed: Feed, spark_cluster: SparkCluster) -> None:
        feed.write(40)
        window = window_of(feed)
        run = submit_window(feed, window, spark_cluster)
        assert run.wait_until_held(240), run.text()
        first = run.file.stat().st_mtime_ns
        deadline = time.monotonic() + 120
        while run.file.stat().st_mtime_ns == first:  # until the copy has an open transaction too
            assert time.monotonic() < deadline, f"no copy was started:\n{run.text()[-3000:]}"
            assert run.process.poll() is None, run.text()
            time.sleep(0.05)
        run.go_on()
        assert run.result() == 0, run.text()
        feed.run()  # commits it
        feed.check()
