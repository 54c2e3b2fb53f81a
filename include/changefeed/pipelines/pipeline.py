"""One pipeline: a source, a Kafka cluster, a set of tables, and where its checkpoint is kept."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Annotated, Literal

from croniter import CroniterError, croniter
from pydantic import Field, PrivateAttr, field_validator, model_validator

from changefeed.connection import ConnectionLookup
from changefeed.errors import SettingsError
from changefeed.formats.by_table import FormatsByTable
from changefeed.formats.format import Format, FormatSettings, transactions_of
from changefeed.formats.headers import WithHeaders, check_headers
from changefeed.formats.registry import DEFAULT_FORMAT, format_of
from changefeed.formats.schema_ids import LocalIds, SchemaIds
from changefeed.message_key import Keyless, KeyRule
from changefeed.pipelines import reference_limits
from changefeed.pipelines.alert_settings import AlertSettings
from changefeed.pipelines.column_rules import ColumnRule, ColumnRules, Excluded
from changefeed.pipelines.column_settings import ColumnSettings
from changefeed.pipelines.follower_settings import FollowerSettings
from changefeed.pipelines.format_choice import FormatChoice
from changefeed.pipelines.kafka_settings import KafkaSettings
from changefeed.pipelines.key_settings import KeySettings, chosen_key
from changefeed.pipelines.outbox_settings import OutboxSettings
from changefeed.pipelines.replayable import check_replayable
from changefeed.pipelines.row_settings import RowSettings
from changefeed.pipelines.section import ConnectionId, MistakeInsideError, Name, Positive, Section
from changefeed.pipelines.spark_settings import SparkSettings
from changefeed.pipelines.table_formats import (
    check_numbered,
    check_one_format_a_topic,
    check_one_registry,
    check_row_rules,
    format_of_table,
    formats,
)
from changefeed.pipelines.table_pattern import TablePattern, matches, matches_any
from changefeed.pipelines.table_routes import TableRoute, chosen_route, route_of
from changefeed.pipelines.topic_settings import TopicSettings
from changefeed.pipelines.transform_settings import TransformCall, TransformSettings
from changefeed.pipelines.value_settings import ValueSettings
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

    heartbeat_seconds: Annotated[int, Field(gt=0, le=4_294_967)] = 30
    """A server that has nothing to send for so long sends a heartbeat, which keeps the connection alive."""

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


UnknownAnswer = Literal["stop", "placeholder", "begin"]
UnknownDefinition = UnknownAnswer | dict[TablePattern, UnknownAnswer]


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
    """The wire format: its name, or its name and options; a route may have another for its tables."""
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
    row_versions: Literal["current", "all"] = "current"
    """Of MariaDB's system-versioned tables: the rows that a SELECT has, or those that are history, too."""
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
    unknown_definition: UnknownDefinition = "stop"
    """What is done about rows of a table whose columns are not known at their place in the binlog, by pattern of tables
    or for all: stop before the first row; placeholder names; or begin where the table is known."""
    start: str = "earliest"
    """Where the first window starts: earliest, latest, or FILE:POSITION; snapshot: as latest, and rows that are there
    already are published by a snapshot, which has to be started."""
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
    followers: list[FollowerSettings] = Field(default=[])
    """Servers that the changes are applied to, each by the pipeline's DAG `replicate`."""
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
        return bool(self.keys) or self.keyless != "none" or any(each.row_rules.keys for each in self.formats)

    @property
    def transaction_topic(self) -> str | None:
        """Where the records of transactions go; None for a pipeline without any."""
        records = transactions_of(self.made(self.format))
        return None if records is None else records.topic + self.topics.suffix

    def route(self, database: str, table: str) -> TableRoute | None:
        """Where a table's changes go and under which key; None for a table that is not captured.

        Raises TopicError for a topic that cannot be named so.
        """
        if not self.tables.matches(database, table):
            return None
        key = self.key_rule(database, table)
        rules = format_of_table(self.format, self.topics, database, table).row_rules
        routed = route_of(self.topics, self.format, self.name, database, table, key, self._shown_file)
        route = replace(
            routed.route,
            rows=self._row_filter(database, table),
            with_history=self.row_versions == "all",
            skipped=frozenset(self.skip) | rules.skipped,
            unchanged_skipped=rules.unchanged_skipped,
        )
        return replace(routed, route=route)

    def unknown_answer(self, database: str, table: str) -> UnknownAnswer:
        """What `unknown_definition` says for a table; of two patterns that take it the first counts."""
        if isinstance(self.unknown_definition, str):
            return self.unknown_definition
        answers = (answer for pattern, answer in self.unknown_definition.items() if matches(pattern, database, table))
        return next(answers, "stop")

    def _row_filter(self, database: str, table: str) -> RowFilter | None:
        for pattern, sql in self.rows.items():
            if matches(pattern, database, table):
                from changefeed.pipelines.sql_condition import predicate_of  # sqlglot is only for those who need it

                return RowFilter(predicate_of(sql), f"{self._shown_file}: {pattern!r} in rows")
        return None

    def key_rule(self, database: str, table: str) -> KeyRule:
        """How the key columns of a table's messages are found."""
        rules = format_of_table(self.format, self.topics, database, table).row_rules
        return chosen_key(self.keys, self.keyless, rules, database, table, self._shown_file)

    @property
    def formats(self) -> list[FormatChoice]:
        """Those that the tables may have, the usual one first."""
        return [each for _, each in formats(self.format, self.topics)]

    @property
    def registry(self) -> str | None:
        """Connection id of the schema registry; None where no format has one."""
        return next((each.registry for each in self.formats if each.registry is not None), None)

    def message_format(self, frozen_at_ms: int, schema_ids: SchemaIds | None = None) -> Format:
        """The wire format of this pipeline's messages, by table where routes say so (see `formats.by_table`).

        ``frozen_at_ms`` is when their window was frozen. ``schema_ids`` are those of its registry; without them its
        messages are for nobody to keep.
        """
        made = [self.made(choice, frozen_at_ms, schema_ids) for choice in self.formats]
        if len(made) == 1:
            return made[0]
        own = iter(made[1:])
        by_route = [(route, next(own) if route.format else made[0]) for route in self.topics.routes]

        def choose(database: str, table: str) -> Format:
            chosen = chosen_route(self.topics, database, table)
            return next((format for route, format in by_route if route is chosen), made[0])

        return FormatsByTable(made, choose)

    def made(self, choice: FormatChoice, frozen_at_ms: int = 0, schema_ids: SchemaIds | None = None) -> Format:
        """One of its formats, made with the settings of all of them; raises SettingsError as `format_of` does."""
        ids, style = schema_ids or LocalIds(), self.values.style
        settings = FormatSettings(self.name, frozen_at_ms, style, self.tombstones, ids, choice.options)
        format = format_of(choice.name, settings)
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
        if text not in ("earliest", "latest", "snapshot") and not re.fullmatch(r".+\.\d{6,}:\d+", text):
            raise ValueError("wanted earliest, latest, snapshot, or FILE:POSITION such as binlog.000012:4")
        return text

    @field_validator("schedule")
    @classmethod
    def _is_schedule(cls, text: str | None) -> str | None:
        if text is None or text in _PRESETS or (not text.startswith("@") and _is_cron(text)):
            return text
        raise ValueError(f"wanted a cron expression such as '*/5 * * * *', or one of {', '.join(_PRESETS)}, or null")

    @model_validator(mode="after")
    def _format_takes_the_settings(self) -> Pipeline:
        for where, choice in formats(self.format, self.topics):
            try:
                self.made(choice)
            except SettingsError as error:
                raise MistakeInsideError(str(error), *where) from None
        return self

    @model_validator(mode="after")
    def _can_be_followed(self) -> Pipeline:
        if self.followers:
            try:
                check_replayable(self)
            except SettingsError as error:
                raise ValueError(str(error)) from None
        return self

    @model_validator(mode="after")
    def _goes_with_its_formats(self) -> Pipeline:
        beside = {
            "publish_ddl: inline": self.publish_ddl == "inline",
            "statements: publish": self.statements == "publish",
            "reader: reference": self.reader == "reference",
            "values": self.values != ValueSettings(),
        }
        for where, choice in formats(self.format, self.topics):
            try:
                choice.check_registry([setting for setting, is_set in beside.items() if is_set])
            except ValueError as error:
                raise MistakeInsideError(str(error), *where) from None
        check_one_registry(self.format, self.topics)
        check_one_format_a_topic(self.name, self.format, self.topics)
        check_row_rules(self.format, self.topics, self.model_fields_set, functions=bool(self.transforms))
        made = [(where, self.made(choice)) for where, choice in formats(self.format, self.topics)]
        check_numbered(made, functions=bool(self.transforms))
        return self

    @model_validator(mode="after")
    def _reference_is_plain(self) -> Pipeline:
        if self.reader == "reference" and (why := reference_limits.refusal(self)):
            raise ValueError(why)
        return self
