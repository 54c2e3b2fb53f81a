"""`topics` of a pipeline's YAML: the topic of each table, and the settings of created topics."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PrivateAttr, ValidationInfo, field_validator, model_validator

from changefeed.errors import did_you_mean
from changefeed.model.table_pattern import check_patterns, matcher
from changefeed.model.topic_name import template_fields
from changefeed.model.user_pattern import UserPattern
from changefeed.settings.format_choice import FormatChoice
from changefeed.settings.section import Section
from changefeed.settings.table_pattern import KeyColumns, TablePattern

Template = Annotated[str, Field(max_length=249)]
Partitions = Annotated[int, Field(gt=0, le=10_000)]
PartitionBy = Literal["key", "table"] | KeyColumns
"""What chooses a change's partition: its key, its table's name, or the values of these columns."""
_FIELDS = ("pipeline", "database", "table")


def _check_fields(template: str, valid: tuple[str, ...]) -> None:
    for field in template_fields(template):
        if field not in valid:
            raise ValueError(
                f"{template!r} has the field {{{field}}}{did_you_mean(field, valid)}; valid fields: {', '.join(valid)}"
            )


class RouteSettings(Section):
    """Topics of some tables. A setting that is left out is as for all tables."""

    match: TablePattern
    """Pattern of the tables. Groups of a regular expression are fields of `topic`: `{1}`, `{2}`, `{name}`."""
    topic: Template | None = None
    """Template of the topic's name. Without `{table}` all tables of the route may share a topic."""
    partitions: Partitions | None = None
    """Partitions of a topic that changefeed creates."""
    configs: dict[str, str] = Field(default={})
    """Configs of a topic that changefeed creates, in addition to those of `topics.configs`, which they override."""
    partition_by: PartitionBy | None = None
    """What chooses the partition: `key`, `table`, or a list of columns."""
    table_field: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Name of the field that holds `DATABASE.TABLE`."""
    table_in_key: bool | None = None
    """The message key has that field too."""
    format: FormatChoice | None = None
    """Wire format of these tables, instead of the pipeline's `format`."""

    @model_validator(mode="after")
    def _check_topic_fields(self) -> RouteSettings:
        if self.topic is not None:
            matched = matcher(self.match)
            groups, names = (matched.groups, matched.names) if isinstance(matched, UserPattern) else (0, ())
            _check_fields(self.topic, (*_FIELDS, *map(str, range(1, groups + 1)), *names))
        return self


def _check_route_count(routes: list[RouteSettings]) -> list[RouteSettings]:
    check_patterns([route.match for route in routes])
    return routes


class TopicSettings(Section):
    """Names of topics, partitioning, and settings of topics that changefeed creates."""

    shared: bool = False  # before `template`, whose validator needs it
    """`true`: tables may share the topics of `template`, which then need not have `{table}`."""
    template: Template = "{database}.{table}"
    """Name of a table's topic. `{pipeline}`, `{database}` and `{table}` are replaced by their names, and illegal
    characters by `_`. Collisions are refused."""
    partitions: Partitions = 3
    """Partitions of topics that changefeed creates. Existing topics are used as they are."""
    replication_factor: Annotated[int, Field(gt=0, le=100)] = 1
    """Replication factor of topics that changefeed creates."""
    configs: dict[str, str] = Field(default={})
    """Kafka's configs of topics that changefeed creates."""
    create: bool = True
    """`false`: topics have to exist. If one is missing, a run stops before it publishes, and names it."""
    partition_by: PartitionBy = "key"
    """What chooses a record's partition: `key`, `table`, or a list of columns."""
    table_field: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Name of a field that is added to rows and holds `DATABASE.TABLE`: it identifies the table of a row in a shared
    topic."""
    table_in_key: bool = True
    """The message key has that field too, so that keys of two tables are never equal."""
    routes: Annotated[list[RouteSettings], AfterValidator(_check_route_count)] = Field(default=[])
    """Other topics for some tables. The first route that matches a table counts."""
    _suffix: str = PrivateAttr(default="")

    @property
    def suffix(self) -> str:
        """The suffix that a backfill adds to the name of each topic; '' for the pipeline's own topics."""
        return self._suffix

    def with_suffix(self, suffix: str) -> TopicSettings:
        """These settings with ``suffix`` added to all topic names."""
        routes = [
            route if route.topic is None else route.model_copy(update={"topic": route.topic + suffix})
            for route in self.routes
        ]
        topics = self.model_copy(update={"template": self.template + suffix, "routes": routes})
        topics._suffix = suffix
        return topics

    @property
    def rules(self) -> dict[str, object]:
        """The settings that decide a message's topic, partition and key: a message rule.

        Defaults are left out, because windows may have begun before a setting existed.
        """
        names = {"shared", "partition_by", "table_field", "table_in_key"}
        routes = [route.model_dump(exclude={"partitions", "configs"}, exclude_defaults=True) for route in self.routes]
        rules = {"template": self.template, **self.model_dump(include=names, exclude_defaults=True)}
        return {**rules, "routes": routes} if routes else rules

    @field_validator("template")
    @classmethod
    def _check_template(cls, template: str, info: ValidationInfo) -> str:
        try:
            _check_fields(template, _FIELDS)
        except ValueError as error:
            raise ValueError(
                f"expected a template with no fields besides {{table}}, {{database}} and {{pipeline}}: {error}"
            ) from None
        if "table" not in template_fields(template) and not info.data.get("shared"):
            raise ValueError(
                "expected a template with {table}: without it all tables of a database share a topic, which needs "
                "`shared: true`"
            )
        return template

    @field_validator("partition_by", mode="before")
    @classmethod
    def _check_partition_by(cls, value: object) -> object:
        if isinstance(value, str) and value not in ("key", "table"):
            raise ValueError("expected key, table, or a list of columns")
        return value
