"""A folder for what the driver and tasks on its machine hand to one another past Spark's JVM."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkFiles
from pyspark.sql import SparkSession

from changefeed.spark.session import runs_here


@contextmanager
def local_folder(spark: SparkSession) -> Iterator[str | None]:
    """A folder that only this user may enter, gone at the end of the block; None unless all tasks run on this machine.

    It lies where Spark keeps its own blocks (spark.local.dir). The JVM removes what is there when it ends, which it
    does when the driver is killed.
    """
    if not runs_here(spark):
        yield None
        return
    folder = SparkFiles.getRootDirectory()
    with tempfile.TemporaryDirectory(prefix="changefeed-", dir=folder, ignore_cleanup_errors=True) as own:
        yield own
