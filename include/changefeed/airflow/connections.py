"""Looks up Airflow connections as URIs, and chooses the variables that a Spark job gets."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowException, AirflowNotFoundException

from changefeed.errors import ConnectionUnavailableError, SettingsError
from changefeed.model.connection import AnswerLimits, from_environment, variable_of
from changefeed.settings.column_settings import SecretSettings
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes
from changefeed.settings.site import load_site

if TYPE_CHECKING:  # at run time it would load the clients of Kafka and MySQL in each process that parses DAGs
    from changefeed.pipeline.connections import PipelineConnections

_VERBATIM_SCHEMES = ("mysql", "kafka", "sqlite", "postgresql", "http")
"""URI schemes in the environment that are used verbatim, because Airflow would rewrite the URI."""
_PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_JOB_VARIABLES = frozenset(
    {
        *("PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "JAVA_HOME", "PYTHONPATH"),
        # Not all of CHANGEFEED_*: pipelines may store their secrets under such names.
        *("CHANGEFEED_PIPELINES", "CHANGEFEED_TRANSFORMS", "CHANGEFEED_SITE", "CHANGEFEED_KERNEL_CACHE"),
        *("CHANGEFEED_FAULT", "CHANGEFEED_FAULT_FILE"),
        *_PROXY_VARIABLES,
        *(name.lower() for name in _PROXY_VARIABLES),
    }
)
_JOB_VARIABLE_PREFIXES = (
    *("PYSPARK_", "SPARK_", "NUMBA_", "SSL_CERT_"),
    *("KRB5", "KUBERNETES_", "HADOOP_", "YARN_"),
    # Credentials for the storage of archived files, whose URLs have no password.
    *("FSSPEC_", "AWS_", "GOOGLE_", "AZURE_"),
)


def airflow_lookup(connection_id: str) -> str:
    """The URI of an Airflow connection (environment, secrets backends, database); Airflow masks its secrets in logs.

    A `ConnectionLookup` for tasks. Raises SettingsError if it cannot be parsed, and ConnectionUnavailableError if
    Airflow has none: to a task, an error of Airflow's API or of a secrets backend looks the same.
    """
    if os.environ.get(variable_of(connection_id), "").strip().startswith(_VERBATIM_SCHEMES):
        return from_environment(connection_id)
    try:
        return _uri_of(BaseHook.get_connection(connection_id))
    except AirflowNotFoundException as error:
        if variable_of(connection_id) in os.environ:
            raise _unreadable_connection_error(connection_id, error) from None
        raise ConnectionUnavailableError(
            f"{_missing_connection_error(connection_id)}. If it is there, Airflow's API or a secrets backend failed: "
            "run again"
        ) from None
    except (AirflowException, ValueError, TypeError) as error:
        raise _unreadable_connection_error(connection_id, error) from None


def server_lookup(connection_id: str) -> str:
    """As `airflow_lookup`, for the API server, which has no task context: it uses Airflow's models."""
    if os.environ.get(variable_of(connection_id), "").strip().startswith(_VERBATIM_SCHEMES):
        return from_environment(connection_id)
    from airflow.models.connection import Connection

    try:
        return _uri_of(Connection.get_connection_from_secrets(connection_id))
    except AirflowNotFoundException:
        raise _missing_connection_error(connection_id) from None
    except (AirflowException, ValueError, TypeError) as error:
        raise _unreadable_connection_error(connection_id, error) from None


def task_connections(pipeline: Pipeline) -> PipelineConnections:
    """The pipeline with its connections, for a task."""
    from changefeed.pipeline.connections import PipelineConnections

    return PipelineConnections(pipeline, airflow_lookup)


def server_connections(pipeline: Pipeline) -> PipelineConnections:
    """The pipeline with its connections, for the API server, with short timeouts because a user waits for the
    answer."""
    from changefeed.pipeline.connections import PipelineConnections

    return PipelineConnections(
        pipeline, server_lookup, AnswerLimits(connect_seconds=5, answer_seconds=30, answer_bytes=64 << 20)
    )


def _missing_connection_error(connection_id: str) -> SettingsError:
    return SettingsError(
        f"Airflow has no connection {connection_id!r}: add it under Admin, Connections, or set "
        f"{variable_of(connection_id)}"
    )


def _unreadable_connection_error(connection_id: str, error: Exception) -> SettingsError:
    # Airflow's own message is left out: if a password contains a /, the message may quote a part of it as the port.
    return SettingsError(
        f"Airflow's connection {connection_id!r} cannot be parsed ({type(error).__name__}). Expected a URI with / "
        f"? # @ : [ ] % "
        "percent-encoded in user and password, or JSON whose `extra` is an object"
    )


def _uri_of(connection: Any) -> str:
    extra = {name: str(value) for name, value in json.loads(connection.extra or "{}").items()}
    login = f"{quote(connection.login or '', safe='')}:{quote(connection.password or '', safe='')}@"
    address = f"{connection.host or ''}:{connection.port}" if connection.port else (connection.host or "")
    query = f"?{urlencode(extra)}" if extra else ""
    user = login if connection.login or connection.password else ""
    return f"{connection.conn_type}://{user}{address}/{connection.schema or ''}{query}"


def job_environment(pipeline: Pipeline) -> dict[str, str]:
    """The environment of the processes of a Spark job: the variables that all jobs get, and those that `environment` of
    the site's file names.

    Nothing else of Airflow's environment is passed: that has all connections, and the secret that signs Airflow's
    tokens. Secrets are in `job_variables`. Raises SettingsError for an invalid site's file.
    """
    site = load_site()
    secret = {where.environment for where in (*_secrets(pipeline), site.scrape_token) if where is not None}
    return {
        name: value
        for name, value in os.environ.items()
        if (name in _JOB_VARIABLES or name.startswith(_JOB_VARIABLE_PREFIXES) or site.passes_variable(name))
        and name not in secret
    }


def job_variables(pipeline: Pipeline, *connection_ids: str) -> dict[str, str]:
    """The variables in the file of a job (`spark.job_file`): the pipeline's connections, those of ``connection_ids``,
    the secrets that its YAML names, and the variables that `environment` of the site's file names.

    Raises SettingsError for a missing connection and for an invalid site's file.
    """
    site, secrets = load_site(), _secrets(pipeline)
    named = {where.environment for where in secrets}
    token = site.scrape_token.environment if site.scrape_token is not None else None
    passed = {
        name: value
        for name, value in os.environ.items()
        if name in named or (site.passes_variable(name) and name != token)
    }
    registry = compile_routes(pipeline).registry
    own = (pipeline.source.connection, pipeline.kafka.connection, *([registry] if registry is not None else []))
    of_secrets = (where.connection for where in secrets if where.connection is not None)
    ids = dict.fromkeys((*own, *of_secrets, *connection_ids))
    return passed | {variable_of(connection_id): airflow_lookup(connection_id) for connection_id in ids}


def _secrets(pipeline: Pipeline) -> list[SecretSettings]:
    secrets = [where for _, where in pipeline.columns.secrets]
    secrets += [where for transform in pipeline.transforms for where in transform.secrets.values()]
    return secrets + pipeline.commit_log.secrets
