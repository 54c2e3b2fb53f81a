"""Many pipelines: each has five DAGs, and the parsing cost of each does not depend on their number."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from airflow_database import environment

KINDS = ("ingest", "seek", "backfill", "snapshot", "verify")
FEW, MANY = 21, 200
CALLS_EACH = 40_000
"""Limit of function calls to parse one pipeline's DAGs. Unlike seconds, it does not depend on the machine."""

YAML = """\
name: shop{number}
source: {{connection: mysql_{number}, server_ids: {first}-{last}}}
kafka: {{connection: kafka}}
tables: {{include: ["shop{number}.orders", "shop{number}.customers", "audit.*"], exclude: ["*.tmp_*"]}}
topics: {{template: "eu.{{database}}.{{table}}", partitions: 12, configs: {{cleanup.policy: compact}}}}
checkpoint: {{store: table, connection: state}}
schedule: "{minute} * * * *"
pool: shop{number}
owner: team-{team}
deadline_minutes: 30
alerts: {{headroom_hours: 12, notify: [{{notifier: airflow.providers.smtp.notifications.smtp.SmtpNotifier}}]}}
tags: [eu, "team-{team}"]
"""


def test_parsing_cost_per_pipeline_is_constant(tmp_path: Path) -> None:
    one, some, many = (_parse_dags(tmp_path, number) for number in (1, FEW, MANY))
    assert many["import_errors"] == {}
    ours = [dag_id for dag_id in many["dags"] if dag_id.startswith("changefeed_ingest__")]
    assert len(ours) == MANY
    assert len([dag_id for dag_id in many["dags"] if "__shop" in dag_id]) == 5 * MANY
    assert all(many["dags"][dag_id]["tasks"]["commit"]["retries"] == 2 for dag_id in ours)
    first = (some["calls"] - one["calls"]) / (FEW - 1)
    later = (many["calls"] - some["calls"]) / (MANY - FEW)
    print(f"{first:,.0f} calls for each of the first, {later:,.0f} for each of the later")
    assert later < CALLS_EACH
    assert later < 1.1 * first


@pytest.mark.parametrize(
    ("dag_id", "kinds", "numbers"),
    [
        ("changefeed_seek__shop1", ("seek",), [1]),
        ("changefeed_seek__removed", KINDS, [0, 1, 2]),
        ("of_a_user__shop1", KINDS, [0, 1, 2]),
    ],
)
def test_task_parses_its_own_dag_only(tmp_path: Path, dag_id: str, kinds: Sequence[str], numbers: list[int]) -> None:
    found = _parse_dags(tmp_path, 3, dag_id)
    assert found["import_errors"] == {}
    expected = {f"changefeed_{kind}__shop{number}" for kind in kinds for number in numbers}
    assert {each for each in found["dags"] if "__shop" in each} == expected


@pytest.mark.extended
@pytest.mark.parametrize(("task_id", "submits"), [("plan", False), ("ingest", True)])
def test_only_the_task_that_submits_imports_the_spark_provider(tmp_path: Path, task_id: str, submits: bool) -> None:
    found = _parse_dags(tmp_path, 1, "changefeed_ingest__shop0", task_id)
    tasks = found["dags"]["changefeed_ingest__shop0"]["tasks"]
    assert {name: task["upstream"] for name, task in tasks.items()} == {
        "plan": [],
        "ingest": ["plan"],
        "commit": ["ingest", "plan"],
    }
    assert ("SparkSubmitOperator" in tasks["ingest"]["operators"]) == submits
    assert ("requests" in found["imported"]) == submits, "its import of OpenLineage's client costs as much"
    assert not {"kafka", "pymysql", "pyspark", "numba", "numpy", "pyarrow", "sqlglot"} & set(found["imported"])


def _parse_dags(tmp_path: Path, pipelines: int, of_dag: str = "", of_task: str = "") -> dict[str, Any]:
    """Parse ``pipelines`` pipelines in another process, without Airflow's timeout for a file; with ``of_dag`` and
    ``of_task``, as that task parses them."""
    folder = tmp_path / f"pipelines-{pipelines}"
    folder.mkdir()
    for number in range(pipelines):
        values = {"number": number, "first": 1000 + 64 * number, "last": 1063 + 64 * number}
        text = YAML.format(**values, minute=number % 60, team=number % 7)
        (folder / f"shop{number}.yaml").write_text(text)
    (tmp_path / "airflow").mkdir(exist_ok=True)
    env = environment(tmp_path / "airflow") | {"CHANGEFEED_PIPELINES": str(folder)}
    env |= {"AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": "0", "_AIRFLOW_PARSING_CONTEXT_DAG_ID": of_dag}
    env |= {"_AIRFLOW_PARSING_CONTEXT_TASK_ID": of_task} if of_task else {}
    script, out = Path(__file__).with_name("bag_process.py"), tmp_path / f"found-{pipelines}.json"
    subprocess.run([sys.executable, str(script), str(out), "calls"], env=env, check=True, capture_output=True)
    return json.loads(out.read_text())  # type: ignore[no-any-return]
