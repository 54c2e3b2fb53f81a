"""Pipelines of a DAG bundle: their DAGs, beside those of the folder of pipelines, in one process that parses both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from dags.test_dag_integrity import GOOD, parse_dags

from changefeed.airflow.bundle_dags import BUNDLE_TAG

DAG_FILE = """\
from pathlib import Path
from changefeed.airflow.bundle_dags import bundle_dags
globals().update(bundle_dags(Path(__file__).parent))
"""
REFUSED = """\
from pathlib import Path
from changefeed.airflow.bundle_dags import refuse_invalid_bundle
refuse_invalid_bundle(Path(__file__).parent)
"""
FOLDER = "from changefeed.airflow.pipeline_dags import *\nPIPELINES, _ = pipelines_to_parse()\nDAGS = " + (
    "{dag.dag_id: dag for each in PIPELINES.values() for dag in pipeline_dags(each)}\nglobals().update(DAGS)\n"
)
FUNCTION = "def transform(change, tag):\n    return change\n"
STAMPED = "transforms: [{tables: '*.*', function: stamp, arguments: {tag: a}}]\n"
ALERTED = """\
alerts: {notify: [{notifier: company.Pager, arguments: {text: "{{ changefeed.text }}"}}]}
deadline_minutes: 5
"""


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """A bundle with a pipeline whose function is only in the bundle, and a DAG file of the folder that comes after."""
    bundle, folder = tmp_path_factory.mktemp("bundle"), tmp_path_factory.mktemp("folder")
    for name in ("pipelines", "transforms"):
        (bundle / name).mkdir()
    (bundle / "a_bundle.py").write_text(DAG_FILE)
    (bundle / "b_folder.py").write_text(FOLDER)
    (bundle / "c_refused.py").write_text(REFUSED)
    (bundle / "transforms" / "stamp.py").write_text(FUNCTION)
    (bundle / "pipelines" / "bundled.yaml").write_text(GOOD.format(name="bundled") + STAMPED + ALERTED)
    (bundle / "pipelines" / "broken.yaml").write_text("name: [\n")
    (folder / "own.yaml").write_text(GOOD.format(name="own"))
    (folder / "stamped.yaml").write_text(GOOD.format(name="stamped") + STAMPED)
    return parse_dags(
        tmp_path_factory.mktemp("airflow"),
        AIRFLOW__CORE__DAGS_FOLDER=str(bundle),
        CHANGEFEED_PIPELINES=str(folder),
    )


def ingest_dags(parsed: dict[str, Any]) -> set[str]:
    return {dag_id for dag_id in parsed["dags"] if dag_id.startswith("changefeed_ingest__")}


def test_bundle_and_folder_each_have_their_own_pipelines_and_functions(parsed: dict[str, Any]) -> None:
    assert ingest_dags(parsed) == {"changefeed_ingest__bundled", "changefeed_ingest__own"}, "stamp.py is in the bundle"
    assert "changefeed_freshness" in parsed["dags"]


def test_invalid_file_of_a_bundle_is_an_import_error_of_its_own_file(parsed: dict[str, Any]) -> None:
    ((path, error),) = parsed["import_errors"].items()
    assert Path(path).name == "c_refused.py"
    assert "broken.yaml" in error


def test_only_the_ingest_dag_of_a_bundle_carries_its_yaml(parsed: dict[str, Any]) -> None:
    for name, carried in (("bundled", GOOD.format(name="bundled") + STAMPED + ALERTED), ("own", None)):
        dag = parsed["dags"][f"changefeed_ingest__{name}"]
        tasks = {task["__var"]["task_id"]: task["__var"] for task in json.loads(dag["serialized"])["dag"]["tasks"]}
        assert (BUNDLE_TAG in dag["tags"], tasks["plan"].get("doc_yaml")) == (carried is not None, carried)
        assert tasks["plan"]["doc_md"], "OpenLineage sends this, and without it the YAML"


def test_serialized_dag_has_no_path_of_the_bundle_besides_airflows_own(parsed: dict[str, Any]) -> None:
    dag = json.loads(parsed["dags"]["changefeed_ingest__bundled"]["serialized"])["dag"]
    folder = str(Path(dag.pop("fileloc")).parent)
    for name in ("relative_fileloc", "_processor_dags_folder"):
        dag.pop(name)
    assert folder not in json.dumps(dag), "Airflow would store a new version of the DAG for each path of a checkout"


def test_deadline_alert_of_a_bundle_has_its_notifiers_as_the_triggerer_has_no_bundle(parsed: dict[str, Any]) -> None:
    assert "company.Pager" in json.dumps(
        json.loads(parsed["dags"]["changefeed_ingest__bundled"]["serialized"])["dag"]["deadline"]
    )
