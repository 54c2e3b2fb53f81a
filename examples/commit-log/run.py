"""Runs the complete example: `make example NAME=commit-log`, or `python examples/commit-log/run.py`.

It starts MySQL and Kafka in a temporary folder, and stops them at the end. With `--stay`, a web page shows the topics
until Ctrl-C.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "include"))

from kafka import KafkaConsumer, TopicPartition  # noqa: E402

from devstack.example_servers import example_servers  # noqa: E402
from devstack.identity import ProcessId, family  # noqa: E402
from devstack.mysql import MysqlServer  # noqa: E402
from devstack.record_page import decode_field, record_page  # noqa: E402

EVENTS, COMMIT_LOG = "orders", "changefeed.orders.commits"
STAGES = ["in_open_transaction", "after_transaction_commit", "before_seal"]
"""The stages at which runs are killed, in the order of a run."""
NOTHING_NEW = 3
"""Exit status of a run if the killed run had published and committed everything."""
RUN = [str(Path(sys.executable).with_name("changefeed")), "run", "orders"]


def publish() -> None:
    """Run the pipeline until it is done."""
    print("$ changefeed run orders", flush=True)
    done = subprocess.run(RUN, capture_output=True, text=True, check=False)
    if done.returncode not in (0, NOTHING_NEW):
        sys.exit(done.stderr)
    print("done", flush=True)


def publish_until_stage(stage: str, file: Path) -> None:
    """Run the pipeline, and send SIGKILL to all its processes when it reaches ``stage``."""
    print(f"$ changefeed run orders   # SIGKILL at {stage}", flush=True)
    with _run({"CHANGEFEED_FAULT": stage, "CHANGEFEED_FAULT_FILE": str(file)}) as run:
        while not file.exists():
            if run.poll() is not None:
                sys.exit(f"expected the run to reach {stage!r}; found it ended with exit status {run.returncode}")
            time.sleep(0.05)
    file.unlink()


def publish_until_random_kill() -> None:
    """Run the pipeline, and send SIGKILL to all its processes after a random time."""
    print("$ changefeed run orders   # SIGKILL at a random moment", flush=True)
    with _run({}) as run, suppress(subprocess.TimeoutExpired):
        run.wait(random.uniform(0, 15))


@contextmanager
def _run(variables: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """Start a run; kill it with its descendants at the end of the block."""
    with subprocess.Popen(
        RUN, env=os.environ | variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as run:
        leader = ProcessId.of(run.pid)
        try:
            yield run
        finally:
            if leader is not None:
                for process in (leader, *family(leader)):
                    process.send(signal.SIGKILL)


def records(bootstrap: str, topic: str) -> Iterator[Any]:
    """The committed records of a topic, read by a plain consumer."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, isolation_level="read_committed", group_id=None)
    partition = TopicPartition(topic, 0)
    try:
        if topic not in consumer.topics():
            return
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            for batch in consumer.poll(timeout_ms=500).values():
                yield from batch
    finally:
        consumer.close()


def show_last_offset(bootstrap: str) -> None:
    """Print the progress of the topic by the commit log, which the next run reads before it sends records."""
    last = "nothing"
    for record in records(bootstrap, COMMIT_LOG):
        key, value = decode_field(record.key), decode_field(record.value)
        if key[1] == "progress" and value is not None:
            last = f'"offset":{value["last_offset"]}, {value["file"]}:{value["position"]}'
    print(f"{COMMIT_LOG}: last of {EVENTS}-0: {last}", flush=True)


def show_counts(bootstrap: str, mysql: MysqlServer, *, complete: bool) -> None:
    """Compare the records that a read_committed consumer gets with the table; exit if they differ."""
    published = [decode_field(record.value)["after"]["id"] for record in records(bootstrap, EVENTS)]
    rows = [row[0] for row in mysql.execute("SELECT id FROM shop.orders ORDER BY id")]
    print(f"{EVENTS}: {len(published)} records, {len(set(published))} different ids; SELECT: {len(rows)} rows")
    if published != (rows if complete else rows[: len(published)]):
        sys.exit(f"expected the ids {rows} in topic {EVENTS!r}, found {published}: records are lost, or sent twice")


def insert_three(mysql: MysqlServer) -> None:
    """Insert three rows."""
    insert = "INSERT INTO shop.orders (item) VALUES ('tea'), ('coffee'), ('cocoa')"
    print(f"mysql> {insert};", flush=True)
    mysql.execute(insert)


def serve_records(bootstrap: str) -> None:
    """Serve a page with the topics until Ctrl-C."""
    with record_page(bootstrap) as page:
        print(f"Topics and records: {page} (commit log: {page}topics/{COMMIT_LOG}). To stop, press Ctrl-C", flush=True)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print("stopped")


def main() -> None:
    """Run the example."""
    with example_servers(HERE) as servers:
        mysql, bootstrap = servers.mysql, servers.kafka.bootstrap
        mysql.execute(
            "CREATE DATABASE shop",
            "CREATE TABLE shop.orders (id INT PRIMARY KEY AUTO_INCREMENT, item VARCHAR(20))",
        )
        for stage in STAGES:
            insert_three(mysql)
            publish_until_stage(stage, servers.folder / "fault")
            show_last_offset(bootstrap)
            show_counts(bootstrap, mysql, complete=False)
        insert_three(mysql)
        publish_until_random_kill()
        publish()
        show_last_offset(bootstrap)
        show_counts(bootstrap, mysql, complete=True)
        if "--stay" in sys.argv[1:]:
            serve_records(bootstrap)


if __name__ == "__main__":
    main()
