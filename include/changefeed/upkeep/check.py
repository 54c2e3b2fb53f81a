"""check: everything that can be known to be wrong before a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from itertools import islice

from changefeed.ddl.table import Table
from changefeed.endpoints.endpoints import Endpoints
from changefeed.errors import ChangefeedError, SettingsError, TopicError, did_you_mean
from changefeed.kafka.schema_log import schema_changes_topic
from changefeed.kafka.topics import TopicSettings, missing_topics, not_there, partition_counts
from changefeed.mysql import source
from changefeed.mysql.catalog import table_names
from changefeed.mysql.preflight import preflight
from changefeed.mysql.server_schemas import current_schemas
from changefeed.mysql.session import Session
from changefeed.mysql.unlogged import cascading_keys, hashed_tables, logs_cascades, virtual_columns
from changefeed.pipelines.pipeline import Pipeline
from changefeed.pipelines.table_pattern import matcher, matches
from changefeed.runs.topics import table_topics, wanted_topics
from changefeed.table_schema import TableSchema
from changefeed.transforms.chain import Transform
from changefeed.upkeep.neighbours import Neighbours
from changefeed.upkeep.routed_tables import routed_tables

_SHOWN = 50
"""So many tables have a line of their own."""

Finding = str | ChangefeedError
"""A line about what is right, or the error that says what is wrong."""


def check(endpoints: Endpoints, neighbours: Neighbours) -> Iterator[Finding]:
    """Yield what was found, right and wrong; nothing is raised. ``neighbours`` are the pipelines beside this one.

    A part that cannot go on ends with its error, and the others are checked all the same. An error that several parts
    come upon is yielded once.
    """
    told: set[str] = set()
    for finding in _findings(endpoints, neighbours):
        if isinstance(finding, str) or str(finding) not in told:
            yield finding
            told.add(str(finding))


def _findings(endpoints: Endpoints, neighbours: Neighbours) -> Iterator[Finding]:
    topics: dict[str, TopicSettings] = {}
    try:
        with endpoints.session() as session:
            yield from _source(endpoints, session)
            topics = wanted_topics(endpoints.pipeline, session)
    except ChangefeedError as error:
        yield error
    for part in (
        _kafka(endpoints, topics),
        _server_ids(endpoints),
        _registry(endpoints),
        neighbours.findings(endpoints),
    ):
        try:
            yield from part
        except ChangefeedError as error:
            yield error


def _source(endpoints: Endpoints, session: Session) -> Iterator[Finding]:
    pipeline = endpoints.pipeline
    preflight(session, statements=pipeline.statements)
    yield f"source {session.connection}: {session.version}, head {source.head(session).coordinates}"
    topics = table_topics(pipeline, session)
    yield f"{len(topics)} tables: {', '.join(f'{database}.{table}' for database, table in topics) or 'none yet'}"
    yield from _patterns(pipeline, [f"{database}.{table}" for database, table in table_names(session)])
    tables = _captured_schemas(pipeline, session)
    yield from _column_rules(endpoints, tables)
    yield from _transforms(endpoints, tables)
    yield from _keys(pipeline, tables, server_names_keys=source.names_come_along(session))
    yield from _unlogged(pipeline, session)
    by_transaction = [f"{table.database}.{table.table}" for table in tables if table.versioned_by_transaction]
    if by_transaction and pipeline.statements == "fail":
        yield SettingsError(
            f"{', '.join(by_transaction)}: versioned by transactions (ROW START and ROW END are BIGINT). MariaDB logs "
            "changes of such a table as statements, whatever binlog_format is, and the first one stops the run: make "
            "these columns TIMESTAMP(6), put the table into `tables.exclude`, or choose what `statements` does"
        )
    if "format" in pipeline.model_fields_set and pipeline.format.advice:
        yield pipeline.format.advice
    yield from dict.fromkeys(choice.advice for choice in pipeline.formats[1:] if choice.advice)
    row_image = session.variable("binlog_row_image")
    for choice in pipeline.formats:
        if row_image == "FULL" or pipeline.made(choice).notation.binary is None:
            continue
        yield SettingsError(
            f"format {choice.name!r} cannot leave a column out, and binlog_row_image is {row_image!r}, wanted "
            "'FULL': the first row without all columns stops the run. SET GLOBAL binlog_row_image = 'FULL' (open "
            "sessions keep theirs until they reconnect)"
        )
    if pipeline.chooses_keys and row_image != "FULL":
        yield SettingsError(
            f"pipeline {pipeline.name!r} chooses columns of keys by `keys` or `keyless`, and binlog_row_image is "
            f"{row_image!r}, wanted 'FULL': rows are logged without them, and the first such row stops the run. SET "
            "GLOBAL binlog_row_image = 'FULL' (open sessions keep theirs until they reconnect)"
        )
    routed = routed_tables(endpoints, tables, server_names_keys=source.names_come_along(session))
    for table in islice(routed, _SHOWN):
        yield "\n  ".join([str(table), *(table.sample.lines if table.sample else [])])
    if rest := sum(1 for _ in routed):
        yield f"and {rest} more tables: `changefeed explain DATABASE.TABLE --pipeline {pipeline.name}` shows each"


def _unlogged(pipeline: Pipeline, session: Session) -> Iterator[Finding]:
    """Which tables change without a word in the binlog, and which have columns there that no definition shows."""
    captured = pipeline.tables.matches
    cascading = [] if logs_cascades(session) else list(cascading_keys(session, captured))
    if cascading:
        tables = "; ".join(f"{name.database}.{name.table} ({key})" for name, key in cascading)
        yield (
            f"{len(cascading)} foreign keys change rows of captured tables, and this server writes nothing of that "
            f"into its binlog: {tables}. What a DELETE or UPDATE of a parent does to its children is not published. "
            "MySQL 9.6 and later log such rows; elsewhere let the application, not the key, change the children, or "
            "exclude the tables"
        )
    virtual = [f"{name.database}.{name.table}.{column}" for name, column in virtual_columns(session, captured)]
    if virtual:
        yield (
            f"{len(virtual)} virtual columns: {', '.join(virtual)}; MySQL may log an older value of such a column, or "
            "none, where a statement does not need it. Make those that matter STORED, or leave them out with "
            "columns.exclude"
        )
    hashed = [f"{name.database}.{name.table}" for name in hashed_tables(session, captured)]
    if hashed:
        yield (
            f"{len(hashed)} tables with a UNIQUE key that is too long for an index: {', '.join(hashed)}; their records "
            "have the server's hidden column DB_ROW_HASH_1 (and _2 ...), which columns.exclude leaves out"
        )


def _registry(endpoints: Endpoints) -> Iterator[Finding]:
    """Whether the format's schema registry answers."""
    if endpoints.registry is not None:
        level = endpoints.registry.level(schema_changes_topic(endpoints.pipeline.name))
        yield f"schema registry {endpoints.registry.connection}: new subjects have the compatibility {level}"


def _captured_schemas(pipeline: Pipeline, session: Session) -> list[TableSchema]:
    """The captured tables, where there is something to say about their columns."""
    known = current_schemas(session).tables.values()
    return [
        entry.schema
        for entry in known
        if isinstance(entry, Table) and pipeline.tables.matches(entry.schema.database, entry.schema.table)
    ]


def _keys(pipeline: Pipeline, tables: Collection[TableSchema], *, server_names_keys: bool) -> Iterator[Finding]:
    """Which tables have no primary key, what is the key of their messages, and what is wrong with chosen columns."""
    without, with_key = [], []
    for table in tables:
        name = f"{table.database}.{table.table}"
        try:
            rule = pipeline.key_rule(table.database, table.table)
            if server_names_keys and rule.keyless == "none":
                rule = replace(rule, keyless="unique")
            key = ", ".join(table.columns[position].name for position in rule.keyed(table).primary_key)
        except ChangefeedError as error:
            yield error
            continue
        if not key:
            without.append(name)
        elif rule.columns or not table.primary_key:
            with_key.append(f"{name} ({key})")
    if with_key:
        yield f"{len(with_key)} tables with a key other than their primary key: {'; '.join(with_key)}"
    if without:
        yield (
            f"{len(without)} tables without a key: {', '.join(without)}; their records have a null key and are spread "
            "over the partitions, so changes of one row may overtake each other: `keys` and `keyless` give them a key"
        )
    for pattern in pipeline.keys:
        if not any(matches(pattern, table.database, table.table) for table in tables):
            yield SettingsError(
                f"{pattern!r} in keys of pipeline {pipeline.name!r} matches no table that it captures: what it was "
                "meant for has another key. Correct the pattern, or leave it out."
            )


def _patterns(pipeline: Pipeline, tables: Collection[str]) -> Iterator[Finding]:
    """A run goes on without such a table, and takes it when it is there: only here it is wrong."""
    for pattern in pipeline.tables.include:
        if not any(matcher(pattern).match(table) for table in tables):
            yield SettingsError(
                f"tables.include of pipeline {pipeline.name!r} has {pattern!r}, and no table of the source that its "
                f"user may see matches it{did_you_mean(pattern, tables)}: nothing is published of it. Correct "
                "the pattern, GRANT the user SELECT there, or check again when the table is made."
            )


def _transforms(endpoints: Endpoints, tables: Collection[TableSchema]) -> Iterator[Finding]:
    """That the pipeline's functions can be imported here, and which tables' changes each gets."""
    for call in endpoints.transform_calls:
        Transform.of(call)
        names = sorted(f"{each.database}.{each.table}" for each in tables if call.takes(each.database, each.table))
        if names:
            yield f"transform {call.source.name} gets the changes of {', '.join(names)}"
        else:
            yield SettingsError(
                f"{call.pattern!r} of transform {call.source.name!r} of pipeline {endpoints.pipeline.name!r} matches "
                "no table that it captures: what the function was meant for is published as it is. Correct the "
                "pattern, or check again when the table is made."
            )


def _column_rules(endpoints: Endpoints, tables: Collection[TableSchema]) -> Iterator[Finding]:
    """What the pipeline's column rules do to the tables that are there now."""
    pipeline, rules = endpoints.pipeline, endpoints.column_rules
    if not rules.rules:
        return
    keyed = [pipeline.key_rule(table.database, table.table).keyed(table) for table in tables]
    columns = {
        f"{table.database}.{table.table}.{table.columns[index].name}" for table in keyed for index in rules.of(table)
    }
    yield f"{len(columns)} columns left out or masked: {', '.join(sorted(columns)) or 'none'}"
    for rule in rules.rules:
        if not any(
            rule.covers(table.database, table.table, column.name) for table in tables for column in table.columns
        ):
            yield SettingsError(
                f"{rule.pattern!r} in {rule.setting} of pipeline {pipeline.name!r} matches no column of its tables: "
                "what it was meant for is published as it is. Correct the pattern, or leave it out."
            )


def _kafka(endpoints: Endpoints, topics: Mapping[str, TopicSettings]) -> Iterator[Finding]:
    kafka, wanted = endpoints.kafka, endpoints.pipeline.topics.replication_factor
    kafka.check_options()
    brokers = kafka.broker_count()
    yield f"Kafka {kafka.bootstrap}: reachable, {_brokers(brokers)}"
    if wanted > brokers:
        yield TopicError(
            f"topics.replication_factor of pipeline {endpoints.pipeline.name!r} is {wanted}, and the cluster at "
            f"{kafka.bootstrap!r} has {_brokers(brokers)} up: no topic can be made there. Write at most {brokers}, or "
            "start the other brokers."
        )
        return
    if not endpoints.pipeline.topics.create:
        counts = partition_counts(kafka, topics)
        if lacking := {name: settings for name, settings in topics.items() if name not in counts}:
            yield not_there(kafka, lacking)
        else:
            yield f"{len(topics)} topics: all are there, none would be made"
        return
    missing = missing_topics(kafka, topics)
    if topics:
        yield f"{len(topics)} topics: {len(topics) - len(missing)} are there, {len(missing)} will be made"


def _brokers(count: int) -> str:
    return "1 broker" if count == 1 else f"{count} brokers"


def _server_ids(endpoints: Endpoints) -> Iterator[Finding]:
    """That there are enough of the pipeline's server_ids; nothing where it names none."""
    own, cores = endpoints.server_ids, endpoints.pipeline.spark.cores
    if not own.ids:
        return
    if cores is not None:
        own.check(cores)
    known = (
        f"{cores} tasks at once" if cores is not None else "as many tasks: the cores of the cluster are not known yet"
    )
    yield f"server_ids {own}: {len(own.ids)} for {known}"
