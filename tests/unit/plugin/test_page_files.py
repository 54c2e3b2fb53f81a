"""The pages need nothing but the API server that they come from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "plugins" / "changefeed_web" / "page"
NOT_FETCHED = ("http://www.w3.org/2000/svg",)
"""Names that only look like addresses."""


@pytest.mark.parametrize("path", sorted(PAGE.iterdir()), ids=lambda path: path.name)
def test_a_page_names_no_address_on_the_internet(path: Path) -> None:
    text = path.read_text()
    for name in NOT_FETCHED:
        text = text.replace(name, "")
    assert re.findall(r"(?:https?:|wss?:|[\"'(=])//[^\s\"')]+", text) == []
