"""A worker refuses tasks of a driver with another version of changefeed before it does anything."""

from __future__ import annotations

import pickle
from dataclasses import replace

import pytest
from any_topics import AnyTopics

from changefeed import __version__
from changefeed.errors import SettingsError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import KafkaSettings, SourceSettings
from changefeed.spark.stages.decode import decode_slices
from changefeed.spark.stages.decode_task import DecodeTask
from changefeed.spark.stages.messages import Failure
from changefeed.spark.stages.publish import compare_batches, decode_and_publish, publish_batches
from changefeed.spark.stages.publish_task import WindowPublishTask
from changefeed.verify.job import VerifyJob
from changefeed.verify.stages import read_chunks, read_offset_ranges
from changefeed.verify.tables import Tables

AT = BinlogCoordinates("b.000001", 4)
PIPELINE = Pipeline(name="shop", source=SourceSettings(connection="s"), kafka=KafkaSettings(connection="k"))
URIS = {"s": "mysql://u:p@127.0.0.1:1", "k": "kafka://127.0.0.1:1"}
CONNECTIONS = PipelineConnections(PIPELINE, URIS.__getitem__)
DECODE = DecodeTask(
    connections=CONNECTIONS, server_uuid="uuid", topics=AnyTopics(), identity="shop", frozen_at_ms=0, start=AT
)
PUBLISH = WindowPublishTask(
    connections=CONNECTIONS,
    topics=AnyTopics(),
    identity="shop",
    attempt="1",
    window=Window("shop", 1, "uuid", AT, AT, "", "", 0),
)


def test_a_worker_of_another_version_runs_no_stage() -> None:
    decode, publish = replace(DECODE, version="0.0.1"), replace(PUBLISH, version="0.0.1")
    stages = (
        decode_slices(decode, [], lambda _: None),
        decode_and_publish(decode, PUBLISH, []),
        publish_batches(publish, 0, []),
        compare_batches(publish, 0, []),
    )
    for stage in stages:
        (failure,) = stage
        assert isinstance(failure, Failure)
        assert failure.name == "SettingsError"
        assert f"expected changefeed 0.0.1 on Spark's workers, as on the driver, found {__version__}" in failure.message


def test_a_worker_of_another_version_compares_nothing() -> None:
    job = VerifyJob(CONNECTIONS, Tables((), {}), CONNECTIONS.mysql, "uuid", "uuid", "", version="0.0.1")
    for stage in (read_chunks(job, []), read_offset_ranges(job, [])):
        with pytest.raises(SettingsError, match=r"expected changefeed 0\.0\.1 on Spark's workers"):
            next(stage)


def test_a_task_takes_the_version_of_its_driver_along() -> None:
    assert pickle.loads(pickle.dumps(replace(DECODE, version="0.0.1"))).version == "0.0.1"
    assert list(decode_slices(pickle.loads(pickle.dumps(DECODE)), [], lambda _: None)) == []
