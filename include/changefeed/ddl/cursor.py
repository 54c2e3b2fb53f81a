"""An address in a statement's tokens, and the small questions that every rule of the grammar asks there."""

from __future__ import annotations

import re

from changefeed.ddl.names import TableName
from changefeed.ddl.scanner import Token, TokenKind, UnreadableStatement, scan
from changefeed.ddl.session import Server, SessionContext

_UNITS = ("MICROSECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
"""What the units of an INTERVAL end in."""
_OPERATORS = frozenset(
    {
        *("+", "-", "*", "/", "%", "|", "&", "^", "<", ">", "=", "<=", ">=", "<>", "!=", "<=>", "<<", ">>"),
        *("&&", "||", "->", "->>", ":="),
    }
)
_OPERATOR_WORDS = frozenset(
    {
        *("AND", "OR", "XOR", "DIV", "MOD", "LIKE", "RLIKE", "REGEXP", "IN", "IS", "BETWEEN", "ESCAPE", "SOUNDS"),
    }
)
_BEYOND_UTF8MB3 = re.compile("[^\0-\uffff]")
_PREFIXES = frozenset(("+", "-", "!", "~"))


class Cursor:
    """Reads a statement's tokens from left to right. Raises UnreadableStatement where another token was wanted."""

    def __init__(self, sql: str, session: SessionContext, server: Server) -> None:
        self.sql = sql
        self.session = session
        self.server = server
        self._tokens: list[Token] = []
        self._at = 0
        self.problem = ""
        """Why the tokens end before the statement does; '' where they do not."""
        try:
            self._tokens += scan(sql, session, server)
        except UnreadableStatement as error:
            self.problem = str(error)
            self._tokens.append(Token(TokenKind.END, "", len(sql), len(sql)))

    @property
    def token(self) -> Token:
        """The next token."""
        return self._tokens[self._at]

    def ahead(self, count: int) -> Token:
        """The token ``count`` after the next one; the last token beyond the end."""
        return self._tokens[min(self._at + count, len(self._tokens) - 1)]

    def is_kind(self, *kinds: TokenKind) -> bool:
        """Whether the next token is of one of these kinds."""
        return self.token.kind in kinds

    @property
    def at_end(self) -> bool:
        """Whether the statement ends here."""
        return self.is_kind(TokenKind.END) or self.is_symbol(";")

    def advance(self) -> Token:
        """Take the next token; raises UnreadableStatement at the end."""
        token = self.token
        if token.kind is TokenKind.END:
            raise UnreadableStatement("the statement ends too early")
        self._at += 1
        return token

    def mark(self) -> int:
        """The address of the next token, for `go_back`."""
        return self._at

    def go_back(self, mark: int) -> None:
        """Go back to what `mark` gave."""
        self._at = mark

    def unreadable(self, wanted: str) -> UnreadableStatement:
        """The error that says what was wanted here, and what the statement has."""
        token = self.token
        shown = repr(self.sql[token.start : token.start + 30]) if token.text else "the end"
        return UnreadableStatement(f"wanted {wanted} at character {token.start}, found {shown}")

    # --- keywords and symbols

    def is_word(self, *words: str) -> bool:
        """Whether the next tokens are these keywords."""
        return all(self.ahead(count).keyword == word for count, word in enumerate(words))

    def is_one_of(self, *words: str) -> bool:
        """Whether the next token is one of these keywords."""
        return self.token.keyword in words

    def word(self, *words: str) -> bool:
        """Take these keywords, if they are the next tokens."""
        if not self.is_word(*words):
            return False
        self._at += len(words)
        return True

    def one_of(self, *words: str) -> str:
        """Take the next token if it is one of these keywords; the keyword, or ''."""
        keyword = self.token.keyword
        if keyword not in words:
            return ""
        self._at += 1
        return keyword

    def expect(self, *words: str) -> None:
        """Take these keywords; raises UnreadableStatement where others follow."""
        if not self.word(*words):
            raise self.unreadable(" ".join(words))

    def is_symbol(self, symbol: str, ahead: int = 0) -> bool:
        """Whether the next token, or the one ``ahead`` after it, is this symbol."""
        token = self.ahead(ahead)
        return token.kind is TokenKind.SYMBOL and token.text == symbol

    def symbol(self, symbol: str) -> bool:
        """Take this symbol, if it is the next token."""
        if not self.is_symbol(symbol):
            return False
        self._at += 1
        return True

    def expect_symbol(self, symbol: str) -> None:
        """Take this symbol; raises UnreadableStatement where another token follows."""
        if not self.symbol(symbol):
            raise self.unreadable(repr(symbol))

    # --- names and values

    def identifier(self) -> str:
        """Take a name, with or without quotes; raises UnreadableStatement where none follows."""
        if not self.is_kind(TokenKind.WORD, TokenKind.QUOTED):
            raise self.unreadable("a name")
        return self.stored(self.advance().text)

    def stored(self, text: str) -> str:
        """A name or comment as the server keeps it: with a question mark for what utf8mb3 cannot hold. (MariaDB refuses
        such names.)"""
        return _BEYOND_UTF8MB3.sub("?", text)

    def table(self) -> TableName:
        """`table`, `database.table` or `.table`; without a database the session's default database."""
        self.symbol(".")
        first = self.identifier()
        database, table = (first, self.identifier()) if self.symbol(".") else (self.session.database, first)
        return TableName(self.server.table_name(database), self.server.table_name(table))

    def column(self) -> str:
        """A column's name, which may be written with its table's: `a`, `t.a`, `d.t.a`."""
        name = self.identifier()
        while self.symbol("."):
            name = self.identifier()
        return name

    def name_or_string(self) -> str:
        """A charset's or collation's name: both are also written in quotes."""
        return self.advance().text if self.is_kind(TokenKind.STRING) else self.identifier()

    def integer(self) -> int:
        """Take a number without sign and fraction; raises UnreadableStatement where none follows."""
        if not self.is_kind(TokenKind.NUMBER) or not self.token.text.isdigit():
            raise self.unreadable("a number")
        return int(self.advance().text)

    def length(self) -> int | None:
        """Take `(number)`; None where none follows."""
        if not self.symbol("("):
            return None
        length = self.integer()
        self.expect_symbol(")")
        return length

    def whole_number(self) -> int:
        """Take a number without sign, of which the server leaves the fraction out, as in DECIMAL(19.5)."""
        if self.is_kind(TokenKind.NUMBER) and re.fullmatch(r"\d+\.\d*", self.token.text):
            return int(self.advance().text.partition(".")[0])
        return self.integer()

    def if_exists(self) -> bool:
        """Take IF EXISTS, if it follows."""
        return self.word("IF", "EXISTS")

    def if_not_exists(self) -> bool:
        """Take IF NOT EXISTS, if it follows."""
        return self.word("IF", "NOT", "EXISTS")

    # --- what is passed over

    def parentheses(self) -> None:
        """Pass over a pair of parentheses and everything in it."""
        self.expect_symbol("(")
        depth = 1
        while depth:
            if self.symbol("("):
                depth += 1
            elif self.symbol(")"):
                depth -= 1
            else:
                self.advance()

    def until(self, *symbols: str) -> None:
        """Pass over everything before the next of ``symbols`` outside parentheses, or the end."""
        while not self.at_end and not any(self.is_symbol(symbol) for symbol in symbols):
            if self.is_symbol("("):
                self.parentheses()
            else:
                self.advance()

    def expression(self) -> None:
        """Pass over the expression of a DEFAULT, which need not stand in parentheses."""
        self._operand()
        while True:
            if self.is_kind(TokenKind.SYMBOL) and self.token.text in _OPERATORS:
                self.advance()
            elif self.is_one_of(*_OPERATOR_WORDS):
                self.advance()
                self.word("NOT")
            elif self.is_word("NOT") and self.ahead(1).keyword in _OPERATOR_WORDS:
                self.advance()
                self.advance()
            else:
                return
            self._operand()

    def _operand(self) -> None:
        while (self.is_kind(TokenKind.SYMBOL) and self.token.text in _PREFIXES) or self.is_word("NOT"):
            self.advance()
        if self.is_symbol("("):
            self.parentheses()
        elif self.word("CASE"):
            while not self.word("END"):
                self.advance()
        elif self.word("INTERVAL"):
            is_function = self.is_symbol("(")  # INTERVAL(a, 10, 20), if no unit follows
            self._operand()
            if not is_function or self.token.keyword.rpartition("_")[2] in _UNITS:
                self.identifier()
        elif self.word("NEXT", "VALUE", "FOR") or self.word("PREVIOUS", "VALUE", "FOR"):
            self.table()
        elif self.is_kind(TokenKind.STRING):
            while self.is_kind(TokenKind.STRING):
                self.advance()
        else:
            while self.symbol("@"):
                pass
            token = self.advance()
            while self.symbol("."):
                self.advance()
            if token.keyword.startswith("_"):
                if self.is_one_of("X", "B") and self.ahead(1).kind is TokenKind.STRING:
                    self.advance()  # _utf8mb4 X'41'
                elif self.is_kind(TokenKind.NUMBER):
                    self.advance()  # _latin1 0x41
            if token.kind is TokenKind.WORD and self.is_kind(TokenKind.STRING):
                self.advance()  # x'00', N'text', _utf8mb4'text', DATE'2020-01-01'
            if self.is_symbol("("):
                self.parentheses()
