"""Rows rebuilt from topics by kafka-python alone: as a consumer that knows only the format builds them."""

from __future__ import annotations

import json
from typing import Any

import kafka

from devstack.sql_server import SqlServer

Rows = dict[tuple[tuple[str, Any], ...], dict[str, Any]]
"""Key -> row."""


def topics_of(bootstrap: str, prefix: str) -> set[str]:
    """Topics whose names begin with ``prefix``."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap)
    try:
        return {topic for topic in consumer.topics() if topic.startswith(prefix)}
    finally:
        consumer.close()


def records_of(bootstrap: str, topic: str) -> list[Any]:
    """All committed records of a topic, by partition and offset."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        retry_backoff_ms=1,  # the time that a consumer waits between its first two requests for metadata
    )
    try:
        partitions = [kafka.TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic))]
        ends = {partition: end for partition, end in consumer.end_offsets(partitions).items() if end}
        records: dict[kafka.TopicPartition, list[Any]] = {partition: [] for partition in partitions}
        consumer.assign(list(ends))
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            for partition, batch in consumer.poll(timeout_ms=200).items():
                records[partition] += batch
    finally:
        consumer.close()
    return [record for partition in partitions for record in records[partition]]


def event_ids(records: list[Any]) -> list[str]:
    return [dict(record.headers)["changefeed.id"].decode() for record in records]


def topic_rows(records: list[Any], existing: Rows | None = None) -> Rows:
    """The table that ``records`` make of its ``existing`` rows, applied in the order of their partitions.

    Fails for a record that does not fit: a create of an existing row, a change or delete of a missing one, or a change
    whose before image differs from the row.
    """
    rows: Rows = dict(existing or {})
    for record in records:
        key = _key(record.key)
        if record.value is None:
            assert key not in rows, f"tombstone of {key} without a delete before it"
            continue
        change = json.loads(record.value)
        assert rows.get(key) == change["before"], f"{change['op']} of {key}: the before image is not the row"
        if change["after"] is None:
            del rows[key]
        else:
            rows[key] = change["after"]
    return rows


def select_rows(server: SqlServer, database: str, table: str) -> Rows:
    """SELECT *, each value as the format writes it: the server itself makes the JSON."""
    columns = [row[0] for row in server.execute(
        "SELECT column_name FROM information_schema.columns "
        f"WHERE table_schema = '{database}' AND table_name = '{table}' ORDER BY ordinal_position"
    )]  # fmt: skip
    keys = [row[0] for row in server.execute(
        "SELECT column_name FROM information_schema.statistics WHERE index_name = 'PRIMARY' "
        f"AND table_schema = '{database}' AND table_name = '{table}' ORDER BY seq_in_index"
    )]  # fmt: skip
    rows = server.execute(f"SELECT * FROM `{database}`.`{table}`")
    values = [{name: _plain(value) for name, value in zip(columns, row, strict=True)} for row in rows]
    return {tuple((name, row[name]) for name in keys): row for row in values}


def _key(key: bytes | None) -> tuple[tuple[str, Any], ...]:
    assert key is not None
    return tuple(json.loads(key).items())


def _plain(value: Any) -> Any:
    return value if value is None or isinstance(value, int | str) else str(value)
