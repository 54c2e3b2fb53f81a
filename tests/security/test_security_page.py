"""docs/explanation/security.md explains all settings of an administrator. `test_roles.py` checks its routes."""

from __future__ import annotations

import re
from pathlib import Path

from changefeed.settings.site import Site
from changefeed.settings.yaml_file import read_section
from devstack.home import PROJECT

PAGE = (PROJECT / "docs" / "explanation" / "security.md").read_text()


def test_docs_explain_each_key_of_the_site_file() -> None:
    table = PAGE.partition("| key |")[2].partition("\n\n")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == set(Site.model_fields)


def test_example_of_a_site_file_is_valid(tmp_path: Path) -> None:
    example = PAGE.partition("```yaml\n")[2].partition("```")[0]
    (tmp_path / "site.yaml").write_text(example)
    assert read_section(tmp_path / "site.yaml", Site).hosts == ["airflow.example.com"]
