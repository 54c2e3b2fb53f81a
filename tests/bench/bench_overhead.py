"""What a small window costs, from plan to committed checkpoint, against spark-submit of an empty script.

Both in turn, three times; the best of each counts, as the machine is shared. Prints seconds by phase and the ratio.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(PROJECT / "include"))

from changefeed.connection import from_environment  # noqa: E402 - after the path
from changefeed.endpoints.endpoints import Endpoints  # noqa: E402
from changefeed.pipelines.file import load_pipeline  # noqa: E402
from changefeed.runs.commit import commit  # noqa: E402
from changefeed.runs.plan import plan  # noqa: E402
from changefeed.spark.conf import SMALL_JOB_CONF  # noqa: E402
from changefeed.state.table_store import TableCheckpointStore  # noqa: E402
from devstack.home import Home  # noqa: E402
from devstack.identity import ProcessId  # noqa: E402
from devstack.kafka import KafkaBroker  # noqa: E402
from devstack.mysql import MysqlServer  # noqa: E402
from devstack.process import started  # noqa: E402

TRIES = 3
YAML = """\
name: overhead
source: {connection: mysql}
kafka: {connection: kafka}
tables: {include: ["overhead.*"]}
start: latest
"""


def submit(script: str, *arguments: str, conf: dict[str, str] | None = None) -> tuple[float, str]:
    settings = [part for name, value in (conf or {}).items() for part in ("--conf", f"{name}={value}")]
    began = time.monotonic()
    done = subprocess.run(
        [str(Path(sys.executable).with_name("spark-submit")), "--master", "local[2]", *settings, script, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(done.stdout[-3000:] + done.stderr[-3000:])
    return time.monotonic() - began, done.stdout


def main() -> int:
    home = Home.default()
    owner = ProcessId.own()
    folder = home.test / f"{os.getpid()}-overhead"
    folder.mkdir(parents=True)
    with (
        started(MysqlServer(folder / "mysql", options={"binlog_row_metadata": "FULL"}, owner=owner)) as mysql,
        started(KafkaBroker(folder / "kafka", owner=owner)) as kafka,
    ):
        return measure(Path(tempfile.mkdtemp(dir=folder)), mysql, kafka)


def measure(folder: Path, mysql: MysqlServer, kafka: KafkaBroker) -> int:
    (folder / "overhead.yaml").write_text(YAML)
    (folder / "empty.py").write_text(
        "from pyspark.sql import SparkSession\nSparkSession.builder.getOrCreate().stop()\n"
    )
    os.environ |= {
        "CHANGEFEED_PIPELINES": str(folder),
        "AIRFLOW_CONN_MYSQL": mysql.url,
        "AIRFLOW_CONN_KAFKA": f"kafka://{kafka.bootstrap}",
        "PYTHONPATH": str(PROJECT / "include"),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
    }
    endpoints = Endpoints(load_pipeline("overhead"), from_environment)
    store = TableCheckpointStore(f"sqlite:///{folder / 'state.db'}")
    mysql.execute("CREATE DATABASE overhead", "CREATE TABLE overhead.t (id INT PRIMARY KEY)")
    plan(endpoints, store)
    empty: list[float] = []
    ours: list[dict[str, float]] = []
    for number in range(TRIES):
        empty.append(submit(str(folder / "empty.py"))[0])
        mysql.execute(f"INSERT INTO overhead.t VALUES ({number})")
        began = time.monotonic()
        planned = plan(endpoints, store)
        seconds = {"plan": time.monotonic() - began}
        job = str(PROJECT / "jobs" / "ingest.py")
        run = folder / "plan.json"
        run.write_text(json.dumps({"windows": [planned.window.to_json()]}))
        seconds["spark-submit"], _ = submit(job, str(run), "overhead", conf=SMALL_JOB_CONF)
        began = time.monotonic()
        manifest = commit(endpoints, planned.window, planned.expected, store)
        seconds["commit"] = time.monotonic() - began
        ours.append(seconds)
        inside = ", ".join(f"{phase} {value:.1f}" for phase, value in manifest.seconds.items())
        told = ", ".join(f"{phase} {value:.1f}" for phase, value in seconds.items())
        print(
            f"empty script {empty[-1]:.1f} s; window {sum(seconds.values()):.1f} s: {told} (of it {inside})", flush=True
        )
    ratio = min(sum(one.values()) for one in ours) / min(empty)
    print(f"a small window costs {ratio:.2f} x an empty script (wanted: under 2)")
    return 0 if ratio < 2 else 1


if __name__ == "__main__":
    sys.exit(main())
