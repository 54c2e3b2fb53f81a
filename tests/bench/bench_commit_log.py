"""What a commit log of a window a second costs its readers: with the broker's settings, and with changefeed's.

    make bench-commit-log ARGS="--windows 20000"

Writes the records of that many windows (`sealed_windows`), once into a topic that is only compacted, and once into one
with the settings of a commit log. Prints for each: the records and bytes that a reader reads once Kafka has compacted
the topic, the tombstones and the live records among them, and the seconds of a complete reading. Hours are written in
minutes, so the tombstones of all of them are there, not only those of the last hour (delete.retention.ms).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT / "include"), str(PROJECT / "tests")]

from sealed_windows import MemoryLog, Windows, produce  # noqa: E402 - after the path

from changefeed.kafka.commit_log.log import CommitLog  # noqa: E402
from changefeed.kafka.commit_log.owned_log import KEPT_CONTINUOUS_SEALS  # noqa: E402
from changefeed.kafka.connection import KafkaConnection  # noqa: E402
from changefeed.kafka.partition_reader import KafkaRecord, partition_reader  # noqa: E402
from changefeed.kafka.topics import TopicSettings, commit_log_settings, ensure_topics  # noqa: E402
from devstack.identity import ProcessId  # noqa: E402
from devstack.kafka import KafkaBroker  # noqa: E402
from devstack.process import run_server  # noqa: E402

NAME = "bench"
PART = 5000
"""Windows between two looks at the memory of the generator."""
QUIET_SECONDS = 45.0
"""Kafka has compacted a log that does not change for so long: its cleaner looks every 15 seconds."""


def written(windows: int, tables: int) -> Iterator[Sequence[KafkaRecord]]:
    """The records that the runs write, in parts."""
    names = tuple(f"shop.table_{number}" for number in range(tables))
    first_ms = int(time.time() * 1000) - windows * 1000
    made, log = Windows(NAME, "3e11fa47-71ca-11e1-9e33-c80aa9429562", first_ms, 1000, names), MemoryLog(NAME, first_ms)
    for begin in range(1, windows + 1, PART):
        log.records, log.writes = [], []
        made.write(log, range(begin, min(begin + PART, windows + 1)), KEPT_CONTINUOUS_SEALS)
        yield log.records


def raw_records(connection: KafkaConnection, topic: str) -> list[KafkaRecord]:
    """The records that the topic has now."""
    with partition_reader(connection, [(topic, 0)], "to measure") as reader:
        return list(reader.to_end(timeout_seconds=60))


def wait_until_compacted(connection: KafkaConnection, topics: Sequence[str]) -> dict[str, list[KafkaRecord]]:
    """The records of each topic once their numbers have not changed for QUIET_SECONDS."""
    counts: list[int] = []
    while True:
        records = {topic: raw_records(connection, topic) for topic in topics}
        if (now := [len(of_topic) for of_topic in records.values()]) == counts:
            return records
        counts = now
        time.sleep(QUIET_SECONDS)


def measure(broker: KafkaBroker, windows: int, tables: int) -> None:
    connection = KafkaConnection(broker.bootstrap)
    settings: Mapping[str, Mapping[str, str]] = {
        "bench.defaults": {"cleanup.policy": "compact"},
        "bench.commit-log": {**commit_log_settings().configs, "message.timestamp.type": "CreateTime"},
    }
    ensure_topics(connection, {topic: TopicSettings(1, 1, configs) for topic, configs in settings.items()})
    count = size = 0
    for part in written(windows, tables):
        count += len(part)
        size += sum(len(record.key or b"") + len(record.value or b"") for record in part)
        for topic in settings:
            produce(broker.bootstrap, topic, part)
    print(f"{windows:,} windows, {tables} tables: {count / windows:.1f} records and {size / windows:,.0f} bytes each")
    for topic, records in wait_until_compacted(connection, list(settings)).items():
        began = time.perf_counter()
        state = CommitLog(connection, topic, NAME).read()
        seconds = time.perf_counter() - began
        tombstones = sum(1 for record in records if record.value is None)
        raw = sum(len(record.key or b"") + len(record.value or b"") for record in records)
        print(
            f"{topic:18} {len(records):9,} records, {tombstones:,} of them tombstones, {raw / 1e6:.1f} MB; "
            f"{len(state.entries):,} live; read in {seconds:.2f} s",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=20_000)
    parser.add_argument("--tables", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        broker = KafkaBroker(Path(folder) / "kafka", owner=ProcessId.own(), quick=True)
        with run_server(broker):
            measure(broker, arguments.windows, arguments.tables)


if __name__ == "__main__":
    main()
