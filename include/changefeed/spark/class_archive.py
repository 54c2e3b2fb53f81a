"""An archive of the classes that Spark loads (AppCDS): read and checked once, and mapped into each JVM from then on.

    python -m changefeed.spark.class_archive

makes it, in 20 seconds, where it is missing: for this Spark and this Java, 150 MB in a `private_folder`, as what is in
it is run. `make setup` calls it. A driver's JVM then starts in half the CPU time. Without the archive, or with another
Java or other jars than it was made of, the JVM starts as it always did.

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
    """``conf`` of a job whose driver's JVM is to use the archive, if there is one."""
    file = archive_file()
    if file is None or not file.is_file():
        return dict(conf)
    options = f"{conf.get(DRIVER_OPTIONS, '')} -Xshare:auto {_QUIET} {_quoted('-XX:SharedArchiveFile=', file)}"
    return {**conf, DRIVER_OPTIONS: options.strip()}


def archive_file() -> Path | None:
    """Where the archive for this Spark, Java and training is or would be; None without Java, or a private folder."""
    java = _java()
    if java is None:
        return None
    stamps = [(str(path), path.stat().st_mtime_ns) for path in (java, _spark() / "jars")]
    digest = hashlib.sha256(str(stamps).encode() + Path(__file__).read_bytes()).hexdigest()
    folder = private_folder("spark-classes", lambda reasons: _log.debug("no archive of classes: %s", reasons))
    return folder / f"{digest[:16]}.jsa" if folder else None


def make() -> Path:
    """Make the archive where it is missing: of what a JVM has loaded after jobs as ours. Raises SettingsError."""
    file = archive_file()
    if file is None:
        raise SettingsError("no archive of Spark's classes can be made: it needs Java, and a folder that is private")
    if file.is_file():
        return file
    new = file.with_suffix(f".{os.getpid()}")
    options = f"{SMALL_JOB_CONF[DRIVER_OPTIONS]} {_QUIET} {_quoted('-XX:ArchiveClassesAtExit=', new)}"
    conf = {**SMALL_JOB_CONF, DRIVER_OPTIONS: options, "spark.log.level": "ERROR"}
    command = [str(_spark() / "bin" / "spark-submit"), "--master", "local[2]"]
    command += [part for name, value in conf.items() for part in ("--conf", f"{name}={value}")]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [*command, __file__, _TRAIN], env=environment, capture_output=True, text=True, check=False, timeout=600
    )
    if done.returncode or not new.is_file():
        raise SettingsError(f"no archive of Spark's classes was made: {(done.stdout + done.stderr)[-1000:]}")
    new.replace(file)
    return file


def _java() -> Path | None:
    """The program that Spark's scripts start."""
    home = os.environ.get("JAVA_HOME")
    found = Path(home) / "bin" / "java" if home else shutil.which("java")
    return Path(found).resolve() if found and Path(found).exists() else None


def _spark() -> Path:
    """PySpark's folder; found without importing it, which a task of Airflow has no other use for."""
    found = find_spec("pyspark")
    if found is None or found.origin is None:
        raise SettingsError("PySpark is not installed: pip install 'changefeed[spark]'")
    return Path(found.origin).parent


def _quoted(option: str, file: Path) -> str:
    return f'"{option}{file}"'


def _train() -> None:
    """Have a JVM load what jobs need: one task, and a shuffle of small rows from local checkpoints, as in `ingest`."""
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

    def kept() -> DataFrame:
        rows = spark.range(0, 4, 1, 2).select("id", F.lit("topic").alias("topic"), F.lit(b"").alias("payload"))
        rows = rows.mapInArrow(lambda batches: batches, rows.schema)
        return rows.localCheckpoint(eager=False, storageLevel=StorageLevel.MEMORY_AND_DISK_DESER)

    parts = [kept(), kept()]
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
