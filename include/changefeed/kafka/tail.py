"""Committed records of topics as JSON lines, for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import kafka
import orjson

from changefeed.kafka.connection import KafkaConnection


def records(
    connection: KafkaConnection, topics: Sequence[str], *, from_beginning: bool, follow: bool, limit: int | None
) -> Iterator[str]:
    """A JSON line a record: topic, partition, offset, headers, key, value.

    Without ``follow`` it ends at the offsets that the topics end at now. Raises BrokerUnavailableError.
    """
    with connection.consumer(isolation_level="read_committed") as consumer:
        places = [
            kafka.TopicPartition(topic, partition)
            for topic in topics
            for partition in sorted(consumer.partitions_for_topic(topic) or ())
        ]
        consumer.assign(places)
        (consumer.seek_to_beginning if from_beginning else consumer.seek_to_end)(*places)
        ends = consumer.end_offsets(places)
        given = 0
        while follow or any(consumer.position(place) < ends[place] for place in places):
            for batch in consumer.poll(timeout_ms=500).values():
                for record in batch:
                    if limit is not None and given >= limit:
                        return
                    yield _line(record)
                    given += 1
            if limit is not None and given >= limit:
                return


def _line(record: Any) -> str:
    return orjson.dumps(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "headers": {name: value.decode("utf-8", "replace") for name, value in record.headers},
            "key": _decoded(record.key),
            "value": _decoded(record.value),
        }
    ).decode()


def _decoded(value: bytes | None) -> Any:
    if value is None:
        return None
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value.decode("utf-8", "replace")
