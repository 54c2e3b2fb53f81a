"""The REST route that shows records of a pipeline's topics."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from changefeed.airflow.ingest_dag import ingest_dag_id
from changefeed.errors import ChangefeedError
from changefeed.settings.pipeline import Pipeline
from changefeed_web import position, slots
from changefeed_web.access import GetUserDep, has_permission, require_permission, write_audit_log
from changefeed_web.dag_state import runs_at
from changefeed_web.pipelines import pipeline_of
from changefeed_web.readings import Staleness

router = APIRouter(tags=["records"])

Limit = Annotated[int, Query(ge=1, le=100, description="Number of records, the newest first; 1 to 100.")]
Table = Annotated[str | None, Query(max_length=200, description="DATABASE.TABLE, instead of its topic.")]
Topic = Annotated[str | None, Query(max_length=249, description="One of `topics`. Without it, no record is read.")]
Key = Annotated[
    str | None, Query(max_length=4000, description="The key as JSON or text, or the value of its only column.")
]
Id = Annotated[str | None, Query(max_length=1000, description="The header `changefeed.id`.")]
Coordinates = Annotated[str | None, Query(max_length=300, description="FILE:POSITION of the change.")]
Since = Annotated[str | None, Query(max_length=40, description="ISO 8601, UTC without an offset: not before.")]
Until = Annotated[str | None, Query(max_length=40, description="ISO 8601, UTC without an offset: before.")]


@router.get("/pipelines/{name}/records", dependencies=[Depends(slots.plan)])
def records(
    name: str,
    user: GetUserDep,
    table: Table = None,
    topic: Topic = None,
    limit: Limit = 20,
    key: Key = None,
    id: Id = None,
    coordinates: Coordinates = None,
    since: Since = None,
    until: Until = None,
) -> dict[str, Any]:
    """The newest committed records of one of the pipeline's ``topics``, or those that match all given conditions.

    A search reads backwards: at most 50,000 offsets, 32 MiB and 10 seconds, twice if it first reads the key's partition
    only. ``searched`` has how far it read: ``back_to_ms``, ``complete``, and the limit that stopped it
    (``stopped_by``). Times are those of the records: when the source wrote the change.

    A record has its ``changes`` with the columns before and after, as JSON texts. Values of columns that the
    pipeline excludes or masks are left out (``hidden``), and with them the complete value. ``window`` is the window
    that published it, and ``run`` its run; null if it is not known, or you may not read runs. ``tables`` are the
    tables of which its row may be. ``commit`` are the coordinates of the XA COMMIT of its row, '' for other rows.
    ``reason`` and ``meant_for`` are those of a dead letter. Of topics of tables and rows, only records of known
    windows and of the pipeline's snapshots are shown: other programs may publish to the same topic.

    Airflow's audit log has each read, without the conditions.
    """
    require_permission(user, "GET", name)
    require_permission(user, "PUT", name)
    from changefeed.operations.pipeline_topics import pipeline_topics
    from changefeed.operations.record_filter import RecordFilter
    from changefeed.operations.records import find_topic, read_records
    from changefeed_web.breaker import GuardedConnections

    pipeline, stale = pipeline_of(name), Staleness()
    wanted = RecordFilter.of(key, id, coordinates, since, until)
    state = position.commit_log(pipeline, stale)
    topics = pipeline_topics(pipeline, _captured(pipeline, stale), state)
    answer: dict[str, Any] = {
        "topics": [each.to_json() for each in topics.values()],
        "topic": None,
        "records": [],
        "searched": None,
        "exists": None,
    }
    chosen = find_topic(topics, topic, table)
    if chosen is not None:
        write_audit_log(user, "read_records", name, topic=chosen.topic)
        found = read_records(GuardedConnections.of(pipeline), topics, chosen, state, wanted, limit=limit).to_json()
        answer |= {**found, "topic": chosen.topic, "records": _with_runs(name, found["records"], state.seals, user)}
    return {**answer, "stale": stale.to_json()}


def _captured(pipeline: Pipeline, stale: Staleness) -> dict[str, str]:
    """Topic by captured table; none while the source does not answer."""
    with suppress(ChangefeedError):
        return position.topics(pipeline, stale)
    return {}


def _with_runs(name: str, shown: list[dict[str, Any]], seals: Mapping[int, Any], user: Any) -> list[dict[str, Any]]:
    """The records, each with the run that froze its window, if ``user`` may read runs."""
    if not has_permission(user, "GET", ingest_dag_id(name), run=True):
        return [{**record, "run": None} for record in shown]
    numbers = sorted({record["window"] for record in shown if record["window"] is not None})
    found = runs_at(ingest_dag_id(name), [seals[number].window.frozen_at_ms for number in numbers])
    runs = dict(zip(numbers, found, strict=True))
    return [{**record, "run": runs.get(record["window"])} for record in shown]
