"""Runs the source's DDL in commit order: each statement once, between two commits of the follower."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.ddl.changes import CreateTable
from changefeed.ddl.session import Server
from changefeed.errors import SettingsError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.replicate.commits import Commits
from changefeed.replicate.ddl_record import DdlRecord, digest_tables, list_tables
from changefeed.replicate.follower_tables import FollowerTables
from changefeed.replicate.missing_tables import MixedTablesError
from changefeed.replicate.permitted_ddl import check_ddl, check_emptied, emptied_database
from changefeed.replicate.position_table import BegunDdl
from changefeed.replicate.refills import Refills


@dataclass
class DdlRunner:
    """Runs the source's DDL on ``server``, and moves the position of ``commits`` over it; see `ddl_record`."""

    commits: Commits
    tables: FollowerTables
    server: Server
    refills: Refills

    def run_record(self, value: bytes, at: BinlogCoordinates) -> bool:
        """Run the DDL statement of a record at ``at``, after all earlier changes are committed.

        Returns false if the statement is skipped, because its databases are not followed or a snapshot creates its
        tables later. Raises SettingsError if it cannot be run, and FollowerError if it is not permitted or the server
        refuses it.
        """
        ddl = DdlRecord.of(value, self.server).limited_to(self.tables.scope)
        if not self._is_followed(ddl):
            return False
        try:
            if self.tables.missing.skips_ddl(ddl, at):
                return False
        except MixedTablesError as error:
            after = BinlogCoordinates(at.file, at.position + 1)
            self.refills.fill_anew(error.names, after if error.created else at, error.what)
        where, session = f"the record at {at} of the topic of schema changes", self.commits.session
        if not _makes_rows(ddl):  # `_check_rows` refuses CREATE … SELECT, which may read other rows on the follower
            check_ddl(ddl.statement, self.tables.scope, where)
        self._check_rows(ddl, at)
        if database := emptied_database(ddl.statement.change):
            check_emptied(database, list_tables(session, database), self.tables.scope, where)
        self.tables.write()
        self.commits.commit(at, begun_ddl=BegunDdl(value.decode(), digest_tables(session, ddl)))
        self.commits.batches.wait_for_commits()
        self._run(ddl, at)
        return True

    def _check_rows(self, ddl: DdlRecord, at: BinlogCoordinates) -> None:
        """Raises what `Refills.fill_after` raises, if the statement may result in other rows than on the source."""
        doubt = "it is a change in statement format" if _makes_rows(ddl) else ""
        if not doubt and self.refills.may_doubt(ddl):
            self.tables.write()
            self.commits.commit(at)
            self.commits.batches.wait_for_commits()
            doubt = self.refills.doubt_of(ddl)
        if doubt:
            self.refills.fill_after(ddl.statement.tables[:1], at, ddl.sql, doubt)

    def finish_begun_ddl(self) -> None:
        """Finish the statement that an earlier run began: run it if it has not taken effect, and move the position."""
        begun = self.commits.position.begun_ddl
        if begun is None:
            return
        ddl = DdlRecord.of(begun.record.encode(), self.server).limited_to(self.tables.scope)
        at = self.commits.position.coordinates
        is_to_run = ddl.only_drops or digest_tables(self.commits.session, ddl) == begun.before
        self._run(ddl, at, again=True) if is_to_run else self._note_done(ddl, at)

    def _run(self, ddl: DdlRecord, at: BinlogCoordinates, *, again: bool = False) -> None:
        ddl.run(self.commits.session, again=again)
        self._note_done(ddl, at)

    def _note_done(self, ddl: DdlRecord, at: BinlogCoordinates) -> None:
        self.tables.missing.note_ddl(ddl, at)
        self.commits.move(BinlogCoordinates(at.file, at.position + 1))
        self.tables.forget()

    def _is_followed(self, ddl: DdlRecord) -> bool:
        touched, scope = ddl.databases, self.tables.scope
        if not touched:
            raise SettingsError(
                f"the tables of {ddl.sql[:500]!r} cannot be read from its text, so a retry could run it twice on the "
                "follower. Run it there by hand, copy the tables, and give the coordinates with --from."
            )
        if not any(map(scope.follows, touched)):
            return False
        if not all(map(scope.follows, touched)):
            raise SettingsError(
                f"{ddl.sql[:200]!r} touches databases {', '.join(sorted(touched))}, of which the follower "
                f"follows only {', '.join(scope.databases)}: it cannot be run there. Follow all of them."
            )
        return True


def _makes_rows(ddl: DdlRecord) -> bool:
    """Whether the statement is a CREATE TABLE … SELECT in statement format."""
    return isinstance(ddl.statement.change, CreateTable) and ddl.statement.changes_rows
