"""Receivers of what Airflow reports about its tasks: StatsD's packets, OTLP's requests, and events of OpenLineage."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Protocol

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

_STATSD = re.compile(r"([^:,]+)((?:,[^:]+)?):([^|]+)\|([a-z]+)")


class Receiver(Protocol):
    """A receiver, and the settings with which Airflow reports to it."""

    @property
    def airflow_settings(self) -> dict[str, str]: ...


@dataclass(frozen=True)
class Sample:
    """A value of a metric, with its tags."""

    name: str
    tags: dict[str, str]
    value: float
    kind: str


@dataclass
class StatsdReceiver:
    """A UDP socket whose packets are StatsD's, with tags as InfluxDB writes them."""

    _socket: socket.socket

    @property
    def airflow_settings(self) -> dict[str, str]:
        return {
            "AIRFLOW__METRICS__STATSD_ON": "True",
            "AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED": "True",
            "AIRFLOW__METRICS__STATSD_HOST": "127.0.0.1",
            "AIRFLOW__METRICS__STATSD_PORT": str(self._socket.getsockname()[1]),
            "AIRFLOW__METRICS__METRICS_ALLOW_LIST": "changefeed",  # the buffer of the socket has room for these
        }

    def samples(self) -> list[Sample]:
        """The samples since the last call. A packet on this machine has arrived when it is sent."""
        found: list[Sample] = []
        while True:
            try:
                packet = self._socket.recv(1 << 16).decode()
            except BlockingIOError:
                return found
            for line in packet.splitlines():
                match = _STATSD.fullmatch(line)
                assert match, line
                name, tags, value, kind = match.groups()
                pairs = (pair.split("=", 1) for pair in tags.split(",") if pair)
                found.append(Sample(name, dict(pairs), float(value), kind))


@contextmanager
def statsd_receiver() -> Iterator[StatsdReceiver]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as received:
        received.bind(("127.0.0.1", 0))
        received.setblocking(False)
        yield StatsdReceiver(received)


@dataclass
class OtlpReceiver:
    """An HTTP server that gets metrics by OTLP."""

    port: int = 0
    _requests: list[bytes] = field(default_factory=list)

    @property
    def airflow_settings(self) -> dict[str, str]:
        return {
            "AIRFLOW__METRICS__OTEL_ON": "True",
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{self.port}",
        }

    def samples(self) -> list[Sample]:
        """The last sample of each metric and its tags: a process sends them again, with the counters' sums so far."""
        samples = (sample for request in self._requests for sample in _read_otlp(request))
        return list({(sample.name, *sorted(sample.tags.items())): sample for sample in samples}.values())


@contextmanager
def otlp_receiver() -> Iterator[OtlpReceiver]:
    receiver = OtlpReceiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path == "/v1/metrics":
                receiver._requests.append(body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *arguments: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        receiver.port = server.server_port
        Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield receiver
        server.shutdown()


def _read_otlp(request: bytes) -> Iterator[Sample]:
    for resource in ExportMetricsServiceRequest.FromString(request).resource_metrics:
        for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
            kind = metric.WhichOneof("data")
            if kind not in ("gauge", "sum"):
                continue
            for point in getattr(metric, kind).data_points:
                value = getattr(point, point.WhichOneof("value"))
                tags = {each.key: each.value.string_value for each in point.attributes}
                yield Sample(metric.name, tags, value, kind)


@dataclass(frozen=True)
class LineageFile:
    """The file to which OpenLineage's transport `file` appends events."""

    path: Path

    @property
    def airflow_settings(self) -> dict[str, str]:
        transport = {"type": "file", "log_file_path": str(self.path), "append": True}
        return {"AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport), "AIRFLOW__OPENLINEAGE__NAMESPACE": "tests"}

    def events(self, task: str) -> list[dict[str, Any]]:
        """The events of the runs of a task (DAG.TASK), in order."""
        events = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [event for event in events if event["job"]["name"] == task]
