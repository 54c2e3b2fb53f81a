"""Spark's Python daemon with the modules of tasks imported: its workers are forks of it, and start at once.

Set `spark.python.daemon.module=changefeed.spark.daemon` for a local master or a Connect server, whose workers can
import `changefeed` from the start. Spark runs this module instead of pyspark.daemon.

A Connect server keeps a daemon for each session that it ever had, even after the session ended. A daemon that has had
no worker for ten minutes ends itself; Spark starts a new one when it needs it.
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
    """End this process with SIGTERM once it has had no child for about ``seconds``.

    A timer does so, because children do not inherit it, and a process that forks should not have threads.
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
