"""The committed resume point of a pipeline, and the contract of what keeps it.

The checkpoint is the low watermark: everything before it is in Kafka.
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
    """Where a pipeline resumes; ``window`` is the number of its last committed window, 0 before the first.

    A seek takes a number too, so that a window that was frozen before it cannot be committed after it.
    """

    pipeline: str
    window: int
    server_uuid: str
    coordinates: BinlogCoordinates
    gtids: str
    committed_at_ms: int

    @classmethod
    def after(cls, window: Window, committed_at_ms: int, gtids: str | None = None) -> Checkpoint:
        """The checkpoint that commits ``window``; ``gtids`` are those of its manifest, which are exact."""
        published = window.head_gtids if gtids is None else gtids
        return cls(window.pipeline, window.number, window.server_uuid, window.head, published, committed_at_ms)

    @classmethod
    def before(cls, window: Window) -> Checkpoint:
        """The checkpoint that ``window`` was planned from."""
        return cls(
            window.pipeline, window.after, window.server_uuid, window.start, window.start_gtids, window.frozen_at_ms
        )

    def to_text(self) -> str:
        """One JSON object, as a store keeps it."""
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
        """Read `to_json`; raises ValueError, KeyError, TypeError or SettingsError for anything else."""
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
        """Read `to_text`; raises CheckpointError for anything else, rather than beginning anew."""
        try:
            return cls.from_json(orjson.loads(text))
        except (ValueError, KeyError, TypeError, SettingsError) as error:
            raise CheckpointError(
                f"wanted a checkpoint as JSON, found {text[:200]!r} ({error}): it was edited or belongs to another "
                "program. Mend the stored value, or delete it and seek the pipeline to where it should resume."
            ) from error


class CheckpointStore(Protocol):
    """Keeps a checkpoint for each pipeline.

    Obligations: ``load`` after a successful ``advance`` returns what was stored, also from another process. A store
    never merges, never invents: where it cannot be read it raises CheckpointError or a RetryableError.
    """

    def load(self, pipeline: str) -> Checkpoint | None:
        """The pipeline's checkpoint, or None before its first."""
        ...

    def advance(self, expected: Checkpoint | None, new: Checkpoint) -> None:
        """Replace ``expected`` by ``new`` if, and only if, ``expected`` is what is stored.

        Raises StaleCheckpointError when something else is stored (nothing changes), CheckpointError when ``new``
        stands before ``expected``: a checkpoint only moves forward.
        """
        ...

    def replace(self, expected: Checkpoint | None, new: Checkpoint) -> None:
        """As `advance`, to any coordinates: for a seek, which may go back.

        Raises StaleCheckpointError when something else than ``expected`` is stored.
        """
        ...

    def pipelines(self) -> list[str]:
        """The names of all pipelines that have a checkpoint here, sorted."""
        ...

    def remove(self, pipeline: str, expected: Checkpoint | None) -> None:
        """Remove the pipeline's checkpoint and its copy of the schema history, where it has them: for a rename.

        Raises StaleCheckpointError when another checkpoint than ``expected`` is stored (nothing changes).
        """
        ...

    def load_schemas(self, pipeline: str) -> str | None:
        """The copy of the pipeline's schema history that was saved last, or None."""
        ...

    def save_schemas(self, pipeline: str, text: str) -> None:
        """Keep a copy of the schema history, for the day when its topic is lost."""
        ...


def check_forward(expected: Checkpoint | None, new: Checkpoint) -> None:
    """The rule of `CheckpointStore.advance` that needs no store: raises CheckpointError when ``new`` goes back."""
    if expected is None or expected.server_uuid != new.server_uuid:
        return
    if new.window <= expected.window or not new.coordinates.has_reached(expected.coordinates):
        raise CheckpointError(
            f"checkpoint of pipeline {new.pipeline!r} may not go from window {expected.window} at "
            f"{expected.coordinates} back to window {new.window} at {new.coordinates}: what lies between would be "
            "published again. Use seek if that is what you want."
        )


def stale(pipeline: str, expected: Checkpoint | None, stored: Checkpoint | None) -> StaleCheckpointError:
    """The error of a store whose checkpoint is not ``expected``."""

    def text(checkpoint: Checkpoint | None) -> str:
        return f"window {checkpoint.window} at {checkpoint.coordinates}" if checkpoint else "no checkpoint"

    return StaleCheckpointError(
        f"wanted to move the checkpoint of pipeline {pipeline!r} on from {text(expected)}, found {text(stored)}: "
        "another run committed in between. Nothing was stored; the next run goes on from what is there."
    )
