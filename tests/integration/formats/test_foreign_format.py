"""A format that an installed package brings: a pipeline and the command name it as any other."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from integration.binlog_of import Binlog, binlog_of
from integration.formats.foreign_format import MODULE, installed

from changefeed.errors import SettingsError
from changefeed.formats import registry
from changefeed.formats.format import FormatSettings
from devstack.home import PROJECT
from devstack.mysql import MysqlServer

FORMATS = {
    "arrays": "acme_formats.arrays:ArraysFormat.of",
    "broken": "acme_formats.broken:Broken",
    "empty": "acme_formats.empty:empty",
    "flat": "acme_formats.arrays:ArraysFormat.of",
}
MODULES = {
    "arrays": MODULE,
    "broken": "import a_library_that_nobody_has\n",
    "empty": "def empty(settings):\n    return settings\n",
}

DECODED = """
import sys
from pathlib import Path
from changefeed.binlog.file import BinlogFileLines
from changefeed.formats.format import record_reader
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import KafkaSettings, SourceSettings
from changefeed.settings.routes import compile_routes

pipeline = Pipeline(
    name="p",
    source=SourceSettings(connection="m"),
    kafka=KafkaSettings(connection="k"),
    format={"name": "arrays", "label": "acme"},
)
format = compile_routes(pipeline).format(1)
for line in BinlogFileLines(Path(sys.argv[1]), format).lines():
    print(line.decode())
    if line.startswith(b"["):
        (change,) = record_reader(format).of(line)
        print(change.op, change.before, change.after, file=sys.stderr)
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed(tmp_path_factory.mktemp("foreign"), "acme_formats", MODULES, FORMATS)


@pytest.fixture
def file(full_mysql_server: MysqlServer, unique_name: str, tmp_path: Path) -> Path:
    binlog: Binlog = binlog_of(
        full_mysql_server,
        unique_name,
        "CREATE TABLE t (id INT PRIMARY KEY, name VARCHAR(9))",
        "INSERT INTO t VALUES (1, 'one'), (2, NULL)",
        "DELETE FROM t WHERE id = 1",
    )
    path = tmp_path / binlog.name
    path.write_bytes(binlog.data)
    return path


def python(site: Path, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, (PROJECT / "include", site)))
    return subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "PYTHONPATH": path, "COLUMNS": "300"},
        capture_output=True,
        text=True,
        timeout=600,
    )


def test_a_pipeline_that_names_a_foreign_format_decodes_with_it(site: Path, file: Path) -> None:
    shown = python(site, "-c", DECODED, file)
    assert shown.returncode == 0, shown.stderr
    rows = [line for line in shown.stdout.splitlines() if not line.startswith("{")]
    one, two = {"id": 1, "name": "one"}, {"id": 2, "name": None}
    assert [json.loads(row) for row in rows] == [
        ["acme", "c", "t", one],
        ["acme", "c", "t", two],
        ["acme", "d", "t", one],
    ]
    assert shown.stderr.splitlines() == [f"c None {one}", f"c None {two}", f"d {one} None"], "what it reads back"


def test_the_command_decodes_with_a_foreign_format(site: Path, file: Path) -> None:
    shown = python(site, "-m", "changefeed.cli.main", "decode", file, "--format", "arrays", "--tables", "*.t")
    assert shown.returncode == 0, shown.stderr
    assert '["row","c","t",{"id":1,"name":"one"}]' in shown.stdout.splitlines()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("array", "did you mean 'arrays'?"),
        ("broken", "format 'broken' cannot be loaded from 'acme_formats.broken:Broken'"),
        ("empty", "is no Format: missing key, messages, needs_definitions"),
    ],
)
def test_a_foreign_format_that_does_not_work_is_refused(site: Path, name: str, said: str) -> None:
    code = (
        "import sys\n"
        "from changefeed.errors import SettingsError\n"
        "from changefeed.formats.format import FormatSettings\n"
        "from changefeed.formats.registry import format_of\n"
        "try:\n    format_of(sys.argv[1], FormatSettings('p', 1))\n"
        "except SettingsError as error:\n    print(error)\n"
    )
    shown = python(site, "-c", code, name)
    assert said in shown.stdout, shown.stdout + shown.stderr


def test_a_foreign_format_takes_no_name_of_changefeed_itself(site: Path, file: Path) -> None:
    shown = python(site, "-m", "changefeed.cli.main", "decode", file, "--format", "flat")
    assert '{"id":1,"name":"one"}' in shown.stdout.splitlines(), shown.stdout + shown.stderr


def test_two_packages_with_a_format_of_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("acme_one", "acme_two"):
        folder = tmp_path / package
        folder.mkdir()
        monkeypatch.syspath_prepend(installed(folder, package, {"it": "It = dict\n"}, {"it": f"{package}.it:It"}))
    registry._brought.cache_clear()
    try:
        with pytest.raises(SettingsError, match="format 'it' is brought by 2 packages"):
            registry.format_of("it", FormatSettings("p", 1))
    finally:
        registry._brought.cache_clear()
