"""End a job with the task of Airflow that started it, however the task ended.

The task passes the processes that it depends on, itself and its supervisor, as a variable of the job's environment. A
thread of the driver waits for the end of these and of the driver's parent, which is the JVM under spark-submit. A pipe
or a signal of the kernel (PR_SET_PDEATHSIG) would not reach the driver: spark-submit is a shell script, and the JVM
closes inherited files before it starts Python. In cluster mode the driver does not get the variable, and outlives the
task, which finds it again. If YARN ends its container, it sends SIGTERM to all processes in it, and SIGKILL after
`yarn.nodemanager.sleep-delay-before-sigkill.ms` (250): enough to return the claim, and not to end in order. So it is in
a pod, where all processes get SIGTERM (docker/entrypoint.sh), and are killed when the JVM has ended.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

_log = logging.getLogger(__name__)

TASK_PROCESSES = "CHANGEFEED_TASK_PROCESSES"
"""The environment variable with the pids of the task's processes, separated by commas."""

_LOOK_SECONDS = 0.5
"""How often it looks whether they have ended, if the kernel does not tell it."""

_OF_CONTAINERS = {"CONTAINER_ID", "SPARK_DRIVER_BIND_ADDRESS"}
"""Environment variables of drivers in a container of YARN, and in a pod."""

END_SECONDS = 30
"""How long a job may take to end in order, before it is killed."""


def end_with_task() -> None:
    """End this process when the task that started it has ended, or on SIGTERM; does nothing if no task started it.

    SystemExit is raised in the main thread, which must be the caller. So the job cancels its work and returns its
    claim, and a retry need not wait until the claim is void. If this takes longer than END_SECONDS, the process is
    killed, which loses and repeats nothing. A driver in a container returns its claim first.
    """
    pids = os.environ.get(TASK_PROCESSES, "")
    if not pids:
        if not _OF_CONTAINERS.isdisjoint(os.environ):
            signal.signal(signal.SIGTERM, _end_in_container)
        return
    signal.signal(signal.SIGTERM, _end)
    watched = [*map(int, pids.split(",")), os.getppid()]
    threading.Thread(target=_wait_for_end, args=[watched], name="changefeed-task-watch", daemon=True).start()


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt what ends the job
    _kill_later()
    threading.Thread(target=_cancel_jobs, name="changefeed-cancel", daemon=True).start()
    raise SystemExit(128 + number)


def _end_in_container(number: int, frame: FrameType | None) -> NoReturn:
    from changefeed.kafka.lease import Lease  # late, as each job reads this module before it knows its pipeline

    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _kill_later()
    Lease.return_held()
    _end(number, frame)


def _wait_for_end(pids: list[int]) -> None:
    try:
        _wait_for_one(pids)
    except ProcessLookupError:  # one has ended already
        pass
    except (AttributeError, OSError):  # older than Linux 5.3, a container that forbids it, or a Python without it
        while all(map(_is_alive, pids)):
            time.sleep(_LOOK_SECONDS)
    _kill_later()  # here too, because the handler runs only when the main thread returns to Python
    os.kill(os.getpid(), signal.SIGTERM)
    _log.warning("the task that started this job has ended, so the job ends")
    _cancel_jobs()


def _wait_for_one(pids: list[int]) -> None:
    """Wait until one of the processes has ended."""
    poll = select.poll()
    for pid in pids:
        poll.register(os.pidfd_open(pid), select.POLLIN)
    poll.poll()


def _is_alive(pid: int) -> bool:
    """Whether the process has not ended; also if it is another user's, which /proc may hide."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except OSError:
        return True


def _kill_later() -> None:
    """Let SIGALRM, whose default action kills also a process that is stuck, come END_SECONDS after the first call."""
    if left := signal.alarm(END_SECONDS):
        signal.alarm(left)


def _cancel_jobs() -> None:
    """Cancel the jobs of this process's JVM, again and again, as one may just have begun.

    The main thread cannot: its calls wait behind the call that runs a job.
    """
    from pyspark import SparkContext  # late, as not all jobs need Spark

    while True:
        if context := SparkContext._active_spark_context:
            with suppress(Exception):  # the JVM may have ended
                context.cancelAllJobs()
        time.sleep(0.5)
