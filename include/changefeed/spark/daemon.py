"""Spark's Python daemon with all that tasks need imported already: its workers are forks of it, and start at once.

`spark.python.daemon.module=changefeed.spark.daemon`, for a Spark whose workers can import `changefeed` from the start,
as those of a local master or of a Connect server with the package. Spark runs the module in pyspark.daemon's place.
"""

from __future__ import annotations

from pyspark.daemon import manager

from changefeed.spark.warm_up import load

if __name__ == "__main__":
    load()
    manager()
