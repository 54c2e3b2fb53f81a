"""The kernel finds in a batch's records what Python reads in them."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.records import index_kernel as kernel
from changefeed.records.block import COMMIT_HEADER, FOREIGN_KEYS_HEADER, GTID_HEADER, ID_HEADER, ForeignKeys
from changefeed.records.compression import CODECS
from changefeed.records.event_id import EventId
from changefeed.records.index_kernel import FIRST, FOREIGN_KEYS, KNOWN, OFFSET, OWN, ROW, STEP_BITS, VALUE, VALUE_END
from changefeed.records.record_batch import Record, Times, encode_records, record_batch, records_in
from changefeed.records.record_index import build_index
from changefeed.replicate.block import ORDER, pack_order
from changefeed.replicate.source_order import ChangeId

UUID = "1c2d7f7e-9c3e-11ef-8f1a-0242ac110002"


def a_record(rng: random.Random) -> Record:
    where = f"bin.{rng.randrange(1, 10**6):06d}:{rng.randrange(4, 1 << rng.randrange(3, 39))}"
    row = f"{rng.randrange(1 << rng.randrange(1, 40))}"
    step = rng.choice(["", "", f"/{rng.randrange(3)}"])
    headers = [(ID_HEADER, f"{UUID}/{where}/{row}{step}".encode())]
    if rng.random() < 0.5:
        headers.append((GTID_HEADER, f"{UUID}:{rng.randrange(10**6)}".encode()))
    if rng.random() < 0.3:
        headers.append((COMMIT_HEADER, f"bin.{rng.randrange(1, 10**6):06d}:{rng.randrange(4, 10**9)}".encode()))
    if rng.random() < 0.3:
        headers.append((FOREIGN_KEYS_HEADER, rng.choice([*ForeignKeys][1:]).name.lower().encode()))
    headers.append(("other", bytes(rng.randrange(300))))
    rng.shuffle(headers)
    value = None if rng.random() < 0.2 else rng.randbytes(rng.randrange(1000))
    return Record(0, None if rng.random() < 0.5 else b"key", value, headers)


def test_each_record_has_the_order_key_and_value_that_python_reads() -> None:
    rng = random.Random("records")
    records = [a_record(rng) for _ in range(300)]
    index = build_index(encode_records(records), len(records), UUID)
    for number, record in enumerate(records):
        words = index.words[number]
        change = ChangeId.of(KafkaRecord("t", 0, 0, None, None, tuple(record.headers), 0, False))
        assert change is not None
        assert words[KNOWN]
        assert tuple(words[ORDER]) == pack_order(change.order)
        assert words[OFFSET] == number
        begin, end = words[[VALUE, VALUE_END]]
        assert (None if begin < 0 else index.data[begin:end].tobytes()) == record.value
        assert index.record(number) == record
        assert words[FOREIGN_KEYS] == dict(record.headers).get(FOREIGN_KEYS_HEADER, b"\0")[0]


@pytest.mark.parametrize(
    "event_id",
    [
        f"{UUID}/shop.orders#12:0/5",
        f"{UUID}/bin.000001:4/5/topic/0",
        "00000000-0000-0000-0000-000000000001/bin.000001:4/5",
        f"{UUID}/bin:4/5",
        f"{UUID}/bin.000001:4/-5",
        f"{UUID}/bin.000001:4",
        f"{UUID}/bin.000001:4/5/{1 << STEP_BITS}",
        f"{UUID}",
        "",
    ],
)
def test_records_without_a_binlog_row_are_left_to_python(event_id: str) -> None:
    index = build_index(encode_records([Record(0, None, b"", [(ID_HEADER, event_id.encode())])]), 1, UUID)
    assert not index.words[0, KNOWN]


def test_order_key_of_a_prepared_transaction_is_its_commit() -> None:
    headers = [(ID_HEADER, f"{UUID}/bin.000007:100/3/1".encode()), (COMMIT_HEADER, b"bin.000009:200")]
    words = build_index(encode_records([Record(0, None, b"", headers)]), 1, UUID).words[0]
    assert (words[FIRST], words[OWN], words[ROW]) == ((9 << 40) + 200, (7 << 40) + 100, (3 << 8) + 1)


def test_damaged_records_are_refused_wherever_they_are_cut() -> None:
    rng = random.Random("damaged")
    data = encode_records([a_record(rng) for _ in range(4)])
    for end in range(len(data)):
        with pytest.raises(ValueError, match="are not 4 records"):
            build_index(data[:end], 4, UUID)
    for _ in range(500):
        hurt = bytearray(data)
        for _ in range(rng.randrange(1, 4)):
            hurt[rng.randrange(len(hurt))] = rng.randrange(256)
        try:
            found = build_index(bytes(hurt), 4, UUID).words
        except ValueError:
            continue
        assert (found[:, VALUE_END] <= len(data)).all()


@pytest.mark.parametrize("codec", CODECS)
def test_records_and_their_ids_are_found_where_they_are(codec: str) -> None:
    ids = [
        b"uuid/bin.000001:4/0",
        b"uuid/bin.000001:4/1",
        b"uuid/bin.000001:400/0/2",
        b"uuid/bin.000002:4/0",
        b"uuid/shop.pets#3:900/17",
        b"uuid/bin.000002:9/0/topic.x/3",
        b"other:5/1",
        b"uuid/bin.000002:10/0/",
        b"uuid/bin.000002:/0",
        b"uuid/bin.000002:10/99999999999999999999",
        b"",
    ]
    records = [
        Record(n, b"k%d" % n if n % 3 else None, b"v" * n if n % 4 else None, [("x", b"y"), (ID_HEADER, text)])
        for n, text in enumerate(ids)
    ]
    records.append(Record(20, b"", b"", [(GTID_HEADER, b"uuid:7")]))
    batch = record_batch(
        CODECS[codec].compress(encode_records(records), None), len(records), CODECS[codec], Times(0, 20)
    )
    data, count = records_in(batch)
    index = build_index(data, count, "uuid", 70)
    for number, record in enumerate(records):
        assert index.offsets[number] == 70 + number
        assert (index.key(number), index.value(number)) == (record.key, record.value)
        text = dict(record.headers).get(ID_HEADER)
        assert index.event_id(number) == (text or b"")
        event = EventId.parse(text or b"")
        position, row, step = index.words[number, kernel.POSITION : kernel.STEP + 1].tolist()
        if position >= 0 and text is not None and b"/" in text.partition(b":")[0]:
            assert event is not None
            assert (position, row, step) == (event.position, event.row, event.step)
        elif event is not None:
            assert number in (5, 9), "a statement's, or a number that no word holds, is read one by one"
    assert index.gtid(len(ids)) == b"uuid:7"
    assert index.column(kernel.IS_NEW)[: len(ids)].tolist() == [1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]
    assert [len(index.between(*bounds)) for bounds in ((0, 99), (71, 73), (90, 99))] == [len(records), 2, 0]
    for cut in range(len(data)):
        with pytest.raises(ValueError, match="is cut off, or has another length"):
            build_index(data[:cut], count, "uuid")
    for at in range(len(data)):  # whatever a byte says, nothing outside is read
        damaged = bytearray(data)
        damaged[at] ^= 0x41
        with suppress(ValueError):
            build_index(damaged, count, "uuid")
