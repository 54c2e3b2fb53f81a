"""Run a function of jobs/ in a process that spark-submit or Airflow started, and report its result as an exit code."""

from __future__ import annotations

import argparse
import gc
import logging
import sys
from collections.abc import Callable, Generator
from contextlib import closing

from changefeed.errors import ChangefeedError, TerminalError
from changefeed.spark.task_watch import end_with_task

EXIT_RETRYABLE = 1
"""The job failed; a retry may succeed."""

EXIT_TERMINAL = 2
"""The job failed, and a retry would fail too."""


def accept_attempt(arguments: argparse.ArgumentParser) -> None:
    """Add the argument that `claim_timeout` reads."""
    arguments.add_argument(
        "--attempt",
        type=int,
        default=1,
        help="number of the task's attempt. After the first, the job of an earlier one may still be ending: it is "
        "waited for, up to lease_seconds",
    )


def claim_timeout(arguments: argparse.Namespace, lease_seconds: float) -> float:
    """How many seconds a job waits for another one that is alive: only a retry does, for that of an earlier attempt."""
    return lease_seconds if arguments.attempt > 1 else 0.0


def run_as_job(arguments: argparse.ArgumentParser, publish: Callable[[argparse.Namespace], Generator[str]]) -> int:
    """Call ``publish`` with the command line's arguments, print each line that it yields, and return the exit code.

    The code is 0 if ``publish`` ended. For a ChangefeedError, the last line of the output is the error, and the code is
    EXIT_TERMINAL or EXIT_RETRYABLE. Any other exception is a bug, and is raised. If the task that started the job ends
    earlier, the job ends too, see `end_with_task`.
    """
    parsed = arguments.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stdout)
    logging.getLogger("kafka").setLevel(logging.ERROR)
    logging.getLogger("py4j").setLevel(logging.ERROR)  # it logs each thread that disconnects from the JVM
    end_with_task()
    try:
        with closing(publish(parsed)) as lines:  # else a SystemExit of `print` would close it when Python ends
            for line in lines:
                print(line, flush=True)
    except ChangefeedError as error:
        print(f"ERROR {type(error).__name__}: {error}", flush=True)
        return EXIT_TERMINAL if isinstance(error, TerminalError) else EXIT_RETRYABLE
    finally:
        gc.freeze()  # else the collection at exit would scan all modules, for half a second
    return 0
