"""Defines no DAG: pipeline files that are wrong are this file's import error in Airflow.

Airflow stops scheduling each DAG of a file that has an import error, so the error must not be that of a file with DAGs
of other pipelines in it.
"""

from changefeed.errors import SettingsError
from changefeed.pipelines.file import load_pipelines

_, _errors = load_pipelines()
if _errors:
    raise SettingsError("\n".join(str(error) for error in _errors.values()))
