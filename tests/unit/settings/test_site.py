"""The site's file."""

from __future__ import annotations

from pathlib import Path

import pytest

from changefeed.errors import SettingsError
from changefeed.model.password_source import PasswordSource
from changefeed.settings.site import ArchiveRoot, Site, load_site


def test_site_without_a_file_allows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CHANGEFEED_SITE", raising=False)
    assert load_site() == Site(archives=[], notifiers=[], connections=[], spark_conf=[], hosts=[])


def test_site_file_is_read_and_mistakes_have_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_site_file_that_everybody_may_write_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "site.yaml"
    monkeypatch.setenv("CHANGEFEED_SITE", str(file))
    file.write_text("hosts: [a]\n")
    file.chmod(0o646)
    with pytest.raises(SettingsError, match=r"every user of this machine may write.*chmod o-w"):
        load_site()
    file.chmod(0o664)
    assert load_site().hosts == ["a"]


def test_missing_site_file_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHANGEFEED_SITE", str(tmp_path / "site.yaml"))
    with pytest.raises(SettingsError, match="which is not a file"):
        load_site()


def test_password_sources_are_by_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "site.yaml"
    monkeypatch.setenv("CHANGEFEED_SITE", str(file))
    file.write_text(
        "passwords:\n- {connection: a, command: [aws, rds, generate-db-auth-token]}\n"
        "- {connection: b, function: company.tokens.mysql, timeout_seconds: 3}\n"
    )
    site = load_site()
    assert site.password_source("a") == PasswordSource("a", ("aws", "rds", "generate-db-auth-token"))
    assert site.password_source("b") == PasswordSource("b", function="company.tokens.mysql", timeout_seconds=3)
    assert site.password_source("c") is None


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("{connection: a}", "expected either `command`"),
        ("{connection: a, command: [x], function: x.y}", "expected either `command`"),
        ("{connection: a, command: x y}", "command"),
        ("{connection: a, function: 'os.system(1)'}", "function"),
        ("{connection: a, command: [x]}\n- {connection: a, command: [y]}", "'a' is listed twice"),
    ],
)
def test_wrong_password_source_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: str, words: str
) -> None:
    file = tmp_path / "site.yaml"
    monkeypatch.setenv("CHANGEFEED_SITE", str(file))
    file.write_text(f"passwords:\n- {entry}\n")
    with pytest.raises(SettingsError, match=words):
        load_site()
