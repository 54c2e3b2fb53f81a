"""The site's file of the demo allows pipelines with the demo's connections."""

from __future__ import annotations

from pathlib import Path

import pytest

from changefeed.settings.site import load_site
from devstack.stack import SITE_VARIABLE, write_site


def test_site_file_of_the_demo_is_valid_and_keeps_what_its_user_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "servers" / "site.yaml"
    monkeypatch.setenv(SITE_VARIABLE, str(file))
    write_site(file)
    assert [(each.source, each.kafka) for each in load_site().connections] == [("mysql_shop", "kafka_shop")]
    file.write_text("hosts: [demo.example]\n")
    write_site(file)
    assert load_site().hosts == ["demo.example"]
