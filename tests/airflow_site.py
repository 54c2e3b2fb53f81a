"""A complete Airflow with our DAGs and plugin, on real servers, for the Airflow, browser and security tests."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import httpx

from devstack.airflow import AirflowServer
from devstack.home import PROJECT
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.spark_connect import SparkConnectServer

USERS = {"ada": "admin", "olga": "op", "ulf": "user", "vera": "viewer", "rita": "user"}
"""Users of Airflow's simple auth manager by role. A password is the name twice. Rita has only the rights that
`Site.give_rights` sets."""

PIPELINE = """\
name: {name}
source:
  connection: mysql_shop
  server_ids: {server_ids}
kafka:
  connection: kafka_shop
tables:
  include: ["{database}.*"]
topics:
  partitions: 2
start: latest
schedule: null
retries: 0
retry_delay_seconds: 1
{more}"""

OVER_REST = PIPELINE.replace("  server_ids: {server_ids}\n", "")
"""`PIPELINE` as a user may write it over REST, who may not set server_ids."""

PARSED = "changefeed_ingest__idle"
"""A DAG of dags/pipelines.py, whose file token `Site.parse` uses."""

SCRAPE_TOKEN = "scrape-0d5ce4b1f37a4c2e9d1b6a8f55"
"""The token of Prometheus. Its variable has a prefix of variables that jobs get, which must not include this one."""

_Answer = TypeVar("_Answer")


@dataclass
class Site:
    """Airflow with its users, its servers, and a folder of pipelines."""

    airflow: AirflowServer
    mysql: MysqlServer
    kafka: KafkaBroker
    spark: SparkConnectServer
    pipelines: Path
    site_file: Path
    """The administrator's site file (CHANGEFEED_SITE)."""
    rights: Path
    """The file of rita's rights (`LimitedAuthManager`)."""
    _tokens: dict[str, str] = field(default_factory=dict)

    @property
    def archives(self) -> Path:
        """The folder from which backfills may read archived files."""
        return self.site_file.parent / "archives"

    def client(self, user: str | None = "ada") -> httpx.Client:
        """A client that is logged in as ``user``; without a login if it is None."""
        headers = {"Authorization": f"Bearer {self.token(user)}"} if user else {}
        return httpx.Client(base_url=self.airflow.url, headers=headers, timeout=120)

    def token(self, user: str) -> str:
        if user not in self._tokens:
            answer = httpx.post(
                f"{self.airflow.url}/auth/token", json={"username": user, "password": user * 2}, timeout=120
            )
            assert answer.status_code == 201, answer.text
            self._tokens[user] = answer.json()["access_token"]
        return self._tokens[user]

    def give_rights(self, *rights: str) -> None:
        """Replace rita's rights on DAGs by ``rights``, patterns of `LimitedAuthManager`."""
        partial = self.rights.with_suffix(".partial")
        partial.write_text(json.dumps({"rita": rights}))
        partial.replace(self.rights)

    def add_pipeline(
        self, name: str, database: str, more: str = "", server_ids: str = "65000-65031", *, submit: bool = False
    ) -> None:
        """Add a pipeline, and wait until Airflow has its DAGs.

        Its jobs use the Connect server, or spark-submit with *submit*.
        """
        self.write_pipeline(name, database, more, server_ids, submit=submit)
        kinds = ("ingest", "seek", "backfill", "snapshot", "verify")
        self.wait_for_dag(*(f"changefeed_{kind}__{name}" for kind in kinds))

    def write_pipeline(
        self, name: str, database: str, more: str = "", server_ids: str = "65000-65031", *, submit: bool = False
    ) -> None:
        """Write a pipeline's file, which following runs read."""
        spark = "" if submit else f"spark: {{connect: '{self.spark.url}'}}\n"
        text = PIPELINE.format(name=name, database=database, more=more + spark, server_ids=server_ids)
        (self.pipelines / f"{name}.yaml").write_text(text)

    def wait_for_dag(self, *dag_ids: str) -> None:
        self.parse()
        with self.client() as client:
            for path in (f"/api/v2/dags/{dag_id}" for dag_id in dag_ids):
                wait_until(lambda path=path: client.get(path).status_code == 200, f"Airflow knows {path}", 300)

    def parse(self) -> None:
        """Have Airflow parse the DAG files now. Otherwise it parses them every 30 seconds, to save CPU."""
        with self.client() as client:
            token = wait_until(
                lambda: client.get(f"/api/v2/dags/{PARSED}").json().get("file_token"),
                f"Airflow knows DAG {PARSED}",
                300,
            )
            # SQLite is locked at times just after the start, while the DAG processor writes all DAGs
            wait_until(
                lambda: client.put(f"/api/v2/parseDagFile/{token}").status_code in (201, 409),
                "Airflow takes the request to parse the DAG files",
                120,
            )

    def trigger(self, dag_id: str, conf: dict[str, Any] | None = None) -> str:
        """Start a run; returns its id."""
        with self.client() as client:
            answer = client.post(f"/api/v2/dags/{dag_id}/dagRuns", json={"logical_date": None, "conf": conf or {}})
            assert answer.status_code == 200, answer.text
            return str(answer.json()["dag_run_id"])

    def run(self, dag_id: str, conf: dict[str, Any] | None = None, seconds: float = 600) -> dict[str, str]:
        """Run a DAG to its end; returns the states of its tasks, and of the run under ''."""
        return self.wait_for_run(dag_id, self.trigger(dag_id, conf), seconds)

    def wait_for_run(self, dag_id: str, run_id: str, seconds: float = 600) -> dict[str, str]:
        """Wait until a run ends; returns the states of its tasks, and of the run under ''."""
        with self.client() as client:

            def state() -> str | None:
                state_now = client.get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}").json()["state"]
                return state_now if state_now in ("success", "failed") else None

            outcome = wait_until(state, f"run {run_id} of {dag_id} ends", seconds)
            tasks = client.get(f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances").json()["task_instances"]
            return {"": outcome, **{task["task_id"]: task["state"] for task in tasks}}

    def log(self, dag_id: str, task_id: str, run_id: str | None = None, attempt: int = 1) -> str:
        """The log of a task with the messages of its exceptions, by default of the latest run."""
        with self.client() as client:
            if run_id is None:
                runs = client.get(f"/api/v2/dags/{dag_id}/dagRuns", params={"order_by": "-run_after", "limit": 1})
                run_id = runs.json()["dag_runs"][0]["dag_run_id"]
            answer = client.get(
                f"/api/v2/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{attempt}",
                params={"full_content": True},
                headers={"Accept": "application/json"},
            )
            lines: list[str] = []
            for line in answer.json().get("content", []):
                lines.append(str(line.get("event", line)))
                lines += [str(error["exc_value"]) for error in line.get("error_detail") or ()]
            return "\n".join(lines)


def wait_until(condition: Callable[[], _Answer], what: str, seconds: float) -> _Answer:
    """Wait until ``condition`` is true, and return its result; AssertionError after ``seconds``."""
    end = time.monotonic() + seconds
    while True:
        if answer := condition():
            return answer
        assert time.monotonic() < end, f"expected within {seconds:g} seconds: {what}"
        time.sleep(0.2)


@contextmanager
def site(
    folder: Path,
    mysql: MysqlServer,
    kafka: KafkaBroker,
    spark: SparkConnectServer,
    settings: Mapping[str, str] | None = None,
    database: str = "",
) -> Iterator[Site]:
    """Start Airflow in ``folder`` with ``settings`` in its environment, and the unused pipeline `idle`; kill it at the
    end.

    ``database`` is the URL of its empty metadata database, by default SQLite.
    """
    folder.mkdir(parents=True, exist_ok=True)
    pipelines = folder / "pipelines"
    pipelines.mkdir()
    site_file = folder / "site.yaml"
    site_file.write_text(f"archives: [{folder}/archives]\nscrape_token: {{environment: CHANGEFEED_SCRAPE_TOKEN}}\n")
    (folder / "archives").mkdir()
    passwords = folder / "passwords.json"
    passwords.write_text(json.dumps({name: name * 2 for name in USERS}))
    (pipelines / "idle.yaml").write_text(
        PIPELINE.format(name="idle", database="idle", server_ids="64900-64931", more="")
    )
    rights = folder / "rights.json"
    rights.write_text('{"rita": []}')
    airflow = AirflowServer(
        folder / "airflow",
        connections={
            "mysql_shop": mysql.url,
            "kafka_shop": f"kafka://{kafka.bootstrap}",
            "spark_default": json.dumps({"conn_type": "spark", "host": "local[2]"}),
        },
        settings={
            "CHANGEFEED_PIPELINES": str(pipelines),
            "CHANGEFEED_SITE": str(site_file),
            "CHANGEFEED_SCRAPE_TOKEN": SCRAPE_TOKEN,
            "PYTHONPATH": os.pathsep.join(
                map(str, (PROJECT / "include", PROJECT / "plugins", Path(__file__).parent / "security"))
            ),
            "LIMITED_RIGHTS": str(rights),
            "AIRFLOW__CORE__AUTH_MANAGER": "limited_auth_manager.LimitedAuthManager",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": ",".join(f"{name}:{role}" for name, role in USERS.items()),
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "30",
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "30",
            "AIRFLOW__SCHEDULER__PARSING_CLEANUP_INTERVAL": "3",
            "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
            **(settings or {}),
        },
        owner=ProcessId.own(),
        database=database,
        quick=True,
    )
    airflow.start()
    try:
        yield Site(airflow, mysql, kafka, spark, pipelines, site_file, rights)
    finally:
        airflow.kill()
