"""Settings of the pipeline of each consumer: the configurations that docs/how-to/consume-with-*.md show."""

from __future__ import annotations

from typing import Any

CONNECT: dict[str, Any] = {
    "format": {
        "name": "debezium",
        "schemas": True,
        "bigint.unsigned.handling.mode": "precise",
        "skipped.operations": "none",
    }
}
"""For sinks and transforms of Kafka Connect: with schemas, unsigned numbers as they are, and TRUNCATE."""

FLINK_DEBEZIUM: dict[str, Any] = {
    "format": {"name": "debezium"},
    "values": {"decimal": "string", "temporal": "iso", "bigint_unsigned": "number"},
}
FLINK_MAXWELL: dict[str, Any] = {"format": {"name": "maxwell", "bootstrap_type": "insert"}, "topics": {"partitions": 1}}
"""A change of key is one record, under the new key: it has an order to those of the old one in one partition only."""

SPARK: dict[str, Any] = {
    "format": {"name": "flat", "delete.tombstone.handling.mode": "rewrite", "add.fields": ["op", "source.ts_ms"]},
    "values": {"decimal": "string", "temporal": "iso", "bigint_unsigned": "number"},
}
AVRO: dict[str, Any] = {"format": {"name": "avro", "registry": "registry", "bigint.unsigned.handling.mode": "precise"}}

PIPELINES = {
    "connect": CONNECT,
    "debezium": FLINK_DEBEZIUM,
    "maxwell": FLINK_MAXWELL,
    "flat": SPARK,
    "avro": AVRO,
}
