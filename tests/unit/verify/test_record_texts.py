"""What kernels say of records without reading them is what reading them says."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson
import pytest

from changefeed.batches.compression import CODECS
from changefeed.batches.record_batch import HEAD_BYTES, Record, Times, record_batch, written
from changefeed.binlog.kernel import envelopes, kafka_records
from changefeed.block import GTID_HEADER, ID_HEADER
from changefeed.verify.event_id import EventId
from changefeed.verify.row_digests import is_same, is_same_in_part, row_digests
from changefeed.verify.strings import Strings

NAMES = np.frombuffer(bytearray(f"{ID_HEADER}{GTID_HEADER}".encode()), np.uint8)
ROW = b'{"id":7,"name":"a\\"\\\\\\u00e9\xc3\xa9\xf0\x9f\x98\x80","price":-1.5e-3,"is":true,"no":false,"gone":null}'
ENVELOPE = (
    b'{"before":null,"after":' + ROW + b',"source":{"db":"shop","tables":["x",{}],"table":"pets"},"op":"c","ts_ms":1}'
)


def digests(*rows: bytes) -> list[bytes]:
    column = Strings.of(rows)
    made = row_digests(column.data, column.starts, column.ends)
    return [made[number] for number in range(len(rows))]


def read(*values: bytes, tables: Sequence[tuple[bytes, bytes]] = ((b'"shop"', b'"pets"'),)) -> Any:
    column, names = Strings.of(values), Strings.of([name for table in tables for name in table])
    words = np.empty((len(values), envelopes.ENVELOPE_WORDS), np.int64)
    envelopes.read_envelopes(column.data, column.starts, column.ends, names.data, names.ends, words.reshape(-1))
    return words


def mutations(text: bytes, count: int, seed: int) -> list[bytes]:
    """The text with a byte changed, left out or put in."""
    chance, made = random.Random(seed), []
    for _ in range(count):
        at, byte = chance.randrange(len(text)), chance.choice([*text, *b'{}[]",:\\ \n\0\x80\xff0'])
        made.append(text[:at] + chance.choice([b"", bytes([byte])]) + text[at + chance.randrange(2) :])
    return made


def loads(text: bytes) -> Any:
    """What orjson reads; None where it reads nothing."""
    try:
        return orjson.loads(text)
    except ValueError:
        return None


def test_whatever_is_done_to_an_envelope_it_is_read_as_orjson_reads_it_or_left_to_orjson() -> None:
    texts = mutations(ENVELOPE, 6_000, 1)
    taken, starts = 0, Strings.of(texts).starts
    for number, (text, words) in enumerate(zip(texts, read(*texts), strict=True)):
        if words[envelopes.OP] < 0:
            continue
        taken += 1
        value = loads(text)
        assert value is not None, text
        assert value["op"] == chr(words[envelopes.OP])
        begin = starts[number]
        for name, at in (("before", envelopes.BEFORE), ("after", envelopes.AFTER)):
            image = None if words[at] < 0 else text[words[at] - begin : words[at + 1] - begin]
            assert value[name] == (None if image is None else orjson.loads(image)), text
        source = value.get("source")
        is_pets = isinstance(source, dict) and (source.get("db"), source.get("table")) == ("shop", "pets")
        assert words[envelopes.TABLE] == (0 if is_pets else -1) or b"\\" in text
    assert taken > 1_000


def test_texts_that_are_no_json_have_no_digest_and_others_have_one() -> None:
    for text in mutations(ROW, 6_000, 2):
        value = loads(text)
        try:
            digests(text)
        except ValueError:
            assert not isinstance(value, dict) or b" " in text or b"\n" in text, text
        else:
            assert isinstance(value, dict), text


def test_a_digest_is_of_names_and_values_in_whatever_order_and_each_byte_counts() -> None:
    one, turned, with_null, without = digests(
        b'{"a":1,"b":"x","c":null}', b'{"b":"x","a":1}', b'{"b":"x","a":1,"d":null,"e":"y"}', b'{"a":1,"b":"x"}'
    )
    assert is_same(one, turned)
    assert is_same(one, without)
    assert not is_same(one, with_null)
    assert is_same_in_part(without, with_null)
    assert not is_same_in_part(*digests(b'{"a":1}', b'{"a":2,"b":1}'))
    assert not is_same(*digests(b'{"a":1,"b":2}', b'{"a":2,"b":1}'))
    assert not is_same(*digests(b'{"ab":"c"}', b'{"a":"bc"}'))
    assert is_same(*digests(b'{"a":1}', b'{"a":1,"b":"__debezium_unavailable_value"}'))
    seen = {digest[:16] for digest in digests(*(b'{"id":%d,"n":%d}' % (n % 317, n // 317) for n in range(20_000)))}
    assert len(seen) == 20_000
    there = ROW.index(b"gone")  # what is null is as if it were not there
    rows = [ROW[:at] + bytes([ROW[at] ^ 1]) + ROW[at + 1 :] for at in range(there) if ROW[at : at + 1].isalnum()]
    changed = [row for row in rows if isinstance(loads(row), dict)]
    assert len(changed) > 20
    assert len({digest[:16] for digest in digests(ROW, *changed)}) == len({*changed, ROW})


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
    batch = record_batch(CODECS[codec].compress(written(records), None), len(records), CODECS[codec], Times(0, 20))
    data = np.frombuffer(bytearray(CODECS[codec].decompress(batch[HEAD_BYTES:])), np.uint8)
    words = np.empty((len(records), kafka_records.RECORD_WORDS), np.int64)
    arguments = (NAMES, len(ID_HEADER), words.reshape(-1))
    assert kafka_records.read_records(data, len(records), *arguments) == 0

    def part(number: int, word: int) -> bytes | None:
        start, end = words[number, word : word + 2]
        return None if start < 0 else data[start:end].tobytes()

    for number, record in enumerate(records):
        assert words[number, kafka_records.OFFSET] == number
        assert (part(number, kafka_records.KEY), part(number, kafka_records.VALUE)) == (record.key, record.value)
        text = dict(record.headers).get(ID_HEADER)
        assert part(number, kafka_records.ID) == text
        event = EventId.parse(text or b"")
        position, row, step = words[number, kafka_records.POSITION : kafka_records.STEP + 1].tolist()
        if position >= 0 and text is not None and b"/" in text.partition(b":")[0]:
            assert event is not None
            assert (position, row, step) == (event.position, event.row, event.step)
        elif event is not None:
            assert number in (5, 9), "a statement's, or a number that no word holds, is read one by one"
    assert part(len(ids), kafka_records.GTID) == b"uuid:7"
    assert words[: len(ids), kafka_records.IS_NEW].tolist() == [1, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1]
    whole = data.copy()
    for cut in range(len(whole)):
        assert kafka_records.read_records(whole[:cut].copy(), len(records), *arguments) < 0
    for at in range(len(whole)):  # whatever a byte says, nothing outside is read
        damaged = whole.copy()
        damaged[at] ^= 0x41
        kafka_records.read_records(damaged, len(records), *arguments)
