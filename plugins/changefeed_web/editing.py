"""REST routes for editors of a pipeline's YAML: the schema of its settings, and the questions of a new pipeline."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field

from changefeed.errors import ChangefeedError, SettingsError, SourceError
from changefeed.formats.registry import DEFAULT_FORMAT
from changefeed.settings.new_pipeline import NewPipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.settings_schema import settings_schema
from changefeed_web import checks, slots
from changefeed_web.access import GetUserDep, require_permission
from changefeed_web.pipelines import require_combination

router = APIRouter(tags=["pipelines"])

_Answer = Annotated[str, Field(max_length=500)]
_Mask = dict[_Answer, _Answer | int | dict[_Answer, _Answer] | None]
_ConnectionId = Annotated[str, Field(min_length=1, max_length=250)]


class Connections(BaseModel):
    """The connections of a new pipeline."""

    model_config = ConfigDict(extra="forbid")

    source: Annotated[_ConnectionId, Field(description="Connection id of the MySQL or MariaDB server.")]
    kafka: Annotated[_ConnectionId, Field(description="Connection id of the Kafka cluster.")]
    checkpoint: Annotated[
        _ConnectionId | None, Field(description="Connection id of the database of a state table, for the checkpoint.")
    ] = None


class TableOfSource(Connections):
    """A table of the source of a new pipeline."""

    database: Annotated[_Answer, Field(min_length=1, description="Its database.")]
    table: Annotated[_Answer, Field(min_length=1, description="Its name in the database.")]


class Answers(Connections):
    """The answers to the questions of `changefeed init`. The defaults are those of a new pipeline."""

    name: Annotated[_Answer, Field(description="Name of the pipeline: lower case letters, digits, - and _.")]
    tables: Annotated[
        list[_Answer], Field(min_length=1, max_length=1000, description="Tables, as DATABASE.TABLE with * and ?.")
    ]
    format: Annotated[_Answer, Field(description="Wire format.")] = DEFAULT_FORMAT
    registry: Annotated[
        _ConnectionId | None, Field(description="Connection id of the schema registry, for format avro.")
    ] = None
    schedule: Annotated[_Answer, Field(description="A cron expression, a preset such as `@hourly`, or `none`.")] = (
        NewPipeline.schedule
    )
    start: Annotated[_Answer, Field(description="`snapshot`, `earliest`, `latest` or FILE:POSITION.")] = (
        NewPipeline.start
    )
    exclude: Annotated[
        list[_Answer],
        Field(
            max_length=10_000, description="Columns that records do not have, as DATABASE.TABLE.COLUMN with * and ?."
        ),
    ] = []
    mask: Annotated[
        dict[_Answer, _Mask],
        Field(max_length=10_000, description="By columns, what records have instead, as in `columns.mask`."),
    ] = {}


@router.get("/settings-schema")
def get_settings_schema(_: GetUserDep) -> dict[str, Any]:
    """The JSON schema of a pipeline's YAML, with a description of each key."""
    return settings_schema()


@router.post("/new-pipeline/yaml")
def write_yaml(body: Answers, user: GetUserDep) -> dict[str, Any]:
    """The YAML that `changefeed init` would write with the same answers, with the columns that are left out or masked,
    and the ``problem`` if it is not valid.

    Nothing is written or read.
    """
    require_permission(user, "POST", "*", dag_id="changefeed_ingest__*")
    answers = body.model_dump()
    new = NewPipeline(**{**answers, "tables": tuple(body.tables), "exclude": tuple(body.exclude)})
    problem = None
    try:
        new.pipeline()
    except SettingsError as error:
        problem = str(error)
    return {"yaml": new.yaml(), "problem": problem}


@router.post("/new-pipeline/servers")
async def read_servers(body: Connections, user: GetUserDep) -> dict[str, Any]:
    """Test the connections of a new pipeline, and list the tables of its source.

    It refuses connections that you may not combine in a new pipeline of all tables. ``source`` and ``kafka`` have the
    ``problem``, or null. ``tables`` of ``source`` are those that the connection's user may see, with the server's
    estimate of rows and bytes, the primary key and warnings; ``more`` says that there are further tables.
    """
    async with slots.writing():
        pipeline = await run_in_threadpool(lambda: _combined(body, user))
    async with slots.checking(body.source):
        source, kafka = await asyncio.gather(_test(_read_source, pipeline), _test(_read_kafka, pipeline))
    return {"source": source, "kafka": kafka}


@router.post("/new-pipeline/columns")
async def read_columns(body: TableOfSource, user: GetUserDep) -> dict[str, Any]:
    """The columns of a table of a new pipeline's source: name, type, whether they are in the primary key (``in_key``)
    and text (``is_text``). ``problem`` is why they cannot be read, or null.

    It refuses connections that you may not combine in a new pipeline of all tables.
    """
    async with slots.writing():
        pipeline = await run_in_threadpool(lambda: _combined(body, user))
    async with slots.checking(body.source):
        return await _test(lambda pipeline: _read_columns(pipeline, body.database, body.table), pipeline)


def _combined(body: Connections, user: Any) -> Pipeline:
    """A pipeline of all tables with the connections of ``body``, if ``user`` may create it."""
    require_permission(user, "POST", "*", dag_id="changefeed_ingest__*")
    pipeline = NewPipeline(source=body.source, kafka=body.kafka, checkpoint=body.checkpoint, tables=("*.*",)).pipeline()
    require_combination(user, pipeline)
    return pipeline


async def _test(read: Callable[[Pipeline], dict[str, Any]], pipeline: Pipeline) -> dict[str, Any]:
    def attempt() -> dict[str, Any]:
        try:
            return {"problem": None, **read(pipeline)}
        except ChangefeedError as error:
            return {"problem": str(error)}

    work = await checks.run_bounded(attempt)
    work.cancel()  # if it has not begun: nobody waits for it
    return work.result() if work.done() else {"problem": f"no answer within {checks.CHECK_SECONDS:g} seconds"}


def _read_source(pipeline: Pipeline) -> dict[str, Any]:
    from changefeed.operations.source_tables import source_tables
    from changefeed.source.mysql.preflight import preflight
    from changefeed_web.breaker import GuardedConnections

    problem = None
    with GuardedConnections.of(pipeline).session() as session:
        try:
            preflight(session)
        except SourceError as error:
            problem = str(error)
        tables, more = source_tables(session)
        text = f"{session.connection}: {session.version}"
    return {"problem": problem, "text": text, "tables": [each.to_json() for each in tables], "more": more}


def _read_columns(pipeline: Pipeline, database: str, table: str) -> dict[str, Any]:
    from changefeed.operations.source_tables import source_columns
    from changefeed_web.breaker import GuardedConnections

    with GuardedConnections.of(pipeline).session() as session:
        return {"columns": [each.to_json() for each in source_columns(session, database, table)]}


def _read_kafka(pipeline: Pipeline) -> dict[str, Any]:
    from changefeed_web.breaker import GuardedConnections

    kafka = GuardedConnections.of(pipeline).kafka
    kafka.check_options()
    return {"text": f"{kafka.bootstrap}: brokers up: {kafka.broker_count()}"}
