"""What each stage of a row's way costs by itself: one process, one core, no Spark; CPU microseconds a row."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

from bench_decode import kernel_items
from live_workloads import Workload

from changefeed.binlog.search.scout import scout
from changefeed.connection import OF_A_RUN, MysqlConnection
from changefeed.coordinates import FIRST_POSITION
from changefeed.mysql.dump import DumpStream
from changefeed.mysql.session import Session
from changefeed.window import Slice
from devstack.mysql import MysqlServer

SLICE_BYTES = 32 << 20


def stages(mysql: MysqlServer, workload: Workload) -> dict[str, float]:
    """By name, in the order of the way. Each is run twice, and the second run counts."""
    decoded = kernel_items(mysql.data / workload.file)
    return {
        "dump": _micros(workload, lambda: _dump(mysql, workload)),
        "scout": _micros(workload, lambda: _scout(mysql.data / workload.file)),
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


def _scout(path: Path) -> None:
    """Look for where slices may begin, in a file that was read already."""
    data = path.read_bytes()
    chunks = (memoryview(data)[at : at + (1 << 20)] for at in range(FIRST_POSITION, len(data), 1 << 20))
    scout(chunks, Slice(0, path.name, FIRST_POSITION, len(data)), SLICE_BYTES)
