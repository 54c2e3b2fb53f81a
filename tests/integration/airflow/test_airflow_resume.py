"""*Resume* of a scheduled continuous pipeline in a live Airflow: it starts a run unless Airflow does so anyway."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from airflow_site import Site, wait_until
from integration.kafka_pipeline import committed
from integration.topic_rows import topics_of

from changefeed.airflow.ingest_dag import ingest_dag_id

NAME = "resident"
INGEST = ingest_dag_id(NAME)
CONTINUOUS = "schedule: '@continuous'\nwindows: {every: 500ms, run_for: 1h}\n"

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1200)]


@dataclass(frozen=True)
class Resident:
    """A continuous pipeline. Airflow has started its first run; the next one is due in an hour."""

    site: Site

    def act(self, action: str, user: str = "ulf") -> dict[str, Any]:
        """Pause or resume the pipeline over REST."""
        with self.site.client(user) as client:
            answer = client.post(f"/changefeed/api/pipelines/{NAME}/{action}")
        assert answer.status_code == 200, answer.text
        done: dict[str, Any] = answer.json()
        return done

    def runs(self) -> dict[str, str]:
        """The states of the runs by their ids, in order."""
        with self.site.client() as client:
            answer = client.get(f"/api/v2/dags/{INGEST}/dagRuns", params={"order_by": "id", "limit": 100})
        return {run["dag_run_id"]: run["state"] for run in answer.json()["dag_runs"]}

    def cancel_runs(self) -> None:
        """Pause the pipeline, and cancel the runs that have not ended."""
        self.act("pause")
        with self.site.client() as client:
            for run, state in self.runs().items():
                if state not in ("success", "failed"):
                    path = f"/api/v2/dags/{INGEST}/dagRuns/{run}"
                    assert client.patch(path, json={"state": "failed"}).status_code == 200

    def is_due(self) -> bool:
        """Whether Airflow starts the next run now, unless the DAG is paused."""
        with self.site.client() as client:
            next_run = client.get(f"/api/v2/dags/{INGEST}").json()["next_dagrun_run_after"]
        return next_run is not None and datetime.fromisoformat(next_run) <= datetime.now(UTC)

    def records(self) -> int:
        """The number of committed records."""
        kafka, topic = self.site.kafka.bootstrap, f"{NAME}.t"
        return len(committed(kafka, topic)) if topic in topics_of(kafka, topic) else 0

    def publish(self) -> None:
        """Insert a row each second until a further record is committed; the pipeline may not have its start before."""
        before, begun = self.records(), time.monotonic()
        while self.records() == before:
            assert time.monotonic() < begun + 240, "expected that a row is published"
            self.site.mysql.execute(f"INSERT INTO {NAME}.t VALUES ()")
            time.sleep(1)


@pytest.fixture
def resident(airflow_site: Site) -> Iterator[Resident]:
    site, path = airflow_site, airflow_site.pipelines / f"{NAME}.yaml"
    site.mysql.execute(f"CREATE DATABASE {NAME}", f"CREATE TABLE {NAME}.t (id INT PRIMARY KEY AUTO_INCREMENT)")
    site.write_pipeline(NAME, NAME, server_ids="65364-65395")
    path.write_text(path.read_text().replace("schedule: null\n", CONTINUOUS))
    pipeline = Resident(site)
    try:
        site.wait_for_dag(INGEST)
        wait_until(pipeline.runs, "the first run begins", 120)
        yield pipeline
    finally:
        pipeline.cancel_runs()
        path.unlink()
        with site.client() as client:
            client.delete(f"/api/v2/dags/{INGEST}")
        site.mysql.execute(f"DROP DATABASE {NAME}")


def test_resume_of_a_continuous_pipeline_starts_a_run_that_publishes(resident: Resident) -> None:
    (first,) = resident.runs()
    resident.publish()
    assert resident.act("resume")["run_id"] is None, "it is not paused"
    resident.act("pause")
    log = lambda: resident.site.log(INGEST, "ingest", first)  # noqa: E731
    wait_until(lambda: "the run was asked to end" in log(), "the pause ends the run", 120)
    second = resident.act("resume")["run_id"]
    assert [*resident.runs()] == [first, second]
    resident.publish()
    wait_until(lambda: resident.runs() == {first: "success", second: "running"}, "the first run has ended", 120)


def test_resume_starts_no_run_of_a_continuous_pipeline_if_the_next_is_due(resident: Resident) -> None:
    resident.cancel_runs()
    before = {*resident.runs()}
    path = resident.site.pipelines / f"{NAME}.yaml"
    path.write_text(path.read_text().replace("run_for: 1h", "run_for: 10s"))
    resident.site.parse()
    wait_until(resident.is_due, "the next run is due", 120)
    path.write_text(path.read_text().replace("run_for: 10s", "run_for: 1h"))
    assert resident.act("resume")["run_id"] is None
    wait_until(lambda: {*resident.runs()} - before, "Airflow starts it", 120)
    assert len({*resident.runs()} - before) == 1


def test_resume_by_a_user_who_may_not_start_runs_starts_none(resident: Resident) -> None:
    resident.cancel_runs()
    before = resident.runs()
    resident.site.give_rights(f"PUT dag {INGEST}")
    try:
        assert resident.act("resume", "rita") == {"name": NAME, "paused": False, "run_id": None}
    finally:
        resident.site.give_rights()
    assert not resident.is_due()
    assert resident.runs().keys() == before.keys()
