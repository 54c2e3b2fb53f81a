"""What each stage of a row's way costs by itself: one process, one core, no Spark; CPU microseconds a row."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

from bench_decode import kernel_items
from live_workloads import Workload

from changefeed.connection import OF_A_RUN, MysqlConnection
from changefeed.mysql.dump import DumpStream
from changefeed.mysql.session import Session
from devstack.mysql import MysqlServer


def stages(mysql: MysqlServer, workload: Workload) -> dict[str, float]:
    """By name, in the order of the way. Each is run twice, and the second run counts."""
    decoded = kernel_items(mysql.data / workload.file)
    return {
        "dump": _micros(workload, lambda: _dump(mysql, workload)),
        "decode": _micros(workload, lambda: deque(decoded(), maxlen=0)),
    }


def _micros(workload: Workload, run: Callable[[], object]) -> float:
    run()
    began = time.process_time()
    run()
    return (time.process_time() - began) / workload.rows * 1e6


def _dump(mysql: MysqlServer, workload: Workload) -> None:
    """Read the workload from the server, and throw it away."""
    session = Session(MysqlConnection.from_uri(mysql.url, OF_A_RUN))
    deque(DumpStream(session, file=workload.file, start=workload.start, end=workload.head), maxlen=0)
