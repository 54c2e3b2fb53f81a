"""Which way imports point: section 3 of the design, read from the sources with ast.

dags, jobs, plugins -> changefeed edges (airflow command spark upkeep runs kafka mysql state archive) -> core
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PACKAGE = PROJECT / "include" / "changefeed"
CORE = "core"
"""The modules that stand in the package itself."""

PURE = (CORE, "pipelines", "binlog", "ddl", "formats", "batches")
"""Rooms that compute: bytes and values in, bytes and values out."""

CLIENTS = {"airflow", "pyspark", "pyarrow", "kafka", "confluent_kafka", "pymysql", "pymysqlreplication", "sqlalchemy",
           "typer", "fsspec"}  # fmt: skip

ROOM_OF = {
    # library: the rooms that may import it, the first of which is its home; each further one with its reason
    "airflow": {
        "airflow": "home",
        "state": "the store of Airflow Variables",
        "dags": "defines DAGs",
        "plugins": "defines pages of Airflow",
    },
    "pendulum": {"airflow": "home: Airflow's dates", "dags": "start dates", "plugins": "dates of runs"},
    "pyspark": {"spark": "home"},
    "py4j": {"spark": "home"},
    "lz4": {"batches": "home: record batches"},
    "snappy": {"batches": "home: record batches"},
    "pyarrow": {"spark": "home: the batches between Spark and Python", "transforms": "batches for functions"},
    "google_crc32c": {"kafka": "home: the checksum of record batches"},
    "kafka": {"kafka": "home", "devstack": "shows and verifies what is in the topics, independently of the package"},
    "pymysql": {"mysql": "home", "devstack": "starts the servers and waits until they answer"},
    "pymysqlreplication": {"mysql": "home: the reference reader"},
    "sqlalchemy": {"state": "home", "plugins": "queries of Airflow's own database, over Airflow's own session"},
    "tenacity": {
        "state": "home: a table that two processes create at once",
        "schema_registry": "requests that a registry did not answer",
        "devstack": "the demo's writer outlives its server",
    },
    "sqlglot": {"ddl": "home", "pipelines": "conditions for rows"},
    "numba": {"binlog": "home"},
    "llvmlite": {"binlog": "home: with numba"},
    "numpy": {
        "binlog": "home: the arrays that the kernel runs on",
        "batches": "a block's arrays, for the kernel",
        "transforms": "the kernel's output",
        "verify": "checksums of many rows, for the kernel",
        "replicate": "the turns of records, which are put in order",
    },
    "zstandard": {"binlog": "home: compressed transactions", "batches": "record batches"},
    "fsspec": {"archive": "home"},
    "yaml": {"pipelines": "home"},
    "pydantic": {
        "pipelines": "home",
        "upkeep": "the request of a backfill",
        "snapshot": "the request of a snapshot",
        "verify": "the request of a comparison",
        "plugins": "bodies of requests",
    },
    "pydantic_core": {"pipelines": "home"},
    "croniter": {"pipelines": "home: a pipeline's schedule"},
    "typer": {"command": "home", "devstack": "its own command, which is not the package's"},
    "rich": {
        "command": "home",
        "spark": "the bar of a running job, shown by the driver that the command runs in",
        "devstack": "bars of downloads",
    },
    "orjson": {
        CORE: "home: the checkpoint's text",
        "binlog": "spelling of doubles, and JSON text",
        "command": "prints rows of files and records of topics",
        "formats": "rendering",
        "transforms": "rows of functions",
        "kafka": "the schema history",
        "replicate": "a follower's position, and records",
        "schema_registry": "its answers",
        "spark": "what tasks tell the driver",
        "verify": "records, and the text of which checksums are made",
        "plugins": "answers of the REST API",
    },
    "fastapi": {"plugins": "home"},
    "starlette": {"plugins": "home: what FastAPI calls a middleware with"},
    "cryptography": {"devstack": "a trust store for a JRE that has none"},
}
MAY_IMPORT = {
    CORE: set(),
    "formats": {CORE},
    "pipelines": {CORE, "formats"},
    "ddl": {CORE},
    "binlog": {CORE, "formats", "pipelines"},
    "transforms": {CORE, "binlog", "formats", "pipelines"},
    "state": {CORE, "pipelines"},
    "batches": {CORE, "binlog"},
    "kafka": {CORE, "batches"},
    "archive": {CORE, "binlog"},
    "mysql": {CORE, "binlog", "ddl", "formats", "pipelines"},
    "schema_registry": {CORE, "formats"},
    "endpoints": {CORE, "formats", "kafka", "mysql", "pipelines", "schema_registry"},
    "runs": {CORE, "archive", "binlog", "ddl", "endpoints", "formats", "kafka", "mysql", "pipelines",
             "schema_registry", "state"},
    "snapshot": {CORE, "binlog", "ddl", "endpoints", "formats", "kafka", "mysql", "pipelines", "runs"},
    "verify": {CORE, "batches", "binlog", "ddl", "endpoints", "formats", "kafka", "mysql", "pipelines", "runs",
               "snapshot"},
    "spark": {CORE, "archive", "batches", "binlog", "ddl", "endpoints", "formats", "kafka", "mysql", "pipelines",
              "runs", "schema_registry", "snapshot", "transforms", "verify"},
    "upkeep": {CORE, "archive", "binlog", "ddl", "endpoints", "formats", "kafka", "mysql", "pipelines", "runs",
               "state", "transforms"},
    "replicate": {CORE, "batches", "binlog", "ddl", "endpoints", "formats", "kafka", "mysql", "pipelines", "runs"},
    "airflow": {CORE, "archive", "endpoints", "kafka", "pipelines", "runs", "snapshot", "spark", "state", "upkeep",
                "verify"},
    "command": {CORE, "airflow", "archive", "binlog", "ddl", "endpoints", "formats", "kafka", "mysql", "pipelines",
                "replicate", "runs", "snapshot", "spark", "state", "transforms", "upkeep", "verify"},
}  # fmt: skip

MAY_IMPORT_INSIDE = {
    "binlog": {
        # A part of the room: the parts that it may import; what stands in the room itself may import all of them.
        "kernel": set(),
        "events": {"kernel"},
        "programs": {"events", "kernel"},
        "search": {"events", "kernel"},
    }
}
"""Rooms that are halls, and what the parts of one may import of the others."""

LONGEST = 400

NO_NOUN = {"util", "utils", "helper", "helpers", "common", "misc", "core", "base", "lib", "tools", "shared"}


@dataclass(frozen=True)
class Import:
    path: Path
    room: str
    line: int
    module: str

    @property
    def library(self) -> str:
        return self.module.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.path.relative_to(PROJECT)}:{self.line} imports {self.module}"


def rooms() -> set[str]:
    return {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.rglob("*.py"))}


def room_of(path: Path) -> str:
    if path.is_relative_to(PACKAGE):
        parts = path.relative_to(PACKAGE).parts
        return parts[0] if len(parts) > 1 else CORE
    parts = path.relative_to(PROJECT).parts
    return parts[1] if parts[0] == "include" else parts[0]


def sources() -> list[Path]:
    folders = (PROJECT / name for name in ("include", "dags", "jobs", "plugins"))
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def imports() -> Iterator[Import]:
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}:{node.lineno}: imports are written in full"
                # `from changefeed.mysql import source` imports the module changefeed.mysql.source
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            yield from (Import(path, room_of(path), node.lineno, name) for name in names)


IMPORTS = list(imports())


def target_room(module: str) -> str:
    """The room of a module of the package."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (PACKAGE / parts[1]).is_dir() else CORE


def told(found: list[Import]) -> str:
    return "\n".join(map(str, found))


@pytest.mark.parametrize("room", PURE)
def test_rooms_that_compute_import_no_client(room: str) -> None:
    found = [one for one in IMPORTS if one.room == room and one.library in CLIENTS]
    assert not found, told(found)


def test_nothing_imports_dags_jobs_or_plugins() -> None:
    entries = {"dags", "jobs", "plugins"} | {path.stem for path in sources() if room_of(path) in ("dags", "plugins")}
    found = [one for one in IMPORTS if one.library in entries and one.room not in ("dags", "plugins")]
    found = [one for one in found if not (one.path.parent / f"{one.library}.py").exists()]
    assert not found, told(found)


def test_the_package_does_not_import_the_devstack() -> None:
    found = [one for one in IMPORTS if one.library == "devstack" and one.room != "devstack"]
    assert not found, told(found)


def test_the_devstack_does_not_import_the_edges() -> None:
    """It shows and verifies from outside what the package does."""
    found = [one for one in IMPORTS if one.room == "devstack" and one.library == "changefeed"]
    found = [one for one in found if target_room(one.module) not in PURE]
    assert not found, told(found)


def test_each_library_is_imported_by_its_room_only() -> None:
    third_party = [one for one in IMPORTS if one.library not in sys.stdlib_module_names | {"changefeed", "devstack"}]
    third_party = [one for one in third_party if not (one.path.parent / f"{one.library}.py").exists()]
    third_party = [one for one in third_party if not (PROJECT / "plugins" / one.library).is_dir()]
    found = [one for one in third_party if one.room not in ROOM_OF.get(one.library, {})]
    assert not found, told(found)


def test_each_room_imports_only_the_rooms_below_it() -> None:
    assert rooms() <= MAY_IMPORT.keys(), "a new room: say here what it may import"
    found = [
        one
        for one in IMPORTS
        if one.library == "changefeed" and one.room in MAY_IMPORT and one.path.is_relative_to(PACKAGE)
    ]
    found = [one for one in found if target_room(one.module) not in MAY_IMPORT[one.room] | {one.room}]
    assert not found, told(found)


@pytest.mark.parametrize("room", sorted(MAY_IMPORT_INSIDE))
def test_each_part_of_a_hall_imports_only_the_parts_below_it(room: str) -> None:
    parts = MAY_IMPORT_INSIDE[room]
    assert {path.name for path in (PACKAGE / room).iterdir() if any(path.glob("*.py"))} == parts.keys()
    wrong = []
    for one in IMPORTS:
        if one.path.is_relative_to(PACKAGE / room) and one.module.startswith(f"changefeed.{room}."):
            part, target = one.path.relative_to(PACKAGE / room).parts[0], one.module.split(".")[2]
            if part in parts and target not in parts[part] | {part}:
                wrong.append(one)
    assert not wrong, told(wrong)


def test_rooms_do_not_import_each_other_in_a_circle() -> None:
    edges: dict[str, set[str]] = {}
    for one in IMPORTS:
        if one.path.is_relative_to(PACKAGE) and one.library == "changefeed" and target_room(one.module) != one.room:
            edges.setdefault(one.room, set()).add(target_room(one.module))
    try:
        TopologicalSorter(edges).prepare()
    except CycleError as error:
        pytest.fail(f"rooms import each other: {' -> '.join(error.args[1])}")


def test_each_file_is_named_after_what_it_is() -> None:
    found = [path for path in sources() if path.stem in NO_NOUN or path.parent.name in NO_NOUN]
    assert not found


def test_no_file_is_longer_than_one_noun_needs() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in sources()}
    found = [f"{path}: {lines} lines" for path, lines in lengths.items() if lines > LONGEST]
    assert not found, "\n".join(found)
