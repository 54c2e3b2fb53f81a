"""An archive of the classes that Spark loads (AppCDS), which each JVM maps instead of reading and checking the classes.

    python -m changefeed.spark.class_archive

creates the archive for this Spark and this Java if it is missing. That takes 20 seconds and 150 MB in a
`private_folder`, because the JVM runs the classes. `make setup` calls it. A driver's JVM then starts in half the CPU
time. Without the archive, or if Java or the jars changed, the JVM starts as usual.

Source: https://docs.oracle.com/en/java/javase/17/vm/class-data-sharing.html
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from changefeed.errors import SettingsError
from changefeed.native.private_folder import private_folder
from changefeed.spark.conf import BATCH_CONF, DRIVER_OPTIONS, SMALL_JOB_CONF

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_log = logging.getLogger(__name__)
_QUIET = "-Xlog:cds=off -Xlog:cds+dynamic=off"
_TRAIN = "train"


def with_class_archive(conf: Mapping[str, str]) -> dict[str, str]:
    """``conf`` with the options that make the driver's JVM use the archive, if it exists."""
    file = archive_file()
    if file is None or not file.is_file():
        return dict(conf)
    options = f"{conf.get(DRIVER_OPTIONS, '')} -Xshare:auto {_QUIET} {_quote('-XX:SharedArchiveFile=', file)}"
    return {**conf, DRIVER_OPTIONS: options.strip()}


def archive_file() -> Path | None:
    """The path of the archive for this Spark, Java and training; None without Java or without a private folder."""
    java = _java()
    if java is None:
        return None
    stamps = [(str(path), path.stat().st_mtime_ns) for path in (java, _spark() / "jars")]
    digest = hashlib.sha256(str(stamps).encode() + Path(__file__).read_bytes()).hexdigest()
    folder = private_folder("spark-classes", lambda reasons: _log.debug("no archive of classes: %s", reasons))
    return folder / f"{digest[:16]}.jsa" if folder else None


def make() -> Path:
    """Create the archive if it is missing, and return its path. Raises SettingsError."""
    file = archive_file()
    if file is None:
        raise SettingsError(
            "the archive of Spark's classes needs Java and a private folder, and one of them is missing"
        )
    if file.is_file():
        return file
    new = file.with_suffix(f".{os.getpid()}")
    options = f"{SMALL_JOB_CONF[DRIVER_OPTIONS]} {_QUIET} {_quote('-XX:ArchiveClassesAtExit=', new)}"
    conf = {**SMALL_JOB_CONF, DRIVER_OPTIONS: options, "spark.log.level": "ERROR"}
    command = [str(_spark() / "bin" / "spark-submit"), "--master", "local[2]"]
    command += [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [*command, __file__, _TRAIN], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode or not new.is_file():
        raise SettingsError(f"the archive of Spark's classes was not created: {(done.stdout + done.stderr)[-1000:]}")
    new.replace(file)
    return file


def _java() -> Path | None:
    """The Java program that Spark's scripts start."""
    home = os.environ.get("JAVA_HOME")
    found = Path(home) / "bin" / "java" if home else shutil.which("java")
    return Path(found).resolve() if found and Path(found).exists() else None


def _spark() -> Path:
    """PySpark's folder, found without importing PySpark, which an Airflow task would need for nothing else."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise SettingsError("PySpark is not installed: pip install 'changefeed[spark]'")
    return Path(found.origin).parent


def _quote(option: str, file: Path) -> str:
    return f'"{option}{file}"'


def _train() -> None:
    """Load the classes that jobs need: run one task, and a shuffle of local checkpoints, as `ingest` does."""
    from pyspark import StorageLevel
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    spark = SparkSession.builder.getOrCreate()
    for name, value in BATCH_CONF.items():
        spark.conf.set(name, value)
    spark.conf.set("spark.sql.shuffle.partitions", 2)
    total = spark.sparkContext.accumulator(0)
    spark.sparkContext.parallelize(range(2), 2).foreachPartition(lambda _: total.add(1))
    assert len(spark.range(0, 1, 1, 1).mapInArrow(lambda batches: batches, "id long").collect()) == 1

    def checkpoint() -> DataFrame:
        rows = spark.range(0, 4, 1, 2).select("id", F.lit("topic").alias("topic"), F.lit(b"").alias("payload"))
        rows = rows.mapInArrow(lambda batches: batches, rows.schema)
        return rows.localCheckpoint(eager=False, storageLevel=StorageLevel.MEMORY_AND_DISK_DESER)

    parts = [checkpoint(), checkpoint()]
    for part in parts:
        part.where("id < 0").select("id", "topic").collect()
    number = F.concat("topic", F.lit("/"), F.col("id").cast("string"))
    task = F.element_at(F.str_to_map(F.lit("topic/0=1"), F.lit("\n"), F.lit("=")), number).cast("int")
    rows = parts[0].union(parts[1]).where("topic = 'topic'").repartitionById(2, F.coalesce(task, F.lit(0)))
    shuffled = rows.sortWithinPartitions("topic", "id").select("id", "payload")
    assert len(shuffled.mapInArrow(lambda batches: batches, shuffled.schema).collect()) == 8


if __name__ == "__main__":
    if sys.argv[1:] == [_TRAIN]:
        _train()
    else:
        print(make())
