"""check: everything that can be known to be wrong before a run."""

from __future__ import annotations

from collections.abc import Iterator

from changefeed.connection import ConnectionLookup, MysqlConnection, kafka_parts
from changefeed.kafka.connection import KafkaConnection
from changefeed.mysql import source
from changefeed.mysql.preflight import preflight
from changefeed.mysql.session import Session
from changefeed.pipeline import Pipeline
from changefeed.stages.topics import table_topics


def check(pipeline: Pipeline, lookup: ConnectionLookup) -> Iterator[str]:
    """Yield a line for each thing found right; raises the error of the first that is wrong."""
    with Session(MysqlConnection.from_uri(lookup(pipeline.source.connection))) as session:
        preflight(session)
        yield f"source {session.connection}: {session.version}, head {source.head(session).coordinates}"
        topics = table_topics(pipeline, session)
        yield f"{len(topics)} tables: {', '.join(f'{database}.{table}' for database, table in topics) or 'none yet'}"
    kafka = KafkaConnection(*kafka_parts(lookup(pipeline.kafka.connection)))
    kafka.reach()
    yield f"Kafka {kafka.bootstrap}: reachable"
