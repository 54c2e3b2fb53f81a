"""Names of charsets and collations in DDL, with their defaults and binary collations.

Sources: https://dev.mysql.com/doc/refman/9.7/en/charset-charsets.html,
https://mariadb.com/kb/en/supported-character-sets-and-collations/; `information_schema.character_sets` of both servers.
"""

from __future__ import annotations

from changefeed.ddl.session import Flavour, Server, SessionContext

_DEFAULTS = {
    "big5": "chinese_ci",
    "cp932": "japanese_ci",
    "dec8": "swedish_ci",
    "eucjpms": "japanese_ci",
    "euckr": "korean_ci",
    "gb18030": "chinese_ci",
    "gb2312": "chinese_ci",
    "gbk": "chinese_ci",
    "hp8": "english_ci",
    "latin1": "swedish_ci",
    "latin5": "turkish_ci",
    "sjis": "japanese_ci",
    "swe7": "swedish_ci",
    "tis620": "thai_ci",
    "ujis": "japanese_ci",
}
"""Charsets whose default collation is not `CHARSET_general_ci`."""


def charset_name(name: str, session: SessionContext | None = None) -> str:
    """A charset's name in `information_schema`: in lower case, with the session's meaning of `utf8`."""
    name = name.lower()
    if name != "utf8":
        return name
    return "utf8mb4" if session is not None and session.utf8_is_utf8mb4 else "utf8mb3"


def charset_of(collation: str) -> str:
    """The charset of a collation: `latin1_swedish_ci` -> `latin1`."""
    return charset_name(collation.partition("_")[0])


def default_collation(charset: str, server: Server, session: SessionContext) -> str:
    """The default collation of a charset. A session may have changed it.

    Source: `default_collation_for_utf8mb4` (MySQL), `character_set_collations` (MariaDB 11.2+).
    """
    charset = charset_name(charset)
    for name, collation in session.default_collations:
        if name == charset:
            return collation
    if charset == "binary":
        return "binary"
    if charset == "utf8mb4" and server.flavour is Flavour.MYSQL and server.version >= (8, 0, 1):
        return "utf8mb4_0900_ai_ci"
    return f"{charset}_{_DEFAULTS.get(charset, 'general_ci')}"


def binary_collation(charset: str) -> str:
    """The collation of the attribute BINARY."""
    return "binary" if charset == "binary" else f"{charset}_bin"


def collation_name(name: str, charset: str, session: SessionContext) -> str:
    """The full name of a collation, in lower case. MariaDB's short name `uca1400_ai_ci` is completed with ``charset``.

    Source: https://mariadb.com/kb/en/setting-character-sets-and-collations/ ("contextually typed collations")
    """
    name = name.lower()
    if name.startswith("uca1400_"):
        return f"{charset}_{name}"
    return f"{charset_name('utf8', session)}_{name[5:]}" if name.startswith("utf8_") else name


def resolve(
    charset: str | None,
    collation: str | None,
    outer: str,
    server: Server,
    session: SessionContext,
    *,
    binary: bool = False,
) -> str:
    """The collation of ``CHARACTER SET charset COLLATE collation``.

    ``outer`` is the collation that is inherited without these clauses. ``binary`` says that the attribute BINARY is
    set, which chooses the `_bin` collation of the charset.
    """
    expected = charset_name(charset, session) if charset else charset_of(outer)
    if collation is not None and collation.lower() != "default":
        return collation_name(collation, expected, session)
    if binary:
        return binary_collation(expected)
    return default_collation(expected, server, session) if charset or collation else outer
