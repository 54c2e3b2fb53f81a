"""The wire formats, by their names in a pipeline's `format` and in `changefeed decode --format`.

Formats that are not in OWN are entry points of the group GROUP, in changefeed itself and in other packages. An entry
point is a name, and a function that creates the format from FormatSettings. docs/reference/python.md says how to add
one.
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
"""Creates a format from its settings; raises OptionError for an invalid option."""

OWN: dict[str, FormatMaker] = {
    "debezium": DebeziumFormat.of,
    "flat": FlatFormat.of,
    "avro": AvroFormat.of,
}
"""The built-in formats. Entry points cannot replace them."""

GROUP = "changefeed.formats"
"""The group of the entry points of further formats."""

WITH_SCHEMA_REGISTRY = frozenset({"avro"})
"""Formats with schemas in a registry. Their option `registry` is the connection id."""

DEFAULT_FORMAT = "debezium"
"""The default format."""

_MEMBERS = sorted(name for name in dir(Format) if not name.startswith("_"))
_PACKAGE = "changefeed"
_CHECKOUT = Path(__file__).parents[3] / "pyproject.toml"
"""The file that declares changefeed's entry points in a source checkout."""


def format_of(name: str, settings: FormatSettings) -> Format:
    """The format called ``name``.

    Raises SettingsError for an unknown name, with the nearest name, and if the format's package does not work. Raises
    OptionError for an invalid option.
    """
    check_name(name)
    format = _maker(name)(settings)
    missing = [] if name in OWN else [each for each in _MEMBERS if not hasattr(format, each)]
    if missing:
        raise SettingsError(
            f"what {_brought()[name][0].value!r} makes of format {name!r} is no Format: missing {', '.join(missing)}"
        )
    return format


def check_name(name: str) -> None:
    """Raises SettingsError for an unknown format ``name``, with the valid names and the nearest one."""
    if name not in OWN and name not in _brought():
        valid = sorted(known_names())
        raise SettingsError(f"unknown format {name!r}{did_you_mean(name, valid)}; valid formats: {', '.join(valid)}")


def known_names() -> tuple[str, ...]:
    """The names of all formats, including those of installed packages."""
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
    """The entry points by name, several if packages conflict. Equal entry points are listed once."""
    found: dict[str, dict[str, EntryPoint]] = {}
    for each in _entry_points():
        found.setdefault(each.name, {})[each.value] = each
    return MappingProxyType({name: tuple(by_value.values()) for name, by_value in found.items()})


def _entry_points() -> Iterator[EntryPoint]:
    """The entry points of the installed packages and of a source checkout.

    The entry points of a checkout are read from its pyproject.toml, because the checkout may not be installed, or an
    older version of it may be.
    """
    declared = _of_checkout()
    for each in entry_points(group=GROUP):
        if declared is None or each.dist is None or each.dist.name != _PACKAGE:
            yield each
    for name, value in (declared or {}).items():
        yield EntryPoint(name, value, GROUP)


def _of_checkout() -> Mapping[str, str] | None:
    """The formats that changefeed's own pyproject.toml declares; None if the package does not run from a checkout."""
    try:
        project = tomllib.loads(_CHECKOUT.read_text()).get("project", {})
    except OSError:
        return None
    if project.get("name") != _PACKAGE:
        return None
    declared: Mapping[str, str] = project["entry-points"][GROUP]
    return declared
