"""What a pipeline makes of each table that it captures now, for people: topic, partitions, key, format, masks."""

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
    """One table. ``partitions`` are those that its topic has, or is made with; ``key`` is empty for records without a
    key."""

    table: str
    topic: str
    partitions: int
    partition_by: str
    key: tuple[str, ...]
    format: str
    left_out: tuple[str, ...]
    """Columns."""
    masked: tuple[str, ...]
    """Columns."""
    filtered: bool
    """Whether only some of its rows are published."""
    transforms: tuple[str, ...] = ()
    """The functions that its changes go through, in order."""
    sample: SampleMessage | None = None
    """A message of it; None for an outbox, whose messages are what an application writes."""

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
    """What becomes of each of ``tables`` that is captured.

    ``partitions`` are those of the topics that are there. ``server_names_keys`` says that the source logs FULL
    metadata, in which a unique key may pass for a primary key.
    Raises TopicError and SettingsError as `Routes.of` and `Route.seen` do.
    """
    pipeline, rules = connections.pipeline, connections.column_rules
    format = connections.routes.format(0)
    for table in tables:
        found = connections.routes.of(table.database, table.table)
        if found is None:
            continue
        key_rule = found.route.key.as_logged() if server_names_keys else found.route.key
        seen = replace(found.route, key=key_rule).seen(table)
        treatments = {seen.columns[position].name: each for position, each in rules.of(seen).items()}
        by = found.route.partition_by
        outbox = pipeline.outbox
        if outbox is not None and not outbox.takes(table.database, table.table):
            outbox = None
        key = tuple(seen.columns[position].name for position in seen.primary_key)
        functions = tuple(
            call.source.name for call in connections.transform_calls if call.takes(table.database, table.table)
        )
        sample = None
        if outbox is None:
            sample = sample_message(format, rules, _sampled(pipeline, seen), found.route, transformed=bool(functions))
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


def _sampled(pipeline: Pipeline, table: TableSchema) -> TableSchema:
    """``table`` as a sample may be made of it: with a made-up label for a column that the pipeline hides, as its own
    are its values."""
    shown = pipeline.described(table).columns
    columns = (
        replace(column, labels=(TEXT,)) if was.labels and not column.labels else column
        for was, column in zip(table.columns, shown, strict=True)
    )
    return replace(table, columns=tuple(columns))
