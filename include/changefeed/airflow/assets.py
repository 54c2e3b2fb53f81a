"""A topic as an Airflow asset, and asset events for the topics that got rows.

When Airflow parses a DAG file, the source's tables are not known. So the DAG declares one asset alias as outlet, and
`commit` emits events that name the assets. Airflow creates an asset with its first event.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from airflow.sdk import Asset, AssetAlias, get_current_context

from changefeed.model.manifest import Manifest
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes

__all__ = ["asset_events", "emit_events", "last_sent_window", "pipeline_alias", "topic_asset"]

_RECENT = 100
"""How many of the last events `last_sent_window` reads: those of unparked tables name no window."""


def pipeline_alias(pipeline: str) -> AssetAlias:
    """The asset alias of a pipeline. A DAG that is scheduled on it runs when any of the pipeline's tables got rows."""
    return AssetAlias(name=f"changefeed/{pipeline}", group="changefeed")


def topic_asset(connection: str, topic: str) -> Asset:
    """The asset of a topic, on which DAGs may be scheduled; ``connection`` is the Kafka connection's id."""
    return Asset(name=f"{connection}/{topic}", uri=f"kafka://{connection}/{topic}", group="changefeed")


def last_sent_window(pipeline: str) -> int:
    """The number of the last window up to which tasks have sent asset events, as Airflow stores them; 0 if it has none.

    The current task has the pipeline's alias as an inlet.
    """
    sent = get_current_context()["inlet_events"][pipeline_alias(pipeline)].ascending(False).limit(_RECENT)
    extras: Iterator[dict[str, Any]] = (event.extra or {} for event in sent)
    return next((extra.get("last_window") or max(extra["windows"]) for extra in extras if extra.get("windows")), 0)


def emit_events(pipeline: Pipeline, manifests: Sequence[Manifest], *, are_windows: bool = True) -> list[str]:
    """Emit an asset event for each topic that got rows; returns the names of the assets.

    Windows that another run has committed are not among the ``manifests``; an event has no offsets of such windows, so
    there is one for each sequence of windows. Each has the ``last_window`` of all ``manifests``: with or without rows
    of its topic, the windows up to there have been sent. Without ``are_windows`` the manifests are of other ranges, and
    the events name no windows of the pipeline.
    """
    events = get_current_context()["outlet_events"]
    emitted = []
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
    event.

    If several ``tables`` share a topic, rows and ops are their sums, and ``table`` is the first of them.
    """
    events: dict[str, dict[str, Any]] = {}
    routes = compile_routes(pipeline)
    for manifest in manifests:
        for table, ops in manifest.rows.items():
            if not sum(ops.values()):
                continue
            database, _, name = table.partition(".")
            route = routes.of(database, name)
            if route is None:  # the pipeline's table patterns have changed since
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
