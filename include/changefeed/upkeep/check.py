"""check: everything that can be known to be wrong before a run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from fnmatch import fnmatchcase

from changefeed.endpoints.endpoints import Endpoints
from changefeed.errors import ChangefeedError, SettingsError, TopicError, did_you_mean
from changefeed.kafka.topics import TopicSettings, missing_topics
from changefeed.mysql import source
from changefeed.mysql.catalog import table_names, table_schema
from changefeed.mysql.preflight import preflight
from changefeed.mysql.session import Session
from changefeed.pipelines.pipeline import Pipeline
from changefeed.runs.topics import captured_tables, table_topics, wanted_topics
from changefeed.upkeep.neighbours import Neighbours

Finding = str | ChangefeedError
"""A line about what is right, or the error that says what is wrong."""


def check(endpoints: Endpoints, neighbours: Neighbours) -> Iterator[Finding]:
    """Yield what was found, right and wrong; nothing is raised. ``neighbours`` are the pipelines beside this one.

    A part that cannot go on ends with its error, and the others are checked all the same.
    """
    topics: dict[str, TopicSettings] = {}
    try:
        with endpoints.session() as session:
            yield from _source(endpoints, session)
            topics = wanted_topics(endpoints.pipeline, session)
    except ChangefeedError as error:
        yield error
    for part in (_kafka(endpoints, topics), _server_ids(endpoints), neighbours.findings(endpoints)):
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
    yield from _column_rules(endpoints, session)


def _patterns(pipeline: Pipeline, tables: Collection[str]) -> Iterator[Finding]:
    """A run goes on without such a table, and takes it when it is there: only here it is wrong."""
    for pattern in pipeline.tables.include:
        if not any(fnmatchcase(table, pattern) for table in tables):
            yield SettingsError(
                f"tables.include of pipeline {pipeline.name!r} has {pattern!r}, and no table of the source that its "
                f"user may see matches it{did_you_mean(pattern, tables)}: nothing is published of it. Correct "
                "the pattern, GRANT the user SELECT there, or check again when the table is made."
            )


def _column_rules(endpoints: Endpoints, session: Session) -> Iterator[Finding]:
    """What the pipeline's column rules do to the tables that are there now."""
    pipeline, rules = endpoints.pipeline, endpoints.column_rules
    if not rules.rules:
        return
    tables = [schema for name in captured_tables(pipeline, session) if (schema := table_schema(session, *name))]
    columns = {
        f"{table.database}.{table.table}.{table.columns[index].name}" for table in tables for index in rules.of(table)
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
