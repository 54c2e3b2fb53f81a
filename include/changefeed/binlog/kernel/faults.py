"""The faults of a kernel: negative codes, and the message of each."""

# kernels read this file
from __future__ import annotations

from changefeed.native import memory

FULL = memory.FULL
"""Not a fault: the buffer has no room. The caller grows it and runs the kernel again."""
SHORT = -2
JSON_OFFSET = -3
JSON_TYPE = -4
JSON_DEEP = -5
LABEL = -6
DECIMAL_DIGITS = -7
TEMPORAL_RANGE = -8
EVENT_SIZE = -10
CHECKSUM = -11
NO_TABLE_MAP = -12
COLUMN_COUNT = -13
ROW_BYTES = -14
PAST_END = -16
VECTOR_WIDTH = -18
RESULT_ROW = -20
KEY_ABSENT = -22
FILTER_ABSENT = -23
MISSING_COLUMN = -25
NULL_COLUMN = -26
TEMPORAL_FORM = -27
NULL_VALUE = -21
"""Not a fault: the column's form cannot express the value, so the column is written as if it were NULL."""

TEXTS = {
    SHORT: "a value runs past the end of its event",
    JSON_OFFSET: "a JSON document points outside of itself",
    JSON_TYPE: "a JSON document holds a value of an unknown type",
    JSON_DEEP: "a JSON document is nested deeper than the server allows (100 levels), or visits a value twice",
    LABEL: "an ENUM or SET value has no label: the column has fewer of them",
    DECIMAL_DIGITS: "a DECIMAL holds more digits than its type",
    TEMPORAL_RANGE: "a date or time is outside of its type's range",
    TEMPORAL_FORM: "a column without NULL has a TIME or DATETIME that the format's `time.precision.mode` cannot write: "
    "`connect` and `isostring` have no TIME below 0 or over 24 hours, `nanoseconds` no DATETIME after 2262",
    EVENT_SIZE: "an event's size is smaller than its own header",
    CHECKSUM: "an event's CRC32 checksum does not match its bytes",
    NO_TABLE_MAP: "a rows event names a table that no TABLE_MAP of its statement introduced",
    COLUMN_COUNT: "a rows event has another number of columns than its TABLE_MAP",
    ROW_BYTES: "a rows event ends inside a row",
    PAST_END: "an event reaches past the end of the slice",
    VECTOR_WIDTH: "a VECTOR's size is not a multiple of 4 bytes",
    MISSING_COLUMN: "a row image does not hold all columns, and the pipeline's format cannot leave one out: set "
    "binlog_row_image = FULL, or write a format that is JSON",
    NULL_COLUMN: "a column is NULL that its table does not allow to be, and the pipeline's format has no NULL for it",
    RESULT_ROW: "a row that the server sent does not have the columns that the server announced",
    FILTER_ABSENT: "a row was logged without a column that the pipeline's `rows` compares: binlog_row_image was not "
    "FULL. SET GLOBAL binlog_row_image = 'FULL' (sessions keep theirs until they reconnect); what was logged so "
    "already can be published only by another condition, or by none",
    KEY_ABSENT: "its rows were logged without a column of the key that the pipeline's `keys` or `keyless` chooses: "
    "binlog_row_image was not FULL. SET GLOBAL binlog_row_image = 'FULL' (sessions keep theirs until they reconnect); "
    "what was logged so already can be published only under the primary key, or without a key",
}
