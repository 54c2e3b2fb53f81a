"""Passwords that a command or a function returns: one for each login, and in no message."""

from __future__ import annotations

import pickle
import time
from pathlib import Path

import pytest

from changefeed.errors import ChangefeedError, SettingsError, SourceUnavailableError
from changefeed.model.connection import MysqlConnection
from changefeed.model.password_source import PasswordSource

SECRET = "pl4nted secret;$(id) é"


def password(source: PasswordSource) -> str:
    """The password that a worker gets."""
    connection = MysqlConnection("db.example", 3307, "me", "unused", password_source=source)
    arrived: MysqlConnection = pickle.loads(pickle.dumps(connection))
    return arrived.current_password()


def test_command_runs_without_a_shell_for_each_login(tmp_path: Path) -> None:
    file = tmp_path / "password"
    source = PasswordSource("mysql", ("cat", str(file)))
    for current in (SECRET, "the next"):
        file.write_text(current + "\n")
        assert password(source) == current
    assert password(PasswordSource("mysql", ("printf", "%s", "$HOME;id"))) == "$HOME;id"
    assert str(tmp_path) not in repr(source)


def token(*, host: str, port: int, user: str) -> str:
    return f"{user}@{host}:{port}"


def failing(**_: object) -> str:
    raise ValueError(SECRET)


def timing_out(**_: object) -> str:
    raise TimeoutError(SECRET)


def hanging(**_: object) -> str:
    time.sleep(60)
    return SECRET


def ending(**_: object) -> str:
    raise SystemExit(SECRET)


def nothing(**_: object) -> None:
    pass


def test_function_gets_the_server_and_the_user() -> None:
    assert password(PasswordSource("mysql", function=f"{__name__}.token")) == "me@db.example:3307"


@pytest.mark.parametrize(
    ("source", "error", "words"),
    [
        (
            PasswordSource("c", ("/no/such/program",)),
            SettingsError,
            r"program', .*'c', cannot be started: No",
        ),
        (PasswordSource("c", ("sh", "-c", f"echo '{SECRET}'; exit 3")), SourceUnavailableError, r"'sh', .*exit code 3"),
        (PasswordSource("c", ("sleep", "60"), timeout_seconds=0), SourceUnavailableError, "did not end within 0 sec"),
        (PasswordSource("c", ("true",)), SourceUnavailableError, "expected a password on one line from it, found none"),
        (PasswordSource("c", ("printf", f"{SECRET}\n\nx")), SourceUnavailableError, "found several lines"),
        (PasswordSource("c", ("printf", r"\377")), SourceUnavailableError, "not UTF-8"),
        (PasswordSource("c", function="no.such.module"), SettingsError, r"'no\.such\.module', .*cannot be imported"),
        (PasswordSource("c", function=f"{__name__}.none"), SettingsError, "cannot be imported"),
        (PasswordSource("c", function=f"{__name__}.failing"), SourceUnavailableError, "it raised ValueError"),
        (PasswordSource("c", function=f"{__name__}.timing_out"), SourceUnavailableError, "it raised TimeoutError"),
        (
            PasswordSource("c", function=f"{__name__}.hanging", timeout_seconds=0),
            SourceUnavailableError,
            "did not return within 0 seconds",
        ),
        (PasswordSource("c", function=f"{__name__}.nothing"), SourceUnavailableError, "found none"),
        (PasswordSource("c", function=f"{__name__}.ending"), SourceUnavailableError, "it raised SystemExit"),
        (PasswordSource("c", ("printf", f"got it\r{SECRET}")), SourceUnavailableError, "or a control character"),
    ],
)
def test_failed_source_is_an_error_without_the_password(
    source: PasswordSource, error: type[ChangefeedError], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        password(source)
    assert "pl4nted" not in str(caught.value)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_module_that_hangs_at_import_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hangs_at_import.py").write_text("import time\ntime.sleep(60)\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SourceUnavailableError, match="did not return within 0 seconds"):
        password(PasswordSource("c", function="hangs_at_import.token", timeout_seconds=0))
