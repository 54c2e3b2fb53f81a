"""A script on a source with a follower; the tables of both are compared."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pymysql
from foreign.player import DATABASE, NotComparable, Player
from foreign.trial import Arena
from integration.followed import Followed
from integration.shown_tables import shown, table_differences

from changefeed.errors import (
    AccountingError,
    BadRecordError,
    BinlogFormatError,
    ChangefeedError,
    RetryableError,
    TerminalError,
)
from changefeed.source.mysql.own_tables import SYSTEM_DATABASES
from devstack.sql_server import SqlServer

DROPS = re.compile(r"[\s(]*(DROP|TRUNCATE)\b", re.IGNORECASE)
MOST_LOOKS = 3
"""How often a script is compared before it drops something, as most drop all of their tables in the end."""
DIFFERENCES: dict[str, tuple[type[TerminalError], ...]] = {
    "publishing": (AccountingError, BinlogFormatError),
    "following": (AccountingError, BinlogFormatError, BadRecordError),
}
"""Errors that report a difference, not a refusal."""


class Ending(StrEnum):
    """The result of a script with a follower."""

    EQUAL = "equal"
    REFUSED = "refused by a sentence"
    DIFFERENT = "different"
    NOTHING = "nothing to compare"


@dataclass(frozen=True)
class FollowedScript:
    """How a script ended; ``text`` is the message of a refusal, or the difference."""

    script: str
    ending: Ending
    text: str
    tables: int
    rows: int
    definitions: int
    seconds: float


class _Ended(Exception):
    """The script is stopped, as its result is known."""


class FollowerArena(Arena):
    """A source and a follower of its kind, on which scripts run one after another, each with clean servers."""

    def __init__(self, source: SqlServer, follower: SqlServer, bootstrap: str, scratch: Path, reference: Any) -> None:
        super().__init__(source, reference)
        self._follower, self._scratch = follower, scratch
        self._kafka = cast(Any, SimpleNamespace(bootstrap=bootstrap))
        self._numbers = count(1)

    def follow(self, path: Path, folder: Path) -> FollowedScript:
        """Play the script at ``path`` of the suite in ``folder``; raises SpoiledServerError."""
        began = time.monotonic()
        self._clean()
        self._clean_follower()
        run = _Run(self._server, self._follower, self._followed_pair())
        player = Player(self._server, folder, lambda sql: run.watch(player, sql))
        ending, text = Ending.EQUAL, ""
        try:
            try:
                with suppress(NotComparable):
                    player.play(path)
            finally:
                player.close()
            run.look()
        except _Ended:
            ending, text = run.ending, run.text
        if ending is Ending.EQUAL and not run.tables + run.definitions:
            ending = Ending.NOTHING
        seconds = time.monotonic() - began
        name = str(path.relative_to(folder))
        return FollowedScript(name, ending, text, run.tables, run.rows, run.definitions, seconds)

    def _followed_pair(self) -> Followed:
        name = f"f{next(self._numbers)}-{self._server.product.lower()}"
        folder = self._scratch / name
        folder.mkdir()
        settings = {
            "tables": {"include": ["*.*"]},
            "topics": {
                "template": f"{name}.rows",
                "shared": True,
                "partitions": 1,
                "configs": {"max.message.bytes": "50000000"},
            },
        }
        return Followed(name, self._server, self._follower, self._kafka, folder, settings)

    def _clean_follower(self) -> None:
        if not self._follower.running:
            self._follower.start()
        for database in _databases(self._follower):
            quoted = "`" + database.replace("`", "``") + "`"
            self._follower.execute("SET foreign_key_checks = 0", f"DROP DATABASE {quoted}")
        ((_, create),) = self._server.execute(f"SHOW CREATE DATABASE `{DATABASE}`")
        self._follower.execute(create)


class _Run:
    """One script's pipeline and its follower, compared between its statements."""

    def __init__(self, source: SqlServer, follower: SqlServer, followed: Followed) -> None:
        self._source, self._follower, self._followed_pair = source, follower, followed
        self._looks, self._changes = 0, 0
        self._is_new = True
        self.ending, self.text = Ending.EQUAL, ""
        self.tables = self.rows = self.definitions = 0

    def watch(self, player: Player, sql: str | None) -> None:
        """Called before each statement with its text, and after it with None."""
        if sql is None:
            self._changes += 1
        elif DROPS.match(sql) and self._changes > 3 and self._looks < MOST_LOOKS and not player.in_transaction:
            self._looks += 1
            self._changes = 0
            self.look()

    def look(self) -> None:
        """Publish the new events of the binlog, apply them, and compare. Raises _Ended if the servers differ."""
        try:
            step = "publishing"
            self._followed_pair.publish()
            step = "following"
            with suppress(_NothingPublished):
                done = self._has_applied()
                self.rows += done.rows
                self.definitions += done.definitions
        except TerminalError as error:
            is_refusal = not isinstance(error, DIFFERENCES[step])
            self._end(Ending.REFUSED if is_refusal else Ending.DIFFERENT, f"{step}: {type(error).__name__}: {error}")
        except RetryableError as error:
            is_servers = not (self._source.running and self._follower.running)  # a script may end its server
            self._end(Ending.NOTHING if is_servers else Ending.DIFFERENT, f"{type(error).__name__}: {error}")
        except (ChangefeedError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            self._end(Ending.DIFFERENT, f"{type(error).__name__}: {error}")
        except pymysql.MySQLError as error:
            self._end(Ending.DIFFERENT, f"an error of the server that nobody names: {error}")
        differences = list(self._differences())
        if differences:
            self._end(Ending.DIFFERENT, "; ".join(differences))

    def _has_applied(self) -> Any:
        log = self._followed_pair.connections.commit_log()
        if self._is_new and not (log.exists() and log.read().seals):
            raise _NothingPublished
        self._is_new = False
        return self._followed_pair.follow()

    def _end(self, ending: Ending, text: str) -> None:
        self.ending, self.text = ending, text
        raise _Ended

    def _differences(self) -> Iterator[str]:
        expected, found = _databases(self._source), _databases(self._follower)
        if expected != found:
            yield f"databases {expected}, of the follower {found}"
        for database in expected:
            if database not in found:
                continue
            source, follower = (shown(server, database) for server in (self._source, self._follower))
            self.tables += len(source) - 1
            for name in sorted(source.keys() | follower.keys()):
                yield from table_differences(f"{database}.{name}", _plain(source.get(name)), _plain(follower.get(name)))


class _NothingPublished(Exception):
    """Nothing was published."""


def _plain(table: Any) -> Any:
    """The definition without its AUTO_INCREMENT counter."""
    if not isinstance(table, dict):
        return table
    return {**table, "definition": re.sub(r" AUTO_INCREMENT=\d+", "", table["definition"])}


def _databases(server: SqlServer) -> list[str]:
    left_out = {*SYSTEM_DATABASES, "changefeed"}
    return sorted(row[0] for row in server.execute("SHOW DATABASES") if row[0] not in left_out)
