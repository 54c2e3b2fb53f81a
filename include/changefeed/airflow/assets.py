"""A table's topic as an Airflow asset, and its events: one for each table that got rows.

Which tables there are is known to the source, not to a DAG file. So the DAG declares one alias, and the events name
the assets: `commit` makes an asset when its table has rows for the first time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import Asset, AssetAlias, get_current_context

from changefeed.model.manifest import Manifest
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes

__all__ = ["asset_events", "emit_events", "pipeline_alias", "topic_asset"]


def pipeline_alias(pipeline: str) -> AssetAlias:
    """Stands for all topics of a pipeline: a DAG scheduled on it runs when any table got rows."""
    return AssetAlias(name=f"changefeed/{pipeline}", group="changefeed")


def topic_asset(connection: str, topic: str) -> Asset:
    """The asset of a topic; ``connection`` is the Kafka connection's id. A DAG may be scheduled on it."""
    return Asset(name=f"{connection}/{topic}", uri=f"kafka://{connection}/{topic}", group="changefeed")


def emit_events(pipeline: Pipeline, manifests: Sequence[Manifest]) -> list[str]:
    """Tell Airflow which tables got rows; returns the names of the assets."""
    events = get_current_context()["outlet_events"]
    emitted = []
    for topic, extra in asset_events(pipeline, manifests).items():
        asset = topic_asset(pipeline.kafka.connection, topic)
        events[pipeline_alias(pipeline.name)].add(asset, extra=extra)
        emitted.append(str(asset.name))
    return emitted


def asset_events(pipeline: Pipeline, manifests: Sequence[Manifest]) -> dict[str, dict[str, Any]]:
    """What an event says, by topic: rows, ops, offsets by partition, coordinates. Nothing for a table without rows.

    Where ``tables`` share a topic, rows and ops are those of all of them, and ``table`` is the first.
    """
    events: dict[str, dict[str, Any]] = {}
    routes = compile_routes(pipeline)
    for manifest in manifests:
        for table, ops in manifest.rows.items():
            if not sum(ops.values()):
                continue
            database, _, name = table.partition(".")
            route = routes.of(database, name)
            if route is None:  # the pipeline's tables were changed since
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
