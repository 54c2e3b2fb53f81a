"""Airflow connections -> URIs, and a clean environment for the job."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

from changefeed.errors import SettingsError
from changefeed.model.connection import Patience, from_environment, variable_of
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes

if TYPE_CHECKING:  # at run time it would bring the clients of Kafka and MySQL into each process that reads DAGs
    from changefeed.pipeline.connections import PipelineConnections

_AS_THEY_ARE = ("mysql", "kafka", "sqlite", "postgresql", "http")
"""The schemes of URIs in the environment that Airflow would rewrite."""
_PASSED_ON = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TZ",
    "TMPDIR",
    "JAVA_HOME",
    "SPARK_HOME",
    "HADOOP_CONF_DIR",
    "PYTHONPATH",
)
_PASSED_ON_PREFIXES = (
    *("PYSPARK_", "SPARK_", "CHANGEFEED_", "NUMBA_", "SSL_CERT_"),
    *("FSSPEC_", "AWS_", "GOOGLE_", "AZURE_"),  # how archived files are reached: their URL has no password
)


def airflow_lookup(connection_id: str) -> str:
    """A `ConnectionLookup` that asks Airflow (environment, secrets backends, its database), masked in its logs."""
    if os.environ.get(variable_of(connection_id), "").strip().startswith(_AS_THEY_ARE):
        return from_environment(connection_id)  # a URI as SQLAlchemy or librdkafka want it, which Airflow would rewrite
    try:
        return _uri_of(BaseHook.get_connection(connection_id))
    except AirflowNotFoundException:
        raise _unknown(connection_id) from None
    except (AirflowException, ValueError, TypeError) as error:
        raise _unreadable(connection_id, error) from None


def server_lookup(connection_id: str) -> str:
    """As `airflow_lookup`, in the API server, which is no task: it asks Airflow's models."""
    if os.environ.get(variable_of(connection_id), "").strip().startswith(_AS_THEY_ARE):
        return from_environment(connection_id)
    from airflow.models.connection import Connection

    try:
        return _uri_of(Connection.get_connection_from_secrets(connection_id))
    except AirflowNotFoundException:
        raise _unknown(connection_id) from None
    except (AirflowException, ValueError, TypeError) as error:
        raise _unreadable(connection_id, error) from None


def task_connections(pipeline: Pipeline) -> PipelineConnections:
    """The pipeline with its connections as a task looks them up."""
    from changefeed.pipeline.connections import PipelineConnections

    return PipelineConnections(pipeline, airflow_lookup)


def server_connections(pipeline: Pipeline) -> PipelineConnections:
    """The pipeline with its connections as the API server looks them up: somebody waits for it, so not for long."""
    from changefeed.pipeline.connections import PipelineConnections

    return PipelineConnections(
        pipeline, server_lookup, Patience(connect_seconds=5, answer_seconds=30, answer_bytes=64 << 20)
    )


def _unknown(connection_id: str) -> SettingsError:
    return SettingsError(
        f"Airflow has no connection {connection_id!r}: add it under Admin, Connections, or set "
        f"{variable_of(connection_id)}"
    )


def _unreadable(connection_id: str, error: Exception) -> SettingsError:
    """Airflow's own words may repeat what stands where it wants a port: half a password with a / in it."""
    return SettingsError(
        f"Airflow's connection {connection_id!r} cannot be read ({type(error).__name__}): wanted a URI, in whose user "
        "and password each of the characters / ? # @ : [ ] % is written as % and two digits, or JSON, with `extra` an "
        "object"
    )


def _uri_of(connection: Any) -> str:
    extra = {name: str(value) for name, value in json.loads(connection.extra or "{}").items()}
    login = f"{quote(connection.login or '', safe='')}:{quote(connection.password or '', safe='')}@"
    address = f"{connection.host or ''}:{connection.port}" if connection.port else (connection.host or "")
    query = f"?{urlencode(extra)}" if extra else ""
    user = login if connection.login or connection.password else ""
    return f"{connection.conn_type}://{user}{address}/{connection.schema or ''}{query}"


def job_environment(pipeline: Pipeline) -> dict[str, str]:
    """What the Spark job may see: the paths it needs, its own connections and the secrets that it names, nothing
    else of Airflow's.

    Airflow's environment holds all connections and the secret that signs its tokens.
    """
    secrets = [where for _, where in pipeline.columns.secrets]
    secrets += [where for transform in pipeline.transforms for where in transform.secrets.values()]
    secrets += pipeline.commit_log.secrets
    names = {*_PASSED_ON, *(where.environment for where in secrets)}
    passed = {
        name: value for name, value in os.environ.items() if name in names or name.startswith(_PASSED_ON_PREFIXES)
    }
    named = (where.connection for where in secrets if where.connection is not None)
    registry = compile_routes(pipeline).registry
    own = (pipeline.source.connection, pipeline.kafka.connection, *([registry] if registry is not None else []))
    wanted = dict.fromkeys((*own, *named))
    return passed | {variable_of(connection_id): airflow_lookup(connection_id) for connection_id in wanted}
