"""A topic as an Airflow asset, and asset events for the topics that got rows.

When Airflow parses a DAG file, the source's tables are not known. So the DAG declares one asset alias as outlet, and
`commit` emits events that name the assets. Airflow creates an asset with its first event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Asset, AssetAlias, get_current_context

from changefeed.model.manifest import Manifest
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes

__all__ = ["asset_events", "emit_events", "knows_sent_events", "last_sent_window", "pipeline_alias", "topic_asset"]

_RECENT = 100
"""How many of the last events `last_sent_window` reads: those of unparked tables name no window."""


def pipeline_alias(pipeline: str) -> AssetAlias:
    """The asset alias of a pipeline. A DAG that is scheduled on it runs when any of the pipeline's tables got rows."""
    return AssetAlias(name=f"changefeed/{pipeline}", group="changefeed")


def topic_asset(connection: str, topic: str) -> Asset:
    """The asset of a topic, on which DAGs may be scheduled; ``connection`` is the Kafka connection's id."""
    return Asset(name=f"{connection}/{topic}", uri=f"kafka://{connection}/{topic}", group="changefeed")


def knows_sent_events(pipeline: str) -> bool:
    """Whether the current task can call `last_sent_window`: it has the pipeline's alias as an inlet."""
    return pipeline_alias(pipeline) in get_current_context()["inlet_events"]


def last_sent_window(pipeline: str) -> int:
    """The number of the last window up to which tasks have sent asset events, as Airflow stores them; 0 if it has none.

    Events of an earlier version have no ``last_window``: the last window of those that one run sent counts. Raises
    AirflowRuntimeError if Airflow's API gives no answer.
    """
    events = get_current_context()["inlet_events"][pipeline_alias(pipeline)].ascending(False)
    newest: list[Any] = [event.extra or {} for event in events.limit(1)]
    if not newest or "last_window" in newest[0]:
        return int(newest[0]["last_window"]) if newest else 0
    recent = [event for event in events.limit(_RECENT) if event.extra and event.extra.get("windows")]
    extras: list[Any] = [event.extra for event in recent if event.source_run_id == recent[0].source_run_id]
    return max((extra.get("last_window") or max(extra["windows"]) for extra in extras), default=0)


def emit_events(
    pipeline: Pipeline, manifests: Sequence[Manifest], *, last: int | None = None, are_windows: bool = True
) -> list[str]:
    """Emit an asset event for each topic that got rows; returns the names of the assets.

    Windows that another run has committed are not among the ``manifests``; an event has no offsets of such windows, so
    there is one for each sequence of windows. Each has the ``last_window``, which is ``last`` or that of the
    ``manifests``: with or without rows of its topic, the windows up to there have been sent. Without ``are_windows``
    the manifests are of other ranges, and the events name no windows of the pipeline.
    """
    events = get_current_context()["outlet_events"]
    emitted = []
    if last is None:
        last = max((manifest.window.number for manifest in manifests), default=0)
    for sequence in _sequences(manifests) if are_windows else [manifests]:
        for topic, extra in asset_events(pipeline, sequence).items():
            asset = topic_asset(pipeline.kafka.connection, topic)
            extra = extra | {"last_window": last} if are_windows else extra | {"windows": []}
            events[pipeline_alias(pipeline.name)].add(asset, extra=extra)
            emitted.append(str(asset.name))
    return [*dict.fromkeys(emitted)]


def _sequences(manifests: Sequence[Manifest]) -> list[list[Manifest]]:
    """The ``manifests`` in groups of windows that follow one another."""
    sequences: list[list[Manifest]] = []
    for manifest in sorted(manifests, key=lambda each: each.window.number):
        if sequences and manifest.window.number == sequences[-1][-1].window.number + 1:
            sequences[-1].append(manifest)
        else:
            sequences.append([manifest])
    return sequences


def asset_events(pipeline: Pipeline, manifests: Sequence[Manifest]) -> dict[str, dict[str, Any]]:
    """The ``extra`` of each event by topic: rows, ops, offsets by partition, coordinates. Tables without rows have no
    event, nor have rows that were published to another topic than that of the present routes.

    If several ``tables`` share a topic, rows and ops are their sums, and ``table`` is the first of them.
    """
    events: dict[str, dict[str, Any]] = {}
    routes = compile_routes(pipeline)
    for manifest in manifests:
        published = {receipt.topic for receipt in manifest.topics}
        for table, ops in manifest.rows.items():
            if not sum(ops.values()):
                continue
            database, _, name = table.partition(".")
            route = routes.of(database, name)
            if route is None or route.topic not in published:  # the pipeline's tables or topics have changed since
                continue
            event = events.setdefault(
                route.topic,
                {
                    "pipeline": pipeline.name,
                    "table": table,
                    "tables": [],
                    "topic": route.topic,
                    "rows": 0,
                    "ops": {},
                    "offsets": {},
                    "start": str(manifest.window.start),
                    "windows": [],
                },
            )
            event["rows"] += sum(ops.values())
            event["ops"] = {op: event["ops"].get(op, 0) + ops.get(op, 0) for op in sorted({*event["ops"], *ops})}
            event["head"] = str(manifest.window.head)
            if table not in event["tables"]:
                event["tables"].append(table)
            if manifest.window.number not in event["windows"]:
                event["windows"].append(manifest.window.number)
            for receipt in manifest.topics:
                if receipt.topic == route.topic and receipt.first_offset is not None:
                    before = event["offsets"].get(str(receipt.partition))
                    first = before["first"] if before else receipt.first_offset
                    event["offsets"][str(receipt.partition)] = {"first": first, "last": receipt.last_offset}
    return events
