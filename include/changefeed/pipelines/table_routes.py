"""Where the changes of each table go: its topic, how that is made, and which tables may share one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from changefeed.errors import TopicError
from changefeed.message_key import KeyRule
from changefeed.pipelines.format_choice import FormatChoice
from changefeed.pipelines.table_pattern import matcher, matches
from changefeed.pipelines.topic_settings import RouteSettings, TopicSettings
from changefeed.reader import Route, TableField
from changefeed.topic_name import template_fields, topic_name


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


def chosen_route(topics: TopicSettings, database: str, table: str) -> RouteSettings | None:
    """What ``topics.routes`` says of a table; None where no route takes it."""
    return next((route for route in topics.routes if matches(route.match, database, table)), None)


def route_of(
    topics: TopicSettings, usual: FormatChoice, pipeline: str, database: str, table: str, key: KeyRule, file: str
) -> TableRoute:
    """The route of a captured table by ``topics``; ``usual`` is the format of tables without one of their own.

    Raises TopicError for a topic that cannot be named so.
    """
    chosen = chosen_route(topics, database, table)
    template = chosen.topic if chosen is not None and chosen.topic is not None else topics.template
    groups: dict[str, str] = {}
    if chosen is not None and (match := matcher(chosen.match).match(f"{database}.{table}")):
        groups = {str(number): text or "" for number, text in enumerate(match.groups(), start=1)}
        groups |= {name: text or "" for name, text in match.groupdict().items()}
    own = chosen if chosen is not None else RouteSettings(match="*.*")
    by = own.partition_by if own.partition_by is not None else topics.partition_by
    name = own.table_field if own.table_field is not None else topics.table_field
    in_key = own.table_in_key if own.table_in_key is not None else topics.table_in_key
    route = Route(
        topic_name(template, database, table, pipeline, groups),
        own.partitions or topics.partitions,
        key,
        by if isinstance(by, str) else tuple(by),
        TableField(name, in_key) if name is not None else None,
        file,
    )
    by_rule = chosen is not None and chosen.topic is not None
    return TableRoute(
        route,
        template,
        own.format or usual,
        topics.replication_factor,
        {**topics.configs, **own.configs},
        "table" not in template_fields(template) if by_rule else topics.shared,
    )


def table_routes(
    route: Callable[[str, str], TableRoute | None], tables: Iterable[tuple[str, str]]
) -> dict[tuple[str, str], TableRoute]:
    """The route of each (database, table) that is captured.

    Raises TopicError where two tables get one topic and may not share it, would have it made in two ways, or are
    written in two formats; or get
    topics whose names differ only in ``.`` and ``_``: Kafka's metrics cannot tell those apart and the broker refuses
    the second (Topic.hasCollision).
    """
    routes: dict[tuple[str, str], TableRoute] = {}
    taken: dict[str, tuple[str, str]] = {}
    for name in dict.fromkeys(tables):
        if (own := route(*name)) is None:
            continue
        other = taken.setdefault(own.topic.replace(".", "_"), name)
        routes[name] = own
        if other != name:
            _check_shared(other, routes[other], name, own)
    return routes


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
