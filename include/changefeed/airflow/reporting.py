"""Airflow metrics of tasks, and the tables at the end of their logs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from airflow.sdk.observability import stats

from changefeed.model.manifest import Manifest


def report_position(pipeline: str, lag_bytes: int, lag_seconds: float | None, headroom: float | None) -> None:
    """Set the gauges of a pipeline's lag and retention headroom; ``headroom`` is in seconds. None is not reported."""
    tags = {"pipeline": pipeline}
    stats.gauge("changefeed.lag_bytes", lag_bytes, tags=tags)
    if lag_seconds is not None:
        stats.gauge("changefeed.lag_seconds", lag_seconds, tags=tags)
    if headroom is not None:
        stats.gauge("changefeed.retention_headroom_seconds", headroom, tags=tags)


def report_windows(pipeline: str, manifests: Sequence[Manifest]) -> None:
    """Count committed windows, bytes and rows by table, and set the gauges of seconds by phase."""
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


def report_verification(pipeline: str, follower: str, outcome: str, compared: int, differing: int) -> None:
    """Set the gauges of the last comparison with ``follower``, or with the source if it is empty."""
    tags = {"pipeline": pipeline, "server": follower or "source"}
    stats.incr("changefeed.verifications", 1, tags={**tags, "outcome": outcome})
    stats.gauge("changefeed.verified_rows", compared, tags=tags)
    stats.gauge("changefeed.differing_rows", differing, tags=tags)


def report_retry(pipeline: str, task: str) -> None:
    """Count a retry of a task."""
    stats.incr("changefeed.retries", 1, tags={"pipeline": pipeline, "task": task})


def records_by_topic(manifests: Iterable[Manifest]) -> dict[str, int]:
    """The number of records that all attempts at the windows published, by topic."""
    records: Counter[str] = Counter()
    for manifest in manifests:
        records.update(manifest.records)
    return dict(sorted(records.items()))


def sum_rows(manifests: Iterable[Manifest]) -> dict[str, dict[str, int]]:
    """The number of rows by table and op."""
    rows: dict[str, dict[str, int]] = {}
    for manifest in manifests:
        for table, counts in manifest.rows.items():
            sums = rows.setdefault(table, {})
            for op, count in counts.items():
                sums[op] = sums.get(op, 0) + count
    return rows


def window_lines(manifests: Sequence[Manifest]) -> list[str]:
    """Lines of a table of rows by table and op, then one line for each window with its bytes and seconds by phase."""
    rows = sum_rows(manifests)
    ops = sorted({op for counts in rows.values() for op in counts})
    lines = table_lines(
        ["table", *ops, "rows"],
        [[table, *(counts.get(op, 0) for op in ops), sum(counts.values())] for table, counts in sorted(rows.items())],
    )
    for manifest in manifests:
        seconds = ", ".join(f"{phase} {value:g} s" for phase, value in manifest.seconds.items())
        lines.append(
            f"committed window {manifest.window.number} at {manifest.window.head}: {manifest.row_count:,} rows, "
            f"{manifest.message_count:,} messages, {manifest.size_bytes:,} bytes of binlog; {seconds}"
        )
        lines += [f"  {count:,} rows dropped by transform {name}" for name, count in manifest.transformed_away.items()]
    return lines


def table_lines(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    """Lines of a text table: numbers right-aligned, with commas. Control characters in names are escaped."""
    cells = [
        list(head),
        *([f"{cell:,}" if isinstance(cell, int) else _on_one_line(cell) for cell in row] for row in rows),
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(head))]

    def align(line: list[str]) -> str:
        first, *rest = line
        numbers = (cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))
        return "  ".join([first.ljust(widths[0]), *numbers]).rstrip()

    return [align(line) for line in cells]


def _on_one_line(cell: object) -> str:
    text = str(cell)
    return text if text.isprintable() else repr(text)
