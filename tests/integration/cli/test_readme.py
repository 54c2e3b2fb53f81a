"""What the README shows is what happens."""

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
    """The keys of a JSON value in their order, and the types of what stands under them."""
    return [(key, shape(inner)) for key, inner in value.items()] if isinstance(value, dict) else type(value)


def test_the_sample_record_is_what_its_statement_makes(full_mysql_server: MysqlServer, unique_name: str) -> None:
    statement, sample = blocks("sql")[0], json.loads(blocks("json")[0])

    def work(cursor: Any) -> None:
        cursor.execute("CREATE TABLE orders (id INT PRIMARY KEY, status VARCHAR(10), total DECIMAL(10,2))")
        cursor.execute("INSERT INTO orders VALUES (7, 'new', 10.50)")
        cursor.execute(statement.replace("shop.", f"{unique_name}."))

    record = decoded(full_mysql_server, unique_name, work).values[-1]
    assert shape(record) == shape(sample)
    assert (record["op"], record["before"], record["after"]) == (sample["op"], sample["before"], sample["after"])
    settled = ("version", "connector", "snapshot", "table", "row")
    assert [record["source"][key] for key in settled] == [sample["source"][key] for key in settled]


def test_each_command_that_it_shows_is_one_with_the_options_that_it_shows() -> None:
    lines = [line.partition(" #")[0] for block in blocks("sh") for line in block.splitlines()]
    shown = [shlex.split(line)[1:] for line in lines if line.startswith("changefeed ")]
    assert len(shown) > 8
    commands = cast(Any, get_command(app)).commands
    for name, *arguments in shown:
        options = [option for parameter in commands[name].params for option in parameter.opts]
        assert [word for word in arguments if word.startswith("-") and word not in options] == []
