"""Describes for people how a pipeline publishes each captured table: topic, partitions, key, format, masks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from changefeed.formats.sample_row import TEXT
from changefeed.model.column_rules import Excluded
from changefeed.model.table_schema import TableSchema
from changefeed.operations.sample_message import SampleMessage, sample_message
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.pipeline import Pipeline


@dataclass(frozen=True)
class RoutedTable:
    """How one table is published.

    ``partitions`` is the number of partitions of its topic, or the number with which a run would create the topic.
    ``key`` is empty if its records have no key.
    """

    table: str
    topic: str
    partitions: int
    partition_by: str
    key: tuple[str, ...]
    format: str
    left_out: tuple[str, ...]
    """Columns that records do not have."""
    masked: tuple[str, ...]
    """Columns whose values are masked."""
    filtered: bool
    """Whether only some of its rows are published."""
    transforms: tuple[str, ...] = ()
    """The functions that transform its changes, in order."""
    sample: SampleMessage | None = None
    """A sample message; None for an outbox, because an application writes its messages."""

    def __str__(self) -> str:
        parts = [
            f"{self.table}: topic {self.topic!r}, {self.partitions} partitions by {self.partition_by}",
            f"key {', '.join(self.key) or 'none'}",
            f"format {self.format}",
        ]
        parts += [f"without {', '.join(self.left_out)}"] if self.left_out else []
        parts += [f"masked {', '.join(self.masked)}"] if self.masked else []
        parts += ["some rows by a condition"] if self.filtered else []
        return "; ".join([*parts, *([f"through {', '.join(self.transforms)}"] if self.transforms else [])])


def routed_tables(
    connections: PipelineConnections,
    tables: Sequence[TableSchema],
    *,
    server_names_keys: bool,
    partitions: Mapping[str, int] | None = None,
) -> Iterator[RoutedTable]:
    """Yield a `RoutedTable` for each captured table of ``tables``.

    ``partitions`` is the number of partitions of each existing topic. ``server_names_keys`` says that the source logs
    FULL metadata, in which a unique key may be marked as the primary key.
    Raises TopicError and SettingsError as `Routes.of` and `Route.table_for_formats` do.
    """
    pipeline, rules = connections.pipeline, connections.column_rules
    format = connections.routes.format(0)
    for table in tables:
        found = connections.routes.of(table.database, table.table)
        if found is None:
            continue
        key_rule = found.route.key.for_full_metadata() if server_names_keys else found.route.key
        table_for_formats = replace(found.route, key=key_rule).table_for_formats(table)
        treatments = {
            table_for_formats.columns[position].name: each for position, each in rules.of(table_for_formats).items()
        }
        by = found.route.partition_by
        outbox = pipeline.outbox
        if outbox is not None and not outbox.matches(table.database, table.table):
            outbox = None
        key = tuple(table_for_formats.columns[position].name for position in table_for_formats.primary_key)
        functions = tuple(
            call.source.name for call in connections.transform_calls if call.matches(table.database, table.table)
        )
        sample = None
        if outbox is None:
            sample = sample_message(
                format, rules, _sample_schema(pipeline, table_for_formats), found.route, transformed=bool(functions)
            )
        yield RoutedTable(
            f"{table.database}.{table.table}",
            found.topic if outbox is None else outbox.columns.replacement,
            (partitions or {}).get(found.topic, found.route.partitions),
            by if isinstance(by, str) else ", ".join(by),
            key if outbox is None else (outbox.columns.key,),
            found.format.name if outbox is None else "outbox",
            tuple(name for name, treatment in treatments.items() if treatment == Excluded()),
            tuple(name for name, treatment in treatments.items() if treatment != Excluded()),
            found.route.rows is not None,
            functions,
            sample,
        )


def _sample_schema(pipeline: Pipeline, table: TableSchema) -> TableSchema:
    """``table`` with a made-up label for each hidden ENUM or SET column, because its labels would show its values."""
    shown = pipeline.redact_table(table).columns
    columns = (
        replace(column, labels=(TEXT,)) if was.labels and not column.labels else column
        for was, column in zip(table.columns, shown, strict=True)
    )
    return replace(table, columns=tuple(columns))
