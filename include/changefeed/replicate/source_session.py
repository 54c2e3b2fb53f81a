"""Sets the session variables that a statement had on the source, before it runs on a follower."""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import hexdigits
from typing import Any

from changefeed.ddl.session import SessionContext
from changefeed.errors import FollowerError
from changefeed.model.identifier import quote_name
from changefeed.replicate.literals import literal
from changefeed.source.mysql.follower_session import FollowerSession

_DEFAULTS: Mapping[str, Any] = {"character_set_collations": (), "foreign_key_checks": True, "lc_time_names": 0}
"""The values of variables that a server does not write to its events."""
_NOT_SET = ("character_set_client", "collation_database", "user_variables")
_MODES_GONE = 0x1003FF00
"""The bits of MySQL 5.7's sql_mode that 8.0 refuses: NO_AUTO_CREATE_USER, and modes of SHOW CREATE."""
_ALWAYS_SET = ("timestamp", "insert_id", "last_insert_id", "rand_seed1", "rand_seed2", "lc_time_names")
"""The variables that are always set, because their values cannot be compared with SHOW VARIABLES.

SHOW VARIABLES does not have them, or its value changes, or is a name instead of a number.
"""
_NUMBERS = frozenset(
    {
        *("sql_mode", "lc_time_names", "collation_database", "default_collation_for_utf8mb4", "character_set_client"),
        *("collation_connection", "collation_server", "auto_increment_increment", "auto_increment_offset"),
        *("insert_id", "last_insert_id", "rand_seed1", "rand_seed2"),
    }
)
_FLAGS = frozenset(
    {
        *("foreign_key_checks", "unique_checks", "sql_auto_is_null", "explicit_defaults_for_timestamp"),
        *("sql_require_primary_key", "default_table_encryption"),
    }
)
_TIMESTAMP = re.compile(r"\d{1,20}(\.\d{1,6})?")
_TIME_ZONE = re.compile(r"[\w+:/-]{1,64}", re.ASCII)
_TEXTS = {"timestamp": _TIMESTAMP, "time_zone": _TIME_ZONE}
_NUMBER = re.compile(r"-?(\d++(\.\d*+)?|\.\d++)(e[+-]?\d++)?")
_COLLATIONS = "SELECT id, collation_name FROM information_schema.collations"
_MARIADB_COLLATIONS = "SELECT id, full_collation_name FROM information_schema.collation_character_set_applicability"


def check_session(of_source: Mapping[str, Any]) -> None:
    """Raises ValueError, TypeError or KeyError for a session that `model.statement` cannot have written.

    Its names and values become SQL. Without this check, a user with write access to the topic could set any variable.
    """
    for name, value in of_source.items():
        if name in _NUMBERS:
            is_known = type(value) is int and value >= 0
        elif name in _FLAGS:
            is_known = isinstance(value, bool)
        elif name in _TEXTS:
            is_known = isinstance(value, str) and _TEXTS[name].fullmatch(value) is not None
        elif name == "character_set_collations":
            is_known = all(type(number) is int for pair in value for number in pair)
        else:
            is_known = name == "user_variables" and all(map(_is_variable, value))
        if not is_known:
            raise ValueError(f"its session has {name[:64]!r} with a value that no source logs")


def _is_variable(variable: Mapping[str, Any]) -> bool:
    kind, value = variable["type"], variable.get("value")
    if kind == "string":
        return isinstance(value, str) and set(value) <= set(hexdigits) and type(variable["collation"]) is int
    return kind == "null" or _NUMBER.fullmatch(str(value)) is not None


def enter(session: FollowerSession, of_source: Mapping[str, Any], database: str, context: SessionContext) -> None:
    """Set the variables of ``of_source``, a record's session, on ``session``, if they have other values there.

    Equal variables are not set, because this may need an administrator's rights.

    The statement is sent in utf8mb4, whatever its original charset. It was parsed in ``context``, and the follower must
    read quotes and backslashes in the same way. `FollowerSession.apply_settings` undoes the settings. Raises
    FollowerError if the follower refuses a setting.
    """
    known = {str(row[0]).lower(): str(row[1]) for row in session.rows("SHOW SESSION VARIABLES")}
    listed = session.rows(_MARIADB_COLLATIONS if session.is_mariadb else _COLLATIONS)
    names = {int(number): str(name) for number, name in listed}
    sets = []
    for name, value in {**_DEFAULTS, **of_source}.items():
        if name in _NOT_SET or (name not in known and name not in _ALWAYS_SET):
            continue
        if name == "character_set_collations":
            value = ",".join(f"{names[number].partition('_')[0]}={names[number]}" for _, number in value)
        elif "collation" in name:
            value = names[value]
        elif name == "sql_mode" and not session.is_mariadb:
            value = int(value) & ~_MODES_GONE
        elif isinstance(value, bool):
            value = "ON" if value else "OFF"
        if name in _ALWAYS_SET:
            sets.append(f"{name} = {value}")
        elif str(value) != known[name]:
            sets.append(f"{name} = {literal(value)}")
    sets += [_variable(variable, names) for variable in of_source.get("user_variables", ())]
    if sets:
        session.write("SET " + ", ".join(sets))
    _match_quoting(session, context)
    if database and session.rows("SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", database):
        session.write(f"USE {quote_name(database)}")


def _match_quoting(session: FollowerSession, context: SessionContext) -> None:
    (mode,) = session.row("SELECT @@SESSION.sql_mode")
    modes = str(mode).split(",")
    if "NO_BACKSLASH_ESCAPES" in modes and not context.no_backslash_escapes:  # the server wrote the text, with escapes
        modes.remove("NO_BACKSLASH_ESCAPES")
        session.write(f"SET sql_mode = '{','.join(modes)}'")
    if ("ANSI_QUOTES" in modes, "NO_BACKSLASH_ESCAPES" in modes) != (context.ansi_quotes, context.no_backslash_escapes):
        raise FollowerError(
            f"sql_mode of a record becomes {mode} on the follower, by which quotes and backslashes are read otherwise "
            "than by the record: no source logs that. Nothing was run. Somebody else may write to the pipeline's "
            "topics: look at their ACLs."
        )


def _variable(variable: Mapping[str, Any], names: Mapping[int, str]) -> str:
    """The SQL assignment of a user variable of a statement record."""
    match variable["type"]:
        case "null":
            value = "NULL"
        case "string":
            collation = names[variable["collation"]]
            value = f"_{collation.partition('_')[0]} x'{variable['value']}' COLLATE {quote_name(collation)}"
        case "real":
            value = f"{variable['value']}{'' if 'e' in variable['value'] else 'e0'}"
        case _:
            value = variable["value"]
    return f"@{quote_name(variable['name'])} = {value}"
