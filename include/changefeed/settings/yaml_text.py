"""Parses YAML into nodes and values. Text that would need more memory than its size is refused before it is built."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

MAX_CHARACTERS = 200_000
"""Maximum characters of a file of settings."""
_MAX_DEPTH = 20
"""Maximum nesting of lists and mappings. PyYAML recurses in C; 90,000 levels crash the process."""
_MAX_NUMBER_LENGTH = 40

YAML_ERRORS = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Errors of `YamlText.of` for text that is not YAML. PyYAML raises the last five for scalars whose value does not fit
their form or tag: 2020-99-99, `!!bool x`, `!!int ''`."""


class RefusedYamlError(yaml.MarkedYAMLError):
    """YAML that is valid, but not accepted."""


@dataclass(frozen=True)
class YamlText:
    """A parsed text: ``root`` is the tree of nodes with their lines, ``values`` the text as Python values."""

    root: yaml.Node | None
    values: Any

    @classmethod
    def of(cls, text: str) -> YamlText:
        """Parse ``text``.

        Raises RefusedYamlError if it has an alias, or is too long or too deep; one of YAML_ERRORS if it is not YAML.
        Aliases are refused because a few nested aliases expand to billions of items, and an alias of itself never ends.
        """
        if len(text) > MAX_CHARACTERS:
            raise RefusedYamlError(problem=f"the file is longer than {MAX_CHARACTERS:,} characters")
        _check_shape(text)
        loader = yaml.CSafeLoader(text)
        root = loader.get_single_node()
        _check_scalars(root)
        return cls(root, None if root is None else loader.construct_document(root))


def _check_shape(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise _build_refusal("aliases are not supported: write the value out", event)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise _build_refusal(f"lists and mappings are nested deeper than {_MAX_DEPTH} levels", event)


def _check_scalars(root: yaml.Node | None) -> None:
    for node in _scalars(root):
        if "\0" in node.value:
            raise _build_refusal("found a NUL character, which Airflow's databases do not accept", node)
        if node.tag.endswith((":int", ":float")) and len(node.value) > _MAX_NUMBER_LENGTH:
            raise _build_refusal(f"found a number of more than {_MAX_NUMBER_LENGTH} characters", node)


def _scalars(node: yaml.Node | None) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _scalars(item)
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _scalars(key)
            yield from _scalars(value)


def _build_refusal(problem: str, where: yaml.Event | yaml.Node) -> RefusedYamlError:
    position: Any = where.start_mark  # libyaml's mark has another type
    return RefusedYamlError(problem=problem, problem_mark=position)
