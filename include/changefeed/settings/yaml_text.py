"""YAML text -> its nodes and values. Text that would cost more than its size is refused before it is built up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

LONGEST = 200_000
"""Characters of a file of settings."""
_DEEPEST = 20
"""Lists and mappings inside each other. PyYAML descends by recursion in C: 90,000 of them end the process."""
_LONGEST_NUMBER = 40

NO_YAML = (yaml.YAMLError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What `YamlText.of` raises for what is no YAML. The last five are for scalars that are not what their form or tag
says: 2020-99-99, `!!bool x`, `!!int ''`."""


class RefusedYamlError(yaml.MarkedYAMLError):
    """It is YAML, and none that is taken."""


@dataclass(frozen=True)
class YamlText:
    """What a text says: ``root`` has the lines, ``values`` are Python's."""

    root: yaml.Node | None
    values: Any

    @classmethod
    def of(cls, text: str) -> YamlText:
        """Read ``text``; raises RefusedYamlError where it has an alias or is too long or deep, and else one of NO_YAML.

        A few aliases of aliases become a list of billions, and one that stands in itself is a list without an end.
        """
        if len(text) > LONGEST:
            raise RefusedYamlError(problem=f"the file is longer than {LONGEST:,} characters")
        _check_shape(text)
        loader = yaml.CSafeLoader(text)
        root = loader.get_single_node()
        _check_scalars(root)
        return cls(root, None if root is None else loader.construct_document(root))


def _check_shape(text: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise _refused("an alias stands here, and none is taken: write out what it stands for", event)
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise _refused(f"more than {_DEEPEST} lists and mappings stand inside each other", event)


def _check_scalars(root: yaml.Node | None) -> None:
    for node in _scalars(root):
        if "\0" in node.value:
            raise _refused("a NUL stands here, which no database of Airflow's takes", node)
        if node.tag.endswith((":int", ":float")) and len(node.value) > _LONGEST_NUMBER:
            raise _refused(f"a number of more than {_LONGEST_NUMBER} characters stands here", node)


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


def _refused(problem: str, where: yaml.Event | yaml.Node) -> RefusedYamlError:
    mark: Any = where.start_mark  # libyaml's has another type
    return RefusedYamlError(problem=problem, problem_mark=mark)
