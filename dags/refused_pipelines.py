"""Reports invalid pipeline files as an import error in Airflow. Defines no DAG.

If a file has an import error, Airflow stops scheduling its DAGs, so the error must not be in a file with DAGs of valid
pipelines. Airflow shows the error of a file without DAGs to all users who see any DAG, so it has file names only.
"""

from changefeed.errors import SettingsError
from changefeed.settings.file import load_pipelines

_, _errors = load_pipelines()
if _errors:
    raise SettingsError(
        f"these pipeline files are invalid and have no DAG: {', '.join(sorted(path.name for path in _errors))}. "
        "To see the errors, open the page Changefeed (for users who may see the pipeline), or run `changefeed check`."
    )
