"""What the guides about functions show is what happens."""

from __future__ import annotations

import ast
import json
import os
import re
import shlex
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from documentation import DOCS, code_blocks
from integration.binlog_of import binlog_of

from changefeed.settings.transform_settings import TransformCall, TransformSettings
from changefeed.settings.transform_source import list_supplied_transforms, transform_source, transforms_folder
from changefeed.transforms.chain import Chain
from changefeed.transforms.change import Change, Coordinates
from changefeed.transforms.loading import Transform
from devstack.mysql import MysqlServer

ROWS = (DOCS / "how-to" / "transform-rows.md").read_text()
BATCHES = (DOCS / "how-to" / "transform-batches.md").read_text()


def blocks(language: str) -> list[str]:
    return code_blocks(ROWS, language)


def function_in(text: str) -> str:
    (function,) = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)]
    return ast.unparse(function)


def test_the_example_is_the_file_that_comes_along() -> None:
    (shown,) = blocks("python")
    assert function_in(shown) == function_in((transforms_folder() / "mask_cards.py").read_text())


def test_the_example_of_batches_drops_deletes_and_changes_a_column(tmp_path: Path) -> None:
    (tmp_path / "upper.py").write_text(code_blocks(BATCHES, "python")[0])
    at = Coordinates("binlog.000001", 4, 0)
    begun = datetime.fromtimestamp(0, UTC)
    changes = [
        Change("c", "shop", "t", None, {"id": 1, "name": "ada"}, ("id",), "shop.t", begun, None, at),
        Change("d", "shop", "t", {"id": 2, "name": "bob"}, None, ("id",), "shop.t", begun, None, at),
    ]
    transform = Transform.of(TransformCall("*.*", transform_source("upper", tmp_path), {"column": "name"}))
    dropped: Counter[str] = Counter()
    chain = Chain([transform], dropped)
    assert chain.of_change(changes[0]) == ([changes[0].replace(after={"id": 1, "name": "ADA"})], {})
    assert chain.of_change(changes[1]) == ([], {})
    assert dropped == {"upper": 1}


def test_the_yaml_is_taken_and_each_supplied_function_has_a_row() -> None:
    for entry in yaml.safe_load(blocks("yaml")[0])["transforms"]:
        TransformSettings.model_validate(entry)
    assert sorted(re.findall(r"^\| `(\w+)` \| `columns?", ROWS, re.MULTILINE)) == list_supplied_transforms()


def test_the_commands_print_what_the_page_says(
    full_mysql_server: MysqlServer, unique_name: str, tmp_path: Path
) -> None:
    binlog = binlog_of(
        full_mysql_server,
        unique_name,
        "CREATE TABLE payments (id INT PRIMARY KEY, card VARCHAR(20))",
        "INSERT INTO payments VALUES (7, '4111111111111111'), (8, NULL)",
        "UPDATE payments SET card = '5500000000000004' WHERE id = 8",
        "DELETE FROM payments WHERE id = 7",
    )
    decode, test = (shlex.split(line) for line in blocks("sh")[0].splitlines())
    (tmp_path / "binlog.000001").write_bytes(binlog.data)

    def run(words: list[str]) -> subprocess.CompletedProcess[str]:
        words = [word.replace("shop.", f"{unique_name}.") for word in words]
        command = [sys.executable, "-m", "changefeed.cli.main", *words]
        return subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False)

    decoded = run(decode[1:-2])
    assert decode[-2:] == [">", "events.jsonl"]
    (tmp_path / "events.jsonl").write_text(decoded.stdout)
    made = run(test[1:])
    assert (made.returncode, made.stderr) == (0, "4 changes in, 4 out, 0 dropped, 0 failed\n")
    lines = [json.loads(line) for line in made.stdout.splitlines()]
    shown = json.loads(blocks("json")[0])
    assert list(lines[0]) == list(shown)
    assert lines[0]["after"] == shown["after"]
    assert [line["op"] for line in lines] == ["c", "c", "u", "d"]
    again = tmp_path / "again.jsonl"
    again.write_text(made.stdout)
    assert run([*test[1:3], "--file", str(again), *test[5:]]).stdout == made.stdout, "its own lines are taken too"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["mask_cards", "--arguments", '{"colum": "card"}'], ["did you mean 'column'", "transform(change, column"]),
        (["mask_card"], ["no transform 'mask_card' (did you mean 'mask_cards'?)"]),
        (["drop_fields", "--arguments", "[]"], ["expected a JSON object"]),
        (["obfuscate", "--arguments", '{"columns": ["id"]}'], ["line 1: transform 'obfuscate' failed", "found int"]),
    ],
)
def test_wrong_call_is_an_error_without_traceback(tmp_path: Path, arguments: list[str], words: list[str]) -> None:
    row = {"op": "c", "before": None, "after": {"id": 1}, "source": {"db": "a", "table": "b", "file": "f", "pos": 4}}
    events = tmp_path / "events.jsonl"
    events.write_text(json.dumps(row))
    command = [sys.executable, "-m", "changefeed.cli.main", "test-transform", *arguments, "--file", str(events)]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    for word in words:
        assert word in done.stderr
