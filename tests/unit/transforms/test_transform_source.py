"""Users' functions are found, checked without being run, and identified by their source and their imports."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest

from changefeed.errors import SettingsError
from changefeed.settings.file import read_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.transform_source import list_supplied_transforms, transform_source
from changefeed.transforms.loading import function_of

PLAIN = "def transform(change, columns, *, keep=4):\n    return change\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "transforms"
    path.mkdir()
    monkeypatch.setenv("CHANGEFEED_TRANSFORMS", str(path))
    return path


def pipeline(folder: Path, text: str) -> Pipeline:
    path = folder.parent / "shop.yaml"
    path.write_text(f"name: shop\nsource: {{connection: s}}\nkafka: {{connection: k}}\ntransforms:\n  - {text}\n")
    return read_pipeline(path)


def test_a_function_is_read_with_all_that_it_imports_of_its_folder(folder: Path) -> None:
    (folder / "a.py").write_text("from .b import x\nimport json\ndef transform(change):\n    return x(change)\n")
    (folder / "b.py").write_text("from . import c\ndef x(change):\n    return c.y(change)\n")
    (folder / "c.py").write_text("def y(change):\n    return change + 1\n")
    (folder / "other.py").write_text(PLAIN)
    source = transform_source("a")
    assert set(source.modules) == {"a", "b", "c"}
    assert function_of(source)(1) == 2
    (folder / "other.py").write_text("def transform(change): ...")
    assert transform_source("a").digest == source.digest, "what it does not import does not count"
    (folder / "c.py").write_text("def y(change):\n    return change + 2\n")
    newer = transform_source("a")
    assert newer.digest != source.digest
    assert (function_of(newer)(1), function_of(source)(1)) == (3, 2), "two versions in one process"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{tables: shop.*, function: mask_card}", ["line 5", "'transforms.0.function'", "did you mean 'mask_cards'"]),
        ("{tables: shop.*, function: ../../etc/x}", ["no transform"]),
        ("{tables: shop, function: mask_cards}", ["'shop' names no database"]),
        ("{tables: '/(/', function: mask_cards}", ["no regular expression"]),
        ("{tables: shop.*, function: mask_cards, argument: {}}", ["did you mean 'arguments'"]),
        (
            "{tables: shop.*, function: mask_cards, arguments: {colums: [a]}}",
            ["line 5", "cannot be called", "did you mean 'columns'", "transform(change, columns, *, keep=4)"],
        ),
        ("{tables: shop.*, function: mask_cards}", ["missing a required argument: 'columns'"]),
        (
            "{tables: shop.*, function: mask_cards, arguments: {columns: [a]}, secrets: {columns: {connection: c}}}",
            ["columns is in `arguments` and in `secrets`"],
        ),
        ("{tables: shop.*, function: mask_cards, secrets: {columns: s3cr3t}}", ["line 5", "'transforms.0.secrets"]),
        ("{tables: shop.*, function: no_python}", ["no_python.py, line 1 is no Python"]),
        ("{tables: shop.*, function: nothing}", ["no such function", "expected either `def transform(change)`"]),
        ("{tables: shop.*, function: both}", ["transform and transform_batch"]),
        ("{tables: shop.*, function: absolute}", ["absolute.py, line 1", "from .mask_cards import ..."]),
        ("{tables: shop.*, function: missing}", ["imports .gone, and there is no gone.py"]),
    ],
)
def test_transform_error_in_yaml_names_line_and_nearest_name(folder: Path, text: str, words: list[str]) -> None:
    files = {
        "mask_cards": PLAIN,
        "no_python": "def transform(:",
        "nothing": "raise SystemExit('it ran')",
        "both": "def transform(change): ...\ndef transform_batch(batch): ...\n",
        "absolute": "from transforms.mask_cards import transform as x\ndef transform(change): ...\n",
        "missing": "from .gone import x\ndef transform(change): ...\n",
    }
    for name, body in files.items():
        (folder / f"{name}.py").write_text(body)
    with pytest.raises(SettingsError) as caught:
        pipeline(folder, text)
    assert "s3cr3t" not in str(caught.value)
    for word in words:
        assert word in str(caught.value)


def test_reading_a_pipeline_runs_no_function_and_pickles_its_source(folder: Path) -> None:
    (folder / "mask_cards.py").write_text(f"import no_such_module\n{PLAIN}")
    read = pipeline(folder, "{tables: shop.*, function: mask_cards, arguments: {columns: [a]}}")
    (folder / "mask_cards.py").unlink()
    sent = pickle.loads(pickle.dumps(read))
    assert sent.transforms[0].source == read.transforms[0].source
    with pytest.raises(SettingsError, match="'mask_cards', which is of the folder of transforms, cannot be imported"):
        function_of(sent.transforms[0].source)


def test_arguments_out_of_connections_and_variables_are_shown_nowhere(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "f.py").write_text("def transform(change, salt, key): ...")
    monkeypatch.setenv("FSALT", "pl4nted")
    read = pipeline(folder, "{tables: '*.*', function: f, secrets: {salt: {environment: FSALT}, key: {connection: c}}}")
    (call,) = read.transform_calls({"c": "generic://:pl4nted2@"}.__getitem__)
    assert call.arguments == {"salt": "pl4nted", "key": "pl4nted2"}
    assert "pl4nted" not in f"{read!r}{call!r}"


@pytest.mark.parametrize("name", list_supplied_transforms())
def test_a_supplied_function_can_be_named_without_a_file(folder: Path, name: str) -> None:
    arguments: dict[str, Any] = {
        "drop_fields": {"columns": ["a"]},
        "rename": {"columns": {"a": "b"}},
        "obfuscate": {"columns": ["a"]},
        "flatten": {"column": "a"},
        "to_epoch": {"columns": ["a"], "unit": "seconds"},
    }[name]
    read = pipeline(folder, f"{{tables: '*.*', function: {name}, arguments: {arguments!r}}}")
    assert callable(function_of(read.transforms[0].source))
