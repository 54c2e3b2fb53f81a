"""Runs a mysqltest script on a server: as much of the language as most statements need.

Only the statements and their effect on the server count, not what a script prints or expects. So unknown directives
are skipped, and statements that the server refuses are not an error.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
from foreign.script import Directive, MessageBlock, Node, ScriptError, Statement, read

from devstack.sql_server import SqlServer

MOST_STATEMENTS = 10_000
MOST_SECONDS = 90
STATEMENT_SECONDS = 20
DATABASE = "test"
"""The database that scripts begin in."""

READS = re.compile(
    r"[\s(]*(SELECT|SHOW|EXPLAIN|DESC|DESCRIBE|HELP|CHECKSUM|CHECK|ANALYZE|TABLE|VALUES|HANDLER|CACHE|KILL|UNLOCK|LOCK"
    r"|WITH(?!.*\b(?:UPDATE|DELETE)\b))\b",
    re.IGNORECASE | re.DOTALL,
)
"""Statements that change nothing, and locks, which would block the comparison."""
INTO = re.compile(r"\bINTO\s+@|\bINTO\s+(OUT|DUMP)FILE|\bNEXTVAL\b|\bNEXT\s+VALUE\b|\bSETVAL\b", re.IGNORECASE)

NOT_RUN = (
    (r"SHUTDOWN|RESTART\b", "it ends the server"),
    (
        r"RESET\s+(MASTER|BINARY|REPLICA|SLAVE)|PURGE\b|FLUSH\s+(NO_WRITE_TO_BINLOG\s+|LOCAL\s+)?(BINARY\s+)?LOGS",
        "binlogs",
    ),
    (r"FLUSH\s+TABLES?\b.*\b(READ\s+LOCK|FOR\s+EXPORT)|BACKUP\s|LOCK\s+INSTANCE", "it locks what is compared"),
    (r"(CHANGE|START|STOP)\s+(MASTER|SLAVE|REPLICA|REPLICATION|GROUP_REPLICATION|ALL)", "it wants another server"),
    (r"XA\b", "XA transactions are tested elsewhere"),
    (r"BINLOG\b", "it is an event of another server"),
    (r"(IN|UNIN)STALL\b|CREATE\s+(SERVER|TABLESPACE|UNDO|LOGFILE)|ALTER\s+INSTANCE|CLONE\b|IMPORT\b", "server's files"),
    (r"(CREATE|ALTER|DROP|RENAME|GRANT|REVOKE|SET)\s.*\b(root|PASSWORD)\b", "it may lock us out"),
    (r"DO\s+(SLEEP|GET_LOCK|BENCHMARK)", "it only takes time"),
)
SETTINGS = re.compile(
    r"SET\b.*\b(sql_log_bin|binlog_\w+|log_bin\w*|gtid_\w+|server_id|pseudo_\w+|(super_|transaction_)?read_only|debug\w*"
    r"|offline_mode|require_secure_transport|\w*lock_wait_timeout|max_connections|max_user_connections|default_storage_engine"
    r"|event_scheduler|general_log\w*|log_output|keyring\w*|max_binlog\w*|sync_binlog|wsrep\w*|rpl_\w+|\w*slave\w*"
    r"|\w*replica\w*|innodb_\w*(freeze|force|read_only|fast_shutdown|redo|encrypt)\w*|\w*password\w*|init_connect"
    r"|skip_\w+|secure_\w+|foreign_key_checks_dummy|max_allowed_packet|net_\w+|interactive_timeout|wait_timeout)\b",
    re.IGNORECASE | re.DOTALL,
)
"""Variables that are not set, as they change what is logged, or make the server unreachable."""

OTHER_SERVERS = re.compile(
    r"master-slave|rpl_|group_replication|restart|shutdown|start_mysqld|ndb|galera|mysqlbackup|clone|wsrep"
    r"|big_test|have_valgrind"
)
"""Included files that need other servers, or a debug build."""


VARIABLES = {"ENGINE": "InnoDB", "TEST_VERSIONING_SO": "1", "MTR_COMBINATION_TIMESTAMP": "1"}
"""Variables that mysql-test-run sets."""


SKIPPED = re.compile(
    r"have_|not_|wait_|count_sessions|no_|check-|is_|only_|linux|default_|set_gtid|force_|assert|grep|show_|kill_|analyze"
)
"""Included files that only query, wait, or require a build or a setting."""


class NotComparable(Exception):
    """The script needs something that is not supported here."""


@dataclass
class Player:
    """One script on one server. ``watch`` is called before each statement with its text, and after it with None."""

    server: SqlServer
    folder: Path
    watch: Callable[[str | None], None]
    statements: int = 0
    refused: int = 0
    left_out: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._variables = dict(VARIABLES)
        self._connections: dict[str, Any] = {}
        self._current = "default"
        self._charset = ""
        self._until = time.monotonic() + MOST_SECONDS
        self._sources: list[Path] = []

    def play(self, path: Path) -> None:
        """Run a script; raises NotComparable if it needs more than its statements."""
        try:
            self._connection()
            self._run_file(path)
        except _End:
            pass
        except ScriptError as error:
            raise NotComparable(str(error)) from None
        except pymysql.err.InterfaceError:
            raise NotComparable("the server closed the connection") from None

    @property
    def in_transaction(self) -> bool:
        """Whether a connection has begun something that is not committed."""
        return any(connection.server_status & 1 for connection in self._connections.values() if connection.open)

    def close(self) -> None:
        """End all connections; what they did not commit is rolled back."""
        for connection in self._connections.values():
            if connection.open:
                with suppress(pymysql.MySQLError):
                    connection.close()

    # --- nodes

    def _run_file(self, path: Path) -> None:
        self._sources.append(path)
        self._run(read(path))
        self._sources.pop()

    def _run(self, nodes: list[Node]) -> None:
        for node in nodes:
            if time.monotonic() > self._until or self.statements > MOST_STATEMENTS:
                raise NotComparable(f"more than {MOST_STATEMENTS} statements or {MOST_SECONDS} s")
            match node:
                case Statement(sql, is_template):
                    self._sql(self._expand(sql) if is_template or sql.startswith("$") else sql)
                case MessageBlock(name="if"):
                    if self._is_true(node.condition):
                        self._run(node.body)
                case MessageBlock():
                    while self._is_true(node.condition):
                        self._run(node.body)
                        self.statements += 1  # limits endless loops
                        if self.statements > MOST_STATEMENTS:
                            raise NotComparable(f"a loop of more than {MOST_STATEMENTS} steps")
                case Directive(name, arguments):
                    self._directive(name, arguments)

    def _directive(self, name: str, arguments: str) -> None:
        match name:
            case "let":
                self._let(arguments)
            case "inc" | "dec":
                variable = arguments.strip().lstrip("$")
                number = int(self._variables.get(variable) or 0)
                self._variables[variable] = str(number + (1 if name == "inc" else -1))
            case "connect":
                name, _, _, _, database, *_ = [*self._expand(arguments).strip("() ").split(","), *[""] * 5]
                self._connect(name.strip(), database.strip())
            case "connection":
                expected = self._expand(arguments).strip()
                self._current = expected if expected in self._connections else "default"
            case "disconnect" | "dirty_close":
                if (connection := self._connections.pop(arguments.strip(), None)) is not None and connection.open:
                    connection.close()
                if self._current == arguments.strip():
                    self._current = "default"
            case "source":
                self._source(self._expand(arguments).strip().strip("'\""))
            case "skip" | "exit" | "die":
                raise _End
            case "shutdown_server" | "send_shutdown" | "sync_slave_with_master" | "sync_with_master":
                raise NotComparable(f"{name}: it wants another server, or this one to end")
            case "perl" | "exec" | "write_file" | "system" | "execw" | "exec_in_background":
                self._leave_out(name)

    def _source(self, name: str) -> None:
        short = name.rsplit("/", 1)[-1]
        if OTHER_SERVERS.search(short):
            raise NotComparable(f"it wants {short}")
        if SKIPPED.match(short):
            return
        paths = [
            self.folder / name,
            self._sources[-1].parent / name,
            self.folder / "include" / short,
            self.folder / name.removeprefix("mysql-test/"),
        ]
        path = next((path for path in paths if path.is_file()), None)
        if path is None:
            self._leave_out(f"source {short}")
        elif path not in self._sources:
            self._run_file(path)

    def _let(self, arguments: str) -> None:
        name, _, value = arguments.partition("=")
        self._variables[name.strip().lstrip("$")] = self._value(value.strip())

    def _value(self, text: str) -> str:
        if text.startswith("`") and text.endswith("`"):
            rows = self._rows(self._expand(text[1:-1]))
            return _text(rows[0][0]) if rows and rows[0] else ""
        if match := re.match(r"query_get_value\s*\((.*),\s*([^,]+),\s*(\d+)\s*\)$", text, re.DOTALL):
            rows = self._rows(self._expand(match[1].strip(" '\"")))
            return _text(rows[int(match[3]) - 1][0]) if len(rows) >= int(match[3]) > 0 else "No such row"
        return self._expand(text)

    def _expand(self, text: str) -> str:
        def value(match: re.Match[str]) -> str:
            return self._variables.get(match[1], "")

        return re.sub(r"(?<!\\)\$(\w+)", value, text).replace("\\$", "$")

    def _is_true(self, condition: str) -> bool:
        negated = condition.startswith("!")
        text = condition.lstrip("!").strip()
        if match := re.match(r"(\$\w+)\s*(==|!=|<=|>=|<|>)\s*(.+)$", text):
            left, right = self._expand(match[1]), self._value(match[3].strip()).strip("'\"")
            return _compare(left, match[2], right) != negated
        value = self._value(text).strip()
        return (value not in ("", "0")) != negated

    # --- SQL

    def _sql(self, sql: str) -> None:
        sql = sql.strip()
        if not sql or (READS.match(sql) and not INTO.search(sql)):
            return
        if (reason := _why_not(sql)) is not None:
            self._leave_out(reason)
            return
        self.watch(sql)
        self.statements += 1
        try:
            self._rows(sql, quiet=False)
        except pymysql.MySQLError:
            self.refused += 1
        self.watch(None)

    def _rows(self, sql: str, *, quiet: bool = True) -> list[Any]:
        connection = self._connection()
        try:
            connection.query(sql.encode("latin-1", "replace"))
            rows = list(connection._result.rows or ()) if connection._result is not None else []
            while connection._result is not None and connection._result.has_next:
                connection.next_result()
            return rows
        except pymysql.err.OperationalError as error:
            if error.args[0] in (2006, 2013, 1927, 1053) or not connection.open:  # gone
                self._connections.pop(self._current, None)
                self._current = "default"
            if not quiet:
                raise
        except (pymysql.MySQLError, RuntimeError):
            if not quiet:
                raise
        return []

    def _connection(self) -> Any:
        if self._current not in self._connections:
            self._connect(self._current, DATABASE)
        return self._connections[self._current]

    def _connect(self, name: str, database: str) -> None:
        connection = self.server.connect(
            use_unicode=False,
            conv={},
            read_timeout=STATEMENT_SECONDS,
            client_flag=pymysql.constants.CLIENT.MULTI_STATEMENTS,
        )
        connection.encoding = "latin-1"  # any bytes may be the name of a column
        with connection.cursor() as cursor:
            cursor.execute("SET lock_wait_timeout = 1, innodb_lock_wait_timeout = 1")
            try:
                cursor.execute(f"USE `{(database or DATABASE).replace('*NO-ONE*', DATABASE)}`")
            except pymysql.MySQLError:
                cursor.execute(f"USE {DATABASE}")
        self._connections[name] = connection
        self._current = name

    def _leave_out(self, what: str) -> None:
        self.left_out[what] = self.left_out.get(what, 0) + 1


class _End(Exception):
    """The script ends itself."""


def _why_not(sql: str) -> str | None:
    plain = re.sub(r"^(\s|/\*(?!!|M!).*?\*/|--\s[^\n]*\n|#[^\n]*\n)+", "", sql, flags=re.DOTALL)
    for pattern, reason in NOT_RUN:
        if re.match(pattern, plain, re.IGNORECASE | re.DOTALL):
            return reason
    return "a setting that is ours" if SETTINGS.match(plain) else None


def _compare(left: str, operator: str, right: str) -> bool:
    try:
        order = (int(left) > int(right)) - (int(left) < int(right))
    except ValueError:
        order = (left > right) - (left < right)
    return {"==": order == 0, "!=": order != 0, "<": order < 0, ">": order > 0, "<=": order <= 0, ">=": order >= 0}[
        operator
    ]


def _text(value: Any) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else "" if value is None else str(value)
