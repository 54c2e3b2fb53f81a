"""Named stages at which a test may hold this process, to kill it or what it talks to. For tests only.

``CHANGEFEED_FAULT`` is ``stage`` or ``stage:3`` (the third time that it is reached), and ``CHANGEFEED_FAULT_FILE`` a
path: the process makes that file when it gets there, and waits until the file is gone. Unset, a stage costs a look
at one variable.
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
"""In the order of a run, each where a run reaches it for the first time."""

_stage, _, _times = os.environ.get("CHANGEFEED_FAULT", "").partition(":")
_left = int(_times or 1)


def reached(stage: str) -> None:
    """Say that ``stage``, one of STAGES, is reached."""
    if stage == _stage:
        _hold()


def _hold() -> None:
    global _left
    _left -= 1
    if _left == 0:
        file = Path(os.environ["CHANGEFEED_FAULT_FILE"])
        file.touch()
        while file.exists():
            time.sleep(0.01)
