"""Attempts of the task `ingest` whose driver is on a cluster, each in its own process."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from airflow_database import environment
from faults.feed import Feed, Run
from faults.test_speculation import connections_of

from changefeed.ingest.cut import cut
from changefeed.pipeline.plan import plan
from changefeed.settings.requests.run import RunBounds
from changefeed.state.table_store import TableCheckpointStore

OPERATOR = """\
import json, logging, signal, sys
from pathlib import Path
from types import SimpleNamespace
from changefeed.airflow.ingest_operator import IngestOperator

def kill(*_):
    job.on_kill()
    sys.exit(9)

logging.basicConfig(level=logging.INFO, stream=sys.stdout)
planned = json.loads(Path(sys.argv[2]).read_text())
task = SimpleNamespace(try_number=int(sys.argv[3]), xcom_pull=lambda task_ids: planned)
job = IngestOperator(task_id="ingest", pipeline=sys.argv[1])
job.application_args = [sys.argv[1], "--attempt", sys.argv[3]]
signal.signal(signal.SIGTERM, kill)
job.execute({"ti": task})
"""


class ClusterTasks:
    """Attempts of a task with one plan: two windows, whose publishing tasks are held after their transactions."""

    def __init__(
        self, feed: Feed, conf: dict[str, str], connection: dict[str, object], environment: dict[str, str]
    ) -> None:
        """``conf`` is Spark's, ``connection`` Airflow's Spark connection, ``environment`` that of the task."""
        self.feed, self.held = feed, feed.folder / "held"
        self.connection, self.environment = {"conn_type": "spark", **connection}, environment
        self.plan, self.events = feed.folder / "plan.json", feed.folder / "events"
        self.events.mkdir()
        self.secret = feed.environment["CHANGEFEED_LOG_KEY"]
        feed.settings["commit_log"] = {"key": {"environment": "CHANGEFEED_LOG_KEY"}}
        fault = {"CHANGEFEED_FAULT": "after_transaction_commit", "CHANGEFEED_FAULT_FILE": str(self.held)}
        conf = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file:{self.events}",
            "spark.eventLog.compress": "false",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.instances": "1",
            "spark.executor.cores": "2",
            **conf,
            **{f"spark.executorEnv.{name}": value for name, value in fault.items()},
        }
        feed.settings["spark"] = {"deploy_mode": "cluster", "conf": conf}
        feed.configure()
        for _ in range(2):
            feed.write(10)
            feed.mysql.execute("FLUSH BINARY LOGS")
        connections = connections_of(feed)
        planned = plan(connections, TableCheckpointStore(feed.env()["AIRFLOW_CONN_STATE"]))
        self.plan.write_text(json.dumps(cut(connections, planned, RunBounds()).to_json()))

    def begin(self, attempt: int = 1) -> Run:
        env = environment(self.feed.folder / "airflow") | self.feed.env() | self.environment
        env |= {"AIRFLOW_CONN_SPARK_DEFAULT": json.dumps(self.connection), "TMPDIR": str(self.feed.folder)}
        log = self.feed.folder / f"task{next(self.feed.numbers)}.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-c", OPERATOR, self.feed.name, str(self.plan), str(attempt)],
                env=env,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
            )
        return Run(process, log, self.held)

    def release(self, run: Run) -> int:
        """The exit code of a task whose application is held, again in each publishing task."""

        def ended() -> bool:
            self.held.unlink(missing_ok=True)
            return run.process.poll() is not None

        wait(run, ended)
        return run.result()

    def publish_rest(self) -> str:
        """Run what is left on this machine, and check the topics; returns the run's output."""
        self.feed.settings["spark"] = {"master": "local[2]"}
        self.feed.configure()
        self.feed.write(5)
        text = self.feed.run()
        self.feed.check()
        return text


def kernel_cache() -> str:
    """The folder of compiled kernels, for processes without this one's variables."""
    return os.environ.get("CHANGEFEED_KERNEL_CACHE", str(Path(sys.prefix, "kernel-cache")))


def wait(run: Run, condition: Callable[[], object], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, run.text()[-4000:]
        time.sleep(0.1)


def files_with(secret: str, folder: Path) -> list[Path]:
    found = []
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file() and secret.encode() in path.read_bytes():
                found.append(path)
    return found
