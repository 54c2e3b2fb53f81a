"""The scanner, which splits a statement into tokens by the rules of MySQL's and MariaDB's lexers.

Why not sqlglot's tokenizer: it does not know versioned comments, reads `--5` as a comment, and ignores the session's
sql_mode.

Sources: https://dev.mysql.com/doc/refman/9.7/en/comments.html, https://dev.mysql.com/doc/refman/9.7/en/string-literals.html,
https://dev.mysql.com/doc/refman/9.7/en/identifiers.html, https://mariadb.com/kb/en/comment-syntax/
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from changefeed.ddl.session import Server, SessionContext


class UnreadableStatement(Exception):
    """A statement that the grammar does not know; the message has the position.

    Only this room catches it. The result is then a statement with known tables and an unknown effect.
    """


class TokenKind(Enum):
    """The kind of a token."""

    WORD = "word"
    """An unquoted identifier or a keyword."""
    QUOTED = "quoted"
    """A quoted identifier; never a keyword."""
    STRING = "string"
    NUMBER = "number"
    SYMBOL = "symbol"
    END = "end"


@dataclass(frozen=True)
class Token:
    """A token. ``text`` is its value without quotes and escapes. ``start`` and ``end`` are indexes in the statement."""

    kind: TokenKind
    text: str
    start: int
    end: int

    @property
    def keyword(self) -> str:
        """The text in upper case, if it may be a keyword; else ''."""
        return self.text.upper() if self.kind is TokenKind.WORD else ""


_NEXT = re.compile(
    r"""
    (?P<space>[\ \t\n\r\f\v]+|\#[^\n]*|--(?=[\x00-\x20\x7f]|\Z)[^\n]*)
  | (?P<versioned>/\*(?P<mariadb>M?)!(?P<version>[0-9]{5,6})?)
  | (?P<comment>/\*)
  | (?P<close>\*/)
  | (?P<backtick>`(?:[^`]|``)*`)
  | (?P<number>[0-9]+\.[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-][0-9]+)
  | (?P<word>[0-9A-Za-z_$\u0080-\U0010ffff]+)
  | (?P<quote>['"])
  | (?P<symbol>:=|<=>|<<|>>|<=|>=|<>|!=|&&|\|\||->>?|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_SIGN = re.compile(r"/\*|\*/")
_WORD = re.compile(r"[0-9A-Za-z_$\u0080-\U0010ffff]+")
_NUMERIC = re.compile(r"[0-9]+(?:[eE][0-9]+)?\Z|0x[0-9A-Fa-f]+\Z|0b[01]+\Z")
_ESCAPES = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def scan(sql: str, session: SessionContext, server: Server) -> Iterator[Token]:
    """Yield the tokens of ``sql`` as ``server`` reads them, and a last token of kind END.

    Comments are skipped. The content of a versioned comment is read if the server has its flavour and version. Raises
    UnreadableStatement for a quote or comment without an end.
    """
    at = 0
    open_versioned = 0
    previous: Token | None = None
    while at < len(sql):
        match = _NEXT.match(sql, at)
        if match is None:  # impossible: the last alternative matches any character
            raise UnreadableStatement(f"nothing to read at character {at}")
        kind, start, at = match.lastgroup, at, match.end()
        after_dot = previous is not None and previous.text == "." and previous.kind is TokenKind.SYMBOL
        if kind == "space":
            continue
        if kind == "versioned":
            if _is_read(bool(match["mariadb"]), match["version"], server):
                open_versioned += 1
            elif match["mariadb"] and not server.is_mariadb:
                at = _plain_comment_end(sql, at)  # MySQL reads it as a plain comment
            else:
                at = _versioned_comment_end(sql, at)
            continue
        if kind == "comment":
            at = _plain_comment_end(sql, at)
            continue
        if kind == "close":
            if open_versioned:
                open_versioned -= 1
                continue
            at = start + 1
            token = Token(TokenKind.SYMBOL, "*", start, at)
        elif kind == "quote":
            is_name = sql[start] == '"' and session.ansi_quotes
            text, at = _read_quoted(sql, start, escapes=not (is_name or session.no_backslash_escapes))
            token = Token(TokenKind.QUOTED if is_name else TokenKind.STRING, text, start, at)
        elif kind == "backtick":
            token = Token(TokenKind.QUOTED, match[0][1:-1].replace("``", "`"), start, at)
        elif kind == "number" and (after_dot or (match[0][0] == "." and _is_name(previous, start))):
            # `db.1table` or `db.1`: a name follows a dot that follows a name
            if match[0][0] == ".":
                at = start + 1
                token = Token(TokenKind.SYMBOL, ".", start, at)
            else:
                name = _WORD.match(sql, start)
                at = name.end() if name else at
                token = Token(TokenKind.WORD, sql[start:at], start, at)
        elif kind == "number":
            token = Token(TokenKind.NUMBER, match[0], start, at)
        elif kind == "word":
            numeric = not after_dot and _NUMERIC.match(match[0])
            token = Token(TokenKind.NUMBER if numeric else TokenKind.WORD, match[0], start, at)
        else:
            token = Token(TokenKind.SYMBOL, match[0], start, at)
        previous = token
        yield token
    yield Token(TokenKind.END, "", len(sql), len(sql))


def _is_name(token: Token | None, start: int) -> bool:
    return token is not None and token.kind in (TokenKind.WORD, TokenKind.QUOTED) and token.end == start


def _is_read(for_mariadb: bool, version: str | None, server: Server) -> bool:
    if not server.is_mariadb:
        return not for_mariadb and (version is None or int(version) <= server.version_number)
    if version is None:
        return True
    # MariaDB skips comments for MySQL 5.7 and later.
    return int(version) <= server.version_number and (for_mariadb or not 50700 <= int(version) <= 99999)


def _versioned_comment_end(sql: str, at: int) -> int:
    """The end of a versioned comment that is skipped. Plain comments may be nested in it, to one level."""
    while sign := _COMMENT_SIGN.search(sql, at):
        if sign[0] == "*/":
            return sign.end()
        at = _plain_comment_end(sql, sign.end())
    raise UnreadableStatement("a comment has no end")


def _plain_comment_end(sql: str, at: int) -> int:
    closed = sql.find("*/", at)
    if closed < 0:
        raise UnreadableStatement("a comment has no end")
    return closed + 2


def _read_quoted(sql: str, start: int, *, escapes: bool) -> tuple[str, int]:
    """The value of the quoted text that begins at ``start``, and the index after the text."""
    quote = sql[start]
    parts: list[str] = []
    stop = re.compile(rf"[{quote}\\]" if escapes else quote)
    at = start + 1
    while match := stop.search(sql, at):
        parts.append(sql[at : match.start()])
        at = match.end()
        if match[0] == "\\":
            following = sql[at : at + 1]
            parts.append(_ESCAPES.get(following, following))
            at += 1
        elif sql[at : at + 1] == quote:
            parts.append(quote)
            at += 1
        else:
            return "".join(parts), at
    raise UnreadableStatement(f"a quoted text that begins at character {start} has no end")
