"""changefeed init: asks or takes options, checks, and writes a pipeline's YAML once."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import changefeed.cli.main
from changefeed.cli.app import app
from changefeed.errors import SettingsError
from changefeed.settings.file import load_pipeline
from changefeed.settings.new_pipeline import NO_SCHEDULE, NewPipeline

_ANSWERS = ("shop", "--source", "mysql_shop", "--kafka", "kafka_shop", "--tables", "shop.*", "--tables", "crm.a?b")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CHANGEFEED_PIPELINES", str(tmp_path / "pipelines"))
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    return tmp_path / "pipelines"


def _init(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["init", *arguments])
    if isinstance(done.exception, SettingsError):
        return 1, done.stdout, str(done.exception)
    return done.exit_code, done.stdout, done.stderr


@pytest.mark.parametrize("word", ["shop", "no", "null", "on", "y", "e1", "a-b", "x_y"])
def test_yaml_of_a_new_pipeline_has_its_settings(word: str) -> None:
    tables = (f"{word}.*", 'a\'b."c"', "re:d\\.e.*")
    new = NewPipeline(word, word, word, tables, "avro", word, NO_SCHEDULE, "b.000001:4", checkpoint=word)
    made = new.pipeline()
    assert (made.name, made.source.connection, made.kafka.connection) == (word, word, word)
    assert tuple(made.tables.include) == new.tables
    assert (made.format.name, made.format.registry, made.schedule, made.start) == ("avro", word, None, "b.000001:4")
    assert (made.checkpoint.store, made.checkpoint.connection) == ("table", word)
    assert NewPipeline(store="kafka").pipeline().checkpoint.store == "kafka"


def test_yaml_of_a_new_pipeline_hides_columns() -> None:
    mask = {"a.b.c": {"text": None}, "a.b.*": {"text": "no"}, "x.y.z": {"hmac_sha256": {"connection": "key"}}}
    columns = NewPipeline(exclude=("a.b.d", 'a."b.e'), mask=mask).pipeline().columns
    assert columns.exclude == ["a.b.d", 'a."b.e']
    assert {name: one.model_dump(exclude_unset=True) for name, one in columns.mask.items()} == mask


def test_init_with_options_writes_a_pipeline_and_no_file_twice(folder: Path) -> None:
    code, out, _ = _init(*_ANSWERS, "--no-check", "--schedule", "@hourly", "--start", "latest")
    assert code == 0
    assert "changefeed run shop" in out
    made = load_pipeline("shop")
    assert (made.tables.include, made.schedule, made.start) == (["shop.*", "crm.a?b"], "@hourly", "latest")
    assert made.checkpoint.store == "kafka", "there is no Airflow here"
    before = (folder / "shop.yaml").read_text()
    code, _, error = _init(*_ANSWERS, "--no-check")
    assert (code, "'shop', which" in error) == (1, True)
    (folder / "shop.yaml").rename(folder / "other.yml")
    assert _init(*_ANSWERS, "--no-check")[0] == 1, "another file has that name"
    assert [path.read_text() for path in folder.glob("*.y*ml")] == [before]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ((), "expected NAME, --source, --kafka, --tables"),
        (("Shop", *_ANSWERS[1:]), "'name'"),
        ((*_ANSWERS, "--format", "avro"), "needs a schema registry"),
        ((*_ANSWERS, "--format", "debezum"), "debezium"),
        ((*_ANSWERS, "--schedule", "often"), "cron expression"),
        ((*_ANSWERS, "--start", "now"), "snapshot"),
    ],
)
def test_init_refuses_wrong_and_missing_answers(folder: Path, arguments: tuple[str, ...], expected: str) -> None:
    code, _, error = _init(*arguments, "--no-check")
    assert code == 1
    assert expected in error
    assert not list(folder.glob("*.yaml"))


def test_init_writes_nothing_if_a_check_fails(folder: Path) -> None:
    code, out, error = _init(*_ANSWERS, "--json")
    assert (code, json.loads(out)["file"]) == (1, None)
    assert "AIRFLOW_CONN_MYSQL_SHOP" in json.loads(out)["check"]["wrong"][0]
    assert "No file was written" in error
    assert not folder.exists()


def test_init_asks_at_a_terminal_and_repeats_refused_questions(folder: Path) -> None:
    environment = {
        "AIRFLOW_CONN_MYSQL_SHOP": "mysql://root:secret@127.0.0.1:1",
        "AIRFLOW_HOME": str(folder.parent),
        "CHANGEFEED_PIPELINES": str(folder),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(Path(changefeed.cli.main.__file__).parents[2]),
    }
    reader, terminal = pty.openpty()
    command = [sys.executable, "-m", "changefeed.cli.main", "init", "--no-check", "--json", "--kafka", "kafka_shop"]
    answers = ["Shop!", "shop", "mysql_shop", "shop.*  crm.*", "avro", "registry", "", "none", "state"]
    os.write(reader, "".join(f"{answer}\n" for answer in answers).encode())
    done = subprocess.run(
        command, env=environment, stdin=terminal, stderr=terminal, stdout=subprocess.PIPE, text=True, check=False
    )
    os.close(terminal)
    asked = os.read(reader, 100_000).decode()
    os.close(reader)
    assert done.returncode == 0, asked
    assert asked.count("Name of the pipeline") == 2
    assert "(mysql_shop)" in asked
    assert "secret" not in asked
    assert json.loads(done.stdout)["file"] == str(folder / "shop.yaml")
    made = load_pipeline("shop", folder)
    assert (made.tables.include, made.format.registry, made.start) == (["shop.*", "crm.*"], "registry", "snapshot")
    assert (made.schedule, made.checkpoint.connection) == (None, "state")
