"""The image's entry point starts a driver and an executor of real Spark, as Kubernetes starts them in pods.

Processes stand for pods: the driver's master has no workers, so the executor of the entry point runs the task.
"""

from __future__ import annotations

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from devstack.home import PROJECT, Home
from devstack.java import fetch_java
from devstack.port import free_port

pytestmark = pytest.mark.extended

ENTRY_POINT = str(PROJECT / "docker" / "entrypoint.sh")
DUMB_INIT = '#!/bin/sh\nwhile [ "$1" != -- ]; do shift; done\nshift\nexec "$@"\n'
JOB = """
import os
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
print("ready", flush=True)
found = spark.sparkContext.parallelize([1], 1).map(lambda _: os.environ["SPARK_EXECUTOR_POD_NAME"]).collect()
print("ran in", *found)
"""


def lines_until(process: subprocess.Popen[str], last: str) -> str:
    """What the process prints until the line ``last``, or until it ends."""
    assert process.stdout is not None
    printed = ""
    for line in process.stdout:
        printed += line
        if line.strip() == last:
            break
    return printed


def test_executor_of_the_entry_point_runs_a_task_of_its_driver(tmp_path: Path) -> None:
    (tmp_path / "dumb-init").write_text(DUMB_INIT)
    (tmp_path / "dumb-init").chmod(0o755)
    (tmp_path / "job.py").write_text(JOB)
    java = fetch_java(Home.default()).resolve()
    spec = find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    port = free_port()
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "JAVA_HOME": str(java.parent.parent),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(tmp_path),
        "PYSPARK_PYTHON": "python3",
    }
    conf = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.port": str(port),
        "spark.ui.enabled": "false",
        "spark.log.level": "WARN",
    }
    options = [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    driver = subprocess.Popen(
        [ENTRY_POINT, "driver", "--master", "local-cluster[0,1,1024]", *options, str(tmp_path / "job.py")],
        env={**environment, "SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1"},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        begin = lines_until(driver, "ready")
        executor = subprocess.run(
            [ENTRY_POINT, "executor"],
            env={
                **environment,
                "SPARK_JAVA_OPT_0": f"-Dspark.driver.port={port}",
                "SPARK_DRIVER_URL": f"spark://CoarseGrainedScheduler@127.0.0.1:{port}",
                "SPARK_EXECUTOR_ID": "1",
                "SPARK_EXECUTOR_CORES": "1",
                "SPARK_EXECUTOR_MEMORY": "512m",
                "SPARK_APPLICATION_ID": "spark-pods",
                "SPARK_EXECUTOR_POD_IP": "127.0.0.1",
                "SPARK_EXECUTOR_POD_NAME": "changefeed-exec-1",
                "SPARK_RESOURCE_PROFILE_ID": "0",
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=400,
        )
        printed = begin + driver.communicate(timeout=240)[0]
    finally:
        driver.kill()
    assert (executor.returncode, driver.returncode) == (0, 0), executor.stderr[-2000:] + printed[-2000:]
    assert "ran in changefeed-exec-1" in printed
