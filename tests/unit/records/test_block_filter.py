"""Filters leave messages out of blocks, and each one that they leave out is in the window's account."""

from __future__ import annotations

from dataclasses import replace

import pytest
from encode_batches import encode_batches, encoder, messages_of

from changefeed.errors import AccountingError
from changefeed.model.binlog_order import BinlogOrder
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import TopicPartitionReceipt, account
from changefeed.model.slice_report import SliceReport
from changefeed.model.window import Failover, HighWaterMark, Slice, Window
from changefeed.records.batch import Batch
from changefeed.records.block import Message, MessageBlock, Step, pack, sequence_of
from changefeed.records.block_filter import BlockFilter, without
from changefeed.records.filter_chain import FilterChain
from changefeed.spark.stages.published_filter import PartlyPublishedFilter, PublishedFilter

SOURCE = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
WINDOW = Window("shop", 3, "uuid", BinlogCoordinates("bin.000001", 4), BinlogCoordinates("bin.000001", 904), "", "", 0)


class OddRows:
    """A filter like any other: it leaves out every second row."""

    reason = "odd rows"

    def concerns(self, _origin: str, _first: int, _last: int) -> bool:
        return True

    def rest(self, block: MessageBlock) -> MessageBlock | None:
        return without(block, lambda message: bool(message.sequence >> 2 & 1))


class Doubling:
    """What no filter may do."""

    reason = "doubling"

    def concerns(self, _origin: str, _first: int, _last: int) -> bool:
        return True

    def rest(self, block: MessageBlock) -> MessageBlock | None:
        return replace(block, payload=pack([*block.messages(), *block.messages()]))


def message(number: int, row: int) -> Message:
    """Row ``row`` of transaction ``number``."""
    return Message(number, sequence_of(row, Step.CHANGE), b"k", b"v", b"id", f"{SOURCE}:{number}".encode())


def block(partition: int, transactions: range, rows: int = 4) -> MessageBlock:
    messages = [message(number, row) for number in transactions for row in range(rows)]
    return MessageBlock("shop.orders", partition, "bin.000001", 0, transactions.start, pack(messages))


def chain_of(*filters: BlockFilter) -> FilterChain:
    return FilterChain(filters, encoder())


def left(batches: list[Batch]) -> list[tuple[int, int]]:
    """(transaction, row) of each message."""
    return [(message.position, message.sequence >> 2) for message in messages_of(batches)]


def test_without_filters_batches_pass_as_they_are() -> None:
    batches = encode_batches([block(0, range(1, 3)), block(1, range(3, 4))])
    chain = chain_of()
    assert list(chain.rest(batches)) == batches
    assert chain.dropped == {}


def test_a_batch_that_loses_nothing_is_not_made_again() -> None:
    (batch,) = encode_batches([block(0, range(1, 3), rows=1)])
    (rest,) = chain_of(OddRows()).rest([batch])
    assert rest is batch


def test_a_batch_that_concerns_no_filter_is_not_looked_into() -> None:
    class Elsewhere(Doubling):
        def concerns(self, origin: str, first: int, last: int) -> bool:
            assert (origin, first, last) == ("bin.000001", 1, 2)
            return False

    (batch,) = encode_batches([block(0, range(1, 3))])
    (rest,) = chain_of(Elsewhere()).rest([batch])
    assert rest is batch


def test_filters_run_in_order_and_count_separately() -> None:
    """Before the failover partition 0 got transactions 1 and 2, and one of the even rows of 3; partition 1 nothing."""
    published = PublishedFilter(Failover("old", 2, f"{SOURCE}:1", "bin.000001:4"))
    given = PartlyPublishedFilter(
        [HighWaterMark("shop.orders", 0, 3, f"{SOURCE}:3", 1, 3)], {3: BinlogOrder(((SOURCE, 2, 4),))}
    )
    chain = chain_of(OddRows(), published, given)
    batches = list(chain.rest(encode_batches([block(0, range(1, 3)), block(0, range(3, 5)), block(1, range(1, 3))])))
    assert left(batches) == [(3, 2), (4, 0), (4, 2), (2, 0), (2, 2)]
    assert [(batch.partition, batch.number) for batch in batches] == [(0, 3), (1, 1)]
    assert chain.dropped == {
        ("shop.orders", 0): {"odd rows": 8, "failover": 2, "given_before_failover": 3},
        ("shop.orders", 1): {"odd rows": 4, "failover": 2},
    }


def test_dropped_messages_are_in_the_sums_of_commit() -> None:
    chain = chain_of(OddRows())
    published = sum(
        batch.messages for batch in chain.rest(encode_batches([block(0, range(1, 3)), block(0, range(3, 5))]))
    )
    dropped = dict(chain.dropped["shop.orders", 0])
    receipt = TopicPartitionReceipt("shop.orders", 0, published, 0, 100, 0, 0, published - 1, dropped)
    slices = (Slice(0, "bin.000001", 4, 904),)
    reports = (SliceReport(0, 900, 10, {}),)
    decoded = {("shop.orders", 0): 16}
    manifest = account(WINDOW, slices, reports, decoded, [receipt], {})
    assert manifest.topics == (receipt,)
    assert type(manifest).from_json(manifest.to_json()) == manifest
    with pytest.raises(AccountingError, match="16 messages were decoded and 8 published or dropped"):
        account(WINDOW, slices, reports, decoded, [replace(receipt, dropped={})], {})


def test_a_filter_that_adds_messages_ends_the_run() -> None:
    with pytest.raises(AccountingError, match="'doubling' made 4 messages more"):
        list(chain_of(Doubling()).rest(encode_batches([block(0, range(1, 2))])))


def test_after_a_failover_a_message_without_a_gtid_ends_the_run() -> None:
    payload = pack([replace(message(1, 0), gtid=b"")])
    nameless = MessageBlock("shop.orders", 0, "bin.000001", 0, 0, payload)
    with pytest.raises(AccountingError, match=r"expected a GTID for the transaction at bin\.000001:1"):
        PublishedFilter(Failover("old", 2, f"{SOURCE}:1", "bin.000001:4")).rest(nameless)


def test_rows_of_the_old_server_are_skipped_by_its_transaction_order() -> None:
    """It logged 3, 1, 2; transaction 1 was given in part, and the new server has them in the order of their numbers."""
    order = BinlogOrder(((SOURCE, 3, 3), (SOURCE, 1, 2)))
    chain = chain_of(PartlyPublishedFilter([HighWaterMark("shop.orders", 0, 3, f"{SOURCE}:1", 3, 7)], {3: order}))
    batches = list(chain.rest(encode_batches([block(0, range(1, 5))])))
    assert left(batches) == [(1, 3), (2, 0), (2, 1), (2, 2), (2, 3), (4, 0), (4, 1), (4, 2), (4, 3)]
    assert chain.dropped == {("shop.orders", 0): {"given_before_failover": 7}}
