"""What is already in Kafka is known by its origin, position and sequence."""

from __future__ import annotations

import json
from array import array

import pytest
from encode_batches import encode_batches
from hypothesis import given
from hypothesis import strategies as st

from changefeed.errors import AccountingError, CheckpointError
from changefeed.kafka.account import Account
from changefeed.kafka.progress import Progress
from changefeed.kafka.topics import TopicLimits
from changefeed.kafka.transactions import Delivery
from changefeed.records.batch import Batch
from changefeed.records.block import Message, MessageBlock, pack

LIMITS = TopicLimits(1)
_numbers = st.integers(min_value=0, max_value=2**63)


def _view(values: list[int]) -> memoryview:
    return memoryview(array("Q", values))


def _batch(origin: str, *where: tuple[int, int]) -> Batch:
    """Messages at (position, sequence) each."""
    messages = [Message(position, sequence, b"k", b"0123456789", b"id", b"") for position, sequence in where]
    (batch,) = encode_batches([MessageBlock("shop.orders", 0, origin, 0, 0, pack(messages))])
    return batch


def _progress(origin: str, position: int, sequence: int) -> Progress:
    return Progress(origin, position, sequence, window=1)


@given(
    where=st.lists(st.tuples(st.integers(0, 50), st.integers(0, 8)), max_size=30, unique=True),
    last=st.tuples(st.integers(0, 50), st.integers(0, 8)),
)
def test_exactly_the_messages_after_progress_are_the_rest(where: list[tuple[int, int]], last: tuple[int, int]) -> None:
    where.sort()
    progress = _progress("bin.000007", *last)
    begin = progress.begin_of_rest("bin.000007", _view([at for at, _ in where]), _view([row for _, row in where]))
    assert where[begin:] == [each for each in where if each > last]


def test_files_are_compared_by_number() -> None:
    positions, sequences = _view([4, 9]), _view([0, 0])
    progress = _progress("bin.999999", 5000, 0)
    assert progress.begin_of_rest("bin.1000000", positions, sequences) == 0
    assert progress.begin_of_rest("bin.999998", positions, sequences) == 2


def test_another_base_name_is_refused() -> None:
    with pytest.raises(CheckpointError, match="base name"):
        _progress("bin.000001", 4, 0).begin_of_rest("mysql-bin.000001", _view([4]), _view([0]))


_origins = st.sampled_from(["bin.000001", "shop.orders#12"])


@given(st.builds(Progress, _origins, _numbers, _numbers, _numbers, first_offset=st.none() | _numbers))
def test_progress_survives_json(progress: Progress) -> None:
    assert Progress.from_json(json.loads(json.dumps(progress.to_json()))) == progress


def test_progress_of_a_later_version_can_be_read() -> None:
    assert Progress.from_json({**_progress("bin.000001", 4, 0).to_json(), "new": 1}) == _progress("bin.000001", 4, 0)


def test_batches_out_of_order_are_refused() -> None:
    account = Account("shop.orders", 0, LIMITS, 1, "", None)
    account.move_over(_batch("bin.000002", (100, 0), (200, 4)))
    for file, first in (("bin.000002", (200, 4)), ("bin.000002", (50, 0)), ("bin.000001", (900, 0))):
        with pytest.raises(AccountingError, match="out of order"):
            account.move_over(_batch(file, first))
    account.move_over(_batch("bin.000002", (200, 8)))


def test_a_window_that_another_server_began_is_not_ended_by_guess() -> None:
    begun = Progress("bin.000007", 4, 0, window=3, source="a")
    with pytest.raises(AccountingError, match="found window 3 of server 'a'"):
        Account("shop.orders", 0, LIMITS, 3, "b", begun)
    later = Account("shop.orders", 0, LIMITS, 4, "b", begun)
    assert later.skip_published(_batch("other.000001", (4, 0))) == 0


def test_totals_go_on_within_a_window_and_begin_anew_with_the_next() -> None:
    before = Progress("bin.000007", 4, 0, window=3, messages=10, value_bytes=100, first_offset=5, last_offset=14)
    for window, messages, first in ((3, 12, 5), (4, 2, None)):
        account = Account("shop.orders", 0, LIMITS, window, "", before)
        batch = _batch("bin.000007", (9, 0), (10, 0))
        account.move_over(batch)
        account.count(batch, Delivery("to publish"))
        assert (account.progress().messages, account.progress().first_offset) == (messages, first)


def test_chunks_are_compared_by_their_number() -> None:
    positions, sequences = _view([70, 70]), _view([0, 4])
    progress = _progress("shop.orders#9", 70, 0)
    assert progress.begin_of_rest("shop.orders#9", positions, sequences) == 1
    assert progress.begin_of_rest("shop.clients#10", positions, sequences) == 0
    assert progress.begin_of_rest("shop.zones#8", positions, sequences) == 2


@pytest.mark.parametrize(("given", "follows"), [("shop.orders#9", "bin.000001"), ("bin.000001", "shop.orders#9")])
def test_a_chunk_and_a_binlog_file_have_no_order(given: str, follows: str) -> None:
    with pytest.raises(CheckpointError, match="have no order"):
        _progress(given, 4, 0).begin_of_rest(follows, _view([4]), _view([0]))
    account = Account("shop.orders", 0, LIMITS, 1, "", None)
    account.move_over(_batch(given, (4, 0)))
    with pytest.raises(AccountingError, match="out of order"):
        account.move_over(_batch(follows, (9, 0)))


def test_a_record_of_a_file_is_stored_as_it_always_was() -> None:
    stored = {"file": "bin.000007", "position": 9, "sequence": 4, "window": 3, "source": "a", "gtid": "a:7"}
    progress = Progress.from_json(stored)
    assert (progress.origin, progress.where) == ("bin.000007", "bin.000007:9")
    assert stored.items() <= progress.to_json().items()
    assert "chunk" not in progress.to_json()
    assert _progress("shop.orders#9", 4, 0).to_json()["chunk"] == "shop.orders#9"
