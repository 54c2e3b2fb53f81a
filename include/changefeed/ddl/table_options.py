"""Options of tables and databases that columns inherit: the charset and the collation.

Sources: https://dev.mysql.com/doc/refman/9.7/en/create-table.html (table_options),
https://dev.mysql.com/doc/refman/9.7/en/charset-table.html, https://mariadb.com/kb/en/create-table/#table-options
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from changefeed.ddl.charsets import charset_of, default_collation, resolve
from changefeed.ddl.cursor import Cursor
from changefeed.ddl.session import Server, SessionContext


@dataclass(frozen=True)
class CharsetOptions:
    """``CHARACTER SET charset COLLATE collation``. A missing part is None, and DEFAULT is "default"."""

    charset: str | None = None
    collation: str | None = None

    def __bool__(self) -> bool:
        return self.charset is not None or self.collation is not None

    def collation_over(self, inherited: str, default: str, server: Server, session: SessionContext) -> str:
        """The default collation that these options set.

        ``inherited`` is the collation without options. ``default`` is the collation of the word DEFAULT: MySQL uses it
        unchanged, MariaDB uses the default collation of its charset.
        """
        if self.charset != "default":
            return resolve(self.charset, self.collation, inherited, server, session)
        if self.collation is None and not server.is_mariadb:
            return default
        charset = charset_of(default)
        own = default_collation(charset, server, session)
        return resolve(charset, self.collation, own, server, session)


def read_charset_option(cursor: Cursor, so_far: CharsetOptions) -> CharsetOptions | None:
    """The options with `[DEFAULT] CHARACTER SET [=] x` or `[DEFAULT] COLLATE [=] x`; None if neither follows."""
    address = cursor.address()
    cursor.one_of("DEFAULT")
    if cursor.word("CHARACTER", "SET") or cursor.word("CHAR", "SET") or cursor.one_of("CHARSET"):
        cursor.symbol("=")
        return replace(so_far, charset=cursor.name_or_string().lower())
    if cursor.one_of("COLLATE"):
        cursor.symbol("=")
        return replace(so_far, collation=cursor.name_or_string().lower())
    cursor.go_back(address)
    return None
