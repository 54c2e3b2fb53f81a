"""The site's scrape token: which tokens are accepted, and that an unusable one opens nothing and is in no log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from changefeed.errors import SettingsError
from changefeed.settings.site import load_site
from changefeed_web import scrape

TOKEN = "4e1c0dbe0b4a4c83a07d3a1d5f2f9c66"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """A function that writes the site's file, and makes the plugin read it at once."""
    file = tmp_path / "site.yaml"
    monkeypatch.setenv("CHANGEFEED_SITE", str(file))

    def write(text: str) -> None:
        file.write_text(text)
        scrape._token_at.cache_clear()

    return write


def test_only_the_complete_token_is_accepted(site: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCRAPE_TOKEN", TOKEN)
    site("scrape_token: {environment: SCRAPE_TOKEN}\n")
    assert scrape.is_scrape_token(TOKEN)
    for wrong in ("", TOKEN[:-1], TOKEN + "0", TOKEN.upper(), "é" * 32):
        assert not scrape.is_scrape_token(wrong)


def test_token_is_the_password_of_a_connection(site: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_PROMETHEUS", f"http://:{TOKEN}@")
    site("scrape_token: {connection: prometheus}\n")
    assert scrape.is_scrape_token(TOKEN)


@pytest.mark.parametrize("token", ["", "short-but-secret", "a" * 31, "with a space " * 4, "ä" * 40, "line\n" * 10])
def test_unusable_token_opens_nothing_and_is_not_logged(
    site: Callable[[str], None], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, token: str
) -> None:
    monkeypatch.setenv("SCRAPE_TOKEN", token)
    site("scrape_token: {environment: SCRAPE_TOKEN}\n")
    assert not scrape.is_scrape_token(token)
    assert not scrape.is_scrape_token("")
    assert caplog.text.count("scrape_token of the site's file cannot be used") == 1, "once, not for each request"
    assert not token or token not in caplog.text


def test_site_without_a_token_accepts_none(site: Callable[[str], None], monkeypatch: pytest.MonkeyPatch) -> None:
    site("hosts: []\n")
    assert not scrape.is_scrape_token("")
    assert not scrape.is_scrape_token("None")
    monkeypatch.delenv("CHANGEFEED_SITE")
    scrape._token_at.cache_clear()
    assert not scrape.is_scrape_token(TOKEN)


def test_token_in_the_file_itself_is_refused_and_not_shown(site: Callable[[str], None]) -> None:
    site(f"scrape_token: {TOKEN}\n")
    with pytest.raises(SettingsError, match="scrape_token") as caught:
        load_site()
    assert TOKEN not in str(caught.value)
