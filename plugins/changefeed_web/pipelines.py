"""REST routes that list, show, create, change and delete pipelines."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, HTTPException, Query, Response
from fastapi.concurrency import run_in_threadpool

from changefeed.airflow.alerts import require_no_template_file
from changefeed.airflow.ingest_dag import ingest_dag_id
from changefeed.errors import ChangefeedError, SettingsError
from changefeed.model.freshness import NONE_MERGED, MergedFreshness
from changefeed.model.sealed_period import SealedPeriod
from changefeed.model.table_pattern import matches
from changefeed.settings.editor import Editor
from changefeed.settings.file import load_pipelines, parse_pipeline, pipelines_folder, read_name
from changefeed.settings.folder import (
    MAX_FILES,
    NoSuchPipelineError,
    PipelineChangedError,
    PipelineFolder,
    PipelineText,
    Rules,
)
from changefeed.settings.new_pipeline import NewPipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import TableSettings
from changefeed.settings.rest_settings import added_notifiers, check_rest_settings, offered_connections
from changefeed.settings.secrets import redact_yaml
from changefeed.settings.site import load_site
from changefeed.settings.yaml_file import settings_text
from changefeed_web import position, readings, slots
from changefeed_web.access import (
    GetUserDep,
    has_permission,
    may_edit_connection,
    may_read_logs,
    require_permission,
    write_audit_log,
)
from changefeed_web.activity import SealedWindow, freshness, hour_ago_ms, last_hour
from changefeed_web.bodies import PipelineBody
from changefeed_web.bundles import BundledPipeline, bundled_pipeline, bundled_pipelines
from changefeed_web.dag_state import dag_state, dag_states, last_errors
from changefeed_web.headline import headline
from changefeed_web.loading import missing_dags
from changefeed_web.readings import Staleness
from changefeed_web.standing import standing

router = APIRouter(tags=["pipelines"])

IfMatch = Annotated[str | None, Header(description="The ETag of the version that you read; required.")]


def pipeline_of(name: str) -> Pipeline:
    """The pipeline ``name``. Answers 404 if there is none, and 422 with the error if its YAML is invalid."""
    return _read_text(name).pipeline()


def all_pipelines() -> tuple[dict[str, Pipeline], dict[str, BundledPipeline], dict[Path, SettingsError]]:
    """The pipelines of the folder and of bundles, those of bundles with their texts, and the error of each invalid
    file."""
    pipelines, errors = load_pipelines(read_file=_read_parsed)
    bundled = bundled_pipelines()
    for name, text in bundled.items():
        try:
            if name in pipelines:
                raise SettingsError(_describe_both(text))
            pipelines[name] = text.pipeline()
        except SettingsError as error:
            errors[Path(text.file)] = error
    return pipelines, {name: text for name, text in bundled.items() if Path(text.file) not in errors}, errors


def _read_parsed(path: Path) -> Pipeline:
    return _parse(settings_text(path), path.name)


_parse = lru_cache(maxsize=MAX_FILES)(parse_pipeline)
"""Cached by text: to parse and check a pipeline takes over a millisecond, and each request for all reads each file."""


Names = Annotated[
    list[str], Query(alias="name", max_length=50, description="Only these pipelines; may be repeated up to 50 times.")
]


@router.get("/pipelines", dependencies=[Depends(slots.survey_if_live)])
def list_pipelines(user: GetUserDep, live: slots.Live = True, names: Names = []) -> dict[str, Any]:  # noqa: B006
    """All pipelines that you may see, and by file the errors of those whose YAML is invalid.

    ``connections`` are those that you may combine in a new pipeline; none if you may not create pipelines.
    ``template`` is the YAML of a new pipeline with the first of them. With ``name``, the answer has only
    ``pipelines``.

    If ``live``, ``headline`` of each says in a sentence what is published, and ``last_hour`` has its rows. If windows
    of the hour may be merged, as at a window a second, they are counted since ``since_ms``, and rows of the minutes
    before are null; otherwise ``since_ms`` is null.

    ``freshness`` says how soon after their commit changes were in Kafka: ``p50_seconds`` and ``p99_seconds`` of the
    ``windows`` that were sealed since ``since_ms``, at most an hour ago, and the seconds of each of ``tables`` in its
    last window. A window counts with its oldest change, and for as long as that waited. Null if no window of the last
    hour has rows.
    """
    pipelines, bundled, errors = all_pipelines()
    chosen = {name: pipelines[name] for name in names if name in pipelines} if names else pipelines
    seen = [pipeline for name, pipeline in sorted(chosen.items()) if has_permission(user, "GET", ingest_dag_id(name))]
    readings = position.read_each(seen, _read_live) if live else [None] * len(seen)
    live_parts = [(reading or _NO_ANSWER) if live else None for reading in readings]
    shown = _describe_each(seen, bundled, user, live_parts)
    if names:
        return {"pipelines": shown}
    refused = {
        path.name: str(error)
        for path, error in errors.items()
        if has_permission(user, "GET", ingest_dag_id(read_name(path)))
    }
    offered = _offered_connections(user, pipelines)
    return {"pipelines": shown, "refused": refused, "connections": offered, "template": _template(offered)}


def _template(offered: list[dict[str, str]]) -> str:
    """The YAML of a new pipeline, with the first of the connections that the user may combine."""
    if not offered:
        return NewPipeline().yaml()
    pair = offered[0]
    return NewPipeline(source=pair["source"], kafka=pair["kafka"], checkpoint=pair.get("checkpoint")).yaml()


def _offered_connections(user: Any, pipelines: Mapping[str, Pipeline]) -> list[dict[str, str]]:
    if not has_permission(user, "POST", ingest_dag_id("*")):
        return []
    try:
        site = load_site()
    except SettingsError:  # the error is shown when a pipeline is created
        return []
    offered = offered_connections(pipelines, site, lambda name: has_permission(user, "PUT", ingest_dag_id(name)))
    return [pair.model_dump(exclude_none=True) for pair in offered]


@router.get("/pipelines/{name}", dependencies=[Depends(slots.look)])
def get_pipeline(name: str, user: GetUserDep, response: Response) -> dict[str, Any]:
    """One pipeline: state, lag, retention headroom, topics, last error, and its YAML, to which the ETag belongs.

    If its file is in a DAG bundle, ``bundle`` is the bundle's name, and REST cannot change the file. Users who may not
    change the pipeline get its YAML without secrets and comments.

    While a server does not answer, ``position`` has the ``last_known`` position, and ``stale`` the ``errors`` by class
    and when the oldest value was read (``read_at_ms``, null if nothing is known); otherwise ``stale`` is null. The
    answers about windows, tables, schemas and the other parts have the same ``stale``.

    ``last_error`` is of the last attempt that failed in the last run, with its ``text``; null if none did.
    ``running_since`` of it is when the next attempt began, null if none is running.

    ``schedule`` is that of the YAML; null if runs start by hand.
    ``run_for`` is how long a run publishes windows if the pipeline's runs are continuous, otherwise null.

    If Airflow has not loaded the DAG, ``missing`` of ``dag`` has since when (``since``), whether it is ``overdue``, and
    what to do (``text``).
    """
    require_permission(user, "GET", name)
    text = _read_text(name)
    pipeline = text.pipeline()
    response.headers["ETag"] = f'"{text.tag}"'
    live = _read_live(pipeline)
    bundled = {name: text} if isinstance(text, BundledPipeline) else {}
    (shown,) = _describe_each([pipeline], bundled, user, [live])
    try:
        shown["topics"] = position.topics(pipeline, live.stale)
    except ChangefeedError as error:
        shown["topics"] = {}
        shown["topics_error"] = str(error)
    shown["stale"] = live.stale.to_json()
    return {**shown, "yaml": text.text if has_permission(user, "PUT", ingest_dag_id(name)) else redact_yaml(text.text)}


@router.post("/pipelines", status_code=201)
async def create_pipeline(body: PipelineBody, user: GetUserDep, response: Response) -> dict[str, Any]:
    """Create a pipeline from its YAML. Its DAGs appear after the DAG processor's next pass.

    ``warnings`` are texts about patterns of ``tables`` that match no table of the source, or why this was not checked.
    """
    async with slots.writing():
        text = await run_in_threadpool(lambda: _create(body, user))
    return await _file_answer(text, user, response)


def _create(body: PipelineBody, user: Any) -> PipelineText:
    require_permission(user, "POST", "*", dag_id="changefeed_ingest__*")
    try:
        text = PipelineFolder(pipelines_folder()).create(body.yaml, rules_of(user))
    except PipelineChangedError as error:
        raise HTTPException(409, str(error)) from None
    write_audit_log(user, "create", text.name, tag=text.tag)
    return text


@router.put("/pipelines/{name}")
async def change_pipeline(
    name: str, body: PipelineBody, user: GetUserDep, response: Response, if_match: IfMatch = None
) -> dict[str, Any]:
    """Replace a pipeline's YAML. Answers 412 if it changed since the version of ``If-Match``.

    ``warnings`` are texts about patterns of ``tables`` that match no table of the source, or why this was not checked.
    """
    async with slots.writing():
        text = await run_in_threadpool(lambda: _change(name, body, user, if_match))
    return await _file_answer(text, user, response)


def _change(name: str, body: PipelineBody, user: Any, if_match: str | None) -> PipelineText:
    require_permission(user, "PUT", name)
    text: PipelineText = _change_if_match(
        name, lambda folder, tag: folder.change(name, body.yaml, tag, rules_of(user)), if_match
    )
    write_audit_log(user, "change", name, tag=text.tag)
    readings.expire(name)
    return text


@router.delete("/pipelines/{name}", status_code=204)
def delete_pipeline(name: str, user: GetUserDep, if_match: IfMatch = None) -> None:
    """Delete a pipeline's YAML.

    Answers 412 if it changed since the version of ``If-Match``, and 409 while a continuous run publishes: pause the
    pipeline first, which ends the run. Checkpoint, commit log and topics are not deleted.
    """
    require_permission(user, "DELETE", name)
    _require_no_continuous_run(pipeline_of(name))
    _change_if_match(name, lambda folder, tag: folder.delete(name, tag), if_match)
    write_audit_log(user, "delete", name, tag=if_match)
    readings.forget(name)


def _require_no_continuous_run(pipeline: Pipeline) -> None:
    """Answer 409 while a continuous run publishes: it would go on until its time is over, and no route would end it."""
    if pipeline.windows is None:
        return
    dag = dag_state(ingest_dag_id(pipeline.name))
    if under_way := [run_id for run_id in dag["running"] if run_id not in dag["held"]]:
        raise HTTPException(
            409,
            f"expected no run of pipeline {pipeline.name!r} under way, found {under_way[0]}, which would publish until "
            f"its time, {pipeline.windows.run_for}, is over. Nothing was deleted. Pause the pipeline, wait until "
            "the run has ended, then delete it",
        )


def _read_text(name: str) -> PipelineText:
    try:
        return PipelineFolder(pipelines_folder()).text(name)
    except NoSuchPipelineError as error:
        if (text := bundled_pipeline(name)) is not None:
            return text
        raise HTTPException(404, str(error)) from None


def _describe_both(text: BundledPipeline) -> str:
    return (
        f"{text.file}: its pipeline name {text.name!r} is in the folder of pipelines and in the DAG bundle "
        f"{text.bundle!r}. Airflow runs whichever it read last, with one checkpoint for both. Remove one of them."
    )


def require_combination(user: Any, new: Pipeline) -> None:
    """Raise SettingsError unless ``user`` may create a pipeline like ``new``, with its connections."""
    check_rest_settings(new, None, load_pipelines()[0], load_site(), _editor(user))


def _editor(user: Any) -> Editor:
    return Editor(
        may_edit=lambda name: has_permission(user, "PUT", ingest_dag_id(name)),
        may_edit_connection=lambda connection_id: may_edit_connection(user, connection_id),
    )


def rules_of(user: Any) -> Rules:
    """The check of pipeline files that ``user`` writes over REST, by the user's permissions."""
    site, editor = load_site(), _editor(user)

    def check(new: Pipeline, old: Pipeline | None, others: Mapping[str, Pipeline]) -> None:
        if old is None and (text := bundled_pipeline(new.name)) is not None:
            raise PipelineChangedError(
                f"expected a name that is not in use, found that of a pipeline in the DAG bundle {text.bundle!r}. "
                "Nothing was created. Use another name"
            )
        check_rest_settings(new, old, others, site, editor)
        for notifier in added_notifiers(new, old):
            require_no_template_file(notifier)

    return check


def _change_if_match(name: str, change: Any, if_match: str | None) -> Any:
    if if_match is None:
        raise HTTPException(
            428,
            "expected the header If-Match with the ETag of the version that you read, found none. Nothing was changed",
        )
    try:
        return change(PipelineFolder(pipelines_folder()), if_match.strip().removeprefix("W/").strip('"'))
    except NoSuchPipelineError as error:
        raise not_in_folder(name, error) from None
    except PipelineChangedError as error:
        raise HTTPException(412, str(error)) from None


def not_in_folder(name: str, error: NoSuchPipelineError) -> HTTPException:
    """The answer to a change of a pipeline that has no file in the folder: 409 if a bundle has it, else 404."""
    if (text := bundled_pipeline(name)) is None:
        return HTTPException(404, str(error))
    return HTTPException(
        409,
        f"expected a file in the folder of pipelines, found pipeline {name!r} in the DAG bundle {text.bundle!r}. "
        "Nothing was changed. Change the file where the bundle gets it from, as in its git repository.",
    )


async def _file_answer(text: PipelineText, user: Any, response: Response) -> dict[str, Any]:
    """The answer to a write. Lock and slot of the write are free while the source is read for the warnings."""
    try:
        async with slots.looking(text.name):
            warnings = await run_in_threadpool(_table_warnings, text, user)
    except HTTPException as busy:  # no slot; the file is written nevertheless
        warnings = [_NOT_CHECKED.format(busy.detail)]
    response.headers["ETag"] = f'"{text.tag}"'
    return {"name": text.name, "yaml": text.text, "dag_id": ingest_dag_id(text.name), "warnings": warnings}


_NOT_CHECKED = "Whether the source has tables that match the patterns of `tables` was not checked: {}"


def _table_warnings(text: PipelineText, user: Any) -> list[str]:
    if not has_permission(user, "GET", ingest_dag_id(text.name)):
        return []
    pipeline = text.pipeline()
    try:
        return describe_unmatched(pipeline.tables, position.topics(pipeline))
    except ChangefeedError as error:
        return [_NOT_CHECKED.format(error)]


def describe_unmatched(tables: TableSettings, captured: Collection[str]) -> list[str]:
    """A warning if patterns of ``include`` match none of the ``captured`` tables ("database.table")."""
    names = [name.split(".", 1) for name in captured]
    unmatched = [pattern for pattern in tables.include if not any(matches(pattern, *name) for name in names)]
    if not unmatched:
        return []
    patterns = ", ".join(unmatched)
    excluded = ", or `exclude` leaves them out" if tables.exclude else ""
    effect = "it publishes nothing for it" if captured else "it publishes nothing"
    return [
        f"No table of the source matches {patterns}{excluded}. The pipeline is saved, and {effect} until there is one. "
        "Correct the pattern in `tables`, or create the table"
    ]


def _without_reasons(positions: dict[str, Any]) -> dict[str, Any]:
    """The position without the reasons of parked tables, which are of errors and may quote values of rows."""
    shown = dict(positions)
    if known := positions.get("last_known"):
        shown["last_known"] = _without_reasons(known)
    if parked := positions.get("parked"):
        shown["parked"] = [{name: value for name, value in each.items() if name != "reason"} for each in parked]
    return shown


@dataclass(frozen=True)
class _Live:
    """What servers answered about a pipeline. Without an answer about its windows, ``windows`` is None. ``merged`` has
    the newest hour of merged windows, if any, and ``merged_freshness`` their freshness."""

    position: dict[str, Any]
    windows: list[SealedWindow] | None
    stale: Staleness
    merged: Sequence[SealedPeriod] = ()
    merged_freshness: MergedFreshness = NONE_MERGED


_NO_ANSWER = _Live(position.NO_ANSWER, None, Staleness())


def _read_live(pipeline: Pipeline) -> _Live:
    stale = Staleness()
    at = position.position(pipeline, stale)
    checkpoint = (at.get("last_known") or at).get("checkpoint")
    try:
        windows = position.sealed_windows(pipeline, checkpoint, stale)
        return _Live(at, windows, stale, *_merged(pipeline, windows, stale))
    except ChangefeedError:  # of Kafka: the position and the view of the windows show it
        return _Live(at, None, stale)


def _merged(
    pipeline: Pipeline, windows: Sequence[SealedWindow], stale: Staleness
) -> tuple[Sequence[SealedPeriod], MergedFreshness]:
    """The newest sums of older windows, and their freshness, if some may be of the last hour; the log is not read for a
    quiet pipeline."""
    if not windows or windows[-1].sealed_at_ms <= hour_ago_ms():
        return (), NONE_MERGED
    return position.merged_windows(pipeline, 1, stale), position.merged_freshness(pipeline, stale)


def _describe_each(
    pipelines: Sequence[Pipeline],
    bundled: Mapping[str, BundledPipeline],
    user: Any,
    live_parts: Sequence[_Live | None],
) -> list[dict[str, Any]]:
    """What is shown of pipelines. The number of queries of Airflow's database does not depend on their number."""
    states = dag_states([ingest_dag_id(pipeline.name) for pipeline in pipelines])
    dags = {pipeline.name: states[ingest_dag_id(pipeline.name)] for pipeline in pipelines}
    reasons = missing_dags(dags)
    runs = {
        dag["dag_id"]: dag["last_run"]["run_id"]
        for dag in dags.values()
        if dag["last_run"] and dag["last_run"]["state"] in ("failed", "running")
    }
    errors = last_errors(runs, lambda dag_id: may_read_logs(user, dag_id))
    shown = []
    for pipeline, live in zip(pipelines, live_parts, strict=True):
        dag = {**dags[pipeline.name], "missing": reasons[pipeline.name]}
        bundle = bundled[pipeline.name].bundle if pipeline.name in bundled else None
        shown.append(_describe(pipeline, bundle, user, dag, errors.get(dag["dag_id"]), live))
    return shown


def _describe(
    pipeline: Pipeline,
    bundle: str | None,
    user: Any,
    dag: dict[str, Any],
    error: dict[str, Any] | None,
    live: _Live | None,
) -> dict[str, Any]:
    now = datetime.now(UTC)
    now_ms = int(now.timestamp() * 1000)
    every_seconds = pipeline.windows.every_seconds if pipeline.windows else None
    at = live.position if live else None
    if at and (at.get("parked") or at.get("last_known")) and not may_read_logs(user, dag["dag_id"]):
        at = _without_reasons(at)
    return {
        "name": pipeline.name,
        "source": pipeline.source.connection,
        "kafka": pipeline.kafka.connection,
        "tables": {"include": pipeline.tables.include, "exclude": pipeline.tables.exclude},
        "followers": [follower.connection for follower in pipeline.followers],
        "schedule": pipeline.schedule,
        "run_for": pipeline.windows.run_for if pipeline.windows else None,
        "owner": pipeline.owner,
        "tags": pipeline.tags,
        "bundle": bundle,
        "alerts": {"headroom_hours": pipeline.alerts.headroom_hours, "lag_bytes": pipeline.alerts.lag_bytes},
        "dag": dag,
        "last_error": error,
        "standing": standing(dag, at, now),
        "position": at,
        "headline": headline(dag, at, now_ms, every_seconds) if at else None,
        "last_hour": last_hour(live.windows, now_ms, live.merged) if live and live.windows is not None else None,
        "freshness": freshness(live.windows, now_ms, live.merged_freshness) if live and live.windows else None,
        "stale": live.stale.to_json() if live else None,
    }
