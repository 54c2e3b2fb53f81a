"""Five hundred pipelines: three DAGs each, quick to parse."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from airflow_database import environment

PIPELINES = 500
SECONDS_IN_ALL = 15.0
SECONDS_EACH = 0.030

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


def test_five_hundred_pipelines_parse_in_seconds(tmp_path: Path) -> None:
    """CPU seconds, as the machine is shared; parsing waits for nothing. Three tries at most, the best counts."""
    folder = tmp_path / "pipelines"
    folder.mkdir()
    for number in range(PIPELINES):
        values = {"number": number, "first": 1000 + 64 * number, "last": 1063 + 64 * number}
        text = YAML.format(**values, minute=number % 60, team=number % 7)
        (folder / f"shop{number}.yaml").write_text(text)
    seconds: list[float] = []
    for number in range(3):
        found = _parsed(tmp_path, folder, tmp_path / f"found-{number}.json")
        assert found["import_errors"] == {}
        ours = [dag_id for dag_id in found["dags"] if dag_id.startswith("changefeed_ingest__")]
        assert len(ours) == PIPELINES
        assert len([dag_id for dag_id in found["dags"] if "__shop" in dag_id]) == 5 * PIPELINES
        assert all(found["dags"][dag_id]["tasks"]["commit"]["retries"] == 2 for dag_id in ours)
        seconds.append(found["seconds"])
        if seconds[-1] < SECONDS_IN_ALL:
            break
    print(f"{PIPELINES} pipelines: {min(seconds):.2f} CPU seconds, {1000 * min(seconds) / PIPELINES:.1f} ms each")
    assert min(seconds) < SECONDS_IN_ALL
    assert min(seconds) / PIPELINES < SECONDS_EACH


def _parsed(tmp_path: Path, pipelines: Path, out: Path) -> dict[str, dict[str, dict[str, dict[str, object]]]]:
    env = environment(tmp_path / "airflow") | {"CHANGEFEED_PIPELINES": str(pipelines)}
    (tmp_path / "airflow").mkdir(exist_ok=True)
    script = Path(__file__).with_name("bag_process.py")
    subprocess.run([sys.executable, str(script), str(out)], env=env, check=True, capture_output=True, timeout=280)
    return json.loads(out.read_text())  # type: ignore[no-any-return]
