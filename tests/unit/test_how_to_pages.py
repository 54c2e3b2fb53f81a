"""The documentation's settings are accepted, and its commands parse."""

from __future__ import annotations

import json
import re
import shlex
from itertools import takewhile
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from documentation import DOCS, PROJECT, code_blocks
from typer.main import get_command

import changefeed.cli.main  # noqa: F401 - adds the commands
from changefeed.cli.app import app
from changefeed.settings.file import read_pipeline
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.site import Site
from changefeed.settings.yaml_file import read_section

GUIDES = sorted((DOCS / "how-to").rglob("*.md"))
PAGES = sorted([*DOCS.rglob("*.md"), *PROJECT.glob("*.md"), *PROJECT.glob("examples/*/README.md")])
REQUIRED = {"name": "shop", "source": {"connection": "mysql_shop"}, "kafka": {"connection": "kafka_shop"}}
"""Keys that have no default: a guide shows only those of a pipeline that it is about."""
SITE_KEYS = Site.model_fields.keys() - Pipeline.model_fields.keys()
COMMANDS: dict[str, Any] = cast(Any, get_command(app)).commands
MAX_WORDS = 500


def is_foreign(block: str) -> bool:
    """Whether the block is a file of another program: its first line is a comment that names it."""
    return re.match(r"# [\w.]+\.yaml[, ]", block) is not None


def yaml_blocks() -> list[tuple[str, str]]:
    blocks = [(page.stem, block) for page in GUIDES for block in code_blocks(page.read_text(), "yaml")]
    return [(page, block) for page, block in blocks if not is_foreign(block)]


def commands() -> list[str]:
    """The `changefeed` command lines in shell blocks."""
    return [
        line
        for page in PAGES
        for block in code_blocks(page.read_text(), "sh")
        for line in block.replace("\\\n", " ").splitlines()
        if line.startswith("changefeed ")
    ]


def split_command(line: str) -> list[str]:
    """The words of a command line, up to a pipe, a redirection or a comment."""
    return list(takewhile(lambda word: word not in ("|", ">", "&&"), shlex.split(line, comments=True)))


@pytest.mark.parametrize(("page", "block"), yaml_blocks(), ids=[page for page, _ in yaml_blocks()])
def test_settings_of_a_guide_are_accepted(page: str, block: str, tmp_path: Path) -> None:
    file = tmp_path / f"{page}.yaml"
    settings = yaml.safe_load(block)
    if settings.keys() & SITE_KEYS:
        file.write_text(block)
        read_section(file, Site)
        return
    missing = {key: value for key, value in REQUIRED.items() if key not in settings}
    file.write_text(yaml.safe_dump(missing) + block if missing else block)
    read_pipeline(file)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_yaml_and_json_of_a_page_parse(page: Path) -> None:
    text = page.read_text()
    for block in code_blocks(text, "yaml"):
        assert list(yaml.safe_load_all(block))
    for block in code_blocks(text, "json"):
        try:
            json.loads(block)
        except ValueError:
            assert [json.loads(line) for line in block.splitlines()], "one record a line"


def test_guides_show_settings_of_pipelines_and_of_sites() -> None:
    blocks = [yaml.safe_load(block).keys() for _, block in yaml_blocks()]
    assert len(blocks) > 20
    assert any("notifiers" in block for block in blocks)


@pytest.mark.parametrize("line", sorted(set(commands())))
def test_command_of_a_page_parses(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, name, *arguments = split_command(line)
    for word in arguments:
        if word.endswith((".sql", ".jsonl")):
            Path(word).touch()  # options that name a file ask for one that exists
    COMMANDS[name].make_context(name, arguments).close()


def test_pages_show_most_commands() -> None:
    shown = {line.split()[1] for line in commands()}
    assert COMMANDS.keys() - shown <= {"sign"}


@pytest.mark.parametrize("page", [page for page in GUIDES if page.stem != "coming-from"], ids=lambda page: page.stem)
def test_guide_is_short_and_says_how_to_see_that_it_worked(page: Path) -> None:
    text = page.read_text()
    prose = re.sub(r"^ *\|[|-]+\|$", "", text, flags=re.MULTILINE).replace("|", " ")
    assert len(prose.split()) <= MAX_WORDS
    assert "**It worked** if" in text
