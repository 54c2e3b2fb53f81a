"""Checks of combinations of settings; each error says why a pipeline refuses the combination."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from changefeed.errors import SettingsError
from changefeed.formats.format import Format, envelope_reader, joins_rows, numbering_of, transactions_of
from changefeed.model.table_pattern import is_regex
from changefeed.model.topic_name import template_fields
from changefeed.settings.column_settings import ColumnSettings
from changefeed.settings.format_choice import FormatChoice
from changefeed.settings.pipeline_settings import PipelineSettings, ValueSettings, WindowSettings
from changefeed.settings.routes import compile_routes
from changefeed.settings.section import NestedSettingError
from changefeed.settings.topic_settings import TopicSettings

SettingPath = tuple[str | int, ...]
"""The keys that lead to a setting of a pipeline."""


# --- formats


def check_formats(pipeline: PipelineSettings) -> None:
    """Raises NestedSettingError if a format does not support other settings, or another format of the pipeline."""
    other_settings = {
        "publish_ddl: inline": pipeline.publish_ddl == "inline",
        "statements: publish": pipeline.statements == "publish",
        "reader: reference": pipeline.reader == "reference",
        "values": pipeline.values != ValueSettings(),
    }
    for where, choice in list_format_choices(pipeline.format, pipeline.topics):
        try:
            choice.check_registry([setting for setting, is_set in other_settings.items() if is_set])
        except ValueError as error:
            raise NestedSettingError(str(error), *where) from None
    _check_one_registry(pipeline.format, pipeline.topics)
    _check_one_format_per_topic(pipeline.name, pipeline.format, pipeline.topics)
    functions = bool(pipeline.transforms)
    _check_row_rules(pipeline.format, pipeline.topics, pipeline.model_fields_set, functions=functions)
    built = build_formats(pipeline)
    _check_transaction_metadata(built, functions=functions)
    _check_joined_rows(built, pipeline.topics)


def build_formats(pipeline: PipelineSettings) -> list[tuple[SettingPath, Format]]:
    """The pipeline's formats with the keys that lead to them; raises NestedSettingError if a format refuses
    settings."""
    routes, built = compile_routes(pipeline), []
    for where, choice in list_format_choices(pipeline.format, pipeline.topics):
        try:
            built.append((where, routes.build_format(choice)))
        except SettingsError as error:
            raise NestedSettingError(str(error), *where) from None
    return built


def list_format_choices(usual: FormatChoice, topics: TopicSettings) -> Iterator[tuple[SettingPath, FormatChoice]]:
    """The formats of a pipeline with the keys that lead to them. First the format of tables whose route names
    none."""
    yield ("format",), usual
    for number, route in enumerate(topics.routes):
        if route.format is not None:
            yield ("topics", "routes", number, "format"), route.format


def _check_row_rules(usual: FormatChoice, topics: TopicSettings, given: Collection[str], *, functions: bool) -> None:
    """Raises NestedSettingError if a format's option has the same meaning as a setting in ``given``, or skips unchanged
    rows that ``functions`` must get."""
    for where, choice in list_format_choices(usual, topics):
        for setting, option in choice.row_rules.in_place_of.items():
            if setting in given:
                raise NestedSettingError(
                    f"`{setting}` of the pipeline has the same meaning as {option!r}: set one of them", *where, option
                )
        if choice.row_rules.unchanged_skipped and functions:
            raise NestedSettingError(
                "'skip.messages.without.change' skips updates before `transforms` see them, although transforms may "
                "make further updates without change. Remove the option, or let a function drop such rows",
                *where,
            )


def _check_transaction_metadata(built: Sequence[tuple[SettingPath, Format]], *, functions: bool) -> None:
    """Raises NestedSettingError if a format numbers the messages of a transaction, and the pipeline also has another
    format or ``functions``. Only messages that the kernel writes in one format can be numbered."""
    numbered = [where for where, format in built if transactions_of(format) is not None]
    if numbered and (functions or len(built) > 1):
        raise NestedSettingError(
            "'provide.transaction.metadata' numbers all messages of a transaction, which the kernel has to write in "
            "one format. Remove `transforms` and other formats in `topics.routes`, or this option",
            *numbered[0],
        )


def _check_joined_rows(built: Sequence[tuple[SettingPath, Format]], topics: TopicSettings) -> None:
    """Raises NestedSettingError if `partition_by` has columns, and a format writes all rows of an event into one
    record."""
    joining = [where for where, format in built if joins_rows(format)]
    rules = (topics.partition_by, *(route.partition_by for route in topics.routes))
    if joining and any(rule is not None and not isinstance(rule, str) for rule in rules):
        raise NestedSettingError(
            "a record has all rows of an event, and `partition_by` with columns would distribute them over "
            "partitions, so that their order is lost. Remove the columns, or use another format",
            *joining[0],
        )


def _check_one_registry(usual: FormatChoice, topics: TopicSettings) -> None:
    """Raises NestedSettingError if formats use different schema registries, or one registry in different ways."""
    named = [(where, each) for where, each in list_format_choices(usual, topics) if each.registry is not None]
    for where, each in named[1:]:
        first = named[0][1]
        if each.registry != first.registry:
            raise NestedSettingError(
                f"expected one schema registry for all formats of the pipeline, found {each.registry!r} here and "
                f"{first.registry!r} in another format",
                *where,
            )
        if each.registers_incompatible != first.registers_incompatible:
            raise NestedSettingError(
                "expected the same `on_incompatible` in all formats that use the schema registry, found another value "
                "in another format of the pipeline",
                *where,
            )


def _check_one_format_per_topic(pipeline: str, usual: FormatChoice, topics: TopicSettings) -> None:
    """Raises NestedSettingError if the rules let tables of two formats share a topic.

    `Routes.route_tables` refuses collisions that depend on which tables exist.
    """
    for one, other in combinations(_find_shared_topic_rules(pipeline, usual, topics), 2):
        if one.format != other.format and one.shares_topic_with(other):
            raise NestedSettingError(
                f"tables of this route are written as {one.format.name!r} and share topic {one.template!r} with tables "
                f"that are written as {other.format.name!r}: expected one format in a topic. Give both the same "
                "format, or one of them another `topic`",
                *("topics", "routes", one.number, *(("format",) if topics.routes[one.number].format else ())),
            )


@dataclass(frozen=True)
class _SharedTopicRule:
    """A rule by which tables share a topic; ``database`` is None if the tables may be in several databases."""

    number: int
    template: str
    database: str | None
    format: FormatChoice

    def shares_topic_with(self, other: _SharedTopicRule) -> bool:
        """Whether tables of both rules go to one topic."""
        if self.template != other.template or None not in (self.database, other.database):
            return self._name == other._name and not template_fields(self._name)
        return set(template_fields(self.template)) <= {"database"}

    @property
    def _name(self) -> str:
        return self.template if self.database is None else self.template.replace("{database}", self.database)


def _find_shared_topic_rules(pipeline: str, usual: FormatChoice, topics: TopicSettings) -> Iterator[_SharedTopicRule]:
    for number, route in enumerate(topics.routes):
        template = (topics.template if route.topic is None else route.topic).replace("{pipeline}", pipeline)
        if "table" not in template_fields(template) and (topics.shared or route.topic is not None):
            database = route.match.partition(".")[0]
            known = not is_regex(route.match) and not set("*?[") & set(database)
            yield _SharedTopicRule(number, template, database if known else None, route.format or usual)
    template = topics.template.replace("{pipeline}", pipeline)
    if topics.shared and "table" not in template_fields(template):
        yield _SharedTopicRule(-1, template, None, usual)


# --- followers


def check_replayable(pipeline: PipelineSettings) -> None:
    """Raises SettingsError with all reasons, one per line, why a follower cannot be built from the pipeline's
    topics."""
    reasons = list(_find_reasons(pipeline))
    if reasons:
        lines = "".join(f"\n- {reason}" for reason in reasons)
        raise SettingsError(f"pipeline {pipeline.name!r} cannot have a follower:{lines}")


def is_replayable(pipeline: PipelineSettings) -> bool:
    """Whether a follower can be built from the pipeline's topics."""
    return not any(_find_reasons(pipeline))


def _find_reasons(pipeline: PipelineSettings) -> Iterator[str]:
    try:
        reader = envelope_reader(pipeline.format.name, compile_routes(pipeline).format(0))
    except SettingsError as error:
        yield str(error)
    else:
        if pipeline.statements == "publish" and not reader.says_sessions:
            yield (
                f"`statements: publish`, and messages of format {pipeline.format.name!r} do not have a statement's "
                "session, without which it cannot be run"
            )
    if pipeline.columns.exclude:
        yield "`columns.exclude` removes columns, which the follower's tables would miss"
    if pipeline.columns.mask:
        yield "`columns.mask` replaces values, and the follower would get the replacements"
    if pipeline.transforms:
        yield "`transforms` change rows, so that they differ from the source's"
    if pipeline.outbox:
        yield "`outbox` publishes messages instead of rows"
    if pipeline.rows:
        yield "`rows` removes rows and their later changes"
    if left_out := set(pipeline.skip) & {"c", "u", "d"}:
        yield f"`skip` leaves out {', '.join(sorted(left_out))}"
    if pipeline.topics.table_field is not None:
        yield "`topics.table_field` adds a column to rows that the tables do not have"
    if any(route.table_field is not None for route in pipeline.topics.routes):
        yield "`table_field` of a route in `topics.routes` adds a column to rows that the tables do not have"
    if any(route.format is not None for route in pipeline.topics.routes):
        yield "a route in `topics.routes` has a `format` of its own: a follower reads all topics in the pipeline's"
    if pipeline.publish_ddl == "off":
        yield "`publish_ddl: off` leaves out DDL: the follower's tables would not change"
    if pipeline.statements == "skip":
        yield "`statements: skip` leaves out changes in statement format"
    if pipeline.kafka.on_bad_record == "dead_letter":
        yield "`kafka.on_bad_record: dead_letter` moves rows that Kafka refuses out of their topics"
    if pipeline.topics.configs.get("cleanup.policy", "delete") != "delete":
        yield "`topics.configs` has a `cleanup.policy` that compacts topics: earlier changes of a row are removed"
    skipped = str(pipeline.format.options.get("skipped.operations", ""))
    if {"c", "u", "d"} & set(skipped.replace("none", "").replace(" ", "").split(",")):
        yield f"its format's `skipped.operations: {skipped}` leaves them out"


# --- frozen schemas


def find_frozen_schema_problem(pipeline: PipelineSettings) -> str | None:
    """Why ``pipeline`` cannot freeze its table schemas; None if it can."""
    if pipeline.reader == "reference":
        return (
            "`freeze_schema` does not work with `reader: reference`: mysql-replication decodes rows by the current "
            "tables. Remove one of them"
        )
    if pipeline.publish_ddl != "off":
        return (
            f"`freeze_schema` does not work with `publish_ddl: {pipeline.publish_ddl}`: records of DDL have the tables "
            "after it, and a pipeline with frozen schemas does not follow DDL. Set `publish_ddl: off`, or remove "
            "`freeze_schema`"
        )
    return None


# --- parked tables


def find_parking_problem(pipeline: PipelineSettings) -> str | None:
    """Why ``pipeline`` cannot leave out a table and publish its changes later; None if it can."""
    formats = [format for _, format in build_formats(pipeline)]
    shares = pipeline.topics.shared or any(
        route.topic is not None and "table" not in template_fields(route.topic) for route in pipeline.topics.routes
    )
    reasons = {
        "`followers` apply changes in the order of the source": bool(pipeline.followers),
        "tables that share a topic are in the order of the source there": shares,
        "`outbox` publishes messages in the order of the source": pipeline.outbox is not None,
        "`publish_ddl: inline` writes DDL of several tables to each of their topics": pipeline.publish_ddl == "inline",
        "`statements: publish` writes a statement to the topics of several tables": pipeline.statements == "publish",
        "`reader: reference` does not name the table of an error": pipeline.reader == "reference",
        "its format counts the messages of transactions": any(transactions_of(each) is not None for each in formats),
        "its format numbers the messages of a partition": any(numbering_of(each) is not None for each in formats),
    }
    found = [reason for reason, is_set in reasons.items() if is_set]
    return (
        f"`on_table_error: park` publishes the changes of a table later than those of others, and {found[0]}. Set "
        "`on_table_error: stop`, or change that"
        if found
        else None
    )


# --- the reference reader


PLAIN_VALUES = "values: {decimal: string, temporal: iso, binary: base64, bigint_unsigned: number}"


_HANDOVER_SECONDS = 150
"""How long a continuous run may last beyond its time: it starts, and it waits for the next one."""


def find_windows_problem(pipeline: PipelineSettings) -> str | None:
    """Why the pipeline cannot have the setting `windows`; None if it can."""
    if pipeline.followers:
        return (
            "`windows` does not work with `followers`: a follower needs each window since its last run, and with a "
            "window a second the commit log only has those of the last half an hour. Remove one of them"
        )
    if pipeline.spark.deferrable:
        return (
            "`windows` does not work with `spark.deferrable`: the task moves the checkpoint while the job publishes, "
            "and a deferred task cannot. Remove one of them"
        )
    return None if pipeline.windows is None else _find_limit_problem(pipeline, pipeline.windows)


def _find_limit_problem(pipeline: PipelineSettings, windows: WindowSettings) -> str | None:
    """Why a limit of the pipeline would always alert beside ``windows``; None if none would."""
    minutes, seconds = pipeline.deadline_minutes, pipeline.alerts.freshness_seconds
    if minutes is not None and 60 * minutes < windows.run_seconds + _HANDOVER_SECONDS:
        return (
            f"`deadline_minutes: {minutes}` would alert in each run, which lasts up to "
            f"{_HANDOVER_SECONDS} seconds longer than `windows.run_for: {windows.run_for}`. Set more minutes, or leave "
            "it out"
        )
    if seconds is not None and seconds <= windows.every_seconds:
        return (
            f"`alerts.freshness_seconds: {seconds:g}` would always alert on a busy source: a change may wait for "
            f"`windows.every: {windows.every}` until its window begins. Set more seconds, or leave it out"
        )
    return None


def find_reference_reader_problem(pipeline: PipelineSettings) -> str | None:
    """Why mysql-replication cannot decode for ``pipeline``; None if it can."""
    routes = compile_routes(pipeline)
    rules, topics = pipeline.format.row_rules, pipeline.topics.model_dump(exclude_defaults=True)
    unknown = {
        **{name: getattr(pipeline, name) for name in ("transforms", "outbox", "rows", "skip")},
        "columns": pipeline.columns != ColumnSettings(),
        **{f"topics.{name}": topics.get(name) for name in ("partition_by", "table_field", "routes")},
        "keys` and `keyless": routes.has_key_rules,
        "provide.transaction.metadata": routes.transaction_topic,
        "skip.messages.without.change": rules.unchanged_skipped,
        "skipped.operations": rules.skipped - {"t"},
    }
    for name, given in unknown.items():
        if given:
            return f"`reader: reference` does not support `{name}`: remove one of them"
    if joins_rows(routes.format(0)):
        return (
            f"`reader: reference` reads row by row, and `format: {pipeline.format.name}` has all rows of an event in a "
            "record. Use another format, or remove the reader"
        )
    if not routes.format(0).style.is_plain:
        return (
            f"`reader: reference` cannot write values as `format: {pipeline.format.name}` does. Use `debezium` with "
            f"plain values, `{PLAIN_VALUES}`"
        )
    return None
