"""The times of binlog files are read for a few seconds only, and not again after a failure."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

import pytest

from changefeed.errors import BinlogGoneError, SourceUnavailableError
from changefeed.model.window import BinlogFile
from changefeed.operations import source_binlogs as listing
from changefeed.operations.source_binlogs import SourceBinlogs, source_binlogs

FILES = [BinlogFile(f"binlog.{number:06}", 100) for number in range(1, 21)]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files whose time was read."""
    monkeypatch.setattr(listing, "server_uuid", lambda _: "server")
    monkeypatch.setattr(listing, "binlog_files", lambda _: FILES)
    return []


def files_of(
    monkeypatch: pytest.MonkeyPatch,
    read: list[str],
    error: Exception | None,
    *,
    seconds: float = 0,
    known: SourceBinlogs | None = None,
) -> SourceBinlogs:
    def identity(_connection: object, _uuid: str, name: str) -> Any:
        read.append(name)
        time.sleep(seconds)
        if error is not None:
            raise error
        return SimpleNamespace(begun_seconds=7)

    monkeypatch.setattr(listing, "file_identity", identity)
    session: Any = SimpleNamespace(connection=None)
    return source_binlogs(session, known)


def test_times_that_cannot_be_read_are_not_read_again(monkeypatch: pytest.MonkeyPatch, read: list[str]) -> None:
    failed = files_of(monkeypatch, read, BinlogGoneError("purged"))
    again = files_of(monkeypatch, read, None, known=failed)
    assert sorted(read) == [file.name for file in FILES]
    assert {file["begun_seconds"] for file in again.to_json()["files"]} == {None}


def test_no_further_time_is_read_of_an_unavailable_server(monkeypatch: pytest.MonkeyPatch, read: list[str]) -> None:
    found = files_of(monkeypatch, read, SourceUnavailableError("no answer"), seconds=0.05)
    time.sleep(0.2)
    assert len(read) <= 2 * listing._AT_ONCE
    assert (len(found.files), found.begun_seconds) == (20, {})
    assert set(files_of(monkeypatch, read, None, known=found).begun_seconds.values()) == {7}


def test_list_does_not_wait_long_for_times(monkeypatch: pytest.MonkeyPatch, read: list[str]) -> None:
    monkeypatch.setattr(listing, "_TIMED_SECONDS", 0.1)
    began = time.monotonic()
    found = files_of(monkeypatch, read, None, seconds=1)
    assert time.monotonic() - began < 0.9
    assert found.begun_seconds == {}
