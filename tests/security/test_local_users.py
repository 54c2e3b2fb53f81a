"""Attacks of another user of the machine on a run at a local master: ports, files, environment and process list."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from security.spark_thief import (
    addresses_of,
    answer_of_gateway,
    as_nobody,
    can_connect,
    environment_of,
    family_of,
    from_all,
    open_files,
    sockets_of,
    stolen_blocks,
)

TESTS = Path(__file__).parents[1]
PASSWORD = "pl4nted-secret"
OTHERS = "pl4nted-of-another-pipeline"
IN_CONF = "pl4nted-in-conf"


@contextmanager
def held(kind: str, tmp_path: Path, conf: dict[str, str], master: str = "local[1]") -> Iterator[int]:
    """Run a job of ``kind`` (see `held_job`) during the block; yields its pid.

    Raises SystemExit with its log if it ends.
    """
    folder, temporary = tmp_path / "held", tmp_path / "tmp"
    for each in (folder, tmp_path / "local", tmp_path / "pipelines"):
        each.mkdir()
    short = Path(tempfile.gettempdir(), f"cf-{uuid.uuid4().hex[:8]}")  # the path of a socket must be short
    short.mkdir()
    short.chmod(0o1777)
    temporary.symlink_to(short)
    (folder / "password").write_text(PASSWORD)
    spark = {"master": master, "conf": {"spark.local.dir": str(tmp_path / "local"), **conf}}
    pipeline = {"name": "held", "source": {"connection": "mysql_x"}, "kafka": {"connection": "kafka_x"}, "spark": spark}
    (tmp_path / "pipelines" / "held.yaml").write_text(json.dumps(pipeline | {"tables": {"include": ["a.*"]}}))
    env = {
        **{name: value for name, value in os.environ.items() if not name.startswith("SPARK_")},
        "PYTHONPATH": f"{TESTS.parent / 'include'}:{TESTS}",
        "CHANGEFEED_PIPELINES": str(tmp_path / "pipelines"),
        "AIRFLOW_HOME": str(tmp_path),
        "AIRFLOW_CONN_MYSQL_X": f"mysql://reader:{PASSWORD}@db",
        "AIRFLOW_CONN_MYSQL_Y": f"mysql://reader:{OTHERS}@db",
        "CHANGEFEED_LOG_KEY_OF_Y": OTHERS,
        "AIRFLOW_CONN_SPARK_DEFAULT": json.dumps({"conn_type": "spark", "host": "local[1]"}),
        "PYSPARK_PYTHON": sys.executable,
        "TMPDIR": str(short),
    }
    old = os.umask(0o022)
    try:
        with (tmp_path / "log").open("wb") as log:
            command = [sys.executable, str(TESTS / "security" / "held_job.py"), kind, str(folder)]
            job = subprocess.Popen(command, env=env, stdout=log, stderr=log)
    finally:
        os.umask(old)
    try:
        until = time.monotonic() + 400
        while not (folder / "ready").exists():
            if job.poll() is not None:
                raise SystemExit((tmp_path / "log").read_text())
            assert time.monotonic() < until, (tmp_path / "log").read_text()[-3000:]
            time.sleep(0.1)
        yield job.pid
    finally:
        shutil.rmtree(folder)
        job.wait(240)
        shutil.rmtree(short)


WEAK = {"spark.authenticate": "false", "spark.driver.bindAddress": "0.0.0.0", "spark.ui.enabled": "true"}
"""Unsafe settings that a pipeline's file may have."""


@pytest.mark.parametrize("kind", ["command", pytest.param("submit", marks=pytest.mark.extended)])
def test_other_users_of_the_machine_cannot_read_a_run(kind: str, tmp_path: Path) -> None:
    with held(kind, tmp_path, WEAK | {"spark.changefeed.secret": IN_CONF}) as job:
        for process in family_of(job):
            assert not as_nobody(environment_of, process.pid) or os.getuid()
            if kind == "submit" and process.pid != job:  # that one is Airflow's task
                environment = environment_of(process.pid)
                assert environment
                assert PASSWORD.encode() not in environment
                assert OTHERS.encode() not in environment
            shown = " ".join(process.cmdline())
            assert PASSWORD not in shown
            assert IN_CONF not in shown
        addresses = addresses_of(job)
        assert len(addresses) >= 4, "gateway, RPC, blocks, page"
        assert {host for host, _ in addresses} == {"127.0.0.1"}
        answers = from_all(stolen_blocks, addresses)
        assert not any(stolen for stolen, _ in answers)
        assert sum("Expected SaslMessage" in refusal for _, refusal in answers) == 2, "RPC and blocks"
        assert not any(answer.startswith(b"!y") for answer in from_all(answer_of_gateway, addresses))
        sockets = {path for path in sockets_of(job) if Path(path).parent == (tmp_path / "tmp").resolve()}
        assert len(sockets) >= 2, "daemon of Python, accumulators"
        assert not any(as_nobody(can_connect, path) for path in sockets)
        for folder in ("tmp", "local"):
            assert list(open_files(tmp_path / folder)) == []
        local = Path((tmp_path / "held" / "ready").read_text())
        assert local.is_relative_to(tmp_path / "local")


@pytest.mark.extended
@pytest.mark.parametrize("kind", ["closure", "stage"])
def test_spark_blocks_hold_passwords_of_closures_but_not_of_our_stages(kind: str, tmp_path: Path) -> None:
    """The attack on Spark with default settings. It finds the password of a closure, which proves that it works."""
    with held(kind, tmp_path, {}) as job:
        stolen = b"".join(blocks for blocks, _ in from_all(stolen_blocks, addresses_of(job)))
        assert stolen
        assert (PASSWORD.encode() in stolen) is (kind == "closure")


@pytest.mark.parametrize("master", ["spark://127.0.0.1:1", pytest.param("local[1]", marks=pytest.mark.extended)])
def test_spark_without_authentication_is_refused(master: str, tmp_path: Path) -> None:
    """A cluster without a secret, and a submitted job without the settings of Airflow's task."""
    kind = "command" if master.startswith("spark:") else "submitted"
    refused = pytest.raises(SystemExit, match=r"SettingsError: expected.*spark\.authenticate.*Nothing was published")
    with refused, held(kind, tmp_path, {}, master):
        pass
