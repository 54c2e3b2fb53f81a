"""Runs the complete example: `python examples/topic-per-table/run.py`.

It starts MySQL and Kafka in a temporary folder, and stops them at the end.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "include"))

from devstack.example_servers import example_servers  # noqa: E402

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
    with example_servers(HERE, database="mysql") as servers:
        for statement in STATEMENTS:
            print(f"mysql> {statement};")
        servers.mysql.execute(*STATEMENTS, database="mysql")
        run("changefeed", "run", "payments")
        run("python", str(HERE / "consume.py"), servers.kafka.bootstrap, *(f"mysql_{table}" for table in TABLES))


if __name__ == "__main__":
    main()
