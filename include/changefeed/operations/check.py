"""check: everything that can be known to be wrong before a run.

A part is a function that yields findings: of the source in `source_checks`, of all else here. To add one, write
the function and name it in `PARTS`, or in `SOURCE_PARTS` there. A part raises what it cannot go on with: that is its
last finding, and the others are asked all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from itertools import islice

from changefeed.errors import (
    BrokerUnavailableError,
    ChangefeedError,
    SettingsError,
    SourceUnavailableError,
    TopicError,
)
from changefeed.ingest.begin import begin_topics, check_begin
from changefeed.kafka.fencing import check_transactions
from changefeed.kafka.topics import TopicSettings, missing_topics, not_there, partition_counts
from changefeed.model.checkpoint import CheckpointStore
from changefeed.model.topic_name import schema_changes_topic
from changefeed.operations.finding import Finding, Level, fail, ok, warn
from changefeed.operations.neighbours import Neighbours
from changefeed.operations.routed_tables import routed_tables
from changefeed.operations.source_checks import CheckedSource, check_source
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.known_progress import known_state
from changefeed.pipeline.plan import Plan, plan
from changefeed.pipeline.topics import wanted_topics
from changefeed.pipeline.unknown_tables import check_tables_known
from changefeed.snapshot.hidden_bounds import check_bounds

_UNREACHABLE = (BrokerUnavailableError, SourceUnavailableError)
"""Errors that each part would find again, in other words."""
_SHOWN = 50
"""So many tables and topics have a line of their own."""


@dataclass(frozen=True)
class Checked:
    """What the parts of a check look at. ``open_store`` raises SettingsError where the store cannot be had here."""

    connections: PipelineConnections
    neighbours: Neighbours
    open_store: Callable[[], CheckpointStore]

    closing: ExitStack

    @cached_property
    def source(self) -> CheckedSource:
        """The source, with one session for all parts. Raises as `Session` does."""
        return CheckedSource(self.connections, self.closing.enter_context(self.connections.session()))

    @cached_property
    def topics(self) -> dict[str, TopicSettings]:
        """The topics of the pipeline, as they are made where they are missing."""
        return wanted_topics(self.connections.pipeline, self.source.session)

    @cached_property
    def partitions(self) -> dict[str, int]:
        """How many partitions each of the topics has that is there."""
        return partition_counts(self.connections.kafka, self.topics)


Part = Callable[[Checked], Iterator[Finding]]


def check(
    connections: PipelineConnections, neighbours: Neighbours, open_store: Callable[[], CheckpointStore]
) -> Iterator[Finding]:
    """Yield what was found; nothing is raised, and nothing is stored. ``neighbours`` are the pipelines beside this one.

    What two parts are stopped by is found once.
    """
    found: set[str] = set()
    unreachable: set[type[ChangefeedError]] = set()
    with ExitStack() as closing:
        checked = Checked(connections, neighbours, open_store, closing)
        for part in PARTS:
            for finding in _findings(part, checked, unreachable):
                if finding.level is not Level.FAIL or finding.text not in found:
                    yield finding
                found.add(finding.text)


def _findings(part: Part, checked: Checked, unreachable: set[type[ChangefeedError]]) -> Iterator[Finding]:
    try:
        yield from part(checked)
    except _UNREACHABLE as error:
        if type(error) not in unreachable:
            unreachable.add(type(error))
            yield fail(error)
    except ChangefeedError as error:
        yield fail(error)


def _source(checked: Checked) -> Iterator[Finding]:
    yield from check_source(checked.source)


def _kafka(checked: Checked) -> Iterator[Finding]:
    connections = checked.connections
    kafka, wanted = connections.kafka, connections.pipeline.topics.replication_factor
    kafka.check_options()
    brokers = kafka.broker_count()
    yield ok(f"Kafka {kafka.bootstrap}: reachable, {_brokers(brokers)}")
    check_transactions(kafka, connections.pipeline.name, connections.pipeline.kafka.transaction_timeout_seconds)
    if wanted > brokers:
        raise TopicError(
            f"topics.replication_factor of pipeline {connections.pipeline.name!r} is {wanted}, and the cluster at "
            f"{kafka.bootstrap!r} has {_brokers(brokers)} up: no topic can be made there. Write at most {brokers}, or "
            "start the other brokers."
        )
    topics, counts = checked.topics, checked.partitions
    yield from _partitions(topics, counts)
    if not connections.pipeline.topics.create:
        if lacking := {name: settings for name, settings in topics.items() if name not in counts}:
            raise not_there(kafka, lacking)
        yield ok(f"{len(topics)} topics: all are there, none would be made")
        return
    missing = missing_topics(kafka, topics)
    yield ok(f"{len(topics)} topics: {len(topics) - len(missing)} are there, {len(missing)} will be made")


def _partitions(topics: Mapping[str, TopicSettings], counts: Mapping[str, int]) -> Iterator[Finding]:
    """The topics that are there with other partitions than the pipeline says."""
    others = [name for name in topics if name in counts and counts[name] != topics[name].partitions]
    for name in others[:_SHOWN]:
        yield warn(
            f"topic {name!r} has {counts[name]} partitions, and the pipeline's settings say {topics[name].partitions}: "
            "it is used as it is. Add partitions with kafka-topics.sh, or write what it has"
        )
    if others[_SHOWN:]:
        yield warn(f"and {len(others) - _SHOWN} more topics with other partitions than the pipeline's settings say")


def _brokers(count: int) -> str:
    return "1 broker" if count == 1 else f"{count} brokers"


def _next_run(checked: Checked) -> Iterator[Finding]:
    """What the next run would publish, or be refused for: the same questions, of the same code."""
    connections = checked.connections
    try:
        store = checked.open_store()
    except SettingsError as error:
        if connections.pipeline.checkpoint.connection is not None:
            raise
        yield warn(
            f"what the next run would be refused for is not looked at here: {error}"
        )  # Airflow runs it elsewhere
        return
    planned = plan(connections, store, keep_first_checkpoint=False)
    yield from map(warn, planned.doubts)
    check_tables_known(connections.pipeline, planned.history, planned.start)
    state = known_state(connections, planned.expected)
    window = next((each for each in planned.unfinished if each.number not in state.seals), planned.window)
    check_begin(connections, window, state)
    begin_topics(connections, window, state, checked.topics)
    yield ok(f"next run: {_described(planned)}")


def _described(planned: Plan) -> str:
    window, unfinished = planned.window, planned.unfinished
    if planned.is_empty:
        return f"nothing new, checkpoint and head are both at {window.head}"
    first = f"ends what an earlier run left unfinished, from {unfinished[0].start}; then " if unfinished else ""
    return f"{first}window {window.number}, {window.start} to {window.head}, {planned.window_bytes:,} bytes"


def _routed(checked: Checked) -> Iterator[Finding]:
    """Each table with its topic as it is, and a message of it."""
    source = checked.source
    try:
        partitions = checked.partitions
    except ChangefeedError:
        partitions = {}  # which `_kafka` has said
    routed = routed_tables(
        checked.connections, source.tables, server_names_keys=source.server_names_keys, partitions=partitions
    )
    for table in islice(routed, _SHOWN):
        yield ok("\n  ".join([str(table), *(table.sample.lines if table.sample else [])]))
    if rest := sum(1 for _ in routed):
        name = checked.connections.pipeline.name
        yield ok(f"and {rest} more tables: `changefeed explain DATABASE.TABLE --pipeline {name}` shows each")


def _server_ids(checked: Checked) -> Iterator[Finding]:
    """That there are enough of the pipeline's server_ids; nothing where it names none."""
    connections = checked.connections
    own, cores = connections.server_ids, connections.pipeline.spark.cores
    if not own.ids:
        return
    if cores is not None:
        own.check(cores)
    known = (
        f"{cores} tasks at once" if cores is not None else "as many tasks: the cores of the cluster are not known yet"
    )
    yield ok(f"server_ids {own}: {len(own.ids)} for {known}")


def _registry(checked: Checked) -> Iterator[Finding]:
    """Whether the format's schema registry answers."""
    registry = checked.connections.registry
    if registry is not None:
        level = registry.level(schema_changes_topic(checked.connections.pipeline.name))
        yield ok(f"schema registry {registry.connection}: new subjects have the compatibility {level}")


def _logs(checked: Checked) -> Iterator[Finding]:
    """What of the commit log is not the pipeline's, and whether a snapshot may write to it how far it has come."""
    log, pipeline = checked.connections.commit_log(), checked.connections.pipeline
    foreign = log.foreign() if log.exists() else []
    if foreign:
        yield warn(
            f"{len(foreign)} records of commit log {log.topic!r} are not the pipeline's, the first {foreign[0]}: they "
            "are left out. Only changefeed is to write to that topic: look at its ACLs."
        )
    if pipeline.hides_columns:
        try:
            check_bounds(checked.connections, checked.source.tables)
        except SettingsError as error:
            yield warn(f"a snapshot would be refused: {error}")


def _neighbours(checked: Checked) -> Iterator[Finding]:
    yield from checked.neighbours.findings(checked.connections)


PARTS: tuple[Part, ...] = (_source, _kafka, _routed, _next_run, _server_ids, _registry, _logs, _neighbours)
