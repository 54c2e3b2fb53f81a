"""What a pipeline cannot have with `reader: reference`, which writes rows as they are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from changefeed.pipelines.column_settings import ColumnSettings
from changefeed.pipelines.value_settings import ValueSettings

if TYPE_CHECKING:
    from changefeed.pipelines.pipeline import Pipeline


def refusal(pipeline: Pipeline) -> str | None:
    """Why mysql-replication cannot decode for ``pipeline``; None where it can."""
    rules, topics = pipeline.format.row_rules, pipeline.topics.model_dump(exclude_defaults=True)
    unknown = {
        **{name: getattr(pipeline, name) for name in ("transforms", "outbox", "rows", "skip")},
        "columns": pipeline.columns != ColumnSettings(),
        "values": pipeline.values != ValueSettings(),
        **{f"topics.{name}": topics.get(name) for name in ("partition_by", "table_field", "routes")},
        "keys` and `keyless": pipeline.chooses_keys,
        "provide.transaction.metadata": pipeline.transaction_topic,
        "skip.messages.without.change": rules.unchanged_skipped,
        "skipped.operations": rules.skipped - {"t"},
    }
    for name, given in unknown.items():
        if given:
            return f"`reader: reference` does not know `{name}`: leave that out, or the reader"
    if not pipeline.message_format(0).style.is_default():
        return (
            f"`reader: reference` cannot write values as `format: {pipeline.format.name}` does: take `debezium-json`, "
            "whose values are plain"
        )
    return None
