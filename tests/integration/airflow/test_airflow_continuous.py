"""Airflow's scheduler starts continuous runs one after another, each of which takes over from the one before it."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from airflow_site import Site, wait_until
from integration.kafka_pipeline import committed, ids
from integration.topic_rows import records_of

from changefeed.model.topic_name import commit_log_topic

NAME = "relay"
INGEST = f"changefeed_ingest__{NAME}"
MORE = "schedule: '@continuous'\nwindows: {every: 500ms, run_for: 40s}\n"

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


def seal_times_ms(site: Site) -> list[int]:
    records = records_of(site.kafka.bootstrap, commit_log_topic(NAME))
    return [record.timestamp for record in records if b'"seal"' in record.key and record.value]


def test_runs_take_over_from_one_another_and_all_succeed(airflow_site: Site) -> None:
    """It takes minutes, as three jobs of spark-submit follow one another."""
    site = airflow_site
    site.mysql.execute(f"CREATE DATABASE {NAME}", f"CREATE TABLE {NAME}.t (id INT PRIMARY KEY)")
    try:
        with writer(site):
            site.write_pipeline(NAME, NAME, server_ids="65200-65231", submit=True)
            path = site.pipelines / f"{NAME}.yaml"
            path.write_text(path.read_text().replace("schedule: null\n", MORE))
            site.wait_for_dag(INGEST)

            def two_have_ended() -> bool:
                ended = [state for state in states(site).values() if state in ("success", "failed")]
                return len(ended) >= 2

            wait_until(two_have_ended, "two runs have handed over", 600)
            runs = list(states(site))
            with site.client() as client:
                client.patch(f"/api/v2/dags/{INGEST}", json={"is_paused": True})
                cancel = client.post(f"/changefeed/api/pipelines/{NAME}/runs/{runs[2]}/cancel")
                assert cancel.status_code == 200, cancel.text
        times = seal_times_ms(site)
        print("gaps between seals, ms:", sorted(b - a for a, b in itertools.pairwise(times))[-6:])
        assert [states(site)[run] for run in runs[:2]] == ["success", "success"]
        for run in runs[:2]:
            log = site.log(INGEST, "ingest", run)
            assert "has taken over" in log, log[-3000:]
            assert "sealed window" in log
        path.write_text(path.read_text().replace(MORE, "schedule: null\n"))
        site.wait_for_dag(INGEST)
        with site.client() as client:
            client.patch(f"/api/v2/dags/{INGEST}", json={"is_paused": False})
        wait_until(lambda: "running" not in states(site).values(), "the cancelled run has ended", 120)
        assert site.run(INGEST)[""] == "success"
        published = ids(committed(site.kafka.bootstrap, f"{NAME}.t"))
        ((rows,),) = site.mysql.execute(f"SELECT COUNT(*) FROM {NAME}.t")
        first = min(json.loads(record.key)["id"] for record in committed(site.kafka.bootstrap, f"{NAME}.t"))
        assert len(published) == len(set(published)) == rows - first + 1, "all rows since the pipeline's start"
    finally:
        (site.pipelines / f"{NAME}.yaml").unlink(missing_ok=True)
        site.mysql.execute(f"DROP DATABASE {NAME}")
