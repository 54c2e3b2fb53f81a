"""Records of a pipeline for people: decoded, and without values of the columns that the pipeline hides."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from changefeed.formats.by_table import of_table
from changefeed.formats.format import Format
from changefeed.formats.headers import HEADERS
from changefeed.formats.reader import JsonImage, ReadChange, RecordReader, SchemaText
from changefeed.kafka.partition_reader import KafkaRecord
from changefeed.operations.former_names import FormerNames
from changefeed.operations.pipeline_topics import PipelineTopic
from changefeed.operations.record_filter import COMMIT_HEADER
from changefeed.operations.record_search import event_id
from changefeed.operations.record_values import RecordValues, text_of
from changefeed.settings.pipeline import Pipeline

_LARGEST_VALUE = 64 << 10
"""The size of the largest value that is shown, in bytes."""
_MOST_CHANGES = 20
"""The number of changes that are shown of a record with several rows."""
_STATEMENT_HEADER = "changefeed.definition"


@dataclass(frozen=True)
class ShownChange:
    """A change that a record describes. Images have a JSON text for each column; None if the record has no image.

    ``hidden`` are the columns whose values are left out, because the pipeline excludes or masks them.
    """

    op: str
    table: str
    before: Mapping[str, str] | None
    after: Mapping[str, str] | None
    changed: tuple[str, ...]
    hidden: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the REST API."""
        return {
            "op": self.op,
            "table": self.table,
            "before": self.before,
            "after": self.after,
            "changed": list(self.changed),
            "hidden": list(self.hidden),
        }


@dataclass(frozen=True)
class ShownRecord:
    """A record. ``key`` and ``value`` are texts, JSON if the record is; ``value_note`` says why a value is left out.

    ``coordinates`` are FILE:POSITION of the change, '' if the record has none. ``window`` is the number of the window
    that published it; None if no window in the commit log did, as for rows of snapshots and backfills. ``tables`` are
    the tables of which the row may be. ``is_read`` says that a snapshot read the row.
    """

    record: KafkaRecord
    id: str
    coordinates: str
    key: str | None
    value: str | None
    value_note: str
    changes: tuple[ShownChange, ...]
    headers: tuple[tuple[str, str], ...]
    window: int | None
    tables: tuple[str, ...]
    is_read: bool

    def to_json(self) -> dict[str, Any]:
        """Plain values, for the REST API."""
        headers = dict(self.headers)
        return {
            "topic": self.record.topic,
            "partition": self.record.partition,
            "offset": self.record.offset,
            "timestamp_ms": self.record.timestamp_ms,
            "id": self.id,
            "coordinates": self.coordinates,
            "commit": headers.get(COMMIT_HEADER, ""),
            "gtid": headers.get("changefeed.gtid", ""),
            "key": self.key,
            "value": self.value,
            "value_bytes": None if self.record.value is None else len(self.record.value),
            "value_note": self.value_note,
            "changes": [change.to_json() for change in self.changes],
            "headers": [list(each) for each in self.headers],
            "reason": headers.get("changefeed.reason"),
            "meant_for": headers.get("changefeed.topic"),
            "window": self.window,
            "tables": list(self.tables),
            "is_read": self.is_read,
        }


@dataclass
class RecordView:
    """Shows the records of ``pipeline``.

    ``topics`` are its topics by name, ``format`` is its format. ``former`` has the former names of hidden columns.
    """

    pipeline: Pipeline
    topics: Mapping[str, PipelineTopic]
    format: Format
    schemas: SchemaText | None = None
    former: FormerNames | None = None
    values: RecordValues = field(init=False)
    _readers: dict[str, RecordReader | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.values = RecordValues(self.schemas)

    def show(self, record: KafkaRecord, window: int | None = None) -> ShownRecord:
        """``record`` for people. Raises the errors of ``schemas``."""
        tables = self._tables(record)
        event = event_id(record)
        key = self.key(record)
        changes = self._changes(record, tables)
        value, note = self._value(record)
        return ShownRecord(
            record,
            dict(record.headers).get("changefeed.id", b"").decode("utf-8", "replace"),
            "" if event is None or event.is_read else f"{event.origin}:{event.position}",
            key if key is None or isinstance(key, str) else _json(key),
            value,
            note,
            changes,
            tuple(self._headers(record)),
            window,
            tables,
            event is not None and event.is_read,
        )

    def named_tables(self, record: KafkaRecord) -> set[str]:
        """The "database.table" that the record's value names; none if it names none, or is too large to be shown."""
        return {change.table for change in self._read(record, self._tables(record)) if "." in change.table}

    def key(self, record: KafkaRecord) -> Any:
        """The decoded key, as JSON types; a text that says so if the pipeline hides a column of it."""
        key = self.values.decode(record.key)
        if key is None or not self.pipeline.hides_columns:
            return key
        tables = self._tables(record)
        if not isinstance(key, dict) or not tables:
            return "(hidden)"
        names = [name.removeprefix("pk.") for name in key]
        return "(hidden)" if any(self._hides(tables, name) for name in names) else key

    def _tables(self, record: KafkaRecord) -> tuple[str, ...]:
        """The tables whose rows the record may have; none if they are not known."""
        headers = {name: text_of(value) for name, value in record.headers}
        if named := headers.get("changefeed.table"):
            return (named,)
        topic = self.topics.get(headers.get("changefeed.topic", record.topic))
        return topic.tables if topic is not None else ()

    def _hides(self, tables: Sequence[str], column: str) -> bool:
        if self.former is not None and any(column.lower() in self.former.of(name) for name in tables):
            return True
        pairs = (name.partition(".")[::2] for name in tables)
        return any(self.pipeline.hides(database, table, column) for database, table in pairs)

    def _value(self, record: KafkaRecord) -> tuple[str | None, str]:
        if record.value is None:
            return None, ""
        if self.pipeline.hides_columns:
            return None, "The value is left out, because the pipeline hides columns."
        if len(record.value) > _LARGEST_VALUE:
            return None, f"The value is left out, because it has {len(record.value):,} bytes."
        decoded = self.values.decode(record.value)
        try:
            return record.value.decode() if _is_json(record.value) else _text(decoded), ""
        except UnicodeDecodeError:
            return _text(decoded), ""

    def _headers(self, record: KafkaRecord) -> list[tuple[str, str]]:
        topic = self.topics.get(record.topic)

        def is_shown(name: str) -> bool:
            if not self.pipeline.hides_columns:
                return True
            if topic is None or topic.kind == "published":  # an outbox names headers after its columns
                return name == "changefeed.id"
            return (name.startswith("changefeed.") and name != _STATEMENT_HEADER) or name in HEADERS

        return [(name, text_of(value) if is_shown(name) else "(hidden)") for name, value in record.headers]

    def _changes(self, record: KafkaRecord, tables: Sequence[str]) -> tuple[ShownChange, ...]:
        changes = self._read(record, tables)
        images = (image for change in changes for image in (change.before, change.after))
        if not all(image is None or isinstance(image, Mapping) for image in images):  # another program wrote it
            return ()
        return tuple(self._change(change, tables) for change in changes[:_MOST_CHANGES])

    def _read(self, record: KafkaRecord, tables: Sequence[str]) -> Sequence[ReadChange]:
        """The changes that the record describes; none if they are not shown, or of another format."""
        topic = self.topics.get(record.topic)
        if record.value is None or topic is None or topic.kind not in ("table", "dead letters"):
            return ()
        if len(record.value) > _LARGEST_VALUE:
            return ()
        reader = self._reader(tables[0] if tables else "")
        try:
            return reader.of(record.value) if reader is not None else ()
        except ValueError:  # of another format
            return ()

    def _reader(self, table: str) -> RecordReader | None:
        if table not in self._readers:
            database, _, name = table.partition(".")
            self._readers[table] = of_table(self.format, database, name).reader(self.schemas)
        return self._readers[table]

    def _change(self, change: ReadChange, tables: Sequence[str]) -> ShownChange:
        table = change.table or (tables[0] if len(tables) == 1 else "")
        own = (table, *tables) if table else tuple(tables)  # a renamed table's records have its old name
        names = dict.fromkeys([*(change.before or ()), *(change.after or ())])
        hidden = {name for name in names if self._hides_image(own, name)}
        before, after = _image(change.before, hidden), _image(change.after, hidden)
        both = [name for name in names if before and after and name in before and name in after]
        changed = tuple(name for name in both if before and after and before[name] != after[name])
        return ShownChange(change.op, table, before, after, changed, tuple(name for name in names if name in hidden))

    def _hides_image(self, tables: Sequence[str], column: str) -> bool:
        if not self.pipeline.hides_columns:
            return False
        return not tables or self._hides(tables, column)


def _image(image: JsonImage | None, hidden: set[str]) -> dict[str, str] | None:
    return None if image is None else {name: _json(value) for name, value in image.items() if name not in hidden}


def _is_json(data: bytes) -> bool:
    try:
        orjson.loads(data)
    except orjson.JSONDecodeError:
        return False
    return True


def _text(value: Any) -> str:
    return value if isinstance(value, str) else _json(value)


def _json(value: Any) -> str:
    try:
        return orjson.dumps(value, default=str, option=orjson.OPT_NON_STR_KEYS).decode()
    except TypeError:  # an integer of more than 64 bits, in a damaged record of Avro, or many levels
        try:
            return json.dumps(value, default=str, ensure_ascii=False, separators=(",", ":"))
        except RecursionError:
            return "(too many levels to show)"
