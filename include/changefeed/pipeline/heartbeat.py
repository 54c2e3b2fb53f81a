"""Heartbeats: by them consumers distinguish a source without changes from a pipeline that does not run.

changefeed itself reads none. A heartbeat is written after the checkpoint has moved, outside of any window, so it may be
missing, or be written twice.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Literal

from changefeed.kafka.topics import ensure_topics
from changefeed.model.manifest import Manifest
from changefeed.model.topic_name import heartbeat_topic
from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import Plan
from changefeed.pipeline.topics import heartbeat_settings


@dataclass(frozen=True)
class Heartbeat:
    """What the pipeline publishes of the changes before the position is in Kafka, without those of parked tables.

    A run with state ``idle`` found no later change in the source at ``read_ms``; else ``read_ms`` is None.
    """

    pipeline: str
    state: Literal["idle", "committed"]
    window: int
    server_uuid: str
    file: str
    position: int
    gtids: str
    read_ms: int | None = None

    @classmethod
    def of_idle(cls, plan: Plan) -> Heartbeat:
        """The heartbeat of a run whose plan is empty."""
        window = plan.window
        read_ms = window.frozen_at_ms - int(window.plan_seconds * 1000) - 1
        return cls._of("idle", window, plan.expected.window, window.start_gtids, read_ms)

    @classmethod
    def of_committed(cls, manifest: Manifest) -> Heartbeat:
        """The heartbeat of a run whose last committed window has this manifest."""
        return cls._of("committed", manifest.window, manifest.window.number, manifest.gtids)

    @classmethod
    def _of(
        cls, state: Literal["idle", "committed"], window: Window, number: int, gtids: str, read_ms: int | None = None
    ) -> Heartbeat:
        at = window.head
        return cls(window.pipeline, state, number, window.server_uuid, at.file, at.position, gtids, read_ms)

    def to_record(self, parked: Sequence[str] | None = None) -> tuple[bytes, bytes]:
        """Key and value of the record; ``parked`` are the tables whose changes may be missing before the position, None
        for a pipeline that does not park."""
        value = {**asdict(self), "written_ms": int(time.time() * 1000)}
        if parked is not None:
            value["parked"] = list(parked)
        return json.dumps({"pipeline": self.pipeline}).encode(), json.dumps(value).encode()


def write_heartbeat(connections: PipelineConnections, heartbeat: Heartbeat) -> None:
    """Write ``heartbeat`` to its topic, which is created if it is missing; nothing if the pipeline has no heartbeat.

    Raises what `ensure_topics` and `RecordWriter` raise.
    """
    settings = heartbeat_settings(connections.pipeline)
    if not settings:
        return
    from changefeed.kafka.record_writer import RecordWriter  # loads a producer
    from changefeed.pipeline.parking import read_parked

    ensure_topics(connections.kafka, settings, create=connections.pipeline.topics.create)
    parks = connections.pipeline.on_table_error == "park"
    parked = [record.table for record in read_parked(connections)] if parks else None
    topic = heartbeat_topic(connections.pipeline.name)
    with RecordWriter(connections.kafka, topic) as writer:
        writer.write(
            dict([heartbeat.to_record(parked)]), f"to write the heartbeat of {heartbeat.pipeline!r} to {topic!r}"
        )
