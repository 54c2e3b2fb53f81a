"""Runs the complete example: `python examples/topic-per-table/run.py`.

It starts MySQL and Kafka in a temporary folder, and stops them at the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "include"))

from devstack.identity import ProcessId  # noqa: E402
from devstack.kafka import KafkaBroker  # noqa: E402
from devstack.mysql import MysqlServer  # noqa: E402
from devstack.process import run_server  # noqa: E402

TABLES = ("paymentA", "paymentB", "paymentC")
STATEMENTS = [
    *(f"CREATE TABLE {table} (id INT PRIMARY KEY, buyer VARCHAR(20), amount DECIMAL(8,2))" for table in TABLES),
    "INSERT INTO paymentA VALUES (1, 'Jack', 1.50), (2, 'Jane', 2.50)",
    "INSERT INTO paymentB VALUES (1, 'Peter', 10.00)",
    "INSERT INTO paymentC VALUES (1, 'Diane', 7.25)",
    "UPDATE paymentB SET amount = 11.00 WHERE id = 1",
    "DELETE FROM paymentA WHERE id = 2",
    "CREATE TABLE other (id INT PRIMARY KEY)",
    "INSERT INTO other VALUES (1)",
    "SET SESSION binlog_format = 'STATEMENT'",
    "INSERT INTO paymentC SELECT id + 10, buyer, amount FROM paymentB",
]


def run(*command: str) -> None:
    """Run a command, and print its output."""
    print("$", *(Path(word).name if word.endswith(".py") else word for word in command), flush=True)
    programs = {"changefeed": [str(Path(sys.executable).with_name("changefeed"))], "python": [sys.executable]}
    program, *arguments = command
    done = subprocess.run([*programs[program], *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(done.stderr)
    print(done.stdout, end="", flush=True)


def main() -> None:
    """Run the example."""
    with TemporaryDirectory(prefix="changefeed-") as folder, ExitStack() as servers:
        owner, data = ProcessId.own(), Path(folder)
        mysql = servers.enter_context(run_server(MysqlServer(data / "mysql", owner=owner, quick=True)))
        kafka = servers.enter_context(run_server(KafkaBroker(data / "kafka", owner=owner, quick=True)))
        os.environ |= {
            "CHANGEFEED_PIPELINES": str(HERE / "pipelines"),
            "AIRFLOW_CONN_MYSQL": f"{mysql.root_url}/mysql",
            "AIRFLOW_CONN_KAFKA": f"kafka://{kafka.bootstrap}",
            "AIRFLOW_CONN_STATE": f"sqlite:///{data / 'state.db'}",
        }
        for statement in STATEMENTS:
            print(f"mysql> {statement};")
        mysql.execute(*STATEMENTS, database="mysql")
        run("changefeed", "run", "payments")
        run("python", str(HERE / "consume.py"), kafka.bootstrap, *(f"mysql_{table}" for table in TABLES))


if __name__ == "__main__":
    main()
