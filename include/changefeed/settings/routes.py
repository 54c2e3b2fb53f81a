"""A pipeline's settings, compiled: the topic, key and format of each table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from changefeed.errors import TopicError
from changefeed.formats.by_table import FormatsByTable
from changefeed.formats.format import Format, FormatSettings, joins_rows, transactions_of
from changefeed.formats.headers import WithHeaders
from changefeed.formats.registry import format_of
from changefeed.formats.schema_ids import LocalIds, SchemaIds
from changefeed.formats.style import Style
from changefeed.model.message_key import Keyless, KeyRule
from changefeed.model.route import Route, TableField
from changefeed.model.row_predicate import RowFilter
from changefeed.model.table_pattern import is_regex, matcher, matches
from changefeed.model.topic_name import check_chosen_name, template_fields, topic_name
from changefeed.settings.format_choice import FormatChoice
from changefeed.settings.pipeline_settings import PipelineSettings, TableSettings
from changefeed.settings.topic_settings import RouteSettings, TopicSettings


@dataclass(frozen=True)
class TableRoute:
    """The settings of one captured table.

    ``route`` has the number of partitions with which a missing topic is created; an existing topic may have another.
    ``shares``: other tables may use the same topic. ``template`` is the template of the topic's name, ``format`` the
    format of its records.
    """

    route: Route
    template: str
    format: FormatChoice
    replication_factor: int = -1
    configs: Mapping[str, str] = field(default_factory=dict)
    shares: bool = False

    @property
    def topic(self) -> str:
        """The topic's name."""
        return self.route.topic

    @property
    def creation_settings(self) -> tuple[int, int, dict[str, str]]:
        """Partitions, replication factor and configs with which a missing topic is created."""
        return self.route.partitions, self.replication_factor, dict(self.configs)


@dataclass(frozen=True)
class TopicRule:
    """Settings of the topics of the tables that ``match`` matches; ``format`` is the index of their format."""

    match: str
    template: str
    shares: bool
    partitions: int
    configs: Mapping[str, str]
    partition_by: Literal["key", "table"] | tuple[str, ...]
    table_field: TableField | None
    format: int

    def topic(self, pipeline: str, database: str, table: str) -> str:
        """The name of a table's topic; raises TopicError for an invalid name."""
        groups: dict[str, str] = {}
        if is_regex(self.match) and (match := matcher(self.match).fullmatch(f"{database}.{table}")):
            groups = {str(number): text or "" for number, text in enumerate(match.groups(), start=1)}
            groups |= {name: text or "" for name, text in match.groupdict().items()}
        return topic_name(self.template, database, table, pipeline, groups)


@dataclass(frozen=True)
class Routes:
    """Topic, key and format of each table, built from settings by `compile_routes`.

    In each of ``topics``, ``keys`` and ``rows``, the first rule that matches a table counts; the last rule of
    ``topics`` matches all tables. The first of ``formats`` applies to tables whose route names no format. ``file`` is
    the file of the settings, for messages.
    """

    pipeline: str
    file: str
    tables: TableSettings
    topics: tuple[TopicRule, ...]
    replication_factor: int
    suffix: str
    keys: tuple[tuple[str, tuple[str, ...]], ...]
    keyless: Keyless | None
    rows: tuple[tuple[str, RowFilter], ...]
    skipped: frozenset[str]
    with_history: bool
    formats: tuple[FormatChoice, ...]
    style: Style
    tombstones: bool
    headers: tuple[str, ...]

    def of(self, database: str, table: str) -> TableRoute | None:
        """The route of a table; None for a table that is not captured.

        Raises TopicError if the topic would get an invalid name.
        """
        name = database, table
        if not self.tables.matches(*name):
            return None
        rule = self._topic_rule(*name)
        choice = self.formats[rule.format]
        route = Route(
            rule.topic(self.pipeline, *name),
            rule.partitions,
            self.key_rule(*name),
            "table" if rule.partition_by == "key" and self._joining[rule.format] else rule.partition_by,
            rule.table_field,
            self.file,
            next((rows for pattern, rows in self.rows if matches(pattern, *name)), None),
            self.skipped | choice.row_rules.skipped,
            self.with_history,
            choice.row_rules.unchanged_skipped,
        )
        return TableRoute(route, rule.template, choice, self.replication_factor, rule.configs, rule.shares)

    def of_database(self, database: str) -> TableRoute | None:
        """The route of statements about the database itself (CREATE DATABASE, …): the topic that all its tables share.

        None if the tables of the database do not share a topic.

        Raises TopicError if the topic would get an invalid name.
        """
        rule = self.topics[-1]
        if not rule.shares or "table" in template_fields(rule.template):
            return None
        topic = topic_name(rule.template, database, "", self.pipeline, {})
        route = Route(topic, rule.partitions, setting=self.file, with_history=self.with_history)
        format = self.formats[rule.format]
        return TableRoute(route, rule.template, format, self.replication_factor, rule.configs, rule.shares)

    def route_tables(self, tables: Iterable[tuple[str, str]]) -> dict[tuple[str, str], TableRoute]:
        """The route of each captured (database, table).

        Raises TopicError if two tables

        - get one topic, and may not share it, would create it with different settings, or have different formats;
        - get topics whose names differ only in ``.`` and ``_``: the broker refuses to create the second one, because
          both have the same name in Kafka's metrics (Topic.hasCollision).
        """
        routes: dict[tuple[str, str], TableRoute] = {}
        taken: dict[str, tuple[str, str]] = {}
        for name in dict.fromkeys(tables):
            if (own := self.of(*name)) is None:
                continue
            other = taken.setdefault(own.topic.replace(".", "_"), name)
            routes[name] = own
            if other != name:
                _check_shared_topic(other, routes[other], name, own)
        return routes

    def key_rule(self, database: str, table: str) -> KeyRule:
        """The rule for the key columns of a table, from an option of its format or from `keys`."""
        choice = self.formats[self._topic_rule(database, table).format]
        rules, keyless = choice.row_rules, self.find_keyless(choice)
        if by_option := rules.key_columns(database, table):
            return KeyRule(by_option, keyless, f"{self.file}: {rules.in_place_of['keys']} in format")
        for pattern, columns in self.keys:
            if matches(pattern, database, table):
                return KeyRule(columns, keyless, f"{self.file}: {pattern!r} in keys")
        return KeyRule(keyless=keyless)

    def find_keyless(self, choice: FormatChoice) -> Keyless:
        """The kind of key of tables without a primary key, in this format."""
        return self.keyless or choice.row_rules.keyless

    @cached_property
    def _joining(self) -> tuple[bool, ...]:
        """For each format, whether one record has all rows of an event. These rows go to one partition, so that they
        stay in order."""
        return tuple(joins_rows(self.build_format(choice)) for choice in self.formats)

    @property
    def has_key_rules(self) -> bool:
        """Whether keys may have columns besides the primary key. With some values of `binlog_row_image`, rows in the
        binlog do not contain these columns."""
        return bool(self.keys) or self.keyless == "all" or any(each.row_rules.keys for each in self.formats)

    @property
    def registry(self) -> str | None:
        """Connection id of the schema registry; None if no format uses one."""
        return next((each.registry for each in self.formats if each.registry is not None), None)

    @property
    def registers_incompatible(self) -> bool:
        """As `FormatChoice.registers_incompatible`; the value is the same for all formats that use the registry."""
        return any(each.registers_incompatible for each in self.formats)

    @cached_property
    def transaction_topic(self) -> str | None:
        """The topic of transaction records; None if the pipeline writes none.

        Raises TopicError if the name with the suffix is not allowed for messages.
        """
        records = transactions_of(self.build_format(self.formats[0]))
        if records is None:
            return None
        topic = records.topic + self.suffix
        try:
            check_chosen_name(topic)
        except ValueError as error:
            raise TopicError(
                f"the topic of the records of transactions: {error}. Nothing was published. Choose another "
                "`topic.transaction`, or another suffix."
            ) from None
        return topic

    def format(self, frozen_at_ms: int, schema_ids: SchemaIds | None = None) -> Format:
        """The wire format of the messages; if routes have formats, one that chooses by table (see `formats.by_table`).

        ``frozen_at_ms`` is the time at which the window was frozen. ``schema_ids`` are the ids of schemas in the
        registry; messages that are built without them must not be stored.
        """
        built = [self.build_format(choice, frozen_at_ms, schema_ids) for choice in self.formats]
        if len(built) == 1:
            return built[0]
        return FormatsByTable(built, lambda database, table: built[self._topic_rule(database, table).format])

    def build_format(self, choice: FormatChoice, frozen_at_ms: int = 0, schema_ids: SchemaIds | None = None) -> Format:
        """The format of ``choice``; raises SettingsError as `format_of` does."""
        ids = schema_ids or LocalIds()
        settings = FormatSettings(self.pipeline, frozen_at_ms, self.style, self.tombstones, ids, choice.options)
        format = format_of(choice.name, settings)
        return WithHeaders(format, self.headers) if self.headers else format

    def _topic_rule(self, database: str, table: str) -> TopicRule:
        *of_routes, of_all = self.topics
        return next((rule for rule in of_routes if matches(rule.match, database, table)), of_all)


def compile_routes(settings: PipelineSettings) -> Routes:
    """The routes of ``settings``; raises SettingsError for an invalid condition on rows."""
    topics = settings.topics
    rules, choices = [], [settings.format]
    for route in topics.routes:
        if route.format is not None:
            choices.append(route.format)
        rules.append(_topic_rule(topics, route, len(choices) - 1 if route.format is not None else 0))
    return Routes(
        settings.name,
        settings.display_file,
        settings.tables,
        (*rules, _topic_rule(topics, RouteSettings(match="*.*"), 0)),
        topics.replication_factor,
        topics.suffix,
        tuple((pattern, tuple(columns)) for pattern, columns in settings.keys.items()),
        settings.keyless,
        tuple(_row_filters(settings)),
        frozenset(settings.skip),
        settings.row_versions == "all",
        tuple(choices),
        settings.values.style,
        settings.tombstones,
        tuple(settings.headers),
    )


def _topic_rule(topics: TopicSettings, own: RouteSettings, format: int) -> TopicRule:
    """The rule of a route: its own settings; settings that it does not have are taken from ``topics``."""
    template = topics.template if own.topic is None else own.topic
    by = topics.partition_by if own.partition_by is None else own.partition_by
    name = topics.table_field if own.table_field is None else own.table_field
    in_key = topics.table_in_key if own.table_in_key is None else own.table_in_key
    return TopicRule(
        own.match,
        template,
        topics.shared if own.topic is None else "table" not in template_fields(template),
        own.partitions or topics.partitions,
        {**topics.configs, **own.configs},
        by if isinstance(by, str) else tuple(by),
        None if name is None else TableField(name, in_key),
        format,
    )


def _row_filters(settings: PipelineSettings) -> Iterator[tuple[str, RowFilter]]:
    if not settings.rows:
        return
    from changefeed.settings.sql_condition import parse_predicate  # loads sqlglot

    for pattern, sql in settings.rows.items():
        yield pattern, RowFilter(parse_predicate(sql), f"{settings.display_file}: {pattern!r} in rows")


def _check_shared_topic(other: tuple[str, str], its: TableRoute, name: tuple[str, str], own: TableRoute) -> None:
    both = f"tables `{other[0]}`.`{other[1]}` and `{name[0]}`.`{name[1]}`"
    if own.topic != its.topic or not (own.shares and its.shares):
        raise TopicError(
            f"{both} collide: template {own.template!r} creates topics {its.topic!r} and {own.topic!r}, which Kafka "
            "does not distinguish ('.' and '_' are the same in its metric names). Choose another template, exclude one "
            "of the tables, or let them share a topic: by a route in `topics.routes`, or all tables by `topics.shared`."
        )
    if own.creation_settings != its.creation_settings:
        raise TopicError(
            f"{both} share topic {own.topic!r}, and two rules of `topics.routes` create it with different (partitions, "
            f"replication factor, configs): {its.creation_settings} and {own.creation_settings}. Give both the same."
        )
    if own.format != its.format:
        raise TopicError(
            f"{both} share topic {own.topic!r}, and are written as {its.format.name!r} and {own.format.name!r} by "
            "`format` of `topics.routes`: expected one format in a topic. Give both the same format, or one of them "
            "another topic."
        )
