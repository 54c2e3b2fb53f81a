"""Run pipelines as `changefeed run` does, without Spark's JVM and without the time of imports.

A line on stdin requests a run: {"name", "env", "log", "windows", "command"}. ``windows`` are frozen windows, or null;
``command`` are the arguments of a command, which uses Spark's JVM only if the pipeline has a Connect server. A run is a
fork of this process in a new session. Lines on stdout are {"name", "pid"} when a run begins and {"pid", "code"} when it
ends. The codes are 0 if a window was committed, 3 if nothing is new, 2 for a terminal error, 1 for a retryable error,
-9 if the run was killed.
"""

from __future__ import annotations

import faulthandler
import gc
import importlib
import json
import logging
import os
import resource
import select
import signal
import sys
import traceback
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parent))

from inline_spark import InlineSpark

from changefeed.cli.main import main as command_main
from changefeed.errors import ChangefeedError, TerminalError
from changefeed.ingest.checkpoint_mover import CheckpointMover
from changefeed.ingest.continuous import ingest_continuously
from changefeed.ingest.cut import cut
from changefeed.ingest.followed_settings import FollowedSettings
from changefeed.ingest.handover import ALONE, Handover
from changefeed.ingest.run import ingest_windows, run_windows
from changefeed.model import fault_point
from changefeed.model.connection import from_environment
from changefeed.model.window import Window
from changefeed.pipeline.checkpoint_store import checkpoint_store
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import plan
from changefeed.settings.file import load_pipeline
from changefeed.settings.followed_file import FollowedFile
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.run import RunBounds
from changefeed.source.mysql.login import _Connection

IMPORTED = (
    "asyncio",
    "changefeed.records.encoder",
    "changefeed.binlog.kernel.boundary_rows",
    "changefeed.binlog.kernel.hop",
    "changefeed.binlog.kernel.row_counts",
    "changefeed.binlog.search.schema_scan",
    "changefeed.binlog.search.scout",
    "changefeed.operations.backfill",
    "changefeed.pipeline.old_identities",
    "changefeed.snapshot.automatic",
    "changefeed.state.table_store",  # SQLAlchemy: a fifth of a second
    "changefeed.snapshot.run",
    "changefeed.spark.stages.readers",
    "changefeed.source.mysql.packets",
    "changefeed.records.record_writer",
    "changefeed.binlog.search.file_ranges",
    "encodings.idna",
    "pyarrow.pandas_compat",  # pandas: pyarrow checks whether a value is of pandas
    "sqlglot.dialects.mysql",
    "sqlite3",
)
"""Modules that runs import late, which took half of a run's time. None of them may start a thread.

The kernels that each run and each snapshot needs are among it: to load one is to wait while another checkout compiles
the same sources into the same cache, which takes minutes.
"""


def run(name: str, windows: list[dict[str, Any]] | None) -> int:
    importlib.reload(fault_point)  # the module reads the environment
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kafka").setLevel(logging.ERROR)
    pipeline = load_pipeline(name)
    try:
        connections = PipelineConnections(pipeline, from_environment)
        store = checkpoint_store(PipelineConnections(pipeline, from_environment), cast(Any, None))
        if windows is not None:
            frozen = [Window.from_json(window) for window in windows]
            for manifest in ingest_windows(InlineSpark(), connections, frozen):
                print(f"sealed window {manifest.window.number}", flush=True)
            return 0
        planned = plan(connections, store)
        if pipeline.windows is not None:
            handover = Handover(connections) if "CHANGEFEED_HANDOVER" in os.environ else ALONE
            with CheckpointMover(connections, store, every_seconds=1):
                followed, spark = FollowedSettings(connections, FollowedFile(pipeline)), InlineSpark()
                for manifest in ingest_continuously(
                    spark,
                    followed,
                    planned.expected,
                    handover=handover,
                    is_stopped=lambda: spark.is_warm and "CHANGEFEED_STOPPED" in os.environ,
                ):
                    print(f"sealed window {manifest.window.number}: {manifest.row_count} rows", flush=True)
            return 0
        if planned.is_empty:
            return 3
        for manifest in run_windows(InlineSpark(), connections, cut(connections, planned, RunBounds()), store):
            print(f"committed window {manifest.window.number}: {manifest.row_count} rows", flush=True)
    except ChangefeedError as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        return 2 if isinstance(error, TerminalError) else 1
    return 0


def command(arguments: list[str]) -> int:
    importlib.reload(fault_point)
    from changefeed.spark import session as sessions

    real = sessions.session

    def session(pipeline: Pipeline, job: str) -> AbstractContextManager[Any]:
        return real(pipeline, job) if pipeline.spark.connect else nullcontext(InlineSpark())

    sessions.session = cast(Any, session)
    sys.argv = ["changefeed", *arguments]
    try:
        command_main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    return 0


def child(request: dict[str, Any]) -> None:
    os.setsid()
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(log, number)
    os.environ.update(request["env"])
    if most := int(os.environ.get("AIRFLOW_CONN_FILE_BYTES", "0")):  # as on a full disk: no file grows beyond it
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    faulthandler.register(signal.SIGUSR1)  # prints where each thread is
    code = 70
    try:
        code = command(request["command"]) if request["command"] else run(request["name"], request["windows"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    _Connection(defer_connect=True)  # the first connection loads the machine's certificates
    gc.freeze()  # else each fork's garbage collection would copy the pages of all objects
    running: set[int] = set()
    while True:
        if select.select([sys.stdin], [], [], 0.02)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            request = json.loads(line)
            pid = os.fork()
            if pid == 0:
                child(request)
            running.add(pid)
            print(json.dumps({"name": request["name"], "pid": pid}), flush=True)
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                running.discard(pid)
                print(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    main()
