"""Which way imports point: the floors of docs/explanation/architecture.md, read from the sources with ast."""

from __future__ import annotations

import ast
import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]
PACKAGE = PROJECT / "include" / "changefeed"
CORE = "core"
"""Modules of the package itself: its errors, and its version."""

PURE = (CORE, "model", "native", "records", "formats", "ddl", "binlog", "settings")
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
    "openlineage": {"airflow": "home"},
    "pendulum": {"airflow": "home: Airflow's dates", "dags": "start dates", "plugins": "dates of runs"},
    "pyspark": {"spark": "home", "ingest": "its stages", "snapshot": "its stages", "verify": "its stages"},
    "py4j": {"spark": "home"},
    "requests": {"airflow": "home: YARN's ResourceManager, with the credentials of Airflow's Spark provider"},
    "kubernetes": {"airflow": "home: the errors of the client that Airflow's provider configures"},
    "urllib3": {"airflow": "the errors of that client when nobody answers"},
    "lz4": {"records": "home: record batches"},
    "snappy": {"records": "home: record batches"},
    "pyarrow": {
        "spark": "home: the batches between Spark and Python",
        "transforms": "batches for functions",
        "ingest": "what its tasks return",
        "snapshot": "what its tasks return",
        "verify": "what its tasks return",
    },
    "google_crc32c": {"kafka": "home: the checksum of record batches"},
    "kafka": {"kafka": "home", "devstack": "shows and verifies what is in the topics, independently of the package"},
    "pymysql": {"source": "home", "devstack": "starts the servers and waits until they answer"},
    "pymysqlreplication": {"source": "home: the reference reader"},
    "sqlalchemy": {"state": "home", "plugins": "queries of Airflow's own database, over Airflow's own session"},
    "tenacity": {
        "state": "home: a table that two processes create at once",
        "kafka": "requests that a registry did not answer",
        "devstack": "the demo's writer outlives its server",
    },
    "sqlglot": {"ddl": "home", "settings": "conditions for rows"},
    "numba": {"native": "home", "binlog": "types of its workspace", "transforms": "types of its kernel"},
    "llvmlite": {"native": "home: with numba"},
    "numpy": {
        "native": "home: the arrays that kernels run on",
        "binlog": "the arrays of its kernels",
        "records": "a block's arrays, for the kernel",
        "formats": "what the kernel finds in envelopes",
        "source": "the words of the kernel that finds packets",
        "transforms": "the kernel's output",
        "verify": "checksums of many rows, for the kernel",
        "replicate": "the order keys of records, which are put in order",
    },
    "zstandard": {"binlog": "home: compressed transactions", "records": "record batches"},
    "fsspec": {"source": "home"},
    "re2": {"model": "home: patterns of users"},
    "yaml": {"settings": "home"},
    "pydantic": {
        "settings": "home",
        "plugins": "the body that is a pipeline's file",
    },
    "pydantic_core": {"settings": "home"},
    "croniter": {"settings": "home: a pipeline's schedule"},
    "typer": {"cli": "home", "devstack": "its own command, which is not the package's"},
    "rich": {
        "cli": "home",
        "spark": "the line of a running job, shown by the driver that the command runs in",
        "devstack": "bars of downloads",
    },
    "orjson": {
        "model": "home: the checkpoint's text",
        "binlog": "spelling of doubles, and JSON text",
        "cli": "prints rows of files and records of topics",
        "operations": "decodes records of topics for people",
        "formats": "rendering",
        "transforms": "rows of functions",
        "kafka": "the schema history, and a registry's answers",
        "replicate": "a follower's position, and records",
        "spark": "what tasks report to the driver",
        "snapshot": "what tasks report to the driver",
        "ingest": "what tasks report to the driver",
        "verify": "records, and the text of which checksums are made",
        "plugins": "answers of the REST API",
    },
    "fastapi": {"plugins": "home"},
    "starlette": {"plugins": "home: what FastAPI calls a middleware with"},
    "cryptography": {
        "kafka": "home: signatures and encryption in the commit log",
        "state": "decrypts Airflow's Variables, without Airflow",
        "devstack": "a trust store for a JRE that has none",
    },
}
MAY_IMPORT_INSIDE = {
    "binlog": {
        # A part of the room: the parts that it may import; modules of the room itself may import all of them.
        "kernel": set(),
        "events": {"kernel"},
        "programs": {"events", "kernel"},
        "search": {"events", "kernel", "programs"},
    }
}
"""Rooms that are halls, and what the parts of one may import of the others."""

CONTRACT = {"by_table", "connect_types", "format", "notation", "style", "template"}
"""The modules of formats that say what a format is: binlog writes rows of any format by them, and knows no other."""

FORMATS = {"avro", "cloudevents", "debezium", "envelope", "envelope_kernel", "event", "flat", "fluvio", "maxwell"}
"""Modules of one format: other code asks the `Format`."""

LONGEST = 800


def floors() -> list[set[str]]:
    """The rooms of each line of the block in docs/explanation/architecture.md, the lowest first."""
    block = (PROJECT / "docs" / "explanation" / "architecture.md").read_text().split("```floors\n")[1].split("```")[0]
    lines = [line.partition("   ")[0] if "   " in line else line.partition("  ")[0] for line in block.splitlines()]
    return [set(line.split()) for line in lines]


FLOOR = {room: floor for floor, rooms in enumerate([{CORE}, *floors()]) for room in rooms}

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


@functools.cache
def imports() -> list[Import]:
    """All imports of the project. The tests call it, as collecting them takes seconds."""
    return list(_imports())


def _imports() -> Iterator[Import]:
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{path}:{node.lineno}: imports are written in full"
                # `from changefeed.source.mysql import source` imports the module changefeed.source.mysql.source
                names = [f"{node.module}.{alias.name}" for alias in node.names]
            else:
                continue
            yield from (Import(path, room_of(path), node.lineno, name) for name in names)


def target_room(module: str) -> str:
    """The room of a module of the package."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and (PACKAGE / parts[1]).is_dir() else CORE


def import_lines(found: list[Import]) -> str:
    return "\n".join(map(str, found))


@pytest.mark.parametrize("room", PURE)
def test_rooms_that_compute_import_no_client(room: str) -> None:
    found = [one for one in imports() if one.room == room and one.library in CLIENTS]
    assert not found, import_lines(found)


def of_formats(one: Import) -> str:
    """Which module of formats is imported; '' for another room's."""
    return one.module.split(".")[2] if one.module.startswith("changefeed.formats.") else ""


def test_binlog_imports_only_the_contract_of_formats() -> None:
    found = [one for one in imports() if one.room == "binlog" and of_formats(one) and of_formats(one) not in CONTRACT]
    assert not found, import_lines(found)


def test_no_other_room_imports_a_single_format() -> None:
    found = [one for one in imports() if one.room != "formats" and of_formats(one) in FORMATS]
    assert not found, import_lines(found)


def test_nothing_imports_dags_jobs_or_plugins() -> None:
    entries = {"dags", "jobs", "plugins"} | {path.stem for path in sources() if room_of(path) in ("dags", "plugins")}
    found = [one for one in imports() if one.library in entries and one.room not in ("dags", "plugins")]
    found = [one for one in found if not (one.path.parent / f"{one.library}.py").exists()]
    assert not found, import_lines(found)


def test_the_package_does_not_import_the_devstack() -> None:
    found = [one for one in imports() if one.library == "devstack" and one.room != "devstack"]
    assert not found, import_lines(found)


def test_the_devstack_does_not_import_the_edges() -> None:
    """It shows and verifies from outside what the package does."""
    found = [one for one in imports() if one.room == "devstack" and one.library == "changefeed"]
    found = [one for one in found if target_room(one.module) not in PURE]
    assert not found, import_lines(found)


def test_each_library_is_imported_by_its_room_only() -> None:
    third_party = [one for one in imports() if one.library not in sys.stdlib_module_names | {"changefeed", "devstack"}]
    third_party = [one for one in third_party if not (one.path.parent / f"{one.library}.py").exists()]
    third_party = [one for one in third_party if not (PROJECT / "plugins" / one.library).is_dir()]
    found = [one for one in third_party if one.room not in ROOM_OF.get(one.library, {})]
    assert not found, import_lines(found)


def test_every_room_has_its_floor() -> None:
    assert rooms() == FLOOR.keys() - {CORE}


def test_each_room_imports_only_the_rooms_of_floors_below_it() -> None:
    """Which also says that no circle is there, and that capabilities do not know each other."""
    found = [one for one in imports() if one.library == "changefeed" and one.path.is_relative_to(PACKAGE)]
    found = [one for one in found if target_room(one.module) != one.room]
    found = [one for one in found if FLOOR[target_room(one.module)] >= FLOOR[one.room]]
    assert not found, import_lines(found)


@pytest.mark.parametrize("room", sorted(MAY_IMPORT_INSIDE))
def test_each_part_of_a_hall_imports_only_the_parts_below_it(room: str) -> None:
    parts = MAY_IMPORT_INSIDE[room]
    assert {path.name for path in (PACKAGE / room).iterdir() if any(path.glob("*.py"))} == parts.keys()
    wrong = []
    for one in imports():
        if one.path.is_relative_to(PACKAGE / room) and one.module.startswith(f"changefeed.{room}."):
            part, target = one.path.relative_to(PACKAGE / room).parts[0], one.module.split(".")[2]
            if part in parts and target not in parts[part] | {part}:
                wrong.append(one)
    assert not wrong, import_lines(wrong)


def test_each_file_is_named_after_what_it_is() -> None:
    found = [path for path in sources() if path.stem in NO_NOUN or path.parent.name in NO_NOUN]
    assert not found


def test_no_file_is_a_drawer() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in sources()}
    found = [f"{path}: {lines} lines" for path, lines in lengths.items() if lines > LONGEST]
    assert not found, "\n".join(found)
