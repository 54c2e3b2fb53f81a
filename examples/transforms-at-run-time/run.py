"""Runs the complete example: `python examples/transforms-at-run-time/run.py [RELEASE]`.

It starts MySQL (RELEASE 9.7, the default, or 8.0) and Kafka in a temporary folder, kills and restarts both, and stops
them at the end.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "include"))

from confluent_kafka.admin import AdminClient, NewTopic  # noqa: E402

from devstack.example_servers import example_servers  # noqa: E402
from devstack.kafka import KafkaBroker  # noqa: E402
from devstack.mysql import MysqlServer  # noqa: E402

PIPELINES = ("orders", "customers", "audit")
ROWS = 400
CHANGEFEED = str(Path(sys.executable).with_name("changefeed"))


def changefeed(*arguments: str, at: str = "", then: KafkaBroker | MysqlServer | None = None) -> None:
    """Run a command and print its result.

    If ``then`` is set, kill and restart that server at the stage ``at`` of the run.
    """
    print("$ changefeed", *arguments, flush=True)
    fault_file = Path(os.environ["CHANGEFEED_FAULT_FILE"])
    command = subprocess.Popen(
        [CHANGEFEED, *arguments],
        env={**os.environ, **({"CHANGEFEED_FAULT": at} if at else {})},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if then is not None:
        while not fault_file.exists() and command.poll() is None:
            time.sleep(0.05)
        then.kill()
        print(f"{then.product if isinstance(then, MysqlServer) else 'Kafka'}: killed with SIGKILL, restarted")
        then.start()
        fault_file.unlink(missing_ok=True)
    text = command.communicate(timeout=600)[0]
    ended = {0: "done", 3: "nothing new"}.get(command.returncode)
    if then is not None:  # the result depends on how fast the server restarts
        return
    print(ended or text.strip().splitlines()[-1].partition(" at '")[0], flush=True)
    if ended is None and "topics.create" not in text:
        sys.exit(text)


def write(mysql: MysqlServer, first: int) -> None:
    """Insert rows into all tables, and update and delete some; a tenth are test rows, which the function drops."""
    for table in PIPELINES:
        rows = [f"({id}, '{'test' if id % 10 == 0 else f'text {id}'}')" for id in range(first, first + ROWS)]
        mysql.execute(
            *(f"INSERT INTO {table} VALUES {', '.join(rows[at : at + 50])}" for at in range(0, ROWS, 50)),
            f"UPDATE {table} SET text_col = CONCAT(text_col, '!') WHERE id >= {first} AND id % 7 = 0 AND id % 10 > 0",
            f"DELETE FROM {table} WHERE id >= {first} AND id % 9 = 0 AND id % 10 > 0",
            database="app",
        )


def compare(mysql: MysqlServer, kafka: KafkaBroker) -> None:
    """Print the counts of a consumer of the topics and of SELECT from the tables; exit if they differ."""
    for table in PIPELINES:
        done = subprocess.run(
            [sys.executable, str(HERE / "consume.py"), kafka.bootstrap, f"app.{table}"],
            capture_output=True,
            text=True,
            check=True,
        )
        expected = mysql.execute(
            f"SELECT COUNT(*), IFNULL(SUM(CHAR_LENGTH(text_col)), 0) FROM app.{table} WHERE text_col <> 'test'"
        )
        print(f"consumer> app.{table}: {done.stdout.strip()}")
        print(f"mysql> app.{table}: {expected[0][0]} rows, {expected[0][1]} characters", flush=True)
        if f"{expected[0][0]} rows, {expected[0][1]} characters, 0 repeated" not in done.stdout:
            sys.exit(f"topic app.{table} differs from the table: expected the second line, found the first")


def main(release: str) -> None:
    """Run the example."""
    options = {"gtid-mode": "ON", "enforce-gtid-consistency": "ON", "binlog-row-metadata": "FULL"}
    with example_servers(HERE, database="app", release=release, options=options) as servers:
        mysql, kafka = servers.mysql, servers.kafka
        os.environ |= {
            "CHANGEFEED_TRANSFORMS": str(HERE / "transforms"),
            "CHANGEFEED_FAULT_FILE": str(servers.folder / "held"),
        }
        tables = (f"CREATE TABLE app.{table} (id INT PRIMARY KEY, text_col VARCHAR(100))" for table in PIPELINES)
        mysql.execute("CREATE DATABASE app", *tables)
        write(mysql, 1)
        for pipeline in ("orders", "customers"):  # creates their topics
            changefeed("run", pipeline)
        changefeed("run", "audit")  # fails: its topics are missing, and `topics.create` is false
        create_topics(kafka)
        changefeed("run", "audit")
        write(mysql, 1001)
        changefeed("run", "orders", at="in_open_transaction", then=kafka)
        write(mysql, 2001)
        changefeed("run", "customers", at="in_decode", then=mysql)
        for pipeline in PIPELINES:  # equivalent to Airflow's retries, which resume from the commit log
            changefeed("run", pipeline)
        compare(mysql, kafka)


def create_topics(kafka: KafkaBroker) -> None:
    """Create the topics of `audit` by hand, with the settings that the error lists."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    compact = {"cleanup.policy": "compact"}
    topics = [
        NewTopic("app.audit", 2),
        NewTopic("changefeed.audit.schema-changes", 1),
        NewTopic("changefeed.audit.schema-history", 1, config={**compact, "max.message.bytes": "33554432"}),
        NewTopic(
            "changefeed.audit.commits",
            1,
            config={**compact, "max.message.bytes": "8388608", "message.timestamp.type": "LogAppendTime"},
        ),
    ]
    for topic, future in admin.create_topics(topics).items():
        future.result()
        print(f"kafka> topic {topic} created")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["9.7"]))
