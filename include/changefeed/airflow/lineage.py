"""OpenLineage: the tables and topics that a task read and wrote, with their columns and row counts.

Airflow's OpenLineage provider calls the task after its end. The provider is optional: it is imported by then.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import Context

from changefeed.airflow.connections import airflow_lookup, task_connections
from changefeed.model.column_rules import ColumnRule, ColumnRules, Constant, Excluded
from changefeed.model.connection import AnswerLimits, MysqlConnection
from changefeed.model.table_pattern import matches
from changefeed.model.table_schema import Column, TableSchema
from changefeed.settings.file import load_pipeline
from changefeed.settings.pipeline import Pipeline

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import InputDataset, OutputDataset

    from changefeed.ddl.schemas import Schemas
    from changefeed.pipeline.connections import PipelineConnections

_COLUMNS_SECONDS = 5
"""The provider ends the process that sends an event after 10 seconds. An event without columns is better than none."""

_log = logging.getLogger(__name__)

Lineage = Callable[[Pipeline, Mapping[str, Any]], "OperatorLineage[Any, Any]"]
"""Returns the datasets of a task's result: `published_lineage`, `applied_lineage` or `compared_lineage`."""


class DatasetsTask(PythonOperator):
    """A Python task of a pipeline. The provider gets the datasets of its result after a success, and none of a task
    that fails."""

    def __init__(self, *, pipeline: str, lineage: Lineage | None = None, **settings: Any) -> None:
        super().__init__(**settings)
        self.pipeline_name = pipeline
        self._lineage = lineage or published_lineage
        self._result: Mapping[str, Any] = {}

    def execute(self, context: Context) -> Any:
        self._result = super().execute(context)
        return self._result

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:  # noqa: ARG002 - the interface
        """The lineage of this attempt. Called by the provider, which logs an error and goes on."""
        return self._lineage(load_pipeline(self.pipeline_name), self._result)


def published_lineage(pipeline: Pipeline, published: Mapping[str, Any]) -> OperatorLineage[Any, Any]:
    """From the source's tables to topics. ``published`` has ``rows`` by "database.table" (and op), and ``records`` by
    topic if they are known.

    Columns are left out if the schema history cannot be read in time. Raises SettingsError.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage

    datasets = _Datasets.of(pipeline, published.get("rows", {}))
    rows, topics = datasets.rows, datasets.topics
    if not rows:
        return OperatorLineage()
    records = published.get("records") or topics.count_rows(rows)
    return OperatorLineage(
        inputs=[datasets.table_read(topics.source, table) for table in rows],
        outputs=[datasets.topic_written(topic, count) for topic, count in records.items() if count],
    )


def applied_lineage(pipeline: Pipeline, applied: Mapping[str, Any], follower: str) -> OperatorLineage[Any, Any]:
    """From topics to tables of the server of connection ``follower``. ``applied`` has ``rows``, the row changes by
    "database.table", and ``records``, the DDL statements by topic. Otherwise as `published_lineage`."""
    from airflow.providers.openlineage.extractors import OperatorLineage

    datasets = _Datasets.of(pipeline, applied.get("rows", {}))
    rows, topics = datasets.rows, datasets.topics
    read = topics.count_rows(rows) | {topic: count for topic, count in applied.get("records", {}).items() if count}
    written = _follower_namespace(follower)
    return OperatorLineage(
        inputs=[datasets.topic_read(topic, count) for topic, count in read.items()],
        outputs=[datasets.table_written(written, table) for table in rows],
    )


def compared_lineage(pipeline: Pipeline, report: Mapping[str, Any]) -> OperatorLineage[Any, Any]:
    """The tables and topics that a verification read, without outputs; ``report`` is of `VerifyReport.to_json`.
    Otherwise as `published_lineage`."""
    from airflow.providers.openlineage.extractors import OperatorLineage

    accounts = report.get("tables", ())
    datasets = _Datasets.of(pipeline, {each["table"]: each["rows"] for each in accounts})
    records: dict[str, int] = {}
    for each in accounts:
        if each["topic"]:
            records[each["topic"]] = records.get(each["topic"], 0) + each["records"]
    server = _follower_namespace(report["follower"]) if report.get("follower") else datasets.topics.source
    return OperatorLineage(
        inputs=[
            *(datasets.table_read(server, table) for table in datasets.rows),
            *(datasets.topic_read(topic, count) for topic, count in records.items() if count),
        ]
    )


def _row_count(ops: Mapping[str, int] | int) -> int:
    return ops if isinstance(ops, int) else sum(ops.values())


def _namespace(server: MysqlConnection) -> str:
    return f"mysql://{f'[{server.host}]' if ':' in server.host else server.host}:{server.port}"


def _follower_namespace(connection_id: str) -> str:
    from changefeed.pipeline.connections import mysql_connection

    return _namespace(mysql_connection(connection_id, airflow_lookup))


@dataclass(frozen=True)
class _Topics:
    """Names of OpenLineage's naming specification, and the routes between them."""

    pipeline: Pipeline
    connections: PipelineConnections

    @property
    def source(self) -> str:
        """The namespace of the tables. With several hosts it is the first, whichever of them was read."""
        return _namespace(self.connections.source_hosts[0])

    @property
    def cluster(self) -> str:
        """The namespace of the topics: the first of the bootstrap servers."""
        return f"kafka://{self.connections.kafka.bootstrap.split(',')[0].strip()}"

    def topic_of(self, table: str) -> str | None:
        """The topic of a table; None if settings that have changed since leave it out."""
        route = self.connections.routes.of(*table.split(".", 1))
        return None if route is None else route.topic

    def count_rows(self, rows: Mapping[str, int]) -> dict[str, int]:
        """Row changes by topic."""
        counts: dict[str, int] = {}
        for table, count in rows.items():
            if topic := self.topic_of(table):
                counts[topic] = counts.get(topic, 0) + count
        return counts

    def published_columns(self, table: TableSchema) -> Iterable[tuple[Column, bool]]:
        """The columns of the table's records, with whether they are masked; none if a function may rename them."""
        database, name = table.database, table.table
        if any(matches(transform.tables, database, name) for transform in self.pipeline.transforms):
            return
        columns = self.pipeline.columns
        rules = [
            *(ColumnRule(pattern, Excluded(), "columns.exclude") for pattern in columns.exclude),
            *(ColumnRule(pattern, _MASKED, "columns.mask") for pattern in columns.mask),
        ]
        treatments = ColumnRules(tuple(rules)).of(table)
        for position, column in enumerate(table.columns):
            treatment = treatments.get(position)
            if treatment != Excluded():
                yield column, treatment is not None


_MASKED = Constant(None)
"""Instead of any mask: its secret is not needed here."""


@dataclass
class _Fields:
    """The fields of a topic's records, with the columns from which they are."""

    types: dict[str, str | None] = field(default_factory=dict)
    origins: dict[str, list[tuple[str, str, bool]]] = field(default_factory=dict)

    def add(self, table: str, column: Column, is_masked: bool) -> None:
        """A field of the values of ``column`` of the dataset ``table``."""
        name = column.name
        self.types.setdefault(name, None if is_masked else column.data_type)
        self.origins.setdefault(name, []).append((table, name, is_masked))


@dataclass(frozen=True)
class _Datasets:
    """The ``rows`` of tables, and what makes datasets of them and of their topics.

    ``tables`` are the schemas of the tables that the schema history has.
    """

    topics: _Topics
    rows: Mapping[str, int]
    tables: Mapping[str, TableSchema]

    @classmethod
    def of(cls, pipeline: Pipeline, rows: Mapping[str, Any]) -> _Datasets:
        """The datasets of the tables with ``rows``, by "database.table" (and op)."""
        counts = {table: count for table, ops in rows.items() if (count := _row_count(ops))}
        limits = AnswerLimits(connect_seconds=_COLUMNS_SECONDS, answer_seconds=_COLUMNS_SECONDS)
        connections = replace(task_connections(pipeline), answer_limits=limits)
        schemas = _read_schemas(connections) if counts else None
        tables = {table: schema for table in counts if (schema := _schema_of(schemas, table)) is not None}
        return cls(_Topics(pipeline, connections), counts, tables)

    def table_read(self, namespace: str, table: str) -> InputDataset:
        schema = self.tables.get(table)
        columns = {} if schema is None else {column.name: column.data_type for column in schema.columns}
        return _input(namespace, table, _schema_facets(columns), self.rows[table])

    def topic_read(self, topic: str, count: int) -> InputDataset:
        return _input(self.topics.cluster, topic, _schema_facets(self.fields_of(topic).types), count)

    def topic_written(self, topic: str, count: int) -> OutputDataset:
        fields = self.fields_of(topic)
        facets = _schema_facets(fields.types) | _lineage_facets(self.topics.source, fields)
        return _output(self.topics.cluster, topic, facets, count)

    def table_written(self, namespace: str, table: str) -> OutputDataset:
        """A follower's table, each column from the field of its name."""
        fields, schema, topic = _Fields(), self.tables.get(table), self.topics.topic_of(table)
        if schema is not None and topic is not None:
            for column, _ in self.topics.published_columns(schema):
                fields.add(topic, column, is_masked=False)
        facets = _schema_facets(fields.types) | _lineage_facets(self.topics.cluster, fields)
        return _output(namespace, table, facets, self.rows[table])

    def fields_of(self, topic: str) -> _Fields:
        """The fields of the topic's records; none if the columns of one of its tables are not known."""
        of_topic = [table for table in self.rows if self.topics.topic_of(table) == topic]
        fields = _Fields()
        if all(table in self.tables for table in of_topic):
            for table in of_topic:
                for column, is_masked in self.topics.published_columns(self.tables[table]):
                    fields.add(table, column, is_masked)
        return fields


def _input(namespace: str, name: str, facets: dict[str, Any], count: int) -> InputDataset:
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import input_statistics_input_dataset as statistics

    counted = statistics.InputStatisticsInputDatasetFacet(rowCount=count)
    return InputDataset(namespace=namespace, name=name, facets=facets, inputFacets={"inputStatistics": counted})


def _output(namespace: str, name: str, facets: dict[str, Any], count: int) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    counted = statistics.OutputStatisticsOutputDatasetFacet(rowCount=count)
    return OutputDataset(namespace=namespace, name=name, facets=facets, outputFacets={"outputStatistics": counted})


def _schema_facets(columns: Mapping[str, str | None]) -> dict[str, Any]:
    from openlineage.client.facet_v2 import schema_dataset as facets

    fields = [facets.SchemaDatasetFacetFields(name=name, type=kind) for name, kind in columns.items()]
    return {"schema": facets.SchemaDatasetFacet(fields=fields)} if fields else {}


def _lineage_facets(namespace: str, fields: _Fields) -> dict[str, Any]:
    from openlineage.client.facet_v2 import column_lineage_dataset as facets

    def origin(table: str, column: str, is_masked: bool) -> facets.InputField:
        kind = "TRANSFORMATION" if is_masked else "IDENTITY"
        transformation = facets.Transformation(type="DIRECT", subtype=kind, masking=is_masked)
        return facets.InputField(namespace, table, column, [transformation])

    lineage = {name: facets.Fields([origin(*each) for each in origins]) for name, origins in fields.origins.items()}
    return {"columnLineage": facets.ColumnLineageDatasetFacet(lineage)} if lineage else {}


def _read_schemas(connections: PipelineConnections) -> Schemas | None:
    """The newest schemas of the stored history; None if there is none, or if it cannot be read in time."""
    from changefeed.ddl.history import SchemaHistory

    def read() -> Schemas | None:
        values = connections.schema_log().load()
        return None if values is None else SchemaHistory.from_json(values).timeline.latest

    threads = ThreadPoolExecutor(1)
    try:
        return threads.submit(read).result(_COLUMNS_SECONDS)
    except Exception as error:  # of the brokers, of the record, or TimeoutError
        _log.warning(
            "the lineage has no columns, because the schema history cannot be read: %s", str(error) or repr(error)
        )
        return None
    finally:
        threads.shutdown(wait=False, cancel_futures=True)


def _schema_of(schemas: Schemas | None, table: str) -> TableSchema | None:
    entry = None if schemas is None else schemas.entry(*table.split(".", 1))
    return getattr(entry, "schema", None)
