"""A window is sealed only when each of its slices, bytes and messages is accounted for."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from changefeed.errors import AccountingError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest, TopicPartitionReceipt, account
from changefeed.model.slice_report import SliceReport
from changefeed.model.window import Slice, Window

WINDOW = Window(
    "shop", 3, "uuid", BinlogCoordinates("bin.000001", 4), BinlogCoordinates("bin.000002", 500), "", "", 1_700_000_000
)
SLICES = (Slice(0, "bin.000001", 4, 904), Slice(1, "bin.000002", 4, 500))
REPORTS = (
    SliceReport(0, 900, 10, {"shop.orders": {"c": 3}, "shop.items": {"c": 1, "u": 1}}, skipped_rows=7, transactions=2),
    SliceReport(1, 496, 5, {"shop.orders": {"d": 1, "c": 1}}, skipped_rows=1, transactions=3),
)
RECEIPT = TopicPartitionReceipt("shop.orders", 0, 4, 0, 100, 0, 10, 13)
RECEIPTS = (
    TopicPartitionReceipt("shop.orders", 1, 1, 1, 60, 0, 5, 5),
    RECEIPT,
    TopicPartitionReceipt("shop.items", 0, 1, 0, 20, 1, 0, 0),
)
DECODED = {("shop.orders", 0): 4, ("shop.orders", 1): 2, ("shop.items", 0): 2}


def sealed() -> Manifest:
    return account(WINDOW, SLICES, REPORTS, DECODED, RECEIPTS, {"ingest": 1.5})


def test_a_manifest_names_the_xa_transactions_that_are_prepared_at_its_end() -> None:
    plain = sealed().to_json()
    assert "prepared" not in plain, "nothing is said where there is none"
    assert Manifest.from_json(plain).prepared == ()
    reports = (
        replace(REPORTS[0], prepared=("X'61',X'',1", "X'62',X'',1", "X'63',X'',1")),
        replace(REPORTS[1], ended=("X'61',X'',1", "X'63',X'',1", "X'7a',X'',1"), prepared=("X'63',X'',1",)),
    )
    manifest = account(WINDOW, SLICES, reports, DECODED, RECEIPTS, {})
    assert manifest.prepared == ("X'62',X'',1", "X'63',X'',1")
    stored = json.loads(json.dumps(manifest.to_json()))
    assert Manifest.from_json(stored) == manifest
    many = replace(REPORTS[0], prepared=tuple(f"X'{number:04x}',X'',1" for number in range(2000)))
    assert len(account(WINDOW, SLICES, (many, REPORTS[1]), DECODED, RECEIPTS, {}).prepared) == 1000


def test_manifest_adds_up_slice_reports() -> None:
    manifest = sealed()
    assert (manifest.size_bytes, manifest.events, manifest.transactions, manifest.skipped_rows) == (1396, 15, 5, 8)
    assert manifest.rows == {"shop.items": {"c": 1, "u": 1}, "shop.orders": {"c": 4, "d": 1}}
    assert manifest.row_count == 7


def test_messages_of_earlier_attempts_and_dead_letters_count_as_delivered() -> None:
    assert sealed().message_count == 8


def test_receipts_are_in_the_order_of_topic_and_partition() -> None:
    places = [(receipt.topic, receipt.partition) for receipt in sealed().topics]
    assert places == [("shop.items", 0), ("shop.orders", 0), ("shop.orders", 1)]


def test_a_manifest_is_plain_json_and_back() -> None:
    assert Manifest.from_json(json.loads(json.dumps(sealed().to_json()))) == sealed()


def test_a_window_without_rows_is_sealed_too() -> None:
    reports = [replace(report, rows={}) for report in REPORTS]
    assert account(WINDOW, SLICES, reports, {}, (), {}).message_count == 0


def test_a_slice_without_a_report_is_not_sealed() -> None:
    with pytest.raises(AccountingError, match=r"slice 1 \(bin\.000002:4-500\) has no report"):
        account(WINDOW, SLICES, REPORTS[:1], DECODED, RECEIPTS, {})


def test_a_slice_that_reports_twice_is_not_sealed() -> None:
    with pytest.raises(AccountingError, match="2 slices made 3 reports"):
        account(WINDOW, SLICES, (*REPORTS, REPORTS[0]), DECODED, RECEIPTS, {})


@pytest.mark.parametrize("size_bytes", [495, 497])
def test_a_byte_more_or_less_is_not_sealed(size_bytes: int) -> None:
    with pytest.raises(AccountingError, match=f"is 496 bytes, and {size_bytes} were read"):
        account(WINDOW, SLICES, (REPORTS[0], replace(REPORTS[1], size_bytes=size_bytes)), DECODED, RECEIPTS, {})


@pytest.mark.parametrize("messages", [3, 5])
def test_a_message_more_or_less_is_not_sealed(messages: int) -> None:
    with pytest.raises(AccountingError, match=rf"'?shop.orders'? partition 0: 4 messages .* {messages} published"):
        account(WINDOW, SLICES, REPORTS, DECODED, (replace(RECEIPT, messages=messages), *RECEIPTS[::2]), {})


def test_topic_partition_without_its_decoded_messages_is_not_sealed() -> None:
    with pytest.raises(AccountingError, match="2 messages were decoded and 0 published"):
        account(WINDOW, SLICES, REPORTS, DECODED, RECEIPTS[1:], {})


def test_topic_partition_with_unknown_messages_is_not_sealed() -> None:
    with pytest.raises(AccountingError, match="0 messages were decoded and 1 published"):
        account(WINDOW, SLICES, REPORTS, DECODED, (*RECEIPTS, replace(RECEIPT, partition=9, messages=1)), {})


def test_freshness_of_a_table_is_of_its_oldest_commit_in_any_slice() -> None:
    reports = (
        replace(REPORTS[0], commits={"shop.orders": 1_700_000_002_500_000, "shop.items": 1_700_000_009_000_000}),
        replace(REPORTS[1], commits={"shop.orders": 1_700_000_001_000_000}),
    )
    manifest = account(WINDOW, SLICES, reports, DECODED, RECEIPTS, {}, published_at=1_700_000_005.25)
    assert manifest.freshness_seconds == {"shop.orders": 4.25, "shop.items": 0.0}, "the source's clock may be ahead"
    assert Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest


def test_backfill_and_a_manifest_of_an_earlier_version_have_no_freshness() -> None:
    reports = [replace(report, commits={"shop.orders": 1}) for report in REPORTS]
    plain = account(WINDOW, SLICES, reports, DECODED, RECEIPTS, {}).to_json()
    assert "freshness_seconds" not in plain
    assert Manifest.from_json(plain).freshness_seconds == {}
