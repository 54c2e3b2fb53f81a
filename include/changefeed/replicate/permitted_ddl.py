"""Checks that a follower runs only DDL that changes tables or databases of its scope.

Records of DDL and of snapshots contain SQL, which the follower runs with its own login. A user with write access to
their topics could write any SQL. Therefore:

- A statement runs only if it is completely parsed here, and creates, alters, renames, truncates or drops tables or
  databases of the follower's `Scope`.
- Statements that read other tables or files, or make the server connect elsewhere, are refused.
- The text is parsed in the same way as the follower's server parses it: according to the server's version (executable
  comments) and the sql_mode of the record.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise, takewhile

from changefeed.ddl.changes import (
    AlterDatabase,
    AlterTable,
    CreateDatabase,
    CreateSequence,
    CreateTable,
    CreateTableLike,
    DropDatabase,
    DropTables,
    RenameTables,
    RenameTo,
    SchemaChange,
    TruncateTable,
    UnreadChange,
)
from changefeed.ddl.ddl_statement import DdlStatement, read_statement, touched_tables
from changefeed.ddl.names import TableName
from changefeed.ddl.scanner import Token, TokenKind, UnreadableStatement, scan
from changefeed.ddl.session import SessionContext
from changefeed.errors import FollowerError
from changefeed.replicate.scope import Scope

ENGINES = frozenset(
    {
        *("INNODB", "MYISAM", "ARIA", "MEMORY", "HEAP", "ARCHIVE", "CSV", "BLACKHOLE"),
        *("ROCKSDB", "TOKUDB", "NDB", "NDBCLUSTER", "COLUMNSTORE"),
    }
)
"""Engines that store rows on the server itself, unlike FEDERATED, CONNECT, SPIDER, MERGE ..."""
_FUNCTIONS = frozenset(
    {
        *("LOAD_FILE", "SLEEP", "BENCHMARK", "GET_LOCK", "RELEASE_LOCK", "RELEASE_ALL_LOCKS", "MASTER_POS_WAIT"),
        *("SOURCE_POS_WAIT", "WAIT_FOR_EXECUTED_GTID_SET", "MASTER_GTID_WAIT", "SYS_EXEC", "SYS_EVAL"),
    }
)
"""Functions that read files, wait or call programs: no table needs them."""
_OF_SEQUENCES = frozenset({"NEXTVAL", "SETVAL", "LASTVAL"})
"""MariaDB's functions of sequences. A column's default may name a sequence of any database, and an ALTER TABLE that
adds the column calls the function."""
_STATEMENT_VARIABLES = frozenset(
    {
        *("MAX_STATEMENT_TIME", "LOCK_WAIT_TIMEOUT", "INNODB_LOCK_WAIT_TIMEOUT", "ALTER_ALGORITHM", "OLD_ALTER_TABLE"),
        *("FOREIGN_KEY_CHECKS", "UNIQUE_CHECKS", "CHECK_CONSTRAINT_CHECKS", "SYSTEM_VERSIONING_ALTER_HISTORY"),
        *("SYSTEM_VERSIONING_INSERT_HISTORY", "BINLOG_ALTER_TWO_PHASE", "SORT_BUFFER_SIZE", "MYISAM_SORT_BUFFER_SIZE"),
    }
)
"""Variables that MariaDB's SET STATEMENT may set for DDL."""
_COLUMN_CLAUSES = frozenset({"ADD", "DROP", "CHANGE", "MODIFY", "RENAME", "ALTER", "ORDER"})
_NAMES = (TokenKind.WORD, TokenKind.QUOTED, TokenKind.STRING)


def check_ddl(statement: DdlStatement, scope: Scope, where: str) -> None:
    """Raises FollowerError if the DDL ``statement`` is not permitted. ``where`` describes its record."""
    change = statement.change
    match change:
        case CreateDatabase(name=database) | AlterDatabase(name=database) | DropDatabase(name=database):
            reason = "" if scope.takes_database(database) else f"the pipeline does not capture database {database!r}"
        case RenameTables(names=pairs):
            reason = next((reason for pair in pairs if (reason := _rename_reason(*pair, scope))), "")
        case AlterTable(name=name, actions=(RenameTo(name=new),)):
            reason = _rename_reason(name, new, scope)
        case CreateTable(select=True):
            reason = "it reads tables"
        case (
            CreateTable() | CreateTableLike() | CreateSequence() | AlterTable() | DropTables() | TruncateTable()
        ) as known:
            reason = _tables_reason(touched_tables(known), scope)
            if not reason and isinstance(known, CreateTableLike) and not scope.may_name(*known.like):
                reason = f"the pipeline captures no table of the database of {known.like}"
        case UnreadChange(problem=problem):
            reason = f"it cannot be read ({problem})"
        case _:
            reason = "it is not DDL of tables or databases"
    if reason := reason or _words_reason(statement, scope):
        raise refusal(statement.sql, where, reason)


def check_created_table(sql: str, name: str, scope: Scope) -> None:
    """Raises FollowerError unless ``sql`` only creates the table ``name`` (DATABASE.TABLE), which is in the scope."""
    database, _, table = name.partition(".")
    expected = TableName(*map(scope.server.table_name, (database, table)))
    statement = read_statement(sql, SessionContext(database), scope.server)
    where = f"a snapshot's record of table {name} in the commit log"
    is_creation = isinstance(statement.change, CreateTable) and not statement.change.select
    if not is_creation or touched_tables(statement.change) != (expected,):  # type: ignore[arg-type]
        raise refusal(sql, where, f"it is not the CREATE TABLE of {name}")
    check_ddl(statement, scope, where)


def check_created_database(sql: str, database: str, scope: Scope) -> None:
    """Raises FollowerError unless ``sql`` only creates ``database``, which is in the scope."""
    statement = read_statement(sql, SessionContext(), scope.server)
    where = f"a snapshot's record of database {database} in the commit log"
    if not isinstance(statement.change, CreateDatabase) or statement.change.name != scope.server.table_name(database):
        raise refusal(sql, where, f"it is not the CREATE DATABASE of {database}")
    check_ddl(statement, scope, where)


def emptied_database(change: SchemaChange | None) -> str:
    """The database that ``change`` drops with all of its tables; '' if it drops none."""
    match change:
        case DropDatabase(name=name) | CreateDatabase(name=name, replace=True):
            return name
    return ""


def check_emptied(database: str, tables: Collection[str], scope: Scope, where: str) -> None:
    """Raises FollowerError if a statement would drop ``database`` with ``tables`` that are outside of the scope."""
    others = sorted(table for table in tables if not scope.takes(database, table))
    if others:
        raise FollowerError(
            f"{where} drops database {database!r}, in which the follower has {others[0]!r} and {len(others) - 1} more "
            "tables that the pipeline does not capture: they would be dropped, too. The statement was not run. Move "
            "them to another database, or drop them, and run again. If the source did not drop the database, somebody "
            "else may write to the pipeline's topics: look at their ACLs."
        )


def refusal(sql: str, where: str, reason: str) -> FollowerError:
    """The error for a statement that is not permitted."""
    return FollowerError(
        f"{sql[:500]!r}, of {where}, is refused: {reason}. A follower runs statements that create, alter, rename, "
        "truncate or drop tables that `tables.include` of its pipeline matches, and their databases, with engines "
        "that store rows on the server itself. Nothing of it was run. If the source did not run it, somebody else may "
        "write to the pipeline's topics: look at their ACLs. If it did, copy its tables to the follower again, and "
        "give the coordinates of the copy with --from."
    )


def _rename_reason(old: TableName, new: TableName, scope: Scope) -> str:
    """Why a rename is refused; '' if it is permitted.

    It is permitted if one of the two names is in the scope: online schema change tools swap a captured table with a
    table that is not captured.
    """
    if scope.takes(*old) or scope.takes(*new):
        return next((_uncaptured_reason(name) for name in (old, new) if not scope.may_name(*name)), "")
    return _uncaptured_reason(old)


def _tables_reason(names: Sequence[TableName], scope: Scope) -> str:
    return next((_uncaptured_reason(name) for name in names if not scope.takes(*name)), "")


def _uncaptured_reason(name: TableName) -> str:
    return f"the pipeline does not capture table {name}"


def _words_reason(statement: DdlStatement, scope: Scope) -> str:
    """Why a statement is refused although its tables are in the scope, because of its words; '' if it is permitted."""
    try:
        tokens = list(scan(statement.sql, statement.session, scope.server))
    except UnreadableStatement as error:
        return f"it cannot be read ({error})"
    if tokens[0].keyword == "SET":
        end = next((number for number, token in enumerate(tokens) if token.keyword == "FOR"), 0)
        if reason := _variables_reason(tokens[2:end]):
            return reason
        tokens = tokens[end + 1 :]
    for token, following in pairwise(tokens):
        if _is(token, ";") and following.kind is not TokenKind.END:
            return "it is more than one statement"
        if token.keyword == "SELECT":
            return "it reads tables (SELECT)"
        if _is(token, "@"):
            return "it reads variables of the server (@)"
        if token.text.upper() in _FUNCTIONS and token.kind in _NAMES and _is(following, "("):
            return f"it calls {token.text}"
        if token.keyword in ("DATA", "INDEX") and following.keyword == "DIRECTORY":
            return f"it says where files are ({token.text} DIRECTORY)"
    return _references_reason(tokens, statement, scope) or _options_reason(_options(tokens, statement.change))


def _references_reason(tokens: Sequence[Token], statement: DdlStatement, scope: Scope) -> str:
    """Why a statement's references to other tables or sequences are refused; '' if they are permitted.

    A foreign key prevents changes of the table that it refers to, and a default increments its sequence.
    """
    for number, token in enumerate(tokens):
        if token.keyword == "REFERENCES":
            database, table = _name_at(tokens, number + 1)
            parent = TableName(database or statement.tables[0].database, table)
            if not scope.captures(*map(scope.server.table_name, parent)):
                return f"a foreign key refers to {parent}, which the pipeline does not capture"
        at = _sequence_name_at(tokens, number, statement.session.oracle)
        if at is not None:
            database, table = _name_at(tokens, at)
            name = TableName(database or statement.session.database, table)
            if not scope.takes(*name):
                return f"it uses sequence {name}, which the pipeline does not capture"
    return ""


def _sequence_name_at(tokens: Sequence[Token], number: int, oracle: bool) -> int | None:
    """The number of the token at which a sequence's name begins; None if token ``number`` does not use a sequence.

    The forms are `NEXTVAL(name)`, `NEXT VALUE FOR name`, and with sql_mode ORACLE `name.NEXTVAL`.
    """
    if tokens[number].keyword == "FOR" and tokens[number - 1].keyword == "VALUE":
        return number + 1
    if tokens[number].keyword not in _OF_SEQUENCES:
        return None
    if _is(tokens[number + 1], "("):
        return number + 2
    if not oracle or not _is(tokens[number - 1], "."):
        return None
    return number - 4 if _is(tokens[number - 3], ".") else number - 2


def _name_at(tokens: Sequence[Token], at: int) -> tuple[str, str]:
    """The database and the table of the name that begins at token ``at``; the database is '' if the name has none."""
    if at + 2 < len(tokens) and _is(tokens[at + 1], ".") and tokens[at + 2].keyword not in _OF_SEQUENCES:
        return tokens[at].text, tokens[at + 2].text
    return "", tokens[at].text


def _variables_reason(tokens: Sequence[Token]) -> str:
    for before, token, following in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        is_name = token.kind in _NAMES and following is not None and _is(following, "=")
        if is_name and (before is None or _is(before, ",")) and token.keyword not in _STATEMENT_VARIABLES:
            return f"it sets {token.text}"
        if _is(token, "@") or _is(token, "("):
            return "it sets variables to values that are not literals"
    return ""


def _options_reason(tokens: Sequence[Token]) -> str:
    """Why the options of a table are refused; '' if they are permitted."""
    for number, token in enumerate(tokens):
        value = next((each for each in tokens[number + 1 : number + 3] if not _is(each, "=")), None)
        has_sign = number + 1 < len(tokens) and _is(tokens[number + 1], "=")
        if token.keyword == "ENGINE" and value is not None and (has_sign or value.kind in _NAMES):
            if value.text.upper() not in ENGINES:
                return f"a follower creates no tables of engine {value.text[:64]!r}"
        elif token.keyword == "UNION" or (
            token.keyword == "CONNECTION" and (has_sign or (value and value.kind is TokenKind.STRING))
        ):
            return f"its rows are stored elsewhere ({token.text})"
    return ""


def _options(tokens: Sequence[Token], change: SchemaChange | None) -> Sequence[Token]:
    """The tokens of a statement that may be options of its table or of its partitions.

    The tokens of columns are not included, because a column may have the name of an option.
    """
    if isinstance(change, CreateTable):
        return [*_before_columns(tokens), *tokens[_end_of_columns(tokens) :]]
    if isinstance(change, AlterTable) and any(token.keyword == "TABLE" for token in tokens[:4]):
        return list(_options_of_alter(tokens[_end_of_name(tokens) :]))
    return tokens if isinstance(change, CreateSequence) else ()


def _before_columns(tokens: Sequence[Token]) -> Sequence[Token]:
    """The tokens between the table's name and the column list; all later tokens if there is no column list."""
    return list(takewhile(lambda token: not _is(token, "("), tokens[_end_of_name(tokens) :]))


def _end_of_name(tokens: Sequence[Token]) -> int:
    """The number of the token after `TABLE [IF [NOT] EXISTS] [database.]table`."""
    number = next(number for number, token in enumerate(tokens) if token.keyword == "TABLE") + 1
    while tokens[number].keyword in ("IF", "NOT", "EXISTS"):
        number += 1
    number += 1
    while _is(tokens[number], ".") or _is(tokens[number - 1], "."):
        number += 1
    return number


def _end_of_columns(tokens: Sequence[Token]) -> int:
    """The number of the token after the first closed parenthesis; the number of the last token if there is none."""
    depth = 0
    for number, token in enumerate(tokens):
        depth += _is(token, "(") - _is(token, ")")
        if depth == 0 and _is(token, ")"):
            return number + 1
    return len(tokens) - 1


def _options_of_alter(tokens: Sequence[Token]) -> Iterator[Token]:
    depth, begins, is_of_columns = 0, True, False
    for token, following in pairwise(tokens):
        if begins:
            is_of_columns = token.keyword in _COLUMN_CLAUSES and following.keyword != "PARTITION"
        depth += _is(token, "(") - _is(token, ")")
        begins = depth == 0 and _is(token, ",")
        if depth == 0 and token.keyword == "PARTITION" and following.keyword == "BY":
            is_of_columns = False
        if not is_of_columns:
            yield token


def _is(token: Token, symbol: str) -> bool:
    return token.kind is TokenKind.SYMBOL and token.text == symbol
