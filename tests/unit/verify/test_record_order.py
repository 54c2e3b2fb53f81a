"""Records that are in a partition twice, or after later changes."""

from __future__ import annotations

from changefeed.records.event_id import EventId
from changefeed.verify.record_order import RecordOrder, find_repeated

SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def late(*ids: str, gtids: tuple[str, ...] = ()) -> list[str]:
    order = RecordOrder()
    for offset, text in enumerate(ids):
        event = EventId.parse(f"{SERVER}/{text}".encode())
        assert event is not None
        order.take(event, text.encode(), gtids[offset].encode() if gtids else b"", offset)
    assert order.late_count == len(order.late)
    return [text.decode() for text, _ in order.late]


def test_ids_rise_by_file_position_row_and_step() -> None:
    in_order = ("b.000009:4/0", "b.000009:4/1", "b.000009:4/1/1", "b.000009:4/1/2", "b.000009:30/0", "b.1000000:4/0")
    assert late(*in_order) == []
    for number in range(1, len(in_order)):
        swapped = [*in_order[: number - 1], in_order[number], in_order[number - 1], *in_order[number + 1 :]]
        assert late(*swapped) == [in_order[number - 1]]
        assert late(*in_order, in_order[number]) == [in_order[number]]


def test_rows_that_were_read_have_an_order_within_their_chunk_only() -> None:
    assert late("b.000009:900/0", "shop.orders#2:950/0", "shop.orders#2:950/1", "b.000009:940/0") == []
    assert late("shop.orders#2:950/0", "shop.orders#2:950/1", "shop.orders#2:40/0") == [], "of another snapshot"
    assert late("shop.orders#2:950/1", "shop.orders#2:950/0") == ["shop.orders#2:950/0"]
    assert late("shop.o/r:d#2:950/0", "shop.o/r:d#2:950/0") == ["shop.o/r:d#2:950/0"]


def test_rows_of_an_xa_transaction_come_when_it_is_committed() -> None:
    for first, second in ((f"{SERVER}:7", f"{SERVER}:8"), ("0-1-7", "0-2-8")):
        assert late("b.000009:900/0", "b.000009:100/0", gtids=(first, second)) == []
        assert late("b.000009:900/0", "b.000009:100/0", gtids=(second, first)) == ["b.000009:100/0"]
        assert late("b.000009:900/0", "b.000009:100/0", gtids=(first, first)) == ["b.000009:100/0"]


def test_id_that_occurs_once_is_out_of_order_and_not_repeated() -> None:
    ids = [b"1", b"3", b"2", b"3"]
    assert find_repeated([(b"2", 2), (b"3", 3)], ids) == {b"3"}


def test_records_of_statements_are_in_order_with_the_rows() -> None:
    assert late("b.000009:4/0", "b.000009:30/0/shop.orders/2", "b.000009:60/0") == []
    assert late("b.000009:60/0", "b.000009:30/0/shop.orders/2") == ["b.000009:30/0/shop.orders/2"]


def test_record_of_another_program_has_no_id() -> None:
    for text in (b"", b"1", b"server/binlog.000001:4", b"server/binlog.000001:x/0"):
        assert EventId.parse(text) is None
