"""Airflow's scheduler starts continuous runs one after another, each of which takes over from the one before it."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from airflow_site import Site, wait_until
from integration.kafka_pipeline import committed, ids

NAME = "relay"
INGEST = f"changefeed_ingest__{NAME}"
MORE = "schedule: '@continuous'\nwindows: {every: 500ms, run_for: 30s}\n"

pytestmark = [pytest.mark.extended, pytest.mark.long, pytest.mark.timeout(1200)]


@contextmanager
def writer(site: Site) -> Iterator[None]:
    """Insert a row several times a second."""
    stop = threading.Event()

    def write() -> None:
        for number in itertools.count(1):
            if stop.wait(0.2):
                return
            site.mysql.execute(f"INSERT INTO {NAME}.t VALUES ({number})")

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def states(site: Site) -> dict[str, str]:
    """The states of the runs by their ids, in order."""
    with site.client() as client:
        runs = client.get(f"/api/v2/dags/{INGEST}/dagRuns", params={"order_by": "run_after"}).json()["dag_runs"]
    return {run["dag_run_id"]: run["state"] for run in runs}


def drivers() -> list[psutil.Process]:
    """The processes of the pipeline's jobs."""

    def is_driver(process: psutil.Process) -> bool:
        try:
            arguments = process.cmdline()
        except psutil.Error:
            return False
        return any(each.endswith("jobs/ingest.py") for each in arguments) and NAME in arguments

    return [process for process in psutil.process_iter() if is_driver(process)]


def ended(site: Site) -> list[str]:
    """The runs that have ended, in order."""
    return [run for run, state in states(site).items() if state in ("success", "failed")]


def test_runs_take_over_from_one_another_and_all_succeed(airflow_site: Site) -> None:
    """It takes minutes, as three jobs of spark-submit follow one another."""
    site = airflow_site
    site.mysql.execute(f"CREATE DATABASE {NAME}", f"CREATE TABLE {NAME}.t (id INT PRIMARY KEY)")
    path = site.pipelines / f"{NAME}.yaml"
    try:
        with writer(site):
            site.write_pipeline(NAME, NAME, server_ids="65300-65331", submit=True)
            path.write_text(path.read_text().replace("schedule: null\n", MORE))
            site.wait_for_dag(INGEST)
            wait_until(lambda: len(ended(site)) >= 2, "two runs have handed over", 600)
            with site.client() as client:
                client.patch(f"/api/v2/dags/{INGEST}", json={"is_paused": True})
                for run in {*states(site)} - {*ended(site)}:
                    cancelled = client.post(f"/changefeed/api/pipelines/{NAME}/runs/{run}/cancel")
                    assert cancelled.status_code == 200, cancelled.text
            wait_until(lambda: not drivers(), "the jobs of the cancelled runs have ended", 60)
        for run in ended(site)[:2]:
            assert states(site)[run] == "success"
            log = site.log(INGEST, "ingest", run)
            assert "has taken over" in log, log[-3000:]
            assert "sealed window" in log
        path.write_text(path.read_text().replace(MORE, "schedule: null\n"))
        site.wait_for_dag(INGEST)
        with site.client() as client:
            client.patch(f"/api/v2/dags/{INGEST}", json={"is_paused": False})
        wait_until(lambda: not {*states(site)} - {*ended(site)}, "the cancelled runs have ended", 120)
        assert site.run(INGEST)[""] == "success"
        records = committed(site.kafka.bootstrap, f"{NAME}.t")
        ((rows,),) = site.mysql.execute(f"SELECT COUNT(*) FROM {NAME}.t")
        first_row = min(json.loads(record.key)["id"] for record in records)
        assert len(records) == len(set(ids(records))) == rows - first_row + 1, "all rows since the pipeline's start"
    finally:
        path.unlink(missing_ok=True)
        site.mysql.execute(f"DROP DATABASE {NAME}")
