"""What a pipeline's YAML says, section by section, each setting checked by itself.

Sections with more to them have files of their own: topics, columns, formats, transforms, outbox.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Literal, Self

from croniter import CroniterError, croniter
from pydantic import AfterValidator, Field, PrivateAttr, field_validator, model_validator

from changefeed.errors import SettingsError, did_you_mean
from changefeed.formats.headers import check_headers
from changefeed.formats.registry import DEFAULT_FORMAT
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.model.column_rules import ColumnRule, ColumnRules, Excluded
from changefeed.model.connection import ConnectionLookup
from changefeed.model.message_key import Keyless
from changefeed.model.publish_settings import PublishSettings
from changefeed.model.table_pattern import is_regex, matches, matches_any
from changefeed.model.table_schema import Column, TableSchema, is_current_time
from changefeed.model.topic_name import dead_letter_topic
from changefeed.settings.column_settings import ColumnSettings, SecretSettings
from changefeed.settings.format_choice import FormatChoice
from changefeed.settings.outbox_settings import OutboxSettings
from changefeed.settings.section import ConnectionId, Name, Positive, Section
from changefeed.settings.table_pattern import KeySettings, RowSettings, TablePattern, TablePatterns, few
from changefeed.settings.topic_settings import TopicSettings
from changefeed.settings.transform_settings import TransformCall, TransformSettings


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
    register_as_replica: Annotated[bool, Field(alias="register")] = False
    """Whether the server's list of replicas shows the tasks that read under the pipeline's name."""
    max_bytes_per_second: Annotated[int | None, Field(ge=100_000)] = None
    """How fast a window's binlog is read at most: by one task at a time then."""

    @field_validator("server_ids")
    @classmethod
    def _is_range(cls, text: str | None) -> str | None:
        if text is None:
            return None
        bounds = re.fullmatch(r"(\d+)-(\d+)", text)
        if not bounds or not 0 < int(bounds[1]) <= int(bounds[2]) < 2**32:
            raise ValueError("wanted a range of server_ids such as 64000-64063")
        return text

    @model_validator(mode="after")
    def _replica_has_id(self) -> SourceSettings:
        if self.register_as_replica and self.server_ids is None:
            raise ValueError(
                "`register` needs `server_ids`: a server lists replicas by their server_id, and readers without a "
                "range of ids name none"
            )
        return self

    @property
    def server_id_range(self) -> range:
        """The ids of `server_ids`, both ends included; empty without them."""
        if self.server_ids is None:
            return range(0)
        first, last = self.server_ids.split("-")
        return range(int(first), int(last) + 1)


class TableSettings(Section):
    """Which tables are captured."""

    include: TablePatterns = Field(default=["*.*"], min_length=1)
    """Patterns of "database.table", with * and ? as in a shell, or /regular expressions/."""
    exclude: TablePatterns = Field(default=[])

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


_KINDS = {
    "decimal": (Kind.DECIMAL,),
    "bigint_unsigned": (Kind.BIGINT_UNSIGNED,),
    "temporal": (Kind.DATE, Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP),
    "binary": (Kind.BINARY, Kind.GEOMETRY),
    "documents": (Kind.JSON,),
}
"""The kinds of columns that each of `values` is about."""


class ValueSettings(Section):
    """How values are written: what a `formats.style.Style` is made of."""

    decimal: Literal["string", "double", "precise"] = "string"
    """Text with all digits, a JSON number, or Connect's bytes in base64."""
    temporal: Literal["iso", "epoch"] = "iso"
    """ISO 8601 text, or numbers since 1970: days, milliseconds, or microseconds for a precision over 3."""
    binary: Literal["base64", "hex"] = "base64"
    bigint_unsigned: Literal["number", "string"] = "number"
    documents: Literal["text", "inline"] = "text"
    """JSON columns: a JSON string of the document's text, or the document itself."""

    @property
    def style(self) -> Style:
        """Those settings that were given, as the style that a format writes values in: it has defaults of its own."""
        return Style(
            {
                kind: Encoding(getattr(self, name))
                for name, kinds in _KINDS.items()
                if name in self.model_fields_set
                for kind in kinds
            }
        )


SHORTEST_KEY = 32
"""Characters of `commit_log.key`: of a shorter one guesses can be tried against what it signed."""


class CommitLogSettings(Section):
    """How the pipeline's own logs, the commit log and the schema history, are kept from others."""

    key: SecretSettings | None = Field(default=None, repr=False)
    """The secret that signs their records; without one all records that are there are believed."""
    previous_keys: list[SecretSettings] = Field(default=[], repr=False)
    """Secrets that signed them before, until `changefeed sign` has signed all with `key`."""

    @model_validator(mode="after")
    def _has_a_key(self) -> CommitLogSettings:
        if self.previous_keys and self.key is None:
            raise ValueError("`previous_keys` are those that `key` replaced: give that, too")
        return self

    @property
    def secrets(self) -> list[SecretSettings]:
        """Where the secrets are, the one that signs first."""
        return [] if self.key is None else [self.key, *self.previous_keys]

    def keys(self, lookup: ConnectionLookup) -> tuple[str, ...]:
        """The secrets, the one that signs first; raises SettingsError for one that cannot be had, or is too short."""
        keys = tuple(secret.read(lookup) for secret in self.secrets)
        if any(len(key) < SHORTEST_KEY for key in keys):
            raise SettingsError(
                f"a key of `commit_log` has fewer than {SHORTEST_KEY} characters, and could be guessed by whoever "
                "reads the log: make one with `openssl rand -hex 32`"
            )
        return keys


class SparkSettings(Section):
    """Where Spark runs, and how a window is cut for it."""

    connection: ConnectionId = "spark_default"
    """Airflow's connection id of the Spark cluster."""
    master: str = "local[*]"
    """Master of runs without Airflow."""
    connect: Annotated[str, Field(pattern=r"^sc://.+")] | None = Field(default=None, repr=False)
    """URL of a Spark Connect server that is up already: runs use it instead of spark-submit. It may hold a token."""
    slice_bytes: Positive = 64 * 1024 * 1024
    conf: dict[str, str] = Field(default={}, repr=False)

    @property
    def cores(self) -> int | None:
        """How many tasks run at once, where these settings say it; None where only the cluster knows."""
        most, executors, each = (
            self.conf.get(f"spark.{name}", "") for name in ("cores.max", "executor.instances", "executor.cores")
        )
        if most.isdigit():
            return int(most)
        if executors.isdigit() and each.isdigit():
            return int(executors) * int(each)
        local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,\d+)?\])?", self.master.replace(" ", ""))
        if local is None or self.connect is not None:
            return None
        return (os.cpu_count() or 1) if local[1] == "*" else int(local[1] or 1)


class NotifierSettings(Section):
    """An Airflow notifier: its class, and the arguments it is made with, which may be templates."""

    notifier: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*\.[A-Za-z_]\w*$")]
    arguments: dict[str, str | int | float | bool | list[str]] = Field(default={}, repr=False)


class AlertSettings(Section):
    """What is sent to the notifiers, besides failed windows and dead letters, which always are."""

    headroom_hours: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    """The server purges the binlog that the checkpoint stands in, in less than so many hours."""
    lag_bytes: Positive | None = None
    lag_seconds: Positive | None = None
    notify: list[NotifierSettings] = Field(default=[])


SESSIONS = 2
"""That write to a follower at the same time, where nothing else is said."""


class OnStatement(StrEnum):
    """What a follower does about changes in statement format."""

    REFUSE = "refuse"
    RUN = "run"
    """Run those that are safe; triggers and stored functions of the source take no part in them."""


class FollowerSettings(Section):
    """A second server, which is kept as the source is."""

    connection: Annotated[ConnectionId, Field(title="Follower", description="Connection id of the follower.")]
    databases: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(
        default=[],
        title="Databases",
        description="The databases that it follows. Default: all that the pipeline captures.",
    )
    sessions: int = Field(
        default=SESSIONS,
        ge=1,
        le=16,
        title="Sessions",
        description="Connections that write rows at the same time; they commit in the source's order.",
    )
    statements: OnStatement = Field(
        default=OnStatement.REFUSE,
        title="Statements",
        description="Changes in statement format: refuse them, or run those that are safe, where the source has no "
        "triggers.",
    )


def follower_of(followers: Sequence[FollowerSettings], connection: str) -> FollowerSettings:
    """The one of ``followers`` whose connection id that is; raises SettingsError where there is none."""
    known = {follower.connection: follower for follower in followers}
    if connection not in known:
        raise SettingsError(
            f"the pipeline has no follower {connection!r}{did_you_mean(connection, known)}: its `followers` are "
            f"{', '.join(known) or 'none'}"
        )
    return known[connection]


UnknownAnswer = Literal["stop", "placeholder", "begin"]
UnknownDefinition = UnknownAnswer | Annotated[dict[TablePattern, UnknownAnswer], AfterValidator(few)]


def _has_text(value: object, text: str) -> bool:
    """Whether ``value``, of a setting, is or holds the text, in whatever case."""
    if isinstance(value, Mapping):
        return any(_has_text(each, text) for item in value.items() for each in item)
    if isinstance(value, list | tuple):
        return any(_has_text(each, text) for each in value)
    return isinstance(value, str) and value.lower() == text


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


def _described(column: Column, is_hidden: bool) -> Column:
    if is_hidden:
        return replace(column, labels=(), default=None, comment=None)
    is_expression = column.default is not None and column.default.is_sql and not is_current_time(column.default)
    return replace(column, default=None) if is_expression else column


class PipelineSettings(Section):
    """What a file of `include/pipelines/` says, each setting checked by itself: `Pipeline` checks them together."""

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
    keyless: Keyless | None = None
    """What is the key of tables without a primary key that no pattern of `keys` takes; None for what the format says.
    """
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
    commit_log: CommitLogSettings = CommitLogSettings()
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

    def of_file(self, file: str) -> Self:
        """These settings, which messages place in ``file``."""
        self._file = file
        return self

    @property
    def shown_file(self) -> str:
        """Where the settings are, for messages."""
        return self._file or f"pipeline {self.name!r}"

    @property
    def dead_letter_topic(self) -> str | None:
        """The topic for what cannot be published; None where such a record or change stops the run."""
        return dead_letter_topic(self.name) if self.kafka.on_bad_record == "dead_letter" else None

    @property
    def hides_columns(self) -> bool:
        """Whether columns are left out, masked or transformed, so that nothing may show what a statement's text has of
        them."""
        return bool(self.columns.exclude or self.columns.mask or self.transforms)

    def hides(self, database: str, table: str, column: str) -> bool:
        """Whether messages do not have a column's values as they are: by a pattern, or as arguments of a function name
        it. What a function does besides is not known here."""
        patterns = (*self.columns.exclude, *self.columns.mask)
        if any(ColumnRule(pattern, Excluded(), "").covers(database, table, column) for pattern in patterns):
            return True
        of_table = (each for each in self.transforms if matches(each.tables, database, table))
        return any(_has_text(each.arguments, column.lower()) for each in of_table)

    def column_rules(self, lookup: ConnectionLookup) -> ColumnRules:
        """`columns` as rules: those that leave a column out come before those that mask it.

        Raises SettingsError for a secret of a mask that its connection or environment variable does not have.
        """
        left_out = [ColumnRule(pattern, Excluded(), "columns.exclude") for pattern in self.columns.exclude]
        masked = [
            ColumnRule(pattern, mask.treatment(lookup), "columns.mask") for pattern, mask in self.columns.mask.items()
        ]
        return ColumnRules((*left_out, *masked), self.shown_file, transformed=bool(self.transforms))

    def described(self, table: TableSchema) -> TableSchema:
        """``table`` as those may see its definition who do not see what the pipeline hides.

        Hidden columns are without their defaults, comments and labels, which are values that stand or may stand in
        them; of all columns, where functions may hide any. Defaults that are expressions may quote others' values.
        """
        if not self.hides_columns:
            return table
        hiding = [ColumnRule(pattern, Excluded(), "") for pattern in (*self.columns.exclude, *self.columns.mask)]

        def hides(column: str) -> bool:
            return bool(self.transforms) or any(rule.covers(table.database, table.table, column) for rule in hiding)

        return replace(table, columns=tuple(_described(column, hides(column.name)) for column in table.columns))

    def may_show(self, database: str, table: str, columns: Sequence[str]) -> list[str]:
        """Those of ``columns`` that are shown, although the table's columns of other names are hidden.

        What functions do with names that they do not know, nobody knows: of their tables it is all of them.
        """
        patterns = [*self.columns.exclude, *self.columns.mask]
        hides = any(is_regex(pattern) or matches(pattern.rpartition(".")[0], database, table) for pattern in patterns)
        if any(matches(transform.tables, database, table) for transform in self.transforms):
            return list(columns)
        rules = [ColumnRule(pattern, Excluded(), "") for pattern in patterns]
        return [name for name in columns if hides and not any(rule.covers(database, table, name) for rule in rules)]

    def transform_calls(self, lookup: ConnectionLookup) -> tuple[TransformCall, ...]:
        """`transforms` with their secrets; raises SettingsError for one that cannot be had."""
        return tuple(transform.call(lookup) for transform in self.transforms)

    def unknown_answer(self, database: str, table: str) -> UnknownAnswer:
        """What `unknown_definition` says for a table; of two patterns that take it the first counts."""
        if isinstance(self.unknown_definition, str):
            return self.unknown_definition
        answers = (answer for pattern, answer in self.unknown_definition.items() if matches(pattern, database, table))
        return next(answers, "stop")

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
