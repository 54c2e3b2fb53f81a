"""check: finds problems before a run.

A part is a function that yields findings. Parts about the source are in `source_checks`, all others are here. To add a
part, write the function and add it to `SOURCE_PARTS` there or to `PARTS` here. If a part raises an error, the error is
its last finding, and the other parts still run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from itertools import islice

from changefeed.errors import (
    BrokerUnavailableError,
    ChangefeedError,
    SettingsError,
    SourceUnavailableError,
    TopicError,
)
from changefeed.ingest.begin import check_begin, check_begin_topics
from changefeed.ingest.handover import MOST_WAIT_SECONDS
from changefeed.kafka.fencing import check_transactions
from changefeed.kafka.log_compaction import describe_late, late_settings
from changefeed.kafka.topics import TopicSettings, missing_topics, not_there, partition_counts
from changefeed.model.checkpoint import CheckpointStore
from changefeed.model.topic_name import schema_changes_topic
from changefeed.operations.finding import Finding, Level, fail, ok, warn
from changefeed.operations.neighbours import Neighbours
from changefeed.operations.routed_tables import routed_tables
from changefeed.operations.source_checks import SourceContext, check_source
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.known_progress import state_for_checkpoint
from changefeed.pipeline.parking import describe_parked, left_out_tables
from changefeed.pipeline.plan import Plan, plan
from changefeed.pipeline.topics import captured_routes, required_topics
from changefeed.pipeline.unknown_tables import check_plan
from changefeed.pipeline.windows import last_stable_state
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.schedule import longest_pause
from changefeed.snapshot.automatic import describe_automatic, takes_snapshots
from changefeed.snapshot.hidden_bounds import check_bounds
from changefeed.snapshot.planning import check_row_images, check_takes_snapshots

_UNREACHABLE = (BrokerUnavailableError, SourceUnavailableError)
"""Errors that several parts may raise for the same cause, with different messages. Each class is reported once."""
_SHOWN = 50
"""The number of tables and topics that get their own line."""


@dataclass(frozen=True)
class CheckScope:
    """What a check may do besides reading the pipeline's servers."""

    import_functions: bool = True
    """Whether it imports the pipeline's functions, which are code of the folder of transforms."""
    show_reasons: bool = True
    """Whether it shows why tables are parked, which may quote values of rows."""


@dataclass(frozen=True)
class CheckContext:
    """The input of the parts of a check. ``open_store`` raises SettingsError if the store cannot be opened here."""

    connections: PipelineConnections
    neighbours: Neighbours
    open_store: Callable[[], CheckpointStore]
    scope: CheckScope

    closing: ExitStack

    @cached_property
    def source(self) -> SourceContext:
        """The source, with one session for all parts. Raises as `Session` does."""
        session = self.closing.enter_context(self.connections.session())
        return SourceContext(self.connections, session, import_functions=self.scope.import_functions)

    @cached_property
    def topics(self) -> dict[str, TopicSettings]:
        """The topics of the pipeline, with the settings that a run uses to create missing topics."""
        pipeline = self.connections.pipeline
        return required_topics(pipeline, captured_routes(pipeline, self.source.session))

    @cached_property
    def partitions(self) -> dict[str, int]:
        """The number of partitions of each existing topic."""
        return partition_counts(self.connections.kafka, self.topics)


Part = Callable[[CheckContext], Iterator[Finding]]


def check(
    connections: PipelineConnections,
    neighbours: Neighbours,
    open_store: Callable[[], CheckpointStore],
    scope: CheckScope = CheckScope(),
) -> Iterator[Finding]:
    """Yield the findings. Stores nothing, and raises nothing: errors are findings.

    ``neighbours`` are the pipelines of the folder that the reader may see.

    An error that stops several parts is yielded once.
    """
    found: set[str] = set()
    unreachable: set[type[ChangefeedError]] = set()
    with ExitStack() as closing:
        context = CheckContext(connections, neighbours, open_store, scope, closing)
        for part in PARTS:
            for finding in _findings(part, context, unreachable):
                if finding.level is not Level.FAIL or finding.text not in found:
                    yield finding
                found.add(finding.text)


def _findings(part: Part, context: CheckContext, unreachable: set[type[ChangefeedError]]) -> Iterator[Finding]:
    try:
        yield from part(context)
    except _UNREACHABLE as error:
        if type(error) not in unreachable:
            unreachable.add(type(error))
            yield fail(error)
    except ChangefeedError as error:
        yield fail(error)


def _source(context: CheckContext) -> Iterator[Finding]:
    yield from check_source(context.source)


def _kafka(context: CheckContext) -> Iterator[Finding]:
    connections = context.connections
    kafka, replicas = connections.kafka, connections.pipeline.topics.replication_factor
    kafka.check_options()
    brokers = kafka.broker_count()
    yield ok(f"Kafka {kafka.bootstrap}: reachable, {_brokers(brokers)}")
    check_transactions(kafka, connections.pipeline.name, connections.pipeline.kafka.transaction_timeout_seconds)
    if replicas > brokers:
        raise TopicError(
            f"topics.replication_factor of pipeline {connections.pipeline.name!r} is {replicas}, and the cluster at "
            f"{kafka.bootstrap!r} has {_brokers(brokers)} up: no topic can be created. Set at most {brokers}, or "
            "start the other brokers."
        )
    topics, counts = context.topics, context.partitions
    yield from _partitions(topics, counts)
    if not connections.pipeline.topics.create:
        if absent := {name: settings for name, settings in topics.items() if name not in counts}:
            raise not_there(kafka, absent)
        yield ok(f"{len(topics)} topics: all exist, none would be created")
        return
    missing = missing_topics(kafka, topics)
    yield ok(f"{len(topics)} topics: {len(topics) - len(missing)} exist, {len(missing)} will be created")


def _partitions(topics: Mapping[str, TopicSettings], counts: Mapping[str, int]) -> Iterator[Finding]:
    """Warn of existing topics whose number of partitions differs from the pipeline's settings."""
    others = [name for name in topics if name in counts and counts[name] != topics[name].partitions]
    for name in others[:_SHOWN]:
        yield warn(
            f"topic {name!r} has {counts[name]} partitions, and the pipeline's settings say {topics[name].partitions}: "
            "it is used as it is. Add partitions with kafka-topics.sh, or change the setting"
        )
    if others[_SHOWN:]:
        yield warn(f"and {len(others) - _SHOWN} more topics with another number of partitions than the settings say")


def _schedule(context: CheckContext) -> Iterator[Finding]:
    """Warn of a schedule that does not fit the runs."""
    if misfit := describe_misfit(context.connections.pipeline):
        yield warn(misfit)


_WITHOUT_WINDOWS = (
    '`schedule: "@continuous"` without `windows` begins a run, with a new Spark job, as soon as the last one ends. Set '
    "`windows: {every: 1s, run_for: 10m}`, with which a run publishes windows one after another, or a schedule of "
    "minutes"
)


def describe_misfit(pipeline: Pipeline) -> str | None:
    """Why continuous runs of the pipeline's schedule do not follow one another as `windows.run_for` says, or why
    `@continuous` has no continuous runs, with a remedy; None if the schedule fits, or without one."""
    windows, pause = pipeline.windows, longest_pause(pipeline.schedule)
    if windows is None:
        return _WITHOUT_WINDOWS if pipeline.schedule == "@continuous" else None
    schedule, run_for = f"`schedule: {pipeline.schedule!r}`", f"`windows.run_for: {windows.run_for}`"
    remedy = 'Set `schedule: "@continuous"`: then the next run begins when the time of the last one is over'
    if pipeline.schedule == "@once":
        return f"{schedule} has one run, which ends after {run_for}: nothing is published after it. {remedy}"
    if pause is None:
        return None
    gap = pause - timedelta(seconds=windows.run_seconds + MOST_WAIT_SECONDS)
    if gap > timedelta(0):
        return (
            f"{schedule} begins runs up to {_minutes(pause)} apart. A run ends {MOST_WAIT_SECONDS:g} seconds after "
            f"{run_for}, and after that nothing is published for up to {_minutes(gap)}. {remedy}"
        )
    if pause < timedelta(seconds=windows.run_seconds):
        return (
            f"with {schedule} the next run takes over every {_minutes(pause)}, with a new Spark job, so {run_for} has "
            f"no effect. {remedy}"
        )
    return None


def _minutes(time: timedelta) -> str:
    return f"{round(time.total_seconds() / 60, 1):,} minutes".replace(".0 ", " ")


def _brokers(count: int) -> str:
    return "1 broker" if count == 1 else f"{count} brokers"


def _next_run(context: CheckContext) -> Iterator[Finding]:
    """Report what the next run would publish, or the error it would raise. Calls the same code as a run."""
    connections = context.connections
    try:
        store = context.open_store()
    except SettingsError as error:
        if connections.pipeline.checkpoint.store != "variable":
            raise
        yield warn(f"whether the next run would fail is not checked here: {error}")  # only Airflow can open this store
        return
    planned = plan(connections, store, keep_first_checkpoint=False)
    yield from map(warn, planned.doubts)
    check_plan(connections.pipeline, planned.history, planned.start)
    state = state_for_checkpoint(connections, planned.expected)
    window = next((each for each in planned.unfinished if each.number not in state.seals), planned.window)
    check_begin(connections, window, state)
    check_begin_topics(connections, window, state, context.topics)
    yield ok(f"next run: {_describe(planned)}")


def _automatic_snapshots(context: CheckContext) -> Iterator[Finding]:
    """Report whether the snapshots are possible that the pipeline takes by itself. Reports nothing if it takes none."""
    pipeline = context.connections.pipeline
    if takes_snapshots(pipeline):
        check_takes_snapshots(pipeline)
        check_row_images(context.source.session)
        yield ok(f"the pipeline takes snapshots by itself: {describe_automatic(pipeline)}")


def _parked_tables(context: CheckContext) -> Iterator[Finding]:
    """Report parked tables, and an error if the pipeline does not park any more."""
    state = last_stable_state(context.connections)
    left_out_tables(context.connections.pipeline, state)
    for name, text in describe_parked(state, reasons=context.scope.show_reasons).items():
        yield warn(f"{name} is {text}")


def _describe(planned: Plan) -> str:
    window, begun = planned.window, planned.begun
    if planned.is_published:
        return planned.nothing_new
    first = f"finishes the window of an earlier run, from {begun.start}; then " if begun else ""
    return f"{first}window {window.number}, {window.start} to {window.head}, {planned.window_bytes:,} bytes"


def _routes(context: CheckContext) -> Iterator[Finding]:
    """Report each table with its topic and a sample message."""
    source = context.source
    try:
        partitions = context.partitions
    except ChangefeedError:
        partitions = {}  # `_kafka` reports this error
    routed = routed_tables(
        context.connections, source.tables, server_names_keys=source.server_names_keys, partitions=partitions
    )
    for table in islice(routed, _SHOWN):
        yield ok("\n  ".join([str(table), *(table.sample.lines if table.sample else [])]))
    if rest := sum(1 for _ in routed):
        name = context.connections.pipeline.name
        yield ok(f"and {rest} more tables: `changefeed explain DATABASE.TABLE --pipeline {name}` shows each")


def _server_ids(context: CheckContext) -> Iterator[Finding]:
    """Report whether the pipeline has enough server_ids. Reports nothing if it has no such setting."""
    connections = context.connections
    own, cores = connections.server_ids, connections.pipeline.spark.cores
    if not own.ids:
        return
    if cores is not None:
        own.check(cores)
    known = (
        f"{cores} tasks at once" if cores is not None else "as many tasks: the cores of the cluster are not known yet"
    )
    yield ok(f"server_ids {own}: {len(own.ids)} for {known}")


def _registry(context: CheckContext) -> Iterator[Finding]:
    """Report whether the format's schema registry answers."""
    registry = context.connections.registry
    if registry is not None:
        level = registry.level(schema_changes_topic(context.connections.pipeline.name))
        yield ok(f"schema registry {registry.connection}: new subjects have the compatibility {level}")


def _logs(context: CheckContext) -> Iterator[Finding]:
    """Warn of foreign records in the commit log, and if a snapshot may not store its progress there."""
    log, pipeline = context.connections.commit_log(), context.connections.pipeline
    foreign = log.foreign() if log.exists() else []
    if foreign:
        yield warn(
            f"{len(foreign)} records of commit log {log.topic!r} are not the pipeline's, the first {foreign[0]}: they "
            "are left out. Only changefeed is to write to that topic: look at its ACLs."
        )
    if pipeline.windows and (late := late_settings(context.connections.kafka, log.topic)):
        yield warn(describe_late(log.topic, late))
    if pipeline.hides_columns:
        try:
            check_bounds(context.connections, context.source.tables)
        except SettingsError as error:
            yield warn(f"a snapshot would be refused: {error}")


def _neighbours(context: CheckContext) -> Iterator[Finding]:
    yield from context.neighbours.findings(context.connections)


PARTS: tuple[Part, ...] = (
    _schedule,
    _source,
    _kafka,
    _routes,
    _next_run,
    _automatic_snapshots,
    _parked_tables,
    _server_ids,
    _registry,
    _logs,
    _neighbours,
)
