"""The pages load nothing from other servers than their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "plugins" / "changefeed_web" / "page"
NOT_FETCHED = ("http://www.w3.org/2000/svg",)
"""Namespaces that look like addresses."""


@pytest.mark.parametrize("path", sorted(PAGE.iterdir()), ids=lambda path: path.name)
def test_page_refers_to_no_address_on_the_internet(path: Path) -> None:
    text = path.read_text()
    for name in NOT_FETCHED:
        text = text.replace(name, "")
    assert re.findall(r"(?:https?:|wss?:|[\"'(=])//[^\s\"')]+", text) == []
