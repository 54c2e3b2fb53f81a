"""What a pipeline's settings cannot have together, and why."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from changefeed.errors import SettingsError
from changefeed.formats.format import Format, envelope_reader, joins_rows, transactions_of
from changefeed.model.table_pattern import is_regex
from changefeed.model.topic_name import template_fields
from changefeed.settings.column_settings import ColumnSettings
from changefeed.settings.format_choice import FormatChoice
from changefeed.settings.pipeline_settings import PipelineSettings, ValueSettings
from changefeed.settings.routes import compile_routes
from changefeed.settings.section import MistakeInsideError
from changefeed.settings.topic_settings import TopicSettings

Where = tuple[str | int, ...]
"""The keys that lead to a setting of a pipeline."""


# --- formats


def check_formats(pipeline: PipelineSettings) -> None:
    """Raises MistakeInsideError where a format does not go with the settings, or with another format."""
    beside = {
        "publish_ddl: inline": pipeline.publish_ddl == "inline",
        "statements: publish": pipeline.statements == "publish",
        "reader: reference": pipeline.reader == "reference",
        "values": pipeline.values != ValueSettings(),
    }
    for where, choice in formats(pipeline.format, pipeline.topics):
        try:
            choice.check_registry([setting for setting, is_set in beside.items() if is_set])
        except ValueError as error:
            raise MistakeInsideError(str(error), *where) from None
    _check_one_registry(pipeline.format, pipeline.topics)
    _check_one_format_a_topic(pipeline.name, pipeline.format, pipeline.topics)
    functions = bool(pipeline.transforms)
    _check_row_rules(pipeline.format, pipeline.topics, pipeline.model_fields_set, functions=functions)
    made = made_formats(pipeline)
    _check_numbered(made, functions=functions)
    _check_undivided(made, pipeline.topics)


def made_formats(pipeline: PipelineSettings) -> list[tuple[Where, Format]]:
    """All formats and where they stand; raises MistakeInsideError for one that does not take the settings."""
    routes, made = compile_routes(pipeline), []
    for where, choice in formats(pipeline.format, pipeline.topics):
        try:
            made.append((where, routes.made(choice)))
        except SettingsError as error:
            raise MistakeInsideError(str(error), *where) from None
    return made


def formats(usual: FormatChoice, topics: TopicSettings) -> Iterator[tuple[Where, FormatChoice]]:
    """All formats of a pipeline and where they stand, the one of tables without one of their own first."""
    yield ("format",), usual
    for number, route in enumerate(topics.routes):
        if route.format is not None:
            yield ("topics", "routes", number, "format"), route.format


def _check_row_rules(usual: FormatChoice, topics: TopicSettings, given: Collection[str], *, functions: bool) -> None:
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


def _check_numbered(made: Sequence[tuple[Where, Format]], *, functions: bool) -> None:
    """Raises MistakeInsideError where a format numbers the messages of a transaction that others or ``functions`` make,
    too; ``made`` are all formats and where they stand."""
    numbered = [where for where, format in made if transactions_of(format) is not None]
    if numbered and (functions or len(made) > 1):
        raise MistakeInsideError(
            "'provide.transaction.metadata' numbers all messages of a transaction, as the kernel writes them in one "
            "format: give it without `transforms`, and without other formats in `topics.routes`",
            *numbered[0],
        )


def _check_undivided(made: Sequence[tuple[Where, Format]], topics: TopicSettings) -> None:
    """Raises MistakeInsideError where columns would divide the rows of an event that a record has."""
    joining = [where for where, format in made if joins_rows(format)]
    rules = (topics.partition_by, *(route.partition_by for route in topics.routes))
    if joining and any(rule is not None and not isinstance(rule, str) for rule in rules):
        raise MistakeInsideError(
            "a record has all rows of an event, and `partition_by` with columns would divide them among partitions, so "
            "that their order is lost: leave the columns out, or take another format",
            *joining[0],
        )


def _check_one_registry(usual: FormatChoice, topics: TopicSettings) -> None:
    """Raises MistakeInsideError where two formats name two schema registries: a run has one."""
    named = [(where, each.registry) for where, each in formats(usual, topics) if each.registry is not None]
    for where, registry in named[1:]:
        if registry != named[0][1]:
            raise MistakeInsideError(
                f"schema registry {registry!r}, and another format of the pipeline has its schemas in {named[0][1]!r}: "
                "wanted one registry for all of them",
                *where,
            )


def _check_one_format_a_topic(pipeline: str, usual: FormatChoice, topics: TopicSettings) -> None:
    """Raises MistakeInsideError where tables of two formats would share a topic, as far as their rules say so.

    What only the tables that there are can tell, `Routes.of_all` refuses.
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


# --- followers


def check_replayable(pipeline: PipelineSettings) -> None:
    """Raises SettingsError with every reason, a line each, why the pipeline's topics cannot make a follower."""
    reasons = list(_reasons(pipeline))
    if reasons:
        lines = "".join(f"\n- {reason}" for reason in reasons)
        raise SettingsError(f"pipeline {pipeline.name!r} cannot have a follower:{lines}")


def is_replayable(pipeline: PipelineSettings) -> bool:
    """Whether the pipeline's topics can make a follower."""
    return not any(_reasons(pipeline))


def _reasons(pipeline: PipelineSettings) -> Iterator[str]:
    try:
        reader = envelope_reader(pipeline.format.name, compile_routes(pipeline).format(0))
    except SettingsError as error:
        yield str(error)
    else:
        if pipeline.statements == "publish" and not reader.says_sessions:
            yield (
                f"`statements: publish`, and messages of format {pipeline.format.name!r} have no session of a "
                "statement, without which it cannot be run"
            )
    if pipeline.columns.exclude:
        yield "`columns.exclude` leaves columns out, which the follower's tables would miss"
    if pipeline.columns.mask:
        yield "`columns.mask` hides values, which the follower's rows would have in place of the source's"
    if pipeline.transforms:
        yield "`transforms` change rows, so that they are not the source's any more"
    if pipeline.outbox:
        yield "`outbox` makes messages of rows, which say nothing of the rows themselves"
    if pipeline.rows:
        yield "`rows` leaves out rows, and what becomes of them later"
    if left_out := set(pipeline.skip) & {"c", "u", "d"}:
        yield f"`skip` leaves out {', '.join(sorted(left_out))}"
    if pipeline.topics.table_field is not None:
        yield "`topics.table_field` adds a column to rows that the tables do not have"
    if any(route.table_field is not None for route in pipeline.topics.routes):
        yield "`table_field` of a route in `topics.routes` adds a column to rows that the tables do not have"
    if any(route.format is not None for route in pipeline.topics.routes):
        yield "a route in `topics.routes` has a `format` of its own: a follower reads all topics in the pipeline's"
    if pipeline.publish_ddl == "off":
        yield "`publish_ddl: off` leaves out definitions: the follower's tables would stay as they are"
    if pipeline.statements == "skip":
        yield "`statements: skip` leaves out changes in statement format"
    if pipeline.kafka.on_bad_record == "dead_letter":
        yield "`kafka.on_bad_record: dead_letter` takes rows out of their topics that Kafka does not take"
    if pipeline.topics.configs.get("cleanup.policy", "delete") != "delete":
        yield "`topics.configs` has a `cleanup.policy` that compacts topics: earlier changes of a row are removed"
    skipped = str(pipeline.format.options.get("skipped.operations", ""))
    if {"c", "u", "d"} & set(skipped.replace("none", "").replace(" ", "").split(",")):
        yield f"its format's `skipped.operations: {skipped}` leaves them out"


# --- the reference reader


PLAIN_VALUES = "values: {decimal: string, temporal: iso, binary: base64, bigint_unsigned: number}"


def reference_refusal(pipeline: PipelineSettings) -> str | None:
    """Why mysql-replication cannot decode for ``pipeline``; None where it can."""
    routes = compile_routes(pipeline)
    rules, topics = pipeline.format.row_rules, pipeline.topics.model_dump(exclude_defaults=True)
    unknown = {
        **{name: getattr(pipeline, name) for name in ("transforms", "outbox", "rows", "skip")},
        "columns": pipeline.columns != ColumnSettings(),
        **{f"topics.{name}": topics.get(name) for name in ("partition_by", "table_field", "routes")},
        "keys` and `keyless": routes.chooses_keys,
        "provide.transaction.metadata": routes.transaction_topic,
        "skip.messages.without.change": rules.unchanged_skipped,
        "skipped.operations": rules.skipped - {"t"},
    }
    for name, given in unknown.items():
        if given:
            return f"`reader: reference` does not know `{name}`: leave that out, or the reader"
    if joins_rows(routes.format(0)):
        return (
            f"`reader: reference` reads row by row, and `format: {pipeline.format.name}` has all rows of an event in a "
            "record: take another format, or leave the reader out"
        )
    if not routes.format(0).style.is_plain:
        return (
            f"`reader: reference` cannot write values as `format: {pipeline.format.name}` does: take `debezium` with "
            f"plain values, `{PLAIN_VALUES}`"
        )
    return None
