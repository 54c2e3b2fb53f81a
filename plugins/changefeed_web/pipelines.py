"""REST: pipelines with their state, and creating, changing and deleting them."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, HTTPException, Response

from changefeed.airflow.alerts import check_reads_no_file
from changefeed.airflow.ingest_dag import ingest_dag_id
from changefeed.errors import ChangefeedError
from changefeed.settings.file import load_pipelines, name_of, pipelines_folder
from changefeed.settings.folder import NoSuchPipelineError, PipelineChangedError, PipelineFolder, PipelineText, Rules
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.rest_settings import added_notifiers, check_rest_settings
from changefeed.settings.secrets import public_yaml
from changefeed.settings.site import load_site
from changefeed_web import position, slots
from changefeed_web.access import GetUserDep, audited, may, may_read_logs, must
from changefeed_web.bodies import PipelineBody
from changefeed_web.dag_state import dag_state, last_error
from changefeed_web.standing import standing

router = APIRouter(tags=["pipelines"])

IfMatch = Annotated[str | None, Header(description="The ETag that the change is made from.")]


def pipeline_of(name: str) -> Pipeline:
    """The pipeline of that name; 404 where there is none, 422 with its mistake where its YAML is wrong."""
    return _text_of(name).pipeline()


@router.get("/pipelines", dependencies=[Depends(slots.survey_if_live)])
def list_pipelines(user: GetUserDep, live: slots.Live = True) -> dict[str, Any]:
    """All pipelines that you may see, and by file the mistakes of those of them that are wrong."""
    pipelines, errors = load_pipelines()
    seen = [pipeline for name, pipeline in sorted(pipelines.items()) if may(user, "GET", ingest_dag_id(name))]
    stands = position.of_each(seen, position.position) if live else [None] * len(seen)
    shown = [
        _shown(pipeline, user, (at or position.NO_ANSWER) if live else None)
        for pipeline, at in zip(seen, stands, strict=True)
    ]
    refused = {
        path.name: str(error) for path, error in errors.items() if may(user, "GET", ingest_dag_id(name_of(path)))
    }
    return {"pipelines": shown, "refused": refused}


@router.get("/pipelines/{name}", dependencies=[Depends(slots.look)])
def get_pipeline(name: str, user: GetUserDep, response: Response) -> dict[str, Any]:
    """One pipeline: state, lag, headroom, topics, last error, and its YAML; the ETag is of the YAML.

    Who may not change the pipeline gets its YAML without secrets and comments.
    """
    must(user, "GET", name)
    text = _text_of(name)
    pipeline = text.pipeline()
    response.headers["ETag"] = f'"{text.tag}"'
    shown = _shown(pipeline, user, position.position(pipeline))
    try:
        shown["topics"] = position.topics(pipeline)
    except ChangefeedError as error:
        shown["topics"] = {}
        shown["topics_error"] = str(error)
    return {**shown, "yaml": text.text if may(user, "PUT", ingest_dag_id(name)) else public_yaml(text.text)}


@router.post("/pipelines", status_code=201, dependencies=[Depends(slots.write)])
def create_pipeline(body: PipelineBody, user: GetUserDep, response: Response) -> dict[str, Any]:
    """Write a new pipeline's YAML. Its DAG appears with the DAG processor's next pass."""
    must(user, "POST", "*", dag_id="changefeed_ingest__*")
    try:
        text = PipelineFolder(pipelines_folder()).create(body.yaml, _rules(user))
    except PipelineChangedError as error:
        raise HTTPException(409, str(error)) from None
    audited(user, "create", text.name, tag=text.tag)
    return _written(text, response)


@router.put("/pipelines/{name}", dependencies=[Depends(slots.write)])
def change_pipeline(
    name: str, body: PipelineBody, user: GetUserDep, response: Response, if_match: IfMatch = None
) -> dict[str, Any]:
    """Replace a pipeline's YAML, if it still is the one of ``If-Match``."""
    must(user, "PUT", name)
    text = _guarded(lambda folder, tag: folder.change(name, body.yaml, tag, _rules(user)), if_match)
    audited(user, "change", name, tag=text.tag)
    position.forget(name)
    return _written(text, response)


@router.delete("/pipelines/{name}", status_code=204)
def delete_pipeline(name: str, user: GetUserDep, if_match: IfMatch = None) -> None:
    """Remove a pipeline's YAML, if it still is the one of ``If-Match``. Checkpoint, commit log and topics stay."""
    must(user, "DELETE", name)
    _guarded(lambda folder, tag: folder.delete(name, tag), if_match)
    audited(user, "delete", name, tag=if_match)
    position.forget(name)


def _text_of(name: str) -> PipelineText:
    try:
        return PipelineFolder(pipelines_folder()).text(name)
    except NoSuchPipelineError as error:
        raise HTTPException(404, str(error)) from None


def _rules(user: Any) -> Rules:
    """What ``user`` may write: what may come over REST from somebody with these rights."""
    site = load_site()

    def check(new: Pipeline, old: Pipeline | None, others: Mapping[str, Pipeline]) -> None:
        check_rest_settings(new, old, others, site, lambda name: may(user, "PUT", ingest_dag_id(name)))
        for notifier in added_notifiers(new, old):
            check_reads_no_file(notifier)

    return check


def _guarded(change: Any, if_match: str | None) -> Any:
    if if_match is None:
        raise HTTPException(428, "send If-Match with the ETag of the version that you read")
    try:
        return change(PipelineFolder(pipelines_folder()), if_match.strip().removeprefix("W/").strip('"'))
    except NoSuchPipelineError as error:
        raise HTTPException(404, str(error)) from None
    except PipelineChangedError as error:
        raise HTTPException(412, str(error)) from None


def _written(text: PipelineText, response: Response) -> dict[str, Any]:
    response.headers["ETag"] = f'"{text.tag}"'
    return {"name": text.name, "yaml": text.text, "dag_id": ingest_dag_id(text.name)}


def _shown(pipeline: Pipeline, user: Any, stands: dict[str, Any] | None) -> dict[str, Any]:
    dag = dag_state(ingest_dag_id(pipeline.name))
    error = None
    if dag["last_run"] and dag["last_run"]["state"] == "failed":
        logs = may_read_logs(user, dag["dag_id"])
        error = last_error(dag["dag_id"], dag["last_run"]["run_id"], logs=logs)
    return {
        "name": pipeline.name,
        "source": pipeline.source.connection,
        "kafka": pipeline.kafka.connection,
        "tables": {"include": pipeline.tables.include, "exclude": pipeline.tables.exclude},
        "followers": [follower.connection for follower in pipeline.followers],
        "owner": pipeline.owner,
        "tags": pipeline.tags,
        "alerts": {"headroom_hours": pipeline.alerts.headroom_hours, "lag_bytes": pipeline.alerts.lag_bytes},
        "dag": dag,
        "last_error": error,
        "standing": standing(dag, stands, datetime.now(UTC)),
        "position": stands,
    }
