"""unpark: publishes the changes that a parked table misses, once, and lets the windows publish it again.

The range of a table is [where it was parked, end of the sealed windows). It is published under an identity of its own,
as a backfill, while the pipeline's lease is held, so that no window is published meanwhile. The record of the parked
table is removed last, under the same lease. If the process dies before that, windows go on without the table, and the
next call continues: first the range that was begun, then what windows left out since.
"""

from __future__ import annotations

import glob
import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from changefeed.errors import AccountingError, BinlogGoneError, CheckpointError, SettingsError, TerminalError
from changefeed.ingest.window_run import ingest
from changefeed.kafka.commit_log.log import CommitLogState
from changefeed.kafka.commit_log.records import ParkedRecord, SealRecord
from changefeed.kafka.fencing import fence
from changefeed.kafka.lease import Lease
from changefeed.model import fault_point
from changefeed.model.checkpoint import Checkpoint
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.manifest import Manifest
from changefeed.model.run_identity import unpark_identity
from changefeed.model.window import Window
from changefeed.operations.backfill import begun_window
from changefeed.pipeline.connections import PipelineConnections
from changefeed.pipeline.old_identities import forget_identities
from changefeed.pipeline.parking import parked_tables
from changefeed.pipeline.plan import check_same_files, check_same_transactions
from changefeed.pipeline.windows import check_not_renamed, last_stable_state, latest_checkpoint
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.backfill import NarrowedTables
from changefeed.settings.requests.unpark import UnparkRequest
from changefeed.source.mysql import source
from changefeed.source.mysql.binlogs import ServerBinlogs, file_identity
from changefeed.spark.target import SparkTarget

_log = logging.getLogger(__name__)

KEPT_RANGES = 100
"""The number of a pipeline's latest published ranges of parked tables whose manifests stay in the commit log, besides
those of the call that publishes, which its caller reads at the end."""


def requested_tables(connections: PipelineConnections, request: UnparkRequest) -> list[ParkedRecord]:
    """The parked tables of ``request``. Raises SettingsError if there is none."""
    pipeline = connections.pipeline
    parked = parked_tables(last_stable_state(connections))
    found = [record for name, record in parked.items() if request.matches(name)]
    if not found:
        raise SettingsError(
            f"no parked table of pipeline {pipeline.name!r} matches {', '.join(request.tables) or '*.*'}: parked are "
            f"{', '.join(parked) or 'none'}. Nothing was changed."
        )
    return found


def unpark(
    spark: SparkTarget | None, connections: PipelineConnections, records: Sequence[ParkedRecord], *, skip: bool
) -> Iterator[str]:
    """Return the tables of ``records`` to the pipeline, one after another; yield a sentence for each.

    ``records`` are from `requested_tables`; a table that returned since is only reported. With ``skip`` the missing
    changes are not published, and ``spark`` may be None. A table with an error of its own stays parked, and the next
    one follows; the first such error is raised at the end.

    Raises SettingsError if the pipeline does not capture a table any more and its changes are not skipped;
    PipelineBusyError while a run is alive, a continuous one if its current window takes minutes; CheckpointError if a
    window is unfinished, BinlogGoneError if the server does not have the binlog from where the table was parked, or if
    its binlog is another one; and the error of the table if its cause is still there.
    """
    errors: list[TerminalError] = []
    for record in records:
        try:
            yield _unpark(spark, connections, record, KEPT_RANGES + len(records), skip=skip)
        except TerminalError as error:
            if not error.tables:
                raise
            _log.error("%s", error)
            errors.append(error)
    if errors:
        raise errors[0]


def _unpark(
    spark: SparkTarget | None,
    connections: PipelineConnections,
    requested: ParkedRecord,
    kept: int,
    *,
    skip: bool,
) -> str:
    """Return the table of ``requested``; the result is a sentence. The log keeps the last ``kept`` published ranges."""
    name, table = connections.pipeline.name, requested.table
    with connections.lease_between_windows() as lease:
        fence(lease)  # no task of an earlier run publishes any more
        state = lease.log().read()
        record = parked_tables(state).get(table)
        if record is None or record.since_ms != requested.since_ms:
            return f"{table} is not parked any more: it returned already"
        end = _sealed_end(name, state)
        manifests: list[Manifest] = []
        start = record.at
        if not skip:
            _check_possible(connections, record, end, state)
        while not skip and spark is not None and not _misses_nothing(record, end):
            manifests.append(_publish(spark, connections, record, end))
            fault_point.reach("after_unpark_window")
            record = replace(record, at=str(manifests[-1].window.head), gtids=manifests[-1].gtids)
            if not _misses_nothing(record, end):
                _move_on(lease, record)
        lease.log().keep(forgotten=[record])
        _forget_old(connections, lease, kept)
    fault_point.reach("after_unpark")
    if skip:
        return (
            f"{table} is not parked any more; its changes from {start} to {end.coordinates} are not published, as "
            "requested. Take a snapshot of the table, which publishes its rows"
        )
    rows, messages = sum(each.row_count for each in manifests), sum(each.message_count for each in manifests)
    return (
        f"{table} is not parked any more; {rows:,} rows from {start} to {end.coordinates} are published in "
        f"{messages:,} messages"
    )


def _misses_nothing(record: ParkedRecord, end: Checkpoint) -> bool:
    return (record.source, record.at) == (end.server_uuid, str(end.coordinates))


def published_ranges(connections: PipelineConnections, records: Iterable[ParkedRecord]) -> list[Manifest]:
    """The manifests of all ranges that were published since the tables of ``records`` were parked, also by calls that
    did not end."""
    name = connections.pipeline.name
    seals = [
        (entry.identity, record.manifest)
        for entry in connections.commit_log().entries()
        if entry.identity.startswith(unpark_identity(name, "")) and isinstance(record := entry.read(), SealRecord)
    ]
    return [
        manifest
        for record in records
        for identity, manifest in seals
        if identity == _identity(name, replace(record, at=str(manifest.window.start)))
    ]


def _check_possible(
    connections: PipelineConnections, record: ParkedRecord, end: Checkpoint, state: CommitLogState
) -> None:
    """Raise an error of the table if its changes up to ``end`` cannot be published."""
    name, table = connections.pipeline.name, record.table
    try:
        if not connections.pipeline.tables.matches(*table.split(".", 1)):
            raise SettingsError(
                f"{table} is parked, and pipeline {name!r} does not capture it any more: its changes from {record.at} "
                "on cannot be published. Nothing was changed. Capture it again (`tables` in the YAML) and repeat this; "
                f"or give its changes up with `changefeed unpark {name} --tables {table} --skip-changes`."
            )
        if not _misses_nothing(record, end):
            check_left_out(name, record, state)
            _check_there(connections, record, end, state)
    except TerminalError as error:
        error.of_tables(table)
        raise


def check_left_out(name: str, record: ParkedRecord, state: CommitLogState) -> None:
    """Raise AccountingError if a window after ``record`` has changes of its table: then an older version of changefeed,
    which does not know parked tables, has published it."""
    seek = max(state.seeks, default=0)  # no seek is possible since the table was parked
    for number, manifest in state.seals.items():
        window = manifest.window
        is_after = window.server_uuid == record.source and window.start >= BinlogCoordinates.parse(record.at)
        is_after = is_after and number > seek
        if is_after and record.table not in manifest.parked:
            raise AccountingError(
                f"{record.table} is parked from {record.at} on, and window {number}, from {window.start}, did not "
                "leave it out: an older version of changefeed, which does not know parked tables, published it. "
                "Nothing was published, as changes would be published twice. Give the missing ones up with "
                f"`changefeed unpark {name} --tables {record.table} --skip-changes`, and take a snapshot of the table."
            )


def _identity(name: str, record: ParkedRecord) -> str:
    """The identity under which the changes that ``record`` misses are published; each record has its own."""
    return unpark_identity(name, f"{record.table} {record.since_ms} {record.at}")


def _forget_old(connections: PipelineConnections, lease: Lease, kept: int) -> None:
    """Forget old published ranges: not those of tables that are still parked, nor the last ``kept``."""
    name, log = connections.pipeline.name, lease.log()
    used = {_identity(name, record) for record in parked_tables(log.read()).values()}
    prefix = unpark_identity(name, "")
    ended = [each for each in log.identities() if each.startswith(prefix) and each not in used]
    forget_identities(connections, ended[:-kept])


def _move_on(lease: Lease, record: ParkedRecord) -> None:
    """Store that the table misses only changes from the end of a published range on."""
    lease.log().keep(record)
    fault_point.reach("after_unpark_move")


def _sealed_end(name: str, state: CommitLogState) -> Checkpoint:
    """The end of the pipeline's sealed windows, from which the next window begins."""
    check_not_renamed(name, state)
    latest = latest_checkpoint(name, state)
    assert latest is not None, "a table is parked while a window is begun"
    end, _ = latest
    if any(progress.window > end.window for progress in state.progress.values()):
        raise CheckpointError(
            f"the window after window {end.window} of pipeline {name!r} is published in part, without the parked "
            f"tables. Nothing was changed. Run the pipeline (`changefeed run {name}`), which finishes it; then unpark."
        )
    return end


def _publish(spark: SparkTarget, connections: PipelineConnections, record: ParkedRecord, end: Checkpoint) -> Manifest:
    """Publish the table's changes up to ``end``, or to the end of a range that an earlier call began."""
    pipeline = connections.pipeline
    identity = _identity(pipeline.name, record)
    window = begun_window(connections, identity, record.source) or Window(
        pipeline=pipeline.name,
        number=1,
        server_uuid=record.source,
        start=BinlogCoordinates.parse(record.at),
        head=end.coordinates,
        start_gtids=record.gtids,
        head_gtids=end.gtids,
        frozen_at_ms=int(time.time() * 1000),
        newest=file_identity(connections.mysql, record.source, end.coordinates.file),
    )
    narrowed = replace(connections, pipeline=pipeline_of(pipeline, record.table))
    try:
        return ingest(spark, narrowed, window, identity=identity)
    except TerminalError as error:
        error.args = (
            f"{error} {record.table} stays parked, so the pipeline cannot be moved by a seek: unpark the table again "
            f"after a correction; or give its changes up with `changefeed unpark {pipeline.name} --tables "
            f"{record.table} --skip-changes`, and take a snapshot of the table.",
            *error.args[1:],
        )
        error.of_tables(record.table)
        raise


def _check_there(
    connections: PipelineConnections, record: ParkedRecord, end: Checkpoint, state: CommitLogState
) -> None:
    """Raise BinlogGoneError if the source does not have the pipeline's binlog from where the table was parked on."""
    start = BinlogCoordinates.parse(record.at)
    remedy = (
        f"Nothing was published. Unpark it with `changefeed unpark {connections.pipeline.name} --tables {record.table} "
        "--skip-changes`, and take a snapshot of the table."
    )
    with connections.session() as session:
        uuid, head, files = source.server_uuid(session), source.head(session), source.binlog_files(session)
        if uuid != record.source or end.server_uuid != record.source:
            raise BinlogGoneError(
                f"{record.table} is parked at {record.at} of server {record.source}, and the pipeline reads server "
                f"{uuid} now, where the same coordinates mean other changes. {remedy}"
            )
        if start.file not in {file.name for file in files}:
            oldest = files[0].name if files else "none"
            raise BinlogGoneError(
                f"binlog {start.file!r}, from which {record.table} is parked ({record.at}), is no longer on the server "
                f"(oldest: {oldest}): changes of the table are lost to this pipeline. {remedy}"
            )
        try:
            check_same_files(end, _window_before(end, state), session, uuid, head, files)
            check_same_transactions(end, head, session, ServerBinlogs(session, head, files))
        except BinlogGoneError as error:
            raise BinlogGoneError(
                f"{record.table} is parked at {record.at}, and its changes cannot be found there: {error} {remedy}"
            ) from error


def _window_before(end: Checkpoint, state: CommitLogState) -> Window | None:
    return state.seals[end.window].window if end.window in state.seals else None


def pipeline_of(pipeline: Pipeline, table: str) -> Pipeline:
    """The pipeline with only ``table``, and without records of DDL, which the pipeline's windows have published."""
    tables = NarrowedTables(include=[glob.escape(table)], within=pipeline.tables)
    return pipeline.model_copy(update={"tables": tables, "publish_ddl": "off"})
