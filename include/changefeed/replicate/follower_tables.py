"""The current tables of a follower: whether they get rows, and their pending changes."""

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
    """The tables of a follower. Reads each table's definition once until `forget`, over the session of ``commits``.

    - ``scope``: tables outside of it are not written.
    - ``captures``: whether the pipeline captures a table now.
    - ``logs_cascades``: whether the source's binlog has the rows that foreign keys change, for records that do not say
      so.
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
        """The pending changes of a table.

        Raises FollowerError if the table is missing, has triggers, or cannot be written safely, and SettingsError if it
        is in the database of the follower's position.
        """
        known = self._changes.get((database, table))
        if known is None:
            known = self._changes[database, table] = self._read(database, table)
        return known

    def _read(self, database: str, table: str) -> TableChanges:
        session = self.commits.session
        if database == DATABASE:
            raise SettingsError(f"the source has a database {DATABASE!r}, in which followers store their position")
        if not self.scope.takes(database, table):
            raise FollowerError(
                f"a record has a row of {database}.{table}, which `tables.include` of the pipeline does not match. "
                "Nothing was written there. If it matched before, put its pattern back until the follower is after "
                "that record; if not, somebody else may write to the pipeline's topics: look at their ACLs."
            )
        schema = table_schema(session, database, table)
        if schema is None:
            raise FollowerError(
                f"the follower has no table {database}.{table}, whose rows come after "
                f"{self.commits.position.coordinates}: it was created before the pipeline began, or was not captured "
                "then. Copy the source's tables to the follower again, and give the coordinates of the copy with "
                "--from."
            )
        if triggers := session.rows(_TRIGGERS, database, table):
            raise FollowerError(
                f"the follower's table {database}.{table} has a trigger {triggers[0][0]!r}: changes by triggers of the "
                "source are in the topics, and would be made twice. Drop the trigger on the follower."
            )
        if self._is_versioned(database, table):
            raise FollowerError(
                f"{database}.{table} is a system-versioned table: the server writes the history of its rows itself, so "
                "the source's history cannot be written. Put the table into `tables.exclude` of the pipeline: "
                "followers then also skip its rows that are in the topics already."
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
            cannot_roll_back=engine.name.lower() != "innodb",
            compared=GeneratedColumns(schema, self.style, compared, self.scope.server) if compared else None,
            is_incomplete=self.missing.is_incomplete(schema),
        )

    def cascades_to(self, database: str, table: str) -> Sequence[TableName]:
        """The tables whose rows foreign keys change when rows of the table change."""
        rows = self.commits.session.rows(_CASCADES, database, table)
        return [TableName(str(of_database), str(child)) for of_database, child in rows]

    def has_cascades(self, database: str, table: str) -> bool:
        """Whether foreign keys may change more rows, of this or other tables, when a row of the table changes."""
        name = database, table
        if name not in self._cascades:
            self._cascades[name] = bool(self.cascades_to(database, table))
        return self._cascades[name]

    def is_excluded(self, database: str, table: str) -> bool:
        """Whether a table gets no rows, because it is system-versioned and not captured any more."""
        return not self.captures(database, table) and self._is_versioned(database, table)

    def _is_versioned(self, database: str, table: str) -> bool:
        name = database, table
        if name not in self._versioned:
            self._versioned[name] = ("SYSTEM VERSIONED",) in self.commits.session.rows(_KIND, database, table)
        return self._versioned[name]

    def is_skipped(self, database: str, table: str) -> bool:
        """Whether changes of a table are skipped, because a snapshot creates it later or it is excluded."""
        return self._is_missing(database, table) or self.is_excluded(database, table)

    def _is_missing(self, database: str, table: str) -> bool:
        name = database, table
        if name in self._changes or not self.missing.is_awaited(database, table):
            return False
        if name not in self._missing:
            self._missing[name] = self.missing.skips(database, table)
        return self._missing[name]

    def write(self) -> None:
        """Write the pending changes of all tables."""
        for changes in self._changes.values():
            changes.write()

    def forget(self) -> None:
        """Read all table definitions again from now on, because they may have changed. No change may be pending."""
        self._changes.clear()
        self._missing.clear()
        self._cascades.clear()
        self._versioned.clear()
