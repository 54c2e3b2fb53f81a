"""Definitions (DDL) in their place among the changes: each is run once, between two commits of the follower."""

from __future__ import annotations

from dataclasses import dataclass

from changefeed.ddl.changes import CreateTable
from changefeed.ddl.session import Server
from changefeed.errors import SettingsError
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.replicate.commits import Commits
from changefeed.replicate.definitions import Definition, state_of, tables_of
from changefeed.replicate.follower_tables import FollowerTables
from changefeed.replicate.missing_tables import TablesBesideError
from changefeed.replicate.permitted import check_definition, check_emptied, emptied_database
from changefeed.replicate.position_table import BegunDefinition
from changefeed.replicate.refills import Refills


@dataclass
class DefinitionRunner:
    """Runs definitions of a source on ``server`` and moves the position of ``commits`` over them; see `definitions`."""

    commits: Commits
    tables: FollowerTables
    server: Server
    refills: Refills

    def is_run(self, value: bytes, at: BinlogCoordinates) -> bool:
        """Run the definition of a record, which is at ``at``, when all changes before it are written and committed.

        False if it is of no database that is followed, or about tables that a snapshot creates later. Raises
        SettingsError for one that cannot be run, FollowerError for one that is not permitted or that the server
        refuses.
        """
        definition = Definition.of(value, self.server).limited_to(self.tables.scope)
        if not self._is_followed(definition):
            return False
        try:
            if self.tables.missing.skips_definition(definition, at):
                return False
        except TablesBesideError as error:
            behind = BinlogCoordinates(at.file, at.position + 1)
            self.refills.fill_anew(error.names, behind if error.made else at, error.what)
        where, session = f"the record at {at} of the topic of schema changes", self.commits.session
        if not _makes_rows(definition):  # the follower's SELECT would read other rows
            check_definition(definition.read, self.tables.scope, where)
        self._check_rows(definition, at)
        if database := emptied_database(definition.read.change):
            check_emptied(database, tables_of(session, database), self.tables.scope, where)
        self.tables.write()
        self.commits.commit(at, definition=BegunDefinition(value.decode(), state_of(session, definition)))
        self.commits.batches.settle()
        self._run(definition, at)
        return True

    def _check_rows(self, definition: Definition, at: BinlogCoordinates) -> None:
        """Raises as `Refills.fill_after` where rows may be others than the source's when it has run."""
        doubt = "it is a change in statement format" if _makes_rows(definition) else ""
        if not doubt and self.refills.may_doubt(definition):
            self.tables.write()
            self.commits.commit(at)
            self.commits.batches.settle()
            doubt = self.refills.doubt_of(definition)
        if doubt:
            self.refills.fill_after(definition.read.tables[:1], at, definition.sql, doubt)

    def finish_begun(self) -> None:
        """Find out whether the definition that an earlier run began did run; run it if it did not."""
        begun = self.commits.position.definition
        if begun is None:
            return
        definition = Definition.of(begun.record.encode(), self.server).limited_to(self.tables.scope)
        at = self.commits.position.coordinates
        is_to_run = definition.removes or state_of(self.commits.session, definition) == begun.before
        self._run(definition, at, again=True) if is_to_run else self._note(definition, at)

    def _run(self, definition: Definition, at: BinlogCoordinates, *, again: bool = False) -> None:
        definition.run(self.commits.session, again=again)
        self._note(definition, at)

    def _note(self, definition: Definition, at: BinlogCoordinates) -> None:
        self.tables.missing.note_definition(definition, at)
        self.commits.move(BinlogCoordinates(at.file, at.position + 1))
        self.tables.forget()

    def _is_followed(self, definition: Definition) -> bool:
        touched, scope = definition.databases, self.tables.scope
        if not touched:
            raise SettingsError(
                f"which tables {definition.sql[:500]!r} touches cannot be read, so it is not known how often it would "
                "run on the follower. Run it there by hand, copy the tables, and give the coordinates with --from."
            )
        if not any(map(scope.follows, touched)):
            return False
        if not all(map(scope.follows, touched)):
            raise SettingsError(
                f"{definition.sql[:200]!r} touches databases {', '.join(sorted(touched))}, of which the follower "
                f"follows only {', '.join(scope.databases)}: it cannot be run there. Follow all of them."
            )
        return True


def _makes_rows(definition: Definition) -> bool:
    """Whether it is a CREATE TABLE … SELECT in statement format."""
    return isinstance(definition.read.change, CreateTable) and definition.read.changes_rows
