"""Kafka's own readers read the messages of a block from the encoder's batches."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from encode_batches import encode_batches, messages_of
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.memory_records import MemoryRecords

from changefeed.errors import SettingsError
from changefeed.model.publish_settings import PublishSettings
from changefeed.records.batch import Batch
from changefeed.records.batch_limits import BatchLimits
from changefeed.records.block import Message, MessageBlock, Step, pack, sequence_of
from changefeed.records.compression import CODECS
from changefeed.records.encoder import BatchEncoder
from changefeed.records.record_batch import headers_of

part = st.binary(max_size=200)
message = st.builds(
    Message,
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**64 - 1),
    st.none() | part,
    st.none() | part,
    part,
    part,
    st.lists(st.tuples(st.sampled_from(["a", "binlog", "ä" * 40]), part), max_size=3).map(tuple),
    st.integers(1, 1_700_000_000),
)


def block(messages: list[Message]) -> MessageBlock:
    return MessageBlock("shop.orders", 1, "bin.000007", 3, 0, pack(messages))


def rows(count: int, **changes: object) -> list[Message]:
    return [
        replace(
            Message(4 + row // 10, sequence_of(row % 10, Step.CHANGE), b'{"id":%d}' % row, b'{"row":%d}' % row * 9,
                    b"uuid/bin.000007:%d" % row, b"uuid:%d" % (row // 10), (), 1_700_000_000 + row),
            **changes,
        )
        for row in range(count)
    ]  # fmt: skip


@given(st.lists(message, min_size=1, max_size=30), st.sampled_from(sorted(CODECS)), st.integers(100, 5_000))
def test_what_is_encoded_is_read_back(messages: list[Message], compression: str, largest_bytes: int) -> None:
    batches = encode_batches([block(messages)], PublishSettings(compression=compression), largest_bytes)
    assert messages_of(batches) == messages
    assert [batch.number for batch in batches] == list(range(len(batches)))
    for batch in batches:
        assert len(batch.records) <= largest_bytes or batch.messages == 1
        assert Batch.of(batch.topic, batch.partition, batch.origin, 3, batch.number, batch.payload()) == batch


@given(st.lists(message, min_size=1, max_size=30), st.sampled_from(sorted(CODECS)))
def test_kafka_python_reads_the_same_records(messages: list[Message], compression: str) -> None:
    records = [
        record
        for batch in encode_batches([block(messages)], PublishSettings(compression=compression))
        for of_batch in MemoryRecords(batch.records)
        for record in of_batch
    ]
    assert [
        (record.timestamp, record.key, record.value, [(name, bytes(value)) for name, value in record.headers])
        for record in records
    ] == [(one.seconds * 1000, one.key, one.value, headers_of(one)) for one in messages]


@given(st.lists(message, min_size=1, max_size=30))
def test_a_batch_knows_what_publishing_counts(messages: list[Message]) -> None:
    (batch,) = encode_batches([block(messages)])
    assert batch.messages == len(messages)
    assert batch.value_bytes == sum(len(one.value or b"") for one in messages)
    assert batch.largest_bytes == max(one.size_bytes for one in messages)
    assert list(zip(batch.positions, batch.sequences, strict=True)) == [
        (one.position, one.sequence) for one in messages
    ]


def test_the_messages_of_the_last_transaction_are_counted() -> None:
    (batch,) = encode_batches([block(rows(24))])
    assert (batch.gtid, batch.gtid_messages) == (b"uuid:2", 4)
    (batch,) = encode_batches([block(rows(7))])
    assert (batch.gtid, batch.gtid_messages) == (b"uuid:0", 7)


def test_a_batch_has_no_more_messages_than_a_transaction() -> None:
    batches = encode_batches([block(rows(10))], PublishSettings(transaction_rows=4))
    assert [batch.messages for batch in batches] == [4, 4, 2]


def test_incompressible_data_is_stored_uncompressed() -> None:
    (batch,) = encode_batches([block([Message(4, 0, None, b"x", b"i", b"")])], PublishSettings(compression="gzip"))
    assert batch.records[22] & 7 == 0


@pytest.mark.parametrize(
    ("timestamps", "oldest", "seconds", "own"),
    [
        ("event", 0, 1_700_000_000, True),
        ("event", 1_700_000_001, 1_700_000_000, False),  # Kafka would remove it, or refuse it
        ("event", 0, 2**32 - 1, False),  # SET TIMESTAMP, or a clock that is ahead
        ("event", 0, 0, False),
        ("publish", 0, 1_700_000_000, False),
    ],
)
def test_a_record_s_time_is_its_event_s_where_the_topic_takes_it(
    timestamps: str, oldest: int, seconds: int, own: bool
) -> None:
    settings = PublishSettings(timestamps=timestamps)  # type: ignore[arg-type]
    encoder = BatchEncoder(settings, lambda _topic: BatchLimits(1_000_000, oldest))
    before = time.time()
    (batch,) = encoder.batches(block(rows(1, seconds=seconds)))
    ((record,),) = MemoryRecords(batch.records)
    if own:
        assert record.timestamp == seconds * 1000
    else:
        assert int(before * 1000) <= record.timestamp <= time.time() * 1000


def test_a_topic_s_own_compression_goes_before_the_pipeline_s() -> None:
    settings = PublishSettings(compression="lz4", compression_level=16)
    encoder = BatchEncoder(settings, lambda _topic: BatchLimits(20_000, 0, "gzip"))
    batches = list(encoder.batches(block(rows(3000))))
    assert {batch.records[22] & 7 for batch in batches} == {CODECS["gzip"].number}
    assert messages_of(batches) == rows(3000)


def test_levels_that_a_codec_does_not_have_are_refused() -> None:
    with pytest.raises(SettingsError, match="compression_level is 23 and compression is 'zstd': expected -64 to 22"):
        PublishSettings(compression="zstd", compression_level=23)
    with pytest.raises(SettingsError, match="'none': it has no levels"):
        PublishSettings(compression="none", compression_level=1)


@pytest.mark.parametrize(("compression", "level"), [("lz4", -5), ("lz4", 9), ("zstd", 19), ("gzip", 1)])
def test_a_level_is_the_codec_s(compression: str, level: int) -> None:
    batches = encode_batches([block(rows(50))], PublishSettings(compression=compression, compression_level=level))
    assert messages_of(batches) == rows(50)
