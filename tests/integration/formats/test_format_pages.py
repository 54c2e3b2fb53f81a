"""The example on each format's page is what the server's binlog becomes."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from integration.binlog_of import SERVER_UUID, binlog_of

from changefeed.binlog.file import BinlogFileLines
from changefeed.formats.format import FormatSettings, Shown
from changefeed.formats.registry import format_of, known_names
from devstack.mysql import MysqlServer

DOCS = Path(__file__).resolve().parents[3] / "docs" / "reference" / "formats"
PAGES = sorted(path.stem for path in DOCS.glob("*.md") if "each shown as its key and its value:" in path.read_text())


def _block(page: str, language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found is not None, f"the page has no block of {language}"
    return found[1]


_COMMITTED = "SET original_commit_timestamp = 1769860800000000"
"""When the next transaction was committed, says its GTID."""


def _plain(text: str, name: str) -> str:
    """``text`` without what differs from server to server: names of binlog files, positions, GTIDs."""
    text = re.sub(
        r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}:", f"{SERVER_UUID}:", text.replace(name, "binlog.000012")
    )
    return re.sub(
        r"(binlog\.000012:|\"(?:pos|log_pos|xid|position|sequence|offset|thread)\":|[0-9a-f-]{36}:)\d+", r"\g<1>0", text
    )


@pytest.mark.parametrize("page", PAGES)
def test_the_example_of_a_page_is_what_its_statements_become(
    full_mysql_server: MysqlServer, unique_name: str, page: str
) -> None:
    text = (DOCS / f"{page}.md").read_text()
    options: dict[str, Any] = yaml.safe_load(_block(text, "yaml"))["format"]
    format = format_of(options.pop("name"), FormatSettings("shop", 1_769_860_801_000, options=options))
    binlog = binlog_of(
        full_mysql_server,
        unique_name,
        "SET timestamp = 1769860800, time_zone = '+00:00'",
        *(part for line in _block(text, "sql").splitlines() for part in (_COMMITTED, line)),
    )
    show = format.show if isinstance(format, Shown) else bytes
    parts = [part for message in binlog.messages(format) for part in (message.key, message.value)]
    lines = [b"null" if part is None else show(part) for part in parts]
    made = "".join(line.decode() + "\n" for line in lines).replace(unique_name, "shop")
    assert _plain(made, binlog.name) == _plain(_block(text, "json"), "binlog.000012")
    for line in lines:
        orjson.loads(line)


@pytest.mark.parametrize("name", list(known_names()))
def test_decode_prints_each_format_as_lines(
    full_mysql_server: MysqlServer, unique_name: str, tmp_path: Path, name: str
) -> None:
    binlog = binlog_of(
        full_mysql_server,
        unique_name,
        "CREATE TABLE t (id INT PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
        "UPDATE t SET id = 2",
        "DELETE FROM t",
    )
    path = tmp_path / binlog.name
    path.write_bytes(binlog.data)
    lines = [orjson.loads(line) for line in BinlogFileLines(path, format_of(name, FormatSettings("decode", 0))).lines()]
    assert [line.get("sql", "row") for line in lines] == ["CREATE TABLE t (id INT PRIMARY KEY)", *["row"] * 3]


def test_every_format_has_a_page_with_an_example() -> None:
    assert {"debezium", "flat", "maxwell", "cloudevents", "fluvio", "event"} <= set(PAGES)
