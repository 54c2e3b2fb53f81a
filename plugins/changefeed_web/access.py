"""Permissions of users, which are Airflow's permissions on a pipeline's DAGs, and entries of Airflow's audit log."""

import logging
import os
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.resource_details import ConnectionDetails, DagAccessEntity, DagDetails
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.configuration import conf, ensure_secrets_loaded
from airflow.models import Connection, Log
from airflow.models.dag import DagModel
from airflow.secrets.metastore import MetastoreBackend
from airflow.utils.session import create_session
from fastapi import HTTPException
from sqlalchemy import select

from changefeed.airflow.ingest_dag import ingest_dag_id
from changefeed.model.connection import variable_of

__all__ = [
    "GetUserDep",
    "has_permission",
    "may_edit_connection",
    "may_read_logs",
    "require_permission",
    "write_audit_log",
]

_log = logging.getLogger(__name__)


def has_permission(user: Any, method: Any, dag_id: str, *, run: bool = False) -> bool:
    """Whether Airflow permits ``user`` the ``method`` (GET, POST, PUT, DELETE) on a DAG, or on its runs."""
    return bool(
        get_auth_manager().is_authorized_dag(
            method=method,
            user=user,
            access_entity=DagAccessEntity.RUN if run else None,
            details=_details(dag_id),
        )
    )


def may_edit_connection(user: Any, connection_id: str) -> bool:
    """Whether ``user`` may edit the connection in Airflow, and Airflow reads it from its database.

    A connection that the environment or a secrets backend defines belongs to the operator.
    """
    if variable_of(connection_id) in os.environ:
        return False
    for backend in ensure_secrets_loaded():
        if isinstance(backend, MetastoreBackend):
            break
        if backend.get_connection(connection_id) is not None:
            return False
    with create_session() as session:
        team = session.execute(select(Connection.team_name).where(Connection.conn_id == connection_id)).first()
    if team is None:
        return False
    details = ConnectionDetails(conn_id=connection_id, team_name=team[0])
    return bool(get_auth_manager().is_authorized_connection(method="PUT", user=user, details=details))


def may_read_logs(user: Any, dag_id: str) -> bool:
    """Whether Airflow permits ``user`` to read the logs of a DAG's tasks."""
    return bool(
        get_auth_manager().is_authorized_dag(
            method="GET", user=user, access_entity=DagAccessEntity.TASK_LOGS, details=_details(dag_id)
        )
    )


def _details(dag_id: str) -> DagDetails:
    """The DAG with its team: Airflow checks that the user is a member only if the team is set."""
    several_teams = conf.getboolean("core", "multi_team", fallback=False)
    return DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id) if several_teams else None)


def require_permission(user: Any, method: Any, pipeline: str, *, run: bool = False, dag_id: str | None = None) -> None:
    """Answer 403 unless Airflow permits ``user`` the ``method`` on ``dag_id``, by default the pipeline's ingest DAG."""
    dag_id = dag_id or ingest_dag_id(pipeline)
    if not has_permission(user, method, dag_id, run=run):
        what = f"{method} on {'runs of ' if run else ''}DAG {dag_id}"
        raise HTTPException(
            403, f"expected Airflow's permission for {what}, which your user does not have. Nothing was done"
        )


def write_audit_log(user: Any, event: str, pipeline: str, **extra: Any) -> None:
    """Write an entry to Airflow's audit log (Browse, Audit Log)."""
    with create_session() as session:
        session.add(
            Log(event=f"changefeed_{event}", owner=user.get_name(), extra=str(extra), dag_id=ingest_dag_id(pipeline))
        )
    _log.info("%s: %s of pipeline %s, %s", user.get_name(), event, pipeline, extra)
