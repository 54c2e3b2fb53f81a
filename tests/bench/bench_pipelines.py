"""CPU seconds of a run, and lag, of many pipelines that Airflow starts each minute: idle, and with ten new rows each.

An Airflow of its own runs each kind:

- empty: DAGs of the same three tasks, which do nothing: what Airflow costs
- submit: pipelines whose jobs are started by spark-submit
- connect: pipelines whose jobs use one Spark Connect server

In the minutes `idle` the task `plan` finds nothing and the other tasks are skipped; in the minutes `rows` ten rows are
inserted for each pipeline five seconds before its run is due.

Prints a line for each kind and load: ended runs; CPU seconds a run of all processes, and their parts: Airflow (those of
the kind `empty`), our code in Airflow's tasks, and Spark with its Python workers; and the lag of the slowest pipeline,
which is the time from an insert to the end of the next run. MySQL and Kafka are not counted.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT / "include"), str(Path(__file__).parent)]

from process_use import FamilyMeter, adopt_orphans  # noqa: E402 - after the path

from changefeed.spark import class_archive  # noqa: E402
from devstack.airflow import AirflowServer  # noqa: E402
from devstack.home import Home  # noqa: E402
from devstack.identity import ProcessId  # noqa: E402
from devstack.kafka import KafkaBroker  # noqa: E402
from devstack.mysql import MysqlServer  # noqa: E402
from devstack.process import run_server  # noqa: E402
from devstack.spark_connect import SparkConnectServer  # noqa: E402

ROWS = 10
BEFORE_DUE = 55.0
"""The second of each minute at which rows are inserted; runs are due at the next full minute."""
LONGEST_SECONDS = 1800
"""For all pipelines to end a run."""
YAML = """\
name: p{number}
source: {{connection: mysql, server_ids: {first_id}-{last_id}}}
kafka: {{connection: kafka}}
tables: {{include: ["{database}.t{number}"]}}
topics: {{template: "{database}.{{table}}"}}
start: latest
schedule: "* * * * *"
{spark}
"""
EMPTY = """\
from datetime import datetime
from pathlib import Path
from airflow.sdk import DAG, task

for number in range({pipelines}):
    with DAG(f"changefeed_ingest__p{{number}}", schedule="* * * * *", start_date=datetime(2026, 1, 1), catchup=False,
             max_active_runs=1) as dag:
        @task.short_circuit
        def plan():
            return Path("{go}").exists()

        @task
        def ingest():
            pass

        @task
        def commit():
            pass

        plan() >> ingest() >> commit()
    globals()[dag.dag_id] = dag
"""
KINDS = ("empty", "submit", "connect")
LOADS = ("idle", "rows")


def _is_spark(command: bytes) -> bool:
    return any(part in command for part in (b"/java\0", b"spark-submit", b"jobs/ingest.py", b"spark.daemon"))


@dataclass(frozen=True)
class Cost:
    """CPU seconds of some minutes, and what they were for."""

    runs: int
    total: float
    spark: float
    slowest_seconds: float


class Kind:
    """An Airflow with pipelines of one kind."""

    def __init__(self, name: str, folder: Path, pipelines: int, mysql: MysqlServer, kafka: KafkaBroker) -> None:
        self.name, self.folder, self.pipelines, self.mysql = name, folder, pipelines, mysql
        self.rows = 0
        self.connect = SparkConnectServer(folder / "spark", owner=ProcessId.own()) if name == "connect" else None
        self.yaml, self.dags = folder / "pipelines", folder / "dags"
        self.yaml.mkdir(parents=True)
        self.dags.mkdir()
        self.go = folder / "go"
        settings = {
            "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "60",
            "CHANGEFEED_PIPELINES": str(self.yaml),
        }
        if name == "empty":
            (self.dags / "empty.py").write_text(EMPTY.format(pipelines=pipelines, go=self.go))
            settings["AIRFLOW__CORE__DAGS_FOLDER"] = str(self.dags)
        self.airflow = AirflowServer(
            folder / "airflow",
            connections={
                "mysql": mysql.url,
                "kafka": f"kafka://{kafka.bootstrap}",
                "spark_default": json.dumps({"conn_type": "spark", "host": "local[2]"}),
            },
            settings=settings,
            owner=ProcessId.own(),
            quick=True,
        )

    def write(self) -> None:
        """Create the tables, and the pipelines' files."""
        database = f"bench_{self.name}"
        tables = [f"CREATE TABLE {database}.t{each} (id INT PRIMARY KEY)" for each in range(self.pipelines)]
        self.mysql.execute(f"CREATE DATABASE {database}", *tables)
        if self.name == "empty":
            return
        for number in range(self.pipelines):
            text = YAML.format(
                number=number,
                database=database,
                first_id=10_000 + 10 * number,
                last_id=10_009 + 10 * number,
                spark=f'spark: {{connect: "{self.connect.url}"}}' if self.connect else "",
            )
            (self.yaml / f"p{number}.yaml").write_text(text)

    def insert(self) -> None:
        """Ten rows more for each pipeline. The tasks of the empty DAGs are not skipped any more."""
        self.go.touch()
        values = ", ".join(f"({self.rows + each})" for each in range(ROWS))
        self.rows += ROWS
        tables = [f"bench_{self.name}.t{number}" for number in range(self.pipelines)]
        self.mysql.execute(*(f"INSERT INTO {table} VALUES {values}" for table in tables))

    def ended_runs(self, since: datetime) -> dict[str, list[tuple[datetime, datetime]]]:
        """Start and end of the runs that started after ``since`` and ended, in order, by DAG. SystemExit if one
        failed."""
        query = "SELECT dag_id, start_date, end_date, state FROM dag_run WHERE end_date IS NOT NULL ORDER BY start_date"
        found: dict[str, list[tuple[datetime, datetime]]] = {}
        with closing(sqlite3.connect(self.airflow.directory / "airflow.db", timeout=60)) as database:
            rows = database.execute(query).fetchall()
        for dag, *times, state in rows:
            start, end = (datetime.fromisoformat(text).replace(tzinfo=UTC) for text in times)
            if state != "success":
                raise SystemExit(f"{self.name}: a run of {dag} ended as {state}; see {self.airflow.directory / 'logs'}")
            if start >= since:
                found.setdefault(dag, []).append((start, end))
        return found

    def wait_for_runs(self, since: datetime) -> float:
        """Wait until each pipeline has ended a run that started after ``since``; seconds of the slowest."""
        began = time.monotonic()
        while len(runs := self.ended_runs(since)) < self.pipelines:
            if time.monotonic() - began > LONGEST_SECONDS:
                raise SystemExit(f"{self.name}: {len(runs)} of {self.pipelines} pipelines ended a run in time")
            time.sleep(1)
        return max((runs_of[0][1] - since).total_seconds() for runs_of in runs.values())

    def measure(self, minutes: int, *, with_rows: bool) -> Cost:
        """The cost of some minutes, until the changes of the last one are published."""
        wait_for_second(BEFORE_DUE)
        began, moments = datetime.now(UTC), []
        connect = [self.connect.pid] if self.connect and self.connect.pid else []
        with FamilyMeter([*self.airflow.pids, *connect], _is_spark) as meter:
            for _ in range(minutes):
                moments.append(datetime.now(UTC))
                if with_rows:
                    self.insert()
                time.sleep(1)
                wait_for_second(BEFORE_DUE)
            slowest = max(map(self.wait_for_runs, moments))
        runs = sum(map(len, self.ended_runs(began).values()))
        return Cost(runs, meter.used, meter.used_by_chosen, slowest)


def wait_for_second(second: float) -> None:
    """Wait until this second of a minute."""
    time.sleep((second - time.time()) % 60)


def measure(pipelines: int, minutes: int, kinds: list[str], loads: list[str]) -> None:
    """Start the servers, measure all kinds one after the other, and print a table."""
    adopt_orphans()
    class_archive.make()  # as `make setup` does
    subprocess.run([sys.executable, "-m", "changefeed.native"], check=True)  # else the first runs compile the kernels
    home, owner = Home.default(), ProcessId.own()
    print(f"{pipelines} pipelines{'':6}runs  CPU s/run  Airflow   ours  Spark  slowest lag, s", flush=True)
    with ExitStack() as stack:
        home.test.mkdir(parents=True, exist_ok=True)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=home.test)))
        options = {"binlog_row_metadata": "FULL"}
        mysql = stack.enter_context(run_server(MysqlServer(folder / "mysql", options=options, owner=owner)))
        kafka = stack.enter_context(run_server(KafkaBroker(folder / "kafka", owner=owner)))
        airflow: dict[str, float] = {}
        for name in kinds:
            kind = Kind(name, folder / name, pipelines, mysql, kafka)
            with ExitStack() as servers:
                if kind.connect:
                    servers.enter_context(run_server(kind.connect))
                kind.write()
                servers.enter_context(run_server(kind.airflow))
                kind.wait_for_runs(datetime.fromtimestamp(0, UTC))
                for load in loads:
                    cost = kind.measure(minutes, with_rows=load == "rows")
                    show(f"{name}, {load}", load, cost, airflow, is_empty=name == "empty")


def show(label: str, load: str, cost: Cost, airflow: dict[str, float], *, is_empty: bool) -> None:
    """Print a line; ``airflow`` has the CPU seconds of an empty run for each load, or gets them."""
    total, spark = cost.total / cost.runs, cost.spark / cost.runs
    if is_empty:
        airflow[load] = total
    bare = airflow.get(load)
    parts = f"{bare:9.2f}{total - spark - bare:7.2f}" if bare is not None else f"{'?':>9}{'?':>7}"
    print(f"{label:20}{cost.runs:6}{total:11.2f}{parts}{spark:7.2f}{cost.slowest_seconds:16.0f}", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pipelines", type=int, default=50)
    arguments.add_argument("--minutes", type=int, default=5, help="of each load")
    arguments.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    arguments.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS))
    parsed = arguments.parse_args()
    measure(parsed.pipelines, parsed.minutes, parsed.kinds, parsed.loads)


if __name__ == "__main__":
    main()
