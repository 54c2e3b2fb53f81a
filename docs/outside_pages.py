"""MkDocs hook: pages of the repository outside `docs/` are part of the site, under the same relative links."""

from __future__ import annotations

import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
OUTSIDE = {
    "README.md": "index.md",
    **{name: name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "LICENSE")},
    **{name: name for name in (str(page.relative_to(ROOT)) for page in sorted(ROOT.glob("examples/*/README.md")))},
}
"""Paths in the repository, and in the site."""
_TO_DOCS = re.compile(r"\]\(((?:\.\./)*)docs/")
_FROM_DOCS = re.compile(r"\]\(((?:\.\./)*)\.\./(examples/|README|CONTRIBUTING|SECURITY)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages outside `docs/` at the paths that they have in the repository."""
    for path, page in OUTSIDE.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_context: object) -> str:
    """Links from `docs/` to the repository, and from the repository to `docs/`, are links within the site."""
    if page.file.src_uri in OUTSIDE.values():
        return _TO_DOCS.sub(r"](\1", markdown)
    return _FROM_DOCS.sub(r"](\1\2", markdown)
