"""Blocks into Kafka exactly once, in order, whoever dies or comes back."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from encode_batches import encode_batches
from integration.kafka_pipeline import SERVER, Pipeline, batches_of, committed, ids, ids_of, message
from integration.kafka_wire import rows_of

from changefeed.errors import AccountingError, BadRecordError, FencedError, TopicError
from changefeed.kafka.commit_log.snapshots import ChunkRecord
from changefeed.kafka.connection import KafkaConnection
from changefeed.kafka.fencing import transactional_id
from changefeed.kafka.publisher import Publisher, Unit
from changefeed.kafka.topics import TopicLimits, TopicSettings, ensure_topics
from changefeed.model.publish_settings import PublishSettings
from changefeed.records.batch import Batch
from changefeed.records.block import Message, MessageBlock, Step, pack, sequence_of
from changefeed.records.compression import CODECS
from changefeed.records.encoder import BatchEncoder
from devstack.kafka import KafkaBroker

_ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def pipeline(kafka_broker: KafkaBroker, unique_name: str) -> Pipeline:
    return Pipeline(KafkaConnection(kafka_broker.bootstrap), unique_name)


def _seen(pipeline: Pipeline, isolation: str = "read_committed") -> list[str]:
    return ids(committed(pipeline.connection.bootstrap, pipeline.topic, isolation))


def test_order_within_a_topic_partition_is_that_of_the_blocks(pipeline: Pipeline) -> None:
    batches = batches_of(pipeline.topic, 0, range(1000)) + batches_of(pipeline.topic, 1, range(1000, 1500))
    with pipeline.publisher(settings=PublishSettings(transaction_rows=333, compression="zstd")) as publisher:
        receipts = publisher.publish(batches)
    records = committed(pipeline.connection.bootstrap, pipeline.topic)
    assert ids(records) == ids_of(range(1500))
    assert [record.partition for record in records] == [0] * 1000 + [1] * 500
    assert [(each.partition, each.messages, each.already_there) for each in receipts] == [(0, 1000, 0), (1, 500, 0)]
    for receipt in receipts:
        mine = [record for record in records if record.partition == receipt.partition]
        assert (receipt.first_offset, receipt.last_offset) == (mine[0].offset, mine[-1].offset)
        assert receipt.value_bytes == sum(len(record.value) for record in mine)
    assert receipts[0].transactions == 4


@pytest.mark.extended
def test_nulls_empty_values_and_gtids_arrive_as_they_were(pipeline: Pipeline) -> None:
    messages = [
        Message(4, sequence_of(0, Step.CHANGE), b"k", None, b"id-0", b"u:1"),
        Message(4, sequence_of(0, Step.TOMBSTONE), None, b"v", b"id-1", b""),
        Message(4, sequence_of(1, Step.CHANGE), b"", b"", b"id-2", "u:zwölf:1".encode()),
        Message(9, sequence_of(0, Step.CHANGE), None, None, b"id-3", b""),
    ]
    with pipeline.publisher() as publisher:
        publisher.publish(encode_batches([MessageBlock(pipeline.topic, 0, "bin.000007", 0, 0, pack(messages))]))
    records = committed(pipeline.connection.bootstrap, pipeline.topic)
    assert [(record.key, record.value) for record in records] == [(each.key, each.value) for each in messages]
    assert [dict(record.headers).get("changefeed.gtid", b"") for record in records] == [each.gtid for each in messages]


@pytest.mark.extended
@pytest.mark.parametrize("compression", sorted(CODECS))
def test_the_broker_and_librdkafka_read_each_compression(pipeline: Pipeline, compression: str) -> None:
    settings = PublishSettings(compression=compression)
    rows = [replace(message(row, value=b"row %d " % row * 40), key=b"%d" % row) for row in range(3000)]
    batches = encode_batches(
        [MessageBlock(pipeline.topic, 0, "bin.000007", 0, 0, pack(rows))], settings, largest_bytes=20_000
    )
    with pipeline.publisher(settings=settings) as publisher:
        publisher.publish(batches)
    assert rows_of(pipeline.connection.bootstrap, pipeline.topic)[0] == list(range(3000))


@pytest.mark.extended
@pytest.mark.parametrize("compression", ["uncompressed", "gzip"])
def test_a_topic_that_the_broker_compresses_anew_gets_batches_that_fit_then(
    kafka_broker: KafkaBroker, unique_name: str, compression: str
) -> None:
    configs = {"compression.type": compression, "max.message.bytes": "100000"}
    pipeline = Pipeline(KafkaConnection(kafka_broker.bootstrap), unique_name, configs=configs)
    limits = pipeline.limits[pipeline.topic].for_batches()
    rows = [message(row, value=b"row %d " % row * 100) for row in range(2000)]
    block = MessageBlock(pipeline.topic, 0, "bin.000007", 0, 0, pack(rows))
    batches = list(BatchEncoder(PublishSettings(compression="lz4"), lambda _topic: limits).batches(block))
    with pipeline.publisher() as publisher:
        publisher.publish(batches)
    assert _seen(pipeline) == ids_of(range(2000))


def test_a_second_publish_of_the_same_blocks_adds_nothing(pipeline: Pipeline) -> None:
    batches = batches_of(pipeline.topic, 0, range(500), gtid="u:1")
    with pipeline.publisher() as publisher:
        (first,) = publisher.publish(batches)
    with pipeline.publisher() as publisher:
        (second,) = publisher.publish(batches)
    assert (second.messages, second.already_there, second.transactions) == (0, 500, 0)
    assert second.window == first.window
    assert first.window is not None
    assert (first.window.messages, first.window.gtid) == (500, "u:1")
    assert _seen(pipeline) == ids_of(range(500))


@pytest.mark.extended
def test_messages_after_progress_only(pipeline: Pipeline) -> None:
    with pipeline.publisher() as publisher:
        publisher.publish(batches_of(pipeline.topic, 0, range(155)))
    with pipeline.publisher() as publisher:
        (receipt,) = publisher.publish(batches_of(pipeline.topic, 0, range(400)))
    assert (receipt.already_there, receipt.messages) == (155, 245)
    assert _seen(pipeline) == ids_of(range(400))


@pytest.mark.extended
@pytest.mark.parametrize("begin", [50, 160])
def test_messages_before_the_progress_are_compared_before_they_are_skipped(pipeline: Pipeline, begin: int) -> None:
    with pipeline.publisher() as publisher:
        publisher.publish(batches_of(pipeline.topic, 0, range(155)))
    with (
        pytest.raises(AccountingError, match="expected the 155 messages of window 1"),
        pipeline.publisher() as publisher,
    ):
        publisher.publish(batches_of(pipeline.topic, 0, range(begin, 400)))
    with pytest.raises(AccountingError, match="found that 50 were decoded now"), pipeline.publisher() as publisher:
        publisher.publish(batches_of(pipeline.topic, 0, range(50)))
    assert _seen(pipeline) == ids_of(range(155))


@pytest.mark.extended
def test_other_messages_of_the_same_count_are_not_skipped(pipeline: Pipeline) -> None:
    """A key's other columns send as many messages to a partition, by chance, and others."""
    given, others = range(0, 200, 2), [1, *range(2, 200, 2)]
    with pipeline.publisher() as publisher:
        publisher.publish(batches_of(pipeline.topic, 0, given))
    with (
        pytest.raises(AccountingError, match="found that 100 others were decoded now"),
        pipeline.publisher() as publisher,
    ):
        publisher.publish(batches_of(pipeline.topic, 0, [*others, 300]))
    with pipeline.publisher() as publisher:
        (receipt,) = publisher.publish(batches_of(pipeline.topic, 0, [*given, 300], per_batch=7))
    assert (receipt.already_there, receipt.messages) == (100, 1)
    assert _seen(pipeline) == ids_of([*given, 300])


@pytest.mark.extended
def test_progress_of_an_earlier_window_is_not_asked(pipeline: Pipeline) -> None:
    """After a seek back whose progress was not forgotten, the new window's messages are new."""
    with pipeline.publisher() as publisher:
        publisher.publish(batches_of(pipeline.topic, 0, range(100)))
    with pipeline.publisher(window=3) as publisher:
        (receipt,) = publisher.publish(batches_of(pipeline.topic, 0, range(50)))
    assert (receipt.already_there, receipt.messages) == (0, 50)


@pytest.mark.extended
def test_a_later_binlog_file_comes_after_by_its_number(pipeline: Pipeline) -> None:
    with pipeline.publisher() as publisher:
        publisher.publish(batches_of(pipeline.topic, 0, range(100, 120), file="bin.999999"))
    with pipeline.publisher(window=2) as publisher:
        (receipt,) = publisher.publish(batches_of(pipeline.topic, 0, range(10), file="bin.1000000"))
    assert receipt.messages == 10
    assert _seen(pipeline) == ids_of(range(100, 120), "bin.999999") + ids_of(range(10), "bin.1000000")


@pytest.mark.extended
def test_units_are_published_once_and_completely_beside_a_window(pipeline: Pipeline) -> None:
    def chunks(*numbers: int) -> Iterator[Unit[ChunkRecord]]:
        for number in numbers:
            batches = batches_of(pipeline.topic, 0, range(150), file=f"shop.orders#{number}")
            yield Unit(batches, ChunkRecord(number, "shop.orders", 150, 0), begins_transaction=number == 11)

    def broken(*numbers: int) -> Iterator[Unit[ChunkRecord]]:
        yield from chunks(*numbers)
        raise RuntimeError

    def snapshot(rows: int) -> Publisher:
        settings = replace(pipeline.settings, transaction_rows=rows)
        return pipeline.publisher(units_of=f"{pipeline.name}.s", settings=settings)

    with pipeline.publisher() as publisher:
        publisher.publish(batches_of(pipeline.topic, 0, range(10)))
    with snapshot(rows=100) as publisher, pytest.raises(RuntimeError):
        publisher.publish_units(broken(9, 10))  # the transaction of 10 is open
    expected = ids_of(range(10)) + ids_of(range(150), "shop.orders#9")
    assert _seen(pipeline) == expected
    with snapshot(rows=10_000) as publisher:
        assert [record.number for record in publisher.publish_units(chunks(9, 10, 11))] == [9, 10, 11]
    expected += ids_of(range(150), "shop.orders#10") + ids_of(range(150), "shop.orders#11")
    assert _seen(pipeline) == expected
    records = committed(pipeline.connection.bootstrap, pipeline.topic)
    assert records[310].offset - records[309].offset == 1 + 1  # 11 has a transaction of its own: a marker is before it
    with pipeline.publisher() as publisher:
        (receipt,) = publisher.publish(batches_of(pipeline.topic, 0, range(20)))
    assert (receipt.already_there, receipt.messages) == (10, 10)
    assert _seen(pipeline) == expected + ids_of(range(10, 20))


@pytest.mark.extended
def test_accounts_of_a_window_add_up_over_its_attempts(pipeline: Pipeline) -> None:
    with pipeline.publisher(window=7) as publisher:
        publisher.publish(batches_of(pipeline.topic, 0, range(150)))
    with pipeline.publisher(window=7) as publisher:
        (receipt,) = publisher.publish(batches_of(pipeline.topic, 0, range(400)))
    records = committed(pipeline.connection.bootstrap, pipeline.topic)
    progress = pipeline.log.read().progress[pipeline.topic, 0]
    assert receipt.window == progress
    assert (progress.window, progress.messages) == (7, 400)
    assert (progress.first_offset, progress.last_offset) == (records[0].offset, records[-1].offset)
    assert progress.value_bytes == sum(len(record.value) for record in records)


def test_aborted_transaction_is_invisible_and_repeated_completely(pipeline: Pipeline) -> None:
    def breaking() -> Iterator[Batch]:
        yield from batches_of(pipeline.topic, 0, range(300))
        raise OSError("the decoder broke")

    settings = PublishSettings(transaction_rows=200, compression="zstd")
    with pytest.raises(OSError, match="decoder"), pipeline.publisher(settings=settings) as publisher:
        publisher.publish(breaking())
    assert _seen(pipeline) == ids_of(range(200))
    with pipeline.publisher(settings=settings) as publisher:
        (receipt,) = publisher.publish(batches_of(pipeline.topic, 0, range(300)))
    assert (receipt.already_there, receipt.messages) == (200, 100)
    assert _seen(pipeline) == ids_of(range(300))


@pytest.mark.extended
def test_numbers_of_messages_have_no_gap_after_an_attempt_that_died(pipeline: Pipeline) -> None:
    settings = PublishSettings(transaction_rows=100, compression="zstd")
    stages: list[str] = []

    def die(stage: str) -> None:
        stages.append(stage)
        if stages.count(stage) == 3 and stage == "in_open_transaction":
            raise BadRecordError("it dies here")

    def numbering(value: bytes, number: int) -> bytes:
        return b"%b#%d" % (value, number)

    batches = batches_of(pipeline.topic, 0, range(450), per_batch=70)
    dying = pipeline.publisher(settings=settings, on_stage=die, numbering=numbering)
    with dying as publisher, pytest.raises(BadRecordError):
        publisher.publish(batches)
    for window, rows in ((1, range(450)), (2, range(450, 500))):
        with pipeline.publisher(window=window, settings=settings, numbering=numbering) as publisher:
            publisher.publish(batches_of(pipeline.topic, 0, rows, per_batch=70))
    records = committed(pipeline.connection.bootstrap, pipeline.topic)
    assert ids(records) == ids_of(range(500))
    assert [record.value for record in records] == [b'{"row":%d}#%d' % (row, row) for row in range(500)]


def test_nothing_to_publish_opens_no_transaction(pipeline: Pipeline) -> None:
    with pipeline.publisher() as publisher:
        assert publisher.publish([]) == []
    assert pipeline.log.read().progress == {}


def test_a_zombie_is_fenced(pipeline: Pipeline) -> None:
    zombie_pauses, go_on = threading.Event(), threading.Event()
    caught: list[BaseException] = []

    def pause(stage: str) -> None:
        if stage == "in_open_transaction":
            zombie_pauses.set()
            go_on.wait(240)

    def zombie() -> None:
        try:
            with pipeline.publisher(on_stage=pause) as publisher:
                publisher.publish(batches_of(pipeline.topic, 0, range(300)))
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=zombie)
    thread.start()
    assert zombie_pauses.wait(240)
    attempt = pipeline.fence()
    with pipeline.publisher(attempt=attempt) as publisher:
        (receipt,) = publisher.publish(batches_of(pipeline.topic, 0, range(300)))
    go_on.set()
    thread.join(240)
    assert receipt.messages == 300
    assert [type(error) for error in caught] == [FencedError]
    assert _seen(pipeline) == ids_of(range(300))


@pytest.mark.extended
def test_a_task_of_an_older_attempt_that_begins_late_publishes_nothing(pipeline: Pipeline) -> None:
    older = pipeline.fence()
    newer = pipeline.fence()
    with pytest.raises(FencedError, match=newer), pipeline.publisher(task=5, attempt=older) as publisher:
        publisher.publish(batches_of(pipeline.topic, 0, range(10)))
    assert _seen(pipeline, "read_uncommitted") == []


@pytest.mark.extended
def test_fencing_reaches_ids_of_a_wider_attempt(pipeline: Pipeline) -> None:
    """The earlier attempt had eight tasks, this one has one: the zombie of task 7 is stopped all the same."""
    with pipeline.publisher(task=7) as zombie:
        pipeline.fence(tasks=1)
        with pytest.raises(FencedError):
            zombie.publish(batches_of(pipeline.topic, 0, range(10)))
    assert _seen(pipeline) == []


@pytest.mark.extended
def test_fencing_one_pipeline_leaves_another_alone(pipeline: Pipeline, kafka_broker: KafkaBroker) -> None:
    other = Pipeline(KafkaConnection(kafka_broker.bootstrap), f"{pipeline.name}.1")
    with other.publisher() as publisher:
        pipeline.fence(tasks=2)
        publisher.publish(batches_of(other.topic, 0, range(10)))
    assert _seen(other) == ids_of(range(10))
    assert transactional_id("a.1", 0) != transactional_id("a", 10)


@pytest.mark.extended
def test_oversized_record_names_table_key_and_coordinates(kafka_broker: KafkaBroker, unique_name: str) -> None:
    pipeline = Pipeline(KafkaConnection(kafka_broker.bootstrap), unique_name, configs={"max.message.bytes": "3000"})
    block = MessageBlock(
        pipeline.topic, 0, "bin.000007", 0, 0, pack([message(1), message(2, value=b"x" * 4000), message(3)])
    )
    with pytest.raises(BadRecordError) as refused, pipeline.publisher() as publisher:
        publisher.publish(encode_batches([block]))
    said = str(refused.value)
    for words in ("'shop.orders'", '{"id":2}', f"{SERVER}/bin.000007:4/2", "3000", pipeline.topic, "dead_letter"):
        assert words in said
    assert _seen(pipeline) == []


@pytest.mark.extended
def test_many_records_that_fit_never_make_a_batch_that_does_not(kafka_broker: KafkaBroker, unique_name: str) -> None:
    """max.message.bytes is for a batch, and each record here is just below it."""
    pipeline = Pipeline(KafkaConnection(kafka_broker.bootstrap), unique_name, configs={"max.message.bytes": "3000"})
    messages = [message(row, value=os.urandom(2700)) for row in range(200)]
    small = [message(row) for row in range(200, 3000)]
    blocks = [
        MessageBlock(pipeline.topic, 0, "bin.000007", 0, at, pack(part)) for at, part in enumerate((messages, small))
    ]
    with pipeline.publisher(settings=PublishSettings(compression="none")) as publisher:
        publisher.publish(encode_batches(blocks))
    assert _seen(pipeline) == ids_of(range(3000))


def test_a_bad_record_goes_to_the_dead_letters_in_the_same_transaction(
    kafka_broker: KafkaBroker, unique_name: str
) -> None:
    pipeline = Pipeline(KafkaConnection(kafka_broker.bootstrap), unique_name, configs={"max.message.bytes": "3000"})
    rows = [message(1), message(2, value=b"x" * 4000), message(3), message(4, value=b"y" * 2_000_000)]
    block = MessageBlock(pipeline.topic, 0, "bin.000007", 0, 0, pack(rows))
    for expected in (2, 0):  # the second time nothing is left to do
        with pipeline.publisher(dead_letter=pipeline.dead_letters) as publisher:
            (receipt,) = publisher.publish(encode_batches([block]))
        assert (receipt.messages, receipt.dead_letters, receipt.already_there) == (expected, expected, 4 - 2 * expected)
    assert receipt.window is not None
    assert (receipt.window.messages, receipt.window.dead_letters) == (2, 2)
    assert _seen(pipeline) == [message(1).event_id.decode(), message(3).event_id.decode()]
    fits, too_long = committed(pipeline.connection.bootstrap, pipeline.dead_letters)
    headers = dict(fits.headers)
    assert (fits.key, fits.value) == (b'{"id":2}', b"x" * 4000)
    assert headers["changefeed.topic"] == pipeline.topic.encode()
    assert headers["changefeed.partition"] == b"0"
    assert b"max.message.bytes 3000" in headers["changefeed.reason"]
    assert headers["changefeed.id"] == message(2).event_id
    assert (too_long.value, dict(too_long.headers)["changefeed.value_bytes"]) == (None, b"2000000")


@pytest.mark.extended
def test_a_topic_or_partition_that_the_run_did_not_make_sure_of_is_refused(pipeline: Pipeline) -> None:
    with pipeline.publisher() as publisher:
        with pytest.raises(TopicError, match="no\\.such"):
            publisher.publish(batches_of("no.such", 0, range(10)))
        with pytest.raises(TopicError, match="partition 2 of"):
            publisher.publish(batches_of(pipeline.topic, 2, range(10)))


@pytest.mark.extended
def test_topic_recreated_with_fewer_partitions_is_an_error(pipeline: Pipeline) -> None:
    limits = {**pipeline.limits, pipeline.topic: TopicLimits(5)}
    with pytest.raises(TopicError, match="created again with fewer"), pipeline.publisher(limits=limits) as publisher:
        publisher.publish(batches_of(pipeline.topic, 4, range(10)))
    assert _seen(pipeline) == []


@pytest.mark.extended
def test_blocks_out_of_order_are_refused_and_nothing_is_visible(pipeline: Pipeline) -> None:
    first, second = batches_of(pipeline.topic, 0, range(200))
    with pytest.raises(AccountingError, match="out of order"), pipeline.publisher() as publisher:
        publisher.publish([second, first])
    assert _seen(pipeline) == []


@pytest.mark.extended
def test_a_queue_that_is_full_is_waited_for(pipeline: Pipeline) -> None:
    settings = PublishSettings(queue_bytes=1 << 20, compression="none")
    rows = [message(row, value=b"x" * 5000) for row in range(2000)]
    with pipeline.publisher(settings=settings) as publisher:
        publisher.publish(encode_batches([MessageBlock(pipeline.topic, 0, "bin.000007", 0, 0, pack(rows))], settings))
    assert _seen(pipeline) == ids_of(range(2000))


@pytest.mark.extended
def test_records_larger_than_the_queue_are_published(kafka_broker: KafkaBroker, unique_name: str) -> None:
    limit = {"max.message.bytes": str(4 << 20)}
    pipeline = Pipeline(KafkaConnection(kafka_broker.bootstrap), unique_name, configs=limit)
    settings = PublishSettings(queue_bytes=1 << 20, compression="none")
    rows = [message(row, value=b"x" * (3 << 20 if row % 3 == 0 else 10)) for row in range(9)]
    blocks = [MessageBlock(pipeline.topic, 0, "bin.000007", 0, number, pack([row])) for number, row in enumerate(rows)]
    with pipeline.publisher(settings=settings) as publisher:
        publisher.publish(encode_batches(blocks))
    assert _seen(pipeline) == ids_of(range(9))


_KILLED = """
    import os, signal, sys
    sys.path[:0] = ["include", "tests"]
    from changefeed.kafka.connection import KafkaConnection
    from changefeed.model.publish_settings import PublishSettings
    from integration.kafka_pipeline import Pipeline, batches_of

    bootstrap, name, stage, times = sys.argv[1:]
    left = int(times)

    def kill(reached):
        global left
        if reached == stage:
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    pipeline = Pipeline(KafkaConnection(bootstrap), name)
    settings = PublishSettings(transaction_rows=250, compression="zstd")
    with pipeline.publisher(settings=settings, on_stage=kill) as publisher:
        parts = (batches_of(pipeline.topic, 0, range(600), per_batch=50),
                 batches_of(pipeline.topic, 1, range(600, 900), per_batch=50))
        publisher.publish(parts[0] + parts[1])
"""


@pytest.mark.extended
@pytest.mark.parametrize(
    ("stage", "times", "visible"),
    [
        ("after_take_over", 1, 0),
        ("in_open_transaction", 1, 0),
        ("in_open_transaction", 2, 250),
        ("after_transaction_commit", 1, 250),
        ("after_transaction_commit", 4, 900),
    ],
)
def test_killed_at_a_stage_and_published_again_gives_each_message_once(
    pipeline: Pipeline, stage: str, times: int, visible: int
) -> None:
    bootstrap = pipeline.connection.bootstrap
    arguments = [sys.executable, "-c", textwrap.dedent(_KILLED), bootstrap, pipeline.name, stage, str(times)]
    killed = subprocess.run(arguments, cwd=_ROOT, check=False, capture_output=True, timeout=120)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    attempt = pipeline.fence()
    assert len(_seen(pipeline)) == visible
    # Cut otherwise than at the first attempt, so that a batch is there in part.
    batches = batches_of(pipeline.topic, 0, range(600)) + batches_of(pipeline.topic, 1, range(600, 900))
    with pipeline.publisher(attempt=attempt) as publisher:
        receipts = publisher.publish(batches)
    assert sum(receipt.already_there for receipt in receipts) == visible
    assert _seen(pipeline) == ids_of(range(900))


@pytest.mark.extended
def test_two_tasks_publish_at_once_into_one_commit_log(pipeline: Pipeline) -> None:
    settings = PublishSettings(transaction_rows=100, compression="zstd")
    attempt = pipeline.fence(tasks=2)

    def task(number: int, publisher: Publisher) -> None:
        publisher.publish(batches_of(pipeline.topic, number, range(number * 1000, number * 1000 + 1000)))

    with (
        pipeline.publisher(task=0, settings=settings, attempt=attempt) as one,
        pipeline.publisher(task=1, settings=settings, attempt=attempt) as two,
    ):
        threads = [threading.Thread(target=task, args=each) for each in ((0, one), (1, two))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(240)
    assert _seen(pipeline) == ids_of(range(2000))
    assert {key: each.messages for key, each in pipeline.log.read().progress.items()} == {
        (pipeline.topic, 0): 1000,
        (pipeline.topic, 1): 1000,
    }


@pytest.mark.extended
def test_backfill_has_progress_of_its_own(pipeline: Pipeline) -> None:
    ensure_topics(pipeline.connection, {pipeline.topic: TopicSettings(2)})
    with pipeline.publisher() as publisher:
        publisher.publish(batches_of(pipeline.topic, 0, range(10)))
    backfill = Publisher(
        pipeline.connection, f"{pipeline.name}/backfill", 0, 1, pipeline.log_topic, pipeline.limits, pipeline.settings
    )
    with backfill:
        (receipt,) = backfill.publish(batches_of(pipeline.topic, 0, range(10)))
    assert (receipt.messages, receipt.already_there) == (10, 0)
