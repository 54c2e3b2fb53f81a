"""The YAML of a new pipeline, from answers to a few questions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from changefeed.formats.registry import DEFAULT_FORMAT
from changefeed.settings.file import parse_pipeline
from changefeed.settings.pipeline import Pipeline

NO_SCHEDULE = "none"
_YAML_WORDS = frozenset(("null", "true", "false", "yes", "no", "on", "off", "y", "n"))


@dataclass(frozen=True)
class NewPipeline:
    """The settings of a new pipeline that a user chooses; all others have their defaults."""

    name: str = "orders"
    source: str = "mysql_default"
    kafka: str = "kafka_default"
    tables: tuple[str, ...] = ("shop.*",)
    format: str = DEFAULT_FORMAT
    registry: str | None = None
    """Connection id of the schema registry of `avro`."""
    schedule: str = "*/5 * * * *"
    """A cron expression or preset, or NO_SCHEDULE."""
    start: str = "snapshot"
    store: str = "variable"
    """Where the checkpoint is: `variable`, `kafka` or `table`."""
    checkpoint: str | None = None
    """Connection id of the database of a state table, which then has the checkpoint."""
    exclude: tuple[str, ...] = ()
    """Patterns of columns that records do not have."""
    mask: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By pattern of columns, what records have instead: as in `columns.mask`."""

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.name}.yaml"

    def yaml(self) -> str:
        """The text of the pipeline's file."""
        tables = ", ".join(map(_quote, self.tables))
        columns = "".join(f"{line}\n" for line in self._columns())
        store = f"table, connection: {_quote(self.checkpoint)}" if self.checkpoint else self.store
        of_registry = f"{{name: {_quote(self.format)}, registry: {_quote(self.registry or '')}}}"
        return f"""name: {_quote(self.name)}
source:
  connection: {_quote(self.source)}
kafka:
  connection: {_quote(self.kafka)}
checkpoint: {{store: {store}}}
tables:
  include: [{tables}]  # DATABASE.TABLE, with * and ?
topics:
  template: {_quote(self.name + ".{database}.{table}")}
{columns}format: {of_registry if self.registry else _quote(self.format)}
start: {_quote(self.start)}  # snapshot: the existing rows, then the changes; or earliest, latest, FILE:POSITION
schedule: {"null" if self.schedule == NO_SCHEDULE else _quote(self.schedule)}  # of the DAG in Airflow
"""

    def _columns(self) -> Iterator[str]:
        """The lines of `columns`; none if all columns are published."""
        if self.exclude or self.mask:
            yield "columns:  # DATABASE.TABLE.COLUMN, with * and ?"
        if self.exclude:
            yield f"  exclude: [{', '.join(map(_quote, self.exclude))}]"
        if self.mask:
            yield "  mask:"
        for pattern, mask in self.mask.items():
            yield f"    {_quote(pattern)}: {_flow(mask)}"

    def pipeline(self) -> Pipeline:
        """The pipeline; raises SettingsError with the mistakes in the answers."""
        return parse_pipeline(self.yaml(), self.file)


def _quote(text: str) -> str:
    """``text`` as a YAML scalar: bare if it can only be read as this text, else with quotes."""
    is_bare = re.fullmatch(r"[A-Za-z]\w*", text, re.ASCII) and text.lower() not in _YAML_WORDS
    return text if is_bare else json.dumps(text)


def _flow(value: Any) -> str:
    """``value`` as YAML on one line: a mapping, a text, a number, or null."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_quote(key)}: {_flow(each)}" for key, each in value.items()) + "}"
    return _quote(value) if isinstance(value, str) else json.dumps(value)
