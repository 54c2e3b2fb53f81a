"""mysqltest's language: a file's text as statements, directives and blocks. `player` runs them.

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/PAGE_MYSQL_TEST_COMMANDS.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

BLOCKS = ("if", "while")
"""Directives that are followed by a block."""
UNTIL_EOF = ("perl", "write_file", "append_file")
"""Directives whose body ends with a line of its own."""
DIRECTIVE = re.compile(
    r"(dis|en)able_\w+|(partially_)?sorted_result|replace_\w+|(append|cat|copy|diff|file|list|move|remove|write)_(file|exist)\w*"
    r"|assert|change_user|character_set|chmod|connect|connection|dec|delimiter|die|dirty_close|disconnect|echo|end|error"
    r"|eval|evalp|exec(w|_in_background)?|exit|expr|force-\w+|(horizontal|vertical)_results|if|inc|let|lowercase_result"
    r"|mkdir|optimizer_trace|output|perl|ping|ps_\w+|query(_\w+)?|(real_)?sleep|reap|reset_?connection|result_format"
    r"|rmdir|save_master_pos|send(_\w+)?|shutdown_server|single_query|skip(_if_\w+)?|source|start_timer|sync_\w+|system"
    r"|wait_for_slave_to_stop|while"
)


@dataclass(frozen=True)
class Statement:
    """SQL; ``is_template``: it contains variables."""

    sql: str
    is_template: bool = False


@dataclass(frozen=True)
class Directive:
    """A command of mysqltest's, in lower case, and the rest of it."""

    name: str
    arguments: str


@dataclass(frozen=True)
class MessageBlock:
    """`if` or `while` (``name``) with its condition and body."""

    name: str
    condition: str
    body: list[Node] = field(default_factory=list)


Node = Statement | Directive | MessageBlock


class ScriptError(Exception):
    """A file that cannot be parsed; the message names the unsupported syntax."""


def read(path: Path) -> list[Node]:
    """The file's nodes. Each byte becomes one character."""
    return parse(path.read_bytes().decode("latin-1"))


def parse(text: str) -> list[Node]:
    """The nodes of a script; raises ScriptError for blocks that are not closed."""
    return _Parser(text).nodes()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text.replace("\r\n", "\n")
        self._at = 0
        self._delimiter = ";"

    def nodes(self, *, inside: bool = False) -> list[Node]:
        """Nodes up to the end, or the block's."""
        nodes: list[Node] = []
        while True:
            self._skip(r"\s+")
            rest = self._text[self._at : self._at + 20]
            if not rest:
                if inside:
                    raise ScriptError("a block is not closed")
                return nodes
            if rest.startswith(self._delimiter):
                self._at += len(self._delimiter)
            elif rest[0] == "#":
                self._line()
            elif rest[0] == "}":
                self._at += 1
                if inside:
                    return nodes
            elif rest.startswith("--"):
                line = self._line()[2:].strip()
                name = _first_word(line)
                if DIRECTIVE.fullmatch(name) and name not in BLOCKS:
                    self._directive(nodes, name, line[len(name) :].strip().removesuffix(self._delimiter).strip())
                elif name in BLOCKS:
                    self._at -= len(line) + 1  # a block may begin in such a line
                    self._block(nodes, name)
            elif (name := _first_word(rest)) in BLOCKS and self._is_condition(name):
                self._block(nodes, name)
            else:
                self._command(nodes)

    def _is_condition(self, name: str) -> bool:
        return bool(re.compile(r"\s*\(").match(self._text, self._at + len(name)))

    def _block(self, nodes: list[Node], name: str) -> None:
        begin = self._text.index("(", self._at) + 1
        depth, at, quote = 1, begin, ""
        while depth:
            if at >= len(self._text):
                raise ScriptError(f"the condition of {name!r} is not closed")
            char = self._text[at]
            if quote:
                quote = "" if char == quote else quote
            elif char in "'\"`":
                quote = char
            depth += 0 if quote else (char == "(") - (char == ")")
            at += 1
        condition = self._text[begin : at - 1].strip()
        self._at = at
        while True:  # comments between the condition and its block
            self._skip(r"\s+")
            if self._text[self._at : self._at + 1] != "#":
                break
            self._line()
        if self._text[self._at : self._at + 1] != "{":
            raise ScriptError(f"{name!r} has no block")
        self._at += 1
        nodes.append(MessageBlock(name, condition, self.nodes(inside=True)))

    def _command(self, nodes: list[Node]) -> None:
        text = self._until_delimiter()
        name = _first_word(text)
        if DIRECTIVE.fullmatch(name):
            self._directive(nodes, name, text[len(name) :].strip())
        elif text:
            nodes.append(Statement(text))

    def _directive(self, nodes: list[Node], name: str, arguments: str) -> None:
        if name == "delimiter":
            self._delimiter = arguments or ";"
        elif name in UNTIL_EOF:
            semicolon = arguments.split()[-1] if len(arguments.split()) > (name != "perl") else "EOF"
            while self._at < len(self._text) and self._line().strip() != semicolon:
                pass
            nodes.append(Directive(name, ""))
        elif name in ("eval", "evalp", "send_eval", "query", "send", "query_vertical", "query_horizontal"):
            sql = arguments or self._until_delimiter()
            nodes.append(Statement(sql, is_template="eval" in name or name.startswith("query_")))
        else:
            nodes.append(Directive(name, arguments))

    def _until_delimiter(self) -> str:
        """The text up to the delimiter, outside of quotes and comments."""
        begin, at, text, quote = self._at, self._at, self._text, ""
        while at < len(text):
            char = text[at]
            if quote:
                if char == "\\" and quote != "`":
                    at += 1
                elif char == quote:
                    quote = ""
            elif text.startswith(self._delimiter, at):
                self._at = at + len(self._delimiter)
                return text[begin:at].strip()
            elif char in "'\"`":
                quote = char
            elif (char == "#" or text.startswith("-- ", at)) and _begins_line(text, at):
                at = _line_end(text, at)
                continue
            elif text.startswith("/*", at):
                end = text.find("*/", at + 2)
                at = len(text) if end < 0 else end + 1
            at += 1
        self._at = len(text)
        return text[begin:].strip()

    def _line(self) -> str:
        end = _line_end(self._text, self._at)
        line = self._text[self._at : end]
        self._at = end + 1
        return line

    def _skip(self, pattern: str) -> None:
        if match := re.compile(pattern).match(self._text, self._at):
            self._at = match.end()


def _first_word(text: str) -> str:
    match = re.match(r"[A-Za-z_]+(?:-[a-z]+)?", text)
    return match[0].lower() if match else ""


def _begins_line(text: str, at: int) -> bool:
    return not text[text.rfind("\n", 0, at) + 1 : at].strip()


def _line_end(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end
