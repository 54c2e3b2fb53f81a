"""CPU seconds of commands that start no Spark, for each kind of checkpoint store.

Prints user and system CPU seconds of the process, which vary less than wall seconds on a busy machine: minimum, median
and maximum. `run` has nothing new; ten rows are new for `status` and `lag`. A Variable is in the database of an
Airflow, which is not running.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "include"))

from devstack.airflow import empty_database  # noqa: E402 - after the path
from devstack.home import Home  # noqa: E402
from devstack.identity import ProcessId  # noqa: E402
from devstack.kafka import KafkaBroker  # noqa: E402
from devstack.mysql import MysqlServer  # noqa: E402
from devstack.process import run_server  # noqa: E402

STORES = {
    "table": "{store: table, connection: state}",
    "kafka": "{store: kafka}",
    "variable": "{store: variable}",
}
YAML = """\
name: {name}
source: {{connection: mysql}}
kafka: {{connection: kafka}}
tables: {{include: ["cost.*"]}}
topics: {{template: "{{pipeline}}.{{table}}"}}
checkpoint: {store}
start: latest
spark: {{master: "local[2]"}}
"""
NOTHING_NEW = 3
CHANGEFEED = Path(sys.executable).parent / "changefeed"


def cpu_seconds(environment: dict[str, str], *arguments: str, expected: int = 0) -> float:
    """CPU seconds of `changefeed`. Exits with the end of its output if it fails."""
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen([CHANGEFEED, *arguments], env=environment, stdout=output, stderr=output)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != expected:
            output.seek(0)
            raise SystemExit(f"changefeed {' '.join(arguments)} exited {process.returncode}:\n{output.read()[-3000:]}")
    return usage.ru_utime + usage.ru_stime


def environment_of(folder: Path, mysql: MysqlServer, kafka: KafkaBroker) -> dict[str, str]:
    """The environment of the commands, with an Airflow in ``folder``."""
    shutil.copy(empty_database(Home.default()), folder)
    return os.environ | {
        "AIRFLOW_CONN_KAFKA": f"kafka://{kafka.bootstrap}",
        "AIRFLOW_CONN_MYSQL": mysql.url,
        "AIRFLOW_CONN_STATE": f"sqlite:///{folder / 'state.db'}",
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__CORE__FERNET_KEY": "ZmVybmV0LWtleS1mb3ItYS1iZW5jaG1hcmstb25seSE=",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}",
        "CHANGEFEED_PIPELINES": str(folder),
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(PROJECT / "include"),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def measure(rounds: int) -> None:
    """Start the servers, run all commands alternately, and print a table."""
    home, owner = Home.default(), ProcessId.own()
    with ExitStack() as stack:
        home.test.mkdir(parents=True, exist_ok=True)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=home.test)))
        mysql = stack.enter_context(
            run_server(MysqlServer(folder / "mysql", options={"binlog_row_metadata": "FULL"}, owner=owner))
        )
        kafka = stack.enter_context(run_server(KafkaBroker(folder / "kafka", owner=owner)))
        environment = environment_of(folder, mysql, kafka)
        mysql.execute("CREATE DATABASE cost", "CREATE TABLE cost.t (id INT PRIMARY KEY)")
        for name, store in STORES.items():
            (folder / f"{name}.yaml").write_text(YAML.format(name=name, store=store))
            cpu_seconds(environment, "run", name, expected=NOTHING_NEW)
        print(f"{'CPU seconds':20}{'min':>8}{'median':>8}{'max':>8}", flush=True)
        show(environment, rounds, [("--help",), ("windows", "table"), ("check", "table")])
        show(environment, rounds, [("run", name) for name in STORES], expected=NOTHING_NEW)
        mysql.execute("INSERT INTO cost.t VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10)")
        show(environment, rounds, [(command, name) for command in ("status", "lag") for name in STORES])


def show(environment: dict[str, str], rounds: int, commands: list[tuple[str, ...]], expected: int = 0) -> None:
    """Run the commands alternately, and print a line for each."""
    found: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for _ in range(rounds):
        for command in commands:
            found[command].append(cpu_seconds(environment, *command, expected=expected))
    for command, seconds in found.items():
        shown = "".join(f"{figure:8.2f}" for figure in (min(seconds), statistics.median(seconds), max(seconds)))
        print(f"{' '.join(command):20}{shown}", flush=True)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--rounds", type=int, default=5)
    measure(arguments.parse_args().rounds)


if __name__ == "__main__":
    main()
