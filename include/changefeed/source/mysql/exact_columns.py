"""Reads the exact labels and defaults that `information_schema` does not list exactly.

`information_schema` and SHOW CREATE list four-byte characters as question marks. `information_schema` lists a default
of BINARY or VARBINARY only up to its first zero byte. The server itself stores exact values. This module reads them by
expressions, for which the session needs only SELECT:

- A label: the query assigns the label's number to a value of the column's type, and selects it as text. On MariaDB this
  value is a variable; on MySQL it is a column of a recursive query, which gets its type from the table's column. No row
  of the table is read.
- A default: `DEFAULT(column)`. If the default has characters that utf8mb3 does not have, MySQL's SHOW CREATE TABLE
  shows its bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from changefeed.ddl.schemas import Schemas
from changefeed.ddl.sql_file import defined_schemas
from changefeed.ddl.table import Table
from changefeed.errors import SchemaError, SourceError
from changefeed.model.charset_codes import charset_of_name, decode_text
from changefeed.model.identifier import quote_name
from changefeed.model.table_schema import Column, Default
from changefeed.source.mysql.session import Session, server_of
from changefeed.source.mysql.shown_create import readable_create

_WIDE = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})
"""The character sets with characters that utf8mb3 does not have."""
_BEYOND_UTF8MB3 = re.compile("[^\0-\uffff]")
_BYTES = re.compile("x'((?:[0-9A-F]{2})+)'", re.IGNORECASE)
_STRING = re.compile("'(?:[^']|'')*+'")
_SHOWS_EXPRESSIONS = (11, 4)
"""The first version of MariaDB whose expressions do not return question marks."""
_AT_ONCE = 200
"""The most labels in a query."""


def exact_columns(session: Session, database: str, table: str, columns: Sequence[Column]) -> tuple[Column, ...]:
    """The ``columns``, which `information_schema` lists, with their exact labels and defaults.

    If the server does not show a default exactly, the default is unknown. Raises SchemaError if it does not show
    labels.
    """
    if not any(map(is_doubtful, columns)):
        return tuple(columns)
    return tuple(_Exact(session, database, table).columns(columns))


def is_doubtful(column: Column) -> bool:
    """Whether a question mark in the listed ``column`` may be another character."""
    is_wide = column.collation is not None and charset_of_name(column.collation) in _WIDE
    if _may_miss_bytes(column):
        return True
    default = column.default.text if column.default is not None else None
    in_default = is_wide or (column.default is not None and column.default.is_sql)
    return (is_wide and any("?" in label for label in column.labels)) or (in_default and "?" in (default or ""))


def _may_miss_bytes(column: Column) -> bool:
    """Whether the default of ``column`` may have other bytes than `information_schema` lists.

    MySQL lists no bytes after the first zero byte; MariaDB lists question marks for invalid characters."""
    default = column.default.text if column.default is not None and not column.default.is_sql else None
    if column.data_type not in ("binary", "varbinary") or default is None:
        return False
    if not default.startswith("0x"):
        return column.data_type == "binary"  # its default is padded with zero bytes, which are not listed
    listed = bytes.fromhex(default[2:])
    return b"?" in listed or len(listed) < (column.length or 0)


def exact_create(create: str, listed: Sequence[Column], exact: Sequence[Column]) -> str:
    """The text ``create`` of SHOW CREATE TABLE, with the labels and defaults of ``exact`` instead of ``listed``.

    An unknown default is not replaced. Raises SchemaError if a text of ``listed`` is not in ``create``.
    """
    for shown, column in zip(listed, exact, strict=True):
        start = create.find(f"\n  {quote_name(column.name)} ") + 1
        if column.labels != shown.labels:
            create = _replace(create, _literals(shown.labels), _literals(column.labels), start, column)
        if column.default is None or shown.default is None:
            continue
        now, was = column.default.text or "", shown.default.text or ""
        if column.default.is_sql:
            for literal in filter(_BEYOND_UTF8MB3.search, _STRING.findall(now)):
                if literal not in create:  # here MySQL shows four question marks for each four-byte character
                    create = _replace(create, _BEYOND_UTF8MB3.sub("????", literal), literal, start, column)
        elif was != now and f"DEFAULT {_literals([was])}" in create[start : create.find("\n", start)]:
            create = _replace(create, f"DEFAULT {_literals([was])}", f"DEFAULT {_literals([now])}", start, column)
    return create


def _replace(text: str, was: str, now: str, start: int, column: Column) -> str:
    """``text`` with ``now`` instead of the first ``was`` in the line that begins at ``start``."""
    at = text.find(was, start, text.find("\n", start))
    if not start or at < 0:
        raise SchemaError(
            f"SHOW CREATE TABLE has question marks for characters of four bytes of `{column.name}`, which are not "
            f"at the expected text {was}: a follower would get another table. Nothing was announced to it. Create the "
            "table on the follower by hand, or exclude it from the snapshot."
        )
    return text[:at] + now + text[at + len(was) :]


def _literals(texts: Sequence[str]) -> str:
    """String literals as SHOW CREATE TABLE writes them in an empty sql_mode."""
    return ",".join("'" + "".join(_ESCAPED.get(c, c) for c in text) + "'" for text in texts)


_ESCAPED = {"'": "''", "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\0": "\\0", "\x1a": "\\Z"}


def _as_listed(text: str) -> str:
    """``text`` as `information_schema` lists it."""
    return _BEYOND_UTF8MB3.sub("?", text)


class _Exact:
    def __init__(self, session: Session, database: str, table: str) -> None:
        self._session, self._database, self._table = session, database, table
        self._name = f"{quote_name(database)}.{quote_name(table)}"
        self._shown: dict[str, Column] | None = None

    def columns(self, columns: Sequence[Column]) -> Iterator[Column]:
        for column in columns:
            if is_doubtful(column):
                if any("?" in label for label in column.labels):
                    column = replace(column, labels=self._labels(column))
                if _may_miss_bytes(column):
                    column = replace(column, default=self._bytes_default(column))
                elif column.default is not None and "?" in (column.default.text or ""):
                    column = replace(column, default=self._default(column, column.default))
            yield column

    def _labels(self, column: Column) -> tuple[str, ...]:
        labels = list(column.labels)
        doubtful = [number for number, label in enumerate(labels) if "?" in label]
        for at in range(0, len(doubtful), _AT_ONCE):
            asked = doubtful[at : at + _AT_ONCE]
            try:
                found = {int(row[0]): row[1] for row in self._session.rows(self._query(column, asked))}
            except SourceError as error:
                raise self._unknown_error(column, str(error)) from error
            for number in asked:
                if _as_listed(label := str(found.get(number))) != labels[number]:
                    raise self._unknown_error(column, f"it says that label {number + 1} is {label!r}")
                labels[number] = label
        return tuple(labels)

    def _query(self, column: Column, numbers: Sequence[int]) -> str:
        """A query that selects the number and the text of labels."""
        stored = {number: f"1 << {number}" if column.data_type == "set" else f"{number} + 1" for number in numbers}
        if self._session.is_mariadb:  # in its recursive queries a SET has at most eight labels
            names = ", ".join(f"label_{number}" for number in numbers)
            values = " ".join(f"SET label_{number} = {value};" for number, value in stored.items())
            labels = " UNION ALL ".join(f"SELECT {number}, CONVERT(label_{number} USING utf8mb4)" for number in numbers)
            declared = f"DECLARE {names} TYPE OF {self._name}.{quote_name(column.name)};"
            return f"BEGIN NOT ATOMIC {declared} {values} {labels}; END"
        asked = " UNION ALL ".join(f"SELECT {number} AS number, {value} AS value" for number, value in stored.items())
        return (
            "WITH RECURSIVE labels (number, label) AS ("
            f"SELECT -1, t.{quote_name(column.name)} FROM (SELECT 1 AS one) AS one "
            f"LEFT JOIN {self._name} AS t ON FALSE "
            f"UNION ALL SELECT asked.number, asked.value FROM labels JOIN ({asked}) AS asked ON labels.number = -1"
            ") SELECT number, CONVERT(label USING utf8mb4) FROM labels WHERE number >= 0"
        )

    def _default(self, column: Column, listed: Default) -> Default | None:
        text = listed.text or ""
        if column.labels:
            parts = [text] if column.data_type == "enum" else text.split(",")
            found = [[label for label in column.labels if _as_listed(label) == part] for part in parts]
            if all(len(labels) == 1 for labels in found):
                return Default(",".join(labels[0] for labels in found))
        if listed.is_sql or not self._session.is_mariadb:
            return self._shown_default(column, listed)
        return self._evaluated_default(column, text)

    def _shown_default(self, column: Column, listed: Default) -> Default | None:
        """The default in SHOW CREATE TABLE; None if the text does not show it exactly."""
        if listed.is_sql and not self._session.is_mariadb:
            return listed  # MySQL lists the complete expression
        shown = self._shown_columns().get(column.name)
        default = shown.default if shown is not None else None
        if default is not None and (held := _BYTES.fullmatch(default.text or "")):
            # SHOW CREATE TABLE shows the bytes of a text that utf8mb3 cannot represent.
            default = Default(decode_text(bytes.fromhex(held[1]), charset_of_name(column.collation or "")))
        if default is None or default.is_sql is not listed.is_sql:
            return None
        if listed.is_sql and "?" in (default.text or "") and self._session.version_number < _SHOWS_EXPRESSIONS:
            return None
        return default if listed.is_sql or _as_listed(default.text or "") == listed.text else None

    def _bytes_default(self, column: Column) -> Default | None:
        """The default of SHOW CREATE TABLE; None if the user may not see it."""
        try:
            shown = self._shown_columns().get(column.name)
        except SourceError:
            return None
        return shown.default if shown is not None and shown.data_type == column.data_type else None

    def _shown_columns(self) -> Mapping[str, Column]:
        """The columns of SHOW CREATE TABLE, by name."""
        if self._shown is None:
            create = readable_create(self._session, self._database, self._table)
            tables = defined_schemas(create, Schemas(server=server_of(self._session))).tables.values()
            self._shown = {
                column.name: column for table in tables if isinstance(table, Table) for column in table.schema.columns
            }
        return self._shown

    def _evaluated_default(self, column: Column, listed: str) -> Default | None:
        """The value of DEFAULT(); for a NOT NULL column the server evaluates it only on an existing row."""
        rows = f"{self._name} AS t"
        if column.nullable:
            rows = f"(SELECT 1 AS one) AS one LEFT JOIN {rows} ON FALSE"
        sql = f"SELECT CONVERT(DEFAULT(t.{quote_name(column.name)}) USING utf8mb4) FROM {rows} LIMIT 1"
        try:
            found = self._session.rows(sql)
        except SourceError:
            return None
        return Default(str(found[0][0])) if found and _as_listed(str(found[0][0])) == listed else None

    def _unknown_error(self, column: Column, found: str) -> SchemaError:
        return SchemaError(
            f"labels of `{column.name}` of {self._database}.{self._table} have question marks in information_schema, "
            f"which may be characters of four bytes, and the server does not show them ({found}): their rows "
            "would have other values. GRANT the user SELECT on the table, and learn it again by `changefeed schema "
            f"PIPELINE --relearn {self._database}.{self._table}`; set binlog_row_metadata=FULL, so that rows come with "
            "their labels; or give its CREATE TABLE to `changefeed schema PIPELINE --define FILE.sql`"
        )
