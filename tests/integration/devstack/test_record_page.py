"""devstack's page of topics and records."""

from __future__ import annotations

import json
import zlib
from html import unescape

import httpx
import kafka
from kafka.admin import NewTopic

from devstack.kafka import KafkaBroker
from devstack.record_page import record_page


def test_page_shows_topics_and_their_records_as_json(kafka_broker: KafkaBroker, unique_name: str) -> None:
    admin = kafka.KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)
    admin.create_topics([NewTopic(unique_name, 1, 1)])
    admin.close()
    producer = kafka.KafkaProducer(bootstrap_servers=kafka_broker.bootstrap)
    packed = zlib.compress(json.dumps({"long": ["<value>"]}).encode())
    for key, value in ((b'["a",1]', packed), (b"text", b"plain"), (b"\xff", b"\xfe"), (b"gone", None)):
        producer.send(unique_name, value, key)
    producer.close()
    with record_page(kafka_broker.bootstrap) as address:
        listed = httpx.get(address)
        shown = httpx.get(f"{address}topics/{unique_name}")
        missing = httpx.get(f"{address}topics/none-{unique_name}")
        foreign = httpx.get(address, headers={"Host": "changefeed.example"})
    assert f'href="/topics/{unique_name}"' in listed.text
    for text in ('["a", 1]', '"<value>"', '"plain"', '"0xff"', '"0xfe"', "null"):
        assert text in unescape(shown.text), text
    assert "<value>" not in shown.text
    assert (listed.status_code, shown.status_code, missing.status_code, foreign.status_code) == (200, 200, 404, 421)
