"""check: everything that can be known to be wrong before a run."""

from __future__ import annotations

from collections.abc import Iterator

from changefeed.endpoints.endpoints import Endpoints
from changefeed.mysql import source
from changefeed.mysql.catalog import table_schema
from changefeed.mysql.preflight import preflight
from changefeed.mysql.server_ids import ServerIds
from changefeed.mysql.session import Session
from changefeed.pipelines.file import load_pipelines
from changefeed.pipelines.pipeline import Pipeline
from changefeed.runs.topics import captured_tables, table_topics


def check(endpoints: Endpoints) -> Iterator[str]:
    """Yield a line for each thing that is right; raises the error of the first that is wrong."""
    pipeline = endpoints.pipeline
    with endpoints.session() as session:
        preflight(session, statements=pipeline.statements)
        yield f"source {session.connection}: {session.version}, head {source.head(session).coordinates}"
        topics = table_topics(pipeline, session)
        yield f"{len(topics)} tables: {', '.join(f'{database}.{table}' for database, table in topics) or 'none yet'}"
        yield from _column_rules(pipeline, session)
    yield from _server_ids(endpoints)
    endpoints.kafka.reach()
    yield f"Kafka {endpoints.kafka.bootstrap}: reachable"


def _server_ids(endpoints: Endpoints) -> Iterator[str]:
    """That there are enough of the pipeline's server_ids, and that they are its own; nothing where it names none."""
    own, pipeline = endpoints.server_ids, endpoints.pipeline
    if not own.ids:
        return
    cores = pipeline.spark.cores
    if cores is not None:
        own.check(cores)
    for other in load_pipelines()[0].values():
        if other.name != pipeline.name and other.source.connection == pipeline.source.connection:
            own.check_disjoint(ServerIds(other.name, other.source.server_id_range))
    known = (
        f"{cores} tasks at once" if cores is not None else "as many tasks: the cores of the cluster are not known yet"
    )
    yield f"server_ids {own}: {len(own.ids)} for {known}"


def _column_rules(pipeline: Pipeline, session: Session) -> Iterator[str]:
    """What the pipeline's column rules do to the tables that are there now."""
    rules = pipeline.column_rules
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
            yield f"{rule.pattern!r} in {rule.setting} matches no column of these tables: is it spelled right?"
