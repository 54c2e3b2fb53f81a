"""The committed resume point of a pipeline, and the contract of checkpoint stores.

The checkpoint is the low-water mark: all changes before it are in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from changefeed.errors import CheckpointError, SettingsError, StaleCheckpointError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.window import Window


@dataclass(frozen=True)
class Checkpoint:
    """The position at which a pipeline resumes.

    ``window`` is the number of the last committed window or seek, 0 before the first. A seek takes a window number, so
    that a window that was frozen before the seek cannot be committed after it.
    """

    pipeline: str
    window: int
    server_uuid: str
    coordinates: BinlogCoordinates
    gtids: str
    committed_at_ms: int

    @classmethod
    def after(cls, window: Window, committed_at_ms: int, gtids: str | None = None) -> Checkpoint:
        """The checkpoint that commits ``window``.

        ``gtids`` is the exact GTID set from the window's manifest; without it, the window's ``head_gtids`` are used.
        """
        published = window.head_gtids if gtids is None else gtids
        return cls(window.pipeline, window.number, window.server_uuid, window.head, published, committed_at_ms)

    @classmethod
    def before(cls, window: Window) -> Checkpoint:
        """The checkpoint that ``window`` was planned from."""
        return cls(
            window.pipeline, window.after, window.server_uuid, window.start, window.start_gtids, window.frozen_at_ms
        )

    def to_text(self) -> str:
        """The stored JSON object."""
        return orjson.dumps(self.to_json()).decode()

    def to_json(self) -> dict[str, str | int]:
        """Plain values; the coordinates as FILE:POSITION."""
        return {
            "pipeline": self.pipeline,
            "window": self.window,
            "server_uuid": self.server_uuid,
            "coordinates": str(self.coordinates),
            "gtids": self.gtids,
            "committed_at_ms": self.committed_at_ms,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Checkpoint:
        """The checkpoint from values of `to_json`.

        Raises ValueError, KeyError, TypeError or SettingsError for other values.
        """
        return cls(
            pipeline=str(values["pipeline"]),
            window=int(values["window"]),
            server_uuid=str(values["server_uuid"]),
            coordinates=BinlogCoordinates.parse(str(values["coordinates"])),
            gtids=str(values["gtids"]),
            committed_at_ms=int(values["committed_at_ms"]),
        )

    @classmethod
    def from_text(cls, text: str) -> Checkpoint:
        """The checkpoint from text of `to_text`.

        Raises CheckpointError for other text, so that the pipeline stops instead of starting from the beginning.
        """
        try:
            return cls.from_json(orjson.loads(text))
        except (ValueError, KeyError, TypeError, SettingsError) as error:
            raise CheckpointError(
                f"expected a checkpoint as JSON, found {text[:200]!r} ({error}): it was edited or belongs to another "
                "program. Mend the stored value, or delete it and seek the pipeline to where it should resume."
            ) from error


class CheckpointStore(Protocol):
    """Stores a checkpoint for each pipeline.

    Obligations:

    - After a successful ``advance``, ``load`` returns the stored checkpoint, also in another process.
    - If the store cannot be read, ``load`` raises CheckpointError or a RetryableError. It never returns another value.
    """

    def load(self, pipeline: str) -> Checkpoint | None:
        """The pipeline's checkpoint, or None before its first."""
        ...

    def advance(self, expected: Checkpoint | None, new: Checkpoint) -> None:
        """Replace ``expected`` by ``new``, if ``expected`` is stored.

        If another checkpoint is stored, the store keeps it and raises StaleCheckpointError. If ``new`` is before
        ``expected``, the store raises CheckpointError, because a checkpoint only moves forward.
        """
        ...

    def replace(self, expected: Checkpoint | None, new: Checkpoint) -> None:
        """Replace ``expected`` by ``new`` as `advance` does, also if ``new`` is before it. A seek calls this.

        Raises StaleCheckpointError if another checkpoint than ``expected`` is stored.
        """
        ...

    def pipelines(self) -> list[str]:
        """The names of all pipelines that have a checkpoint here, sorted."""
        ...

    def remove(self, pipeline: str, expected: Checkpoint | None) -> None:
        """Remove the pipeline's checkpoint and its copy of the schema history, if they exist. A rename calls this.

        If another checkpoint than ``expected`` is stored, the store keeps it and raises StaleCheckpointError.
        """
        ...

    def load_schemas(self, pipeline: str) -> str | None:
        """The copy of the pipeline's schema history that was saved last, or None."""
        ...

    def save_schemas(self, pipeline: str, text: str) -> None:
        """Store a copy of the schema history, in case its topic is lost."""
        ...


def check_forward(expected: Checkpoint | None, new: Checkpoint) -> None:
    """Raises CheckpointError if ``new`` is before ``expected`` on the same server, for `CheckpointStore.advance`."""
    if expected is None or expected.server_uuid != new.server_uuid:
        return
    if new.window <= expected.window or not new.coordinates.has_reached(expected.coordinates):
        raise CheckpointError(
            f"checkpoint of pipeline {new.pipeline!r} may not go from window {expected.window} at "
            f"{expected.coordinates} back to window {new.window} at {new.coordinates}: the changes between would be "
            "published again. Use seek if that is what you want."
        )


def stale(pipeline: str, expected: Checkpoint | None, stored: Checkpoint | None) -> StaleCheckpointError:
    """The error that a store raises if it has the checkpoint ``stored`` instead of ``expected``."""

    def text(checkpoint: Checkpoint | None) -> str:
        return f"window {checkpoint.window} at {checkpoint.coordinates}" if checkpoint else "no checkpoint"

    return StaleCheckpointError(
        f"expected to move the checkpoint of pipeline {pipeline!r} on from {text(expected)}, found {text(stored)}: "
        "another run committed in between. Nothing was stored; the next run goes on from what is there."
    )
