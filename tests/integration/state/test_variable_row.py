"""Variables that Airflow wrote, read without Airflow."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from airflow_database import create_database

WRITE = """
from changefeed.state.variable_store import MetadataVariables
MetadataVariables().set("greeting", "moin, Ötzi", "")
"""
READ = """
import json, sys
from changefeed.cli.variables import CommandVariables
from changefeed.errors import ChangefeedError
try:
    found = [CommandVariables().get(key) for key in ("greeting", "absent")]
except ChangefeedError as error:
    found = [type(error).__name__]
print(json.dumps({"found": found, "imported": "airflow" in sys.modules}))
"""
KEY = "d3JpdHRlbi13aXRoLXRoaXMta2V5LW9mLXRlc3RzISE="
OTHER_KEY = "bm90LXdyaXR0ZW4td2l0aC10aGlzLWtleS1hdC1hbGw="
NO_DATABASE = "sqlite:////dev/null/airflow.db"
READABLE = ["moin, Ötzi", None]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of an Airflow with an encrypted Variable, and with an airflow.cfg that Airflow created."""
    env = create_database(tmp_path_factory.mktemp("variables"), {"AIRFLOW__CORE__FERNET_KEY": KEY})
    run(env, WRITE)
    return env


def run(env: dict[str, str], code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("settings", "found", "imported"),
    [
        ({}, READABLE, False),
        ({"AIRFLOW__CORE__FERNET_KEY": f"{OTHER_KEY},{KEY}"}, READABLE, False),
        ({"AIRFLOW__CORE__FERNET_KEY": OTHER_KEY}, ["CheckpointError"], True),
        ({"AIRFLOW__DATABASE__SQL_ALCHEMY_SCHEMA": "main"}, READABLE, True),
        ({"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": ""}, READABLE, True),
        (
            {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "sqlite:////dev/null/airflow.db"},
            ["StateStoreUnavailableError"],
            True,
        ),
    ],
    ids=["same key", "rotated key", "another key", "schema", "database from AIRFLOW_HOME", "no database"],
)
def test_variable_is_read_without_airflow_or_as_airflow_reads_it(
    written: dict[str, str], settings: dict[str, str], found: list[str | None], imported: bool
) -> None:
    env = {name: value for name, value in {**written, **settings}.items() if value}
    answer = json.loads(run(env, READ).splitlines()[-1])
    assert answer == {"found": found, "imported": imported}


def test_variable_in_the_schema_of_an_airflow_cfg_is_read_by_airflow(written: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "airflow.cfg").write_text("[database]\nsql_alchemy_schema = main\n")
    answer = json.loads(run({**written, "AIRFLOW_CONFIG": str(tmp_path / "airflow.cfg")}, READ).splitlines()[-1])
    assert answer == {"found": READABLE, "imported": True}
