"""Chains of records of one key."""

from __future__ import annotations

import pytest

from changefeed.verify.chain_records import CREATE, DELETE, EVENT, READ, TOMBSTONE, UPDATE, ChainReport, pack_digests
from changefeed.verify.chains import has_grown
from changefeed.verify.entries import Entries, Entry
from changefeed.verify.key_chains import ChainChecker
from changefeed.verify.row_digests import row_digest

CHECKER = ChainChecker({0: ()}, frozenset({0}), frozenset())

Step = tuple[int, dict[str, int] | None, dict[str, int] | None]
A, B, C = ({"id": 1, "n": number} for number in (1, 2, 3))


def entries(steps: list[Step], key: bytes = b'{"id":1}', partition: int = 0) -> list[Entry]:
    """Records at offsets and moments 10, 20 and so on."""
    return [
        Entry(0, key, op, partition, 10 * number, 10 * number, 0, pack_digests(digest(before), digest(after)))
        for number, (op, before, after) in enumerate(steps, 1)
    ]


def digest(row: dict[str, int] | None) -> bytes:
    return b"" if row is None else row_digest(row)


def wrong(steps: list[Step], checker: ChainChecker = CHECKER) -> list[str]:
    return [
        text.partition(": partition 0, ")[2] for _, _, text in checker.check_chains(Entries.of(entries(steps))).shown
    ]


END: list[Step] = [(DELETE, B, None), (TOMBSTONE, None, None)]


@pytest.mark.parametrize(
    "steps",
    [
        [(CREATE, None, A), (UPDATE, A, B), *END, (CREATE, None, C)],
        [(UPDATE, A, B), (READ, None, C), (UPDATE, C, A)],
        [(CREATE, None, {"id": 1}), (UPDATE, A, B)],  # a column that was added
        [(CREATE, None, A), (UPDATE, {"id": 1}, {"n": 2}), (UPDATE, {"id": 1}, {"n": 3})],  # partial images
        [*END, (READ, None, A), (UPDATE, A, B)],
        [(TOMBSTONE, None, None), (CREATE, None, A)],
    ],
)
def test_records_that_follow_one_another_are_a_chain(steps: list[Step]) -> None:
    assert wrong(steps) == []


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([(CREATE, None, A), (UPDATE, C, B)], "offset 20: its row before the change is not the one that the record at"),
        ([(CREATE, None, A), (CREATE, None, A)], "offset 20: a create of a row that exists: the record at offset 10"),
        ([*END, (UPDATE, B, A)], "offset 30: a change of a row that does not exist: the record at offset 20"),
        ([(DELETE, A, None), (CREATE, None, A)], "offset 10: a delete without a tombstone after it"),
        ([(DELETE, A, None)], "offset 10: a delete without a tombstone after it"),
        ([(CREATE, None, A), (TOMBSTONE, None, None)], "offset 20: a tombstone, and the record at offset 10 before it"),
    ],
)
def test_a_record_that_does_not_follow_is_named(steps: list[Step], text: str) -> None:
    (found,) = wrong(steps)
    assert found.startswith(text)


def test_chain_begins_anew_after_ddl_or_a_seek() -> None:
    steps: list[Step] = [(CREATE, None, A), (CREATE, None, B), (UPDATE, C, A)]
    assert len(wrong(steps)) == 2
    assert wrong(steps, ChainChecker({0: (15, 25)}, frozenset({0}), frozenset())) == []
    assert len(wrong(steps, ChainChecker({0: (20,)}, frozenset({0}), frozenset()))) == 1


def test_where_records_are_left_out_or_gone_only_each_by_itself_counts() -> None:
    incomplete = ChainChecker({0: ()}, frozenset({0}), frozenset({0}))
    assert wrong([(CREATE, None, A), (UPDATE, C, B), (TOMBSTONE, None, None), (DELETE, A, None)], incomplete) == []


def test_an_event_id_in_two_partitions_is_there_twice() -> None:
    ids = [Entry(1, b"id", EVENT, partition, 5, 5, 0, b"") for partition in (0, 1)]
    found = CHECKER.check_chains(Entries.of(ids))
    assert found.counts == {(-1, "repeated"): 1}
    assert CHECKER.check_chains(Entries.of([ids[0], ids[0]])).counts == {}  # the reader of the partition counts it


def test_records_of_a_time_with_fewer_partitions_are_not_misplaced() -> None:
    """The topic had one partition until moment 50, then two."""
    grown = [ChainReport("t", 0, outside=3, last_outside=40), ChainReport("t", 1, first_outside={1: 60})]
    assert has_grown(grown)
    misplaced = [ChainReport("t", 0, outside=1, last_outside=40), ChainReport("t", 1, first_outside={1: 10})]
    assert not has_grown(misplaced)
