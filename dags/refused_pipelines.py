"""Defines no DAG: that pipeline files are wrong is this file's import error in Airflow.

Airflow stops scheduling each DAG of a file that has an import error, so the error must not be that of a file with DAGs
of other pipelines in it. It shows the error of a file without DAGs to whoever may see any, so this one has names only.
"""

from changefeed.errors import SettingsError
from changefeed.settings.file import load_pipelines

_, _errors = load_pipelines()
if _errors:
    raise SettingsError(
        f"these files of pipelines are refused, and have no DAG: {', '.join(sorted(path.name for path in _errors))}. "
        "What is wrong with them is on the page Changefeed, for those who may see the pipeline, and said by "
        "`changefeed check`."
    )
