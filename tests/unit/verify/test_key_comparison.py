"""Results of comparing a row of the server with the records of its key."""

from __future__ import annotations

from changefeed.verify.entries import Entry, Side
from changefeed.verify.key_comparison import KeyComparator, KeyResult, ReadInterval, ResultKind
from changefeed.verify.row_digests import row_digest

OLD, NEW = {"id": 1, "text": "old"}, {"id": 1, "text": "new"}
INTERVAL = ReadInterval(100, 200)


def row(**values: object) -> Entry:
    return Entry(0, b"1", Side.SERVER, 0, 1, 0, 1, row_digest(values))


def record(moment: int, values: dict[str, object] | None, *, partition: int = 0, weight: int | None = None) -> Entry:
    digest = b"" if values is None else row_digest(values)
    there = int(values is not None) if weight is None else weight
    return Entry(0, b"1", Side.TOPIC, partition, moment, moment, there, digest)


def compare_keys(*entries: Entry, without_key: bool = False, truncates: tuple[tuple[int, int], ...] = ()) -> KeyResult:
    tables = frozenset({0} if without_key else set[int]())
    comparator = KeyComparator({0: INTERVAL}, {0: INTERVAL}, tables, {(0, 0): truncates} if truncates else {})
    (result,) = comparator.results(sorted(entries))
    return result


def kind(*entries: Entry, without_key: bool = False, truncates: tuple[tuple[int, int], ...] = ()) -> ResultKind:
    return compare_keys(*entries, without_key=without_key, truncates=truncates).kind


def test_the_last_record_before_a_row_was_read_has_to_be_that_row() -> None:
    assert kind(row(**NEW), record(1, OLD), record(50, NEW)) is ResultKind.EQUAL
    assert kind(row(**NEW), record(1, NEW), record(50, OLD)) is ResultKind.CHANGED
    assert kind(row(**NEW), record(1, NEW), record(50, None)) is ResultKind.MISSING
    assert kind(row(**NEW)) is ResultKind.UNPUBLISHED
    assert kind(record(1, OLD)) is ResultKind.EXTRA
    assert kind(record(1, OLD), record(50, None)) is ResultKind.EQUAL


def test_a_row_that_changed_while_it_was_read_may_be_any_that_it_was_meanwhile() -> None:
    for there in (OLD, NEW):
        assert kind(row(**there), record(1, OLD), record(150, NEW)) is ResultKind.MEANWHILE
    assert kind(row(id=1, text="other"), record(1, OLD), record(150, NEW)) is ResultKind.CHANGED
    assert kind(row(**NEW), record(150, NEW)) is ResultKind.MEANWHILE
    assert kind(record(150, NEW)) is ResultKind.EQUAL
    assert kind(record(1, OLD), record(150, None)) is ResultKind.EQUAL


def test_records_after_a_read_row_do_not_count_for_it() -> None:
    assert kind(row(**OLD), record(1, OLD), record(200, NEW)) is ResultKind.EQUAL
    assert kind(row(**NEW), record(1, OLD), record(200, NEW)) is ResultKind.CHANGED
    assert kind(record(200, NEW)) is ResultKind.EQUAL


def test_a_record_of_a_partition_that_was_added_later_counts_by_its_coordinates() -> None:
    assert kind(row(**NEW), record(1, OLD, partition=2), record(50, NEW, partition=1)) is ResultKind.EQUAL
    assert kind(row(**OLD), record(1, OLD, partition=2), record(50, NEW, partition=1)) is ResultKind.CHANGED


def test_a_truncate_ends_all_rows_before_it_in_its_partition() -> None:
    assert kind(record(1, OLD), truncates=((50, 50),)) is ResultKind.EQUAL
    assert kind(row(**OLD), record(1, OLD), truncates=((50, 50),)) is ResultKind.MISSING
    assert kind(row(**OLD), record(60, OLD), truncates=((50, 50),)) is ResultKind.EQUAL
    added = [record(1, OLD, weight=1), record(60, OLD, weight=1)]
    assert kind(row(**OLD), *added, without_key=True, truncates=((50, 50),)) is ResultKind.EQUAL


def test_columns_that_only_one_side_has_are_left_out_and_counted() -> None:
    assert kind(row(**NEW, note="x"), record(1, NEW)) is ResultKind.IN_PART
    assert kind(row(**NEW, note=None), record(1, NEW)) is ResultKind.EQUAL
    assert kind(row(**NEW, note="x"), record(1, OLD)) is ResultKind.CHANGED
    assert kind(row(id=1), record(1, OLD)) is ResultKind.IN_PART
    assert kind(row(**NEW), record(1, {**NEW, "text": "__debezium_unavailable_value"})) is ResultKind.IN_PART


def test_rows_without_a_key_are_as_many_as_the_records_make() -> None:
    added, removed = record(1, OLD, weight=1), record(50, OLD, weight=-1)
    assert kind(row(**OLD), row(**OLD), added, added, without_key=True) is ResultKind.EQUAL
    assert kind(added, removed, without_key=True) is ResultKind.EQUAL
    assert compare_keys(row(**OLD), row(**OLD), added, without_key=True) == KeyResult(
        0, b"1", ResultKind.MISSING, 2, 1, 0, 0, 1
    )
    assert compare_keys(row(**OLD), added, added, added, without_key=True).differing == 2
    assert kind(row(**OLD), without_key=True) is ResultKind.UNPUBLISHED
    meanwhile = record(150, OLD, weight=1)
    for rows in ([row(**OLD)], [row(**OLD), row(**OLD)]):
        assert kind(*rows, added, meanwhile, without_key=True) is ResultKind.MEANWHILE


def test_only_the_rows_of_a_sample_are_compared() -> None:
    comparator = KeyComparator({0: INTERVAL}, {0: INTERVAL}, frozenset(), {}, sampled=True)
    assert not list(comparator.results([record(1, OLD)]))
    (result,) = comparator.results([row(**NEW), record(1, OLD)])
    assert result.kind is ResultKind.CHANGED
