"""OpenLineage: the tables and topics of a task that published rows, with their columns and row counts.

Airflow's OpenLineage provider calls `PublishingTask` after the task. The provider is optional: it is imported by then.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import Context

from changefeed.airflow.connections import task_connections
from changefeed.model.column_rules import ColumnRule, ColumnRules, Constant, Excluded
from changefeed.model.connection import AnswerLimits
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


class PublishingTask(PythonOperator):
    """A Python task whose result has ``rows`` by "database.table" (and op), and ``records`` by topic if it knows them.

    After a success, the provider gets the tables as inputs and the topics as outputs. A task that publishes nothing, or
    fails, has neither.
    """

    def __init__(self, *, pipeline: str, **settings: Any) -> None:
        super().__init__(**settings)
        self.pipeline_name = pipeline
        self._published: Mapping[str, Any] = {}

    def execute(self, context: Context) -> Any:
        self._published = super().execute(context)
        return self._published

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any]:  # noqa: ARG002 - the interface
        """The lineage of this attempt. Called by the provider, which logs an error and goes on."""
        return operator_lineage(load_pipeline(self.pipeline_name), self._published)


def operator_lineage(pipeline: Pipeline, published: Mapping[str, Any]) -> OperatorLineage[Any, Any]:
    """The tables and topics of ``published``, the result of a `PublishingTask`.

    Columns are left out if the schema history cannot be read in time. Raises SettingsError.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage

    rows = {table: count for table, ops in published.get("rows", {}).items() if (count := _row_count(ops))}
    if not rows:
        return OperatorLineage()
    limits = AnswerLimits(connect_seconds=_COLUMNS_SECONDS, answer_seconds=_COLUMNS_SECONDS)
    connections = replace(task_connections(pipeline), answer_limits=limits)
    topics = _Topics(pipeline, connections)
    records = published.get("records") or topics.count_rows(rows)
    schemas = _read_schemas(connections)
    tables = {table: schema for table in rows if (schema := _schema_of(schemas, table)) is not None}
    return OperatorLineage(
        inputs=[_input(topics.source, table, count, tables.get(table)) for table, count in rows.items()],
        outputs=[_output(topics, topic, count, rows, tables) for topic, count in records.items() if count],
    )


def _row_count(ops: Mapping[str, int] | int) -> int:
    return ops if isinstance(ops, int) else sum(ops.values())


@dataclass(frozen=True)
class _Topics:
    """Names of OpenLineage's naming specification, and the routes between them."""

    pipeline: Pipeline
    connections: PipelineConnections

    @property
    def source(self) -> str:
        """The namespace of the tables. With several hosts it is the first, whichever of them was read."""
        first = self.connections.source_hosts[0]
        return f"mysql://{f'[{first.host}]' if ':' in first.host else first.host}:{first.port}"

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
        name = column.name
        self.types.setdefault(name, None if is_masked else column.data_type)
        self.origins.setdefault(name, []).append((table, name, is_masked))


def _input(namespace: str, table: str, count: int, schema: TableSchema | None) -> InputDataset:
    from openlineage.client.event_v2 import InputDataset
    from openlineage.client.facet_v2 import input_statistics_input_dataset as statistics

    columns = {} if schema is None else {column.name: column.data_type for column in schema.columns}
    return InputDataset(
        namespace=namespace,
        name=table,
        facets=_schema_facets(columns),
        inputFacets={"inputStatistics": statistics.InputStatisticsInputDatasetFacet(rowCount=count)},
    )


def _output(
    topics: _Topics, topic: str, count: int, rows: Mapping[str, int], tables: Mapping[str, TableSchema]
) -> OutputDataset:
    """The topic's dataset, with columns if those of all its tables are known."""
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    of_topic = [table for table in rows if topics.topic_of(table) == topic]
    fields = _Fields()
    if all(table in tables for table in of_topic):
        for table in of_topic:
            for column, is_masked in topics.published_columns(tables[table]):
                fields.add(table, column, is_masked)
    return OutputDataset(
        namespace=topics.cluster,
        name=topic,
        facets={**_schema_facets(fields.types), **_lineage_facets(topics.source, fields)},
        outputFacets={"outputStatistics": statistics.OutputStatisticsOutputDatasetFacet(rowCount=count)},
    )


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
