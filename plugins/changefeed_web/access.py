"""Who may do what: Airflow's own permissions on a pipeline's DAGs, and Airflow's own audit log."""

import logging
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.configuration import conf
from airflow.models import Log
from airflow.models.dag import DagModel
from airflow.utils.session import create_session
from fastapi import HTTPException

from changefeed.airflow.ingest_dag import ingest_dag_id

__all__ = ["GetUserDep", "audited", "may", "must"]

_log = logging.getLogger(__name__)


def may(user: Any, method: Any, dag_id: str, *, run: bool = False) -> bool:
    """Whether ``user`` may do ``method`` to a DAG, or to its runs."""
    return bool(
        get_auth_manager().is_authorized_dag(
            method=method,
            user=user,
            access_entity=DagAccessEntity.RUN if run else None,
            details=_details(dag_id),
        )
    )


def may_read_logs(user: Any, dag_id: str) -> bool:
    """Whether ``user`` may see the logs of a DAG's tasks, which may hold more than its state does."""
    return bool(
        get_auth_manager().is_authorized_dag(
            method="GET", user=user, access_entity=DagAccessEntity.TASK_LOGS, details=_details(dag_id)
        )
    )


def _details(dag_id: str) -> DagDetails:
    """The DAG with its team, without which Airflow asks for no membership in one."""
    several_teams = conf.getboolean("core", "multi_team", fallback=False)
    return DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id) if several_teams else None)


def must(user: Any, method: Any, pipeline: str, *, run: bool = False, dag_id: str | None = None) -> None:
    """403 unless ``user`` may do ``method`` to the pipeline's ingest DAG, or to the DAG that is named."""
    dag_id = dag_id or ingest_dag_id(pipeline)
    if not may(user, method, dag_id, run=run):
        what = f"{method} on {'runs of ' if run else ''}DAG {dag_id}"
        raise HTTPException(403, f"you need Airflow's permission for {what}")


def audited(user: Any, event: str, pipeline: str, **extra: Any) -> None:
    """Write to Airflow's audit log, which Browse, Audit Log shows."""
    with create_session() as session:
        session.add(
            Log(event=f"changefeed_{event}", owner=user.get_name(), extra=str(extra), dag_id=ingest_dag_id(pipeline))
        )
    _log.info("%s: %s of pipeline %s, %s", user.get_name(), event, pipeline, extra)
