"""What Python workers import ahead of their tasks.

To start a worker and to load the kernels takes a second or two, about as long as the driver talks to MySQL and Kafka:
`SparkTarget.warm_up` has workers do it meanwhile, and `spark.daemon` once for all of its workers. Spark keeps a worker
for the tasks that come (spark.python.worker.reuse).
"""

from __future__ import annotations

import gc
import importlib
from collections.abc import Iterable

OF_TASKS = (
    "changefeed.spark.stages.publish",
    "changefeed.spark.stages.readers",
    "changefeed.records.encoder",
    "changefeed.source.mysql.packets",
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
