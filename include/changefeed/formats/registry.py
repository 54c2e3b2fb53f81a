"""The wire formats by the name that a pipeline's `format` and `changefeed decode --format` call them by.

Formats besides those of OWN are entry points of the group GROUP, of changefeed itself and of other packages alike: a
name, and a function that makes the format of FormatSettings. docs/python.md says how to bring one.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import MappingProxyType

from changefeed.errors import SettingsError, did_you_mean
from changefeed.formats.avro import AvroFormat
from changefeed.formats.debezium import DebeziumFormat
from changefeed.formats.flat import FlatFormat
from changefeed.formats.format import Format, FormatSettings

FormatMaker = Callable[[FormatSettings], Format]
"""Makes a format; raises OptionError for an option that the format does not take."""

OWN: dict[str, FormatMaker] = {
    "debezium": DebeziumFormat.of,
    "flat": FlatFormat.of,
    "avro": AvroFormat.of,
}
"""The formats that are always there, and that no entry point replaces."""

GROUP = "changefeed.formats"
"""The group of the entry points that bring further formats."""

WITH_SCHEMA_REGISTRY = frozenset({"avro"})
"""Those whose schemas are in a registry: a pipeline's `registry`, an option of theirs, is its connection id."""

DEFAULT_FORMAT = "debezium"
"""The format of a pipeline that names none."""

_MEMBERS = sorted(name for name in dir(Format) if not name.startswith("_"))
_PACKAGE = "changefeed"
_CHECKOUT = Path(__file__).parents[3] / "pyproject.toml"
"""Where a source checkout declares the entry points of changefeed itself."""


def format_of(name: str, settings: FormatSettings) -> Format:
    """The format called ``name``; raises SettingsError, which names the nearest format, where there is none or its
    package does not work, and OptionError for an option that it does not take."""
    check_name(name)
    format = _maker(name)(settings)
    missing = [] if name in OWN else [each for each in _MEMBERS if not hasattr(format, each)]
    if missing:
        raise SettingsError(
            f"what {_brought()[name][0].value!r} makes of format {name!r} is no Format: it lacks {', '.join(missing)}"
        )
    return format


def check_name(name: str) -> None:
    """Raises SettingsError for a ``name`` that no format has; it says which are valid and which is the nearest."""
    if name not in OWN and name not in _brought():
        valid = sorted(known_names())
        raise SettingsError(f"unknown format {name!r}{did_you_mean(name, valid)}; valid formats: {', '.join(valid)}")


def known_names() -> tuple[str, ...]:
    """The names of all formats, with those of installed packages."""
    return (*OWN, *(name for name in _brought() if name not in OWN))


def _maker(name: str) -> FormatMaker:
    if name in OWN:
        return OWN[name]
    first, *others = _brought()[name]
    if others:
        raise SettingsError(
            f"format {name!r} is brought by {len(others) + 1} packages: {first.value!r} and {others[0].value!r}. "
            "Remove one of them."
        )
    try:
        maker: FormatMaker = first.load()
    except Exception as error:  # whatever the package's import raises
        raise SettingsError(
            f"format {name!r} cannot be loaded from {first.value!r}, which an installed package names: {error!r}"
        ) from error
    return maker


@cache
def _brought() -> Mapping[str, tuple[EntryPoint, ...]]:
    """The entry points of each name: more than one where packages are at odds, though each says the same only once."""
    found: dict[str, dict[str, EntryPoint]] = {}
    for each in _entry_points():
        found.setdefault(each.name, {})[each.value] = each
    return MappingProxyType({name: tuple(by_value.values()) for name, by_value in found.items()})


def _entry_points() -> Iterator[EntryPoint]:
    """Those of the installed packages. A checkout says itself which formats it has, as it may not be installed (its
    `include` is on PYTHONPATH then), or may have been when it had others."""
    declared = _of_checkout()
    for each in entry_points(group=GROUP):
        if declared is None or each.dist is None or each.dist.name != _PACKAGE:
            yield each
    for name, value in (declared or {}).items():
        yield EntryPoint(name, value, GROUP)


def _of_checkout() -> Mapping[str, str] | None:
    """The formats that changefeed's own pyproject.toml declares; None where the package is not run from a checkout."""
    try:
        project = tomllib.loads(_CHECKOUT.read_text()).get("project", {})
    except OSError:
        return None
    if project.get("name") != _PACKAGE:
        return None
    declared: Mapping[str, str] = project["entry-points"][GROUP]
    return declared
