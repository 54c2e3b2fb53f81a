"""A run: its windows published one after another in one Spark session."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence

from changefeed.ingest.commit import commit
from changefeed.ingest.window_run import ingest
from changefeed.model.checkpoint import CheckpointStore
from changefeed.model.manifest import Manifest
from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.open_windows import sealed_manifest
from changefeed.pipeline.planned_run import PlannedRun
from changefeed.pipeline.windows import settled_state
from changefeed.spark.target import SparkTarget

_log = logging.getLogger(__name__)


def ingest_windows(
    spark: SparkTarget, connections: PipelineConnections, windows: Sequence[Window], max_seconds: int | None = None
) -> Iterator[Manifest]:
    """Publish and seal ``windows`` in order, and yield each manifest; those that are sealed already are only looked up.

    It needs no checkpoint, as each window begins where the one before it ends: Airflow's job could not move one, as
    it has no access to Variables. There the task `commit` does it afterwards (`ingest.commit.commit_windows`).

    After ``max_seconds`` no further window is begun. Raises as `ingest` does; the windows yielded stay sealed.
    """
    began = time.monotonic()
    state = settled_state(connections)
    for number, window in enumerate(windows):
        gone = time.monotonic() - began
        if max_seconds is not None and number and gone >= max_seconds:
            _log.info("%d of %d windows after %.0f seconds: the rest is for the next run", number, len(windows), gone)
            return
        yield sealed_manifest(window, state) or ingest(spark, connections, window)


def run_windows(
    spark: SparkTarget,
    connections: PipelineConnections,
    run: PlannedRun,
    store: CheckpointStore,
    max_seconds: int | None = None,
) -> Iterator[Manifest]:
    """As `ingest_windows`, and commit each window as soon as it is sealed: a run in one process, without Airflow.

    Yields the manifests of the committed windows. Raises as `ingest` and `commit` do; the windows yielded stay
    committed, and the next run goes on behind them.
    """
    expected = run.expected
    for sealed in ingest_windows(spark, connections, run.windows, max_seconds):
        yield commit(connections, sealed.window, expected, store)
        expected = store.load(connections.pipeline.name) or expected
