"""The interface of readers of a format's records, which `Format.reader` returns.

A comparison needs only the rows of a record (`ReadChange`). A follower also needs the coordinates of the change
(`Envelope`), which few formats write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import orjson

from changefeed.errors import BadRecordError
from changefeed.formats.style import Kind
from changefeed.model.table_schema import TableSchema

if TYPE_CHECKING:
    from changefeed.native.memory import Bytes, Words

SCHEMA_KEY = b'{"schema":'
"""The first bytes of a key with its schema."""

JsonImage = Mapping[str, Any]
"""A row image of a message: column name -> the value in the format's Style.

Columns that the binlog's row image does not have (binlog_row_image=MINIMAL) are missing."""

SchemaText = Callable[[int], str | None]
"""(schema id) -> the schema's text in a registry; None for an unknown id."""


@dataclass(frozen=True)
class ReadChange:
    """A change that a record describes.

    | ``op`` | change |
    |---|---|
    | c, u, d, r | of a row |
    | w | of a row, if the record does not distinguish c, u and r |
    | t | TRUNCATE |
    | q | a statement with unknown rows |
    | s | a statement of which only ``sql`` is known |
    | '' | DDL |

    ``table`` is "database.table", '' if the record does not have it, and the database for op s. ``before`` is None for
    c and r, and if the format does not have it. ``after`` is None for d.
    """

    op: str
    table: str = ""
    before: JsonImage | None = None
    after: JsonImage | None = None
    sql: str = ""


@dataclass(frozen=True)
class Envelope:
    """A change for a follower: of a row, or a statement (``op`` t or q) without images."""

    op: str
    database: str
    table: str
    before: JsonImage | None
    after: JsonImage | None
    file: str
    position: int
    """The begin of the change's event; the end if ``ends`` is set."""
    gtid: str = ""
    """'' if the source or the format has no GTIDs."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """All fields of the message, for op q."""
    ends: bool = False
    """Whether ``position`` is the end of the event, because its begin cannot be computed.

    An event in a compressed transaction has the end position of the transaction and its own size."""


Envelopes = Callable[[bytes], Sequence[Envelope]]
"""(value) -> the changes for a follower: one, several if a message has all rows of an event, none for DDL.

Raises BadRecordError for a value of another format."""


def envelopes_of(read: Callable[[Any], Sequence[Envelope]]) -> Envelopes:
    """`Envelopes` of a JSON format, from ``read``. Errors of ``read`` for unexpected values become BadRecordError."""

    def envelopes(value: bytes) -> Sequence[Envelope]:
        try:
            return read(payload(orjson.loads(value)))
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise BadRecordError(
                f"{value[:200]!r} is no record of the pipeline's format ({error!r}): another program "
                "writes to its topic, or it had another format before"
            ) from error

    return envelopes


@dataclass(frozen=True)
class RowRanges:
    """The rows of many records, found without parsing the records.

    - ``ops``: the letters of their ops; -1 for a record that must be read alone
    - ``tables``: the numbers of their tables; -1 for a table that was not requested
    - ``before``, ``after``: the begin and the end of each row; -1 if there is none
    """

    ops: Words
    tables: Words
    before: Words
    after: Words


RowFinder = Callable[["Bytes", "Words", "Words"], RowRanges]
"""(data, starts, ends) -> the rows of the records ``data[start:end]``. A start below 0 means a record without value."""


def _in_no_table(table: TableSchema) -> bool:  # noqa: ARG001 - a default of `RecordReader.is_text`
    return False


@dataclass(frozen=True)
class RecordReader:
    """The reader of one format, which knows as much as a consumer that knows only the format.

    ``load`` converts the bytes of a key or a value to JSON types. ``read`` returns the change of a loaded value, or
    several changes if a message has all rows of an event. Both may raise ValueError. For an unexpected value ``read``
    may also raise TypeError, KeyError, AttributeError or IndexError.
    """

    read: Callable[[Any], ReadChange | Sequence[ReadChange]]
    load: Callable[[bytes], Any] = orjson.loads
    says_before: bool = True
    """Whether records have before images."""
    has_keys: bool = True
    """Whether keys identify rows: not if there are none, or if the record of a changed key has only the new key."""
    is_text: Callable[[TableSchema], bool] = _in_no_table
    """Whether rows of a table can be compared by the bytes of its records, without parsing.

    If so, two rows are equal if and only if their texts are, and ``finder`` is set."""
    finder: Callable[[Sequence[TableSchema]], RowFinder] | None = None
    """Returns the finder of rows of the given tables."""
    envelopes: Envelopes | None = None
    """Reads a value for a follower. None if records do not have all of a change."""
    says_sessions: bool = False
    """Whether records of statements have their sessions, so that a follower can execute them.

    In other formats, a header of DDL records has the session."""
    exact: frozenset[Kind] = frozenset()
    """The kinds of columns whose values can be read exactly, although the format's style alone loses a part of them."""

    @property
    def is_json(self) -> bool:
        """Whether the records are JSON."""
        return self.load is orjson.loads

    def of(self, value: bytes) -> Sequence[ReadChange]:
        """The changes of a record. Raises ValueError for a value of another format."""
        try:
            read = self.read(payload(self.load(value)))
            return (read,) if isinstance(read, ReadChange) else read
        except (TypeError, KeyError, AttributeError, IndexError) as error:
            raise ValueError(f"it is of another format ({type(error).__name__})") from error

    def key(self, key: bytes) -> bytes:
        """A message key as JSON, without its schema. Raises ValueError for an invalid key."""
        if key.startswith(SCHEMA_KEY):
            return orjson.dumps(orjson.loads(key)["payload"])
        return key if self.is_json else orjson.dumps(self.load(key))


def payload(value: Any) -> Any:
    """A key or a value without its schema."""
    return value["payload"] if isinstance(value, dict) and "payload" in value and "schema" in value else value
