"""Changes in statement format: find the captured tables that a statement writes, and whether it stops the run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from changefeed.ddl.ddl_statement import DdlStatement
from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import Entry, Schemas
from changefeed.ddl.table import Table
from changefeed.errors import SourceError
from changefeed.model.statement import Statement
from changefeed.source.mysql.side_effects import Reach
from changefeed.spark.stages.decode_task import DecodeTask


class StatementChanges:
    """Applies the pipeline's setting `statements` to the changes in statement format of a window."""

    def __init__(self, task: DecodeTask) -> None:
        self._task = task
        self._reach = Reach(task.session)

    def find_touched(
        self, statement: Statement, read: DdlStatement, known: Schemas
    ) -> tuple[Statement, list[TableName]]:
        """The statement with its ``doubt``, and the captured tables whose topics get a record of it; () with `skip`.

        If it cannot be known which tables the statement writes, all captured tables are returned: the tables ``known``
        at its coordinates, so that a retry makes the same records after DROP TABLE, and the tables that the server has.
        With `statements: fail`, raises SourceError unless the statement certainly writes no captured table.
        """
        how = self._task.pipeline.statements
        if how == "skip":
            return statement, []
        temporary = self._writes_temporary_tables(statement, read, known)
        named = [] if temporary else self._captured_tables(read.tables)
        if how == "fail" and named:
            raise self.refusal(
                statement, f"it writes {named[0]}, which the pipeline captures", known.tables.get(named[0])
            )
        doubt = self._reach.doubt(read, known.server)
        captured = [] if temporary else self._captured_tables(self._reach.written_tables(read.tables))
        if how == "fail" and (doubt or captured):
            raise self.refusal(
                statement, doubt or f"a foreign key extends its changes to {captured[0]}, which the pipeline captures"
            )
        if not doubt:
            return statement, captured
        everything = dict.fromkeys((*captured, *self._captured_tables(known.tables), *self._task.tables))
        return replace(statement, doubt=doubt), list(everything)

    def _writes_temporary_tables(self, statement: Statement, read: DdlStatement, known: Schemas) -> bool:
        """Whether all tables that ``statement`` writes are temporary tables, which have no row events.

        MariaDB logs such statements of MIXED sessions. The event has a flag that the statement uses a temporary table,
        but it may only read that table. A written table is temporary if no other table or view has its name.
        """
        history = self._task.history
        all_known = history is not None and history.tables_known and self._task.statements_scouted
        if not (all_known and statement.is_thread_specific and read.tables):
            return False
        return not any(name in known.tables or name in known.views for name in read.tables)

    def refusal(self, statement: Statement, why: str, table: Entry | None = None) -> SourceError:
        """The error for ``statement``, which stops the run because of ``why``; ``table`` is the table that it
        writes."""
        by_transaction = isinstance(table, Table) and table.schema.versioned_by_transaction
        cause = (
            "MariaDB logs changes of a table that is versioned by transactions (ROW START and ROW END are BIGINT) as "
            "statements, whatever binlog_format is: make these columns TIMESTAMP(6), or put the table into "
            "`tables.exclude`"
            if by_transaction
            else "A session ran with binlog_format=STATEMENT or MIXED: SET GLOBAL binlog_format = 'ROW', and look for "
            "programs that set it"
        )
        hidden = self._task.pipeline.hides_columns  # the text may have values of hidden columns
        text = "with a text that is not shown, as the pipeline hides columns" if hidden else repr(statement.sql[:120])
        return SourceError(
            f"a change in statement format at {statement.file}:{statement.position} (GTID {statement.gtid!r}, database "
            f"{statement.database!r}): {text}. The binlog does not have its rows, and {why}; so the window is not "
            f"sealed. {cause}. To continue: `statements: publish` in the pipeline publishes such statements as "
            "records; `statements: skip` leaves them out (for one run, if this statement is harmless); "
            "`tables.exclude` leaves out a table that only a tool writes, such as percona.checksums."
        )

    def _captured_tables(self, names: Iterable[TableName]) -> list[TableName]:
        """The captured tables of ``names``, in the spelling that matches the pipeline's patterns.

        Without schemas it is not known whether the server's names are case-sensitive.
        """
        tables = self._task.pipeline.tables
        captured = []
        for name in names:
            if self._task.is_own(*name):  # `mysql.rds_heartbeat2`
                continue
            for spelling in (name, TableName(name.database.lower(), name.table.lower())):
                if tables.matches(*spelling):
                    captured.append(spelling)
                    break
        return captured
