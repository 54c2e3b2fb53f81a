"""The list of many pipelines: its REST answer, the page in Chromium, and the CPU of Airflow's API server.

The pipelines share one MySQL and one Kafka. Each has a checkpoint, and a commit log with 60 sealed windows. No DAG
runs.

Prints:

- time and size of `GET /api/pipelines?live=false`, median of five
- seconds until the page shows all rows, and until it shows each pipeline's position
- requests of the page, and CPU seconds of the API server, in a minute with the page open; and without a page
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import httpx
from selenium import webdriver
from selenium.webdriver.common.by import By

PROJECT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(PROJECT / "include"), str(Path(__file__).parent), str(PROJECT / "tests")]

from chromium import chromium  # noqa: E402 - after the path
from process_use import TICKS, family  # noqa: E402

from changefeed.kafka.commit_log.records import SealRecord  # noqa: E402
from changefeed.kafka.connection import KafkaConnection  # noqa: E402
from changefeed.kafka.record_writer import RecordWriter  # noqa: E402
from changefeed.kafka.topics import commit_log_settings, ensure_topics  # noqa: E402
from changefeed.model.checkpoint import Checkpoint  # noqa: E402
from changefeed.model.coordinates import BinlogCoordinates  # noqa: E402
from changefeed.model.manifest import Manifest  # noqa: E402
from changefeed.model.topic_name import commit_log_topic  # noqa: E402
from changefeed.model.window import Window  # noqa: E402
from devstack.airflow import USER, AirflowServer  # noqa: E402
from devstack.home import Home  # noqa: E402
from devstack.identity import ProcessId  # noqa: E402
from devstack.kafka import KafkaBroker  # noqa: E402
from devstack.mysql import MysqlServer  # noqa: E402
from devstack.process import run_server  # noqa: E402

YAML = """\
name: {name}
source: {{connection: mysql, server_ids: {first_id}-{last_id}}}
kafka: {{connection: kafka}}
tables: {{include: ["bench.{name}"]}}
schedule: null
"""
WINDOWS = 60
LONGEST_SECONDS = 900
LOG_CHARACTERS = 6000


class Bench:
    """Airflow with the pipelines."""

    def __init__(self, folder: Path, names: list[str], mysql: MysqlServer, kafka: KafkaBroker, project: Path) -> None:
        self.names = names
        self.mysql, self.kafka = mysql, kafka
        self.uuid = str(mysql.execute("SELECT @@server_uuid")[0][0])
        self.no_dags = folder / "no-dags"
        self.no_dags.mkdir()
        self.yaml = folder / "pipelines"
        self.yaml.mkdir()
        self.airflow = AirflowServer(
            folder / "airflow",
            project=project,
            connections={"mysql": mysql.url, "kafka": f"kafka://{kafka.bootstrap}"},
            settings={
                "AIRFLOW__CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
                "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
                "AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "600",
                "AIRFLOW__DAG_PROCESSOR__DAG_FILE_PROCESSOR_TIMEOUT": "600",
                "CHANGEFEED_PIPELINES": str(self.yaml),
                # before the packages of this Python, which may have another checkout's plugin
                "PYTHONPATH": os.pathsep.join(str(project.absolute() / part) for part in ("include", "plugins")),
            },
            owner=ProcessId.own(),
            quick=True,
        )

    def leave_out_dags(self) -> None:
        """Have Airflow load no DAG."""
        self.airflow.settings["AIRFLOW__CORE__DAGS_FOLDER"] = str(self.no_dags)

    def write(self) -> None:
        """Create the pipelines' files and commit logs."""
        for number, name in enumerate(self.names):
            ids = {"first_id": 10_000 + 10 * number, "last_id": 10_009 + 10 * number}
            (self.yaml / f"{name}.yaml").write_text(YAML.format(name=name, **ids))
        self.mysql.execute("CREATE DATABASE bench", *(f"CREATE TABLE bench.{name} (id INT)" for name in self.names))
        connection = KafkaConnection(self.kafka.bootstrap)
        ensure_topics(connection, {commit_log_topic(name): commit_log_settings(1) for name in self.names})
        for name in self.names:
            seals = [SealRecord(self.manifest(name, number)) for number in range(1, WINDOWS + 1)]
            with RecordWriter(connection, commit_log_topic(name)) as writer:
                writer.write({seal.key(name): seal.value() for seal in seals}, "to prepare a benchmark")

    def manifest(self, name: str, number: int) -> Manifest:
        """A window of 500 rows."""
        ends = [BinlogCoordinates("binlog.000001", 1000 * each) for each in (number, number + 1)]
        window = Window(name, number, self.uuid, *ends, "", "", int(time.time() * 1000))
        return Manifest(window, 1000, 10, 1, {f"bench.{name}": {"c": 500}}, 0, ())

    def store_checkpoints(self, client: httpx.Client) -> None:
        """Store each pipeline's checkpoint at the source's head."""
        file, position, *_ = self.mysql.execute("SHOW BINARY LOG STATUS")[0]
        head = BinlogCoordinates(str(file), int(position))
        for name in self.names:
            checkpoint = Checkpoint(name, WINDOWS, self.uuid, head, "", int(time.time() * 1000))
            body = {"key": f"changefeed_checkpoint__{name}", "value": checkpoint.to_text()}
            wait_for(lambda body=body: client.post("/api/v2/variables", json=body).is_success, "a Variable is stored")

    def client(self) -> httpx.Client:
        """A logged-in client."""
        login = {"username": USER, "password": self.airflow.password}
        token = httpx.post(f"{self.airflow.url}/auth/token", json=login, timeout=60).json()["access_token"]
        return httpx.Client(base_url=self.airflow.url, headers={"Authorization": f"Bearer {token}"}, timeout=300)

    @property
    def cpu_seconds(self) -> float:
        """CPU seconds of the API server until now."""
        return sum(sum(map(int, fields[11:15])) for fields in family(self.airflow.pids[0]).values()) / TICKS


def wait_for(condition: Callable[[], bool], what: str) -> float:
    """The seconds until ``condition`` is true. SystemExit if that takes too long."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > LONGEST_SECONDS:
            raise SystemExit(f"expected within {LONGEST_SECONDS} seconds: {what}")
        time.sleep(0.2)
    return time.monotonic() - began


def measure_answer(bench: Bench, client: httpx.Client) -> None:
    """Print time and size of the list without live values."""
    seconds, size = [], 0
    for _ in range(5):
        began = time.perf_counter()
        answer = client.get("/changefeed/api/pipelines", params={"live": "false"})
        seconds.append(time.perf_counter() - began)
        if answer.is_error:
            time.sleep(2)  # until the log has the error
            log = (bench.airflow.directory / "api-server.log").read_text()
            raise SystemExit(f"expected the list of pipelines, found {answer.status_code}: {log[-LOG_CHARACTERS:]}")
        size = len(answer.content)
    states = {one["standing"]["text"] for one in answer.json()["pipelines"]}
    print(
        f"GET /api/pipelines?live=false  {statistics.median(seconds):.3f} s, {size / 1000:.0f} kB ({states})",
        flush=True,
    )


def measure_page(bench: Bench, browser: webdriver.Chrome) -> None:
    """Print the seconds until the page is complete, and what it costs while it is open."""
    count = len(bench.names)

    def rows() -> bool:
        return len(browser.find_elements(By.CSS_SELECTOR, "[data-pipeline]")) >= count

    def live() -> bool:  # each pipeline has a chart of its rows
        return len(browser.find_elements(By.CSS_SELECTOR, "[data-pipeline] .sparkline")) >= count

    before = bench.cpu_seconds
    browser.get(f"{bench.airflow.url}/changefeed/")
    seconds = wait_for(rows, "the page shows all rows")
    print(f"page shows all rows            {seconds:.1f} s", flush=True)
    seconds += wait_for(live, "the page shows all positions")
    print(f"page shows all positions       {seconds:.1f} s, {bench.cpu_seconds - before:.1f} s of CPU", flush=True)
    requests = "return performance.getEntriesByType('resource').filter((one) => one.name.includes('/api/')).length"
    browser.execute_script("performance.setResourceTimingBufferSize(5000); performance.clearResourceTimings()")
    print(f"a minute with the page         {measure_cpu(bench):.1f} s of CPU, ", end="")
    print(f"{browser.execute_script(requests)} requests", flush=True)
    screenshots = Home.default().root / "screenshots"
    screenshots.mkdir(parents=True, exist_ok=True)
    browser.save_screenshot(str(screenshots / "bench-list.png"))


def measure_cpu(bench: Bench) -> float:
    """CPU seconds of the API server in a minute."""
    before = bench.cpu_seconds
    time.sleep(60)
    return bench.cpu_seconds - before


def known_dags(client: httpx.Client) -> int:
    """The number of ingest DAGs that Airflow knows."""
    found = client.get("/api/v2/dags", params={"dag_id_pattern": "changefeed_ingest__p", "limit": 1}).json()
    return int(found.get("total_entries", 0))


def measure(pipelines: int, project: Path, *, without_dags: bool) -> None:
    """Start the servers, and measure."""
    home, owner = Home.default(), ProcessId.own()
    with ExitStack() as stack:
        home.test.mkdir(parents=True, exist_ok=True)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=home.test)))
        mysql = stack.enter_context(run_server(MysqlServer(folder / "mysql", owner=owner)))
        kafka = stack.enter_context(run_server(KafkaBroker(folder / "kafka", owner=owner)))
        names = [f"p{number:03}" for number in range(pipelines)]
        bench = Bench(folder, names, mysql, kafka, project)
        bench.write()
        if without_dags:
            bench.leave_out_dags()
        stack.enter_context(run_server(bench.airflow))
        with bench.client() as client:
            if not without_dags:
                loaded = wait_for(lambda: known_dags(client) >= pipelines, "Airflow has all DAGs")
                print(f"Airflow loads the DAGs         {loaded:.0f} s", flush=True)
            bench.store_checkpoints(client)
            measure_answer(bench, client)
        print(f"a minute without a page        {measure_cpu(bench):.1f} s of CPU", flush=True)
        with chromium(bench.airflow.url, USER, bench.airflow.password) as browser:
            measure_page(bench, browser)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--pipelines", type=int, default=200)
    arguments.add_argument(
        "--project", type=Path, default=PROJECT, help="a checkout whose DAGs and plugin are measured"
    )
    arguments.add_argument("--without-dags", action="store_true", help="do not wait until Airflow has loaded all DAGs")
    parsed = arguments.parse_args()
    measure(parsed.pipelines, parsed.project, without_dags=parsed.without_dags)


if __name__ == "__main__":
    main()
