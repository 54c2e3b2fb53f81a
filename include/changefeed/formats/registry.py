"""The wire formats by the name that a pipeline's `format` and `changefeed decode --format` call them by."""

from __future__ import annotations

from collections.abc import Callable

from changefeed.errors import SettingsError, did_you_mean
from changefeed.formats.avro import AvroFormat
from changefeed.formats.cloudevents import CloudEventsFormat
from changefeed.formats.debezium import DebeziumFormat
from changefeed.formats.debezium_connector import ConnectorFormat
from changefeed.formats.flat import FlatFormat
from changefeed.formats.fluvio import FluvioFormat
from changefeed.formats.format import Format, FormatSettings
from changefeed.formats.maxwell import MaxwellFormat

FORMATS: dict[str, Callable[[FormatSettings], Format]] = {
    "debezium": ConnectorFormat.of,
    "debezium-json": DebeziumFormat.of,
    "flat": FlatFormat.of,
    "maxwell": MaxwellFormat.of,
    "cloudevents": CloudEventsFormat.of,
    "fluvio": FluvioFormat.of,
    "avro": AvroFormat.of,
}
"""How the format of that name is made; raises OptionError for an option that the format does not take."""

WITH_SCHEMA_REGISTRY = frozenset({"avro"})
"""Those whose schemas are in a registry: a pipeline's `registry`, an option of theirs, is its connection id."""

DEFAULT_FORMAT = "debezium-json"
"""The format of a pipeline that names none."""


def format_of(name: str, settings: FormatSettings) -> Format:
    """The format called ``name``; raises SettingsError, which names the nearest format, where there is none, and
    OptionError for an option that it does not take."""
    check_name(name)
    return FORMATS[name](settings)


def check_name(name: str) -> None:
    """Raises SettingsError for a ``name`` that no format has; it says which are valid and which is the nearest."""
    if name not in FORMATS:
        known = sorted(FORMATS)
        raise SettingsError(f"unknown format {name!r}{did_you_mean(name, known)}; valid formats: {', '.join(known)}")
