"""What a table's columns are: what rendering a row needs and a MINIMAL TABLE_MAP leaves out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """One column as the server defines it.

    ``data_type`` is `information_schema.columns.data_type` in lower case ("bigint", "enum", "inet6"),
    ``collation`` the collation's name or None, ``labels`` those of ENUM and SET in order, ``srid`` that of a
    geometry column. An invisible or virtual-generated column stands in its place: the binlog has it if the
    table map has it.
    """

    name: str
    data_type: str
    unsigned: bool = False
    collation: str | None = None
    labels: tuple[str, ...] = ()
    srid: int | None = None


@dataclass(frozen=True)
class TableSchema:
    """A table's columns in the order of its rows, and the positions (from 0) of its primary key's columns,
    in the key's own order; empty where there is no primary key."""

    database: str
    table: str
    columns: tuple[Column, ...]
    primary_key: tuple[int, ...] = ()
