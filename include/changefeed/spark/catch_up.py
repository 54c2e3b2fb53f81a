"""Several windows, one after another, in one Spark session."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence

from pyspark.sql import SparkSession

from changefeed.endpoints.endpoints import Endpoints
from changefeed.manifest import Manifest
from changefeed.spark.ingest import ingest
from changefeed.window import Window

_log = logging.getLogger(__name__)


def ingest_windows(
    spark: SparkSession, endpoints: Endpoints, windows: Sequence[Window], max_seconds: int | None = None
) -> Iterator[Manifest]:
    """Publish and seal ``windows`` in order, and yield each manifest; those that are sealed already cost a look.

    After ``max_seconds`` no further window is begun. Raises as `ingest` does; the windows yielded stay sealed.
    """
    began = time.monotonic()
    for number, window in enumerate(windows):
        gone = time.monotonic() - began
        if max_seconds is not None and number and gone >= max_seconds:
            _log.info("%d of %d windows after %.0f seconds: the rest is for the next run", number, len(windows), gone)
            return
        yield ingest(spark, endpoints, window)
