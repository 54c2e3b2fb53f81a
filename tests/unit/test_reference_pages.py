"""The generated pages of docs/reference/ say what the code says."""

from __future__ import annotations

import pytest
import reference_pages
from reference_text import with_descriptions


@pytest.mark.parametrize("name", reference_pages.PAGES)
def test_generated_page_is_as_new_as_the_code(name: str) -> None:
    is_current = (reference_pages.FOLDER / name).read_text() == reference_pages.page(name)
    assert is_current, f"docs/reference/{name} is older than the code; run make reference"


def test_name_without_description_is_an_error() -> None:
    with pytest.raises(ValueError, match="headers without a description: new"):
        with_descriptions("headers", ["old", "new"], {"old": "text"})


def test_description_of_a_removed_name_is_an_error() -> None:
    with pytest.raises(ValueError, match="does not have: gone"):
        with_descriptions("headers", ["old"], {"old": "text", "gone": "text"})
