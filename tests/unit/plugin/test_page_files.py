"""The files of the page: what they load, and the fields of its dialogs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from changefeed.airflow.params import seek_params, verify_params
from changefeed.ingest.followed_settings import _OF_A_PROCESS
from changefeed.settings.requests.seek import SeekRequest

PAGE = Path(__file__).parents[3] / "plugins" / "changefeed_web" / "page"
NOT_FETCHED = ("http://www.w3.org/2000/svg",)
"""Namespaces that look like addresses."""


@pytest.mark.parametrize("path", sorted(PAGE.iterdir()), ids=lambda path: path.name)
def test_page_refers_to_no_address_on_the_internet(path: Path) -> None:
    text = path.read_text()
    for name in NOT_FETCHED:
        text = text.replace(name, "")
    assert re.findall(r"(?:https?:|wss?:|[\"'(=])//[^\s\"')]+", text) == []


def test_dialogs_mark_the_fields_that_requests_and_params_require() -> None:
    dialogs = (PAGE / "dialogs.js").read_text()
    marked = set(re.findall(r'name: "(\w+)"[^}]*required: true', dialogs))
    required = {name for name, field in SeekRequest.model_fields.items() if field.is_required()}
    required |= {name for name, param in seek_params().items() if param.schema.get("minLength")}
    assert required == {"to", "why"}
    assert marked == required | {"sample_percent"}
    assert "null" not in verify_params([])["sample_percent"].schema["type"]


@pytest.mark.parametrize("path", sorted(PAGE.glob("*.js")), ids=lambda path: path.name)
def test_each_dialog_that_a_file_opens_is_imported_or_defined(path: Path) -> None:
    text = path.read_text()
    imported = " ".join(re.findall(r"^import \{([^}]*)\}", text, re.MULTILINE))
    known = set(re.findall(r"\w+", imported)) | set(re.findall(r"function (\w+)", text))
    assert set(re.findall(r"\b(\w+Dialog)\(", text)) - known == set()


def test_editor_has_the_line_height_of_its_style() -> None:
    script, style = (PAGE / "code-field.js").read_text(), (PAGE / "page.css").read_text()
    line, top = (re.findall(rf"const {name} = (\d+);", script)[0] for name in ("LINE", "TOP"))
    assert re.findall(r"\.editor \{[^}]*font: [\d.]+px/(\d+)px", style) == [line]
    assert re.findall(r"\.editor textarea \{[^}]*padding: (\d+)px", style) == [top]
    assert re.findall(r"\.editor \.marks i \{[^}]*height: (\d+)px", style) == [line]


def test_save_dialog_names_the_settings_that_wait_for_the_next_run() -> None:
    (said,) = re.findall(r"A run in progress uses[^`]*", (PAGE / "editor.js").read_text())
    assert [name for name in _OF_A_PROCESS if name not in said] == []
    assert "or ends there" in said  # as without `windows`, or with another connection
