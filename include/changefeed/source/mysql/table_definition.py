"""A table's definition from `information_schema`, in parts, in a normal form that can be compared between servers.

MySQL, MariaDB and their versions write the same definition differently: with display widths, utf8 for utf8mb3, quotes
around defaults, charset names before literals. Here each property has the server's own text and one normal form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, count, groupby
from typing import Any

from pymysql.cursors import DictCursor

from changefeed.ddl.expression_spelling import expression_spelling
from changefeed.errors import SourceError
from changefeed.model.identifier import quote_name
from changefeed.model.table_schema import Column, is_current_time
from changefeed.source.mysql.column_rows import column_fields, column_of
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.shown_create import shown_create

Row = Mapping[str, Any]

JSON = "json"
"""The normal form of JSON, which MariaDB lists as a text type with a check."""


@dataclass(frozen=True)
class Property:
    """A property of a table, in a normal form and as the server shows it.

    If the meaning is equal on two servers, ``normal`` is equal. ``shown`` is the server's own text. ``is_expression``:
    the property is SQL, which MySQL and MariaDB write differently.
    """

    normal: str
    shown: str
    is_expression: bool = False


def _same(value: object) -> Property:
    text = "" if value is None else str(value)
    return Property(text, text)


Part = Mapping[str, Property]
"""The properties of a part by name; the property '' describes the complete part in a line."""


@dataclass(frozen=True)
class TableDefinition:
    """A table's definition: its ``parts`` by kind and name, such as "table", "column `id`" or "index `PRIMARY`".

    ``next_number`` is the next AUTO_INCREMENT, None without such a column. ``triggers`` are not among the parts,
    because followers do not have the triggers of their source.
    """

    parts: Mapping[str, Part]
    next_number: int | None
    triggers: Part
    is_mariadb: bool
    version: tuple[int, int]
    shown: tuple[str, ...]
    """The lines of SHOW CREATE TABLE, with constraints last and without generated names.

    So they are equal on two servers of the same version. Empty if the server does not show them."""


_OF_TABLE = "table_schema = %s AND table_name = %s"
_COLUMNS = f"SELECT {{fields}} FROM information_schema.columns WHERE {_OF_TABLE} ORDER BY ordinal_position"
_INDEXES = f"SELECT * FROM information_schema.statistics WHERE {_OF_TABLE} ORDER BY index_name, seq_in_index"
_PARTITIONS = (
    f"SELECT * FROM information_schema.partitions WHERE {_OF_TABLE} AND partition_name IS NOT NULL "
    "ORDER BY partition_ordinal_position, subpartition_ordinal_position"
)
_TABLE = f"SELECT * FROM information_schema.tables WHERE {_OF_TABLE}"
_DATABASE = "SELECT default_collation_name FROM information_schema.schemata WHERE schema_name = %s"
_GENERATED = f"SELECT column_name, extra, generation_expression FROM information_schema.columns WHERE {_OF_TABLE}"
_KEYS = (
    f"SELECT * FROM information_schema.key_column_usage WHERE {_OF_TABLE} AND referenced_table_name IS NOT NULL "
    "ORDER BY constraint_name, ordinal_position"
)
_ACTION = "RESTRICT|CASCADE|SET NULL|SET DEFAULT|NO ACTION"
_RULES = re.compile(rf"\)(?: ON DELETE (?P<delete>{_ACTION}))?(?: ON UPDATE (?P<update>{_ACTION}))?,?")
"""The end of a foreign key in SHOW CREATE TABLE, which users who can read the table may see."""
_CHECKS = (
    "SELECT c.constraint_name, c.check_clause, t.enforced FROM information_schema.check_constraints c "
    "JOIN information_schema.table_constraints t USING (constraint_schema, constraint_name) "
    "WHERE t.constraint_type = 'CHECK' AND t.table_schema = %s AND t.table_name = %s"
)
_MARIADB_CHECKS = (
    "SELECT constraint_name, check_clause, 'YES' AS enforced, level FROM information_schema.check_constraints "
    "WHERE constraint_schema = %s AND table_name = %s"
)
_HAS_CHECKS = (
    "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'information_schema' "
    "AND table_name = 'CHECK_CONSTRAINTS'"
)
_TRIGGERS = (
    "SELECT trigger_name, action_timing, event_manipulation, action_statement FROM information_schema.triggers "
    "WHERE event_object_schema = %s AND event_object_table = %s ORDER BY action_order, trigger_name"
)
_SEQUENCE = "minimum_value, maximum_value, start_value, increment, cache_size, cycle_option"
"""The fields of a sequence's row that define the sequence."""


class DefinitionReader:
    """Reads definitions over one session.

    It changes a setting of the session: `information_schema` then shows current statistics instead of cached ones.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._checks = _MARIADB_CHECKS
        if not session.is_mariadb:
            if session.version_number >= (8, 0):
                session.rows("SET SESSION information_schema_stats_expiry = 0")  # otherwise up to a day old
            self._checks = _CHECKS if session.row(_HAS_CHECKS)[0] else ""

    def read(self, database: str, table: str) -> TableDefinition | None:
        """The definition of a table; None if there is no such table."""
        rows = self._rows(_TABLE, database, table)
        if not rows:
            return None
        (of_database,) = self._session.row(_DATABASE, rows[0]["table_schema"])
        parts: dict[str, Part] = {"table": self._table(rows[0])}
        default = _collation(of_database)  # the default for tables that later statements create
        parts["database"] = {"collation": Property(default.normal, default.shown, is_expression=True)}
        columns = self._columns(database, table)
        checks = self._rows(self._checks, database, table) if self._checks else []
        documents = {str(row["constraint_name"]) for row in checks if _is_of_document(row)}
        if rows[0]["table_type"] == "SEQUENCE":
            parts["sequence"] = self._sequence(database, table)
        names = [column.name for column, _, _ in columns]
        parts["columns"] = {"order": _same(", ".join(map(quote_name, names)))}
        for column, shown, more in columns:
            is_document = column.data_type == "json" or (column.data_type == "longtext" and column.name in documents)
            parts[f"column {quote_name(column.name)}"] = _column(column, shown, more, is_document=is_document)
        for name, of_index in groupby(self._rows(_INDEXES, database, table), lambda row: str(row["index_name"])):
            parts[f"index {quote_name(name)}"] = _index(list(of_index))
        is_view = rows[0]["table_type"] == "VIEW"  # the text of a view needs another privilege
        lines = [] if is_view else self._shown_lines(database, table)
        parts |= self._foreign_keys(database, table, lines)
        parts |= _checks(table, [row for row in checks if not _is_of_document(row)])
        parts |= _partitions(self._rows(_PARTITIONS, database, table))
        triggers = {str(row["trigger_name"]): _same(_trigger(row)) for row in self._rows(_TRIGGERS, database, table)}
        number = rows[0]["auto_increment"]
        counts = any(column.auto_increment for column, _, _ in columns)
        next_number = (1 if number is None else int(number)) if counts else None
        version, alike = self._session.version_number, _names_alike(table, lines)
        return TableDefinition(parts, next_number, triggers, self._session.is_mariadb, version, alike)

    def _rows(self, sql: str, database: str, table: str) -> list[Row]:
        """Rows by lower-case column names; the columns depend on the version."""
        with self._session.translate_errors(), self._session.raw.cursor(DictCursor) as cursor:
            cursor.execute(sql, (database, table))
            return [{name.lower(): value for name, value in row.items()} for row in cursor.fetchall()]

    def _shown_lines(self, database: str, table: str) -> list[str]:
        try:
            return shown_create(self._session, database, table).splitlines()
        except SourceError:  # it was dropped or renamed, or the user may read only some of its columns
            return []

    def _table(self, row: Row) -> Part:
        options = sorted(
            option
            for option in str(row["create_options"] or "").lower().replace("`", "").split()
            if option != "partitioned" and not option.startswith("row_format=")
        )
        return {
            "engine": _same(row["engine"]),
            "row format": _same(row["row_format"]),
            "collation": _collation(row["table_collation"]),
            "comment": _same(row["table_comment"]),
            "options": Property(" ".join(options), str(row["create_options"] or ""), is_expression=True),
        }

    def _sequence(self, database: str, table: str) -> Part:
        try:
            row = self._session.named_row(f"SELECT {_SEQUENCE} FROM {quote_name(database)}.{quote_name(table)}")
        except SourceError:  # the user may not SELECT it
            return {}
        return {name.replace("_", " "): _same(value) for name, value in row.items()}

    def _columns(self, database: str, table: str) -> list[tuple[Column, str, Row]]:
        """Each column, its default as the server lists it, and its row of the query _GENERATED."""
        fields = _COLUMNS.format(fields=column_fields(self._session))
        generated = {str(row["column_name"]): row for row in self._rows(_GENERATED, database, table)}
        listed = self._session.rows(fields, database, table)
        is_mariadb = self._session.is_mariadb
        return [
            (column, f"{row[2]}\0{'' if row[5] is None else row[5]}", generated[column.name])
            for row in listed
            for column in [column_of(row, is_mariadb=is_mariadb)]
        ]

    def _foreign_keys(self, database: str, table: str, lines: Sequence[str]) -> dict[str, Part]:
        keys = self._rows(_KEYS, database, table)
        parts: dict[str, Part] = {}
        for name, its in groupby(keys, lambda row: str(row["constraint_name"])):
            rows = list(its)
            columns = ", ".join(quote_name(str(row["column_name"])) for row in rows)
            other = ", ".join(quote_name(str(row["referenced_column_name"])) for row in rows)
            to = f"{quote_name(rows[0]['referenced_table_schema'])}.{quote_name(rows[0]['referenced_table_name'])}"
            begin = f"  CONSTRAINT {quote_name(name)} FOREIGN KEY ("
            line = next((line for line in lines if line.startswith(begin)), ")")
            rules = _RULES.fullmatch(line, line.rindex(")"))
            what = _further(parts, f"foreign key ({columns}) to {to} ({other})")
            parts[what] = {
                "name": _chosen_name(name, f"{table}_ibfk_", ""),
                "ON DELETE": _rule(rules and rules["delete"]),
                "ON UPDATE": _rule(rules and rules["update"]),
            }
        return parts


def _chosen_name(name: str, *begins: str) -> Property:
    """A constraint's name. The normal form of a generated name is empty.

    A generated name begins with one of ``begins`` and ends in a number.
    """
    return Property("" if _is_chosen(name, *begins) else name, name)


def _is_chosen(name: str, *begins: str) -> bool:
    return any(name.lower().startswith(begin.lower()) and name[len(begin) :].isdecimal() for begin in begins)


def _further(parts: Mapping[str, Part], what: str) -> str:
    """The key ``what``, with a number if ``parts`` already has this key.

    A table may have the same constraint several times."""
    numbered = (f"{what} #{number}" for number in count(2))
    return next(each for each in chain((what,), numbered) if each not in parts)


_NUMBER = re.compile(r" AUTO_INCREMENT=\d+")
_CONSTRAINT = re.compile(r"  CONSTRAINT `((?:[^`]|``)*)` ")


def _names_alike(table: str, lines: Sequence[str]) -> tuple[str, ...]:
    kept: list[str] = []
    constraints: list[str] = []
    for line in lines[1:]:
        plain = line.removesuffix(",")
        found = _CONSTRAINT.match(plain)
        if found is None:
            kept.append(_NUMBER.sub("", plain) if line.startswith(")") else plain)
        else:
            given = _is_chosen(found[1].replace("``", "`"), f"{table}_ibfk_", f"{table}_chk_", "CONSTRAINT_")
            constraints.append(plain[found.end() :] if given else plain)
    return (*kept, *sorted(constraints))


def _rule(rule: object) -> Property:
    shown = str(rule or "NO ACTION")  # a server omits its default: RESTRICT or NO ACTION, which mean the same
    return Property(shown.replace("RESTRICT", "NO ACTION"), shown)


def _collation(name: object) -> Property:
    shown = "" if name is None else str(name)
    return Property(re.sub(r"^utf8_", "utf8mb3_", shown), shown)


def _expression(sql: object) -> Property:
    shown = "" if sql is None else str(sql)
    return Property(_lower(expression_spelling(shown)) if shown else "", shown, is_expression=True)


_LITERAL = re.compile(r"('(?:[^'\\]|\\.?|'')*+(?:'|\Z))", re.DOTALL)


def _lower(sql: str) -> str:
    """``sql`` in lower case, except for quoted text."""
    return "".join(text if number % 2 else text.lower() for number, text in enumerate(_LITERAL.split(sql)))


# --- columns

_WIDTH = re.compile(r"\b(tinyint|smallint|mediumint|int|bigint|year)\(\d+\)")


def _column(column: Column, shown: str, more: Row, *, is_document: bool) -> Part:
    spelled, _, default = shown.partition("\0")
    extra = str(more["extra"] or "").upper()
    kind = next((kind for kind in ("VIRTUAL", "STORED") if f"{kind} GENERATED" in extra), "")
    kind = "STORED" if "PERSISTENT" in extra else kind
    updated = "ON UPDATE CURRENT_TIMESTAMP" if "ON UPDATE" in extra else ""
    known = column.default
    listed = "" if known is None or known.text is None else known.text
    if known is not None and known.is_sql and not is_current_time(known):
        default_of = Property(_lower(listed), default, is_expression=True)
    else:
        default_of = Property(f"={_of_bytes(listed, column)}" if known and known.text is not None else "", default)
    return {
        "type": Property(JSON if is_document else _type(spelled), spelled),
        "collation": Property("", column.collation or "") if is_document else _collation(column.collation),
        "NULL": _same("NULL" if column.nullable else "NOT NULL"),
        "default": default_of,
        "AUTO_INCREMENT": _same("AUTO_INCREMENT" if column.auto_increment else ""),
        "generated": Property(kind, kind),
        "generation expression": _expression(more["generation_expression"] if kind else None),
        "update": _same(updated),
        "visibility": _same("INVISIBLE" if "INVISIBLE" in extra else ""),
        "SRID": _same(column.srid),
        "comment": _same(column.comment),
    }


def _type(spelled: str) -> str:
    """A type without the display width of integers, which newer servers do not list."""
    name, quote, labels = spelled.partition("'")
    name = name.lower().replace("geomcollection", "geometrycollection")
    if "zerofill" not in name and not name.startswith("tinyint(1)"):
        name = _WIDTH.sub(r"\1", name)
    return name + quote + labels


def _of_bytes(listed: str, column: Column) -> str:
    """A default of bytes, up to the first zero byte, as newer MySQL versions list it. MySQL 5.7 lists it as text."""
    if column.data_type not in ("binary", "varbinary") or not listed:
        return listed
    is_hex = listed.startswith("0x")
    data = bytes.fromhex(listed[2:]) if is_hex else listed.encode()
    return "0x" + data.partition(b"\0")[0].hex().upper()


# --- other parts than columns


def _index(rows: Sequence[Row]) -> Part:
    parts = ", ".join(_index_part(row) for row in rows)
    first = rows[0]
    hidden = first.get("is_visible") == "NO" or first.get("ignored") == "YES"
    expressions = [str(row["expression"]) for row in rows if row.get("expression")]
    normal = ", ".join(_index_part(row, normal=True) for row in rows)
    return {
        "columns": Property(normal, parts, is_expression=bool(expressions)),
        "uniqueness": _same("" if int(first["non_unique"]) else "UNIQUE"),
        "type": _same(first["index_type"]),
        "visibility": _same("INVISIBLE" if hidden else ""),
        "comment": _same(first["index_comment"]),
    }


def _index_part(row: Row, *, normal: bool = False) -> str:
    expression = row.get("expression")
    if expression:
        name = f"({_lower(expression_spelling(str(expression))) if normal else expression})"
    else:
        name = quote_name(str(row["column_name"]))
    length = f"({row['sub_part']})" if row["sub_part"] and row["index_type"] != "SPATIAL" else ""
    return name + length + (" DESC" if row["collation"] == "D" else "")


def _is_of_document(row: Row) -> bool:
    """Whether the check is one that MariaDB created for a column of type JSON."""
    return (
        row.get("level") == "Column" and str(row["check_clause"]) == f"json_valid({quote_name(row['constraint_name'])})"
    )


def _checks(table: str, rows: Sequence[Row]) -> dict[str, Part]:
    parts: dict[str, Part] = {}
    for row in rows:
        name, clause = str(row["constraint_name"]), _expression(row["check_clause"])
        given = row.get("level") == "Column" or _is_chosen(name, f"{table}_chk_", "CONSTRAINT_")
        what = _further(parts, f"check {clause.normal}") if given else f"check {quote_name(name)}"
        parts[what] = {"clause": clause, "enforcement": _same("" if row["enforced"] == "YES" else "NOT ENFORCED")}
    return parts


def _partitions(rows: Sequence[Row]) -> dict[str, Part]:
    if not rows:
        return {}
    first = rows[0]
    by: dict[str, Property] = {}
    for level in ("partition", "subpartition"):
        by[f"{level} by"] = Property(_plain(first[f"{level}_method"]).lower(), str(first[f"{level}_method"] or ""))
        expression = _expression(first[f"{level}_expression"])
        by[f"{level} expression"] = Property(_plain(expression.normal), expression.shown, is_expression=True)
    parts: dict[str, Part] = {"partitioning": by}
    for name, its in groupby(rows, lambda row: str(row["partition_name"])):
        of_partition = list(its)
        below = ", ".join(str(row["subpartition_name"]) for row in of_partition if row["subpartition_name"])
        parts[f"partition {quote_name(name)}"] = {
            "number": _same(of_partition[0]["partition_ordinal_position"]),
            "values": _same(_plain(of_partition[0]["partition_description"])),
            "subpartitions": _same(below),
            "comment": _same(of_partition[0]["partition_comment"]),
        }
    return parts


def _plain(text: object) -> str:
    """``text`` without the quotes of names and without spaces; literals stay unchanged."""
    parts = _LITERAL.split("" if text is None else str(text))
    return "".join(part if number % 2 else re.sub(r"[`\s]+", "", part) for number, part in enumerate(parts))


def _trigger(row: Row) -> str:
    return f"{row['action_timing']} {row['event_manipulation']} {row['action_statement']}"
