"""check: compares a pipeline with its source: settings, tables, columns, keys, and unlogged changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

from changefeed.ddl.schemas import Entry
from changefeed.ddl.table import Table, UnknownTable
from changefeed.errors import ChangefeedError, SettingsError, SourceError, SourceUnavailableError, did_you_mean
from changefeed.model.table_pattern import matcher, matches
from changefeed.model.table_schema import TableSchema
from changefeed.operations.finding import Finding, fail, ok, warn
from changefeed.operations.source_warnings import source_warnings
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.rights import known_tables, missing_rights
from changefeed.pipeline.topics import table_topics
from changefeed.settings.pipeline import Pipeline
from changefeed.source.mysql import source
from changefeed.source.mysql.catalog import table_names
from changefeed.source.mysql.preflight import preflight
from changefeed.source.mysql.server_schemas import current_schemas
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.side_effects import (
    cascading_keys,
    hashed_tables,
    keys_to_others,
    logs_cascades,
    virtual_columns,
)
from changefeed.transforms.loading import Transform


@dataclass(frozen=True)
class SourceContext:
    """A pipeline and a session with its source."""

    connections: PipelineConnections
    session: Session
    import_functions: bool = True
    """Whether the pipeline's functions are imported to check them."""

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline."""
        return self.connections.pipeline

    @cached_property
    def tables(self) -> list[TableSchema]:
        """The current schemas of the captured tables."""
        return [entry.schema for entry in self._entries if isinstance(entry, Table)]

    @property
    def unknown(self) -> list[UnknownTable]:
        """The captured tables whose columns are not known."""
        return [entry for entry in self._entries if isinstance(entry, UnknownTable)]

    @cached_property
    def _entries(self) -> list[Entry]:
        known = current_schemas(self.session).tables.items()
        captured = self.pipeline.tables.matches
        return [
            entry
            for name, entry in known
            if captured(*((entry.schema.database, entry.schema.table) if isinstance(entry, Table) else name))
        ]

    @property
    def server_names_keys(self) -> bool:
        """Whether row events have column names and keys. In them, a unique key may be marked as the primary key."""
        return source.logs_column_names(self.session)


SourcePart = Callable[[SourceContext], Iterator[Finding]]


def check_source(context: SourceContext) -> Iterator[Finding]:
    """Yield the findings about the source. Raises if a run could not read the source at all."""
    preflight(context.session, statements=context.pipeline.statements)
    for part in SOURCE_PARTS:
        try:
            yield from part(context)
        except SourceUnavailableError:
            raise
        except ChangefeedError as error:
            yield fail(error)


def _head(context: SourceContext) -> Iterator[Finding]:
    session = context.session
    yield ok(f"source {session.connection}: {session.version}, head {source.head(session).coordinates}")


def _tables(context: SourceContext) -> Iterator[Finding]:
    topics = table_topics(context.pipeline, context.session)
    yield ok(f"{len(topics)} tables: {', '.join(f'{database}.{table}' for database, table in topics) or 'none yet'}")


def _rights(context: SourceContext) -> Iterator[Finding]:
    """Report captured tables with columns that the user may not read."""
    known: list[tuple[str, str]] = []
    with suppress(ChangefeedError):  # an unreachable cluster has its own finding
        known = known_tables(context.connections)
    yield from map(_source_failure, missing_rights(context.connections, context.session, known).values())


def _versioned_tables(context: SourceContext) -> Iterator[Finding]:
    """Report tables whose changes MariaDB always logs as statements."""
    tables = [f"{table.database}.{table.table}" for table in context.tables if table.versioned_by_transaction]
    if tables and context.pipeline.statements == "fail":
        yield _settings_failure(
            f"{', '.join(tables)}: versioned by transactions (ROW START and ROW END are BIGINT). MariaDB logs changes "
            "of such a table as statements, whatever binlog_format is, and the first one stops the run: make these "
            "columns TIMESTAMP(6), put the table into `tables.exclude`, or choose what `statements` does"
        )


def _undescribed_tables(context: SourceContext) -> Iterator[Finding]:
    """Report tables whose columns are not known exactly enough to read their rows."""
    for table in context.unknown:
        text = f"what columns {table.name.database}.{table.name.table} has is not known: {table.problem}"
        yield warn(text) if context.server_names_keys else _settings_failure(text)


def _warnings(context: SourceContext) -> Iterator[Finding]:
    yield from map(warn, source_warnings(context.pipeline, context.session, context.tables))


def _row_image(context: SourceContext) -> Iterator[Finding]:
    pipeline, routes = context.pipeline, context.connections.routes
    row_image = context.session.variable("binlog_row_image")
    for choice in routes.formats:
        if row_image == "FULL" or routes.build_format(choice).notation.binary is None:
            continue
        yield _settings_failure(
            f"expected binlog_row_image 'FULL', as format {choice.name!r} cannot leave a column out, found "
            f"{row_image!r}: the first row without all columns stops the run. SET GLOBAL binlog_row_image = 'FULL' "
            "(open sessions keep theirs until they reconnect)"
        )
    if routes.has_key_rules and row_image != "FULL":
        yield _settings_failure(
            f"expected binlog_row_image 'FULL', as pipeline {pipeline.name!r} chooses columns of keys by `keys` or "
            f"`keyless`, found {row_image!r}: the first row without these columns stops the run. SET GLOBAL "
            "binlog_row_image = 'FULL' (open sessions keep theirs until they reconnect)"
        )


def _unlogged_changes(context: SourceContext) -> Iterator[Finding]:
    """Warn of changes that the server does not write to the binlog, and of hidden columns that it does write."""
    session, captured = context.session, context.pipeline.tables.matches
    cascading = [] if logs_cascades(session) else list(cascading_keys(session, captured))
    if cascading:
        tables = "; ".join(f"{name.database}.{name.table} ({key})" for name, key in cascading)
        yield warn(
            f"{len(cascading)} foreign keys change rows of captured tables, and this server does not write these "
            f"changes to its binlog: {tables}. Changes of child rows by a DELETE or UPDATE of the parent are not "
            "published. MySQL 9.6 and later log such rows; with other servers let the application, not the key, change "
            "the children, or exclude the tables"
        )
    virtual = [f"{name.database}.{name.table}.{column}" for name, column in virtual_columns(session, captured)]
    if virtual:
        yield warn(
            f"{len(virtual)} virtual columns: {', '.join(virtual)}; MySQL may log an older value of such a column, or "
            "none, where a statement does not need it. Make those that matter STORED, or leave them out with "
            "columns.exclude"
        )
    hashed = [f"{name.database}.{name.table}" for name in hashed_tables(session, captured)]
    if hashed:
        yield warn(
            f"{len(hashed)} tables with a UNIQUE key that is too long for an index: {', '.join(hashed)}; their records "
            "have the server's hidden column DB_ROW_HASH_1 (and _2 ...), which columns.exclude leaves out"
        )


def _followers(context: SourceContext) -> Iterator[Finding]:
    """Report keys and labels that stop a follower of the pipeline at the first row or DDL of a table."""
    if not context.pipeline.followers:
        return
    for table, key, parent in keys_to_others(context.session, context.pipeline.tables.matches):
        yield _source_failure(
            f"foreign key {key!r} of {'.'.join(table)} refers to {'.'.join(parent)}, which the pipeline does not "
            "capture: followers do not have that table, and stop at the DDL of the key. Capture that table too "
            "(`tables.include`), drop the key, or leave out the table that has it (`tables.exclude`)"
        )
    labelled = [
        f"{table.database}.{table.table}.{column.name}"
        for table in context.tables
        for column in table.columns
        if "" in column.labels
    ]
    if labelled:
        yield _source_failure(
            f"{len(labelled)} ENUM and SET columns with the label '': {', '.join(labelled)}; records have it as the "
            "invalid value 0 and as the empty set, so followers stop at the first row with either. Give it another "
            "label (ALTER TABLE … MODIFY), or leave out the table (`tables.exclude`)"
        )


def _keys(context: SourceContext) -> Iterator[Finding]:
    """Report tables without a primary key, the keys of their messages, and errors in `keys`."""
    pipeline, tables, server_names_keys = context.pipeline, context.tables, context.server_names_keys
    without, with_key = [], []
    for table in tables:
        name = f"{table.database}.{table.table}"
        try:
            rule = context.connections.routes.key_rule(table.database, table.table)
            rule = rule.for_full_metadata() if server_names_keys else rule
            key = ", ".join(table.columns[position].name for position in rule.keyed_table(table).primary_key)
        except ChangefeedError as error:
            yield fail(error)
            continue
        if not key:
            without.append(name)
        elif rule.columns or not table.primary_key:
            with_key.append(f"{name} ({key})")
    if with_key:
        yield ok(f"{len(with_key)} tables with a key other than their primary key: {'; '.join(with_key)}")
    if without:
        yield warn(
            f"{len(without)} tables without a key: {', '.join(without)}; their records have a null key and are spread "
            "over the partitions, so changes of one row may overtake each other: `keys` and `keyless` give them a key"
        )
    for pattern in pipeline.keys:
        if not any(matches(pattern, table.database, table.table) for table in tables):
            yield _settings_failure(
                f"{pattern!r} in keys of pipeline {pipeline.name!r} matches no table that it captures: what it was "
                "meant for has another key. Correct the pattern, or leave it out."
            )


def _patterns(context: SourceContext) -> Iterator[Finding]:
    """Report patterns of `tables.include` that match no table. A run would not fail, but capture the table later."""
    pipeline = context.pipeline
    tables = [f"{database}.{table}" for database, table in table_names(context.session)]
    for pattern in pipeline.tables.include:
        if not any(matcher(pattern).fullmatch(table) for table in tables):
            yield _settings_failure(
                f"tables.include of pipeline {pipeline.name!r} has {pattern!r}, and no table of the source that its "
                f"user may see matches it{did_you_mean(pattern, tables)}: nothing is published of it. Correct "
                "the pattern, GRANT the user SELECT there, or check again when the table is made."
            )


def _transforms(context: SourceContext) -> Iterator[Finding]:
    """Report whether the pipeline's functions can be imported, and the tables of each function."""
    connections, tables = context.connections, context.tables
    for call in connections.transform_calls:
        if context.import_functions:
            Transform.of(call)
        names = sorted(f"{each.database}.{each.table}" for each in tables if call.matches(each.database, each.table))
        if names:
            yield ok(f"transform {call.source.name} gets the changes of {', '.join(names)}")
        else:
            yield _settings_failure(
                f"{call.pattern!r} of transform {call.source.name!r} of pipeline {connections.pipeline.name!r} matches "
                "no table that it captures: what the function was meant for is published as it is. Correct the "
                "pattern, or check again when the table is made."
            )


def _column_rules(context: SourceContext) -> Iterator[Finding]:
    """Report the effect of the pipeline's column rules on the current tables."""
    pipeline, rules, tables = context.pipeline, context.connections.column_rules, context.tables
    routes = context.connections.routes
    if not rules.rules:
        return
    keyed_table = [routes.key_rule(table.database, table.table).keyed_table(table) for table in tables]
    columns = {
        f"{table.database}.{table.table}.{table.columns[index].name}"
        for table in keyed_table
        for index in rules.of(table)
    }
    yield ok(f"{len(columns)} columns left out or masked: {', '.join(sorted(columns)) or 'none'}")
    for rule in rules.rules:
        if not any(
            rule.covers(table.database, table.table, column.name) for table in tables for column in table.columns
        ):
            yield _settings_failure(
                f"{rule.pattern!r} in {rule.setting} of pipeline {pipeline.name!r} matches no column of its tables: "
                "what it was meant for is published as it is. Correct the pattern, or leave it out."
            )


def _filters(context: SourceContext) -> Iterator[Finding]:
    """Report tables that do not have the columns that `rows` and `partition_by` use."""
    for table in context.tables:
        found = context.connections.routes.of(table.database, table.table)
        if found is None:
            continue
        try:
            table_for_formats = found.route.table_for_formats(table)
            found.route.partition_columns(table_for_formats)
            if found.route.rows is not None:
                found.route.rows.check_columns(table_for_formats)
        except ChangefeedError as error:
            yield fail(error)


def _source_failure(text: str) -> Finding:
    return fail(SourceError(text))


def _settings_failure(text: str) -> Finding:
    return fail(SettingsError(text))


SOURCE_PARTS: tuple[SourcePart, ...] = (
    _head,
    _tables,
    _patterns,
    _rights,
    _column_rules,
    _transforms,
    _keys,
    _filters,
    _unlogged_changes,
    _followers,
    _versioned_tables,
    _undescribed_tables,
    _row_image,
    _warnings,
)
