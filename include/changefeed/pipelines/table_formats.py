"""The formats of a pipeline's tables, where routes give some tables one of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from changefeed.formats.format import Format, transactions_of
from changefeed.pipelines.format_choice import FormatChoice
from changefeed.pipelines.section import MistakeInsideError
from changefeed.pipelines.table_pattern import is_regex
from changefeed.pipelines.table_routes import chosen_route
from changefeed.pipelines.topic_settings import TopicSettings
from changefeed.topic_name import template_fields

Where = tuple[str | int, ...]
"""The keys that lead to a setting of a pipeline."""


def formats(usual: FormatChoice, topics: TopicSettings) -> Iterator[tuple[Where, FormatChoice]]:
    """All formats of a pipeline and where they stand, the one of tables without one of their own first."""
    yield ("format",), usual
    for number, route in enumerate(topics.routes):
        if route.format is not None:
            yield ("topics", "routes", number, "format"), route.format


def format_of_table(usual: FormatChoice, topics: TopicSettings, database: str, table: str) -> FormatChoice:
    """The format of a table."""
    chosen = chosen_route(topics, database, table)
    return usual if chosen is None or chosen.format is None else chosen.format


def check_row_rules(usual: FormatChoice, topics: TopicSettings, given: Collection[str], *, functions: bool) -> None:
    """Raises MistakeInsideError where an option of a format says what a setting ``given`` beside it says, or leaves out
    what ``functions`` would have to see."""
    for where, choice in formats(usual, topics):
        for setting, option in choice.row_rules.in_place_of.items():
            if setting in given:
                raise MistakeInsideError(
                    f"`{setting}` of the pipeline says the same as {option!r}: give one of them", *where, option
                )
        if choice.row_rules.unchanged_skipped and functions:
            raise MistakeInsideError(
                "updates that change nothing are left out before `transforms` see them, who may leave out more: give "
                "'skip.messages.without.change' without `transforms`, or have a function drop such rows",
                *where,
            )


def check_numbered(made: Sequence[tuple[Where, Format]], *, functions: bool) -> None:
    """Raises MistakeInsideError where a format numbers the messages of a transaction that others or ``functions`` make,
    too; ``made`` are all formats and where they stand."""
    numbered = [where for where, format in made if transactions_of(format) is not None]
    if numbered and (functions or len(made) > 1):
        raise MistakeInsideError(
            "'provide.transaction.metadata' numbers all messages of a transaction, as the kernel writes them in one "
            "format: give it without `transforms`, and without other formats in `topics.routes`",
            *numbered[0],
        )


def check_one_registry(usual: FormatChoice, topics: TopicSettings) -> None:
    """Raises MistakeInsideError where two formats name two schema registries: a run has one."""
    named = [(where, each.registry) for where, each in formats(usual, topics) if each.registry is not None]
    for where, registry in named[1:]:
        if registry != named[0][1]:
            raise MistakeInsideError(
                f"schema registry {registry!r}, and another format of the pipeline has its schemas in {named[0][1]!r}: "
                "wanted one registry for all of them",
                *where,
            )


def check_one_format_a_topic(pipeline: str, usual: FormatChoice, topics: TopicSettings) -> None:
    """Raises MistakeInsideError where tables of two formats would share a topic, as far as their rules say so.

    What only the tables that there are can tell, `table_routes` refuses.
    """
    for one, other in combinations(_sharing(pipeline, usual, topics), 2):
        if one.format != other.format and one.meets(other):
            raise MistakeInsideError(
                f"tables of this route are written as {one.format.name!r} and share topic {one.template!r} with tables "
                f"that are written as {other.format.name!r}: wanted one format in a topic. Give both the same, or one "
                "of them another `topic`",
                *("topics", "routes", one.number, *(("format",) if topics.routes[one.number].format else ())),
            )


@dataclass(frozen=True)
class _Rule:
    """A rule by which tables share a topic; ``database`` is None where they may be of several."""

    number: int
    template: str
    database: str | None
    format: FormatChoice

    def meets(self, other: _Rule) -> bool:
        """Whether tables of both get one topic."""
        if self.template != other.template or None not in (self.database, other.database):
            return self._name == other._name and not template_fields(self._name)
        return set(template_fields(self.template)) <= {"database"}

    @property
    def _name(self) -> str:
        return self.template if self.database is None else self.template.replace("{database}", self.database)


def _sharing(pipeline: str, usual: FormatChoice, topics: TopicSettings) -> Iterator[_Rule]:
    for number, route in enumerate(topics.routes):
        template = (topics.template if route.topic is None else route.topic).replace("{pipeline}", pipeline)
        if "table" not in template_fields(template) and (topics.shared or route.topic is not None):
            database = route.match.partition(".")[0]
            known = not is_regex(route.match) and not set("*?[") & set(database)
            yield _Rule(number, template, database if known else None, route.format or usual)
    template = topics.template.replace("{pipeline}", pipeline)
    if topics.shared and "table" not in template_fields(template):
        yield _Rule(-1, template, None, usual)
