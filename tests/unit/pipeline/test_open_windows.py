"""What a run finds that earlier ones left: by the records of the commit log alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from changefeed.errors import CheckpointError, StaleCheckpointError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import BegunRecord, LogRecord, ProgressRecord, SealRecord, latest_entries
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.kafka.progress import Progress
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest
from changefeed.model.window import Failover, Window
from changefeed.pipeline.open_windows import check_next, find_unfinished

A, B = "uuid-a", "uuid-b"


def at(position: int) -> BinlogCoordinates:
    return BinlogCoordinates("bin.000001", position)


def window(number: int, start: int, head: int, server: str = A, after: int | None = None) -> Window:
    """``after`` makes it the first one after a failover from A."""
    failover = None if after is None else Failover(A, after, "", "bin.000001:4")
    return Window("shop", number, server, at(start), at(head), "", "", 0, failover=failover)


def checkpoint(number: int, position: int, server: str = A) -> Checkpoint:
    return Checkpoint("shop", number, server, at(position), "", 0)


def sealed(of: Window) -> LogRecord:
    return SealRecord(Manifest(of, 0, 0, 0, {}, 0, ()))


def given(number: int, server: str = A) -> LogRecord:
    return ProgressRecord("shop.orders", 0, Progress("bin.000001", 150, 0, number, server, messages=3))


def log(*records: LogRecord) -> CommitLogState:
    stored = (
        KafkaRecord("log", 0, 0, each.key("shop"), each.value(), (), 0, stamped_by_broker=True) for each in records
    )
    return CommitLogState(tuple(latest_entries(stored)))


def test_a_sealed_window_counts_where_a_late_writer_says_again_that_it_was_begun() -> None:
    six = window(6, 100, 200)
    left = find_unfinished(checkpoint(5, 100), log(sealed(six), BegunRecord(six), given(6)), A)
    assert (left.sealed, left.begun, left.end.coordinates) == ((six,), None, at(200))


def test_the_oldest_seal_that_is_kept_may_be_that_of_a_failover() -> None:
    """Seals before it are forgotten, and the number before its own is that of a window that nobody finished."""
    eight = window(8, 40, 90, B, after=6)
    left = find_unfinished(checkpoint(3, 100), log(sealed(eight), sealed(window(9, 90, 120, B))), B)
    assert (left.base, left.end.window, left.end.coordinates) == (checkpoint(6, 40, B), 9, at(120))


def test_a_sealed_window_that_begins_somewhere_else_than_the_checkpoint_is_an_error() -> None:
    with pytest.raises(CheckpointError, match="whether the changes between are in Kafka is not known"):
        find_unfinished(checkpoint(5, 100), log(sealed(window(6, 150, 200))), A)


def test_parts_of_a_window_that_did_not_begin_at_the_checkpoint_are_an_error() -> None:
    with pytest.raises(CheckpointError, match=r"parts of window 6 are in Kafka.* seek the pipeline"):
        find_unfinished(checkpoint(5, 100), log(BegunRecord(window(6, 120, 200)), given(6)), A)


def test_the_old_servers_window_is_finished_where_a_failover_published_nothing() -> None:
    six, seven = window(6, 100, 200), window(7, 30, 80, B, after=5)
    state = log(BegunRecord(six), BegunRecord(seven), given(6))
    assert find_unfinished(checkpoint(5, 100), state, A).begun == six
    assert find_unfinished(checkpoint(5, 100), state, B).begun == seven
    published = log(BegunRecord(six), BegunRecord(seven), given(7, B))
    assert find_unfinished(checkpoint(5, 100), published, A).begun is None


def test_a_failovers_window_is_out_of_date_where_the_old_server_finished_its_own() -> None:
    seven = window(7, 30, 80, B, after=5)
    with pytest.raises(StaleCheckpointError, match=r"window 6, up to bin\.000001:200, is sealed already"):
        check_next(seven, log(sealed(window(6, 100, 200)), given(6)))
    check_next(replace(seven, failover=Failover(A, 6, "", "bin.000001:4")), log(sealed(window(6, 100, 200)), given(6)))
