"""Spark's Python daemon with all that tasks need imported already: its workers are forks of it, and start at once.

`spark.python.daemon.module=changefeed.spark.daemon`, for a local master and a Connect server, whose workers can import
`changefeed` from the start. Spark runs the module in pyspark.daemon's place.

A Connect server keeps a daemon for each session that it ever had, also of sessions that ended long ago. One that has
had no worker for ten minutes ends itself; Spark starts it again when it needs one.
"""

from __future__ import annotations

import os
import signal
from types import FrameType

from pyspark.daemon import manager

from changefeed.spark.warm_up import load

IDLE_SECONDS = 600.0
_LOOKS = 10


def end_when_idle(seconds: float = IDLE_SECONDS) -> None:
    """Have this process end, as at SIGTERM, when it had no child for about ``seconds``.

    By a timer, which children do not inherit, and not by a thread, which a process that forks should not have.
    """
    idle = 0

    def look(_number: int, _frame: FrameType | None) -> None:
        nonlocal idle
        idle = 0 if _has_children() else idle + 1
        if idle >= _LOOKS:
            signal.setitimer(signal.ITIMER_REAL, 0)
            os.kill(os.getpid(), signal.SIGTERM)

    signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, seconds / _LOOKS, seconds / _LOOKS)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


if __name__ == "__main__":
    load()
    end_when_idle()
    manager()
