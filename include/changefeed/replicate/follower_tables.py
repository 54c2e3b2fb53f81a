"""The tables of a follower, as they are now: which of them get rows, and what is still to be written to each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from changefeed.ddl.names import TableName
from changefeed.errors import FollowerError, SettingsError
from changefeed.formats.style import Style
from changefeed.replicate.commits import Commits
from changefeed.replicate.generated_columns import GeneratedColumns, compared_columns
from changefeed.replicate.missing_tables import MissingTables
from changefeed.replicate.position_table import DATABASE
from changefeed.replicate.scope import Scope
from changefeed.replicate.table_changes import TableChanges
from changefeed.source.mysql.catalog import engine_of, table_schema

_CASCADES = """
SELECT DISTINCT k.table_schema, k.table_name FROM information_schema.key_column_usage k
JOIN information_schema.referential_constraints r
ON r.constraint_schema = k.constraint_schema AND r.constraint_name = k.constraint_name AND r.table_name = k.table_name
WHERE k.referenced_table_schema = %s AND k.referenced_table_name = %s
AND (r.delete_rule NOT IN ('NO ACTION', 'RESTRICT') OR r.update_rule NOT IN ('NO ACTION', 'RESTRICT'))
"""
_TRIGGERS = """
SELECT trigger_name FROM information_schema.triggers WHERE event_object_schema = %s AND event_object_table = %s
"""
_KIND = "SELECT table_type FROM information_schema.tables WHERE table_schema = %s AND table_name = %s"


@dataclass
class FollowerTables:
    """Reads each table once until `forget`, over the session of ``commits``.

    Tables outside of ``scope`` are not written. ``captures`` says whether the pipeline captures a table now.
    ``logs_cascades`` says whether the source's binlog has what foreign keys do, where no record says it.
    """

    commits: Commits
    missing: MissingTables
    style: Style
    logs_cascades: bool
    captures: Callable[[str, str], bool]
    scope: Scope
    _changes: dict[tuple[str, str], TableChanges] = field(default_factory=dict)
    _missing: dict[tuple[str, str], bool] = field(default_factory=dict)
    _cascades: dict[tuple[str, str], bool] = field(default_factory=dict)
    _versioned: dict[tuple[str, str], bool] = field(default_factory=dict)

    def changes_of(self, database: str, table: str) -> TableChanges:
        """What is still to be written to a table. Raises FollowerError if it is not there, has triggers, or if its rows
        cannot be written."""
        known = self._changes.get((database, table))
        if known is None:
            known = self._changes[database, table] = self._read(database, table)
        return known

    def _read(self, database: str, table: str) -> TableChanges:
        session = self.commits.session
        if database == DATABASE:
            raise SettingsError(f"the source has a database {DATABASE!r}, where followers keep their position")
        if not self.scope.takes(database, table):
            raise FollowerError(
                f"a record is about a row of {database}.{table}, which `tables.include` of the pipeline does not take. "
                "Nothing was written there. If it was taken before, put its pattern back until the follower has come "
                "further; if not, somebody else may write to the pipeline's topics: look at their ACLs."
            )
        schema = table_schema(session, database, table)
        if schema is None:
            raise FollowerError(
                f"the follower has no table {database}.{table}, whose rows come behind "
                f"{self.commits.position.coordinates}: it was made before the pipeline began, or was not among its "
                "tables then. Copy the source's tables to the follower anew, and give the coordinates of the copy with "
                "--from."
            )
        if triggers := session.rows(_TRIGGERS, database, table):
            raise FollowerError(
                f"the follower's table {database}.{table} has a trigger {triggers[0][0]!r}: what triggers of the "
                "source did is in the topics, and would be done twice. Drop it on the follower."
            )
        if self._is_versioned(database, table):
            raise FollowerError(
                f"{database}.{table} is a system-versioned table: the server itself keeps the history of its rows, and "
                "what the source has cannot be written. Put it into `tables.exclude` of the pipeline: its rows that "
                "are in the topics already are then left out here, too."
            )
        engine = engine_of(session, database, table)
        if not engine.rolls_back:
            raise FollowerError(
                f"the follower's table {database}.{table} is of engine {engine.name}, which cannot roll back: a run "
                "that is killed before its position is stored would write the same rows twice. Nothing was written to "
                "it. ALTER TABLE … ENGINE = InnoDB on the follower, and run again; or put it into `tables.exclude` of "
                "the pipeline."
            )
        compared = compared_columns(session, schema, self.scope.server)
        return TableChanges(
            self.commits.batches,
            schema,
            self.style,
            lasting=engine.name.lower() != "innodb",
            compared=GeneratedColumns(schema, self.style, compared, self.scope.server) if compared else None,
            lacks_rows=self.missing.lacks_rows(schema),
        )

    def cascades_to(self, database: str, table: str) -> Sequence[TableName]:
        """The tables whose rows change with those of a table, by foreign keys."""
        rows = self.commits.session.rows(_CASCADES, database, table)
        return [TableName(str(of_database), str(child)) for of_database, child in rows]

    def takes_along(self, database: str, table: str) -> bool:
        """Whether rows of other tables, or further ones of its own, change with those of a table."""
        name = database, table
        if name not in self._cascades:
            self._cascades[name] = bool(self.cascades_to(database, table))
        return self._cascades[name]

    def is_left_out(self, database: str, table: str) -> bool:
        """Whether a table gets no rows: it is system-versioned, and the pipeline captures it no more."""
        return not self.captures(database, table) and self._is_versioned(database, table)

    def _is_versioned(self, database: str, table: str) -> bool:
        name = database, table
        if name not in self._versioned:
            self._versioned[name] = ("SYSTEM VERSIONED",) in self.commits.session.rows(_KIND, database, table)
        return self._versioned[name]

    def is_skipped(self, database: str, table: str) -> bool:
        """Whether changes of a table are not applied: it comes with a snapshot later, or is left out."""
        return self._is_missing(database, table) or self.is_left_out(database, table)

    def _is_missing(self, database: str, table: str) -> bool:
        name = database, table
        if name in self._changes or not self.missing.is_awaited(database, table):
            return False
        if name not in self._missing:
            self._missing[name] = self.missing.skips(database, table)
        return self._missing[name]

    def write(self) -> None:
        """Have the changes of all tables written."""
        for changes in self._changes.values():
            changes.write()

    def forget(self) -> None:
        """Read tables again: they may be others from now on. Nothing is left to be written."""
        self._changes.clear()
        self._missing.clear()
        self._cascades.clear()
        self._versioned.clear()
