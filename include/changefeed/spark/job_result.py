"""What a job has done, for the task that started it: the rows by table and the records by topic, in one file.

The task names the file in the job's environment. A driver in cluster mode does not get the variable, as it is on
another machine; then the task has no such result.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

JOB_RESULT = "CHANGEFEED_JOB_RESULT"
"""The environment variable with the path of the file."""

JobResult = dict[str, dict[str, int]]
"""Counts by name: ``rows`` by "database.table", ``records`` by topic."""


def write_result(*, rows: Mapping[str, int], records: Mapping[str, int]) -> None:
    """Store the counts, in place of earlier ones; without the variable nothing is stored."""
    if path := os.environ.get(JOB_RESULT):
        Path(path).write_text(json.dumps({"rows": dict(rows), "records": dict(records)}))


def read_result(path: Path) -> JobResult:
    """The counts that the job stored last, also if it failed then; empty if it stored none."""
    with suppress(OSError, ValueError, AttributeError, TypeError):  # also if it was killed while it wrote
        values = json.loads(path.read_text())
        return {
            kind: {str(name): int(count) for name, count in values[kind].items()}
            for kind in ("rows", "records")
            if kind in values
        }
    return {}
