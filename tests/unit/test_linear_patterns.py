"""No regular expression of the package takes more than linear time, whatever text it is fed.

The patterns are collected from the source, so a new one is tested without being listed here. Texts are made of each
pattern's own parts: what leads up to a repetition, then what it repeats, then what makes it fail.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[2]
_METHODS = frozenset({"match", "search", "fullmatch", "findall", "finditer", "sub", "split"})
_UNKNOWN = frozenset({"match", "search", "fullmatch"})
_SECONDS = 3
"""Of the processor, for one text: a linear pattern takes milliseconds, a quadratic one 12 seconds, others hours."""
_SMALL, _LARGE = 40_000, 100_000
_CURATED = [
    *("/**/", "/*", "*/", "/*!", "/* */ ", "--\n", "-- \n", "--", "#\n", "#", "`", "``", "''", "'", "\\'", "\\", '"'),
    *('""', "(", ")", "((", ",", ", ", " ", "\n", "\t \n", "\0", "a", "a ", "0", "0.", "-", "_", ".", "$", "a(", "é"),
    *("{", "}", "{{", "[", "]", "a/", ":", "a:", "://", "@", "a@", "\r\n", "DELIMITER //\n", "CREATE ", "TABLE "),
]
_TEMPLATES: dict[str, list[str]] = {
    "include/changefeed/model/table_pattern.py": [],  # globs, see test_user_pattern.py
    "include/changefeed/ddl/scanner.py": [r"['\\]", "'"],
    "include/changefeed/kafka/fencing.py": [r"changefeed\.shop\.\d+"],
    "include/changefeed/settings/file.py": [r"(?<![\w-])shop(?![\w-])"],
}
"""Patterns that are put together when they are used, as they are then."""


@dataclass(frozen=True)
class Pattern:
    """A compiled pattern of the package, where it is, and the methods that are called of it."""

    where: str
    compiled: re.Pattern[Any]
    methods: frozenset[str]


def _sources() -> list[Path]:
    """The files that use regular expressions; they are parsed by the tests, as that takes seconds for all."""
    folders = ("include/changefeed", "plugins", "dags", "jobs")
    files = (path for folder in folders for path in sorted((_ROOT / folder).rglob("*.py")))
    return [path for path in files if re.search(r"^import re$", path.read_text(), re.MULTILINE)]


def _module(path: Path) -> Any:
    parts = path.relative_to(_ROOT).with_suffix("").parts[1:]
    return importlib.import_module(".".join(parts).removesuffix(".__init__"))


def _patterns_of(path: Path) -> Iterator[Pattern]:
    tree, where = ast.parse(path.read_text()), str(path.relative_to(_ROOT))
    named = {
        target.id
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and _calls_of_re(node)
        for target in (_targets(node))
    }
    used: dict[str, set[str]] = {name: set() for name in named}
    inside = {id(call) for node in tree.body if _is_constant(node, named) for call in _calls_of_re(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in named:
            used[node.value.id].add(node.attr)
        if isinstance(node, ast.Call) and id(node) not in inside and _is_of_re(node) and node.args:
            yield from _used_at_once(node, where)
    for name in sorted(named):
        compiled = getattr(_module(path), name)
        yield Pattern(f"{where}:{name}", compiled, frozenset(used[name]) & _METHODS or _UNKNOWN)


def _used_at_once(call: ast.Call, where: str) -> Iterator[Pattern]:
    assert isinstance(call.func, ast.Attribute)
    method = call.func.attr
    flags = [each for each in call.args[1:] + [word.value for word in call.keywords] if "re." in ast.unparse(each)]
    expression = f"re.compile({ast.unparse(call.args[0])}, {' | '.join(map(ast.unparse, flags)) or '0'})"
    try:
        compiled = [eval(expression, {"re": re})]
    except NameError:
        assert where in _TEMPLATES, f"{where}:{call.lineno}: list in _TEMPLATES what {expression} may be"
        compiled = [re.compile(each) for each in _TEMPLATES[where]]
    for each in compiled:
        yield Pattern(f"{where}:{call.lineno}", each, _UNKNOWN if method == "compile" else frozenset({method}))


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.Name]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = itertools.chain.from_iterable(each.elts if isinstance(each, ast.Tuple) else [each] for each in targets)
    return [each for each in names if isinstance(each, ast.Name)]


def _is_constant(node: ast.stmt, named: set[str]) -> bool:
    return isinstance(node, ast.Assign | ast.AnnAssign) and any(each.id in named for each in _targets(node))


def _calls_of_re(node: ast.stmt) -> list[ast.Call]:
    return [each for each in ast.walk(node) if isinstance(each, ast.Call) and _is_of_re(each)]


def _is_of_re(call: ast.Call) -> bool:
    function = call.func
    return (
        isinstance(function, ast.Attribute)
        and isinstance(function.value, ast.Name)
        and function.value.id == "re"
        and function.attr in _METHODS | {"compile"}
    )


# --- texts made of a pattern's parts


def _hostile(compiled: re.Pattern[Any]) -> Iterator[tuple[str, str]]:
    """What leads up to a repetition, and what to repeat: for each repetition of the pattern."""
    parser = sys.modules["re"]._parser
    source = compiled.pattern if isinstance(compiled.pattern, str) else compiled.pattern.decode("latin-1")
    yield from _of_sequence(list(parser.parse(source, compiled.flags & ~re.UNICODE & ~re.LOCALE)), "")


def _of_sequence(items: list[Any], lead: str) -> Iterator[tuple[str, str]]:
    for kind, value in items:
        match str(kind):
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                samples = _samples(list(value[2]))
                yield from ((lead, sample) for sample in samples)
                yield from ((lead, "".join(pair)) for pair in itertools.permutations(samples[:4], 2))
                yield from _of_sequence(list(value[2]), lead)
            case "SUBPATTERN":
                yield from _of_sequence(list(value[3]), lead)
            case "ATOMIC_GROUP":
                yield from _of_sequence(list(value), lead)
            case "BRANCH":
                for branch in value[1]:
                    yield from _of_sequence(list(branch), lead)
        lead += (_samples([(kind, value)]) or [""])[0]


def _samples(items: list[Any]) -> list[str]:
    """Some texts that the items match, few and short."""
    found = [""]
    for kind, value in items:
        found = [before + each for before in found for each in _sample(str(kind), value)][:12]
    return list(dict.fromkeys(filter(None, found)))


def _sample(kind: str, value: Any) -> list[str]:
    match kind:
        case "LITERAL":
            return [chr(value)]
        case "NOT_LITERAL":
            return ["x" if value != ord("x") else "y"]
        case "ANY":
            return ["x"]
        case "IN":
            return _of_set(value)
        case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
            least, _, inner = value
            samples = _samples(list(inner)) or [""]
            return [sample * max(least, 1) for sample in samples[:3]] + ([] if least else [""])
        case "SUBPATTERN":
            return _samples(list(value[3])) or [""]
        case "ATOMIC_GROUP":
            return _samples(list(value)) or [""]
        case "BRANCH":
            return [sample for branch in value[1] for sample in (_samples(list(branch)) or [""])[:2]]
    return [""]


def _of_set(items: list[Any]) -> list[str]:
    words = {"CATEGORY_DIGIT": "0", "CATEGORY_SPACE": " ", "CATEGORY_WORD": "a", "CATEGORY_NOT_SPACE": "x"}
    if str(items[0][0]) == "NEGATE":
        taken = {chr(value) for kind, value in items[1:] if str(kind) == "LITERAL"}
        return [next(each for each in "xy-0 '" if each not in taken)]
    found = []
    for kind, value in items:
        match str(kind):
            case "LITERAL":
                found.append(chr(value))
            case "RANGE":
                found.append(chr(value[0]))
            case "CATEGORY":
                found.append(words.get(str(value), "x"))
    return found[:2] or ["x"]


# --- the test


@contextmanager
def _at_most(seconds: float, what: str) -> Iterator[None]:
    """Python's matcher looks for signals as it goes, so an alarm ends it."""

    def end(*_: Any) -> None:
        pytest.fail(f"takes more than {seconds} s: {what}")

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def _feed(pattern: Pattern, text: str) -> None:
    data = text if isinstance(pattern.compiled.pattern, str) else text.encode("utf-8")
    for method in pattern.methods:
        arguments = (data[:0], data) if method == "sub" else (data,)
        result = getattr(pattern.compiled, method)(*arguments)
        if method == "finditer":
            list(result)


@pytest.mark.parametrize("path", _sources(), ids=lambda path: str(path.relative_to(_ROOT)))
def test_patterns_of_a_file_take_linear_time(path: Path) -> None:
    for pattern in _patterns_of(path):
        texts = [(lead, repetition, _SMALL) for lead, repetition in dict.fromkeys(_hostile(pattern.compiled))]
        texts += [("", repetition, _LARGE) for repetition in _CURATED]
        for (lead, repetition, size), end in itertools.product(texts, ("", "\0!")):
            what = f"{pattern.where}: {pattern.compiled.pattern!r} on {lead!r} and then {repetition!r}, many times"
            with _at_most(_SECONDS, what):
                _feed(pattern, lead + repetition * (size // len(repetition)) + end)


def test_patterns_of_statements_are_among_them() -> None:
    found = {pattern.where for pattern in _patterns_of(_ROOT / "include/changefeed/binlog/events/query_event.py")}
    assert {"include/changefeed/binlog/events/query_event.py:_FIRST_WORDS"} <= found
