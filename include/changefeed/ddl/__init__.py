"""Parser of statements: the tables that a statement touches, and its changes."""

from changefeed.ddl.ddl_statement import DdlStatement, Kind, read_statement
from changefeed.ddl.names import TableName
from changefeed.ddl.schemas import Schemas
from changefeed.ddl.session import Flavour, Server, SessionContext
from changefeed.ddl.table import Table, UnknownTable
from changefeed.ddl.timeline import HistoryEntry, SchemaTimeline

__all__ = [
    "DdlStatement",
    "Flavour",
    "HistoryEntry",
    "Kind",
    "SchemaTimeline",
    "Schemas",
    "Server",
    "SessionContext",
    "Table",
    "TableName",
    "UnknownTable",
    "read_statement",
]
