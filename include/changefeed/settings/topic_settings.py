"""`topics` of a pipeline's YAML: which topic a table's changes go to, and how a topic that is missing is made."""

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
"""What a change's partition follows from: its key, its table's name, or the values of these columns."""
_FIELDS = ("pipeline", "database", "table")


def _check_fields(template: str, valid: tuple[str, ...]) -> None:
    for field in template_fields(template):
        if field not in valid:
            raise ValueError(
                f"{template!r} has the field {{{field}}}{did_you_mean(field, valid)}; valid fields: {', '.join(valid)}"
            )


class RouteSettings(Section):
    """What holds for the topics of some tables; what is left out is as for all tables."""

    match: TablePattern
    """The tables. What groups of a regular expression match are fields of the template: {1}, {2}, {name}."""
    topic: Template | None = None
    """Template of the topic's name. Without {table} all tables of the route may share a topic."""
    partitions: Partitions | None = None
    configs: dict[str, str] = Field(default={})
    """Over those of `topics.configs`."""
    partition_by: PartitionBy | None = None
    table_field: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    table_in_key: bool | None = None
    format: FormatChoice | None = None
    """What the records of these tables are written as, in place of the pipeline's `format`."""

    @model_validator(mode="after")
    def _has_fields(self) -> RouteSettings:
        if self.topic is not None:
            matched = matcher(self.match)
            groups, names = (matched.groups, matched.names) if isinstance(matched, UserPattern) else (0, ())
            _check_fields(self.topic, (*_FIELDS, *map(str, range(1, groups + 1)), *names))
        return self


def _few_routes(routes: list[RouteSettings]) -> list[RouteSettings]:
    check_patterns([route.match for route in routes])
    return routes


class TopicSettings(Section):
    """The names of topics, what goes where in them, and how those that are missing are made."""

    shared: bool = False  # stands before `template`, which is checked by it
    """Whether tables may share the topics of the template, which need not have {table} then."""
    template: Template = "{database}.{table}"
    partitions: Partitions = 3
    replication_factor: Annotated[int, Field(gt=0, le=100)] = 1
    configs: dict[str, str] = Field(default={})
    create: bool = True
    """Whether missing topics are made. Without it a run stops before it publishes, and names them."""
    partition_by: PartitionBy = "key"
    table_field: Annotated[str, Field(min_length=1, max_length=64)] | None = None
    """Name of a field that rows get, with "database.table": tells rows of tables that share a topic apart."""
    table_in_key: bool = True
    """Whether the key has that field, too: keys of two tables are never the same then."""
    routes: Annotated[list[RouteSettings], AfterValidator(_few_routes)] = Field(default=[])
    """Of two that take a table the first counts."""
    _suffix: str = PrivateAttr(default="")

    @property
    def suffix(self) -> str:
        """What a backfill adds to the name of each topic; '' for the pipeline's own topics."""
        return self._suffix

    def with_suffix(self, suffix: str) -> TopicSettings:
        """These settings for topics whose names end in ``suffix``."""
        routes = [
            route if route.topic is None else route.model_copy(update={"topic": route.topic + suffix})
            for route in self.routes
        ]
        topics = self.model_copy(update={"template": self.template + suffix, "routes": routes})
        topics._suffix = suffix
        return topics

    @property
    def rules(self) -> dict[str, object]:
        """Those of these settings that decide where a message goes and what its key is: a message rule.

        What is left at its default is left out, as windows were begun before there was such a setting.
        """
        names = {"shared", "partition_by", "table_field", "table_in_key"}
        routes = [route.model_dump(exclude={"partitions", "configs"}, exclude_defaults=True) for route in self.routes]
        rules = {"template": self.template, **self.model_dump(include=names, exclude_defaults=True)}
        return {**rules, "routes": routes} if routes else rules

    @field_validator("template")
    @classmethod
    def _tells_tables_apart(cls, template: str, info: ValidationInfo) -> str:
        try:
            _check_fields(template, _FIELDS)
        except ValueError as error:
            raise ValueError(
                "wanted a template with {table}, {database} or {pipeline} where they are needed, and no other "
                f"braces: {error}"
            ) from None
        if "table" not in template_fields(template) and not info.data.get("shared"):
            raise ValueError(
                "wanted a template with {table}: all tables of a database would share a topic, which they may with "
                "`shared: true`"
            )
        return template

    @field_validator("partition_by", mode="before")
    @classmethod
    def _is_kind(cls, value: object) -> object:
        if isinstance(value, str) and value not in ("key", "table"):
            raise ValueError("wanted key, table, or a list of columns")
        return value
