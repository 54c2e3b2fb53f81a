"""Unfinished runs in Airflow: failed, held by a pause, or cleared after later runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from airflow_site import Site, wait_until
from integration.kafka_pipeline import committed, ids
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

from changefeed.kafka.connection import KafkaConnection

INGEST, SEEK = "changefeed_ingest__held", "changefeed_seek__held"
API = "/changefeed/api/pipelines/held"
MORE = "window_bytes: 1\n"

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def held(airflow_site: Site) -> Iterator[Site]:
    """A pipeline with its checkpoint at the head, and a topic that accepts records of up to 2 kB."""
    airflow_site.mysql.execute(
        "CREATE DATABASE held",
        "CREATE TABLE held.orders (id INT PRIMARY KEY AUTO_INCREMENT, n INT)",
        "CREATE TABLE held.notes (id INT PRIMARY KEY AUTO_INCREMENT, text TEXT)",
    )
    limit(airflow_site, 2000, create=True)
    airflow_site.add_pipeline("held", "held", more=MORE, server_ids="65300-65331")
    assert airflow_site.run(INGEST)["ingest"] == "skipped"
    yield airflow_site
    (airflow_site.pipelines / "held.yaml").unlink()
    airflow_site.mysql.execute("DROP DATABASE held")


def limit(site: Site, size_bytes: int, *, create: bool = False) -> None:
    """Set the largest record that the topic of the notes accepts."""
    configs = {"max.message.bytes": str(size_bytes)}
    with KafkaConnection(site.kafka.bootstrap).admin() as admin:
        if create:
            admin.create_topics([NewTopic("held.notes", 2, 1, topic_configs=configs)])
        else:
            admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, "held.notes", configs)])


def look(site: Site, path: str = "") -> dict[str, Any]:
    with site.client() as client:
        content: dict[str, Any] = client.get(API + path).json()
        return content


def windows(site: Site) -> list[dict[str, Any]]:
    return [one["window"] for one in look(site, "/windows")["windows"]]


def orders(site: Site) -> list[str]:
    return ids(committed(site.kafka.bootstrap, "held.orders"))


def events(site: Site, table: str) -> list[dict[str, Any]]:
    with site.client() as client:
        content = client.get("/api/v2/assets/events", params={"limit": 100}).json()["asset_events"]
        return [event["extra"] for event in content if event["extra"].get("table") == table]


def clear(site: Site, run_id: str) -> dict[str, str]:
    """Clear the tasks of a run after `plan`, as users do in Airflow; returns their states at the end."""
    with site.client() as client:
        body = {"dry_run": False, "dag_run_id": run_id, "task_ids": ["ingest", "commit"], "only_failed": False}
        answer = client.post(f"/api/v2/dags/{INGEST}/clearTaskInstances", json=body)
        assert answer.status_code == 200, answer.text
    return site.wait_for_run(INGEST, run_id)


@pytest.fixture(scope="module")
def failed(held: Site) -> str:
    """A run that sealed a window with orders, and failed in the next window, which has a too large record."""
    held.mysql.execute("INSERT INTO held.orders (n) VALUES (1), (2)", "FLUSH BINARY LOGS")
    held.mysql.execute("INSERT INTO held.notes (text) VALUES (REPEAT('x', 9000))")
    run_id = held.trigger(INGEST)
    assert held.wait_for_run(INGEST, run_id)["ingest"] == "failed"
    return run_id


def test_run_that_commits_windows_of_a_failed_run_emits_their_events(held: Site, failed: str) -> None:
    assert failed
    assert len(windows(held)) == 1
    assert events(held, "held.orders") == []
    limit(held, 100_000)
    assert held.run(INGEST)[""] == "success"
    (event,) = events(held, "held.orders")
    assert (event["rows"], event["windows"]) == (2, [windows(held)[-1]["number"]])
    assert [event["rows"] for event in events(held, "held.notes")] == [1]
    assert look(held)["position"]["lag_bytes"] == 0
    assert len(orders(held)) == 2


def test_clearing_a_failed_run_after_later_runs_changes_nothing(held: Site, failed: str) -> None:
    held.mysql.execute("INSERT INTO held.orders (n) VALUES (3)")
    assert held.run(INGEST)[""] == "success"
    before = windows(held), look(held)["position"]["checkpoint"], orders(held)
    assert clear(held, failed)[""] == "success"
    assert (windows(held), look(held)["position"]["checkpoint"], orders(held)) == before


@pytest.mark.long
def test_clearing_an_unstarted_run_after_later_runs_is_refused(held: Site) -> None:
    held.mysql.execute("INSERT INTO held.orders (n) VALUES (4)")
    path = held.pipelines / "held.yaml"
    text = path.read_text()
    path.write_text(text.replace(held.spark.url, "sc://127.0.0.1:1"))
    run_id = held.trigger(INGEST)
    assert held.wait_for_run(INGEST, run_id)["ingest"] == "failed"
    path.write_text(text)
    held.mysql.execute("INSERT INTO held.orders (n) VALUES (5)")
    for _ in range(2):
        assert held.run(INGEST)[""] == "success"
        held.mysql.execute("INSERT INTO held.orders (n) VALUES (6)")
    before = windows(held), look(held)["position"]["checkpoint"], orders(held)
    assert clear(held, run_id)["ingest"] == "failed"
    assert "StaleCheckpointError" in held.log(INGEST, "ingest", run_id, attempt=2)
    assert (windows(held), look(held)["position"]["checkpoint"], orders(held)) == before


def hold(site: Site) -> str:
    """Start a run, and pause the pipeline, so that the run is held before `commit`; returns its id."""
    run_id = site.trigger(INGEST)
    path = f"/api/v2/dags/{INGEST}/dagRuns/{run_id}/taskInstances/ingest"
    with site.client() as client:
        wait_until(lambda: client.get(path).json()["state"] in ("running", "success"), "the job runs", 300)
        assert client.post(f"{API}/pause").status_code == 200
        wait_until(lambda: client.get(path).json()["state"] == "success", "the job has ended", 300)
    shown = look(site)
    assert (shown["dag"]["held"], shown["standing"]["text"]) == ([run_id], "paused, a run is held")
    return run_id


def seek(site: Site, **body: Any) -> dict[str, Any]:
    with site.client() as client:
        answer = client.post(f"{API}/seek", json=body)
        assert answer.status_code == 202, answer.text
    states = site.wait_for_run(SEEK, answer.json()["run_id"])
    assert states[""] == "success", site.log(SEEK, "apply_seek", answer.json()["run_id"])
    content: dict[str, Any] = answer.json()["plan"]
    return content


def resume(site: Site, run_id: str) -> dict[str, str]:
    with site.client() as client:
        assert client.post(f"{API}/resume").status_code == 200
    return site.wait_for_run(INGEST, run_id)


def test_seek_discards_the_held_run_and_counts_repeated_messages(held: Site) -> None:
    held.run(INGEST)
    held.mysql.execute("INSERT INTO held.orders (n) VALUES (7), (8), (9)")
    before = orders(held)
    run_id = hold(held)
    (window,) = windows(held)[:1]
    planned = seek(held, to=window["start"], why="a test", finish=False)
    assert [(one["number"], one["sealed"], one["messages"]) for one in planned["unfinished"]] == [
        (window["number"], True, 3)
    ]
    assert planned["repeated_bytes"] == int(window["head"].split(":")[1]) - int(window["start"].split(":")[1])
    assert look(held, "/seeks")["seeks"][0]["discarded"] == [window["number"]]
    states = resume(held, run_id)
    assert (states["commit"], states[""]) == ("skipped", "success")
    assert "were discarded when ada moved the pipeline" in held.log(INGEST, "commit", run_id)
    assert held.run(INGEST)[""] == "success"
    assert len(orders(held)) == len(before) + 2 * 3
    assert len(set(orders(held))) == len(set(before)) + 3


def test_seek_finishes_the_held_run_first_and_repeats_nothing(held: Site) -> None:
    held.mysql.execute("INSERT INTO held.orders (n) VALUES (10), (11)")
    before, emitted = orders(held), len(events(held, "held.orders"))
    run_id = hold(held)
    (window,) = windows(held)[:1]
    seek(held, to=window["head"], why="a test", finish=True)
    assert look(held)["position"]["checkpoint"] == window["head"]
    assert look(held, "/seeks")["seeks"][0]["discarded"] == []
    assert len(events(held, "held.orders")) == emitted + 1
    assert resume(held, run_id)[""] == "success"
    held.mysql.execute("INSERT INTO held.orders (n) VALUES (12)")
    assert held.run(INGEST)[""] == "success"
    after = orders(held)
    assert len(after) == len(before) + 3
    assert len(set(after)) == len(set(before)) + 3


@pytest.mark.long
def test_seek_first_publishes_windows_of_a_failed_run(held: Site) -> None:
    held.run(INGEST)
    limit(held, 2000)
    held.mysql.execute("INSERT INTO held.notes (text) VALUES (REPEAT('y', 9000))")
    assert held.run(INGEST)["ingest"] == "failed"
    limit(held, 100_000)
    before = len(ids(committed(held.kafka.bootstrap, "held.notes")))
    planned = seek(held, to="latest", why="a test", finish=True)
    assert [(one["sealed"], one["messages"]) for one in planned["unfinished"]] == [(False, 0)]
    assert planned["skipped_bytes"] == 0, "it is finished first"
    assert len(ids(committed(held.kafka.bootstrap, "held.notes"))) == before + 1
    assert look(held)["position"]["lag_bytes"] == 0
    assert held.run(INGEST)["ingest"] == "skipped"
