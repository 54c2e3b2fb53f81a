"""Named stages at which a test pauses this process, to kill it or a server. For tests only.

- ``CHANGEFEED_FAULT`` is ``stage``, or ``stage:3`` for the third time that the process reaches the stage.
- ``CHANGEFEED_FAULT_FILE`` is a path. At the stage the process creates this file and waits until it is removed.

If ``CHANGEFEED_FAULT`` is not set, a stage costs one comparison.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

STAGES = (
    "before_first_checkpoint",
    "before_log_write",
    "before_checkpoint_write",
    "after_plan",
    "in_decode",
    "after_decode",
    "after_take_over",
    "in_open_transaction",
    "after_transaction_commit",
    "before_seal",
    "after_seal",
    "in_checkpoint_write",
    "after_checkpoint",
)
"""The stages, in the order in which a run first reaches them."""

_stage, _, _times = os.environ.get("CHANGEFEED_FAULT", "").partition(":")
_left = int(_times or 1)


def reach(stage: str) -> None:
    """Pause at ``stage``, one of STAGES, if a test has set it."""
    if stage and stage == _stage:
        _hold()


def _hold() -> None:
    global _left
    _left -= 1
    if _left == 0:
        file = Path(os.environ["CHANGEFEED_FAULT_FILE"])
        file.touch()
        while file.exists():
            time.sleep(0.01)
