"""Records that need not be read: rows of Debezium's envelopes, compared by the bytes that stand there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from changefeed.binlog.kernel import envelopes
from changefeed.binlog.kernel import kafka_records as kernel
from changefeed.binlog.kernel.memory import Words
from changefeed.binlog.kernel.row_checksums import CHECKSUM_BYTES
from changefeed.formats.notation import json_string
from changefeed.verify.changes import SCHEMA_KEY
from changefeed.verify.entries import Entries
from changefeed.verify.entry import Side
from changefeed.verify.read_rows import NOT_READ, TableView, place
from changefeed.verify.record_arrays import Flags, RecordArrays
from changefeed.verify.row_digests import row_digests
from changefeed.verify.strings import Strings
from changefeed.verify.tables import JudgedTable

_ROW_OPS = np.frombuffer(b"curd", np.uint8).astype(np.int64)
_WITH_BEFORE = np.frombuffer(b"ud", np.uint8).astype(np.int64)
_NONE = -1


class RecordTexts:
    """Of partition ``partition`` of a topic that holds records of ``tables``."""

    def __init__(self, tables: Sequence[JudgedTable], partition: int, views: Mapping[int, TableView]) -> None:
        self._partition, self._views = partition, views
        names = [json_string(name) for table in tables for name in (table.schema.database, table.schema.table)]
        self._names = Strings.of(names)
        self._numbers = np.array([*(table.number for table in tables), _NONE], np.int64)
        self._is_text = np.array([*(table.is_text for table in tables), False])
        self._is_counted = np.array([*(table.without_key for table in tables), False])
        self._needs_view = np.array([*(table.needs_view and table.number not in views for table in tables), False])
        self._only = 0 if len(tables) == 1 else _NONE

    def entries(
        self, records: RecordArrays, moments: Words, known: Flags, chunks: Words
    ) -> tuple[list[Entries], Flags]:
        """What records say, and of which that is all: each other has to be read by itself."""
        if not self._is_text.any():
            return [], np.zeros(len(records), np.bool_)
        value, value_end = records.column(kernel.VALUE), records.column(kernel.VALUE_END)
        words = np.empty((len(records), envelopes.ENVELOPE_WORDS), np.int64)
        envelopes.read_envelopes(
            records.data,
            np.ascontiguousarray(value),
            np.ascontiguousarray(value_end),
            self._names.data,
            self._names.ends,
            words.reshape(-1),
        )
        table = np.where(value < 0, self._only, words[:, envelopes.TABLE])
        is_row = known & (np.isin(words[:, envelopes.OP], _ROW_OPS) | (value < 0)) & self._is_text[table]
        has_key = is_row & ~self._is_counted[table] & _has_plain_key(records)
        is_counted = is_row & self._is_counted[table] & (value >= 0)
        is_counted &= ~np.isin(words[:, envelopes.OP], _WITH_BEFORE) | (words[:, envelopes.BEFORE] >= 0)
        is_counted &= ~self._needs_view[table] | (chunks == NOT_READ)
        moments, says = place(self._views, self._numbers[table], moments, chunks)
        made = []
        if has_key.any():
            which = np.flatnonzero(has_key)
            keys = Strings.parts(records.data, *_spans(records.words, which, kernel.KEY))
            made.append(self._of(records, moments, table, words, which, envelopes.AFTER, 1, keys))
        for image, weight in ((envelopes.BEFORE, -1), (envelopes.AFTER, 1)):
            which = np.flatnonzero(is_counted & says & (words[:, image] >= 0))
            if len(which):
                made.append(self._of(records, moments, table, words, which, image, weight))
        return made, has_key | is_counted

    def _of(
        self,
        records: RecordArrays,
        moments: Words,
        table: Words,
        words: Words,
        which: Words,
        image: int,
        weight: int,
        keys: Strings | None = None,
    ) -> Entries:
        """An entry for an image of each of the records ``which``; by its values where there are no ``keys``."""
        starts, ends = _spans(words, which, image)
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


def _spans(words: Words, which: Words, word: int) -> tuple[Words, Words]:
    return words[which, word], words[which, word + 1]


def _has_plain_key(records: RecordArrays) -> Flags:
    """Whether each record has a key, and no schema around it."""
    start = records.column(kernel.KEY)
    has_key = start >= 0
    is_long = records.column(kernel.KEY_END) - start > len(SCHEMA_KEY)
    third = records.data[np.where(is_long, start + 2, 0)]
    for number in np.flatnonzero(is_long & (third == SCHEMA_KEY[2])).tolist():
        has_key[number] = not (records.key(number) or b"").startswith(SCHEMA_KEY)
    return has_key
