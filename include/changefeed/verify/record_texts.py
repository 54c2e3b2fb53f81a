"""Creates the entries of many records at once from the bytes of their rows, if the format can find these bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from changefeed.formats.reader import SCHEMA_KEY, RecordReader
from changefeed.native.memory import Words
from changefeed.records import index_kernel as kernel
from changefeed.records.record_index import RecordIndex
from changefeed.verify.entries import Entries, Side
from changefeed.verify.partition_records import Flags
from changefeed.verify.read_rows import NOT_READ, SnapshotView, place
from changefeed.verify.row_checksums import CHECKSUM_BYTES
from changefeed.verify.row_digests import row_digests
from changefeed.verify.strings import Strings
from changefeed.verify.tables import ComparedTable

_ROW_OPS = np.frombuffer(b"curd", np.uint8).astype(np.int64)
_WITH_BEFORE = np.frombuffer(b"ud", np.uint8).astype(np.int64)
_NONE = -1


class RecordTexts:
    """Creates entries from the text of records in ``partition`` of a topic with ``tables``."""

    def __init__(
        self, reader: RecordReader, tables: Sequence[ComparedTable], partition: int, views: Mapping[int, SnapshotView]
    ) -> None:
        self._partition, self._views = partition, views
        self._find = None if reader.finder is None else reader.finder([table.schema for table in tables])
        self._numbers = np.array([*(table.number for table in tables), _NONE], np.int64)
        self._is_text = np.array([*(table.is_text for table in tables), False])
        self._is_counted = np.array([*(table.without_key for table in tables), False])
        self._needs_view = np.array([*(table.needs_view and table.number not in views for table in tables), False])
        self._only = 0 if len(tables) == 1 else _NONE

    def entries(self, records: RecordIndex, moments: Words, known: Flags, chunks: Words) -> tuple[list[Entries], Flags]:
        """The entries of records, and a flag for each record: whether it is done. The caller reads the others."""
        if self._find is None or not self._is_text.any():
            return [], np.zeros(len(records), np.bool_)
        value = records.column(kernel.VALUE)
        found = self._find(records.data, value, records.column(kernel.VALUE_END))
        table = np.where(value < 0, self._only, found.tables)
        is_row = known & (np.isin(found.ops, _ROW_OPS) | (value < 0)) & self._is_text[table]
        has_key = is_row & ~self._is_counted[table] & _has_plain_key(records)
        is_counted = is_row & self._is_counted[table] & (value >= 0)
        is_counted &= ~np.isin(found.ops, _WITH_BEFORE) | (found.before[:, 0] >= 0)
        is_counted &= ~self._needs_view[table] | (chunks == NOT_READ)
        moments, says = place(self._views, self._numbers[table], moments, chunks)
        entries = []
        if has_key.any():
            which = np.flatnonzero(has_key)
            keys = Strings.parts(records.data, records.column(kernel.KEY)[which], records.column(kernel.KEY_END)[which])
            entries.append(self._make_entries(records, moments, table, found.after, which, 1, keys))
        for image, weight in ((found.before, -1), (found.after, 1)):
            which = np.flatnonzero(is_counted & says & (image[:, 0] >= 0))
            if len(which):
                entries.append(self._make_entries(records, moments, table, image, which, weight))
        return entries, has_key | is_counted

    def _make_entries(
        self,
        records: RecordIndex,
        moments: Words,
        table: Words,
        image: Words,
        which: Words,
        weight: int,
        keys: Strings | None = None,
    ) -> Entries:
        """An entry for the row at ``image`` of each record of ``which``.

        Without ``keys``, the checksum of a row's values is its key.
        """
        starts, ends = image[which].T
        rows = row_digests(records.data, starts, ends)
        return Entries.of_columns(
            self._numbers[table[which]],
            rows.first_bytes(CHECKSUM_BYTES) if keys is None else keys,
            Side.TOPIC,
            self._partition,
            records.offsets[which],
            moments[which],
            np.where(starts < 0, 0, weight),
            rows,
        )


def _has_plain_key(records: RecordIndex) -> Flags:
    """A flag for each record: whether it has a key that is not in a schema envelope."""
    start = records.column(kernel.KEY)
    has_key = start >= 0
    is_long = records.column(kernel.KEY_END) - start > len(SCHEMA_KEY)
    third = records.data[np.where(is_long, start + 2, 0)]
    for number in np.flatnonzero(is_long & (third == SCHEMA_KEY[2])).tolist():
        has_key[number] = not (records.key(number) or b"").startswith(SCHEMA_KEY)
    return has_key
