"""Spark's Python daemon with all that tasks need imported already: its workers are forks of it, and start at once.

`spark.python.daemon.module=changefeed.spark.daemon`, for a local master, whose workers can import `changefeed` from the
start. Spark runs the module in pyspark.daemon's place. It is not for a Connect server, which keeps a daemon for each
session that it ever had: they would hold 200 MB each.
"""

from __future__ import annotations

from pyspark.daemon import manager

from changefeed.spark.warm_up import load

if __name__ == "__main__":
    load()
    manager()
