"""Server ids have one owner: no two readers at the same time share an id."""

from __future__ import annotations

import re

import pytest
from any_topics import AnyTopics
from hypothesis import given
from hypothesis import strategies as st

from changefeed.errors import SettingsError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.window import Slice
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import KafkaSettings, SourceSettings, SparkSettings
from changefeed.source.mysql.server_ids import NO_SERVER_ID, ServerIds
from changefeed.spark.stages.decode_task import DecodeTask
from changefeed.spark.stages.decoding import divide_slices

counts = st.integers(1, 200)
sizes = st.lists(st.integers(1, 10**9), min_size=1, max_size=60)


def slices_of(sizes: list[int]) -> list[Slice]:
    return [Slice(number, "b.000001", 4, 4 + size) for number, size in enumerate(sizes)]


@given(counts, counts)
def test_tasks_of_a_window_have_ids_of_their_own_out_of_the_range(ids: int, slices: int) -> None:
    owner = ServerIds("shop", range(64_000, 64_000 + ids))
    given_out = [owner.of_task(task) for task in range(owner.tasks(slices))]
    assert len(set(given_out)) == len(given_out) == min(ids, slices)
    assert set(given_out) <= set(owner.ids)


@given(sizes, st.integers(1, 12))
def test_each_slice_is_read_once_by_as_many_tasks_as_there_are_ids(sizes: list[int], ids: int) -> None:
    slices = slices_of(sizes)
    tasks = divide_slices(slices, ServerIds("shop", range(1, 1 + ids)).tasks(len(slices)))
    assert len(tasks) == min(ids, len(slices))
    assert sorted(slice.number for task in tasks for slice in task) == list(range(len(slices)))
    loads = [sum(slice.size_bytes for slice in task) for task in tasks]
    assert max(loads) <= sum(loads) / len(tasks) + max(sizes)


def test_each_slice_is_a_task_without_server_ids() -> None:
    assert ServerIds("shop").tasks(500) == 500
    assert [task[0].size_bytes for task in divide_slices(slices_of([5, 70, 20]), 3)] == [70, 20, 5]


def job(identity: str, server_ids: str | None) -> DecodeTask:
    source = SourceSettings(connection="s", server_ids=server_ids)
    pipeline = Pipeline(name="shop", source=source, kafka=KafkaSettings(connection="k"))
    connections = PipelineConnections(pipeline, {}.__getitem__)
    return DecodeTask(
        connections=connections,
        server_uuid="uuid",
        topics=AnyTopics(),
        identity=identity,
        frozen_at_ms=0,
        start=BinlogCoordinates("b.000001", 4),
    )


def test_backfills_use_no_server_ids_of_windows() -> None:
    assert [job("shop", "7-8").server_ids.of_task(task) for task in (0, 1)] == [7, 8]
    for backfill in ("shop.backfill.a", "shop.backfill.b"):
        assert job(backfill, "7-8").server_ids.of_task(5) == NO_SERVER_ID
    assert job("shop", None).server_ids.of_task(5) == NO_SERVER_ID


@pytest.mark.parametrize(("ids", "cores", "too_few"), [(1, 1, False), (16, 16, False), (16, 17, True), (0, 500, False)])
def test_too_few_server_ids_for_the_cores_are_refused_with_a_remedy(ids: int, cores: int, too_few: bool) -> None:
    owner = ServerIds("shop", range(64_000, 64_000 + ids))
    if not too_few:
        owner.check(cores)
        return
    with pytest.raises(SettingsError, match=r"64000-64015, 16 ids, and Spark runs 17 tasks at once.*64000-64016"):
        owner.check(cores)


def test_pipelines_of_one_source_share_no_ids() -> None:
    shop = ServerIds("shop", range(64_000, 64_016))
    shop.check_disjoint(ServerIds("stock", range(64_016, 64_032)))
    shop.check_disjoint(ServerIds("stock"))
    ServerIds("stock").check_disjoint(shop)
    with pytest.raises(SettingsError, match=re.escape("'stock', which reads the same source, is 64010-64019")) as found:
        shop.check_disjoint(ServerIds("stock", range(64_010, 64_020)))
    assert "share 6 ids" in str(found.value)


@pytest.mark.parametrize(
    ("settings", "cores"),
    [
        ({"master": "local"}, 1),
        ({"master": "local[6]"}, 6),
        ({"master": "local[6,3]"}, 6),
        ({"master": "spark://host:7077"}, None),
        ({"master": "local[6]", "connect": "sc://host"}, None),
        ({"master": "yarn", "conf": {"spark.executor.instances": "3", "spark.executor.cores": "4"}}, 12),
        ({"conf": {"spark.cores.max": "10"}}, 10),
    ],
)
def test_number_of_parallel_tasks_follows_from_the_settings(settings: dict[str, object], cores: int | None) -> None:
    assert SparkSettings.model_validate(settings).cores == cores
