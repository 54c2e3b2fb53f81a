"""check: what the source says of a pipeline: its settings, tables, columns, keys, and what its binlog leaves out."""

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
class CheckedSource:
    """A pipeline and a session with its source."""

    connections: PipelineConnections
    session: Session

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline."""
        return self.connections.pipeline

    @cached_property
    def tables(self) -> list[TableSchema]:
        """The captured tables, as they are now."""
        return [entry.schema for entry in self._entries if isinstance(entry, Table)]

    @property
    def unknown(self) -> list[UnknownTable]:
        """The captured tables whose columns the server does not say."""
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
        """Whether rows come with the names of their columns, in which a unique key may pass for a primary key."""
        return source.names_come_along(self.session)


SourcePart = Callable[[CheckedSource], Iterator[Finding]]


def check_source(checked: CheckedSource) -> Iterator[Finding]:
    """What the source says of the pipeline. Raises where a run cannot read it at all."""
    preflight(checked.session, statements=checked.pipeline.statements)
    for part in SOURCE_PARTS:
        try:
            yield from part(checked)
        except SourceUnavailableError:
            raise
        except ChangefeedError as error:
            yield fail(error)


def _head(checked: CheckedSource) -> Iterator[Finding]:
    session = checked.session
    yield ok(f"source {session.connection}: {session.version}, head {source.head(session).coordinates}")


def _tables(checked: CheckedSource) -> Iterator[Finding]:
    topics = table_topics(checked.pipeline, checked.session)
    yield ok(f"{len(topics)} tables: {', '.join(f'{database}.{table}' for database, table in topics) or 'none yet'}")


def _rights(checked: CheckedSource) -> Iterator[Finding]:
    """Captured tables that the user may not read, or not all of whose columns."""
    known: list[tuple[str, str]] = []
    with suppress(ChangefeedError):  # a cluster that is away has a line of its own
        known = known_tables(checked.connections)
    yield from map(_source_wrong, missing_rights(checked.connections, checked.session, known).values())


def _versioned(checked: CheckedSource) -> Iterator[Finding]:
    """Tables whose changes MariaDB always logs as statements."""
    tables = [f"{table.database}.{table.table}" for table in checked.tables if table.versioned_by_transaction]
    if tables and checked.pipeline.statements == "fail":
        yield _wrong(
            f"{', '.join(tables)}: versioned by transactions (ROW START and ROW END are BIGINT). MariaDB logs changes "
            "of such a table as statements, whatever binlog_format is, and the first one stops the run: make these "
            "columns TIMESTAMP(6), put the table into `tables.exclude`, or choose what `statements` does"
        )


def _unlearned(checked: CheckedSource) -> Iterator[Finding]:
    """Which tables the server does not describe exactly enough to read their rows."""
    for table in checked.unknown:
        text = f"what columns {table.name.database}.{table.name.table} has is not known: {table.problem}"
        yield warn(text) if checked.server_names_keys else _wrong(text)


def _warnings(checked: CheckedSource) -> Iterator[Finding]:
    yield from map(warn, source_warnings(checked.pipeline, checked.session, checked.tables))


def _row_image(checked: CheckedSource) -> Iterator[Finding]:
    pipeline, routes = checked.pipeline, checked.connections.routes
    row_image = checked.session.variable("binlog_row_image")
    for choice in routes.formats:
        if row_image == "FULL" or routes.made(choice).notation.binary is None:
            continue
        yield _wrong(
            f"format {choice.name!r} cannot leave a column out, and binlog_row_image is {row_image!r}, wanted "
            "'FULL': the first row without all columns stops the run. SET GLOBAL binlog_row_image = 'FULL' (open "
            "sessions keep theirs until they reconnect)"
        )
    if routes.chooses_keys and row_image != "FULL":
        yield _wrong(
            f"pipeline {pipeline.name!r} chooses columns of keys by `keys` or `keyless`, and binlog_row_image is "
            f"{row_image!r}, wanted 'FULL': rows are logged without them, and the first such row stops the run. SET "
            "GLOBAL binlog_row_image = 'FULL' (open sessions keep theirs until they reconnect)"
        )


def _unlogged(checked: CheckedSource) -> Iterator[Finding]:
    """Which tables change without a word in the binlog, and which have columns there that no definition shows."""
    session, captured = checked.session, checked.pipeline.tables.matches
    cascading = [] if logs_cascades(session) else list(cascading_keys(session, captured))
    if cascading:
        tables = "; ".join(f"{name.database}.{name.table} ({key})" for name, key in cascading)
        yield warn(
            f"{len(cascading)} foreign keys change rows of captured tables, and this server writes nothing of that "
            f"into its binlog: {tables}. What a DELETE or UPDATE of a parent does to its children is not published. "
            "MySQL 9.6 and later log such rows; elsewhere let the application, not the key, change the children, or "
            "exclude the tables"
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


def _followed(checked: CheckedSource) -> Iterator[Finding]:
    """What stops a follower of the pipeline at the first row or definition of a table."""
    if not checked.pipeline.followers:
        return
    for table, key, parent in keys_to_others(checked.session, checked.pipeline.tables.matches):
        yield _source_wrong(
            f"foreign key {key!r} of {'.'.join(table)} refers to {'.'.join(parent)}, which the pipeline does not "
            "capture: followers have no such table, and stop where the key is made. Capture that table too "
            "(`tables.include`), drop the key, or leave out the table that has it (`tables.exclude`)"
        )
    labelled = [
        f"{table.database}.{table.table}.{column.name}"
        for table in checked.tables
        for column in table.columns
        if "" in column.labels
    ]
    if labelled:
        yield _source_wrong(
            f"{len(labelled)} ENUM and SET columns with the label '': {', '.join(labelled)}; records have it as the "
            "invalid value 0 and as the empty set, so followers stop at the first row with either. Give it another "
            "label (ALTER TABLE … MODIFY), or leave out the table (`tables.exclude`)"
        )


def _keys(checked: CheckedSource) -> Iterator[Finding]:
    """Which tables have no primary key, what is the key of their messages, and what is wrong with chosen columns."""
    pipeline, tables, server_names_keys = checked.pipeline, checked.tables, checked.server_names_keys
    without, with_key = [], []
    for table in tables:
        name = f"{table.database}.{table.table}"
        try:
            rule = checked.connections.routes.key_rule(table.database, table.table)
            rule = rule.as_logged() if server_names_keys else rule
            key = ", ".join(table.columns[position].name for position in rule.keyed(table).primary_key)
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
            yield _wrong(
                f"{pattern!r} in keys of pipeline {pipeline.name!r} matches no table that it captures: what it was "
                "meant for has another key. Correct the pattern, or leave it out."
            )


def _patterns(checked: CheckedSource) -> Iterator[Finding]:
    """A run goes on without such a table, and takes it when it is there: only here it is wrong."""
    pipeline = checked.pipeline
    tables = [f"{database}.{table}" for database, table in table_names(checked.session)]
    for pattern in pipeline.tables.include:
        if not any(matcher(pattern).fullmatch(table) for table in tables):
            yield _wrong(
                f"tables.include of pipeline {pipeline.name!r} has {pattern!r}, and no table of the source that its "
                f"user may see matches it{did_you_mean(pattern, tables)}: nothing is published of it. Correct "
                "the pattern, GRANT the user SELECT there, or check again when the table is made."
            )


def _transforms(checked: CheckedSource) -> Iterator[Finding]:
    """That the pipeline's functions can be imported here, and which tables' changes each gets."""
    connections, tables = checked.connections, checked.tables
    for call in connections.transform_calls:
        Transform.of(call)
        names = sorted(f"{each.database}.{each.table}" for each in tables if call.takes(each.database, each.table))
        if names:
            yield ok(f"transform {call.source.name} gets the changes of {', '.join(names)}")
        else:
            yield _wrong(
                f"{call.pattern!r} of transform {call.source.name!r} of pipeline {connections.pipeline.name!r} matches "
                "no table that it captures: what the function was meant for is published as it is. Correct the "
                "pattern, or check again when the table is made."
            )


def _column_rules(checked: CheckedSource) -> Iterator[Finding]:
    """What the pipeline's column rules do to the tables that are there now."""
    pipeline, rules, tables = checked.pipeline, checked.connections.column_rules, checked.tables
    routes = checked.connections.routes
    if not rules.rules:
        return
    keyed = [routes.key_rule(table.database, table.table).keyed(table) for table in tables]
    columns = {
        f"{table.database}.{table.table}.{table.columns[index].name}" for table in keyed for index in rules.of(table)
    }
    yield ok(f"{len(columns)} columns left out or masked: {', '.join(sorted(columns)) or 'none'}")
    for rule in rules.rules:
        if not any(
            rule.covers(table.database, table.table, column.name) for table in tables for column in table.columns
        ):
            yield _wrong(
                f"{rule.pattern!r} in {rule.setting} of pipeline {pipeline.name!r} matches no column of its tables: "
                "what it was meant for is published as it is. Correct the pattern, or leave it out."
            )


def _filters(checked: CheckedSource) -> Iterator[Finding]:
    """That tables have the columns that `rows` compares, and that their partition follows from."""
    for table in checked.tables:
        found = checked.connections.routes.of(table.database, table.table)
        if found is None:
            continue
        try:
            seen = found.route.seen(table)
            found.route.partition_columns(seen)
            if found.route.rows is not None:
                found.route.rows.check_columns(seen)
        except ChangefeedError as error:
            yield fail(error)


def _source_wrong(text: str) -> Finding:
    return fail(SourceError(text))


def _wrong(text: str) -> Finding:
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
    _unlogged,
    _followed,
    _versioned,
    _unlearned,
    _row_image,
    _warnings,
)
