"""Servers that accept connections and never answer: requests to them must not block other requests."""

from __future__ import annotations

import socket
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import product

import httpx
import pytest
from airflow_site import PIPELINE, Site, wait_until

pytestmark = pytest.mark.extended

API = "/changefeed/api"
SILENT = [f"silent{number}" for number in range(6)]
SILENT_KAFKA = ["silentkafka0", "silentkafka1"]


class Listener:
    """A server that never answers; it stores its connections."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=200)
        self.port = self._socket.getsockname()[1]
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                self.connections.append(self._socket.accept()[0])
            except OSError:
                return

    def close(self) -> None:
        with suppress(OSError):  # it is closed already
            self._socket.shutdown(socket.SHUT_RDWR)  # ends `accept`, which may outlive the socket
        self._socket.close()
        for connection in self.connections:
            connection.close()


@pytest.fixture(scope="module")
def silent(airflow_site: Site) -> Iterator[Listener]:
    """A silent server that is the source or the Kafka cluster of several pipelines."""
    listener = Listener()
    pipelines = {**dict.fromkeys(SILENT, "mysql"), **dict.fromkeys(SILENT_KAFKA, "kafka")}
    with airflow_site.client() as client:
        for kind in ("mysql", "kafka"):
            address = {"conn_type": kind, "host": "127.0.0.1", "port": listener.port}
            created = client.post("/api/v2/connections", json={"connection_id": f"{kind}_silent", **address})
            assert created.status_code == 201
    for name, kind in pipelines.items():
        more = "checkpoint: {store: kafka}\n" if name == SILENT_KAFKA[-1] else ""
        text = PIPELINE.format(name=name, database=name, server_ids="64700-64731", more=more)
        (airflow_site.pipelines / f"{name}.yaml").write_text(text.replace(f"{kind}_shop", f"{kind}_silent"))
    yield listener
    for name in pipelines:
        (airflow_site.pipelines / f"{name}.yaml").unlink()
    with airflow_site.client() as client:
        for kind in ("mysql", "kafka"):
            client.delete(f"/api/v2/connections/{kind}_silent")
    listener.close()


def test_plans_against_a_silent_server_do_not_block_others(airflow_site: Site, silent: Listener) -> None:
    path = f"{API}/pipelines/{SILENT[0]}/seek/plan"
    planner, viewer = airflow_site.client("ulf"), airflow_site.client("vera")
    with planner, viewer, ThreadPoolExecutor(51) as threads:
        planner.timeout = httpx.Timeout(120, pool=None)
        plans = [threads.submit(planner.post, path, json={"to": "latest"}) for _ in range(51)]
        wait_until(lambda: silent.connections, "the silent address was asked", 300)
        for other in ("/api/v2/version", "/changefeed/", f"{API}/pipelines/idle", "/changefeed/metrics"):
            assert viewer.get(other).status_code == 200, other
        answers = [plan.result() for plan in plans]
    assert {answer.status_code for answer in answers} == {503}
    assert any("too many requests wait" in answer.text for answer in answers)
    assert all(int(answer.headers["Retry-After"]) > 0 for answer in answers)


@pytest.mark.usefixtures("silent")
def test_only_pipelines_of_a_silent_source_are_in_state_error(airflow_site: Site) -> None:
    with airflow_site.client("vera") as viewer:
        listed = {one["name"]: one["position"] for one in viewer.get(f"{API}/pipelines").json()["pipelines"]}
        metrics = viewer.get("/changefeed/metrics").text.splitlines()
        with ThreadPoolExecutor(8) as threads:  # as the page does
            seen = list(threads.map(lambda name: viewer.get(f"{API}/pipelines/{name}"), [*SILENT, "idle"] * 3))
    assert {listed[name]["state"] for name in SILENT} == {"error"}
    assert listed["idle"]["state"] != "error"
    for name in SILENT:
        assert f'changefeed_up{{pipeline="{name}"}} 0' in metrics
    assert 'changefeed_up{pipeline="idle"} 1' in metrics
    assert Counter(answer.status_code for answer in seen) == {200: 3 * len(SILENT) + 3}
    assert {answer.json()["position"]["state"] for answer in seen if answer.json()["name"] != "idle"} == {"error"}


def test_silent_source_is_not_contacted_by_each_request(airflow_site: Site, silent: Listener) -> None:
    with airflow_site.client("vera") as viewer:
        viewer.get(f"{API}/pipelines")
        before = len(silent.connections)
        for name in SILENT * 4:
            assert viewer.get(f"{API}/pipelines/{name}").status_code == 200
        assert len(silent.connections) - before < len(SILENT)


def test_silent_kafka_is_not_contacted_by_each_request(airflow_site: Site, silent: Listener) -> None:
    with airflow_site.client("vera") as viewer:
        before = len(silent.connections)
        for number, (name, part) in enumerate(product(SILENT_KAFKA, ("windows", "schema", "seeks", "commit-log"))):
            answer = viewer.get(f"{API}/pipelines/{name}/{part}")
            assert (answer.status_code, int(answer.headers["Retry-After"]) > 0) == (503, True), answer.text
            if number == 0:
                asked = len(silent.connections) - before
        for name in SILENT_KAFKA * 3:
            answer = viewer.get(f"{API}/pipelines/{name}")
            assert (answer.status_code, answer.json()["position"]["state"]) == (200, "error"), answer.text
        assert len(silent.connections) - before <= 2 * asked
