"""What reads the records of a format back: each format brings its own (`Format.reader`).

A comparison wants to know what a record says of a row (`ReadChange`); a follower also needs to know which change of the
source it is (`Envelope`), which few formats say.
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
"""How a key begins that has its schema around it."""

JsonImage = Mapping[str, Any]
"""A row image as a message has it: column name -> what the format's Style wrote. Columns that the binlog's row image
did not hold (binlog_row_image=MINIMAL) are not in it."""

SchemaText = Callable[[int], str | None]
"""The schema of an id in a registry, None for one that is not known."""


@dataclass(frozen=True)
class ReadChange:
    """``op`` is c, u, d or r of a row; t where a table was emptied, q for a statement whose rows nobody knows, s for
    one of which only ``sql`` is known, and '' for a definition. ``table`` is "database.table", or '' where the record
    does not say; of op s it is the database.

    ``before`` is None of c and r, and where the format does not say it; ``after`` is None of d.
    """

    op: str
    table: str = ""
    before: JsonImage | None = None
    after: JsonImage | None = None
    sql: str = ""


@dataclass(frozen=True)
class Envelope:
    """What a follower is given: a change of a row, or a statement (``op`` t and q), whose images are None."""

    op: str
    database: str
    table: str
    before: JsonImage | None
    after: JsonImage | None
    file: str
    position: int
    gtid: str = ""
    """'' where the source has no GTIDs, or the format does not say it."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """All that the message says, of op q."""


Envelopes = Callable[[bytes], Sequence[Envelope]]
"""Reads a value for a follower: a change, several where a message has all rows of an event, none of a definition.

It raises BadRecordError for a value of another format."""


def envelopes_of(read: Callable[[Any], Sequence[Envelope]]) -> Envelopes:
    """`Envelopes` of a format that is JSON, made of ``read``, which may raise what Python does for another form."""

    def envelopes(value: bytes) -> Sequence[Envelope]:
        try:
            return read(payload(orjson.loads(value)))
        except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
            raise BadRecordError(
                f"{value[:200]!r} is no record of the pipeline's format ({error!r}): something else than this pipeline "
                "writes to its topic, or it had another format before"
            ) from error

    return envelopes


@dataclass(frozen=True)
class FoundRows:
    """Where the rows of many records are, found without reading the records.

    ``ops`` are the letters of their ops, -1 for a record that has to be read by itself; ``tables`` the numbers of their
    tables, -1 for none of those that were asked for. ``before`` and ``after`` have the begin and the end of each row,
    -1 where there is none.
    """

    ops: Words
    tables: Words
    before: Words
    after: Words


RowFinder = Callable[["Bytes", "Words", "Words"], FoundRows]
"""Finds the rows of the records whose values are ``data[start:end]``; a start below 0 is a record without a value."""


def _in_no_table(table: TableSchema) -> bool:  # noqa: ARG001 - a default of `RecordReader.is_text`
    return False


@dataclass(frozen=True)
class RecordReader:
    """Reads the records of one format, as a consumer would who knows only the format.

    ``read`` says what the value of a record means that ``load`` made of its bytes (any of both may raise ValueError,
    and ``read`` what Python raises for a value of another form): of a format that has all rows of an event in a
    message, the change of each. ``load`` makes of a key or a value what JSON can say.
    """

    read: Callable[[Any], ReadChange | Sequence[ReadChange]]
    load: Callable[[bytes], Any] = orjson.loads
    says_before: bool = True
    """Whether records have the rows that were there before."""
    has_keys: bool = True
    """Whether keys tell rows apart: not where there are none, nor where a changed key is a record of the new one only.
    """
    is_text: Callable[[TableSchema], bool] = _in_no_table
    """Whether the rows of a table can be compared by the bytes that its records have of them, without being read: two
    rows are equal where, and only where, their text is. ``finder`` is needed then."""
    finder: Callable[[Sequence[TableSchema]], RowFinder] | None = None
    """Makes what finds the rows of records of some tables."""
    envelopes: Envelopes | None = None
    """Reads a value for a follower. None where records do not say each change in full."""
    says_sessions: bool = False
    """Whether records of statements have their sessions, so that a follower can run them. Of definitions a header of
    other formats has it."""
    exact: frozenset[Kind] = frozenset()
    """The kinds of columns whose values records tell apart, although the format's style alone does not."""

    @property
    def is_json(self) -> bool:
        """Whether its records are JSON."""
        return self.load is orjson.loads

    def of(self, value: bytes) -> Sequence[ReadChange]:
        """What a record says. Raises ValueError for what is no value of the format."""
        try:
            read = self.read(payload(self.load(value)))
            return (read,) if isinstance(read, ReadChange) else read
        except (TypeError, KeyError, AttributeError, IndexError) as error:
            raise ValueError(f"it is of another format ({type(error).__name__})") from error

    def key(self, key: bytes) -> bytes:
        """A message key as JSON, without the schema that may be around it. Raises ValueError for what is none."""
        if key.startswith(SCHEMA_KEY):
            return orjson.dumps(orjson.loads(key)["payload"])
        return key if self.is_json else orjson.dumps(self.load(key))


def payload(value: Any) -> Any:
    """A key or a value without the schema that may be around it."""
    return value["payload"] if isinstance(value, dict) and "payload" in value and "schema" in value else value
