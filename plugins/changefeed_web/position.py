"""Reads the state of a pipeline from its source, its topics and its commit log, through the cache of `readings`."""

import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict
from typing import Any, TypeVar

from changefeed import errors
from changefeed.errors import ChangefeedError, RetryableError
from changefeed.model.checkpoint import CheckpointStore
from changefeed.model.freshness import MergedFreshness
from changefeed.model.sealed_period import SealedPeriod
from changefeed.settings.pipeline import Pipeline
from changefeed.state.variable_store import MetadataVariables, VariableCheckpointStore
from changefeed_web.activity import Ddl, SealedWindow, verb_of
from changefeed_web.readings import Staleness, last_known, read_cached

SURVEY_SECONDS = 8.0
"""Timeout of a request for all pipelines; Prometheus waits 10 seconds by default."""

NO_ANSWER: dict[str, Any] = {
    "state": "error",
    "error": f"its servers did not answer within {SURVEY_SECONDS:g} seconds",
    "unavailable": "RetryableError",
}

MOST_DDL = 50
"""The number of DDL statements among the last events."""

_Result = TypeVar("_Result")

_threads = ThreadPoolExecutor(8, "changefeed-survey")


def store_of(pipeline: Pipeline) -> CheckpointStore:
    """The pipeline's checkpoint store, for the API server."""
    from changefeed.pipeline.checkpoint_store import checkpoint_store
    from changefeed_web.breaker import GuardedConnections

    return checkpoint_store(GuardedConnections.of(pipeline), lambda: VariableCheckpointStore(MetadataVariables()))


def position(pipeline: Pipeline, stale: Staleness | None = None) -> dict[str, Any]:
    """Status, lag and retention headroom. If a server cannot be read, ``error`` names it.

    ``unavailable`` is the class of the error if the server did not answer. With ``stale``, ``last_known`` is then the
    last position, or None.
    """
    slow = Staleness()
    answer = dict(
        read_cached(
            "position",
            pipeline,
            lambda: _position(pipeline),
            None if stale is None else slow,
            lambda at: not at["unavailable"],
        )
    )
    for name, text in slow.errors.items():
        answer = {"state": "error", "error": f"{name}: {text}", "unavailable": name}
    if stale is None or not answer["unavailable"]:
        return answer
    known, known_at_ms = last_known("position", pipeline) or (None, None)
    text = answer["error"].removeprefix(f"{answer['unavailable']}: ")
    stale.add_text(answer["unavailable"], text, known_at_ms)
    return {**answer, "last_known": known}


def read_each(pipelines: Sequence[Pipeline], look: Callable[[Pipeline], _Result]) -> list[_Result | None]:
    """The results of ``look`` for each pipeline, in parallel; None if it has not ended after `SURVEY_SECONDS`."""
    looks = [_threads.submit(look, pipeline) for pipeline in pipelines]
    wait(looks, SURVEY_SECONDS)
    return [seen.result() if not seen.cancel() and seen.done() else None for seen in looks]


def _position(pipeline: Pipeline) -> dict[str, Any]:
    from changefeed.operations.lag import position
    from changefeed_web.breaker import GuardedConnections

    began_ms = int(time.time() * 1000)  # changes that come while the servers are read are not in the answer
    try:
        answer = position(GuardedConnections.of(pipeline), store_of(pipeline)).to_json()
        for name in ("pipeline", "freshness", "freshness_error"):  # the page's freshness is that of `sealed_windows`
            del answer[name]
    except ChangefeedError as error:
        answer = {"state": "error", "error": f"{type(error).__name__}: {error}"}
    name = (answer["error"] or "").partition(":")[0]
    is_unavailable = issubclass(getattr(errors, name, ChangefeedError), RetryableError)
    return {**answer, "unavailable": name if is_unavailable else None, "read_at_ms": began_ms}


def topics(pipeline: Pipeline, stale: Staleness | None = None) -> dict[str, str]:
    """Topic by "database.table" of the currently captured tables; raises ChangefeedError."""
    return dict(read_cached("topics", pipeline, lambda: _topics(pipeline), stale))


def _topics(pipeline: Pipeline) -> dict[str, str]:
    from changefeed.pipeline.topics import table_topics
    from changefeed_web.breaker import GuardedConnections

    with GuardedConnections.of(pipeline).session() as session:
        topics = table_topics(pipeline, session)
    return {f"{database}.{table}": topic for (database, table), topic in topics.items()}


def tables(pipeline: Pipeline, stale: Staleness | None = None) -> list[dict[str, Any]]:
    """Routing and transforms of each currently captured table; raises ChangefeedError."""
    return list(read_cached("tables", pipeline, lambda: _tables(pipeline), stale))


def _tables(pipeline: Pipeline) -> list[dict[str, Any]]:
    from changefeed.ddl.table import Table
    from changefeed.operations.routed_tables import routed_tables
    from changefeed.source.mysql import source
    from changefeed.source.mysql.server_schemas import current_schemas
    from changefeed_web.breaker import GuardedConnections

    connections = GuardedConnections.of(pipeline)
    with connections.session() as session:
        entries = current_schemas(session).tables
        server_names_keys = source.logs_column_names(session)
    known = [entry.schema for _, entry in sorted(entries.items()) if isinstance(entry, Table)]
    return [asdict(table) for table in routed_tables(connections, known, server_names_keys=server_names_keys)]


def binlogs(pipeline: Pipeline, stale: Staleness | None = None) -> dict[str, Any]:
    """The newest binlog files of the source, with their sizes and begins; raises ChangefeedError."""
    from changefeed.operations.source_binlogs import source_binlogs
    from changefeed_web.breaker import GuardedConnections

    def read() -> Any:
        before, _ = last_known("binlogs", pipeline) or (None, None)
        with GuardedConnections.of(pipeline).session() as session:
            return source_binlogs(session, before)

    return dict(read_cached("binlogs", pipeline, read, stale).to_json())


def manifests(pipeline: Pipeline, limit: int, stale: Staleness | None = None) -> list[dict[str, Any]]:
    """Manifests of the last windows, latest first; raises ChangefeedError."""
    log = commit_log(pipeline, stale)
    numbers = sorted(log.seals, reverse=True)[:limit]
    return [{**log.seals[number].to_json(), "sealed_at_ms": log.sealed_at_ms(number)} for number in numbers]


def merged_windows(pipeline: Pipeline, limit: int, stale: Staleness | None = None) -> list[SealedPeriod]:
    """The sums of older windows by hour and day, latest first; raises ChangefeedError."""
    from changefeed.kafka.commit_log.periods import latest_periods

    return latest_periods(commit_log(pipeline, stale), limit)


def merged_freshness(pipeline: Pipeline, stale: Staleness | None = None) -> MergedFreshness:
    """The freshness of older windows of the last hour; raises ChangefeedError."""
    from changefeed.kafka.commit_log import merged_freshness

    return merged_freshness.merged_freshness(commit_log(pipeline, stale))


def sealed_windows(pipeline: Pipeline, checkpoint: str | None, stale: Staleness | None = None) -> list[SealedWindow]:
    """The last sealed windows, latest first; raises ChangefeedError.

    They are kept while the last one that was read ends at ``checkpoint``, that of the pipeline's position. The log may
    come from a reading before the checkpoint moved, so the checkpoint alone says nothing of what was read.
    """

    def end_at_checkpoint(windows: list[SealedWindow]) -> bool:
        return str(windows[0].head) == checkpoint if windows else checkpoint is None

    def read() -> list[SealedWindow]:
        return windows_in(commit_log(pipeline))

    return list(read_cached("sealed windows", pipeline, read, stale, is_current=end_at_checkpoint))


def windows_in(log: Any) -> list[SealedWindow]:
    """The sealed windows in the commit log's state, latest first; raises CheckpointError."""
    return [
        SealedWindow(
            number,
            manifest.window.start,
            manifest.window.head,
            manifest.window.frozen_at_ms,
            log.sealed_at_ms(number),
            manifest.row_count,
            manifest.freshness_seconds,
            manifest.dead_letters,
        )
        for number, manifest in reversed(list(log.seals.items()))
    ]


def ddl_statements(pipeline: Pipeline, window: int, stale: Staleness | None = None) -> list[Ddl]:
    """The last DDL statements of captured tables in the schema history; raises ChangefeedError.

    They are read again when ``window``, the number of the last sealed window, has changed since the last read.
    """
    from changefeed.pipeline.schema_history import load_history
    from changefeed_web.breaker import GuardedConnections

    def read() -> tuple[int, list[Ddl]]:
        history = load_history(GuardedConnections.of(pipeline))
        entries = () if history is None else history.timeline.entries[-MOST_DDL:]
        captured = [
            Ddl(entry.coordinates, verb_of(entry.sql), names)
            for entry in entries
            if (names := tuple(".".join(name) for name in entry.touched if pipeline.tables.matches(*name)))
        ]
        return window, captured

    return list(read_cached("DDL", pipeline, read, stale, is_current=lambda kept: kept[0] == window)[1])


def snapshots(pipeline: Pipeline, stale: Staleness | None = None) -> list[dict[str, Any]]:
    """Progress of the snapshots in the commit log, the last active one first; raises ChangefeedError."""
    from changefeed.snapshot.snapshot_status import snapshots

    return [status.to_json() for status in snapshots(pipeline.name, _commit_log(pipeline, stale))]


def commit_log(pipeline: Pipeline, stale: Staleness | None = None) -> Any:
    """The commit log's state; raises ChangefeedError."""
    from changefeed.kafka.commit_log.log import EMPTY_STATE

    return _commit_log(pipeline, stale).get(pipeline.name, EMPTY_STATE)


def _commit_log(pipeline: Pipeline, stale: Staleness | None) -> Any:
    from changefeed_web.breaker import GuardedConnections

    def read() -> Any:
        log = GuardedConnections.of(pipeline).commit_log()
        return log.read_all() if log.exists() else {}

    return read_cached("commit log", pipeline, read, stale)


def contents(pipeline: Pipeline, names: Collection[str], stale: Staleness | None = None) -> list[dict[str, Any]]:
    """Offsets and newest record of each partition of the topics ``names``; raises ChangefeedError."""
    from changefeed.kafka.topics import partition_contents
    from changefeed_web.breaker import GuardedConnections

    def read() -> list[dict[str, Any]]:
        return [each.to_json() for each in partition_contents(GuardedConnections.of(pipeline).kafka, names)]

    return list(read_cached("contents", pipeline, read, stale))


def reports(pipeline: Pipeline, stale: Staleness | None = None) -> list[dict[str, Any]]:
    """Reports of the last comparison with each server, latest first; raises ChangefeedError."""
    from changefeed.verify.report import last_reports

    return [report.to_json() for report in last_reports(commit_log(pipeline, stale))]


def schemas(pipeline: Pipeline, limit: int, stale: Staleness | None = None) -> dict[str, Any]:
    """Tables with their columns by the schema history, and the last DDL statements; raises ChangefeedError.

    Without a history, the columns are those that the source has now.
    """
    from changefeed.pipeline.schema_history import captured_tables, load_history
    from changefeed.pipeline.unknown_tables import unknown_ranges
    from changefeed_web.breaker import GuardedConnections

    history = read_cached("schema history", pipeline, lambda: load_history(GuardedConnections.of(pipeline)), stale)
    if history is None:
        schemas = read_cached("schemas", pipeline, lambda: _schemas_of_source(pipeline), stale)
        return {"until": None, "tables": _described_tables(pipeline, schemas), "changes": [], "unknown": []}
    changes = [
        {
            "coordinates": str(entry.coordinates),
            "kind": entry.kind,
            "database": entry.database,
            "tables": [str(name) for name in entry.touched],
            "sql": None if pipeline.hides_columns else entry.sql,
        }
        for entry in reversed(history.timeline.entries)
        if any(pipeline.tables.matches(*name) for name in entry.touched)
    ]
    tables = _described_tables(pipeline, captured_tables(pipeline, history))
    unknown = [each.to_json() for each in unknown_ranges(pipeline, history, history.until)]
    return {"until": str(history.until), "tables": tables, "changes": changes[:limit], "unknown": unknown}


def _schemas_of_source(pipeline: Pipeline) -> list[tuple[Any, Any]]:
    from changefeed.source.mysql.server_schemas import current_schemas
    from changefeed_web.breaker import GuardedConnections

    with GuardedConnections.of(pipeline).session() as session:
        entries = current_schemas(session).tables
    return sorted((name, entry) for name, entry in entries.items() if pipeline.tables.matches(*name))


def _described_tables(pipeline: Pipeline, entries: Sequence[tuple[Any, Any]]) -> list[dict[str, Any]]:
    from changefeed.ddl.table import Table
    from changefeed.pipeline.unknown_tables import describe_problem

    tables = []
    for name, entry in entries:
        known: dict[str, Any] = {"database": name.database, "table": name.table}
        if isinstance(entry, Table):
            columns = pipeline.redact_table(entry.schema).columns
            known["primary_key"] = [columns[index].name for index in entry.schema.primary_key]
            known["columns"] = [asdict(column) for column in columns]
        else:
            known["problem"] = describe_problem(pipeline, entry)
        tables.append(known)
    return tables
