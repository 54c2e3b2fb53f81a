"""The session that a statement ran in on the source, set on a follower before it runs there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from changefeed.model.identifier import quoted
from changefeed.replicate.literals import literal
from changefeed.source.mysql.follower_session import FollowerSession

_DEFAULTS: Mapping[str, Any] = {"character_set_collations": (), "foreign_key_checks": True, "lc_time_names": 0}
"""What a server leaves out of its events where it is so."""
_NOT_SET = ("character_set_client", "collation_database", "user_variables")
_ALWAYS_SET = ("timestamp", "insert_id", "last_insert_id", "rand_seed1", "rand_seed2", "lc_time_names")
"""What SHOW VARIABLES does not tell, tells of the moment, or tells by name where a record has the number."""
_COLLATIONS = "SELECT id, collation_name FROM information_schema.collations"
_MARIADB_COLLATIONS = "SELECT id, full_collation_name FROM information_schema.collation_character_set_applicability"


def enter(session: FollowerSession, of_source: Mapping[str, Any], database: str) -> None:
    """Set what a record says of the session, where it is otherwise: some variables only an administrator may set.

    The text is to be sent in utf8mb4, whatever charset it was written in. `FollowerSession.settle` undoes it. Raises
    FollowerError for what the follower refuses.
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
        elif isinstance(value, bool):
            value = "ON" if value else "OFF"
        if name in _ALWAYS_SET:
            sets.append(f"{name} = {value}")
        elif str(value) != known[name]:
            sets.append(f"{name} = {literal(value)}")
    sets += [_variable(variable, names) for variable in of_source.get("user_variables", ())]
    if sets:
        session.write("SET " + ", ".join(sets))
    if database and session.rows("SELECT 1 FROM information_schema.schemata WHERE schema_name = %s", database):
        session.write(f"USE {quoted(database)}")


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
