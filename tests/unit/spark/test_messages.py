"""Messages of tasks survive pickling and Arrow tables."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import pytest

from changefeed.binlog.search.scouting import Scouting
from changefeed.errors import ChangefeedError, SchemaError
from changefeed.ingest.scouting import ScoutedFile
from changefeed.kafka.commit_log.snapshots import ChunkRecord, TableView
from changefeed.model.manifest import TopicPartitionReceipt
from changefeed.model.slice_report import SliceReport
from changefeed.model.statement import Statement
from changefeed.model.transaction_event import RowEffect, TransactionEvent
from changefeed.model.window import Slice
from changefeed.snapshot.chunks import PublishedChunk, ReadChunk
from changefeed.spark.stages.messages import (
    DecodedSlice,
    Failure,
    PartitionCount,
    PublishedPartition,
    TaskMessage,
    message_batches,
    messages_of,
)

STATEMENT = Statement("bin.000001", 4, 5, "u:1", "shop", "TRUNCATE t")
REPORT = SliceReport(
    slice=1,
    size_bytes=2,
    events=3,
    rows={"shop.t": {"c": 4}},
    statements=(STATEMENT,),
    transaction_events=(TransactionEvent(RowEffect.ROLLBACK_TO, 4, 5, 6, "a"),),
    open_since=7,
    prepared=("x",),
    ended=("y",),
    unordered=("shop.t",),
)
COUNTS = (PartitionCount(1, "t", 0, 5, 600), PartitionCount(1, "u", 1, 6, 700))
VIEW = TableView("bin.000001:4", "CREATE DATABASE d", "CREATE TABLE t")


@pytest.mark.parametrize(
    "message",
    [
        Failure("SchemaError", "no table t", ("shop.t",)),
        DecodedSlice(REPORT, COUNTS),
        PublishedPartition(TopicPartitionReceipt("t", 0, 1, 2, 3, 4, 5, None, {"failover": 6})),
        ScoutedFile(3, Scouting((Slice(0, "bin.000001", 4, 5),), (STATEMENT,), 6)),
        ReadChunk(1, 2, COUNTS, 0.5, VIEW),
        ReadChunk(1, 0, (), 0.5),
        PublishedChunk(ChunkRecord(1, "d.t", 2, 3, VIEW)),
        PublishedChunk(ChunkRecord(1, "d.t", 2, 3)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_message_survives_json(message: TaskMessage) -> None:
    assert pickle.loads(pickle.dumps(message)) == message
    rows = [SimpleNamespace(**row) for batch in message_batches([message]) for row in batch.to_pylist()]
    assert messages_of(rows) == [message]


def test_failure_keeps_the_class_of_an_error() -> None:
    error = Failure.of(SchemaError("no table t")).error
    assert (type(error), str(error)) == (SchemaError, "no table t")
    assert type(Failure("OfANewerVersion", "x").error) is ChangefeedError
