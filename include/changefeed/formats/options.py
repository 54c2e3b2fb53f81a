"""Options of formats: a format declares them and reads a pipeline's values with this module."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from changefeed.errors import OptionError, did_you_mean

T = TypeVar("T")

_WORDS = {"true": True, "false": False}


@dataclass(frozen=True)
class Option(Generic[T]):
    """One option. ``read`` converts the value in the YAML. It raises ValueError with the expected values."""

    name: str
    default: T
    read: Callable[[object], T]


def flag(name: str, default: bool) -> Option[bool]:
    """A boolean option. The texts `true` and `false` are also valid, as in properties files."""

    def read(given: object) -> bool:
        value = _WORDS.get(given, given) if isinstance(given, str) else given
        if not isinstance(value, bool):
            raise ValueError("true or false")
        return value

    return Option(name, default, read)


def choice(name: str, *words: str) -> Option[str]:
    """An option with one of the values ``words``; the first is the default."""

    def read(given: object) -> str:
        if given not in words:
            near = did_you_mean(given, words) if isinstance(given, str) else ""
            raise ValueError(f"one of {', '.join(words)}{near}")
        return str(given)

    return Option(name, words[0], read)


def text(name: str, default: str) -> Option[str]:
    """An option with any text that is not empty."""

    def read(given: object) -> str:
        if not isinstance(given, str) or not given:
            raise ValueError("a text")
        return given

    return Option(name, default, read)


class Options:
    """The values of a format's options: ``options[OPTION]`` is the pipeline's value or the default.

    Raises OptionError for an option that is not in ``known``, and for an invalid value.
    """

    def __init__(self, format_name: str, known: Sequence[Option[Any]], given: Mapping[str, object]) -> None:
        by_name = {option.name: option for option in known}
        self._values: dict[str, Any] = {}
        for name, value in given.items():
            if name not in by_name:
                valid = f"its options: {', '.join(by_name)}" if by_name else "it has none"
                near = did_you_mean(name, by_name)
                raise OptionError(f"format {format_name!r} has no option {name!r}{near}; {valid}", name)
            try:
                self._values[name] = by_name[name].read(value)
            except ValueError as error:
                expected = f"option {name!r} of format {format_name!r}: expected {error}"
                raise OptionError(f"{expected}, found {str(value)[:100]!r}", name) from None

    def has(self, option: Option[Any]) -> bool:
        """Whether the pipeline sets the option."""
        return option.name in self._values

    def __getitem__(self, option: Option[T]) -> T:
        value: T = self._values.get(option.name, option.default)
        return value
