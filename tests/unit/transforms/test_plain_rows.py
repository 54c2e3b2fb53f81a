"""Values that the kernel left as JSON, side by side: what of them becomes an Arrow column, and of which type."""

from __future__ import annotations

import numpy as np
import orjson
import pyarrow as pa
import pytest

from changefeed.binlog.kernel import plain_rows
from changefeed.transforms.plain_rows import column_of


def column(*values: bytes | None) -> pa.Array:
    """The column of values as JSON has them, None for NULL."""
    sizes = np.array([len(value or b"null") for value in values], np.int64)
    ends = np.cumsum(sizes)
    starts = np.where([value is not None for value in values], ends - sizes, plain_rows.NULL)
    return column_of(np.frombuffer(b"".join(value or b"null" for value in values), np.uint8).copy(), starts, sizes)


@pytest.mark.parametrize(
    ("values", "type"),
    [
        ([None, None], pa.string()),
        ([b'"a"', None, b'""'], pa.string()),
        ([rb'"\"\\\/\b\f\n\r\t\u0000\u001f\u007f"', '"é😀"'.encode()], pa.string()),
        ([rb'"\u00e9"', rb'"\ud83d\ude00"'], pa.string()),
        ([b"-9223372036854775808", b"9223372036854775807", None, b"0"], pa.int64()),
        ([b"18446744073709551615", b"1"], pa.uint64()),
        ([b"1", b"2.5", b"-1e300", b"-0.0"], pa.float64()),
        ([b"true", None, b"false"], pa.bool_()),
        ([b'{"a":["]}"]}', None], pa.struct([("a", pa.list_(pa.string()))])),
    ],
    ids=str,
)
def test_a_column_has_the_values_that_a_parser_of_json_finds(values: list[bytes | None], type: pa.DataType) -> None:
    made = column(*values)
    assert made.type == type
    assert made.to_pylist() == [None if value is None else orjson.loads(value) for value in values]
    made.validate(full=True)
