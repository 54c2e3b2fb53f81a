"""What an administrator allows: a file, or nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from changefeed.errors import SettingsError
from changefeed.settings.site import ArchiveRoot, Site, load_site


def test_without_a_file_nothing_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHANGEFEED_SITE", raising=False)
    assert load_site() == Site(archives=[], notifiers=[], connections=[], spark_conf=[], hosts=[])


def test_a_file_is_read_and_its_mistakes_have_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "site.yaml"
    monkeypatch.setenv("CHANGEFEED_SITE", str(file))
    file.write_text("archives: [s3://binlogs/shop, {url: /a, source: b}]\nconnections: [{source: a, kafka: b}]\n")
    site = load_site()
    assert site.archives == [ArchiveRoot(url="s3://binlogs/shop"), ArchiveRoot(url="/a", source="b")]
    assert (site.connections[0].source, site.connections[0].kafka, site.connections[0].checkpoint) == ("a", "b", None)
    file.write_text("archives: []\narchive: [s3://binlogs/shop]\n")
    with pytest.raises(SettingsError, match=r"site\.yaml, line 2: unknown key 'archive'"):
        load_site()
    file.write_text("archives:\n- {url: /a, sources: [b]}\n")
    with pytest.raises(
        SettingsError, match=r"site\.yaml, line 2: unknown key 'archives\.0\.sources' \(did you mean 'source'"
    ):
        load_site()


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANGEFEED_SITE", str(tmp_path / "site.yaml"))
    with pytest.raises(SettingsError, match="which is no file"):
        load_site()
