"""Keys that a kernel takes for equal are those that are equal one by one; none is left out."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from changefeed.verify.entries import BEFORE_ALL, Entries, Entry, Side
from changefeed.verify.key_comparison import Bracket, Judge, Judged, judged
from changefeed.verify.row_digests import row_digest, values_key

ROWS = [row_digest({"id": 1, "n": number}) for number in range(3)] + [row_digest({"id": 1, "n": 0, "more": 1})]


def one_by_one(judge: Judge, entries: list[Entry]) -> Judged:
    found = Judged()
    for verdict in judge.verdicts(sorted(entries)):
        found.take(verdict)
    return found


def told(found: Judged) -> tuple[object, ...]:
    kinds = Counter({kind: count for kind, count in found.kinds.items() if count})
    rows = {table: count for table, count in found.rows.items() if count}
    return kinds, rows, sorted((v.table, v.key, v.kind, v.rows, v.differing) for v in found.verdicts), found.differing


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
@pytest.mark.parametrize("emptied", [{}, {(0, 0): [(1, 60)]}])
def test_the_kernel_and_the_judge_say_the_same(
    sampled: bool, emptied: dict[tuple[int, int], list[tuple[int, int]]]
) -> None:
    chance, counted = random.Random(7), {1}
    brackets = {0: Bracket(100, 200), 1: Bracket(150, 260)}
    of_tables = {table: Bracket(100, 260) for table in range(3)}
    judge = Judge(brackets, of_tables, frozenset(counted), emptied, sampled)
    equal = 0
    for _ in range(150):
        entries = random_entries(chance, counted)
        chance.shuffle(entries)
        wanted = one_by_one(judge, entries)
        found = Judged()
        for _, bucket in Entries.of(entries).buckets(3):
            found.add(judged(judge, Entries.from_bytes(bytearray(bucket.to_bytes()))))
        assert told(found) == told(wanted)
        equal += wanted.kinds[0, "equal"] + wanted.kinds[1, "equal"]
    assert equal > 100


def test_keys_whose_checksums_are_the_same_are_told_apart_all_the_same() -> None:
    judge = Judge({0: Bracket(100, 200)}, {0: Bracket(100, 200)}, frozenset(), {})
    entries = Entries.of(
        [
            Entry(0, b"a", Side.SERVER, 0, 1, 0, 1, ROWS[0]),
            Entry(0, b"a", Side.TOPIC, 0, 1, 5, 1, ROWS[0]),
            Entry(0, b"b", Side.TOPIC, 0, 0, 5, 1, ROWS[0]),
        ]
    )
    entries.hashes[:] = 42
    found = judged(judge, entries)
    assert dict(found.kinds) == {(0, "equal"): 1, (0, "extra"): 1}
    assert [verdict.key for verdict in found.verdicts] == [b"b"]


def test_no_entries_are_no_verdicts() -> None:
    assert told(judged(Judge({}, {}, frozenset(), {}), Entries.of([]))) == told(Judged())
    assert len(Entries.of([])) == 0
