"""The digest of a row is the same for equal rows, and only for those."""

from __future__ import annotations

from unit.damaged_json import ROW, loads, mutations

from changefeed.verify.row_digests import is_same, is_same_in_part, row_digests
from changefeed.verify.strings import Strings


def digests(*rows: bytes) -> list[bytes]:
    column = Strings.of(rows)
    made = row_digests(column.data, column.starts, column.ends)
    return [made[number] for number in range(len(rows))]


def test_texts_that_are_no_json_have_no_digest_and_others_have_one() -> None:
    for text in mutations(ROW, 6_000, 2):
        value = loads(text)
        try:
            digests(text)
        except ValueError:
            assert not isinstance(value, dict) or b" " in text or b"\n" in text, text
        else:
            assert isinstance(value, dict), text


def test_digest_covers_each_byte_of_names_and_values_in_any_order() -> None:
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
    there = ROW.index(b"gone")  # a null value does not change the digest
    rows = [ROW[:at] + bytes([ROW[at] ^ 1]) + ROW[at + 1 :] for at in range(there) if ROW[at : at + 1].isalnum()]
    changed = [row for row in rows if isinstance(loads(row), dict)]
    assert len(changed) > 20
    assert len({digest[:16] for digest in digests(ROW, *changed)}) == len({*changed, ROW})
