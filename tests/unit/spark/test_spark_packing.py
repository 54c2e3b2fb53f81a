"""Topic-partitions are shared out so that no task waits for a straggler."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from changefeed.ingest.window_run import pack

places = st.dictionaries(st.tuples(st.sampled_from("abc"), st.integers(0, 12)), st.integers(0, 10**9), max_size=30)


def loads(sizes: dict[tuple[str, int], int], packed: dict[tuple[str, int], int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for place, task in packed.items():
        found[task] = found.get(task, 0) + sizes[place]
    return found


@given(places, st.integers(1, 8))
def test_each_topic_partition_has_one_task_of_those_there_are(sizes: dict[tuple[str, int], int], tasks: int) -> None:
    packed = pack(sizes, tasks)
    assert packed.keys() == sizes.keys()
    assert all(0 <= task < tasks for task in packed.values())


@given(places, st.integers(1, 8))
def test_no_task_has_more_than_a_fair_share_and_one_topic_partition(
    sizes: dict[tuple[str, int], int], tasks: int
) -> None:
    found = loads(sizes, pack(sizes, tasks))
    if sizes:
        assert max(found.values()) <= sum(sizes.values()) / tasks + max(sizes.values())


def test_a_large_topic_partition_has_a_task_for_itself() -> None:
    packed = pack({("big", 0): 650, ("a", 0): 120, ("a", 1): 120, ("b", 0): 110}, 2)
    assert packed == {("big", 0): 0, ("a", 0): 1, ("a", 1): 1, ("b", 0): 1}


def test_the_same_sizes_are_shared_out_the_same_whatever_their_order() -> None:
    sizes = {(topic, partition): 10 for topic in "abc" for partition in range(3)}
    assert pack(sizes, 3) == pack(dict(reversed(sizes.items())), 3)
    assert sorted(loads(sizes, pack(sizes, 3)).values()) == [30, 30, 30]


def test_nothing_to_publish_needs_no_task() -> None:
    assert pack({}, 4) == {}
