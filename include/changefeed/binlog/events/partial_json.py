"""Applies the changes in a JSON column of PARTIAL_UPDATE_ROWS to the before image's document.

A change: operation u8 (0 replace, 1 insert, 2 remove), path (packed length, text such as `$.a[2]."b c"`), and for
replace and insert a value (packed length, binary JSON with its type byte).

Source: https://dev.mysql.com/doc/dev/mysql-server/latest/classJson__diff.html, `sql-common/json_diff.cc`
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass

from changefeed.binlog.events.framing import DamagedEvent, Fields

_REPLACE, _INSERT, _REMOVE = 0, 1, 2
_SMALL_OBJECT, _LARGE_OBJECT, _SMALL_ARRAY, _LARGE_ARRAY = 0, 1, 2, 3
_MAX_DEPTH = 128
_STEP = re.compile(r'\.(?P<name>[^.\[\]"]+)|\."(?P<quoted>(?:[^"\\]|\\.)*)"|\[(?P<index>\d+)\]')


@dataclass
class Scalar:
    """A value that is not an object or an array: its type, and the bytes after the type."""

    kind: int
    data: bytes


Node = Scalar | dict[bytes, "Node"] | list["Node"]


def apply(document: bytes, changes: bytes) -> bytes:
    """The ``document`` with ``changes`` applied, as binary JSON; raises DamagedEvent."""
    if not changes:
        return document
    root = read(document)
    fields = Fields(changes)
    while fields.left:
        operation = fields.number(1)
        path = fields.take(fields.packed_number()).decode("utf-8", "replace")
        value = None if operation == _REMOVE else read(fields.take(fields.packed_number()))
        root = _change(root, operation, path, value)
    return write(root)


def read(document: bytes) -> Node:
    """The document as a tree, in which numbers and strings are bytes; raises DamagedEvent."""
    if not document:
        return Scalar(4, b"\0")
    return _node(document, document[0], 1, len(document), 0, [len(document)])


def _node(data: bytes, kind: int, at: int, end: int, depth: int, budget: list[int]) -> Node:
    budget[0] -= 1
    if depth > _MAX_DEPTH or budget[0] < 0:
        raise DamagedEvent("a JSON document is nested deeper than the server allows, or visits a value twice")
    if kind > _LARGE_ARRAY:
        return Scalar(kind, data[at : at + _scalar_size(data, kind, at, end)])
    wide = 4 if kind & 1 else 2
    count, size = _number(data, at, wide, end), _number(data, at + wide, wide, end)
    if size > end - at:
        raise DamagedEvent("a JSON document points outside of itself")
    end = at + size
    entry = at + 2 * wide
    keys = []
    if kind <= _LARGE_OBJECT:
        for _ in range(count):
            begin = at + _number(data, entry, wide, end)
            length = _number(data, entry + wide, 2, end)
            if begin + length > end:
                raise DamagedEvent("a JSON document points outside of itself")
            keys.append(data[begin : begin + length])
            entry += wide + 2
    values: list[Node] = []
    for _ in range(count):
        inner = _number(data, entry, 1, end)
        if _is_inline(inner, wide):
            values.append(_node(data, inner, entry + 1, entry + 1 + wide, depth + 1, budget))
        else:
            begin = at + _number(data, entry + 1, wide, end)
            values.append(_node(data, inner, begin, end, depth + 1, budget))
        entry += 1 + wide
    return dict(zip(keys, values, strict=True)) if kind <= _LARGE_OBJECT else values


def _is_inline(kind: int, wide: int) -> bool:
    return kind in (4, 5, 6) or (wide == 4 and kind in (7, 8))


def _number(data: bytes, at: int, width: int, end: int) -> int:
    if at + width > end:
        raise DamagedEvent("a JSON document points outside of itself")
    return int.from_bytes(data[at : at + width], "little")


def _scalar_size(data: bytes, kind: int, at: int, end: int) -> int:
    fixed = {4: 1, 5: 2, 6: 2, 7: 4, 8: 4, 9: 8, 10: 8, 11: 8}.get(kind)
    if fixed is None:
        if kind not in (12, 15):
            raise DamagedEvent(f"a JSON document holds a value of unknown type {kind}")
        head = at + (kind == 15)
        length = shift = 0
        while True:
            byte = _number(data, head, 1, end)
            head += 1
            length |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
            if shift > 28:
                raise DamagedEvent("a JSON document holds a broken length")
        fixed = head - at + length
    if at + fixed > end:
        raise DamagedEvent("a JSON document points outside of itself")
    return fixed


def _change(root: Node, operation: int, path: str, value: Node | None) -> Node:
    steps = _steps(path)
    if not steps:
        if value is None:
            raise DamagedEvent("a change of a JSON column removes the complete document")
        return value
    parent = root
    for step in steps[:-1]:
        parent = _child(parent, step, path)
    last = steps[-1]
    if isinstance(parent, dict) and isinstance(last, bytes):
        if operation == _REMOVE:
            parent.pop(last, None)
        elif value is not None:
            parent[last] = value
        return root
    if isinstance(last, int):
        if isinstance(parent, list):
            if operation == _REMOVE:
                del parent[last : last + 1]
            elif value is not None:
                if operation == _INSERT:
                    parent.insert(last, value)
                else:
                    parent[last : last + 1] = [value]
            return root
        if last == 0 and value is not None and len(steps) == 1:
            return value  # if a value is not an array, its path `$[0]` is the value itself
    raise DamagedEvent(f"a change of a JSON column names {path!r}, which its document does not have")


def _child(node: Node, step: bytes | int, path: str) -> Node:
    if isinstance(step, bytes):
        if isinstance(node, dict) and step in node:
            return node[step]
    elif isinstance(node, list):
        if step < len(node):
            return node[step]
    elif step == 0:
        return node
    raise DamagedEvent(f"a change of a JSON column names {path!r}, which its document does not have")


def _steps(path: str) -> list[bytes | int]:
    if not path.startswith("$"):
        raise DamagedEvent(f"a change of a JSON column has the path {path!r}")
    steps: list[bytes | int] = []
    at = 1
    while at < len(path):
        step = _STEP.match(path, at)
        if not step:
            raise DamagedEvent(f"a change of a JSON column has the path {path!r}")
        if step["index"] is not None:
            steps.append(int(step["index"]))
        elif step["quoted"] is not None:
            try:
                steps.append(str(json.loads(f'"{step["quoted"]}"')).encode())
            except ValueError as error:
                raise DamagedEvent(f"a change of a JSON column has the path {path!r}") from error
        else:
            steps.append(step["name"].encode())
        at = step.end()
    return steps


def write(node: Node) -> bytes:
    """The binary JSON of a tree; objects and arrays have the large form."""
    if isinstance(node, Scalar):
        return bytes([node.kind]) + node.data
    return bytes([_LARGE_OBJECT if isinstance(node, dict) else _LARGE_ARRAY]) + _container(node)


def _container(node: dict[bytes, Node] | list[Node]) -> bytes:
    keys = sorted(node, key=lambda key: (len(key), key)) if isinstance(node, dict) else []
    values = [node[key] for key in keys] if isinstance(node, dict) else node
    count = len(values)
    offset = 8 + count * 5 + len(keys) * 6
    entries, tail = [], []
    for key in keys:
        entries.append(struct.pack("<IH", offset, len(key)))
        tail.append(key)
        offset += len(key)
    for value in values:
        if isinstance(value, Scalar) and _is_inline(value.kind, 4):
            entries.append(bytes([value.kind]) + value.data.ljust(4, b"\0"))
            continue
        if isinstance(value, Scalar):
            kind, data = value.kind, value.data
        else:
            kind, data = (_LARGE_OBJECT if isinstance(value, dict) else _LARGE_ARRAY), _container(value)
        entries.append(struct.pack("<BI", kind, offset))
        tail.append(data)
        offset += len(data)
    return struct.pack("<II", count, offset) + b"".join(entries) + b"".join(tail)
