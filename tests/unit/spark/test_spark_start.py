"""A small window starts quickly: the order of imports, and the start of the JVM."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.errors.exceptions.connect import SparkConnectException

from changefeed.errors import SettingsError, SparkFailedError
from changefeed.spark import class_archive
from changefeed.spark.class_archive import archive_file, with_class_archive
from changefeed.spark.conf import DRIVER_OPTIONS, SMALL_JOB_CONF
from changefeed.spark.target import ConnectSpark, LocalSpark

ROOT = Path(__file__).parents[3]


def loaded_by(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"],
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'include'}{os.pathsep}{ROOT / 'jobs'}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


def test_job_requests_its_spark_session_before_it_imports_its_stages() -> None:
    assert not loaded_by("import ingest") & {"kafka", "numba", "numpy", "pandas", "pyarrow", "pymysql", "sqlglot"}


def test_a_driver_loads_no_pandas_no_kernels_and_nothing_that_reads_sql() -> None:
    loaded = loaded_by("import changefeed.ingest.run")
    assert not loaded & {"pandas", "numba", "sqlglot", "changefeed.binlog.decoder", "changefeed.spark.stages.readers"}
    assert not loaded & {"numpy", "pyarrow"}, "only Spark Connect and clusters need Arrow"


def test_a_worker_that_was_warmed_up_has_imported_all_that_its_task_imports() -> None:
    loaded = loaded_by("from changefeed.spark.warm_up import load; load()")
    assert {"changefeed.binlog.decoder", "changefeed.records.encoder", "changefeed.kafka.publisher"} <= loaded
    assert not loaded & {"pandas", "pyspark.sql.connect"}
    seldom = {"fsspec", "pymysqlreplication", "sqlglot", "changefeed.transforms.finisher"}
    assert not loaded & seldom, "few pipelines need them, and each submitted run would pay for them"


def test_workers_of_a_session_are_started_once() -> None:
    started: list[int] = []
    rdd = SimpleNamespace(foreachPartition=lambda _: None)
    context = SimpleNamespace(parallelize=lambda _, workers: started.append(workers) or rdd)
    spark = LocalSpark(cast(Any, SimpleNamespace(sparkContext=context)))
    for workers in (1, 1, 4, 2):
        spark.warm_up(workers)()
    assert started == [1, 3]


def test_workers_that_did_not_start_are_started_again_and_end_no_later_window() -> None:
    failures = [RuntimeError("lost an executor")]

    def start(_: object) -> None:
        if len(started) == 2:
            raise failures.pop()

    started: list[int] = []
    context = SimpleNamespace(
        defaultParallelism=4,
        parallelize=lambda _, workers: started.append(workers) or SimpleNamespace(foreachPartition=start),
    )
    spark = LocalSpark(cast(Any, SimpleNamespace(sparkContext=context)))
    spark.warm_up(1)()
    spark.warm_up(4)()  # it fails, and is logged
    assert spark.first_worker_error() is None
    spark.warm_up(4)()
    assert started == [1, 3, 3]


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("java", "jars"):
        (tmp_path / name).touch()
    monkeypatch.setenv("CHANGEFEED_KERNEL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    monkeypatch.setattr(class_archive, "_java", lambda: tmp_path / "java")
    monkeypatch.setattr(class_archive, "_spark", lambda: tmp_path)
    file = archive_file()
    assert file is not None
    assert file.parent == tmp_path / "cache" / "spark-classes"
    return file


def test_a_driver_maps_the_archive_of_classes_where_one_was_made(archive: Path) -> None:
    assert with_class_archive(SMALL_JOB_CONF) == SMALL_JOB_CONF
    archive.touch()
    options = with_class_archive(SMALL_JOB_CONF)[DRIVER_OPTIONS]
    assert options.startswith(SMALL_JOB_CONF[DRIVER_OPTIONS])
    assert f'"-XX:SharedArchiveFile={archive}"' in options


def test_the_archive_of_another_java_or_of_other_jars_is_another_file(archive: Path, tmp_path: Path) -> None:
    os.utime(tmp_path / "java", (1, 1))
    other = archive_file()
    os.utime(tmp_path / "jars", (1, 1))
    assert len({archive, other, archive_file()}) == 3


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_archive_that_others_may_write_is_not_used(archive: Path, mode: int) -> None:
    archive.touch()
    archive.parent.chmod(mode)
    assert with_class_archive(SMALL_JOB_CONF) == SMALL_JOB_CONF


class ConnectSession:
    """The session of a Connect server whose workers fail with ``said``."""

    def __init__(self, said: str) -> None:
        self._said = said

    def range(self, *_: int) -> Any:
        raise SparkConnectException(self._said)

    @property
    def conf(self) -> Any:
        raise SparkConnectException(self._said)


def test_connect_server_without_the_package_fails_before_publishing() -> None:
    with pytest.raises(SettingsError, match="expected the Python workers of Spark to import 'changefeed', found no"):
        ConnectSpark(cast(Any, ConnectSession("ModuleNotFoundError: No module named 'changefeed'"))).warm_up(1)()
    ConnectSpark(cast(Any, ConnectSession("lost an executor"))).warm_up(1)()  # its tasks will raise the error


def test_connect_server_that_ended_the_session_fails_the_job() -> None:
    with pytest.raises(SparkFailedError, match=r"the number of its cores: .*SESSION_CLOSED"):
        ConnectSpark(cast(Any, ConnectSession("SESSION_CLOSED"))).cores()
    with pytest.raises(SparkFailedError, match="while nothing was new"):
        ConnectSpark(cast(Any, ConnectSession("SESSION_CLOSED"))).keep_connected()
    with pytest.raises(SparkFailedError, match="a reading of its settings"):
        _ = ConnectSpark(cast(Any, ConnectSession("SESSION_CLOSED"))).may_copy_tasks
