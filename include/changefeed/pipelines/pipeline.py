"""One pipeline: a source, a Kafka cluster, a set of tables, and where its checkpoint is kept."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Literal

from croniter import CroniterError, croniter
from pydantic import Field, PrivateAttr, field_validator, model_validator

from changefeed.connection import ConnectionLookup
from changefeed.errors import SettingsError
from changefeed.formats.format import Format, FormatSettings
from changefeed.formats.headers import WithHeaders, check_headers
from changefeed.formats.registry import DEFAULT_FORMAT, format_of
from changefeed.formats.schema_ids import LocalIds, SchemaIds
from changefeed.message_key import Keyless, KeyRule
from changefeed.pipelines.alert_settings import AlertSettings
from changefeed.pipelines.column_rules import ColumnRule, ColumnRules, Excluded
from changefeed.pipelines.column_settings import ColumnSettings
from changefeed.pipelines.format_choice import FormatChoice
from changefeed.pipelines.key_settings import KeySettings
from changefeed.pipelines.outbox_settings import OutboxSettings
from changefeed.pipelines.row_settings import RowSettings
from changefeed.pipelines.section import ConnectionId, Name, Positive, Section
from changefeed.pipelines.spark_settings import SparkSettings
from changefeed.pipelines.table_pattern import TablePattern, matches, matches_any
from changefeed.pipelines.table_routes import TableRoute, route_of
from changefeed.pipelines.topic_settings import TopicSettings
from changefeed.pipelines.transform_settings import TransformCall, TransformSettings
from changefeed.pipelines.value_settings import ValueSettings
from changefeed.publish_settings import PublishSettings
from changefeed.row_predicate import RowFilter

_PRESETS = ("@once", "@continuous", "@hourly", "@daily", "@weekly", "@monthly", "@quarterly", "@yearly")


def _is_cron(text: str) -> bool:
    """Whether Airflow can schedule by it: without years, nothing random, and some day it comes."""
    if not croniter.is_valid(text) or len(text.split()) > 6 or re.search(r"\b[rh](\b|\()", text, re.IGNORECASE):
        return False
    try:
        croniter(text).get_next()
    except CroniterError:
        return False
    return True


class SourceSettings(Section):
    """The server whose binlog is read."""

    connection: ConnectionId
    """Connection id of the MySQL or MariaDB server."""
    server_ids: str | None = None
    """Range of server_ids for the tasks that read a window, one each; no other replica of the source may use them.

    Without one they name no server_id, and the server lets any number of them read.
    """

    @field_validator("server_ids")
    @classmethod
    def _is_range(cls, text: str | None) -> str | None:
        if text is None:
            return None
        bounds = re.fullmatch(r"(\d+)-(\d+)", text)
        if not bounds or not 0 < int(bounds[1]) <= int(bounds[2]) < 2**32:
            raise ValueError("wanted a range of server_ids such as 64000-64063")
        return text

    @property
    def server_id_range(self) -> range:
        """The ids of `server_ids`, both ends included; empty without them."""
        if self.server_ids is None:
            return range(0)
        first, last = self.server_ids.split("-")
        return range(int(first), int(last) + 1)


class KafkaSettings(Section):
    """The Kafka cluster, and how records are published to it."""

    connection: ConnectionId
    """Connection id of the Kafka cluster."""
    transaction_rows: Positive = PublishSettings.transaction_rows
    """A Kafka transaction is closed after so many records, or after `transaction_seconds`."""
    transaction_seconds: Positive = int(PublishSettings.transaction_seconds)
    transaction_timeout_seconds: Positive = int(PublishSettings.transaction_timeout_seconds)
    """The broker aborts a transaction whose producer stands still for so long; it allows 15 minutes by default."""
    compression: Literal["lz4", "zstd", "snappy", "gzip", "none"] = "lz4"
    compression_level: int | None = None
    """The codec's, as Kafka's `compression.lz4.level` and its like; null is the codec's own default."""
    timestamps: Literal["event", "publish"] = "event"
    """What records have as their time: when the row was changed, or when it was published."""
    on_bad_record: Literal["fail", "dead_letter"] = "fail"
    lease_seconds: Positive = 15
    """A run that gave no sign of life for so long counts as dead, and the next one takes over."""

    @property
    def publishing(self) -> PublishSettings:
        """How a task publishes with these settings."""
        return PublishSettings(
            transaction_rows=self.transaction_rows,
            transaction_seconds=self.transaction_seconds,
            transaction_timeout_seconds=self.transaction_timeout_seconds,
            compression=self.compression,
            compression_level=self.compression_level,
            timestamps=self.timestamps,
        )

    @model_validator(mode="after")
    def _closes_before_the_broker_aborts(self) -> KafkaSettings:
        if self.transaction_seconds >= self.transaction_timeout_seconds:
            raise ValueError(
                f"transaction_seconds, {self.transaction_seconds}, must be less than transaction_timeout_seconds, "
                f"{self.transaction_timeout_seconds}: the broker aborts a transaction that is open for longer"
            )
        return self

    @model_validator(mode="after")
    def _has_the_level(self) -> KafkaSettings:
        try:
            _ = self.publishing
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return self


class TableSettings(Section):
    """Which tables are captured."""

    include: list[TablePattern] = Field(default=["*.*"], min_length=1)
    """Patterns of "database.table", with * and ? as in a shell, or /regular expressions/."""
    exclude: list[TablePattern] = Field(default=[])

    def matches(self, database: str, table: str) -> bool:
        """Whether the table is captured: a pattern of `include` takes it, and none of `exclude`."""
        return matches_any(tuple(self.include), database, table) and not matches_any(
            tuple(self.exclude), database, table
        )


class CheckpointSettings(Section):
    """Where the checkpoint is kept."""

    store: Literal["variable", "table"] = "variable"
    """An Airflow Variable, or a table of a database that SQLAlchemy knows."""
    connection: ConnectionId | None = None
    """Connection id of the state table's database."""

    @model_validator(mode="after")
    def _table_needs_connection(self) -> CheckpointSettings:
        if (self.store == "table") != (self.connection is not None):
            raise ValueError(
                "`connection` names the state table's database: give it with `store: table`, and only then"
            )
        return self


class Pipeline(Section):
    """What a file of `include/pipelines/` says.

    What Airflow gets is no larger than it takes: one DAG that it cannot make or keep ends those of all other pipelines.
    """

    name: Name
    source: SourceSettings
    kafka: KafkaSettings
    tables: TableSettings = TableSettings()
    topics: TopicSettings = TopicSettings()
    format: FormatChoice = FormatChoice(name=DEFAULT_FORMAT)
    """The wire format: its name, or its name and options."""
    headers: list[str] = Field(default=[])
    """Record headers that each message gets besides event id and GTID: names of `formats.headers`."""
    keys: KeySettings = Field(default={})
    """By pattern of tables the columns that are the messages' key, before the primary key."""
    rows: RowSettings = Field(default={})
    """By pattern of tables the condition for the rows that are published."""
    skip: list[Literal["c", "u", "d", "r", "t"]] = Field(default=[])
    """Ops that are left out: creates, updates, deletes, rows that were read, truncates."""
    keyless: Keyless = "none"
    """What is the key of tables without a primary key that no pattern of `keys` takes."""
    columns: ColumnSettings = ColumnSettings()
    transforms: list[TransformSettings] = Field(default=[])
    """Python functions that changes go through before they are masked and written, in this order."""
    outbox: OutboxSettings | None = None
    """Tables whose rows are messages that an application wrote."""
    values: ValueSettings = ValueSettings()
    tombstones: bool = True
    """Whether a delete is followed by a record with its key and no value, for compacted topics."""
    checkpoint: CheckpointSettings = CheckpointSettings()
    publish_ddl: Literal["topic", "inline", "off"] = "topic"
    """Schema changes go to the pipeline's schema-change topic; inline: also to the topics of the tables they touch."""
    statements: Literal["fail", "publish", "skip"] = "fail"
    """What a change in statement format does, whose rows the binlog does not hold: stop the run, go as a statement
    record to the topics of the tables it writes, or be left out."""
    start: str = "earliest"
    """Where the first window starts: earliest, latest, or FILE:POSITION."""
    reader: Literal["kernel", "reference"] = "kernel"
    """What decodes rows: the kernel, or mysql-replication, which is slow and knows fewer types."""
    schedule: Annotated[str, Field(max_length=500)] | None = "*/5 * * * *"
    """Cron expression or preset (@daily) of the DAG, or null for runs by hand only."""
    retries: Annotated[int, Field(ge=0, le=10_000)] = 2
    retry_delay_seconds: Annotated[int, Field(gt=0, le=2_592_000)] = 30
    window_bytes: Positive = 2 * 1024**3
    """A backlog larger than this is published as several windows of one run, cut at ends of binlog files."""
    windows_per_run: Positive = 20
    """How many windows a run takes at most; the next run goes on."""
    pool: Annotated[str, Field(max_length=256)] = "default_pool"
    """Airflow pool of the task that publishes; a pool of one slot keeps a pipeline's DAGs apart."""
    deadline_minutes: Annotated[int, Field(gt=0, le=525_600)] | None = None
    """A run that is not done so long after it was queued is sent to the notifiers."""
    alerts: AlertSettings = AlertSettings()
    owner: Annotated[str, Field(max_length=500)] = "changefeed"
    tags: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=100)] = Field(default=[])
    spark: SparkSettings = SparkSettings()
    _file: str = PrivateAttr(default="")

    def of_file(self, file: str) -> Pipeline:
        """This pipeline, which messages about its settings place in ``file``."""
        self._file = file
        return self

    @property
    def hides_columns(self) -> bool:
        """Whether columns are left out, masked or transformed, so that nothing may show what a statement's text has of
        them."""
        return bool(self.columns.exclude or self.columns.mask or self.transforms)

    def column_rules(self, lookup: ConnectionLookup) -> ColumnRules:
        """`columns` as rules: those that leave a column out come before those that mask it.

        Raises SettingsError for a secret of a mask that its connection or environment variable does not have.
        """
        left_out = [ColumnRule(pattern, Excluded(), "columns.exclude") for pattern in self.columns.exclude]
        masked = [
            ColumnRule(pattern, mask.treatment(lookup), "columns.mask") for pattern, mask in self.columns.mask.items()
        ]
        return ColumnRules((*left_out, *masked), self._shown_file, transformed=bool(self.transforms))

    def transform_calls(self, lookup: ConnectionLookup) -> tuple[TransformCall, ...]:
        """`transforms` with their secrets; raises SettingsError for one that cannot be had."""
        return tuple(transform.call(lookup) for transform in self.transforms)

    @property
    def _shown_file(self) -> str:
        return self._file or f"pipeline {self.name!r}"

    @property
    def chooses_keys(self) -> bool:
        """Whether keys may be other columns than the primary key's."""
        return bool(self.keys) or self.keyless != "none"

    def route(self, database: str, table: str) -> TableRoute | None:
        """Where a table's changes go and under which key; None for a table that is not captured.

        Raises TopicError for a topic that cannot be named so.
        """
        if not self.tables.matches(database, table):
            return None
        routed = route_of(self.topics, self.name, database, table, self.key_rule(database, table), self._shown_file)
        route = replace(routed.route, rows=self._row_filter(database, table), skipped=frozenset(self.skip))
        return replace(routed, route=route)

    def _row_filter(self, database: str, table: str) -> RowFilter | None:
        for pattern, sql in self.rows.items():
            if matches(pattern, database, table):
                from changefeed.pipelines.sql_condition import predicate_of  # sqlglot is only for those who need it

                return RowFilter(predicate_of(sql), f"{self._shown_file}: {pattern!r} in rows")
        return None

    def key_rule(self, database: str, table: str) -> KeyRule:
        """How the key columns of a table's messages are found."""
        for pattern, columns in self.keys.items():
            if matches(pattern, database, table):
                return KeyRule(tuple(columns), self.keyless, f"{self._shown_file}: {pattern!r} in keys")
        return KeyRule(keyless=self.keyless)

    def message_format(self, frozen_at_ms: int, schema_ids: SchemaIds | None = None) -> Format:
        """The wire format of this pipeline's messages; ``frozen_at_ms`` is when their window was frozen.

        ``schema_ids`` are those of its registry; without them its messages are for nobody to keep.
        """
        ids, style = schema_ids or LocalIds(), self.values.style
        settings = FormatSettings(self.name, frozen_at_ms, style, self.tombstones, ids, self.format.options)
        format = format_of(self.format.name, settings)
        return WithHeaders(format, tuple(self.headers)) if self.headers else format

    @field_validator("headers")
    @classmethod
    def _are_headers(cls, names: list[str]) -> list[str]:
        try:
            check_headers(names)
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return names

    @field_validator("start")
    @classmethod
    def _is_start(cls, text: str) -> str:
        if text not in ("earliest", "latest") and not re.fullmatch(r".+\.\d{6,}:\d+", text):
            raise ValueError("wanted earliest, latest, or FILE:POSITION such as binlog.000012:4")
        return text

    @field_validator("schedule")
    @classmethod
    def _is_schedule(cls, text: str | None) -> str | None:
        if text is None or text in _PRESETS or (not text.startswith("@") and _is_cron(text)):
            return text
        raise ValueError(f"wanted a cron expression such as '*/5 * * * *', or one of {', '.join(_PRESETS)}, or null")

    @model_validator(mode="after")
    def _format_takes_the_settings(self) -> Pipeline:
        try:
            self.message_format(0)
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return self

    @model_validator(mode="after")
    def _goes_with_its_format(self) -> Pipeline:
        beside = {
            "publish_ddl: inline": self.publish_ddl == "inline",
            "statements: publish": self.statements == "publish",
            "reader: reference": self.reader == "reference",
            "values": self.values != ValueSettings(),
        }
        self.format.check_registry([setting for setting, is_set in beside.items() if is_set])
        return self

    @model_validator(mode="after")
    def _reference_is_plain(self) -> Pipeline:
        if self.reader == "reference" and (self.transforms or self.outbox):
            raise ValueError(
                "`reader: reference` knows neither `transforms` nor `outbox`: leave them out, or the reader"
            )
        if self.reader == "reference" and (self.columns != ColumnSettings() or self.values != ValueSettings()):
            raise ValueError("`reader: reference` knows neither `columns` nor `values`: leave them out, or the reader")
        if self.reader == "reference" and not self.message_format(0).style.is_default():
            raise ValueError(
                f"`reader: reference` cannot write values as `format: {self.format.name}` does: take another"
            )
        topics = self.topics.model_dump(include={"partition_by", "table_field", "routes"}, exclude_defaults=True)
        if self.reader == "reference" and topics:
            raise ValueError(f"`reader: reference` does not know topics.{next(iter(topics))}: leave it out")
        if self.reader == "reference" and (self.rows or self.skip):
            raise ValueError("`reader: reference` knows neither `rows` nor `skip`: leave them out, or the reader")
        if self.reader == "reference" and self.chooses_keys:
            raise ValueError("`reader: reference` knows neither `keys` nor `keyless`: leave them out, or the reader")
        return self
