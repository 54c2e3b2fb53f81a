"""The row programs of a decoder, built on demand."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from changefeed.binlog.events import rewrite
from changefeed.binlog.events.framing import DamagedEvent, Fields
from changefeed.binlog.events.table_map import TableMap
from changefeed.binlog.programs.bound_table import BoundTable, apply_route, bind
from changefeed.binlog.programs.frozen_schema import check_fits, check_unchanged
from changefeed.binlog.programs.program import ProgramBuilder, WrittenRows
from changefeed.binlog.programs.program_memory import ProgramMemory
from changefeed.binlog.programs.topics import Topics, UnfinishedTable
from changefeed.errors import SchemaError, SettingsError
from changefeed.formats.by_table import all_formats, of_table
from changefeed.formats.format import RowFormat, joins_rows, transactions_of
from changefeed.model.column_rules import ALL_SHOWN, ColumnRules
from changefeed.model.route import Route, Router, SchemaLookup
from changefeed.model.table_schema import TableSchema

_ALL_OPS = frozenset("crud")


class Programs:
    """The row programs of a decoder, by table map.

    All slices of the decoder use them; programs for table maps without names are used only until `forget` is called.

    ``row_format`` is a method of `RowTransformer`. ``transactions`` is the route of the format's transaction records,
    or None for a decoder without them. ``compared_as`` is as in `KernelDecoder`.
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
        """Adds earlier and later names of the columns to a schema, if a name in the settings is missing there."""
        self.is_frozen = False
        """Whether a table map that contradicts the schema of `schema_lookup` is an error."""
        self.columns = columns
        self.notations = [each.notation for each in all_formats(format)]
        self.joins_rows = any(map(joins_rows, all_formats(format)))
        self.snapshot = snapshot
        self._row_format = row_format
        self.memory = ProgramMemory()
        self.topics = Topics()
        self.counters: dict[str, int] = {}
        """The number of a table's row counters, by "database.table"."""
        self.unordered: set[str] = set()
        """The "database.table" of each table of MySQL without a primary key.

        A replica finds the rows of such a table by a hash of each event (HASH_SCAN), so it logs the changes of an
        UPDATE or DELETE in another order than its source."""
        self.types: dict[int, list[int]] = {}
        """The types of a table's columns, by the address of its header."""
        self.bound: dict[str, tuple[BoundTable, int]] = {}
        """The last bound table and the address of its header, by "database.table"."""
        self._needs_definitions = format.needs_definitions
        self._format = format
        records = transactions_of(format)
        self.ordered = records is not None
        """Whether messages are numbered by transaction."""
        self.transaction_records = -1
        """Address of the table header for transaction records; -1 for none."""
        if records is not None and transactions is not None:
            group = self.topics.group_of(transactions.topic, transactions.partitions)
            self.transaction_records = self._builder(format).transactions(records, group, transactions.partitions)
        self._named: dict[bytes, int] = {}
        self._nameless: dict[bytes, int] = {}
        self._asked_schemas = False

    def of_event(self, body: bytes, *, is_mariadb: bool) -> int:
        """The address of a table's header, as `of`, for the bytes of a TABLE_MAP event between header and checksum.

        If a table is not captured and its TABLE_MAP or rows cannot be read, its rows are skipped. Otherwise raises as
        `of` and `TableMap.parse`.
        """
        try:
            return self.of(TableMap.parse(body, is_mariadb), body[6:], is_mariadb=is_mariadb)
        except (DamagedEvent, SchemaError):
            _, database, name = TableMap.names(Fields(body))
            if self.router(database, name) is not None:
                raise
            return self._nameless.setdefault(body[6:], self._builder(self._format).skipped_table())

    def of(self, table_map: TableMap, body: bytes, *, is_mariadb: bool) -> int:
        """The address of a table's header, whose programs are built at the first call with these bytes of a TABLE_MAP.

        Raises SchemaError if the table's columns are not known, SettingsError for a column rule or a key that it
        cannot have.
        """
        known = self._named if table_map.has_names and not self._needs_definitions else self._nameless
        table = known.get(body)
        if table is None:
            try:
                table = known[body] = self._build(table_map, is_mariadb)
            except SchemaError as error:
                error.of_tables(f"{table_map.database}.{table_map.table}")
                raise
        return table

    def forget(self) -> None:
        """Drop the programs of table maps without names: after a statement the same bytes may mean other columns."""
        self._nameless.clear()

    @property
    def are_lasting(self) -> bool:
        """Whether all programs depend only on the bytes of their table maps, at any position."""
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
            # MariaDB's metadata does not say which BINARY is a UUID or an INET. MySQL's has no defaults and lengths.
            with suppress(SchemaError):  # FULL metadata needs no schema
                schema = self._schema(database, name)
        if route is not None and schema is not None and not schema.is_published:
            route = Route(route.topic, route.partitions, skipped=_ALL_OPS)
        frozen = None
        if route is not None and self.is_frozen:  # a frozen schema does not depend on the position
            frozen = check_fits(table_map, schema or self.schema_lookup(database, name), is_mariadb=is_mariadb)
        table = bind(table_map, schema, is_mariadb=is_mariadb)
        if frozen is not None:
            check_unchanged(table_map, table, frozen, is_mariadb=is_mariadb)
        if not is_mariadb and not table.schema.primary_key:
            self.unordered.add(f"{database}.{name}")
        if route is not None:
            if route.missing_columns(table.schema):
                self._asked_schemas = True  # the names depend on the position of the table map
                table = replace(table, schema=self.with_other_names(table.schema))
            try:
                table = apply_route(table, route, by_server=table_map.has_names)
            except SettingsError as error:
                error.of_tables(f"{database}.{name}")
                raise
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
