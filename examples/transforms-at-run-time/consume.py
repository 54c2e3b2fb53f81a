"""Counts the rows of a topic: `python consume.py HOST:PORT TOPIC`. It needs only kafka-python.

It rebuilds the rows from the last record of each key, checks that the function has changed each record, and prints the
number of rows, the number of characters of their text, and the number of repeated records.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import kafka


def main(bootstrap: str, topic: str) -> None:
    """Read all committed records of ``topic``, and print the counts."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, isolation_level="read_committed")
    partitions = [kafka.TopicPartition(topic, number) for number in consumer.partitions_for_topic(topic)]
    consumer.assign(partitions)
    consumer.seek_to_beginning()
    ends = consumer.end_offsets(partitions)
    ids: Counter[bytes] = Counter()
    rows: dict[bytes, Any] = {}
    while any(consumer.position(partition) < end for partition, end in ends.items()):
        for records in consumer.poll(timeout_ms=500).values():
            for record in records:
                ids[dict(record.headers)["changefeed.id"]] += 1
                value = json.loads(record.value) if record.value else {}
                row = value.get("after", value) if value.get("op") != "d" else None
                if row:
                    check(value, row)
                    rows[record.key] = row
                else:
                    rows.pop(record.key, None)
    characters = sum(len(row["text_col"]) for row in rows.values())
    repeated = sum(count > 1 for count in ids.values())
    print(f"{len(rows)} rows, {characters} characters, {repeated} repeated")
    consumer.close()


def check(value: Any, row: Any) -> None:
    """Exit if the function has not changed the record."""
    hidden = set(row["text_col"][1:-1]) == {"*"}
    if value.get("ext") != 1 or row.get("changed") != 1 or not hidden:
        sys.exit(f"expected a record that transforms/tag.py has changed, found {value}")


if __name__ == "__main__":
    main(*sys.argv[1:])
