"""The windows of one run: what `plan` and `cut` freeze, the job publishes, and `commit` commits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from changefeed.model.checkpoint import Checkpoint
from changefeed.model.window import Window


@dataclass(frozen=True)
class PlannedRun:
    """At least one window, in order; each begins where the one before it ends.

    ``expected`` is the checkpoint that the first window was planned from: `commit` moves it only while it is the one
    stored. ``lag_bytes`` is how far the checkpoint was behind the head, which the last window need not reach.
    """

    windows: tuple[Window, ...]
    expected: Checkpoint
    lag_bytes: int

    def to_json(self) -> dict[str, Any]:
        """Plain values, which one task hands to the next one; `from_json` reads them back."""
        return {
            "windows": [window.to_json() for window in self.windows],
            "expected": self.expected.to_text(),
            "lag_bytes": self.lag_bytes,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> PlannedRun:
        """Read `to_json`; raises CheckpointError where the checkpoint cannot be read."""
        return cls(
            tuple(Window.from_json(window) for window in values["windows"]),
            Checkpoint.from_text(values["expected"]),
            int(values["lag_bytes"]),
        )
