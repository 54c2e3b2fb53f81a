"""Labels and defaults with characters of four bytes, which `information_schema` and SHOW CREATE list as question marks.

A server keeps them as they are. They are read here by expressions, in a session that may only SELECT:

- The number of a label, stored into a variable of the column's type (MariaDB), or into a column of a recursive query,
  which has the type of the column that it begins with, comes out as the label. No row of the table is read for it.
- `DEFAULT(column)` is the default, and MySQL's SHOW CREATE TABLE has the bytes of one that utf8mb3 cannot hold.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from changefeed.ddl.schemas import Schemas
from changefeed.ddl.sql_file import defined_schemas
from changefeed.ddl.table import Table
from changefeed.errors import SchemaError, SourceError
from changefeed.model.charset_codes import charset_of_name, decoded
from changefeed.model.identifier import quoted
from changefeed.model.table_schema import Column, Default
from changefeed.source.mysql.session import Session, server_of

_WIDE = frozenset({"utf8mb4", "utf16", "utf16le", "utf32", "gb18030"})
"""The character sets with characters that utf8mb3 does not have."""
_BEYOND_UTF8MB3 = re.compile("[^\0-\uffff]")
_BYTES = re.compile("x'((?:[0-9A-F]{2})+)'", re.IGNORECASE)
_STRING = re.compile("'(?:[^']|'')*+'")
_SHOWS_EXPRESSIONS = (11, 4)
"""MariaDB before it shows question marks in expressions, too."""
_AT_ONCE = 200
"""Labels in a query."""


def exact_columns(session: Session, database: str, table: str, columns: Sequence[Column]) -> tuple[Column, ...]:
    """``columns`` as `information_schema` lists them, with labels and defaults as they are.

    A default that the server does not say is not known. Raises SchemaError for labels that it does not say.
    """
    if not any(map(is_doubtful, columns)):
        return tuple(columns)
    return tuple(_Exact(session, database, table).columns(columns))


def is_doubtful(column: Column) -> bool:
    """Whether a question mark in what is listed of ``column`` may be another character."""
    is_wide = column.collation is not None and charset_of_name(column.collation) in _WIDE
    default = column.default.text if column.default is not None else None
    in_default = is_wide or (column.default is not None and column.default.is_sql)
    return (is_wide and any("?" in label for label in column.labels)) or (in_default and "?" in (default or ""))


def exact_create(create: str, listed: Sequence[Column], exact: Sequence[Column]) -> str:
    """SHOW CREATE TABLE's text ``create`` with the labels and defaults of ``exact`` in place of those ``listed``.

    A default that is not known stays as it is shown. Raises SchemaError for text that is not where it should be.
    """
    for shown, column in zip(listed, exact, strict=True):
        start = create.find(f"\n  {quoted(column.name)} ") + 1
        if column.labels != shown.labels:
            create = _replaced(create, _literals(shown.labels), _literals(column.labels), start, column)
        if column.default is None or shown.default is None:
            continue
        now, was = column.default.text or "", shown.default.text or ""
        if column.default.is_sql:
            for literal in filter(_BEYOND_UTF8MB3.search, _STRING.findall(now)):
                if literal not in create:  # MySQL shows four question marks for a character
                    create = _replaced(create, _BEYOND_UTF8MB3.sub("????", literal), literal, start, column)
        elif was != now and f"DEFAULT {_literals([was])}" in create[start : create.find("\n", start)]:
            create = _replaced(create, f"DEFAULT {_literals([was])}", f"DEFAULT {_literals([now])}", start, column)
    return create


def _replaced(text: str, was: str, now: str, start: int, column: Column) -> str:
    """``text`` with ``now`` for the first ``was`` in the line from ``start`` on."""
    at = text.find(was, start, text.find("\n", start))
    if not start or at < 0:
        raise SchemaError(
            f"SHOW CREATE TABLE has question marks for characters of four bytes of `{column.name}`, and not where they "
            f"were expected, as {was}: a follower would get another table. Nothing was announced to it. Create the "
            "table on the follower by hand, or leave it out of the snapshot."
        )
    return text[:at] + now + text[at + len(was) :]


def _literals(texts: Sequence[str]) -> str:
    """String literals as SHOW CREATE TABLE writes them in an empty sql_mode."""
    return ",".join("'" + "".join(_ESCAPED.get(c, c) for c in text) + "'" for text in texts)


_ESCAPED = {"'": "''", "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\0": "\\0", "\x1a": "\\Z"}


def _listed(text: str) -> str:
    """``text`` as `information_schema` lists it."""
    return _BEYOND_UTF8MB3.sub("?", text)


class _Exact:
    def __init__(self, session: Session, database: str, table: str) -> None:
        self._session, self._database, self._table = session, database, table
        self._name = f"{quoted(database)}.{quoted(table)}"
        self._shown: dict[str, Column] | None = None

    def columns(self, columns: Sequence[Column]) -> Iterator[Column]:
        for column in columns:
            if is_doubtful(column):
                if any("?" in label for label in column.labels):
                    column = replace(column, labels=self._labels(column))
                if column.default is not None and "?" in (column.default.text or ""):
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
                raise self._not_said(column, str(error)) from error
            for number in asked:
                if _listed(label := str(found.get(number))) != labels[number]:
                    raise self._not_said(column, f"it says that label {number + 1} is {label!r}")
                labels[number] = label
        return tuple(labels)

    def _query(self, column: Column, numbers: Sequence[int]) -> str:
        """A query of the number and text of labels."""
        stored = {number: f"1 << {number}" if column.data_type == "set" else f"{number} + 1" for number in numbers}
        if self._session.is_mariadb:  # in a recursive query its SETs have eight labels at most
            names = ", ".join(f"label_{number}" for number in numbers)
            values = " ".join(f"SET label_{number} = {value};" for number, value in stored.items())
            labels = " UNION ALL ".join(f"SELECT {number}, CONVERT(label_{number} USING utf8mb4)" for number in numbers)
            declared = f"DECLARE {names} TYPE OF {self._name}.{quoted(column.name)};"
            return f"BEGIN NOT ATOMIC {declared} {values} {labels}; END"
        asked = " UNION ALL ".join(f"SELECT {number} AS number, {value} AS value" for number, value in stored.items())
        return (
            "WITH RECURSIVE labels (number, label) AS ("
            f"SELECT -1, t.{quoted(column.name)} FROM (SELECT 1 AS one) AS one LEFT JOIN {self._name} AS t ON FALSE "
            f"UNION ALL SELECT asked.number, asked.value FROM labels JOIN ({asked}) AS asked ON labels.number = -1"
            ") SELECT number, CONVERT(label USING utf8mb4) FROM labels WHERE number >= 0"
        )

    def _default(self, column: Column, listed: Default) -> Default | None:
        text = listed.text or ""
        if column.labels:
            parts = [text] if column.data_type == "enum" else text.split(",")
            found = [[label for label in column.labels if _listed(label) == part] for part in parts]
            if all(len(labels) == 1 for labels in found):
                return Default(",".join(labels[0] for labels in found))
        if listed.is_sql or not self._session.is_mariadb:
            return self._shown_default(column, listed)
        return self._evaluated_default(column, text)

    def _shown_default(self, column: Column, listed: Default) -> Default | None:
        """The default of SHOW CREATE TABLE: of MySQL a literal by its bytes, of MariaDB an expression as it is."""
        if listed.is_sql and not self._session.is_mariadb:
            return listed  # MySQL lists all of it
        if self._shown is None:
            create = str(self._session.row(f"SHOW CREATE TABLE {self._name}")[1])
            tables = defined_schemas(create, Schemas(server=server_of(self._session))).tables.values()
            self._shown = {
                column.name: column for table in tables if isinstance(table, Table) for column in table.schema.columns
            }
        shown = self._shown.get(column.name)
        default = shown.default if shown is not None else None
        if default is not None and (held := _BYTES.fullmatch(default.text or "")):
            # Of a label that SHOW CREATE TABLE does not list so.
            default = Default(decoded(bytes.fromhex(held[1]), charset_of_name(column.collation or "")))
        if default is None or default.is_sql is not listed.is_sql:
            return None
        if listed.is_sql and "?" in (default.text or "") and self._session.version_number < _SHOWS_EXPRESSIONS:
            return None
        return default if listed.is_sql or _listed(default.text or "") == listed.text else None

    def _evaluated_default(self, column: Column, listed: str) -> Default | None:
        """The value of DEFAULT(), for which a column that is NOT NULL needs a row."""
        rows = f"{self._name} AS t"
        if column.nullable:
            rows = f"(SELECT 1 AS one) AS one LEFT JOIN {rows} ON FALSE"
        sql = f"SELECT CONVERT(DEFAULT(t.{quoted(column.name)}) USING utf8mb4) FROM {rows} LIMIT 1"
        try:
            found = self._session.rows(sql)
        except SourceError:
            return None
        return Default(str(found[0][0])) if found and _listed(str(found[0][0])) == listed else None

    def _not_said(self, column: Column, found: str) -> SchemaError:
        return SchemaError(
            f"labels of `{column.name}` of {self._database}.{self._table} have question marks in information_schema, "
            f"which may be characters of four bytes, and the server does not say which they are ({found}): their rows "
            "would have other values. GRANT the user SELECT on the table, and learn it again by `changefeed schema "
            f"PIPELINE --relearn {self._database}.{self._table}`; set binlog_row_metadata=FULL, so that rows come with "
            "their labels; or give its CREATE TABLE to `changefeed schema PIPELINE --define FILE.sql`"
        )
