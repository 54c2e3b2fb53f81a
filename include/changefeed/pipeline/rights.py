"""Finds captured tables that the pipeline's user may not read or cannot see."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from changefeed.ddl.history import SchemaHistory
from changefeed.errors import SourceError
from changefeed.model.table_pattern import is_regex, matches_any, names_database
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.pipeline_settings import TableSettings
from changefeed.source.mysql.catalog import is_own, table_names
from changefeed.source.mysql.own_tables import OWN_DATABASES, SYSTEM_DATABASES
from changefeed.source.mysql.preflight import NOWHERE, may_select, unreadable
from changefeed.source.mysql.session import Session

_WILD_PART = re.compile(r"[*?]|\[[^]\[]*+\]")


def known_tables(connections: PipelineConnections) -> list[tuple[str, str]]:
    """(database, table) of the captured tables in the stored schema history, even if the user cannot see them now."""
    values = connections.schema_log().load()
    if values is None:
        return []
    latest = SchemaHistory.from_json(values).timeline.latest.tables
    return [(name.database, name.table) for name in latest if connections.pipeline.tables.matches(*name)]


def missing_rights(
    connections: PipelineConnections,
    session: Session,
    known: Iterable[tuple[str, str]] = (),
    requested: Collection[str] = (),
) -> dict[str, str]:
    """The missing rights on each captured table, with the remedy, by "database.table".

    It checks the tables that the server shows, the tables in ``known``, and the tables that `tables.include` names. A
    server does not report which tables it hides. So the result also has each pattern that matches more than the granted
    tables. ``requested`` are patterns that limit the result; without any it has all tables.
    """
    tables = connections.pipeline.tables
    exact = [_parts(pattern) for pattern in tables.include if not _is_wild(pattern)]
    names = {
        (database, table)
        for database, table in (*table_names(session), *known, *exact)
        if tables.matches(database, table)
        and (not requested or matches_any(tuple(requested), database, table))
        and not is_own(session, database, table)
    }
    found = {".".join(name): reason for name, reason in unreadable(session, sorted(names)).items()}
    user = session.connection.user
    databases = [
        str(row[0])
        for row in session.rows("SELECT schema_name FROM information_schema.schemata")
        if row[0] not in OWN_DATABASES
    ]
    for pattern in filter(_is_wild, requested or tables.include):
        hiding = [
            database
            for database, table in _beyond(tables, pattern, databases)
            if not may_select(session, database, table)
        ]
        if hiding:
            where = f"`{hiding[0]}`.*" if hiding[0] in databases or not _is_wild(_parts(pattern)[0]) else "*.*"
            found[pattern] = (
                f"user {user!r} may not SELECT from all tables that {pattern!r} takes, and those that it may not are "
                f"hidden from it: GRANT SELECT ON {where} TO {user!r}, or name the tables one by one in its place"
            )
    return found


def _beyond(tables: TableSettings, pattern: str, databases: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names of missing tables that ``pattern`` matches: one in each matching database, and one in a missing database.

    Only a user who may read all tables that the pattern matches may read such a table.
    """
    database, table = ("*", "*") if is_regex(pattern) else _parts(pattern)
    # A pattern for any database does not match system databases; it must name them.
    of_databases = [
        each
        for each in databases
        if names_database(pattern, each) and (each not in SYSTEM_DATABASES or database.startswith(each))
    ]
    if not is_regex(pattern):
        of_databases.append(_unseen(database))
    for each in dict.fromkeys(of_databases):
        name = each, _unseen(table)
        if tables.names_database(each) and not matches_any(tuple(tables.exclude), *name):
            yield name


def _unseen(part: str) -> str:
    """A name that ``part`` of a pattern matches and that no table or database has; ``part`` itself if it is a name."""
    return _WILD_PART.sub(NOWHERE, part) if _is_wild(part) else part


def check_rights(
    connections: PipelineConnections,
    session: Session,
    known: Iterable[tuple[str, str]] = (),
    requested: Collection[str] = (),
) -> None:
    """Raise SourceError with all missing rights, one in each line."""
    if missing := missing_rights(connections, session, known, requested):
        raise SourceError("\n".join(f"{session.connection}: {reason}" for reason in missing.values()))


def _is_wild(pattern: str) -> bool:
    return is_regex(pattern) or any(sign in pattern for sign in "*?[")


def _parts(pattern: str) -> tuple[str, str]:
    database, _, table = pattern.partition(".")
    return database, table
