"""Import the modules of tasks in Python workers before their tasks.

To start a worker and load the kernels takes a second or two. `SparkTarget.warm_up` starts workers while the driver
connects to MySQL and Kafka; `spark.daemon` imports the modules once for all of its workers. Spark reuses a worker for
later tasks (spark.python.worker.reuse).
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterable
from functools import cache

OF_TASKS = (
    "changefeed.spark.stages.publish",
    "changefeed.spark.stages.readers",
    "changefeed.records.encoder",
    "changefeed.source.mysql.packets",
)
"""The modules that decode and publish, and modules that they import late, because a driver does not need them."""


def load(_: Iterable[object] = ()) -> None:
    """Import the modules of tasks, and exclude them from garbage collection."""
    gc.disable()
    for module in OF_TASKS:
        importlib.import_module(module)
    freeze_modules()
    gc.enable()


@cache
def freeze_modules() -> None:
    """Exclude what is loaded now from the collection that Spark's worker runs after each task, which would scan it.

    Only once in a process: what is excluded is never collected, so each task of a worker would leave some garbage.
    """
    gc.freeze()
