"""The settings of a pipeline's YAML, each checked by itself.

Larger sections have files of their own: topics, columns, formats, transforms, outbox.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, PrivateAttr, field_validator, model_validator

from changefeed.errors import SettingsError, did_you_mean
from changefeed.formats.headers import check_headers
from changefeed.formats.registry import DEFAULT_FORMAT
from changefeed.formats.style import Encoding, Kind, Style
from changefeed.model.column_rules import ColumnRule, ColumnRules, Excluded
from changefeed.model.connection import ConnectionLookup
from changefeed.model.message_key import Keyless
from changefeed.model.publish_settings import PublishSettings
from changefeed.model.table_pattern import is_regex, matches, matches_any, names_database
from changefeed.model.table_schema import Column, TableSchema, is_current_time
from changefeed.model.topic_name import dead_letter_topic
from changefeed.settings.alert_limits import AlertLimits
from changefeed.settings.column_settings import ColumnSettings, SecretSettings
from changefeed.settings.format_choice import FormatChoice
from changefeed.settings.outbox_settings import OutboxSettings
from changefeed.settings.schedule import check_schedule
from changefeed.settings.section import ConnectionId, Duration, Name, Positive, Section, duration_seconds
from changefeed.settings.table_pattern import KeySettings, RowSettings, TablePattern, TablePatterns, check_pattern_count
from changefeed.settings.topic_settings import TopicSettings
from changefeed.settings.transform_settings import TransformCall, TransformSettings


class SourceSettings(Section):
    """The server whose binlog is read."""

    connection: ConnectionId
    """Connection id of the MySQL or MariaDB server."""
    server_ids: str | None = None
    """Range of server_ids such as `64000-64063`, one for each task that reads a window. No other replica of the source
    may use them. Without a range the tasks send no server_id."""

    heartbeat_seconds: Annotated[int, Field(gt=0, le=4_294_967)] = 30
    """If the server has nothing to send for this long, it sends a heartbeat, which keeps idle connections open."""
    register_as_replica: Annotated[bool, Field(alias="register")] = False
    """`true`: the server's list of replicas (`SHOW REPLICAS`) shows the tasks that read windows, with `changefeed/NAME`
    as their host. Needs `server_ids`."""
    max_bytes_per_second: Annotated[int | None, Field(ge=100_000)] = None
    """Maximum rate at which a window's binlog is read. With a limit one task reads at a time."""

    @field_validator("server_ids")
    @classmethod
    def _check_range(cls, text: str | None) -> str | None:
        if text is None:
            return None
        bounds = re.fullmatch(r"(\d+)-(\d+)", text)
        if not bounds or not 0 < int(bounds[1]) <= int(bounds[2]) < 2**32:
            raise ValueError("expected a range of server_ids such as 64000-64063")
        return text

    @model_validator(mode="after")
    def _check_replica_has_id(self) -> SourceSettings:
        if self.register_as_replica and self.server_ids is None:
            raise ValueError(
                "`register` needs `server_ids`: a server lists replicas by their server_id, and readers without a "
                "range of ids send none"
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
    """The tables that are captured."""

    include: TablePatterns = Field(default=["*.*"], min_length=1)
    """Patterns of `DATABASE.TABLE`, with `*` and `?` as in a shell, or regular expressions between slashes."""
    exclude: TablePatterns = Field(default=[])
    """Patterns of tables that are not captured, although a pattern of `include` matches them."""

    def matches(self, database: str, table: str) -> bool:
        """Whether the table is captured: a pattern of `include` matches it, and no pattern of `exclude`."""
        return matches_any(tuple(self.include), database, table) and not matches_any(
            tuple(self.exclude), database, table
        )

    def names_database(self, database: str) -> bool:
        """Whether a pattern of `include` may take tables of the database."""
        return any(names_database(pattern, database) for pattern in self.include)


class AutomaticSnapshotSettings(Section):
    """Snapshots that the pipeline takes by itself; the first one is `start: snapshot`."""

    new_tables: bool = False
    """`true`: a table that existed before the patterns in `tables` matched it gets a snapshot by itself. Tables that
    match when the setting is added get none."""


class CheckpointSettings(Section):
    """Where the checkpoint is stored."""

    store: Literal["variable", "table", "kafka"] = "variable"
    """`variable`: an Airflow Variable; `table`: a table in a database that SQLAlchemy reaches; `kafka`: a topic of the
    pipeline's Kafka cluster."""
    connection: ConnectionId | None = None
    """With `store: table`: connection id of the table's database."""

    @property
    def place(self) -> str:
        """Where the checkpoint is, for messages."""
        match self.store:
            case "variable":
                return "Airflow's Variables"
            case "table":
                return f"the state table of connection {self.connection!r}"
            case "kafka":
                return "its checkpoint topic in Kafka"

    @model_validator(mode="after")
    def _check_table_has_connection(self) -> CheckpointSettings:
        if (self.store == "table") != (self.connection is not None):
            raise ValueError(
                "`connection` is the database of the state table: set it with `store: table`, and only then"
            )
        return self


class KafkaSettings(Section):
    """The Kafka cluster, and how records are published to it."""

    connection: ConnectionId
    """Connection id of the Kafka cluster."""
    transaction_rows: Positive = PublishSettings.transaction_rows
    """A Kafka transaction is committed after this many records, or after `transaction_seconds`."""
    transaction_seconds: Positive = int(PublishSettings.transaction_seconds)
    """A Kafka transaction is committed after this time, or after `transaction_rows`. Must be less than
    `transaction_timeout_seconds`."""
    transaction_timeout_seconds: Positive = int(PublishSettings.transaction_timeout_seconds)
    """The broker aborts a transaction whose producer sends nothing for this long. At most the brokers'
    `transaction.max.timeout.ms` (15 minutes by default)."""
    compression: Literal["lz4", "zstd", "snappy", "gzip", "none"] = "lz4"
    """Compression of record batches."""
    compression_level: int | None = None
    """Level of the codec: lz4 -64 to 16 (default -2), zstd -64 to 22, gzip 1 to 9. Below 1, lower levels are faster.
    Empty: the codec's default."""
    timestamps: Literal["event", "publish"] = "event"
    """Timestamp of a record: the time of its change, or the time of publishing. Events that are older than half of
    their topic's `retention.ms`, and events in the future, get the time of publishing."""
    on_bad_record: Literal["fail", "dead_letter"] = "fail"
    """A record that its topic refuses, or a change on which a function fails: `fail` stops the run, `dead_letter` sends
    it to the topic `changefeed.NAME.dead-letter`."""
    lease_seconds: Positive = 15
    """A run that does not renew its lease for this long counts as dead, and the next run takes over."""

    @property
    def publish_settings(self) -> PublishSettings:
        """These settings as a publishing task uses them."""
        return PublishSettings(
            transaction_rows=self.transaction_rows,
            transaction_seconds=self.transaction_seconds,
            transaction_timeout_seconds=self.transaction_timeout_seconds,
            compression=self.compression,
            compression_level=self.compression_level,
            timestamps=self.timestamps,
        )

    @model_validator(mode="after")
    def _check_transaction_seconds(self) -> KafkaSettings:
        if self.transaction_seconds >= self.transaction_timeout_seconds:
            raise ValueError(
                f"transaction_seconds, {self.transaction_seconds}, must be less than transaction_timeout_seconds, "
                f"{self.transaction_timeout_seconds}: the broker aborts a transaction that is open for longer"
            )
        return self

    @model_validator(mode="after")
    def _check_compression_level(self) -> KafkaSettings:
        try:
            _ = self.publish_settings
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
"""The kinds of columns that each key of `values` applies to."""


class ValueSettings(Section):
    """How values are written. A setting overrides the format and its options; without it the format's page describes
    the values."""

    decimal: Literal["string", "double", "precise"] = "string"
    """DECIMAL: text with all digits, a JSON number, or Connect's bytes (two's complement, big-endian) in base64."""
    temporal: Literal["iso", "epoch"] = "iso"
    """`iso`: ISO 8601 text; `epoch`: DATE in days since 1970, other types in milliseconds, or in microseconds if the
    type has more than 3 digits of fractional seconds. With `epoch` zero and partial dates are null."""
    binary: Literal["base64", "hex"] = "base64"
    """Binary values and geometries."""
    bigint_unsigned: Literal["number", "string"] = "number"
    """BIGINT UNSIGNED: a number, or text for readers whose numbers are doubles."""
    documents: Literal["text", "inline"] = "text"
    """JSON columns: a string with the document's text, or the document itself."""

    @property
    def style(self) -> Style:
        """The settings that are set, as a style. The format has its own defaults for the others."""
        return Style(
            {
                kind: Encoding(getattr(self, name))
                for name, kinds in _KINDS.items()
                if name in self.model_fields_set
                for kind in kinds
            }
        )


MIN_KEY_LENGTH = 32
"""Minimum characters of `commit_log.key`: a shorter key could be guessed with the records that it signed."""


class CommitLogSettings(Section):
    """Protection of the pipeline's commit log and schema history against other writers."""

    key: SecretSettings | None = Field(default=None, repr=False)
    """Secret of at least 32 characters that signs the records of both topics. Without a key all existing records are
    trusted."""
    previous_keys: list[SecretSettings] = Field(default=[], repr=False)
    """Earlier secrets, until `changefeed sign` has signed all records with `key`."""

    @model_validator(mode="after")
    def _check_has_key(self) -> CommitLogSettings:
        if self.previous_keys and self.key is None:
            raise ValueError("`previous_keys` are keys that `key` replaced: set `key`, too")
        return self

    @property
    def secrets(self) -> list[SecretSettings]:
        """The places of the secrets; the first signs."""
        return [] if self.key is None else [self.key, *self.previous_keys]

    def keys(self, lookup: ConnectionLookup) -> tuple[str, ...]:
        """The secrets; the first signs. Raises SettingsError for a secret that is missing or too short."""
        keys = tuple(secret.read(lookup) for secret in self.secrets)
        if any(len(key) < MIN_KEY_LENGTH for key in keys):
            raise SettingsError(
                f"a key of `commit_log` has fewer than {MIN_KEY_LENGTH} characters, and readers of the log could guess "
                "it. Create a key with `openssl rand -hex 32`"
            )
        return keys


class SparkSettings(Section):
    """Where Spark runs, and how large its tasks are."""

    connection: ConnectionId = "spark_default"
    """Airflow's connection id of the Spark cluster."""
    master: str = "local[*]"
    """Spark master of runs without Airflow."""
    deploy_mode: Literal["client", "cluster"] | None = None
    """Where the driver of Airflow's tasks runs: `client`, on the Airflow worker; `cluster`, on a machine of a YARN
    cluster or in a pod of its own on Kubernetes. Empty: where `deploy-mode` in the extra of the Spark connection says,
    by default `client`."""
    deferrable: bool = False
    """With `deploy_mode: cluster` on YARN: while the driver works, Airflow's triggerer waits for its end, and the task
    holds no worker slot. Its pool counts it only if the pool has *Include deferred*."""
    connect: Annotated[str, Field(pattern=r"^sc://.+")] | None = Field(default=None, repr=False)
    """URL of a running Spark Connect server (`sc://host:15002`), which is used instead of spark-submit and of `master`.
    Its workers need the package `changefeed`. The URL may hold a token."""
    slice_bytes: Positive = 64 * 1024 * 1024
    """A binlog file larger than 1.5 times this is cut into slices of about this size."""
    executor_seconds: Positive = 240
    """On a cluster: how long the jobs of a run wait for an executor. After that the run fails and can be retried."""
    conf: dict[str, str] = Field(default={}, repr=False)
    """Spark's own settings. `spark.speculation` stays off, and the settings that close Spark's ports and files stay on.
    With `spark.ui.enabled: "true"` a job has Spark's web page, and the page of a run under way links to it."""

    @model_validator(mode="after")
    def _check_deploy_mode(self) -> SparkSettings:
        if self.deploy_mode == "cluster" and self.connect is not None:
            raise ValueError(
                "`deploy_mode: cluster` and `connect` exclude each other: a job with a Spark Connect server is no "
                "application of spark-submit"
            )
        if self.deferrable and self.deploy_mode != "cluster":
            raise ValueError(
                "`deferrable` needs `deploy_mode: cluster`: elsewhere the driver is a process of the Airflow worker, "
                "and ends with its task"
            )
        return self

    @property
    def cores(self) -> int | None:
        """The number of tasks that run at once by these settings; None if it depends on the cluster."""
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
    """An Airflow notifier."""

    notifier: Annotated[str, Field(pattern=r"^[A-Za-z_][\w.]*\.[A-Za-z_]\w*$")]
    """Class of the notifier, with its module. The site's file must list it in `notifiers`."""
    arguments: dict[str, str | int | float | bool | list[str]] = Field(default={}, repr=False)
    """Arguments of the notifier, which may be templates: `{{ changefeed.kind }}`, `{{ changefeed.pipeline }}`, `{{
    changefeed.text }}`."""


class AlertSettings(AlertLimits):
    """Limits that send an alert to the notifiers. Failed windows and dead letters always send one. For
    limits that are not set, the DAG `changefeed_freshness` uses those of `freshness` in the site's file."""

    notify: list[NotifierSettings] = Field(default=[])
    """Notifiers that get the alerts."""


DEFAULT_SESSIONS = 2
"""Default number of connections that write to a follower at the same time."""


class OnStatement(StrEnum):
    """What a follower does with changes in statement format."""

    REFUSE = "refuse"
    RUN = "run"
    """Run safe statements, which involve no triggers or stored functions of the source."""


class FollowerSettings(Section):
    """A server to which the published changes are applied."""

    connection: Annotated[ConnectionId, Field(title="Follower", description="Connection id of the follower.")]
    databases: list[Annotated[str, Field(min_length=1, max_length=64)]] = Field(
        default=[],
        title="Databases",
        description="Databases that the follower has. Default: all that the pipeline captures.",
    )
    sessions: int = Field(
        default=DEFAULT_SESSIONS,
        ge=1,
        le=16,
        title="Sessions",
        description="Number of connections that write rows at the same time. They commit in the source's order.",
    )
    statements: OnStatement = Field(
        default=OnStatement.REFUSE,
        title="Statements",
        description="Changes in statement format: refuse them, or run safe statements, if the source has no triggers.",
    )


def find_follower(followers: Sequence[FollowerSettings], connection: str) -> FollowerSettings:
    """The follower with this connection id; raises SettingsError if there is none."""
    known = {follower.connection: follower for follower in followers}
    if connection not in known:
        raise SettingsError(
            f"the pipeline has no follower {connection!r}{did_you_mean(connection, known)}: its `followers` are "
            f"{', '.join(known) or 'none'}"
        )
    return known[connection]


MOST_EVERY_SECONDS = 600.0
LEAST_RUN_SECONDS, MOST_RUN_SECONDS = 10.0, 3600.0
"""Limits of `windows`."""

UnknownSchemaAction = Literal["stop", "placeholder", "begin"]
UnknownSchema = (
    UnknownSchemaAction | Annotated[dict[TablePattern, UnknownSchemaAction], AfterValidator(check_pattern_count)]
)


def _contains_text(value: object, text: str) -> bool:
    """Whether a setting's ``value`` is or contains the text, ignoring case."""
    if isinstance(value, Mapping):
        return any(_contains_text(each, text) for item in value.items() for each in item)
    if isinstance(value, list | tuple):
        return any(_contains_text(each, text) for each in value)
    return isinstance(value, str) and value.lower() == text


def _redact_column(column: Column, is_hidden: bool) -> Column:
    if is_hidden:
        return replace(column, labels=(), default=None, comment=None)
    is_expression = column.default is not None and column.default.is_sql and not is_current_time(column.default)
    return replace(column, default=None) if is_expression else column


class WindowSettings(Section):
    """Windows one after another in one run, so that changes are in Kafka within seconds."""

    every: Duration = "1s"
    """Minimum time from the start of a window to the start of the next. A window takes all changes since the last."""
    run_for: Duration = "10m"
    """How long a run publishes windows. Then the next run takes over: with `schedule: "@continuous"` at once."""
    max_rows: Positive | None = None
    """Maximum number of row changes of a window, including those of tables that are not captured. A transaction with
    more is a window of its own. Empty: no limit."""

    @property
    def every_seconds(self) -> float:
        """`every` in seconds."""
        return duration_seconds(self.every)

    @property
    def run_seconds(self) -> float:
        """`run_for` in seconds."""
        return duration_seconds(self.run_for)

    @field_validator("every")
    @classmethod
    def _check_every(cls, text: str) -> str:
        if duration_seconds(text) > MOST_EVERY_SECONDS:
            raise ValueError(f"expected at most {MOST_EVERY_SECONDS / 60:g}m; for longer pauses leave `windows` out")
        return text

    @field_validator("run_for")
    @classmethod
    def _check_run_for(cls, text: str) -> str:
        if not LEAST_RUN_SECONDS <= duration_seconds(text) <= MOST_RUN_SECONDS:
            raise ValueError(
                f"expected {LEAST_RUN_SECONDS:g}s to {MOST_RUN_SECONDS / 3600:g}h: each run starts a Spark job, and "
                "some changes of the YAML count from the next run on"
            )
        return text

    @model_validator(mode="after")
    def _check_times(self) -> WindowSettings:
        if self.every_seconds > self.run_seconds:
            raise ValueError(
                f"expected `every` of at most `run_for: {self.run_for}`, found `every: {self.every}`: a run's "
                "time would be over before its second window. Set a shorter `every`, or a longer `run_for`"
            )
        return self


class PipelineSettings(Section):
    """The settings of a file in `include/pipelines/`, each checked by itself. `Pipeline` checks combinations."""

    name: Name
    """Name of the pipeline: lower case letters, digits, `-` and `_`, at most 64 characters. It is the key of the
    checkpoint, and unique."""
    source: SourceSettings
    kafka: KafkaSettings
    tables: TableSettings = TableSettings()
    topics: TopicSettings = TopicSettings()
    format: FormatChoice = FormatChoice(name=DEFAULT_FORMAT)
    """Wire format: a name, or a mapping of `name` and the format's options."""
    headers: list[str] = Field(default=[])
    """Names of record headers that are added to the event id and the GTID, in this order."""
    keys: KeySettings = Field(default={})
    """By pattern of tables, the columns that are the message key instead of the primary key. The first pattern that
    matches a table counts."""
    rows: RowSettings = Field(default={})
    """By pattern of tables, a condition in SQL. Only matching rows are published. The first pattern that matches a
    table counts."""
    skip: list[Literal["c", "u", "d", "r", "t"]] = Field(default=[])
    """Ops that are not published: `c` (create), `u` (update), `d` (delete), `r` (row of a snapshot), `t` (truncate)."""
    keyless: Keyless | None = None
    """Message key of tables without a primary key that no pattern of `keys` matches. Empty: as the format says."""
    row_versions: Literal["current", "all"] = "current"
    """MariaDB's system-versioned tables: current rows only, or history rows too."""
    columns: ColumnSettings = ColumnSettings()
    transforms: list[TransformSettings] = Field(default=[])
    """Python functions that are applied to changes, in this order, before masks."""
    outbox: OutboxSettings | None = None
    """Tables whose rows are messages of an application."""
    values: ValueSettings = ValueSettings()
    tombstones: bool = True
    """A delete is followed by a record with its key and no value, for compacted topics."""
    checkpoint: CheckpointSettings = CheckpointSettings()
    commit_log: CommitLogSettings = CommitLogSettings()
    freeze_schema: bool = False
    """`true`: rows are decoded by the table schemas of the first run with this setting; later DDL does not change them.
    A TABLE_MAP that contradicts them stops the run."""
    publish_ddl: Literal["topic", "inline", "off"] = "topic"
    """`topic`: schema changes go to the pipeline's schema-change topic; `inline`: also to the topics of their tables;
    `off`: nowhere."""
    heartbeat: bool = False
    """`true`: each run, also one that finds nothing new, writes the position up to which changes are published to the
    topic `changefeed.NAME.heartbeat`."""
    statements: Literal["fail", "publish", "skip"] = "fail"
    """A change in statement format, whose rows the binlog does not have: `fail` stops the run, `publish` sends a
    statement record to the topics of its tables, `skip` leaves it out."""
    unknown_schema: UnknownSchema = "stop"
    """Rows whose columns are not known at their position in the binlog, for all tables or by pattern: `stop` before the
    first such row, `placeholder` names, or `begin` where the schema is known."""
    on_table_error: Literal["stop", "park"] = "stop"
    """An error that belongs to one table: `stop` the run, or `park` the table: it is left out from the start of that
    window on, and comes back by `changefeed unpark`."""
    start: str = "earliest"
    """Start of the first window: `earliest`, `latest`, `FILE:POSITION`, or `snapshot` (as `latest`, and a snapshot
    publishes the existing rows of all tables, once)."""
    snapshot: AutomaticSnapshotSettings = AutomaticSnapshotSettings()
    reader: Literal["kernel", "reference"] = "kernel"
    """Decoder: the kernel, or mysql-replication, which is slow, supports fewer types, and is for comparisons."""
    schedule: Annotated[str, Field(max_length=500)] | None = "*/5 * * * *"
    """Schedule of the DAG: a cron expression, a preset such as `@daily`, or `null` for manual runs only."""
    retries: Annotated[int, Field(ge=0, le=10_000)] = 2
    """Retries of the DAG's tasks after a retryable error. A terminal error fails a task at once."""
    retry_delay_seconds: Annotated[int, Field(gt=0, le=2_592_000)] = 30
    """Time between retries."""
    window_bytes: Positive = 2 * 1024**3
    """Maximum size of a window. A larger backlog becomes several windows of one run, cut at ends of binlog files."""
    windows_per_run: Positive = 20
    """Maximum number of windows of a run. The next run continues."""
    windows: WindowSettings | None = None
    """Windows one after another in one run. Without it a run publishes the changes up to the head that it finds."""
    pool: Annotated[str, Field(max_length=256)] = "default_pool"
    """Airflow pool of the tasks that publish windows or replicate. A continuous run needs two slots, as the next one
    begins before it ends. Backfills, snapshots, verifications and `unpark` run in the pool that the environment
    variable CHANGEFEED_BACKFILL_POOL names, else in `default_pool`."""
    deadline_minutes: Annotated[int, Field(gt=0, le=525_600)] | None = None
    """Alert if a run is not finished this long after it was queued."""
    alerts: AlertSettings = AlertSettings()
    owner: Annotated[str, Field(max_length=500)] = "changefeed"
    """Owner of the DAGs."""
    tags: Annotated[list[Annotated[str, Field(max_length=100)]], Field(max_length=100)] = Field(default=[])
    """Tags of the DAGs."""
    spark: SparkSettings = SparkSettings()
    followers: list[FollowerSettings] = Field(default=[])
    """Servers to which the changes are applied by the pipeline's replicate DAG."""
    _file: str = PrivateAttr(default="")

    def with_file(self, file: str) -> Self:
        """These settings; messages about them name ``file``."""
        self._file = file
        return self

    @property
    def display_file(self) -> str:
        """The file of the settings, for messages."""
        return self._file or f"pipeline {self.name!r}"

    @property
    def dead_letter_topic(self) -> str | None:
        """The topic of records and changes that cannot be published; None if they stop the run."""
        return dead_letter_topic(self.name) if self.kafka.on_bad_record == "dead_letter" else None

    @property
    def hides_columns(self) -> bool:
        """Whether columns are excluded, masked or transformed, so that no record may have a statement's text."""
        return bool(self.columns.exclude or self.columns.mask or self.transforms)

    def hides(self, database: str, table: str, column: str) -> bool:
        """Whether a pattern hides the column, or arguments of a function name it. Other columns that functions change
        are not known."""
        patterns = (*self.columns.exclude, *self.columns.mask)
        if any(ColumnRule(pattern, Excluded(), "").covers(database, table, column) for pattern in patterns):
            return True
        of_table = (each for each in self.transforms if matches(each.tables, database, table))
        return any(_contains_text(each.arguments, column.lower()) for each in of_table)

    def column_rules(self, lookup: ConnectionLookup) -> ColumnRules:
        """`columns` as rules, exclusions before masks.

        Raises SettingsError if a connection or an environment variable does not have a mask's secret.
        """
        left_out = [ColumnRule(pattern, Excluded(), "columns.exclude") for pattern in self.columns.exclude]
        masked = [
            ColumnRule(pattern, mask.build_treatment(lookup), "columns.mask")
            for pattern, mask in self.columns.mask.items()
        ]
        return ColumnRules((*left_out, *masked), self.display_file, transformed=bool(self.transforms))

    def redact_table(self, table: TableSchema) -> TableSchema:
        """``table`` without values that the pipeline hides.

        Hidden columns lose their default, comment and labels, which may be values of the column. With functions all
        columns lose them. Defaults that are expressions are removed too, as they may quote values of other columns.
        """
        if not self.hides_columns:
            return table
        hiding = [ColumnRule(pattern, Excluded(), "") for pattern in (*self.columns.exclude, *self.columns.mask)]

        def hides(column: str) -> bool:
            return bool(self.transforms) or any(rule.covers(table.database, table.table, column) for rule in hiding)

        return replace(table, columns=tuple(_redact_column(column, hides(column.name)) for column in table.columns))

    def list_visible_columns(self, database: str, table: str, columns: Sequence[str]) -> list[str]:
        """The columns of ``columns`` that no rule hides; empty if no rule may hide columns of the table.

        If functions are applied to the table, all of ``columns``: a function may handle columns by their names, and
        would not find those of placeholder names.
        """
        patterns = [*self.columns.exclude, *self.columns.mask]
        hides = any(is_regex(pattern) or matches(pattern.rpartition(".")[0], database, table) for pattern in patterns)
        if any(matches(transform.tables, database, table) for transform in self.transforms):
            return list(columns)
        rules = [ColumnRule(pattern, Excluded(), "") for pattern in patterns]
        return [name for name in columns if hides and not any(rule.covers(database, table, name) for rule in rules)]

    def transform_calls(self, lookup: ConnectionLookup) -> tuple[TransformCall, ...]:
        """`transforms` with their secrets; raises SettingsError if a secret is missing."""
        return tuple(transform.call(lookup) for transform in self.transforms)

    def unknown_schema_action(self, database: str, table: str) -> UnknownSchemaAction:
        """The action of `unknown_schema` for a table. The first pattern that matches counts."""
        if isinstance(self.unknown_schema, str):
            return self.unknown_schema
        answers = (answer for pattern, answer in self.unknown_schema.items() if matches(pattern, database, table))
        return next(answers, "stop")

    @field_validator("headers")
    @classmethod
    def _check_headers(cls, names: list[str]) -> list[str]:
        try:
            check_headers(names)
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return names

    @field_validator("start")
    @classmethod
    def _check_start(cls, text: str) -> str:
        if text not in ("earliest", "latest", "snapshot") and not re.fullmatch(r".+\.\d{6,}:\d+", text):
            raise ValueError("expected earliest, latest, snapshot, or FILE:POSITION such as binlog.000012:4")
        return text

    @field_validator("schedule")
    @classmethod
    def _check_schedule(cls, text: str | None) -> str | None:
        return check_schedule(text)
