"""The Markdown documentation of DAGs: settings of a pipeline are shown as text only."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

from changefeed.airflow.markdown import code
from changefeed.airflow.pipeline_dags import pipeline_dags
from changefeed.settings.pipeline import Pipeline

PIXEL = "![x](//evil.example/pixel.png)"
HOSTILE = (
    PIXEL,
    f"`{PIXEL}`",
    f"``` {PIXEL} `` {PIXEL}",
    f"\n\n# {PIXEL}\n\n[log in](//evil.example/login)",
    "www.evil.example/login",
    "<img src=//evil.example/pixel.png>",
    f"\\`{PIXEL}",
    f"`\r\n\r\n\x0b{PIXEL}",
)
SHOWN = {"text", "code_inline", "softbreak"}
"""Types of Markdown tokens that show only text."""


def inline(markdown: str) -> Iterator[Token]:
    """The inline tokens of ``markdown``, parsed like Airflow's pages: GitHub's Markdown with links of bare hosts."""
    for token in MarkdownIt("gfm-like").parse(markdown):
        assert token.type not in ("html_block", "heading_open", "fence", "code_block"), token
        yield from token.children or ()


def pipeline_with(text: str) -> Pipeline:
    settings: dict[str, Any] = {
        "name": "shop",
        "source": {"connection": f"mysql {text}"},
        "kafka": {"connection": f"kafka {text}"},
        "tables": {"include": [f"shop.{text}", "shop.*"], "exclude": [f"shop.{text}"]},
        "topics": {"shared": True, "template": text},
        "owner": text,
        "tags": [text],
    }
    return Pipeline.model_validate(settings)


@pytest.mark.parametrize("text", HOSTILE)
def test_settings_in_dag_docs_render_as_plain_text(text: str) -> None:
    for dag in pipeline_dags(pipeline_with(text)):
        tokens = list(inline(dag.doc_md or ""))
        assert {token.type for token in tokens} <= SHOWN, dag.dag_id
        if dag.dag_id == "changefeed_ingest__shop":
            shown = [" ".join(token.content.split()) for token in tokens if token.type == "code_inline"]
            assert f"shop.{' '.join(text.split())}" in [each.replace("shop. ", "shop.") for each in shown]


@pytest.mark.parametrize("text", [*HOSTILE, "", " ", "`", "shop.*", "a``b"])
def test_code_shows_the_text_alone(text: str) -> None:
    tokens = list(inline(f"- Tables: {code(text)}; left out: none"))
    assert [token.type for token in tokens] == ["text", "code_inline", "text"]
    assert tokens[1].content.strip() == " ".join(text.split())
