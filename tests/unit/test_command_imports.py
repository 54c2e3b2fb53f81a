"""What commands import: a library that a command does not use costs it CPU seconds at each call."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from changefeed import __version__

INCLUDE = Path(__file__).parents[2] / "include"
HEAVY = {"airflow", "fsspec", "numba", "numpy", "pandas", "pyarrow", "py4j", "pyspark", "pymysqlreplication", "sqlglot"}
YAML = """\
name: shop
source: {{connection: mysql}}
kafka: {{connection: kafka}}
tables: {{include: ["shop.*"]}}
checkpoint: {checkpoint}
"""
STORES = {"table": "{store: table, connection: state}", "variable": "{store: variable}"}
RUN = """
import sys
from changefeed.cli.main import main
sys.argv[0] = "changefeed"
try:
    main()
except SystemExit:
    print("imported:", *{name.partition(".")[0] for name in sys.modules})
"""


def imported_by(folder: Path, *arguments: str, **variables: str) -> tuple[set[str], str]:
    """The libraries that `changefeed` has imported at its end, and its complete output, with more environment
    ``variables``.

    Nothing listens at the port of MySQL.
    """
    with sqlite3.connect(folder / "airflow.db") as database:
        database.execute("CREATE TABLE IF NOT EXISTS variable (id INT, key TEXT, val TEXT, is_encrypted BOOLEAN)")
    environment = {
        "AIRFLOW_CONN_KAFKA": "kafka://127.0.0.1:1",
        "AIRFLOW_CONN_MYSQL": "mysql://root:secret@127.0.0.1:1",
        "AIRFLOW_CONN_STATE": f"sqlite:///{folder / 'state.db'}",
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder / 'airflow.db'}",
        "CHANGEFEED_PIPELINES": str(folder),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(INCLUDE),
        **variables,
    }
    command = [sys.executable, "-c", RUN, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    output, _, imported = done.stdout.partition("imported:")
    assert imported, done.stderr
    return set(imported.split()), output + done.stderr


@pytest.mark.parametrize(("option", "printed"), [("--help", "status"), ("--version", f"changefeed {__version__}\n")])
def test_help_and_version_import_no_client(option: str, printed: str, tmp_path: Path) -> None:
    imported, output = imported_by(tmp_path, option)
    assert printed in output
    assert not imported & (HEAVY | {"kafka", "pymysql", "sqlalchemy"})


def test_completion_has_names_of_pipelines_and_imports_no_client(tmp_path: Path) -> None:
    for name in ("shop", "shopping", "orders"):
        (tmp_path / f"{name}.yaml").write_text(YAML.format(checkpoint=STORES["table"]).replace("shop", name, 1))
    (tmp_path / "broken.yaml").write_text("source: [")
    variables = {"_CHANGEFEED_COMPLETE": "complete_bash", "COMP_WORDS": "changefeed status sh", "COMP_CWORD": "2"}
    imported, output = imported_by(tmp_path, **variables)
    assert output.splitlines() == ["shop", "shopping"]
    assert not imported & (HEAVY | {"kafka", "pymysql", "sqlalchemy"})


@pytest.mark.parametrize("store", STORES)
@pytest.mark.parametrize("command", ["status", "lag"])
def test_status_in_error_and_lag_import_clients_of_source_and_store_only(
    tmp_path: Path, command: str, store: str
) -> None:
    (tmp_path / "shop.yaml").write_text(YAML.format(checkpoint=STORES[store]))
    imported, output = imported_by(tmp_path, command, "shop")
    assert "SourceUnavailableError" in output  # the store was read before
    assert imported >= {"pymysql", "sqlalchemy"}
    assert not imported & (HEAVY | {"kafka"})


@pytest.mark.parametrize("module", ["state.kafka_store", "pipeline.windows", "ingest.cut"])
def test_reading_the_commit_log_imports_no_kernel(module: str) -> None:
    """An idle run plans, and ends."""
    code = f"import sys, changefeed.{module}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(INCLUDE)},
        capture_output=True,
        text=True,
        check=True,
    )
    imported = set(done.stdout.split())
    assert "kafka" in imported
    assert not imported & HEAVY
