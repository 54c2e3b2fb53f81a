"""A pipeline's settings, compiled once: which table goes to which topic, under which key, in which format."""

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
from changefeed.model.table_pattern import is_regex, matcher, matches, matches_any
from changefeed.model.topic_name import check_chosen_name, template_fields, topic_name
from changefeed.settings.format_choice import FormatChoice
from changefeed.settings.pipeline_settings import PipelineSettings
from changefeed.settings.topic_settings import RouteSettings, TopicSettings


@dataclass(frozen=True)
class TableRoute:
    """What a pipeline says of one table that it captures.

    ``route`` has the partitions that its topic is made with; an existing topic may have others. ``shares`` says that
    other tables may go to the same topic; ``template`` is the one that named it. ``format`` is what its records are
    written as.
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
    def made_as(self) -> tuple[int, int, dict[str, str]]:
        """Partitions, replication factor and configs of its topic, where that is missing."""
        return self.route.partitions, self.replication_factor, dict(self.configs)


@dataclass(frozen=True)
class TopicRule:
    """What holds for the topics of the tables that ``match`` takes; ``format`` is the number of their format."""

    match: str
    template: str
    shares: bool
    partitions: int
    configs: Mapping[str, str]
    partition_by: Literal["key", "table"] | tuple[str, ...]
    table_field: TableField | None
    format: int

    def topic(self, pipeline: str, database: str, table: str) -> str:
        """The name of a table's topic; raises TopicError for one that cannot be."""
        groups: dict[str, str] = {}
        if is_regex(self.match) and (match := matcher(self.match).fullmatch(f"{database}.{table}")):
            groups = {str(number): text or "" for number, text in enumerate(match.groups(), start=1)}
            groups |= {name: text or "" for name, text in match.groupdict().items()}
        return topic_name(self.template, database, table, pipeline, groups)


@dataclass(frozen=True)
class Routes:
    """Where the changes of each table go and how they are written; `compile_routes` makes it of settings.

    Of ``topics``, ``keys`` and ``rows``, the first that takes a table counts; the last of ``topics`` takes all. The
    first of ``formats`` is that of tables without one of their own. ``file`` is where the settings are, for messages.
    """

    pipeline: str
    file: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
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
        """Where a table's changes go and under which key; None for a table that is not captured.

        Raises TopicError for a topic that cannot be named so.
        """
        name = database, table
        if not matches_any(self.include, *name) or matches_any(self.exclude, *name):
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
        """Where statements about a database go that are about none of its tables: the topic that all of them share;
        None where they have no such topic. Raises TopicError for a topic that cannot be named so."""
        rule = self.topics[-1]
        if not rule.shares or "table" in template_fields(rule.template):
            return None
        topic = topic_name(rule.template, database, "", self.pipeline, {})
        route = Route(topic, rule.partitions, setting=self.file, with_history=self.with_history)
        format = self.formats[rule.format]
        return TableRoute(route, rule.template, format, self.replication_factor, rule.configs, rule.shares)

    def of_all(self, tables: Iterable[tuple[str, str]]) -> dict[tuple[str, str], TableRoute]:
        """The route of each (database, table) that is captured.

        Raises TopicError where two tables get one topic and may not share it, would have it made in two ways, or are
        written in two formats; or get topics whose names differ only in ``.`` and ``_``: Kafka's metrics cannot tell
        those apart and the broker refuses the second (Topic.hasCollision).
        """
        routes: dict[tuple[str, str], TableRoute] = {}
        taken: dict[str, tuple[str, str]] = {}
        for name in dict.fromkeys(tables):
            if (own := self.of(*name)) is None:
                continue
            other = taken.setdefault(own.topic.replace(".", "_"), name)
            routes[name] = own
            if other != name:
                _check_shared(other, routes[other], name, own)
        return routes

    def key_rule(self, database: str, table: str) -> KeyRule:
        """How the key columns of a table are found: by an option of its format, or by `keys`."""
        choice = self.formats[self._topic_rule(database, table).format]
        rules, keyless = choice.row_rules, self.keyless_of(choice)
        if by_option := rules.key_columns(database, table):
            return KeyRule(by_option, keyless, f"{self.file}: {rules.in_place_of['keys']} in format")
        for pattern, columns in self.keys:
            if matches(pattern, database, table):
                return KeyRule(columns, keyless, f"{self.file}: {pattern!r} in keys")
        return KeyRule(keyless=keyless)

    def keyless_of(self, choice: FormatChoice) -> Keyless:
        """What is the key of tables of this format that have no primary key."""
        return self.keyless or choice.row_rules.keyless

    @cached_property
    def _joining(self) -> tuple[bool, ...]:
        """Of each format whether its records have all rows of an event: they are in one partition then, as their order
        would be lost between several."""
        return tuple(joins_rows(self.made(choice)) for choice in self.formats)

    @property
    def chooses_keys(self) -> bool:
        """Whether keys may be other columns than those that the server takes for a primary key: only those are in rows
        of each `binlog_row_image`."""
        return bool(self.keys) or self.keyless == "all" or any(each.row_rules.keys for each in self.formats)

    @property
    def registry(self) -> str | None:
        """Connection id of the schema registry; None where no format has one."""
        return next((each.registry for each in self.formats if each.registry is not None), None)

    @cached_property
    def transaction_topic(self) -> str | None:
        """Where the records of transactions go; None for a pipeline without any.

        Raises TopicError for a name that, with its suffix, is not for messages.
        """
        records = transactions_of(self.made(self.formats[0]))
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
        """The wire format of the messages, by table where routes say so (see `formats.by_table`).

        ``frozen_at_ms`` is when their window was frozen. ``schema_ids`` are those of its registry; without them its
        messages are for nobody to keep.
        """
        made = [self.made(choice, frozen_at_ms, schema_ids) for choice in self.formats]
        if len(made) == 1:
            return made[0]
        return FormatsByTable(made, lambda database, table: made[self._topic_rule(database, table).format])

    def made(self, choice: FormatChoice, frozen_at_ms: int = 0, schema_ids: SchemaIds | None = None) -> Format:
        """One of the formats, made with the settings of all of them; raises SettingsError as `format_of` does."""
        ids = schema_ids or LocalIds()
        settings = FormatSettings(self.pipeline, frozen_at_ms, self.style, self.tombstones, ids, choice.options)
        format = format_of(choice.name, settings)
        return WithHeaders(format, self.headers) if self.headers else format

    def _topic_rule(self, database: str, table: str) -> TopicRule:
        *of_routes, of_all = self.topics
        return next((rule for rule in of_routes if matches(rule.match, database, table)), of_all)


def compile_routes(settings: PipelineSettings) -> Routes:
    """What ``settings`` say of tables; raises SettingsError for a condition of rows that is none."""
    topics = settings.topics
    rules, choices = [], [settings.format]
    for route in topics.routes:
        if route.format is not None:
            choices.append(route.format)
        rules.append(_topic_rule(topics, route, len(choices) - 1 if route.format is not None else 0))
    return Routes(
        settings.name,
        settings.shown_file,
        tuple(settings.tables.include),
        tuple(settings.tables.exclude),
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
    """What holds for the tables of a route: what it says, and else what ``topics`` say of all."""
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
    from changefeed.settings.sql_condition import predicate_of  # sqlglot is only for those who need it

    for pattern, sql in settings.rows.items():
        yield pattern, RowFilter(predicate_of(sql), f"{settings.shown_file}: {pattern!r} in rows")


def _check_shared(other: tuple[str, str], its: TableRoute, name: tuple[str, str], own: TableRoute) -> None:
    both = f"tables `{other[0]}`.`{other[1]}` and `{name[0]}`.`{name[1]}`"
    if own.topic != its.topic or not (own.shares and its.shares):
        raise TopicError(
            f"{both} collide: template {own.template!r} makes topics {its.topic!r} and {own.topic!r}, which Kafka "
            "cannot tell apart ('.' and '_' are one in its metric names). Choose another template, leave one of the "
            "tables out, or let them share a topic: by a rule of `topics.routes`, or all tables by `topics.shared`."
        )
    if own.made_as != its.made_as:
        raise TopicError(
            f"{both} share topic {own.topic!r}, and two rules of `topics.routes` have it made in two ways, with "
            f"(partitions, replication factor, configs) {its.made_as} and {own.made_as}: give both the same."
        )
    if own.format != its.format:
        raise TopicError(
            f"{both} share topic {own.topic!r}, and are written as {its.format.name!r} and {own.format.name!r} by "
            "`format` of `topics.routes`: wanted one format in a topic. Give both the same, or one of them another "
            "topic."
        )
