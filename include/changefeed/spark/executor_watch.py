"""Cancels the jobs of a cluster that get no executor, for which Spark itself would wait for ever."""

from __future__ import annotations

import logging
import time
from threading import Thread
from typing import Any

from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped] # it has no types
from pyspark import SparkContext

_log = logging.getLogger(__name__)

POLL_SECONDS = 2.0


def watch_executors(context: SparkContext, wait_seconds: int) -> None:
    """Start a thread that cancels all jobs of ``context`` that had no executor for ``wait_seconds``.

    The error of each job has the reason. Later jobs are cancelled at once, until the application has an executor.
    """
    Thread(target=_watch, args=(context, wait_seconds), name="changefeed-executor-watch", daemon=True).start()


def _watch(context: SparkContext, wait_seconds: int) -> None:
    spark: Any = context._jsc.sc()
    waiting_since: float | None = None
    gave_up = False
    while True:
        time.sleep(POLL_SECONDS)
        try:
            if spark.isStopped():
                return
            jobs = list(spark.statusTracker().getActiveJobIds())
            if len(spark.statusTracker().getExecutorInfos()) > 1:  # the driver is one of them
                waiting_since, gave_up = None, False
            elif not jobs:
                waiting_since = waiting_since if gave_up else None
            elif waiting_since is None:
                waiting_since = time.monotonic()
            elif time.monotonic() - waiting_since >= wait_seconds:
                gave_up = True
                for job in jobs:
                    spark.cancelJob(job, _reason(context, wait_seconds))
        except (Py4JNetworkError, OSError) as error:  # the JVM has ended
            _log.debug("executors are not watched any more: %s", error)
            return
        except Py4JError as error:  # a job that has just ended
            _log.debug("executors were not watched for a moment: %s", error)


def _reason(context: SparkContext, wait_seconds: int) -> str:
    return (
        f"expected an executor of {context.master}, found none for {wait_seconds} s: the cluster has no free cores "
        "or memory for one, or its machines cannot reach the driver at "
        f"{context.getConf().get('spark.driver.host')}. Free or add resources, or ask for smaller executors "
        "(spark.executor.memory and spark.executor.cores in `spark.conf`), or set spark.driver.host to an address that "
        "the cluster's machines reach, or wait longer (executor_seconds in `spark`)"
    )
