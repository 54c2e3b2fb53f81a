"""The README's examples produce what it shows."""

from __future__ import annotations

import json
import re
import shlex
from typing import Any, cast

from integration.binlog.test_decode_features import decoded
from typer.main import get_command

import changefeed.cli.main  # noqa: F401 - adds the commands
from changefeed.cli.app import app
from devstack.home import PROJECT
from devstack.mysql import MysqlServer

README = (PROJECT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    """The README's blocks of code in ``language``."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def shape(value: Any) -> Any:
    """The keys of a JSON value in their order, with the types of their values."""
    return [(key, shape(inner)) for key, inner in value.items()] if isinstance(value, dict) else type(value)


def test_sample_record_of_the_readme_is_produced_by_its_statement(
    full_mysql_server: MysqlServer, unique_name: str
) -> None:
    statement, sample = blocks("sql")[0], json.loads(blocks("json")[0])

    def work(cursor: Any) -> None:
        cursor.execute("CREATE TABLE orders (id INT PRIMARY KEY, status VARCHAR(10), total DECIMAL(10,2))")
        cursor.execute("INSERT INTO orders VALUES (7, 'new', 10.50)")
        cursor.execute(statement.replace("shop.", f"{unique_name}."))

    record = decoded(full_mysql_server, unique_name, work).values[-1]
    assert shape(record) == shape(sample)
    assert (record["op"], record["before"], record["after"]) == (sample["op"], sample["before"], sample["after"])
    fixed = ("version", "connector", "snapshot", "table", "row")
    assert [record["source"][key] for key in fixed] == [sample["source"][key] for key in fixed]


def test_commands_of_the_readme_exist_with_their_options() -> None:
    lines = [line.partition(" #")[0] for block in blocks("sh") for line in block.splitlines()]
    shown = [shlex.split(line)[1:] for line in lines if line.startswith("changefeed ")]
    assert len(shown) > 8
    commands = cast(Any, get_command(app)).commands
    for name, *arguments in shown:
        options = [option for parameter in commands[name].params for option in parameter.opts]
        assert [word for word in arguments if word.startswith("-") and word not in options] == []
