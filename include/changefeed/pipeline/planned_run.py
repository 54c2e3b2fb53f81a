"""The windows of one run: what `plan` and `cut` freeze, the job publishes, and `commit` commits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from changefeed.model.checkpoint import Checkpoint
from changefeed.model.window import Window


@dataclass(frozen=True)
class PlannedRun:
    """The windows of a run, in order; each begins at the end of the window before it. A continuous run has none: its
    job freezes them.

    ``expected`` is the checkpoint that the first window was planned from; `commit` moves the checkpoint only if it is
    still the stored one. ``lag_bytes`` is the size of the binlog from the checkpoint to the head; the last window may
    end before the head.
    """

    windows: tuple[Window, ...]
    expected: Checkpoint
    lag_bytes: int

    @property
    def is_continuous(self) -> bool:
        """Whether the job freezes the windows, one after another."""
        return not self.windows

    def to_json(self) -> dict[str, Any]:
        """Plain values, which Airflow passes from task to task; `from_json` reads them."""
        return {
            "windows": [window.to_json() for window in self.windows],
            "expected": self.expected.to_text(),
            "lag_bytes": self.lag_bytes,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> PlannedRun:
        """The run from the result of `to_json`; raises CheckpointError if the checkpoint cannot be read."""
        return cls(
            tuple(Window.from_json(window) for window in values["windows"]),
            Checkpoint.from_text(values["expected"]),
            int(values["lag_bytes"]),
        )
