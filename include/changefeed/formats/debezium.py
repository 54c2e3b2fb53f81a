"""Debezium's envelope as schemaless JSON: `before`, `after`, `source`, `op`, `ts_ms`.

Source: https://debezium.io/documentation/reference/stable/connectors/mysql.html#mysql-events
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from changefeed import __version__
from changefeed.formats.style import DEFAULT_STYLE, Encoding, Kind, Style
from changefeed.formats.template import Op, Slot, Template
from changefeed.pipelines.pipeline import Pipeline
from changefeed.table_schema import TableSchema


@dataclass(frozen=True)
class DebeziumFormat:
    """``server_name`` is the pipeline's name (`source.name`); ``ts_ms`` when the window was frozen."""

    server_name: str
    ts_ms: int
    style: Style = DEFAULT_STYLE
    tombstones: bool = True

    @classmethod
    def of(cls, pipeline: Pipeline, ts_ms: int) -> DebeziumFormat:
        """The format as ``pipeline`` sets it."""
        values = pipeline.values
        style = Style(
            {
                Kind.DECIMAL: Encoding(values.decimal),
                Kind.BIGINT_UNSIGNED: Encoding(values.bigint_unsigned),
                **dict.fromkeys((Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP), Encoding(values.temporal)),
                **dict.fromkeys((Kind.BINARY, Kind.GEOMETRY), Encoding(values.binary)),
                Kind.JSON: Encoding(values.documents),
            }
        )
        return cls(pipeline.name, ts_ms, style, pipeline.tombstones)

    def key(self, table: TableSchema) -> Template | None:
        return (Slot.KEY,) if table.primary_key else None

    def value(self, table: TableSchema, op: Op) -> Template:
        head = f'"version":"{__version__}","connector":"mysql","name":{json.dumps(self.server_name)}'
        names = f'"db":{json.dumps(table.database)},"table":{json.dumps(table.table)}'
        return (
            '{"before":',
            Slot.BEFORE,
            ',"after":',
            Slot.AFTER,
            f',"source":{{{head},"ts_ms":',
            Slot.TS_SECONDS,
            '000,"snapshot":"',
            Slot.SNAPSHOT,
            f'",{names},"server_id":',
            Slot.SERVER_ID,
            ',"gtid":',
            Slot.GTID,
            ',"file":"',
            Slot.FILE,
            '","pos":',
            Slot.POSITION,
            ',"row":',
            Slot.ROW,
            ',"query":',
            Slot.QUERY,
            f'}},"op":"{op}","ts_ms":{self.ts_ms}}}',
        )
