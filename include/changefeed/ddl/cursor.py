"""A cursor in the tokens of a statement, with the primitives of the grammar's rules."""

from __future__ import annotations

import re

from changefeed.ddl.names import TableName
from changefeed.ddl.scanner import Token, TokenKind, UnreadableStatement, scan
from changefeed.ddl.session import Server, SessionContext

_UNITS = ("MICROSECOND", "SECOND", "MINUTE", "HOUR", "DAY", "WEEK", "MONTH", "QUARTER", "YEAR")
"""The last words of an INTERVAL's units."""
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
    """Reads the tokens of a statement from left to right. Raises UnreadableStatement for an unexpected token."""

    def __init__(self, sql: str, session: SessionContext, server: Server) -> None:
        self.sql = sql
        self.session = session
        self.server = server
        self._tokens: list[Token] = []
        self._at = 0
        self.problem = ""
        """Why the scanner stopped before the end of the statement; '' if it did not."""
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
        """The token ``count`` after the next one; the last token if there are fewer."""
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

    def address(self) -> int:
        """The address of the next token, for `go_back`."""
        return self._at

    def go_back(self, address: int) -> None:
        """Go back to a result of `address`."""
        self._at = address

    def unreadable_error(self, expected: str) -> UnreadableStatement:
        """The error that says which token was expected and which was found."""
        token = self.token
        shown = repr(self.sql[token.start : token.start + 30]) if token.text else "the end"
        return UnreadableStatement(f"expected {expected} at character {token.start}, found {shown}")

    # --- keywords and symbols

    def is_word(self, *words: str) -> bool:
        """Whether the next tokens are these keywords."""
        return all(self.ahead(count).keyword == word for count, word in enumerate(words))

    def is_one_of(self, *words: str) -> bool:
        """Whether the next token is one of these keywords."""
        return self.token.keyword in words

    def word(self, *words: str) -> bool:
        """Take these keywords if they are the next tokens. Returns whether they were."""
        if not self.is_word(*words):
            return False
        self._at += len(words)
        return True

    def one_of(self, *words: str) -> str:
        """Take the next token if it is one of these keywords. Returns the keyword or ''."""
        keyword = self.token.keyword
        if keyword not in words:
            return ""
        self._at += 1
        return keyword

    def expect(self, *words: str) -> None:
        """Take these keywords. Raises UnreadableStatement if other tokens follow."""
        if not self.word(*words):
            raise self.unreadable_error(" ".join(words))

    def is_symbol(self, symbol: str, ahead: int = 0) -> bool:
        """Whether the next token, or the one ``ahead`` after it, is this symbol."""
        token = self.ahead(ahead)
        return token.kind is TokenKind.SYMBOL and token.text == symbol

    def symbol(self, symbol: str) -> bool:
        """Take this symbol if it is the next token. Returns whether it was."""
        if not self.is_symbol(symbol):
            return False
        self._at += 1
        return True

    def expect_symbol(self, symbol: str) -> None:
        """Take this symbol. Raises UnreadableStatement if another token follows."""
        if not self.symbol(symbol):
            raise self.unreadable_error(repr(symbol))

    # --- names and values

    def identifier(self) -> str:
        """Take a name, with or without quotes. Raises UnreadableStatement if no name follows."""
        if not self.is_kind(TokenKind.WORD, TokenKind.QUOTED):
            raise self.unreadable_error("a name")
        return self.as_stored(self.advance().text)

    def as_stored(self, text: str) -> str:
        """A name or comment as MySQL stores it: a question mark replaces each character beyond utf8mb3.

        MariaDB rejects such names."""
        return _BEYOND_UTF8MB3.sub("?", text)

    def table(self) -> TableName:
        """Take `table`, `database.table` or `.table`. Without a database, the session's default database applies."""
        self.symbol(".")
        first = self.identifier()
        database, table = (first, self.identifier()) if self.symbol(".") else (self.session.database, first)
        return TableName(self.server.table_name(database), self.server.table_name(table))

    def column(self) -> str:
        """Take a column's name, possibly after the name of its table: `a`, `t.a`, `d.t.a`."""
        name = self.identifier()
        while self.symbol("."):
            name = self.identifier()
        return name

    def name_or_string(self) -> str:
        """Take the name of a charset or a collation, which may also be a string."""
        return self.advance().text if self.is_kind(TokenKind.STRING) else self.identifier()

    def integer(self) -> int:
        """Take a number without sign and fraction. Raises UnreadableStatement if no such number follows."""
        if not self.is_kind(TokenKind.NUMBER) or not self.token.text.isdigit():
            raise self.unreadable_error("a number")
        return int(self.advance().text)

    def length(self) -> int | None:
        """Take `(number)`; None if none follows."""
        if not self.symbol("("):
            return None
        length = self.integer()
        self.expect_symbol(")")
        return length

    def whole_number(self) -> int:
        """Take a number without sign, and drop its fraction as servers do: DECIMAL(19.5) is DECIMAL(19)."""
        if self.is_kind(TokenKind.NUMBER) and re.fullmatch(r"\d+\.\d*", self.token.text):
            return int(self.advance().text.partition(".")[0])
        return self.integer()

    def if_exists(self) -> bool:
        """Take IF EXISTS if it follows. Returns whether it did."""
        return self.word("IF", "EXISTS")

    def if_not_exists(self) -> bool:
        """Take IF NOT EXISTS if it follows. Returns whether it did."""
        return self.word("IF", "NOT", "EXISTS")

    # --- what is skipped

    def parentheses(self) -> None:
        """Skip a pair of parentheses and its content."""
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
        """Skip everything before the next of ``symbols`` outside parentheses, or the end."""
        while not self.at_end and not any(self.is_symbol(symbol) for symbol in symbols):
            if self.is_symbol("("):
                self.parentheses()
            else:
                self.advance()

    def expression(self) -> None:
        """Skip the expression of a DEFAULT, with or without parentheses."""
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
            is_function = self.is_symbol("(")  # INTERVAL(a, 10, 20) is a function if no unit follows
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
