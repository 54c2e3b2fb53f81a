"""The trigger of deferrable tasks: what it makes of the answers of YARN, and when it ends an application."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

from changefeed.airflow import yarn_trigger
from changefeed.airflow.yarn_trigger import ApplicationTrigger

PATH = "/ws/v1/cluster/apps/application_1_1/state"


class Manager(ThreadingHTTPServer):
    """A ResourceManager that gives ``answers``, an HTTP status and a state each, and then repeats the last one."""

    answers: tuple[tuple[int, str], ...] = ()
    killed = 0

    def next(self) -> tuple[int, str]:
        first, *others = self.answers
        self.answers = tuple(others) or (first,)
        return first


class Handler(BaseHTTPRequestHandler):
    server: Manager

    def do_GET(self) -> None:
        status, state = self.server.next()
        self._answer(status if self.path == PATH else 400, state)

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.killed += self.path == PATH and body == {"state": "KILLED"}
        self._answer(202, "RUNNING")

    def _answer(self, status: int, state: str) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps({"state": state}).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Iterator[Manager]:
    with Manager(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        extra = {"yarn_resourcemanager_webapp_address": f"127.0.0.1:{server.server_port}"}
        connection = {"conn_type": "spark", "host": "yarn", "password": "hidden", "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_YARN", json.dumps(connection))
        monkeypatch.setattr(yarn_trigger, "POLL_SECONDS", 0.01)
        yield server
        server.shutdown()


def event_of(trigger: ApplicationTrigger) -> Any:
    async def first() -> Any:
        async for event in trigger.run():
            return event.payload
        return None

    return asyncio.run(asyncio.wait_for(first(), 60))


def trigger_of(lost_seconds: float = 0.05) -> ApplicationTrigger:
    return ApplicationTrigger("shop", "application_1_1", "spark_yarn", lost_seconds)


def test_trigger_waits_for_the_end_of_its_application_in_spite_of_errors(manager: Manager) -> None:
    for state in ("FINISHED", "FAILED", "KILLED"):
        manager.answers = (
            (200, "ACCEPTED"),
            (404, ""),
            (503, ""),
            (404, ""),
            (401, ""),
            (200, "RUNNING"),
            (200, state),
        )
        assert event_of(trigger_of(lost_seconds=60)) == {"is_known": True}


def test_application_that_yarn_does_not_know_for_long_is_lost(manager: Manager) -> None:
    manager.answers = ((404, ""),)
    assert event_of(trigger_of()) == {"is_known": False}


def test_trigger_that_gets_no_answer_for_long_returns_to_its_task(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(yarn_trigger, "ANSWER_SECONDS", 0.1)
    manager.answers = ((200, "RUNNING"), (401, ""))
    assert event_of(trigger_of(lost_seconds=60)) == {"is_known": False}
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_YARN")
    assert event_of(trigger_of(lost_seconds=60)) == {"is_known": False}


@pytest.mark.parametrize(("state", "killed"), [("deferred", 0), ("failed", 2), (None, 2)])
def test_application_ends_with_its_task_but_not_with_a_suspended_triggerer(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, state: str | None, killed: int
) -> None:
    trigger: Any = trigger_of()
    trigger.task_instance = SimpleNamespace(dag_id="d", run_id="r", task_id="ingest", map_index=-1)
    monkeypatch.setattr(RuntimeTaskInstance, "get_task_states", lambda **_: {"r": {"ingest": state}})
    manager.answers = ((503, ""), (200, "KILLED"))
    asyncio.run(trigger.on_kill())
    assert manager.killed == killed, "it is repeated until YARN says that the application has ended"


def test_airflow_stores_names_and_ids_only() -> None:
    name, arguments = trigger_of().serialize()
    assert name == "changefeed.airflow.yarn_trigger.ApplicationTrigger"
    assert ApplicationTrigger(**arguments).serialize() == (name, arguments)
    assert set(arguments.values()) == {"shop", "application_1_1", "spark_yarn", 0.05}
