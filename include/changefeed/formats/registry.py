"""The wire formats by the name that a pipeline's `format` and `changefeed decode --format` call them by."""

from __future__ import annotations

from collections.abc import Callable

from changefeed.errors import SettingsError, did_you_mean
from changefeed.formats.avro import AvroFormat
from changefeed.formats.cloudevents import CloudEventsFormat
from changefeed.formats.debezium import DebeziumFormat
from changefeed.formats.flat import FlatFormat
from changefeed.formats.fluvio import FluvioFormat
from changefeed.formats.format import Format, FormatSettings
from changefeed.formats.maxwell import MaxwellFormat

FORMATS: dict[str, Callable[[FormatSettings], Format]] = {
    "debezium": DebeziumFormat.of,
    "debezium-json": DebeziumFormat.older,
    "flat": FlatFormat.of,
    "maxwell": MaxwellFormat.of,
    "cloudevents": CloudEventsFormat.of,
    "fluvio": FluvioFormat.of,
    "avro": AvroFormat.of,
}
"""How the format of that name is made; raises OptionError for an option that the format does not take."""

WITH_SCHEMA_REGISTRY = frozenset({"avro"})
"""Those whose schemas are in a registry: a pipeline's `registry`, an option of theirs, is its connection id."""

OLDER_NAMES = {
    "debezium-json": (
        "format 'debezium-json' is an older name: write `format: debezium`, whose values are those of Debezium's MySQL "
        "connector. To keep truncates, the text of statements, and values as they are (but for BIT and geometry): "
        "`format: {name: debezium, skipped.operations: none, include.query: true}` and `values: {decimal: string, "
        "temporal: iso, binary: base64, bigint_unsigned: number}`"
    )
}
"""Names of earlier versions, which are still taken, and what to write instead."""

NAMES = tuple(name for name in FORMATS if name not in OLDER_NAMES)
"""Those that people choose from."""

DEFAULT_FORMAT = "debezium"
"""The format of a pipeline that names none."""


def format_of(name: str, settings: FormatSettings) -> Format:
    """The format called ``name``; raises SettingsError, which names the nearest format, where there is none, and
    OptionError for an option that it does not take."""
    check_name(name)
    return FORMATS[name](settings)


def check_name(name: str) -> None:
    """Raises SettingsError for a ``name`` that no format has; it says which are valid and which is the nearest."""
    if name not in FORMATS:
        raise SettingsError(
            f"unknown format {name!r}{did_you_mean(name, NAMES)}; valid formats: {', '.join(sorted(NAMES))}"
        )
