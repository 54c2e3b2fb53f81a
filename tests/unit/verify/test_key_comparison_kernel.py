"""The kernel and the comparator find the same keys equal, and all of them."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from changefeed.verify.entries import BEFORE_ALL, Entries, Entry, Side
from changefeed.verify.key_comparison import KeyComparator, KeyResults, ReadInterval, compare_keys
from changefeed.verify.row_digests import row_digest, values_key

ROWS = [row_digest({"id": 1, "n": number}) for number in range(3)] + [row_digest({"id": 1, "n": 0, "more": 1})]


def one_by_one(comparator: KeyComparator, entries: list[Entry]) -> KeyResults:
    found = KeyResults()
    for result in comparator.results(sorted(entries)):
        found.take(result)
    return found


def summary_of(found: KeyResults) -> tuple[object, ...]:
    kinds = Counter({kind: count for kind, count in found.kinds.items() if count})
    rows = {table: count for table, count in found.rows.items() if count}
    return kinds, rows, sorted((v.table, v.key, v.kind, v.rows, v.differing) for v in found.results), found.differing


def random_entries(chance: random.Random, counted: set[int]) -> list[Entry]:
    entries = []
    for table in range(4):
        for number in range(12):
            key, places = b"%d" % number, iter(range(100))
            if chance.random() < 0.8 and table != 3:
                for _ in range(chance.choice([1, 1, 2]) if table in counted else 1):
                    row = chance.choice(ROWS)
                    name = values_key(row) + key if table in counted else key
                    entries.append(Entry(table, name, Side.SERVER, chance.randrange(2), len(entries), 0, 1, row))
            moments = sorted(
                chance.choice([BEFORE_ALL, 5, 50, 99, 100, 150, 250, 300]) for _ in range(chance.randrange(4))
            )
            for moment in moments:
                row, part = chance.choice(ROWS[:2]), chance.choice([0, 0, 0, 0, 0, 1])
                weight = chance.choice([-1, 1, 1]) if table in counted else chance.choice([0, 1, 1, 1])
                name = values_key(row) + key if table in counted else key
                digest = row if weight else b""
                entries.append(Entry(table, name, Side.TOPIC, part, next(places), moment, weight, digest))
    return entries


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("truncates", [{}, {(0, 0): [(1, 60)]}])
def test_kernel_and_comparator_have_the_same_results(
    sampled: bool, truncates: dict[tuple[int, int], list[tuple[int, int]]]
) -> None:
    chance, counted = random.Random(7), {1}
    chunk_intervals = {0: ReadInterval(100, 200), 1: ReadInterval(150, 260)}
    table_intervals = {table: ReadInterval(100, 260) for table in range(3)}
    comparator = KeyComparator(chunk_intervals, table_intervals, frozenset(counted), truncates, sampled)
    equal = 0
    for _ in range(150):
        entries = random_entries(chance, counted)
        chance.shuffle(entries)
        expected = one_by_one(comparator, entries)
        found = KeyResults()
        for _, bucket in Entries.of(entries).buckets(3):
            found.add(compare_keys(comparator, Entries.from_bytes(bytearray(bucket.to_bytes()))))
        assert summary_of(found) == summary_of(expected)
        equal += expected.kinds[0, "equal"] + expected.kinds[1, "equal"]
    assert equal > 100


def test_keys_with_the_same_checksum_are_distinguished() -> None:
    comparator = KeyComparator({0: ReadInterval(100, 200)}, {0: ReadInterval(100, 200)}, frozenset(), {})
    entries = Entries.of(
        [
            Entry(0, b"a", Side.SERVER, 0, 1, 0, 1, ROWS[0]),
            Entry(0, b"a", Side.TOPIC, 0, 1, 5, 1, ROWS[0]),
            Entry(0, b"b", Side.TOPIC, 0, 0, 5, 1, ROWS[0]),
        ]
    )
    entries.hashes[:] = 42
    found = compare_keys(comparator, entries)
    assert dict(found.kinds) == {(0, "equal"): 1, (0, "extra"): 1}
    assert [result.key for result in found.results] == [b"b"]


def test_no_entries_have_no_results() -> None:
    assert summary_of(compare_keys(KeyComparator({}, {}, frozenset(), {}), Entries.of([]))) == summary_of(KeyResults())
    assert len(Entries.of([])) == 0
