"""A live Airflow ends a task, loses its worker, or restarts its scheduler, while the job publishes.

The job ends with its task and repeats nothing. The metadata database is PostgreSQL. Tasks of the pipelines `ended` and
`lasting`, whose runs are continuous, run in the scheduler's LocalExecutor. Those of `apart` run on two workers of the
EdgeExecutor, which share no folder: they reach Airflow only over HTTP.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
from airflow_site import Site, site, wait_until
from integration.kafka_pipeline import committed, ids

from devstack.home import PROJECT, Home
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.postgresql import PostgresqlServer
from devstack.process import ServerProcess, run_server
from devstack.spark_connect import SparkConnectServer

EDGE = "airflow.providers.edge3.executors.EdgeExecutor"

POLICY = """\
def task_instance_mutation_hook(task_instance, dag_run=None):
    if task_instance.dag_id == "changefeed_ingest__apart":
        task_instance.executor = "edge"
        task_instance.queue = "second" if task_instance.task_id == "ingest" else "first"
"""
"""Airflow's policy: the second worker runs `ingest`, the first one all other tasks of `apart`."""

SETTINGS = {
    "AIRFLOW__CORE__EXECUTOR": f"LocalExecutor,edge:{EDGE}",
    "AIRFLOW__EDGE__API_ENABLED": "True",
    "AIRFLOW__EDGE__HEARTBEAT_INTERVAL": "2",
    "AIRFLOW__EDGE__JOB_POLL_INTERVAL": "1",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "2",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_SEC": "1",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "20",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "2",
}

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1200)]


@dataclass
class HeldPipeline:
    """A pipeline whose jobs create the file ``held`` before they seal a window, and wait until it is removed."""

    site: Site
    name: str
    held: Path

    @property
    def dag_id(self) -> str:
        return f"changefeed_ingest__{self.name}"

    def hold(self) -> tuple[str, psutil.Process]:
        """Insert a row and start a run; returns its id and the driver, which is held."""
        self.site.mysql.execute(f"INSERT INTO {self.name}.t VALUES ()")
        run_id = self.site.trigger(self.dag_id)
        wait_until(self.held.exists, "the job is before the seal", 300)
        return run_id, self.driver()

    def driver(self) -> psutil.Process:
        (driver,) = self.drivers()
        return driver

    def drivers(self) -> list[psutil.Process]:
        return [process for process in psutil.process_iter() if self._is_driver(process)]

    def _is_driver(self, process: psutil.Process) -> bool:
        try:
            runs_job = any(argument.endswith("jobs/ingest.py") for argument in process.cmdline())
            return runs_job and process.environ().get("CHANGEFEED_FAULT_FILE") == str(self.held)
        except psutil.Error:
            return False

    def finish(self, run_id: str) -> dict[str, str]:
        """Release the jobs that are held now or later, until the run ends; returns the states of its tasks, and of the
        run under ''."""

        def has_ended() -> bool:
            self.held.unlink(missing_ok=True)
            with self.site.client() as client:
                state = client.get(f"/api/v2/dags/{self.dag_id}/dagRuns/{run_id}").json()["state"]
            return state in ("success", "failed")

        wait_until(has_ended, f"run {run_id} ends", 600)
        return self.site.wait_for_run(self.dag_id, run_id)

    def attempts(self, run_id: str) -> list[dict[str, Any]]:
        """All attempts of the task `ingest`."""
        path = f"/api/v2/dags/{self.dag_id}/dagRuns/{run_id}/taskInstances/ingest/tries"
        with self.site.client() as client:
            attempts = client.get(path).json()["task_instances"]
        return sorted(attempts, key=lambda attempt: attempt["try_number"])

    def log(self, run_id: str, attempt: int) -> str:
        """The log of an attempt of the task `ingest`."""
        return self.site.log(self.dag_id, "ingest", run_id, attempt)

    def check(self, run_id: str, attempts: int = 2) -> None:
        """Finish a run, and check that it succeeds with at least so many ``attempts``, of which the last does not wait
        for the claim of the job that ended before it, and that each row is published once."""
        states = self.finish(run_id)
        last = len(self.attempts(run_id))
        log = self.log(run_id, last)
        assert states[""] == "success", log
        assert last >= attempts
        assert "sealed window" in log
        assert "did not end in order" not in log, "the claim was returned"
        published = ids(committed(self.site.kafka.bootstrap, f"{self.name}.t"))
        ((rows,),) = self.site.mysql.execute(f"SELECT COUNT(*) FROM {self.name}.t")
        assert len(published) == len(set(published)) == rows


def add_pipeline(site: Site, name: str, server_ids: str, held: Path, more: str = "") -> HeldPipeline:
    """Add a pipeline, whose failed tasks are retried."""
    site.mysql.execute(f"CREATE DATABASE {name}", f"CREATE TABLE {name}.t (id INT PRIMARY KEY AUTO_INCREMENT)")
    site.write_pipeline(name, name, more, server_ids=server_ids)
    file = site.pipelines / f"{name}.yaml"
    text = file.read_text().replace("retries: 0", "retries: 3")
    file.write_text(text.replace("kafka_shop", "kafka_shop\n  lease_seconds: 60"))
    site.wait_for_dag(f"changefeed_ingest__{name}")
    return HeldPipeline(site, name, held)


@pytest.fixture(scope="module")
def held_site(
    tmp_path_factory: pytest.TempPathFactory,
    mysql_server: MysqlServer,
    kafka_broker: KafkaBroker,
    spark_connect: SparkConnectServer,
) -> Iterator[Site]:
    """An Airflow with PostgreSQL, whose jobs are held before they seal a window."""
    folder = tmp_path_factory.mktemp("ended")
    policy = folder / "site" / "airflow" / "config" / "airflow_local_settings.py"
    policy.parent.mkdir(parents=True)
    policy.write_text(POLICY)
    held = {"CHANGEFEED_FAULT": "before_seal", "CHANGEFEED_FAULT_FILE": str(folder / "held")}
    with (
        run_server(PostgresqlServer(folder / "postgresql", owner=ProcessId.own())) as postgresql,
        site(folder / "site", mysql_server, kafka_broker, spark_connect, SETTINGS | held, postgresql.url()) as airflow,
    ):
        yield airflow
    mysql_server.execute(*(f"DROP DATABASE IF EXISTS {name}" for name in ("ended", "lasting", "apart")))


@pytest.fixture(scope="module")
def ended(held_site: Site) -> HeldPipeline:
    pipeline = add_pipeline(held_site, "ended", "65500-65531", Path(held_site.airflow.env["CHANGEFEED_FAULT_FILE"]))
    assert held_site.run(pipeline.dag_id)["ingest"] == "skipped"
    return pipeline


@pytest.fixture(scope="module")
def lasting(held_site: Site) -> HeldPipeline:
    """A continuous pipeline."""
    held = Path(held_site.airflow.env["CHANGEFEED_FAULT_FILE"])
    pipeline = add_pipeline(held_site, "lasting", "65572-65603", held, "windows: {every: 500ms, run_for: 10s}\n")
    assert held_site.run(pipeline.dag_id)["ingest"] == "success"
    return pipeline


@pytest.mark.long
def test_job_ends_when_its_task_is_marked_failed(ended: HeldPipeline) -> None:
    run_id, driver = ended.hold()
    with ended.site.client() as client:
        path = f"/api/v2/dags/{ended.dag_id}/dagRuns/{run_id}/taskInstances/ingest"
        assert client.patch(path, json={"new_state": "failed"}).status_code == 200
    driver.wait(240)
    assert ended.finish(run_id)["ingest"] == "failed"


def test_job_ends_when_its_run_is_cancelled_and_the_next_run_publishes_the_rest(ended: HeldPipeline) -> None:
    run_id, driver = ended.hold()
    path = f"/changefeed/api/pipelines/{ended.name}/runs"
    with ended.site.client("ulf") as client:
        (shown,) = [one for one in client.get(path).json()["runs"] if one["run_id"] == run_id]
        assert (shown["state"], shown["planned"], shown["windows"]) == ("running", 1, [])
        assert (shown["live"]["topic_partitions"], shown["live"]["messages"]) == (1, 1)
        assert client.post(f"{path}/{run_id}/cancel").json()["state"] == "failed"
        driver.wait(240)
        again, absent = client.post(f"{path}/{run_id}/cancel"), client.post(f"{path}/manual__1/cancel")
    with ended.site.client() as client:
        logged = client.get("/api/v2/eventLogs", params={"dag_id": ended.dag_id, "event": "changefeed_cancel"}).json()
    assert (again.status_code, absent.status_code) == (409, 404)
    assert f"found {run_id} in state failed" in again.json()["detail"]
    assert [(one["owner"], run_id in one["extra"]) for one in logged["event_logs"]] == [("ulf", True)]
    assert ended.finish(run_id) == {"": "failed", "plan": "success", "ingest": "failed", "commit": "skipped"}
    next_id, _ = ended.hold()
    ended.check(next_id, attempts=1)


@pytest.mark.long
def test_job_ends_when_its_task_is_cleared_and_the_next_attempt_publishes(ended: HeldPipeline) -> None:
    run_id, driver = ended.hold()
    body = {"dry_run": False, "dag_run_id": run_id, "task_ids": ["ingest"], "only_failed": False}
    with ended.site.client() as client:
        assert client.post(f"/api/v2/dags/{ended.dag_id}/clearTaskInstances", json=body).status_code == 200
    driver.wait(240)
    ended.check(run_id)


@pytest.mark.each_case
@pytest.mark.parametrize(
    ("name", "number"), [("ended", signal.SIGKILL), ("lasting", signal.SIGTERM)], ids=["killed", "asked-continuous"]
)
def test_job_ends_with_its_supervisor_and_the_retry_publishes(
    request: pytest.FixtureRequest, name: str, number: signal.Signals
) -> None:
    """SIGTERM is what the supervisor gets at the end of its container, as in a deploy."""
    pipeline: HeldPipeline = request.getfixturevalue(name)
    run_id, driver = pipeline.hold()
    task = driver.parent()
    assert task is not None
    os.kill(task.ppid(), number)
    psutil.wait_procs([driver, task], timeout=240)
    assert not driver.is_running()
    assert not task.is_running()
    pipeline.check(run_id)
    next_id, _ = pipeline.hold()
    pipeline.check(next_id, attempts=1)


def test_one_job_publishes_after_the_scheduler_was_killed_and_restarted(ended: HeldPipeline) -> None:
    """The new scheduler does not know the task that still runs. When the old scheduler has been silent for 30 seconds,
    it starts another attempt, which waits for the end of the first one's job. That is delayed: its supervisor is
    suspended until then."""
    run_id, driver = ended.hold()
    task = driver.parent()
    assert task is not None
    supervisor = psutil.Process(task.ppid())
    (scheduler,) = [parent for parent in driver.parents() if parent.pid in ended.site.airflow.pids]
    workers = scheduler.children()  # without a scheduler they wait for ever
    try:
        supervisor.suspend()
        ended.site.airflow.restart_killed("scheduler")
        wait_until(lambda: "which still works" in ended.log(run_id, 2), "the second attempt waits", 300)
        supervisor.resume()
        driver.wait(240)
        ended.check(run_id)
        assert len(ended.attempts(run_id)) == 2
    finally:
        for worker in workers:
            with suppress(psutil.NoSuchProcess):
                worker.kill()


class EdgeWorker:
    """A worker in ``folder``, with copies of DAGs and pipelines. It has no access to Airflow's database, and none of
    its connections."""

    def __init__(self, site: Site, name: str, folder: Path) -> None:
        self.name = name
        self.folder = folder
        self._process = ServerProcess(
            f"Airflow's worker {name}", Home.default().record_of(folder), folder / "worker.log", ProcessId.own()
        )
        shutil.copytree(PROJECT / "dags", folder / "dags")
        shutil.copytree(site.pipelines, folder / "pipelines")
        shutil.copy(site.site_file, folder)
        (folder / "tmp").mkdir()
        hidden = ("AIRFLOW_CONN_", "AIRFLOW__DATABASE__", "AIRFLOW__CORE__FERNET_KEY")
        self._env = {name: value for name, value in site.airflow.env.items() if not name.startswith(hidden)} | {
            "AIRFLOW_HOME": str(folder),
            "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
            "AIRFLOW__EDGE__API_URL": f"{site.airflow.url}/edge_worker/v1/rpcapi",
            "CHANGEFEED_FAULT_FILE": str(folder / "held"),
            "CHANGEFEED_PIPELINES": str(folder / "pipelines"),
            "CHANGEFEED_SITE": str(folder / site.site_file.name),
            "TMPDIR": str(folder / "tmp"),
        }

    def start(self) -> None:
        command = [sys.executable, "-m", "airflow", "edge", "worker"]
        command += ["--queues", self.name, "--edge-hostname", self.name, "--concurrency", "1"]
        self._process.start(command, env=self._env, cwd=self.folder)

    def stop(self, grace: float = 0) -> None:
        self._process.stop(grace)

    def log(self) -> str:
        return self._process.log_text()[-4000:]


def test_retry_on_another_worker_without_a_shared_folder_repeats_nothing(held_site: Site, tmp_path: Path) -> None:
    """`plan` runs on the first worker, `ingest` on the second one until that is killed, and then on the first one."""
    apart = add_pipeline(held_site, "apart", "65540-65571", tmp_path / "second" / "held")
    with ExitStack() as stack:
        first, second = (EdgeWorker(held_site, name, tmp_path / name) for name in ("first", "second"))
        stack.enter_context(run_server(first))
        stack.enter_context(run_server(second))
        states = held_site.run(apart.dag_id)
        assert states["ingest"] == "skipped", first.log()
        run_id, driver = apart.hold()
        supervisor = psutil.Process(driver.parent().ppid())
        supervisor.parent().kill()
        supervisor.kill()
        driver.wait(240)
        with held_site.client() as client:
            assert client.put("/edge_worker/ui/worker/first/queues/second").is_success
        apart.held = tmp_path / "first" / "held"
        apart.check(run_id)
        assert [attempt["hostname"] for attempt in apart.attempts(run_id)] == ["second", "first"]
