"""One message of a table as its pipeline would write it, of a row that nobody wrote."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from changefeed.errors import ChangefeedError
from changefeed.formats import render
from changefeed.formats.by_table import of_table
from changefeed.formats.format import RowFormat, Shown
from changefeed.formats.render import RowChange
from changefeed.formats.sample_row import MOMENT, sample_row
from changefeed.formats.template import joined
from changefeed.model.column_rules import ColumnRules, HmacSha256, Sha256, Treatment
from changefeed.model.route import Route
from changefeed.model.table_schema import TableSchema
from changefeed.transforms.masked_values import masked_row

MADE_UP = "of a made-up row"
_FILE, _POSITION, _SERVER_ID = "binlog.000001", 4, 1


@dataclass(frozen=True)
class SampleMessage:
    """What an insert becomes; binary messages are shown as JSON. ``about`` says what it is made of."""

    about: str
    key: str | None = None
    value: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None
    """Why there is none: what would stop a run at such a row, too."""

    @property
    def lines(self) -> list[str]:
        """The message for people."""
        if self.problem is not None:
            return [f"no message {self.about}: {self.problem}"]
        parts = {"key": self.key, "value": self.value} | {f"header {name}": text for name, text in self.headers.items()}
        return [f"a message {self.about}:", *(f"  {name}: {text or 'null'}" for name, text in parts.items())]


def sample_message(
    format: RowFormat, rules: ColumnRules, table: TableSchema, route: Route, *, transformed: bool
) -> SampleMessage:
    """The message that an insert of a made-up row into ``table``, as `Route.seen` gives it, becomes.

    Masks are applied; hashes are those without their secrets, as a known value's hash would help to guess them.
    Functions are not called: where the table's rows are ``transformed``, the message is what they get.
    """
    about = f"{MADE_UP} before its functions" if transformed else MADE_UP
    format = of_table(format, table.database, table.table)
    row = dict(sample_row(table, format.style))
    if route.table_field is not None:
        row[route.table_field.name] = f"{table.database}.{table.table}"
    seconds = int(MOMENT.timestamp())
    given = RowChange("c", None, row, _FILE, _POSITION, 0, "", _SERVER_ID, seconds)
    try:
        rules = _without_secrets(rules)
        treatments = {table.columns[number].name: how for number, how in rules.of(table).items()}
        (made,) = render.messages(format, rules.shown(table), replace(given, after=masked_row(row, treatments)))
    except ChangefeedError as error:
        return SampleMessage(about, problem=str(error))
    headers = {name: _text(value) for name, value in made.headers}
    value = None if made.value is None else joined([made.value])
    return SampleMessage(about, _shown(made.key, format), _shown(value, format), headers)


def _without_secrets(rules: ColumnRules) -> ColumnRules:
    return replace(rules, rules=tuple(replace(rule, treatment=_without_secret(rule.treatment)) for rule in rules.rules))


def _without_secret(treatment: Treatment) -> Treatment:
    match treatment:
        case Sha256():
            return Sha256("")
        case HmacSha256():
            return HmacSha256("")
    return treatment


def _shown(part: bytes | None, format: RowFormat) -> str | None:
    if part is None:
        return None
    return _text(format.shown(part) if isinstance(format, Shown) else part)


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")
