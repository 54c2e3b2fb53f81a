"""Convert errors of Spark to errors of changefeed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped] # it has no types
from pyspark.errors import PySparkException

from changefeed.errors import SettingsError, SparkFailedError

_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
_NO_PYTHON = re.compile(r'Cannot run program "([^"]+)"[^\n]*error(?:=|: )(?:2|13)\b')
"""ENOENT or EACCES; other numbers, such as of no memory, may not come again."""


@contextmanager
def raise_spark_failures(work: str) -> Iterator[None]:
    """Raise an error with the name of ``work`` if a Spark job in the block fails.

    It is a SettingsError if the workers cannot start Python or cannot import a package, which a retry does not change;
    else SparkFailedError, for example because an executor is lost or out of memory.
    """
    try:
        yield
    except (PySparkException, Py4JError) as error:
        check_workers(error)
        raise SparkFailedError(
            f"Spark failed in {work}: {_cause(error)}. No message after a missing one was published, and the published "
            "messages are known. Run again to publish the rest. If executors are lost repeatedly, give them more "
            "memory (`spark.conf`)."
        ) from error


def check_workers(error: Exception) -> None:
    """Raise SettingsError if ``error``, of a Spark job, says that workers cannot start Python or import a package."""
    text = str(error)
    if module := _NO_MODULE.search(text):
        raise SettingsError(
            f"expected the Python workers of Spark to import {module[1]!r}, found no such module. Install the package "
            "changefeed with its requirements for the Python of the workers, add its folder to the PYTHONPATH of the "
            "workers, or name another Python (spark.pyspark.python in `spark.conf`; PYSPARK_PYTHON of a Spark Connect "
            "server)."
        ) from error
    if program := _NO_PYTHON.search(text):
        raise SettingsError(
            f"expected the machines of Spark's workers to have the program {program[1]!r}, found none. Install Python "
            "there, or name the Python that they have (spark.pyspark.python in `spark.conf`; PYSPARK_PYTHON of a Spark "
            "Connect server)."
        ) from error


def _cause(error: Exception) -> str:
    text = str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return " ".join(lines)[:600]
