"""The tree that errors.py draws is the tree that it has."""

from __future__ import annotations

import inspect
import re

import pytest

from changefeed import errors
from changefeed.errors import ChangefeedError, RetryableError, TerminalError

CLASSES = {
    name: cls
    for name, cls in inspect.getmembers(errors, inspect.isclass)
    if issubclass(cls, Exception) and cls.__module__ == errors.__name__
}


def drawn() -> dict[str, str | None]:
    """Class -> its parent, as the docstring draws them: four columns a level."""
    parents: dict[str, str | None] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.match(r"    ([ │├└─]*)(\w+Error)\b", line)
        if found:
            level = len(found[1]) // 4
            path[level:] = [found[2]]
            parents[found[2]] = path[level - 1] if level else None
    return parents


def test_the_drawing_has_each_class_in_its_place() -> None:
    real = {name: None if cls is ChangefeedError else cls.__bases__[0].__name__ for name, cls in CLASSES.items()}
    assert drawn() == real


@pytest.mark.parametrize("name", sorted(CLASSES.keys() - {"ChangefeedError"}))
def test_each_error_is_either_terminal_or_retryable_and_says_what_it_means(name: str) -> None:
    cls = CLASSES[name]
    assert issubclass(cls, TerminalError) != issubclass(cls, RetryableError)
    assert cls.__doc__
    assert len(cls.__bases__) == 1
