"""Which continuous run has taken over from which, and how long one waits for the next."""

from __future__ import annotations

import pytest

from changefeed.ingest.handover import ALONE, MOST_WAIT_SECONDS, HandedOverError, Handover
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import TakeoverRecord, latest_entries
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.model.connection import from_environment
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import parse_pipeline


def handover(schedule: str = "'@continuous'", number: int | None = None) -> Handover:
    """The handover of a run, after its takeover if it has a number."""
    text = f"""\
name: shop
source: {{connection: mysql_shop}}
kafka: {{connection: kafka_shop}}
tables: {{include: [shop.*]}}
schedule: {schedule}
windows: {{}}
"""
    made = Handover(PipelineConnections(parse_pipeline(text, "shop.yaml"), from_environment))
    made._number = number
    return made


def log_after(number: int) -> CommitLogState:
    """The commit log after the takeover of the run with this number."""
    record = TakeoverRecord(number)
    stored = KafkaRecord("changefeed.shop.commits", 0, 7, record.key("shop"), record.value(), (), 1767225600000, True)
    return CommitLogState(tuple(latest_entries([stored])))


@pytest.mark.parametrize(("schedule", "seconds"), [("'@continuous'", MOST_WAIT_SECONDS), ("null", 0), ("'@once'", 0)])
def test_a_run_waits_for_a_next_one_only_if_the_schedule_has_one(schedule: str, seconds: float) -> None:
    assert handover(schedule).wait_seconds == seconds


def test_only_a_later_run_takes_over() -> None:
    """While a transaction is open in the log, a plan may find the record of the run before this one."""
    run = handover(number=20)
    for found in (CommitLogState(), log_after(10), log_after(20)):
        run.check(found)
    with pytest.raises(HandedOverError):
        run.check(log_after(30))


def test_a_run_that_has_not_taken_over_is_not_ended() -> None:
    assert not handover().has_taken_over
    handover().check(log_after(30))
    ALONE.check(log_after(30))
