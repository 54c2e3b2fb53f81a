"""`spark` of a pipeline's YAML."""

from __future__ import annotations

import os
import re
from typing import Annotated

from pydantic import Field

from changefeed.pipelines.section import ConnectionId, Positive, Section


class SparkSettings(Section):
    """Where Spark runs, and how a window is cut for it."""

    connection: ConnectionId = "spark_default"
    """Airflow's connection id of the Spark cluster."""
    master: str = "local[*]"
    """Master of runs without Airflow."""
    connect: Annotated[str, Field(pattern=r"^sc://.+")] | None = Field(default=None, repr=False)
    """URL of a Spark Connect server that is up already: runs use it instead of spark-submit. It may hold a token."""
    slice_bytes: Positive = 64 * 1024 * 1024
    conf: dict[str, str] = Field(default={}, repr=False)

    @property
    def cores(self) -> int | None:
        """How many tasks run at once, where these settings say it; None where only the cluster knows."""
        most, executors, each = (
            self.conf.get(f"spark.{name}", "") for name in ("cores.max", "executor.instances", "executor.cores")
        )
        if most.isdigit():
            return int(most)
        if executors.isdigit() and each.isdigit():
            return int(executors) * int(each)
        local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", self.master.replace(" ", ""))
        if local is None or self.connect is not None:
            return None
        return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)
