"""The row programs that a decoder has built, and what they are built from."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from changefeed.binlog.events import rewrite
from changefeed.binlog.events.framing import DamagedEvent, Fields
from changefeed.binlog.events.table_map import TableMap
from changefeed.binlog.programs.bound_table import BoundTable, bind, routed
from changefeed.binlog.programs.program import ProgramBuilder, WrittenRows
from changefeed.binlog.programs.program_memory import ProgramMemory
from changefeed.binlog.programs.topics import Topics, UnfinishedTable
from changefeed.errors import SchemaError
from changefeed.formats.by_table import all_formats, of_table
from changefeed.formats.format import RowFormat, joins_rows, transactions_of
from changefeed.model.column_rules import ALL_SHOWN, ColumnRules
from changefeed.model.route import Route, Router, SchemaLookup
from changefeed.model.table_schema import TableSchema

_ALL_OPS = frozenset("crud")


class Programs:
    """Programs by table map, kept from slice to slice; those of table maps without names only until `forget`.

    ``row_format`` is a `RowTransformer`'s; ``transactions`` is where the format's records of transactions go, None for
    a decoder that makes none. ``compared_as`` is that of `KernelDecoder`.
    """

    def __init__(
        self,
        router: Router,
        schema_lookup: SchemaLookup,
        format: RowFormat,
        columns: ColumnRules,
        snapshot: str,
        row_format: Callable[[str, str], RowFormat | None] = lambda _database, _table: None,
        transactions: Route | None = None,
        compared_as: WrittenRows | None = None,
    ) -> None:
        self._compared_as = compared_as
        self.router = router
        self.schema_lookup = schema_lookup
        self.with_other_names: Callable[[TableSchema], TableSchema] = lambda table: table
        """Adds the names that columns have in other definitions, to a table that lacks one that the settings name."""
        self.columns = columns
        self.notations = [each.notation for each in all_formats(format)]
        self.joins_rows = any(map(joins_rows, all_formats(format)))
        self.snapshot = snapshot
        self._row_format = row_format
        self.memory = ProgramMemory()
        self.topics = Topics()
        self.counters: dict[str, int] = {}
        """By "database.table" the number of its row counters."""
        self.unordered: set[str] = set()
        """"database.table" of MySQL's tables without a primary key: a replica finds their rows by a hash of each event
        (HASH_SCAN), and logs what an UPDATE or DELETE changed in another order than its source."""
        self.types: dict[int, list[int]] = {}
        """Column types by program."""
        self.bound: dict[str, tuple[BoundTable, int]] = {}
        """By "database.table" what was bound last, and its program."""
        self._needs_definitions = format.needs_definitions
        self._format = format
        records = transactions_of(format)
        self.ordered = records is not None
        """Whether messages are numbered by transaction."""
        self.transaction_records = -1
        """Address of what writes the records of transactions; -1 for none."""
        if records is not None and transactions is not None:
            group = self.topics.group_of(transactions.topic, transactions.partitions)
            self.transaction_records = self._builder(format).transactions(records, group, transactions.partitions)
        self._named: dict[bytes, int] = {}
        self._nameless: dict[bytes, int] = {}
        self._asked_schemas = False

    def of_event(self, body: bytes, *, is_mariadb: bool) -> int:
        """`of` a TABLE_MAP event with these bytes between header and checksum.

        One that cannot be read, or whose table's rows cannot, stops nobody where the table is not captured: its rows
        are passed over. Raises as `of` and `TableMap.parse` otherwise.
        """
        try:
            return self.of(TableMap.parse(body, is_mariadb), body[6:], is_mariadb=is_mariadb)
        except (DamagedEvent, SchemaError):
            _, database, name = TableMap.names(Fields(body))
            if self.router(database, name) is not None:
                raise
            return self._nameless.setdefault(body[6:], self._builder(self._format).passed_over())

    def of(self, table_map: TableMap, body: bytes, *, is_mariadb: bool) -> int:
        """Address of the header of the table whose TABLE_MAP has these bytes; its programs are built at the first call.

        Raises SchemaError where the table's columns are not known, SettingsError for a column rule or a key that it
        cannot have.
        """
        known = self._named if table_map.has_names and not self._needs_definitions else self._nameless
        table = known.get(body)
        if table is None:
            table = known[body] = self._build(table_map, is_mariadb)
        return table

    def forget(self) -> None:
        """A table map without names may mean other columns from here on, even if its bytes are the same; and whatever
        columns it means may have other definitions."""
        self._nameless.clear()

    @property
    def are_lasting(self) -> bool:
        """Whether all programs follow from the bytes of their table maps alone, wherever these stand in a window."""
        return not self._nameless and not self._asked_schemas

    def _schema(self, database: str, table: str) -> TableSchema | None:
        self._asked_schemas = True
        return self.schema_lookup(database, table)

    def _build(self, table_map: TableMap, is_mariadb: bool) -> int:
        database, name = table_map.database, table_map.table
        route = self.router(database, name)
        schema = None
        if route is not None and not table_map.has_names:
            schema = self._schema(database, name)
        elif route is not None and (is_mariadb or self._needs_definitions):
            # MariaDB's metadata leaves out which BINARY is a UUID or an INET, MySQL's defaults and lengths.
            with suppress(SchemaError):  # FULL metadata speaks for itself
                schema = self._schema(database, name)
        if route is not None and schema is not None and not schema.is_published:
            route = Route(route.topic, route.partitions, skipped=_ALL_OPS)
        table = bind(table_map, schema, is_mariadb=is_mariadb)
        if not is_mariadb and not table.schema.primary_key:
            self.unordered.add(f"{database}.{name}")
        if route is not None:
            if route.lacking_in(table.schema):
                self._asked_schemas = True  # what the names are is said by where the table map stands
                table = replace(table, schema=self.with_other_names(table.schema))
            table = routed(table, route, by_server=table_map.has_names)
        compared_as = self._compared_as and (of_table(self._compared_as[0], database, name), self._compared_as[1])
        builder, group = self._builder(of_table(self._format, database, name), compared_as), 0
        unfinished = self._row_format(database, name) if route is not None else None
        if route is not None and unfinished is not None:
            builder = ProgramBuilder(self.memory, unfinished, ALL_SHOWN, self.snapshot)
            group = self.topics.unfinished_group(UnfinishedTable(table.schema, route))
            route = replace(route, partitions=1, partition_by="key", unchanged_skipped=False)
        elif route is not None:
            group = self.topics.group_of(route.topic, route.partitions)
        counter = self.counters.setdefault(f"{database}.{name}", len(self.counters))
        foreign_keys = 0 if unfinished is not None else 1 + table_map.is_referenced
        header = builder.table(table, route, group, counter, rewrite.is_needed(table_map), foreign_keys)
        self.types[header] = [column.type for column in table_map.columns]
        self.bound[f"{database}.{name}"] = (table, header)
        return header

    def _builder(self, format: RowFormat, compared_as: WrittenRows | None = None) -> ProgramBuilder:
        return ProgramBuilder(self.memory, format, self.columns, self.snapshot, compared_as=compared_as)
