"""What Spark says when a job of it fails, as an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped] # it has no types
from pyspark.errors import PySparkException

from changefeed.errors import SparkFailedError
from changefeed.window import Window


@contextmanager
def named_failures(window: Window) -> Iterator[None]:
    """Raise SparkFailedError where a Spark job inside the block fails: an executor is lost, or its memory is out."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SparkFailedError(
            f"Spark failed in window {window.number} of pipeline {window.pipeline!r} ({window.start} to "
            f"{window.head}): {_cause(error)}. Nothing behind a message that is missing was published, and what was "
            "published is known: run again, which publishes the rest. Where executors are lost again and again, give "
            "them more memory (`spark.conf`)."
        ) from error


def _cause(error: Exception) -> str:
    text = str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return " ".join(lines)[:600]
