"""The plan and `spark.conf` reach the job in files, not as arguments."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from airflow_database import environment

YAML = """\
name: {name}
source: {{connection: mysql}}
kafka: {{connection: kafka}}
tables: {{include: ["shop.*"]}}
spark: {spark}
"""

JOB = """\
import os, sys
from pathlib import Path
from pyspark import SparkConf, SparkContext
from changefeed.spark.job_file import read_job_file
if sys.argv[2] == "submitted":
    SparkContext._ensure_initialized()
    print("passed:", SparkConf().get("spark.secret.text"), "by default:", SparkConf().get("spark.of.all"))
    print("arguments:", Path(f"/proc/{os.getppid()}/cmdline").read_bytes().decode().split("\\0"))
print("windows:", len(read_job_file(sys.argv[1])["windows"]), "then", *sys.argv[2:])
"""

WINDOWS = [{"number": number, "start_gtids": "s" * 86_000, "head_gtids": "h" * 86_000} for number in range(20)]

OPERATOR = """\
import json, sys
from pathlib import Path
from types import SimpleNamespace
from changefeed.airflow.ingest_operator import JobOperator

plan = json.loads(Path("xcom.json").read_text())
task = SimpleNamespace(try_number=1, xcom_pull=lambda task_ids: plan)
for pipeline in ("submitted", "connected"):
    job = JobOperator(task_id="ingest", pipeline=pipeline, job=str(Path("job.py").resolve()), arguments=[pipeline])
    job.execute({"ti": task})
"""


def test_plan_larger_than_an_argument_reaches_the_job_in_a_file(tmp_path: Path) -> None:
    """Linux limits an argument to 128 KiB; this plan has 3.4 MB."""
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    for name, spark in (
        ("submitted", "{conf: {spark.log.level: ERROR, spark.secret.text: 'a secret: \\ # = ü'}}"),
        ("connected", "{connect: 'sc://127.0.0.1:1'}"),
    ):
        (pipelines / f"{name}.yaml").write_text(YAML.format(name=name, spark=spark))
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "xcom.json").write_text(json.dumps({"windows": WINDOWS}))
    (tmp_path / "airflow").mkdir()
    env = environment(tmp_path / "airflow") | {
        "CHANGEFEED_PIPELINES": str(pipelines),
        "AIRFLOW_CONN_MYSQL": "mysql://127.0.0.1:1",
        "AIRFLOW_CONN_KAFKA": "kafka://127.0.0.1:1",
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        "TMPDIR": str(tmp_path),
        "SPARK_CONF_DIR": str(tmp_path),
    }
    (tmp_path / "spark-defaults.conf").write_text("spark.of.all here\n")
    done = subprocess.run([sys.executable, "-c", OPERATOR], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    for name in ("submitted", "connected"):
        assert f"windows: 20 then {name}" in done.stdout + done.stderr
    assert "passed: a secret: \\ # = ü by default: here" in done.stdout + done.stderr
    arguments = (done.stdout + done.stderr).partition("arguments:")[2].splitlines()[0]
    assert "--properties-file" in arguments
    assert "a secret" not in arguments
    assert not list(tmp_path.glob("changefeed-*")), "no temporary file is left"
