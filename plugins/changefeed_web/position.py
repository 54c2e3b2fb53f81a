"""Where a pipeline stands, read from its source and its commit log; kept for a few seconds."""

import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import asdict
from typing import Any, TypeVar

from changefeed.airflow.connections import server_lookup
from changefeed.errors import ChangefeedError
from changefeed.model.checkpoint import CheckpointStore
from changefeed.settings.pipeline import Pipeline
from changefeed.state.variable_store import MetadataVariables, VariableCheckpointStore

KEPT_SECONDS = 4.0
SURVEY_SECONDS = 8.0
"""How long a look at all pipelines may take: Prometheus waits for ten."""

NO_ANSWER: dict[str, Any] = {"state": "error", "error": f"its servers did not answer within {SURVEY_SECONDS:g} seconds"}

_Seen = TypeVar("_Seen")

_kept: dict[tuple[str, str], tuple[float, Any]] = {}
"""What was read, or the error that this met, and when."""
_threads = ThreadPoolExecutor(8, "changefeed-survey")
_locks: dict[tuple[str, str], threading.Lock] = {}
_guard = threading.Lock()


def store_of(pipeline: Pipeline) -> CheckpointStore:
    """The store of the pipeline's checkpoint, as the API server reaches it."""
    from changefeed.state.stores import checkpoint_store

    return checkpoint_store(pipeline, server_lookup, VariableCheckpointStore(MetadataVariables()))


def position(pipeline: Pipeline) -> dict[str, Any]:
    """Status, lag, retention headroom and captured tables. What cannot be read is in ``error``."""
    return dict(_once("position", pipeline.name, lambda: _position(pipeline)))


def of_each(pipelines: Sequence[Pipeline], look: Callable[[Pipeline], _Seen]) -> list[_Seen | None]:
    """What ``look`` sees of each pipeline; None where its servers keep silent for so long that others would wait."""
    looks = [_threads.submit(look, pipeline) for pipeline in pipelines]
    wait(looks, SURVEY_SECONDS)
    return [seen.result() if not seen.cancel() and seen.done() else None for seen in looks]


def forget(name: str) -> None:
    """After a change: let the next look read anew."""
    for key in [key for key in _kept if key[1] == name]:
        _kept.pop(key, None)


def _position(pipeline: Pipeline) -> dict[str, Any]:
    from changefeed.operations.lag import position
    from changefeed_web.silence import AskedOnce

    try:
        answer = position(AskedOnce.of(pipeline), store_of(pipeline)).to_json()
    except ChangefeedError as error:
        return {"state": "error", "error": f"{type(error).__name__}: {error}"}
    del answer["pipeline"]
    return answer


def topics(pipeline: Pipeline) -> dict[str, str]:
    """Topic by "database.table" of what is captured now; raises ChangefeedError."""
    return dict(_once("topics", pipeline.name, lambda: _topics(pipeline)))


def _topics(pipeline: Pipeline) -> dict[str, str]:
    from changefeed.pipeline.topics import table_topics
    from changefeed_web.silence import AskedOnce

    with AskedOnce.of(pipeline).session() as session:
        topics = table_topics(pipeline, session)
    return {f"{database}.{table}": topic for (database, table), topic in topics.items()}


def tables(pipeline: Pipeline) -> list[dict[str, Any]]:
    """What becomes of each table that is captured now; raises ChangefeedError."""
    return list(_once("tables", pipeline.name, lambda: _tables(pipeline)))


def _tables(pipeline: Pipeline) -> list[dict[str, Any]]:
    from changefeed.ddl.table import Table
    from changefeed.operations.routed_tables import routed_tables
    from changefeed.source.mysql import source
    from changefeed.source.mysql.server_schemas import current_schemas
    from changefeed_web.silence import AskedOnce

    connections = AskedOnce.of(pipeline)
    with connections.session() as session:
        entries = current_schemas(session).tables
        server_names_keys = source.names_come_along(session)
    known = [entry.schema for _, entry in sorted(entries.items()) if isinstance(entry, Table)]
    return [asdict(table) for table in routed_tables(connections, known, server_names_keys=server_names_keys)]


def manifests(pipeline: Pipeline, limit: int) -> list[dict[str, Any]]:
    """Manifests of the last windows, latest first; raises ChangefeedError."""
    seals = commit_log(pipeline).seals
    return [seals[number].to_json() for number in sorted(seals, reverse=True)[:limit]]


def snapshots(pipeline: Pipeline) -> list[dict[str, Any]]:
    """How far the snapshots are that the commit log knows, the one at work last first; raises ChangefeedError."""
    from changefeed.snapshot.snapshot_status import snapshots

    return [status.to_json() for status in snapshots(pipeline.name, _commit_log(pipeline))]


def commit_log(pipeline: Pipeline) -> Any:
    """The commit log's state; raises ChangefeedError."""
    from changefeed.kafka.commit_log.log import NOTHING_KNOWN

    return _commit_log(pipeline).get(pipeline.name, NOTHING_KNOWN)


def _commit_log(pipeline: Pipeline) -> Any:
    from changefeed_web.silence import AskedOnce, unless_silent

    def read() -> Any:
        with unless_silent(pipeline.kafka.connection):
            log = AskedOnce.of(pipeline).commit_log()
            return log.read_all() if log.exists() else {}

    return _once("commit log", pipeline.name, read)


def reports(pipeline: Pipeline) -> list[dict[str, Any]]:
    """What the last comparisons with the source found, latest first; raises ChangefeedError."""
    from changefeed.verify.report import last_reports

    return [report.to_json() for report in last_reports(commit_log(pipeline))]


def schemas(pipeline: Pipeline, limit: int) -> dict[str, Any]:
    """The schema history for people: tables with their columns, and the last changes; raises ChangefeedError."""
    from changefeed.ddl.table import Table
    from changefeed.pipeline.schema_history import captured, load_history
    from changefeed.pipeline.unknown_tables import shown_problem, unknown_ranges
    from changefeed_web.silence import AskedOnce, unless_silent

    def read() -> Any:
        with unless_silent(pipeline.kafka.connection):
            return load_history(AskedOnce.of(pipeline))

    history = _once("schema history", pipeline.name, read)
    if history is None:
        return {"until": None, "tables": [], "changes": [], "unknown": []}
    tables = []
    for name, entry in captured(pipeline, history):
        known: dict[str, Any] = {"database": name.database, "table": name.table}
        if isinstance(entry, Table):
            columns = pipeline.described(entry.schema).columns
            known["primary_key"] = [columns[index].name for index in entry.schema.primary_key]
            known["columns"] = [asdict(column) for column in columns]
        else:
            known["problem"] = shown_problem(pipeline, entry)
        tables.append(known)
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
    unknown = [each.to_json() for each in unknown_ranges(pipeline, history, history.until)]
    return {"until": str(history.until), "tables": tables, "changes": changes[:limit], "unknown": unknown}


def _once(what: str, name: str, read: Callable[[], Any]) -> Any:
    """One read at a time of each thing, and none while the last is fresh: a page of many readers asks often."""
    key = (what, name)
    with _guard:
        lock = _locks.setdefault(key, threading.Lock())
    with lock:
        since, answer = _kept.get(key, (-math.inf, None))
        if time.monotonic() - since >= KEPT_SECONDS:
            answer = _answer(read)
            _kept[key] = (time.monotonic(), answer)
    if isinstance(answer, ChangefeedError):
        raise answer.with_traceback(None)
    return answer


def _answer(read: Callable[[], Any]) -> Any:
    try:
        return read()
    except ChangefeedError as error:
        return error
