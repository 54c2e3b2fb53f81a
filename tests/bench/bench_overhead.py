"""The cost of a window of ten rows, a common size, against spark-submit of an empty script.

All run alternately, after a first round that creates topics and warms caches up:

- empty: spark-submit of a script that creates a session and stops it
- submitted: as Airflow does it, plan, spark-submit of jobs/ingest.py, commit; the middle one is `job`
- run: the command `changefeed run`
- connect: plan, jobs/ingest.py at a Spark Connect server that is up, commit; `job` is from the task's start to sealed

Prints seconds, those of each phase by the manifest, and ratios to the empty script of the same round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "include"))

from changefeed.ingest.commit import commit  # noqa: E402
from changefeed.model.connection import from_environment  # noqa: E402 - after the path
from changefeed.pipeline.checkpoint_store import checkpoint_store  # noqa: E402
from changefeed.pipeline.connections import PipelineConnections  # noqa: E402
from changefeed.pipeline.plan import plan  # noqa: E402
from changefeed.settings.file import load_pipeline  # noqa: E402
from changefeed.spark import class_archive  # noqa: E402
from changefeed.spark.conf import SMALL_JOB_CONF, job_conf  # noqa: E402
from devstack.home import Home  # noqa: E402
from devstack.identity import ProcessId  # noqa: E402
from devstack.kafka import KafkaBroker  # noqa: E402
from devstack.mysql import MysqlServer  # noqa: E402
from devstack.process import run_server  # noqa: E402
from devstack.spark_connect import SparkConnectServer  # noqa: E402

ROWS = 10
YAML = """\
name: {name}
source: {{connection: mysql}}
kafka: {{connection: kafka}}
tables: {{include: ["overhead.*"]}}
topics: {{template: "{{pipeline}}.{{table}}"}}
checkpoint: {{store: table, connection: state}}
start: latest
spark: {spark}
"""
EMPTY = "from pyspark.sql import SparkSession\nSparkSession.builder.getOrCreate().stop()\n"
PROGRAMS = Path(sys.executable).parent
JOB = str(PROJECT / "jobs" / "ingest.py")

Seconds = dict[str, float]
"""Seconds by purpose, with the sum as `all`."""


def seconds_of(*command: str | Path) -> float:
    """Run it; SystemExit with the end of its output if it fails."""
    began = time.monotonic()
    done = subprocess.run(
        [*map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-3000:]}")
    return time.monotonic() - began


def submit(script: str | Path, *arguments: str | Path, conf: Mapping[str, str] | None = None) -> float:
    """Seconds of a spark-submit."""
    settings = [part for name, value in (conf or {}).items() for part in ("--conf", f"{name}={value}")]
    return seconds_of(PROGRAMS / "spark-submit", "--master", "local[2]", *settings, script, *arguments)


class Ways:
    """The pipelines, one for each way, in a folder with their state."""

    def __init__(self, folder: Path, mysql: MysqlServer, kafka: KafkaBroker, connect: SparkConnectServer) -> None:
        self.folder, self.mysql, self.rows = folder, mysql, 0
        os.environ |= {
            "CHANGEFEED_PIPELINES": str(folder),
            "AIRFLOW_CONN_MYSQL": mysql.url,
            "AIRFLOW_CONN_KAFKA": f"kafka://{kafka.bootstrap}",
            "AIRFLOW_CONN_STATE": f"sqlite:///{folder / 'state.db'}",
            "PYTHONPATH": str(PROJECT / "include"),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        }
        (folder / "empty.py").write_text(EMPTY)
        mysql.execute("CREATE DATABASE overhead", "CREATE TABLE overhead.t (id INT PRIMARY KEY)")
        spark = {
            "submitted": '{master: "local[2]"}',
            "run": '{master: "local[2]"}',
            "connect": f'{{connect: "{connect.url}"}}',
        }
        for name, settings in spark.items():
            (folder / f"{name}.yaml").write_text(YAML.format(name=name, spark=settings))
            pipeline = load_pipeline(name)
            plan(
                PipelineConnections(pipeline, from_environment),
                checkpoint_store(PipelineConnections(pipeline, from_environment), None),
            )

    def round(self) -> dict[str, Seconds]:
        """Ten rows more, published in each way."""
        values = ", ".join(f"({self.rows + number})" for number in range(ROWS))
        self.mysql.execute(f"INSERT INTO overhead.t VALUES {values}")
        self.rows += ROWS
        return {
            "empty": {"all": submit(self.folder / "empty.py")},
            "submitted": self._as_tasks("submitted"),
            "run": {"all": seconds_of(PROGRAMS / "changefeed", "run", "run")},
            "connect": self._as_tasks("connect"),
        }

    def _as_tasks(self, name: str) -> Seconds:
        """Plan, job and commit, as Airflow's tasks do them."""
        pipeline = load_pipeline(name)
        connections, store = (
            PipelineConnections(pipeline, from_environment),
            checkpoint_store(PipelineConnections(pipeline, from_environment), None),
        )
        began = time.monotonic()
        planned = plan(connections, store)
        file = self.folder / "plan.json"
        file.write_text(json.dumps({"plan": {"windows": [planned.window.to_json()]}}))
        if name == "connect":
            job = seconds_of(sys.executable, JOB, file, name)
        else:
            job = submit(
                JOB, file, name, conf=job_conf({}, "local[2]", class_archive.with_class_archive(SMALL_JOB_CONF))
            )
        manifest = commit(connections, planned.window, planned.expected, store)
        if manifest.row_count != ROWS:
            raise SystemExit(f"{name}: {manifest.row_count} rows of {ROWS} were published")
        return {"all": time.monotonic() - began, "job": job, **manifest.seconds}


def spread(figures: Iterable[float]) -> str:
    """Minimum, median and maximum."""
    found = sorted(figures)
    return "".join(f"{figure:8.2f}" for figure in (found[0], statistics.median(found), found[-1]))


def measure(rounds: int) -> None:
    """Start the servers, measure all ways alternately, and print a table."""
    class_archive.make()  # as `make setup` does
    home, owner = Home.default(), ProcessId.own()
    with ExitStack() as stack:
        home.test.mkdir(parents=True, exist_ok=True)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=home.test)))
        options = {"binlog_row_metadata": "FULL"}
        mysql = stack.enter_context(run_server(MysqlServer(folder / "mysql", options=options, owner=owner)))
        kafka = stack.enter_context(run_server(KafkaBroker(folder / "kafka", owner=owner)))
        connect = stack.enter_context(run_server(SparkConnectServer(folder / "connect", owner=owner)))
        ways = Ways(folder, mysql, kafka, connect)
        ways.round()
        attempts: dict[str, list[Seconds]] = defaultdict(list)
        for number in range(rounds):
            for way, seconds in ways.round().items():
                attempts[way].append(seconds)
            line = ", ".join(f"{way} {found[-1]['all']:.2f}" for way, found in attempts.items())
            print(f"  {number + 1}: {line}", flush=True)
    headings = f"{'min':>8}{'median':>8}{'max':>8}"
    print(f"\n{f'{ROWS} rows, seconds':16}{headings}   times empty{headings}")
    for way, found in attempts.items():
        ratios = spread(one["all"] / empty["all"] for one, empty in zip(found, attempts["empty"], strict=True))
        print(f"{way:16}{spread(one['all'] for one in found)}{'':14}{ratios if way != 'empty' else ''}")
        for phase in list(found[0])[1:]:
            print(f"  {phase:14}{spread(one[phase] for one in found)}")
    print(flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=3)
    measure(arguments.parse_args().rounds)


if __name__ == "__main__":
    main()
