"""Prints the records of topics: `python consume.py HOST:PORT TOPIC ...`. It needs only kafka-python."""

from __future__ import annotations

import sys

import kafka


def main(bootstrap: str, *topics: str) -> None:
    """Print all committed records of ``topics``, one topic after another."""
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, isolation_level="read_committed")
    for topic in topics:
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning(partition)
        end = consumer.end_offsets([partition])[partition]
        while consumer.position(partition) < end:
            for record in consumer.poll(timeout_ms=500).get(partition, ()):
                print(f"===================Event from kafka topic {topic}===================")
                print("key:", record.key)
                print("mysql_binlog_headers:", dict(record.headers)["mysql_binlog_headers"].decode())
                print("value:", record.value.decode())
    consumer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
