"""Metrics by Airflow's own means: StatsD or OpenTelemetry, whichever its configuration names."""

from __future__ import annotations

from collections.abc import Sequence

from airflow.sdk.observability import stats

from changefeed.manifest import Manifest


def measured_position(pipeline: str, lag_bytes: int, lag_seconds: float | None, headroom: float | None) -> None:
    """Gauges of where a pipeline stands."""
    tags = {"pipeline": pipeline}
    stats.gauge("changefeed.lag_bytes", lag_bytes, tags=tags)
    if lag_seconds is not None:
        stats.gauge("changefeed.lag_seconds", lag_seconds, tags=tags)
    if headroom is not None:
        stats.gauge("changefeed.retention_headroom_seconds", headroom, tags=tags)


def measured_windows(pipeline: str, manifests: Sequence[Manifest]) -> None:
    """Counters of what was committed, by table, and seconds by phase."""
    tags = {"pipeline": pipeline}
    for manifest in manifests:
        stats.incr("changefeed.windows", 1, tags=tags)
        stats.incr("changefeed.bytes", manifest.size_bytes, tags=tags)
        for table, ops in manifest.rows.items():
            for op, count in ops.items():
                stats.incr("changefeed.rows", count, tags={**tags, "table": table, "op": op})
        letters = sum(receipt.dead_letters for receipt in manifest.topics)
        if letters:
            stats.incr("changefeed.dead_letters", letters, tags=tags)
        for phase, seconds in manifest.seconds.items():
            stats.gauge("changefeed.window_seconds", seconds, tags={**tags, "phase": phase})


def measured_verification(pipeline: str, follower: str, outcome: str, compared: int, differing: int) -> None:
    """Gauges of the last comparison with the source, or with ``follower``."""
    tags = {"pipeline": pipeline, "server": follower or "source"}
    stats.incr("changefeed.verifications", 1, tags={**tags, "outcome": outcome})
    stats.gauge("changefeed.verified_rows", compared, tags=tags)
    stats.gauge("changefeed.differing_rows", differing, tags=tags)


def measured_retry(pipeline: str, task: str) -> None:
    """Count another try of a task."""
    stats.incr("changefeed.retries", 1, tags={"pipeline": pipeline, "task": task})
