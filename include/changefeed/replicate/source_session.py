"""The session that a statement ran in on the source, set on a follower before it runs there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from string import hexdigits
from typing import Any

from changefeed.ddl.session import SessionContext
from changefeed.errors import FollowerError
from changefeed.model.identifier import quoted
from changefeed.replicate.literals import literal
from changefeed.source.mysql.follower_session import FollowerSession

_DEFAULTS: Mapping[str, Any] = {"character_set_collations": (), "foreign_key_checks": True, "lc_time_names": 0}
"""What a server leaves out of its events where it is so."""
_NOT_SET = ("character_set_client", "collation_database", "user_variables")
_MODES_GONE = 0x1003FF00
"""Bits of MySQL 5.7's sql_mode that 8.0 refuses: NO_AUTO_CREATE_USER, and modes of how definitions are printed."""
_ALWAYS_SET = ("timestamp", "insert_id", "last_insert_id", "rand_seed1", "rand_seed2", "lc_time_names")
"""What SHOW VARIABLES does not tell, tells of the moment, or tells by name where a record has the number."""
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
    """Raises ValueError, TypeError or KeyError for a session of a record that `model.statement` does not make.

    Its names and values become SQL: whoever may write to the topic would choose what the follower sets.
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
    """Set what a record says of the session, where it is otherwise: some variables only an administrator may set.

    The text is to be sent in utf8mb4, whatever charset it was written in, and was read in ``context``: quotes and
    backslashes mean to the follower what they mean there. `FollowerSession.settle` undoes it. Raises FollowerError for
    what the follower refuses.
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
    _read_alike(session, context)
    if database and session.rows("SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", database):
        session.write(f"USE {quoted(database)}")


def _read_alike(session: FollowerSession, context: SessionContext) -> None:
    (mode,) = session.row("SELECT @@SESSION.sql_mode")
    modes = str(mode).split(",")
    if "NO_BACKSLASH_ESCAPES" in modes and not context.no_backslash_escapes:  # the server wrote the text itself
        modes.remove("NO_BACKSLASH_ESCAPES")
        session.write(f"SET sql_mode = '{','.join(modes)}'")
    if ("ANSI_QUOTES" in modes, "NO_BACKSLASH_ESCAPES" in modes) != (context.ansi_quotes, context.no_backslash_escapes):
        raise FollowerError(
            f"a record's sql_mode is {mode} on the follower, where quotes and backslashes mean something else than it "
            "says: no source logs it so. Nothing was run. Somebody else may write to the pipeline's topics: look at "
            "their ACLs."
        )


def _variable(variable: Mapping[str, Any], names: Mapping[int, str]) -> str:
    """The assignment of a user variable, as a statement record has it."""
    match variable["type"]:
        case "null":
            value = "NULL"
        case "string":
            collation = names[variable["collation"]]
            value = f"_{collation.partition('_')[0]} x'{variable['value']}' COLLATE {quoted(collation)}"
        case "real":
            value = f"{variable['value']}{'' if 'e' in variable['value'] else 'e0'}"
        case _:
            value = variable["value"]
    return f"@{quoted(variable['name'])} = {value}"
