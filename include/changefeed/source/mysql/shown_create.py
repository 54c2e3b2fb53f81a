"""Reads SHOW CREATE TABLE, whose text on MariaDB has raw bytes in defaults of BINARY and VARBINARY."""

from __future__ import annotations

import re

from changefeed.model.identifier import quote_name
from changefeed.source.mysql.session import Session


def shown_create(session: Session, database: str, table: str) -> str:
    """The result of SHOW CREATE TABLE. Bytes that are not UTF-8 become Python's surrogates.

    Raises as `Session` does.
    """
    session.rows("SET SESSION character_set_results = binary")  # PyMySQL cannot decode it as text
    try:
        shown = session.row(f"SHOW CREATE TABLE {quote_name(database)}.{quote_name(table)}")[1]
    finally:
        session.rows("SET SESSION character_set_results = @@character_set_client")
    return shown.decode("utf-8", "surrogateescape") if isinstance(shown, bytes) else str(shown)


def readable_create(session: Session, database: str, table: str) -> str:
    """The result of SHOW CREATE TABLE as valid text: defaults that are not UTF-8 are in hexadecimal digits."""
    return _DEFAULT.sub(_of_bytes, shown_create(session, database, table))


_DEFAULT = re.compile(r" DEFAULT '((?:[^'\\]|\\.|'')*)'", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)|''", re.DOTALL)
_ESCAPED = {"0": "\0", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", None: "'"}


def _of_bytes(default: re.Match[str]) -> str:
    if not any("\udc80" <= character <= "\udcff" for character in default[1]):
        return default[0]
    text = _ESCAPE.sub(lambda escape: _ESCAPED.get(escape[1], escape[1]), default[1])
    return f" DEFAULT X'{text.encode('utf-8', 'surrogateescape').hex().upper()}'"
