"""Run: publish windows one after another in one Spark session."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence

from changefeed.errors import StaleCheckpointError
from changefeed.ingest.commit import commit
from changefeed.ingest.window_run import ingest
from changefeed.model.checkpoint import CheckpointStore
from changefeed.model.manifest import Manifest
from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.open_windows import sealed_manifest
from changefeed.pipeline.planned_run import PlannedRun
from changefeed.pipeline.windows import last_stable_state
from changefeed.spark.target import SparkTarget

_log = logging.getLogger(__name__)


def ingest_windows(
    spark: SparkTarget,
    connections: PipelineConnections,
    windows: Sequence[Window],
    max_seconds: int | None = None,
    *,
    claim_timeout_seconds: float = 0.0,
) -> Iterator[Manifest]:
    """Publish and seal ``windows`` in order, and yield each manifest; a sealed window is only looked up.

    The checkpoint does not move: Airflow's Spark job has no access to Variables, so the task `commit` moves it
    afterwards (`ingest.commit.commit_windows`).

    After ``max_seconds`` no further window begins. With the pipeline's setting `windows` the run ends if a continuous
    run has published changes of its windows meanwhile. Raises what `ingest` raises; the yielded windows stay sealed.
    """
    try:
        yield from _ingest_windows(spark, connections, windows, max_seconds, claim_timeout_seconds)
    except StaleCheckpointError as error:
        if connections.pipeline.windows is None:
            raise
        _log.warning("another run publishes the rest: %s", error)


def _ingest_windows(
    spark: SparkTarget,
    connections: PipelineConnections,
    windows: Sequence[Window],
    max_seconds: int | None,
    claim_timeout_seconds: float,
) -> Iterator[Manifest]:
    """See `ingest_windows`. Raises StaleCheckpointError if another run has published changes of ``windows``."""
    began = time.monotonic()
    state = last_stable_state(connections)
    for number, window in enumerate(windows):
        elapsed = time.monotonic() - began
        if max_seconds is not None and number and elapsed >= max_seconds:
            _log.info(
                "%d of %d windows after %.0f seconds: the next run publishes the rest", number, len(windows), elapsed
            )
            return
        yield sealed_manifest(window, state) or ingest(
            spark, connections, window, claim_timeout_seconds=claim_timeout_seconds
        )


def run_windows(
    spark: SparkTarget,
    connections: PipelineConnections,
    run: PlannedRun,
    store: CheckpointStore,
    max_seconds: int | None = None,
) -> Iterator[Manifest]:
    """Publish ``run`` in this process, without Airflow: like `ingest_windows`, but commit each window once it is
    sealed.

    Yields the manifests of the committed windows. Raises what `ingest` and `commit` raise; the yielded windows stay
    committed, and the next run continues after them.
    """
    expected = run.expected
    for sealed in ingest_windows(spark, connections, run.windows, max_seconds):
        yield commit(connections, sealed.window, expected, store)
        expected = store.load(connections.pipeline.name) or expected
