"""A web page on 127.0.0.1 that shows the topics of a broker and their committed records as JSON.

It has no login, so it listens on 127.0.0.1 only and refuses other host names. It is for devstack's own brokers.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from kafka import KafkaConsumer, TopicPartition

SHOWN_RECORDS = 500
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 15px/1.5 sans-serif; margin: 2em; color: #222 }} table {{ border-collapse: collapse }}
th, td {{ text-align: left; vertical-align: top; padding: .4em .9em; border-bottom: 1px solid #ccc }}
pre {{ margin: 0; white-space: pre-wrap; overflow-wrap: anywhere }}
</style><h1>{title}</h1>{body}</html>"""


@contextmanager
def record_page(bootstrap: str, port: int = 0) -> Iterator[str]:
    """Serve the page of the broker at ``bootstrap`` inside the block; yields its address.

    ``port`` 0, the default, chooses a free port. Raises OSError if the port is in use.
    """

    class Handler(_Handler):
        broker = bootstrap

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()


def decode_field(data: bytes | None) -> Any:
    """A record's key or value for display: JSON (also compressed with zlib), else text, else hex."""
    if data is None:
        return None
    try:
        return json.loads(zlib.decompress(data) if data[:1] == b"x" else data)
    except (ValueError, zlib.error):
        try:
            return data.decode()
        except UnicodeDecodeError:
            return f"0x{data.hex()}"


class _Handler(BaseHTTPRequestHandler):
    broker = ""

    def do_GET(self) -> None:
        assert isinstance(self.server, ThreadingHTTPServer)
        port = self.server.server_port
        if self.headers["Host"] not in (f"127.0.0.1:{port}", f"localhost:{port}"):  # DNS rebinding
            return self.send_error(421)
        path = unquote(urlsplit(self.path).path)
        consumer = KafkaConsumer(
            bootstrap_servers=self.broker,
            isolation_level="read_committed",
            group_id=None,
            auto_offset_reset="earliest",
        )
        try:
            topics = sorted(consumer.topics())
            if path == "/":
                self._answer("Topics", _topics(consumer, topics))
            elif (topic := path.removeprefix("/topics/")) in topics:
                self._answer(topic, _records(consumer, topic))
            else:
                self.send_error(404)
        finally:
            consumer.close()

    def _answer(self, title: str, body: str) -> None:
        page = _PAGE.format(title=escape(title), body=body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *args: Any) -> None:
        """Log no requests."""


def _partitions(consumer: KafkaConsumer, topic: str) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]


def _topics(consumer: KafkaConsumer, topics: list[str]) -> str:
    rows = ""
    for topic in topics:
        ends = consumer.end_offsets(_partitions(consumer, topic))
        shown = ", ".join(f"{partition.partition}: {end}" for partition, end in ends.items())
        rows += f'<tr><td><a href="/topics/{quote(topic)}">{escape(topic)}</a><td>{shown}'
    return f"<table><tr><th>topic<th>end offset of each partition{rows}</table>"


def _records(consumer: KafkaConsumer, topic: str) -> str:
    partitions = _partitions(consumer, topic)
    consumer.assign(partitions)
    ends, firsts = consumer.end_offsets(partitions), consumer.beginning_offsets(partitions)
    for partition in partitions:
        consumer.seek(partition, max(firsts[partition], ends[partition] - SHOWN_RECORDS))
    rows: list[str] = []
    while any(consumer.position(partition) < ends[partition] for partition in partitions):
        for batch in consumer.poll(timeout_ms=500).values():
            for record in batch:
                key, value = (
                    escape(json.dumps(decode_field(data), indent=indent, ensure_ascii=False))
                    for data, indent in ((record.key, None), (record.value, 2))
                )
                rows.append(f"<tr><td>{record.partition}<td>{record.offset}<td><pre>{key}</pre><td><pre>{value}</pre>")
    shown = f"Committed records of the last {SHOWN_RECORDS} offsets, newest first. Value null: the key is deleted."
    table = "<table><tr><th>partition<th>offset<th>key<th>value" + "".join(reversed(rows)) + "</table>"
    return f'<p><a href="/">All topics</a>. {shown}</p>{table}'
