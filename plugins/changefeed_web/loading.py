"""Why Airflow has not loaded the DAGs of a pipeline: since when, and what to do."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.configuration import conf
from airflow.jobs.job import most_recent_job
from airflow.models.errors import ParseImportError
from airflow.utils.session import create_session
from sqlalchemy import exists, select

from changefeed.settings.file import files_by_name, pipelines_folder


@dataclass(frozen=True)
class DagProcessor:
    """What Airflow's database has of the DAG processor."""

    reported_at: datetime | None
    """When a DAG processor last reported; None if none ever did."""
    is_alive: bool
    has_import_errors: bool
    interval_seconds: int
    """How often it reads a DAG file."""


def missing_dag(name: str, dag: Mapping[str, Any]) -> dict[str, Any] | None:
    """Why the ingest DAG of pipeline ``name`` is not loaded; None if it is. ``dag`` is the result of `dag_state`.

    ``since`` is when the pipeline's file was written, or when Airflow last had the DAG, whichever is later; None if
    neither is known. ``overdue`` is whether Airflow should have loaded the DAG by now; ``text`` says what to do.
    """
    return missing_dags({name: dag})[name]


def missing_dags(dags: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any] | None]:
    """As `missing_dag`, for several pipelines: ``dags`` and the result are by the pipeline's name."""
    reasons: dict[str, dict[str, Any] | None] = dict.fromkeys(dags)
    missing = [name for name, dag in dags.items() if not dag["known"]]
    if not missing:
        return reasons
    processor, now = _read_processor(), datetime.now(UTC)
    written = {name: paths[0].stat().st_mtime for name, paths in files_by_name(pipelines_folder()).items()}
    for name in missing:
        moments = [datetime.fromtimestamp(written[name], UTC)] if name in written else []
        if dags[name]["last_parsed"]:
            moments.append(datetime.fromisoformat(dags[name]["last_parsed"]))
        reasons[name] = describe_missing(max(moments, default=None), processor, now)
    return reasons


def describe_missing(since: datetime | None, processor: DagProcessor, now: datetime) -> dict[str, Any]:
    """As `missing_dag`, for a DAG that is not loaded ``since`` then."""
    expected = timedelta(seconds=2 * processor.interval_seconds + 60)
    overdue = since is None or now - since > expected
    return {"since": since and since.isoformat(), "overdue": overdue, "text": _advice(processor, overdue=overdue)}


def _advice(processor: DagProcessor, *, overdue: bool) -> str:
    if processor.reported_at is None:
        return "No DAG processor has reported to this Airflow, so it loads no DAG. Start `airflow dag-processor`."
    if not processor.is_alive:
        return (
            f"The DAG processor of this Airflow last reported at {processor.reported_at:%Y-%m-%d %H:%M:%S} UTC, so no "
            "DAG is loaded. Start `airflow dag-processor` again; its log says why it ended."
        )
    if not overdue:
        return f"The DAG processor reads its files every {processor.interval_seconds} seconds and loads the DAG then."
    if processor.has_import_errors:
        return (
            "The DAG processor runs, and Airflow has import errors: the file with changefeed's DAGs may be one of "
            "them. Open Dags, Import errors in Airflow, and correct that file."
        )
    return (
        f"The DAG processor runs and reads its files every {processor.interval_seconds} seconds, without this "
        "pipeline. Check that changefeed's dags/pipelines.py is in its DAGs folder, that CHANGEFEED_PIPELINES is the "
        "same folder for it as for the API server, and that its user may read the pipeline's file."
    )


def _read_processor() -> DagProcessor:
    with create_session() as session:
        job = most_recent_job("DagProcessorJob", session=session)
        return DagProcessor(
            job.latest_heartbeat if job else None,
            bool(job and job.is_alive()),
            bool(session.scalar(select(exists(select(ParseImportError.id))))),
            conf.getint("dag_processor", "min_file_process_interval"),
        )
