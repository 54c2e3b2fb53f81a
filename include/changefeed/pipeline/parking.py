"""Parked tables: captured tables that windows leave out after an error that belongs to them alone.

With `on_table_error: park` a run parks such a table, and begins the same window again without it. The record of the
parked table is written before that, while nothing of the window is in Kafka. So the table misses exactly its changes
from the window's start on, and `operations.unpark` publishes these once.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection

from changefeed.ddl.names import TableName
from changefeed.errors import AccountingError, SchemaError, SettingsError, TerminalError
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import DependencyRecord, ParkedRecord
from changefeed.kafka.fencing import fence
from changefeed.model import fault_point
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.window import Window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.open_windows import check_next, progress_in_window
from changefeed.pipeline.topics import table_topics
from changefeed.pipeline.windows import check_not_renamed, last_stable_state
from changefeed.settings.pipeline import Pipeline
from changefeed.source.mysql import source
from changefeed.source.mysql.preflight import unreadable

_log = logging.getLogger(__name__)

_LONGEST_REASON = 300


def parked_tables(state: CommitLogState) -> dict[str, ParkedRecord]:
    """The parked tables of a pipeline, by "database.table"; ``state`` is the state of its commit log."""
    return {record.table: record for record in sorted(state.of(ParkedRecord), key=lambda record: record.table)}


def read_parked(connections: PipelineConnections) -> list[ParkedRecord]:
    """The pipeline's parked tables, for observers. Raises what `last_stable_state` raises.

    The commit log is not read if the pipeline does not park: then its runs refuse to go on with parked tables.
    """
    if connections.pipeline.on_table_error != "park":
        return []
    return list(parked_tables(last_stable_state(connections)).values())


def describe_parked(state: CommitLogState, *, reasons: bool = True) -> dict[str, str]:
    """The parked tables, each with a sentence for people. ``reasons`` are of errors, and may quote values of rows."""
    return {
        name: f"parked: its changes from {record.at} on are not published until `changefeed unpark`"
        f"{f' ({record.reason})' if reasons else ''}"
        for name, record in parked_tables(state).items()
    }


def left_out_tables(pipeline: Pipeline, state: CommitLogState) -> frozenset[str]:
    """The tables that a window leaves out now. Raises SettingsError if the pipeline does not park any more."""
    parked = parked_tables(state)
    if parked and pipeline.on_table_error != "park":
        raise SettingsError(
            f"pipeline {pipeline.name!r} has `on_table_error: stop`, and {_describe(parked)} parked: changes from "
            f"{next(iter(parked.values())).at} on are missing. Nothing was published. Set `on_table_error: park`, and "
            f"`changefeed unpark {pipeline.name}`; after that `stop` is possible again."
        )
    return frozenset(parked)


def check_none_parked(name: str, state: CommitLogState, action: str, tables: Collection[str] | None = None) -> None:
    """Raise SettingsError if tables of pipeline ``name`` are parked, which ``action`` does not support; of ``tables``,
    or any."""
    found = [table for table in parked_tables(state) if tables is None or table in tables]
    if found:
        raise SettingsError(
            f"{action}: {_describe(found)} parked, so that changes are missing in Kafka. Nothing was changed. Publish "
            f"them first (`changefeed unpark {name}`), or give them up (`changefeed unpark {name} --skip-changes`)."
        )


def check_same_parked(window: Window, begun: Collection[str], now: Collection[str]) -> None:
    """Raise AccountingError if ``window``, which is partly in Kafka, began without other tables than ``now``."""
    if set(begun) != set(now):
        raise AccountingError(
            f"window {window.number} of pipeline {window.pipeline!r} ({window.start} to {window.head}) was published "
            f"in part without {', '.join(begun) or 'a parked table'}, and {', '.join(now) or 'no table'} is parked "
            "now: which of its messages are in Kafka is not known. Nothing more was published. Seek the pipeline to "
            f"{window.start}, which publishes its messages again."
        )


def park_tables(connections: PipelineConnections, window: Window, error: TerminalError) -> None:
    """Park the tables of ``error``, which stopped ``window``, from the window's start on.

    Raises ``error``, with the reason, if it is not certain that exactly these changes would be missing: if a part of
    the window is published, if it comes from a failover, or if a snapshot depends on the changes; also if no other
    table is left. A function that fails on two tables of the window is no error of a table: then the table that was
    parked for it is not parked any more, and ``error`` is raised. Raises PipelineBusyError if another run is alive, and
    StaleCheckpointError or CheckpointError if one published the window meanwhile, or a seek or a rename replaced it.
    """
    pipeline = connections.pipeline
    with connections.lease(brief=True) as lease:
        fence(lease)  # no task of the failed attempt publishes any more
        state = lease.log().read()
        check_not_renamed(pipeline.name, state)
        check_next(window, state)
        others = _parked_for_same_function(window, state, error)
        if others:
            lease.log().keep(forgotten=others)  # nothing of the window is in Kafka, so they miss nothing
        if why := _describe_shared(error, others) or _find_obstacle(connections, window, state, error):
            error.args = (f"{error} The table is not parked: {why}.", *error.args[1:])
            raise error
        now = int(time.time() * 1000)
        reason = _reason(pipeline, window, error)
        fault_point.reach("before_park")
        lease.log().keep(
            *(
                ParkedRecord(
                    table, window.server_uuid, str(window.start), window.start_gtids, reason, now, error.function
                )
                for table in error.tables
            )
        )
    _log.error(
        "pipeline %s: %s parked: changes from %s on, in window %d and later, are not published until "
        "`changefeed unpark %s`. The error was: %s",
        pipeline.name,
        _describe(error.tables),
        window.start,
        window.number,
        pipeline.name,
        error,
    )
    fault_point.reach("after_park")


def _find_obstacle(
    connections: PipelineConnections, window: Window, state: CommitLogState, error: TerminalError
) -> str:
    """Why the tables of ``error`` cannot be parked from the start of ``window`` on; '' if they can."""
    known, tables = parked_tables(state), error.tables
    if dotted := [each for each in tables if each.count(".") > 1]:  # such a text may be that of two tables
        return f"the name of database or table has a dot: {dotted[0]}"
    if again := [table for table in tables if table in known]:
        return f"{again[0]} is parked already, and the error is still there"
    if others := [each for each in tables if not connections.pipeline.tables.matches(*each.split(".", 1))]:
        return f"the pipeline does not capture {others[0]}, and the error is of its rows nevertheless"
    if window.failover is not None:
        return "the window comes from a failover"
    if progress_in_window(window, state.progress):
        return "a part of its window is in Kafka already"
    for dependency in state.of(DependencyRecord):
        is_over = dependency.source == window.server_uuid and BinlogCoordinates.parse(dependency.until) <= window.start
        if not is_over and set(tables) & set(dependency.tables):
            return f"snapshot {dependency.snapshot!r} depends on its changes up to {dependency.until}"
    with connections.session_on(window.server_uuid) as session:
        captured = {f"{database}.{table}" for database, table in table_topics(connections.pipeline, session)}
        if isinstance(error, SchemaError) and not source.logs_column_names(session):
            names = [TableName(*table.split(".", 1)) for table in tables]
            if denied := unreadable(session, names):  # a right that is taken away is no error of the table
                return next(iter(denied.values()))
    if not captured - known.keys() - set(tables):
        return "the pipeline has no other table"
    return ""


def _parked_for_same_function(window: Window, state: CommitLogState, error: TerminalError) -> list[ParkedRecord]:
    """The other tables that were parked from the start of ``window`` on because the function of ``error`` failed."""
    if not error.function or progress_in_window(window, state.progress):
        return []
    cause = (window.server_uuid, str(window.start), error.function)
    return [
        record
        for table, record in parked_tables(state).items()
        if (record.source, record.at, record.function) == cause and table not in error.tables
    ]


def _describe_shared(error: TerminalError, others: Collection[ParkedRecord]) -> str:
    if not others:
        return ""
    names = _describe([record.table for record in others])
    return (
        f"function {error.function!r} failed on {', '.join(record.table for record in others)} in the same window too, "
        f"so the function is the cause and not a table, and {names} not parked any more"
    )


def _reason(pipeline: Pipeline, window: Window, error: TerminalError) -> str:
    """The first sentence of ``error``; if the pipeline hides columns, without the text, which may have values."""
    if pipeline.hides_columns:
        what = f"function {error.function!r} failed" if error.function else type(error).__name__
        return f"{what} in window {window.number}: the run's log has its text"
    return str(error).partition(". ")[0][:_LONGEST_REASON]


def _describe(tables: Collection[str]) -> str:
    return f"{', '.join(tables)} {'is' if len(tables) == 1 else 'are'}"
