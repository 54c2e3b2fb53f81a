"""Runs of pipelines, as `changefeed run` does them, without Spark's JVM and without the seconds that imports take.

A line on stdin asks for a run: {"name", "env", "log", "windows", "command"}, of windows that were frozen before or
null; or for a command with its arguments, without Spark's JVM unless the pipeline has a Connect server. It is a fork
of this process in a session of its own. Lines on stdout tell {"name", "pid"} when it began and {"pid", "code"}
when it ended: 0 when a window was committed, 3 when nothing is new, 2 with a terminal error, 1 with one that may pass,
-9 when it was killed.
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
from changefeed.ingest.cut import cut
from changefeed.ingest.run import ingest_windows, run_windows
from changefeed.model import fault_point
from changefeed.model.connection import from_environment
from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.plan import plan
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.run import RunBounds
from changefeed.source.mysql.login import _Connection
from changefeed.state.stores import checkpoint_store

IMPORTED = (
    "changefeed.records.encoder",
    "changefeed.binlog.kernel.boundary_rows",
    "changefeed.binlog.kernel.hop",
    "changefeed.snapshot.run",
    "changefeed.spark.stages.readers",
    "changefeed.source.mysql.packets",
    "changefeed.records.record_writer",
    "changefeed.binlog.search.file_ranges",
    "encodings.idna",
    "pyarrow.pandas_compat",  # pandas: pyarrow looks whether a value is one of its own
    "sqlglot.dialects.mysql",
    "sqlite3",
)
"""What runs import when they need it: half of a run's time went into that. Nothing of it may start a thread.

The kernels that each run and each snapshot needs are among it: to load one is to wait while another checkout compiles
the same sources into the same cache, which takes minutes.
"""


def run(name: str, windows: list[dict[str, Any]] | None) -> int:
    importlib.reload(fault_point)  # it reads the environment
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("kafka").setLevel(logging.ERROR)
    pipeline = load_pipeline(name)
    try:
        connections = PipelineConnections(pipeline, from_environment)
        store = checkpoint_store(pipeline, from_environment, cast(Any, None))
        if windows is not None:
            frozen = [Window.from_json(window) for window in windows]
            for manifest in ingest_windows(InlineSpark(), connections, frozen):
                print(f"sealed window {manifest.window.number}", flush=True)
            return 0
        planned = plan(connections, store)
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


def child(asked: dict[str, Any]) -> None:
    os.setsid()
    log = os.open(asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(log, number)
    os.environ.update(asked["env"])
    if most := int(os.environ.get("AIRFLOW_CONN_FILE_BYTES", "0")):  # as on a full disk: no file grows beyond it
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    faulthandler.register(signal.SIGUSR1)  # prints where each thread is
    code = 70
    try:
        code = command(asked["command"]) if asked["command"] else run(asked["name"], asked["windows"])
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    _Connection(defer_connect=True)  # the machine's certificates are loaded with the first one
    gc.freeze()  # or each fork's collections would copy the pages of all that is there
    running: set[int] = set()
    while True:
        if select.select([sys.stdin], [], [], 0.02)[0]:
            line = sys.stdin.readline()
            if not line:
                return
            asked = json.loads(line)
            pid = os.fork()
            if pid == 0:
                child(asked)
            running.add(pid)
            print(json.dumps({"name": asked["name"], "pid": pid}), flush=True)
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                running.discard(pid)
                print(json.dumps({"pid": pid, "code": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    main()
