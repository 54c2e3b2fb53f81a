"""Topic-partitions are divided among tasks of similar size."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from changefeed.ingest.window_run import assign_tasks

places = st.dictionaries(st.tuples(st.sampled_from("abc"), st.integers(0, 12)), st.integers(0, 10**9), max_size=30)


def loads(sizes: dict[tuple[str, int], int], assigned_tasks: dict[tuple[str, int], int]) -> dict[int, int]:
    found: dict[int, int] = {}
    for place, task in assigned_tasks.items():
        found[task] = found.get(task, 0) + sizes[place]
    return found


@given(places, st.integers(1, 8))
def test_each_topic_partition_has_one_existing_task(sizes: dict[tuple[str, int], int], tasks: int) -> None:
    assigned_tasks = assign_tasks(sizes, tasks)
    assert assigned_tasks.keys() == sizes.keys()
    assert all(0 <= task < tasks for task in assigned_tasks.values())


@given(places, st.integers(1, 8))
def test_no_task_has_more_than_a_fair_share_and_one_topic_partition(
    sizes: dict[tuple[str, int], int], tasks: int
) -> None:
    found = loads(sizes, assign_tasks(sizes, tasks))
    if sizes:
        assert max(found.values()) <= sum(sizes.values()) / tasks + max(sizes.values())


def test_a_large_topic_partition_has_a_task_for_itself() -> None:
    assigned_tasks = assign_tasks({("big", 0): 650, ("a", 0): 120, ("a", 1): 120, ("b", 0): 110}, 2)
    assert assigned_tasks == {("big", 0): 0, ("a", 0): 1, ("a", 1): 1, ("b", 0): 1}


def test_same_sizes_get_the_same_tasks_in_any_order() -> None:
    sizes = {(topic, partition): 10 for topic in "abc" for partition in range(3)}
    assert assign_tasks(sizes, 3) == assign_tasks(dict(reversed(sizes.items())), 3)
    assert sorted(loads(sizes, assign_tasks(sizes, 3)).values()) == [30, 30, 30]


def test_nothing_to_publish_needs_no_task() -> None:
    assert assign_tasks({}, 4) == {}
