"""What Spark says when a job of it fails, as an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped] # it has no types
from pyspark.errors import PySparkException

from changefeed.errors import SparkFailedError


@contextmanager
def named_failures(work: str) -> Iterator[None]:
    """Raise SparkFailedError, which names ``work``, where a Spark job in the block fails: an executor is lost, or its
    memory is out."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SparkFailedError(
            f"Spark failed in {work}: {_cause(error)}. Nothing after a missing message was published, and what was "
            "published is known: run again, which publishes the rest. Where executors are lost again and again, give "
            "them more memory (`spark.conf`)."
        ) from error


def _cause(error: Exception) -> str:
    text = str(error.java_exception.toString()) if isinstance(error, Py4JJavaError) else str(error)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return " ".join(lines)[:600]
