"""What the files in jobs/ share: a process that spark-submit or Airflow starts, and how it says what became of it."""

from __future__ import annotations

import argparse
import gc
import json
import logging
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from changefeed.errors import ChangefeedError, TerminalError

EXIT_RETRYABLE = 1
"""The job failed, and the same command may succeed later."""

EXIT_TERMINAL = 2
"""The job failed, and a retry cannot mend it."""


def planned(file: str) -> Any:
    """What the task `plan` returned, out of the JSON ``file`` that Airflow wrote.

    Where the driver runs on another machine than Airflow, Spark has laid the file into the driver's folder.
    """
    path = Path(file)
    return json.loads((path if path.exists() else Path(path.name)).read_text())


def submitted(arguments: argparse.ArgumentParser, publish: Callable[[argparse.Namespace], Iterator[str]]) -> int:
    """Call ``publish`` with the command line's arguments, print each line that it yields, and return the exit code.

    The code is 0 when ``publish`` came to its end; an error of ours is the last line of the output, and the code is
    EXIT_TERMINAL or EXIT_RETRYABLE. Any other exception is a bug, and leaves with its traceback.
    """
    given = arguments.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s", stream=sys.stdout)
    logging.getLogger("kafka").setLevel(logging.ERROR)
    logging.getLogger("py4j").setLevel(logging.ERROR)  # it tells of each thread that is done with the JVM
    try:
        for line in publish(given):
            print(line, flush=True)
    except ChangefeedError as error:
        print(f"ERROR {type(error).__name__}: {error}", flush=True)
        return EXIT_TERMINAL if isinstance(error, TerminalError) else EXIT_RETRYABLE
    finally:
        gc.freeze()  # Python's end would look at all modules once more, for half a second
    return 0
