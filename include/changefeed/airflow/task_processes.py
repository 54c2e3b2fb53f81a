"""The processes without which a task of Airflow does not continue, for the job that it starts."""

from __future__ import annotations

import os

from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import CommsDecoder

from changefeed.spark.task_watch import TASK_PROCESSES


def is_supervised() -> bool:
    """Whether the calling task runs in an Airflow worker, and not in `airflow dags test`."""
    return isinstance(getattr(task_runner, "SUPERVISOR_COMMS", None), CommsDecoder)


def task_variables() -> dict[str, str]:
    """The environment variable by which a job on this machine ends with the task that calls this function.

    It names the task's process and its supervisor, which is its parent in an Airflow worker. A task whose supervisor
    was killed continues, but can report nothing, and Airflow starts it again. `airflow dags test` has no supervisor:
    its parent is any process, such as a shell that may end earlier. Do not pass it to a driver in cluster mode, which
    would take the processes for ended.
    """
    pids = [os.getpid(), os.getppid()] if is_supervised() else [os.getpid()]
    return {TASK_PROCESSES: ",".join(map(str, pids))}
