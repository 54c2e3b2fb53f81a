"""A sample message of a table, as its pipeline would write it for a made-up row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from changefeed.errors import ChangefeedError
from changefeed.formats import render
from changefeed.formats.by_table import of_table
from changefeed.formats.format import RowFormat, Shown
from changefeed.formats.render import RowChange
from changefeed.formats.sample_row import MOMENT, sample_row
from changefeed.formats.template import join_values
from changefeed.model.column_rules import ColumnRules, HmacSha256, Sha256, Treatment
from changefeed.model.route import Route
from changefeed.model.table_schema import TableSchema
from changefeed.transforms.masked_values import mask_row

MADE_UP = "of a made-up row"
_FILE, _POSITION, _SERVER_ID = "binlog.000001", 4, 1


@dataclass(frozen=True)
class SampleMessage:
    """The message of an insert. A binary message is shown as JSON. ``about`` describes the row."""

    about: str
    key: str | None = None
    value: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None
    """The error if the message cannot be written. A run would stop with it at such a row."""

    @property
    def lines(self) -> list[str]:
        """The message as lines of text, for people."""
        if self.problem is not None:
            return [f"no message {self.about}: {self.problem}"]
        parts = {"key": self.key, "value": self.value} | {f"header {name}": text for name, text in self.headers.items()}
        return [f"a message {self.about}:", *(f"  {name}: {text or 'null'}" for name, text in parts.items())]


def sample_message(
    format: RowFormat, rules: ColumnRules, table: TableSchema, route: Route, *, transformed: bool
) -> SampleMessage:
    """The message of an insert of a made-up row. ``table`` is the result of `Route.table_for_formats`.

    Masks are applied, but hashes are computed without their secrets: the hash of a known value would help to guess
    the secret. Functions are not called: if the table's rows are ``transformed``, the message shows the input of the
    functions.
    """
    about = f"{MADE_UP} before its functions" if transformed else MADE_UP
    format = of_table(format, table.database, table.table)
    row = dict(sample_row(table, format.style))
    if route.table_field is not None:
        row[route.table_field.name] = f"{table.database}.{table.table}"
    seconds = int(MOMENT.timestamp())
    change = RowChange("c", None, row, _FILE, _POSITION, 0, "", _SERVER_ID, seconds)
    try:
        rules = _without_secrets(rules)
        treatments = {table.columns[number].name: how for number, how in rules.of(table).items()}
        (message,) = render.messages(
            format, rules.masked_table(table), replace(change, after=mask_row(row, treatments))
        )
    except ChangefeedError as error:
        return SampleMessage(about, problem=str(error))
    headers = {name: _text(value) for name, value in message.headers}
    value = None if message.value is None else join_values([message.value])
    return SampleMessage(about, _show(message.key, format), _show(value, format), headers)


def _without_secrets(rules: ColumnRules) -> ColumnRules:
    return replace(rules, rules=tuple(replace(rule, treatment=_without_secret(rule.treatment)) for rule in rules.rules))


def _without_secret(treatment: Treatment) -> Treatment:
    match treatment:
        case Sha256():
            return Sha256("")
        case HmacSha256():
            return HmacSha256("")
    return treatment


def _show(part: bytes | None, format: RowFormat) -> str | None:
    if part is None:
        return None
    return _text(format.show(part) if isinstance(format, Shown) else part)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
