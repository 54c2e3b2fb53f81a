"""Python workers that have imported what tasks need, by the time that the driver has prepared a window.

To start one and to load the kernels takes a second or two, about as long as the driver talks to MySQL and Kafka.
Spark keeps a worker for the tasks that come (spark.python.worker.reuse).
"""

from __future__ import annotations

import gc
import importlib
import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from threading import Thread
from typing import Any
from weakref import WeakKeyDictionary

from pyspark.sql import SparkSession

from changefeed.errors import SettingsError
from changefeed.spark.connect import is_connect

_log = logging.getLogger(__name__)

OF_TASKS = (
    "changefeed.spark.publish",
    "changefeed.spark.readers",
    "changefeed.batches.encoder",
    "changefeed.binlog.kernel.packets",
    "sqlglot",
)
"""What decodes and publishes, and what that imports only where it is needed, as a driver does without it."""


def load(_: Iterable[object] = ()) -> None:
    """Import what tasks need. The garbage collector never looks at it: it is there to stay."""
    gc.disable()
    for module in OF_TASKS:
        importlib.import_module(module)
    gc.freeze()
    gc.enable()


def _loaded(batches: Iterator[Any]) -> Iterator[Any]:
    load()
    return batches


@dataclass
class _Started:
    """The workers of one session that were started ahead of their tasks."""

    workers: int = 0
    threads: list[Thread] = field(default_factory=list)
    error: Exception | None = None


_started: WeakKeyDictionary[SparkSession, _Started] = WeakKeyDictionary()


def warm_up(spark: SparkSession, workers: int) -> Callable[[], None]:
    """See to it that ``workers`` of the session start, unless they were started before; return what waits for them.

    That raises SettingsError where the workers of a Connect server lack the package. Whatever else goes wrong is left
    to the tasks themselves to meet and to tell.
    """
    started = _started.setdefault(spark, _Started())
    missing = workers - started.workers

    def start() -> None:
        try:
            if is_connect(spark):
                spark.range(0, missing, 1, missing).mapInArrow(_loaded, "id long").collect()
            else:
                spark.sparkContext.parallelize(range(missing), missing).foreachPartition(load)
        except Exception as error:
            started.error = error

    if missing > 0:
        started.workers += missing
        started.threads.append(Thread(target=start, name="changefeed-warm-up", daemon=True))
        started.threads[-1].start()

    def wait() -> None:
        for thread in started.threads:
            thread.join()
        if started.error is None:
            return
        if is_connect(spark) and "No module named" in str(started.error):
            raise SettingsError(
                "the workers of the Spark Connect server that `spark.connect` names cannot import `changefeed`: "
                "install the package for the Python that the server runs (PYSPARK_PYTHON), or put its folder on its "
                "PYTHONPATH. "
                f"Found: {str(started.error)[-300:]}"
            ) from started.error
        _log.debug("workers were not started ahead of their tasks: %s", started.error)

    return wait
