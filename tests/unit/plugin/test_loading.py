"""What is shown of a pipeline whose DAG Airflow has not loaded."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from changefeed_web.loading import DagProcessor, describe_missing, missing_dag

NOW = datetime(2026, 11, 28, 12, 0, tzinfo=UTC)
PROCESSOR = DagProcessor(NOW - timedelta(seconds=3), is_alive=True, has_import_errors=False, interval_seconds=30)


@pytest.mark.parametrize(
    ("processor", "minutes", "overdue", "words"),
    [
        (PROCESSOR, 1, False, "reads its files every 30 seconds and loads the DAG then"),
        (PROCESSOR, 60, True, "CHANGEFEED_PIPELINES is the same folder"),
        (replace(PROCESSOR, has_import_errors=True), 60, True, "Import errors"),
        (replace(PROCESSOR, reported_at=NOW - timedelta(hours=2), is_alive=False), 1, False, "2026-11-28 10:00:00 UTC"),
        (replace(PROCESSOR, reported_at=None, is_alive=False), 60, True, "No DAG processor has reported"),
    ],
)
def test_reason_names_since_when_and_what_to_do(
    processor: DagProcessor, minutes: int, overdue: bool, words: str
) -> None:
    since = NOW - timedelta(minutes=minutes)
    missing = describe_missing(since, processor, NOW)
    assert (missing["since"], missing["overdue"]) == (since.isoformat(), overdue)
    assert words in missing["text"]


def test_unknown_time_counts_as_overdue() -> None:
    assert describe_missing(None, PROCESSOR, NOW)["overdue"] is True


def test_loaded_dag_is_not_missing() -> None:
    assert missing_dag("shop", {"known": True}) is None
