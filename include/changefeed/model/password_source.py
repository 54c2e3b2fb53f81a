"""Passwords that expire, such as tokens of a cloud provider: a command or a function returns one for each login."""

from __future__ import annotations

import importlib
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from threading import Thread

from changefeed.errors import SettingsError, SourceUnavailableError


@dataclass(frozen=True)
class PasswordSource:
    """What returns the current password of a connection: ``command``, or the function ``function``.

    ``command`` has a program and its arguments, and runs without a shell. ``function`` is a name with its module. Both
    run where the login is, on Spark workers too, with the rights of that process. So only the site's file may name
    them. A password is in no message; neither is what the command wrote, or the text of the function's error.
    """

    connection_id: str
    command: tuple[str, ...] = field(default=(), repr=False)
    function: str = ""
    timeout_seconds: int = 10

    def password(self, host: str, port: int, user: str) -> str:
        """The current password of ``user`` at ``host``.

        Raises SettingsError if the program or the function does not exist, and SourceUnavailableError if it fails,
        takes more than ``timeout_seconds``, or returns no password.
        """
        password = self._call(host, port, user) if self.function else self._run()
        if not isinstance(password, str) or not password:
            raise self._failed("expected a password on one line from it, found none")
        if any(character < " " or character == "\x7f" for character in password):
            raise self._failed("expected a password on one line from it, found several lines or a control character")
        return password

    def _run(self) -> str:
        try:
            # What it writes to stderr is in the log of this process.
            done = subprocess.run(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                timeout=self.timeout_seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise self._failed(f"it did not end within {self.timeout_seconds} seconds, and was killed") from None
        except OSError as error:
            raise SettingsError(f"{self._what} cannot be started: {error.strerror}. {_REMEDY}") from None
        if done.returncode:
            raise self._failed(f"it ended with exit code {done.returncode}; this process's stderr has what it wrote")
        try:
            return done.stdout.decode().rstrip("\r\n")
        except UnicodeDecodeError:
            raise self._failed("what it wrote is not UTF-8") from None

    def _call(self, host: str, port: int, user: str) -> object:
        module, _, name = self.function.rpartition(".")
        imported: Future[Callable[..., object]] = Future()
        returned: Future[object] = Future()

        def answer() -> None:
            try:
                imported.set_result(getattr(importlib.import_module(module), name))
            except BaseException as error:
                imported.set_exception(error)
                return
            try:
                returned.set_result(imported.result()(host=host, port=port, user=user))
            except BaseException as error:
                returned.set_exception(error)

        # A daemon: a module or a function that hangs must not keep this process from ending.
        Thread(target=answer, name="changefeed-password", daemon=True).start()
        deadline = time.monotonic() + self.timeout_seconds
        if not wait([imported], self.timeout_seconds).done:
            raise self._failed(f"it did not return within {self.timeout_seconds} seconds")
        if error := imported.exception():  # whatever an administrator's module raises; its text may have a secret
            why = str(error) if isinstance(error, ImportError | AttributeError) else type(error).__name__
            raise SettingsError(f"{self._what} cannot be imported: {why}. {_REMEDY}") from None
        if not wait([returned], deadline - time.monotonic()).done:
            raise self._failed(f"it did not return within {self.timeout_seconds} seconds")
        if error := returned.exception():  # SystemExit too; its text may have a secret
            raise self._failed(f"it raised {type(error).__name__}") from None
        return returned.result()

    @property
    def _what(self) -> str:
        kind = f"function {self.function!r}" if self.function else f"command {self.command[0]!r}"
        return f"{kind}, which returns the password of connection {self.connection_id!r},"

    def _failed(self, why: str) -> SourceUnavailableError:
        return SourceUnavailableError(
            f"{self._what} failed: {why}. Nothing was sent to the server. Run again when it works; it is set in "
            "`passwords` of the site's file"
        )


_REMEDY = (
    "It must exist on each machine on which tasks run. Correct `passwords` of the site's file, or install it there"
)
