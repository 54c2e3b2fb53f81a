"""Airflow's scheduler starts continuous runs one after another, each of which takes over from the one before it."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest
from airflow_site import Site, wait_until
from integration.kafka_pipeline import committed, ids
from integration.topic_rows import topics_of

from changefeed.airflow.ingest_dag import ingest_dag_id

MORE = "schedule: '@continuous'\nwindows: {every: 500ms, run_for: 30s}\n"
TRIGGERED = "schedule: null\nwindows: {every: 500ms, run_for: 10m}\n"
"""Runs that only the test starts."""

pytestmark = [pytest.mark.extended, pytest.mark.long, pytest.mark.timeout(1200)]


@contextmanager
def writer(site: Site, name: str) -> Iterator[None]:
    """Insert a row several times a second."""
    stop = threading.Event()

    def write() -> None:
        for number in itertools.count(1):
            if stop.wait(0.2):
                return
            site.mysql.execute(f"INSERT INTO {name}.t VALUES ({number})")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def states(site: Site, name: str) -> dict[str, str]:
    """The states of the runs by their ids, in order."""
    with site.client() as client:
        answer = client.get(f"/api/v2/dags/{ingest_dag_id(name)}/dagRuns", params={"order_by": "run_after"})
    return {run["dag_run_id"]: run["state"] for run in answer.json()["dag_runs"]}


def drivers(name: str) -> list[psutil.Process]:
    """The processes of the pipeline's jobs."""

    def is_driver(process: psutil.Process) -> bool:
        try:
            arguments = process.cmdline()
        except psutil.Error:
            return False
        return any(each.endswith("jobs/ingest.py") for each in arguments) and name in arguments

    return [process for process in psutil.process_iter() if is_driver(process)]


def ended(site: Site, name: str) -> list[str]:
    """The runs that have ended, in order."""
    return [run for run, state in states(site, name).items() if state in ("success", "failed")]


def test_runs_take_over_from_one_another_and_all_succeed(airflow_site: Site) -> None:
    """It takes minutes, as three jobs of spark-submit follow one another."""
    site, name = airflow_site, "relay"
    ingest = ingest_dag_id(name)
    site.mysql.execute(f"CREATE DATABASE {name}", f"CREATE TABLE {name}.t (id INT PRIMARY KEY)")
    path = site.pipelines / f"{name}.yaml"
    try:
        with writer(site, name):
            site.write_pipeline(name, name, server_ids="65300-65331", submit=True)
            path.write_text(path.read_text().replace("schedule: null\n", MORE))
            site.wait_for_dag(ingest)
            wait_until(lambda: len(ended(site, name)) >= 2, "two runs have handed over", 600)
            with site.client() as client:
                client.patch(f"/api/v2/dags/{ingest}", json={"is_paused": True})
                for run in {*states(site, name)} - {*ended(site, name)}:
                    cancelled = client.post(f"/changefeed/api/pipelines/{name}/runs/{run}/cancel")
                    assert cancelled.status_code == 200, cancelled.text
            wait_until(lambda: not drivers(name), "the jobs of the cancelled runs have ended", 60)
        for run in ended(site, name)[:2]:
            assert states(site, name)[run] == "success"
            log = site.log(ingest, "ingest", run)
            assert "has taken over" in log, log[-3000:]
            assert "sealed window" in log
        path.write_text(path.read_text().replace(MORE, "schedule: null\n"))
        site.wait_for_dag(ingest)
        with site.client() as client:
            client.patch(f"/api/v2/dags/{ingest}", json={"is_paused": False})
        wait_until(lambda: not {*states(site, name)} - {*ended(site, name)}, "the cancelled runs have ended", 120)
        tasks = site.run(ingest)
        assert tasks[""] == "success", [tasks, *(site.log(ingest, task)[-3000:] for task in tasks if task)]
        records = committed(site.kafka.bootstrap, f"{name}.t")
        ((rows,),) = site.mysql.execute(f"SELECT COUNT(*) FROM {name}.t")
        first_row = min(json.loads(record.key)["id"] for record in records)
        assert len(records) == len(set(ids(records))) == rows - first_row + 1, "all rows since the pipeline's start"
    finally:
        path.unlink(missing_ok=True)
        site.mysql.execute(f"DROP DATABASE {name}")


def published(site: Site, name: str) -> int:
    """The number of committed records."""
    return len(committed(site.kafka.bootstrap, f"{name}.t"))


def wait_until_publishing(site: Site, name: str, runs: set[str]) -> None:
    """Wait until further rows are published, and check that exactly ``runs`` are under way."""
    before = published(site, name) if f"{name}.t" in topics_of(site.kafka.bootstrap, name) else 0
    wait_until(
        lambda: f"{name}.t" in topics_of(site.kafka.bootstrap, name) and published(site, name) > before + 5,
        "rows come",
        300,
    )
    assert {*states(site, name)} - {*ended(site, name)} == runs


def has_job(site: Site, name: str, run: str) -> bool:
    """Whether the task `ingest` of the run has begun its job, by its log."""
    return "spark-submit" in site.log(ingest_dag_id(name), "ingest", run)


def act(site: Site, name: str, path: str) -> dict[str, Any]:
    """An action of the page on the pipeline."""
    with site.client() as client:
        answer = client.post(f"/changefeed/api/pipelines/{name}/{path}")
        assert answer.status_code in (200, 202), answer.text
        done: dict[str, Any] = answer.json()
        return done


def event_rows(site: Site, name: str) -> int:
    """The rows of all asset events of the topic."""
    with site.client() as client:
        events = client.get("/api/v2/assets/events", params={"source_dag_id": ingest_dag_id(name), "limit": 100}).json()
    return sum(event["extra"]["rows"] for event in events["asset_events"])


def test_cancel_and_pause_during_a_takeover_end_or_hold_only_their_run(airflow_site: Site) -> None:
    """It takes minutes, as four jobs of spark-submit are started."""
    site, name = airflow_site, "handing"
    ingest = ingest_dag_id(name)
    site.mysql.execute(f"CREATE DATABASE {name}", f"CREATE TABLE {name}.t (id INT PRIMARY KEY)")
    path = site.pipelines / f"{name}.yaml"
    try:
        with writer(site, name):
            site.write_pipeline(name, name, server_ids="65332-65363", submit=True)
            path.write_text(path.read_text().replace("schedule: null\n", TRIGGERED))
            site.wait_for_dag(ingest)
            first = act(site, name, "run")["run_id"]
            wait_until_publishing(site, name, {first})

            second = act(site, name, "run")["run_id"]
            wait_until(lambda: has_job(site, name, second), "the second run has a job", 300)
            assert act(site, name, f"runs/{second}/cancel")["state"] == "failed"
            wait_until_publishing(site, name, {first})
            assert "has taken over" not in site.log(ingest, "ingest", first)

            third = act(site, name, "run")["run_id"]
            wait_until(lambda: has_job(site, name, third), "the third run has a job", 300)
            act(site, name, f"runs/{first}/cancel")
            wait_until_publishing(site, name, {third})
            assert states(site, name)[first] == "failed"

            assert event_rows(site, name) == 0, "no run has ended with success"
            act(site, name, "pause")
            wait_until(lambda: not drivers(name), "the job of the third run has ended", 120)
            wait_until(lambda: event_rows(site, name), "its task has ended with success", 60)
            fourth = act(site, name, "run")
            assert fourth["held"]
            act(site, name, f"runs/{fourth['run_id']}/cancel")
            assert act(site, name, "resume")["run_id"] is None, "the runs of this pipeline are started by hand"
            wait_until(lambda: states(site, name)[third] == "success", "the third run has ended", 120)
        path.write_text(path.read_text().replace("run_for: 10m", "run_for: 30s"))  # longer than Spark's start
        site.wait_for_dag(ingest)
        last = act(site, name, "run")["run_id"]
        assert site.wait_for_run(ingest, last)[""] == "success"
        ((rows,),) = site.mysql.execute(f"SELECT COUNT(*) FROM {name}.t")
        records = committed(site.kafka.bootstrap, f"{name}.t")
        keys = sorted(json.loads(record.key)["id"] for record in records)
        assert keys == [*range(keys[0], rows + 1)], site.log(ingest, "ingest", last)[-3000:]
        assert event_rows(site, name) == len(records), "the events of the run that succeeds are of all windows"
    finally:
        path.unlink(missing_ok=True)
        site.mysql.execute(f"DROP DATABASE {name}")
