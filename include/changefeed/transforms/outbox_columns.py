"""Messages of outbox rows column by column, without an object for each row: what `outbox` makes row by row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from changefeed.binlog.kernel import plain_rows
from changefeed.binlog.kernel.key_partitions import key_partitions
from changefeed.binlog.kernel.memory import Bytes, Words
from changefeed.binlog.output import Output
from changefeed.binlog.programs.topics import Topics
from changefeed.block import HAS_HEADERS, NULL_KEY, NULL_VALUE, Arrays
from changefeed.pipelines.outbox_settings import OutboxColumns, Place, Placement
from changefeed.transforms.column_messages import bytes_of
from changefeed.transforms.plain_columns import NotByColumns, PlainTable
from changefeed.varint import written_part, written_varint

_MADE = ("c", "r")


@dataclass
class _Pieces:
    """What messages are put together of: addresses and sizes in one array of bytes, a row each."""

    rows: int
    parts: list[NDArray[np.uint8]] = field(default_factory=list)
    size: int = 0

    def add(self, data: NDArray[np.uint8]) -> int:
        """Where ``data`` stands now."""
        at, self.size = self.size, self.size + len(data)
        self.parts.append(data)
        return at

    def one_of(self, literals: Mapping[int, bytes], which: Words) -> tuple[Words, Words]:
        """The literal that ``which`` says, for each row."""
        at = {number: self.add(np.frombuffer(text, np.uint8)) for number, text in literals.items()}
        numbers, index = np.unique(which, return_inverse=True)
        starts = np.array([at[number] for number in numbers.tolist()], np.int64)
        sizes = np.array([len(literals[number]) for number in numbers.tolist()], np.int64)
        return starts[index], sizes[index]

    def texts(self, values: pa.Array, *, is_base64: bool) -> tuple[Words, Words]:
        """The texts or bytes of a column: NULL and 0 where it is null."""
        data, starts, sizes = bytes_of(values, is_base64=is_base64)
        is_there = values.is_valid().to_numpy(zero_copy_only=False)
        return np.where(is_there, starts + self.add(data), plain_rows.NULL), np.where(is_there, sizes, 0)


class OutboxByColumns:
    """The rows of an outbox table whose columns, none of them masked, are put into messages as they are.

    ``names`` are the table's own names of the columns that the options take, ``base64`` those of bytes. ``left_out``
    counts rows that make no message under ``name``.
    """

    def __init__(
        self,
        table: PlainTable,
        columns: OutboxColumns,
        placements: Sequence[Placement],
        names: Mapping[str, str],
        base64: frozenset[str],
        *,
        suffix: str,
        left_out: Counter[str],
        name: str,
    ) -> None:
        self._table, self._columns, self._suffix = table, columns, suffix
        self._names, self._base64, self._left_out, self._name = names, base64, left_out, name
        self._headers = [("id", columns.id)]
        self._headers += [(each.name, each.column) for each in placements if each.place is Place.HEADER]
        self._partition = next((each.column for each in placements if each.place is Place.PARTITION), None)

    def finished(
        self, output: Output, partitions: Callable[[str], int], topics: Topics
    ) -> list[tuple[Arrays, Words]] | None:
        """The messages of all rows in ``output``, and their groups; None where that cannot be done by columns."""
        try:
            made = self._written(output, partitions, topics)
        except (NotByColumns, ValueError, pa.ArrowException):
            return None
        return made

    def _written(self, output: Output, partitions: Callable[[str], int], topics: Topics) -> list[tuple[Arrays, Words]]:
        batch = self._table.read(output).batch
        ops = batch["op"]
        if pc.any(pc.equal(ops, "u")).as_py():
            raise NotByColumns("updates are told one by one")
        chosen = np.flatnonzero(pc.is_in(ops, pa.array(_MADE)).to_numpy(zero_copy_only=False))
        made = output.selected(chosen)
        if len(chosen):
            after = batch["after"].take(pa.array(chosen))
            columns = dict(zip([each.name for each in after.type], after.flatten(), strict=True))
            result = [self._messages(made, columns, partitions, topics)]
        else:
            result = []
        if len(chosen) < len(ops):
            self._left_out[self._name] += len(ops) - len(chosen)
        return result

    def _messages(
        self, rows: Output, columns: Mapping[str, pa.Array], partitions: Callable[[str], int], topics: Topics
    ) -> tuple[Arrays, Words]:
        count = len(rows.positions)
        pieces = _Pieces(count)
        source = pieces.add(rows.data)
        ends = rows.ends.reshape(-1, 4).astype(np.int64)
        ids, gtids = (ends[:, 1] + source, ends[:, 2] - ends[:, 1]), (ends[:, 2] + source, ends[:, 3] - ends[:, 2])

        def column(name: str) -> tuple[Words, Words]:
            own = self._names[name]
            return pieces.texts(columns[own], is_base64=own in self._base64)

        key, value = column(self._columns.key), column(self._columns.payload)
        if self._columns.empty_is_tombstone:
            value = np.where(value[1] == 0, plain_rows.NULL, value[0]), value[1]
        headers = [(name, column(of)) for name, of in self._headers]
        if (headers[0][1][0] == plain_rows.NULL).any():
            raise NotByColumns("an id is NULL")
        there = [starts != plain_rows.NULL for _, (starts, _) in headers]
        begin = gtids[1] << 8 | np.sum(there, axis=0)
        parts = [key, value, ids]
        parts.append(pieces.one_of({each: bytes((each >> 8, each & 255)) for each in np.unique(begin).tolist()}, begin))
        parts.append(gtids)
        for (name, (starts, sizes)), is_there in zip(headers, there, strict=True):
            before = np.where(is_there, sizes, -1)
            literals = {each: written_part(name.encode()) + written_varint(each) for each in np.unique(before).tolist()}
            parts += [pieces.one_of({**literals, -1: b""}, before), (starts, sizes)]
        data = np.concatenate(pieces.parts)
        groups = self._groups(columns, partitions, topics, data, key, ids)
        starts = np.ascontiguousarray(np.stack([start for start, _ in parts], axis=1)).reshape(-1)
        sizes = np.ascontiguousarray(np.stack([size for _, size in parts], axis=1)).reshape(-1)
        out, offsets = np.empty(int(sizes.sum()), np.uint8), np.empty(len(starts) + 1, np.uint32)
        plain_rows.texts(data, starts, sizes, 0, out, offsets)
        first = offsets[:-1].reshape(count, len(parts))
        last = np.append(first[1:, 0], offsets[-1])
        nulls = NULL_KEY * (key[0] < 0) + NULL_VALUE * (value[0] < 0) + HAS_HEADERS
        made = Arrays(
            rows.positions.data,
            rows.sequences.data,
            np.ascontiguousarray(np.stack([first[:, 1], first[:, 2], first[:, 3], last], axis=1)).reshape(-1).data,
            rows.seconds.data,
            nulls.astype(np.uint8).data,
            out.data,
        )
        return made, groups

    def _groups(
        self,
        columns: Mapping[str, pa.Array],
        partitions: Callable[[str], int],
        topics: Topics,
        data: Bytes,
        key: tuple[Words, Words],
        ids: tuple[Words, Words],
    ) -> Words:
        """The group of each message: that of its topic's first partition, and the partition."""
        routes = columns[self._names[self._columns.route_by]]
        if routes.null_count or not pa.types.is_string(routes.type):
            raise NotByColumns("a topic is chosen by no text")
        encoded = routes.dictionary_encode()
        names = [self._columns.topic(value) + self._suffix for value in encoded.dictionary.to_pylist()]
        of_topic = np.array([(topics.group_of(name, partitions(name)), partitions(name)) for name in names], np.int64)
        firsts, counts = of_topic[encoded.indices.to_numpy()].T
        numbers = np.ascontiguousarray(counts)
        key_partitions(data, *key, *ids, numbers)
        if self._partition is not None:
            placed = columns[self._names[self._partition]]
            wanted = pc.fill_null(pc.cast(placed, pa.int64()), 0).to_numpy()
            is_there = placed.is_valid().to_numpy(zero_copy_only=False)
            if ((wanted < 0) | (wanted >= counts))[is_there].any():
                raise NotByColumns("a partition that its topic does not have")
            numbers = np.where(is_there, wanted, numbers)
        return np.ascontiguousarray(firsts + numbers)
