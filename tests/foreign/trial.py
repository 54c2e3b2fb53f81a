"""A script on a server, compared: what is equal, what differs, and what cannot be compared."""

from __future__ import annotations

import shutil
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pymysql
from foreign.comparer import Comparer, Observations
from foreign.player import DATABASE, NotComparable, Player
from foreign.reference import Reference

from changefeed.errors import ChangefeedError
from changefeed.source.mysql.own_tables import SYSTEM_DATABASES
from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer


class SpoiledServerError(Exception):
    """A script left something on the server that prevents others from running."""


class TrialResult(StrEnum):
    """The result of a script."""

    EQUAL = "equal"
    DIFFERENT = "different"
    SERVERS = "different, as the server logged it"
    DEFAULTS = "equal but for how defaults are spelled"
    NOT_COMPARABLE = "not comparable"


@dataclass(frozen=True)
class Trial:
    """The observations of a script on a server. ``reason``: why it did not run to its end, or nothing was compared."""

    script: str
    observations: Observations
    statements: int
    reason: str = ""

    @property
    def result(self) -> TrialResult:
        """The script's result."""
        others = [difference for difference in self.observations.differences if difference.what != "default"]
        if others:
            all_servers = all(difference.is_servers for difference in others)
            return TrialResult.SERVERS if all_servers else TrialResult.DIFFERENT
        if self.observations.differences:
            return TrialResult.DEFAULTS
        return TrialResult.EQUAL if self.observations.schemas + self.observations.tables else TrialResult.NOT_COMPARABLE


class Arena:
    """A server on which scripts run one after the other, each with a clean server."""

    def __init__(self, server: SqlServer, reference: Reference) -> None:
        self._server, self._reference = server, reference
        self._globals = self._variables()

    def run(self, path: Path, folder: Path) -> Trial:
        """Run the script at ``path`` of the suite in ``folder``; raises SpoiledServerError."""
        script = str(path.relative_to(folder))
        self._clean()
        comparer = Comparer(self._server, self._reference)
        player = Player(self._server, folder, lambda sql: comparer.watch(player, sql))
        reason = ""
        try:
            player.play(path)
            comparer.look(player.in_transaction)
        except NotComparable as error:
            reason = str(error)
            comparer.look(player.in_transaction)
        except (pymysql.MySQLError, ChangefeedError) as error:
            reason = f"{type(error).__name__}: {str(error)[:200]}"
        finally:
            player.close()
            with suppress(pymysql.MySQLError, ChangefeedError):
                comparer.close()
        if not reason and not comparer.observations.schemas + comparer.observations.tables:
            left_out = ", ".join(player.left_out)
            reason = f"it changes nothing that is logged{': left out ' + left_out if left_out else ''}"
        return Trial(script, comparer.observations, player.statements, reason)

    def _variables(self) -> dict[str, str]:
        return {str(name): str(value) for name, value in self._server.execute("SHOW GLOBAL VARIABLES")}

    def _clean(self) -> None:
        """Restore the server's databases and settings, with an empty binlog file; start it if it ended."""
        if not self._server.running:
            self._server.start()
        with self._server.connect() as connection, connection.cursor() as cursor:

            def run(sql: str) -> None:
                with suppress(pymysql.MySQLError):
                    cursor.execute(sql)

            cursor.execute(
                "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND user = 'root'"
            )
            for (other,) in cursor.fetchall():
                run(f"KILL {other}")
            run("SET foreign_key_checks = 0, lock_wait_timeout = 20")
            cursor.execute("SHOW GLOBAL VARIABLES")
            for name, value in cursor.fetchall():
                kept = self._globals.get(name, value)
                if value != kept and not name.startswith("gtid"):
                    run(f"SET GLOBAL {name} = {kept if kept.lstrip('-').isdigit() else repr(kept)}")
            cursor.execute("SHOW DATABASES")
            for (database,) in cursor.fetchall():
                if database not in SYSTEM_DATABASES:
                    run("DROP DATABASE `{}`".format(database.replace("`", "``")))
            shutil.rmtree(self._server.data / DATABASE, ignore_errors=True)  # MariaDB may leave a file of its own in it
            try:
                cursor.execute(f"CREATE DATABASE {DATABASE}")
            except pymysql.MySQLError as error:
                raise SpoiledServerError(f"the last script cannot be cleared away: {error}") from error
            cursor.execute("FLUSH BINARY LOGS")
            is_mariadb = isinstance(self._server, MariadbServer)
            cursor.execute("SHOW MASTER STATUS" if is_mariadb else "SHOW BINARY LOG STATUS")
            run(f"PURGE BINARY LOGS TO '{cursor.fetchone()[0]}'")
