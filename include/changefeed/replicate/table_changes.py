"""Merges the pending changes of one table by row, and writes only the result of each row.

Readers of the follower see several changes of a row within one transaction as one change. The primary key identifies a
row. Without a primary key, all of its values identify it, and several rows may have the same values. Statements of many
rows delete the old rows and insert the new rows.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from functools import partial

from changefeed.formats.reader import Envelope, JsonImage
from changefeed.formats.style import Style
from changefeed.formats.typed_values import WRONG, RowValues
from changefeed.model.charset_codes import charset_of_name
from changefeed.model.identifier import quote_name
from changefeed.model.row_shape import HASH
from changefeed.model.table_schema import Column, TableSchema
from changefeed.native.memory import Bytes, Words
from changefeed.replicate.batch_sessions import BatchSessions, TouchedRows
from changefeed.replicate.generated_columns import GeneratedColumns
from changefeed.replicate.keyless_deletes import GoneRow, KeylessDeletes
from changefeed.replicate.literals import literal_in_utc, literal_of
from changefeed.replicate.merged_rows import (
    STATEMENT_BYTES,
    CountedColumn,
    KeyedRows,
    KeylessRows,
    Row,
    join_statements,
)
from changefeed.replicate.row_texts import RowTextMaker, RowTexts
from changefeed.replicate.single_rows import SingleRows, check_written, undefined_bytes_error, write_sql
from changefeed.source.mysql.follower_session import FollowerSession


class TableChanges:
    """The pending changes of ``table``, the follower's current table definition.

    A change is written at once, as a statement of its own, if it cascades to other tables (``in_order``: the source
    does not log the rows that foreign keys change), or if its row image is partial.

    - ``cannot_roll_back``: whether the table is not of InnoDB. Each of its writes runs while no other batch is open.
    - ``is_incomplete``: whether a snapshot still fills the table. A change of a missing row inserts the row if its
      image is complete. If not, the snapshot brings the row later.
    - ``compared``: generated columns whose values are compared with the values that the source logged.
    """

    def __init__(
        self,
        batches: BatchSessions,
        table: TableSchema,
        style: Style,
        *,
        cannot_roll_back: bool = False,
        compared: GeneratedColumns | None = None,
        is_incomplete: bool = False,
    ) -> None:
        self._batches, self.table, self.cannot_roll_back, self._compared = batches, table, cannot_roll_back, compared
        self._is_incomplete = is_incomplete
        self._is_identified_by_key = bool(table.primary_key) and not any(index.unique for index in table.indexes or ())
        """Whether the primary key is the only unique key, so that only rows with the same key can conflict."""
        self._single = SingleRows(table, style, is_incomplete=is_incomplete)
        self._values = RowValues(table, style)
        self._columns = [column for column in table.columns if not column.generated]
        zoned = literal_in_utc if self._is_zoned else literal_of
        self._literals = [(column.name, zoned(column, style)) for column in self._columns]
        self._enums = [number for number, column in enumerate(self._columns) if column.data_type == "enum"]
        self._labelled = [self._columns[number].name for number in self._enums]
        names = ", ".join(quote_name(column.name) for column in self._columns)
        insert = f"INSERT INTO {self.name} ({names}) VALUES "
        self._replace = f"REPLACE INTO {self.name} ({names}) VALUES ".encode()
        numbered = [number for number, column in enumerate(self._columns) if column.auto_increment]
        counted = CountedColumn(numbered[0]) if numbered else None
        self._keyed = KeyedRows(table, self.name, insert, counted) if table.primary_key else None
        keys = [table.columns[number] for number in sorted(table.primary_key)]
        self._key_literals = [(column.name, literal_of(column, style)) for column in keys]
        """The key's columns. They may include generated columns, which no statement writes."""
        self._alike = KeylessRows(insert, counted)
        self._deletes = KeylessDeletes(table, insert, lambda image: self._single.conditions(self._values.of(image)))
        self._images: dict[object, JsonImage] = {}
        """If generated columns are compared: the images of new rows, by key or by all literals."""
        self._doubted = [column.name for column in self._columns if _takes_replacement(column)]
        is_read_here = compared is not None or bool(self._doubted)
        self._texts = None if is_read_here else RowTextMaker.of(table, style)
        self._loose = False
        """Whether a row has the invalid value 0 of an ENUM, which a strict session refuses."""

    @property
    def name(self) -> str:
        """The table's name as SQL."""
        return f"{quote_name(self.table.database)}.{quote_name(self.table.table)}"

    @property
    def _is_zoned(self) -> bool:
        """Whether rows are written in the server's global time zone."""
        return self._compared is not None and self._compared.is_zoned

    def take(self, change: Envelope, *, in_order: bool = False) -> None:
        """Add a row change, or write it at once. ``in_order`` says that it cascades to rows of other tables.

        Raises SchemaError if the change does not match the table, and UnwritableRowError for undefined bytes.
        """
        before, after = change.before, change.after
        self._check_characters(after or {})
        if in_order or not self.is_mergeable(change):
            self.write()
            size = sum(len(str(image)) for image in (before, after) if image)
            write = partial(self._single.write, change=change, in_order=in_order)
            self._batches.put(write, self._touched_rows(None), size, alone=True)
            if after is not None:
                self._compare([{**(before or {}), **after}])
            return
        try:
            old, new = (None if image is None else self._row(image) for image in (before, after))
        except WRONG:
            for image in filter(None, (before, after)):
                self._values.of(image)  # raises an error that names the column and the value
            raise
        if old is not None:
            self._remove(old, before or {})
        if new is not None:
            self._add(new, after or {})

    def texts_of(self, data: Bytes, values: Words) -> RowTexts | None:
        """The SQL of the messages at ``values``, for `take_texts`; None if the kernel cannot convert all of them."""
        texts = None if self._texts is None else self._texts.make_texts(data, values)
        return texts if texts is not None and texts.is_complete else None

    def take_texts(self, texts: RowTexts) -> None:
        """Add row changes, or write them directly if all are inserts and no change is pending."""
        assert self._keyed is not None
        if self._keyed or not texts.are_all_new:
            self._keyed.take(texts)
            return
        touched = self._touched_rows(texts.new_keys if self._is_identified_by_key else None)
        for rows, count in texts.statements(STATEMENT_BYTES):
            self._send(b"".join((self._keyed.insert, rows)), count, touched)
            touched = self._already_touched(touched)

    def overwrite(self, texts: RowTexts) -> None:
        """Write rows of a snapshot. They replace existing rows."""
        self.write()
        for rows, _ in texts.statements(STATEMENT_BYTES):
            self._send(b"".join((self._replace, rows)), None, self._touched_rows(None))

    def overwrite_each(self, images: Sequence[JsonImage]) -> None:
        """Write rows of a snapshot, in the form of messages. They replace existing rows. Raises what `take` raises."""
        self.write()
        for image in images:
            self._check_characters(image)
        rows = [self._row(image) for image in images]
        for row in rows:
            self._loose = self._loose or any(row[number] == "0" for number in self._enums)
        for sql, _ in join_statements(self._replace, [f"({','.join(row)})".encode() for row in rows], b"", b","):
            self._send(sql, None, self._touched_rows(None))
        self._loose = False
        self._compare(images)

    def is_mergeable(self, change: Envelope) -> bool:
        """Whether the change can be merged with other changes, because its images have all columns."""
        return self._single.is_complete(change.before) and self._single.is_complete(change.after)

    def _row(self, image: JsonImage) -> Row:
        return tuple(["NULL" if (value := image[name]) is None else literal(value) for name, literal in self._literals])

    def _check_characters(self, image: JsonImage) -> None:
        """Raises UnwritableRowError if a column has U+FFFD instead of undefined bytes: the follower would store it."""
        for name in self._doubted:
            if "\ufffd" in (image.get(name) or ""):
                raise undefined_bytes_error(self.table, f"column {name!r}")

    def without_hidden_columns(self, change: Envelope) -> Envelope:
        """The change without MariaDB's hidden columns for UNIQUE keys that are too long for an index."""
        images = (change.before, change.after)
        if not any(name.startswith(HASH) for image in images if image for name in image):
            return change
        own = {column.name for column in self.table.columns}
        before, after = (
            image and {name: value for name, value in image.items() if name in own or not name.startswith(HASH)}
            for image in images
        )
        return replace(change, before=before, after=after)

    def _remove(self, row: Row, image: JsonImage) -> None:
        if self._keyed is not None:
            key = self._keyed.key(self._key_of(image))
            self._keyed.remove(key)
            self._images.pop(key, None)
        else:
            self._alike.remove(row, image)

    def _key_of(self, image: JsonImage) -> list[str]:
        return [literal(image[name]) for name, literal in self._key_literals]

    def _add(self, row: Row, image: JsonImage) -> None:
        alike: object = row
        if self._keyed is not None:
            alike = key = self._keyed.key(self._key_of(image))
            self._keyed.add(key, f"({','.join(row)})".encode())
        else:
            self._alike.add(row)
        if self._compared is not None:
            self._images[alike] = image
        if self._enums and not self._loose:
            self._loose = any(row[number] == "0" for number in self._enums)

    # --- writing

    def write(self) -> None:
        """Add the pending changes to the open batch, which fails with AccountingError if a changed row is missing."""
        if self._keyed is not None:
            touched = self._touched_rows(self._keyed.keys if self._is_identified_by_key else None)
            for sql, count in self._keyed.statements():
                self._send(sql, None if self._is_incomplete and sql.startswith(b"DELETE") else count, touched)
                touched = self._already_touched(touched)
        else:
            self._delete_alike()
            for insert, image in self._alike.take_counter_row():
                self._send(insert, 1, self._touched_rows(None))
                self._send(self._delete(image), 1, self._touched_rows(None))
            for sql, count in self._alike.take_inserts():
                self._send(sql, count, self._touched_rows(None))
        self._loose = False
        images, self._images = list(self._images.values()), {}
        self._compare(images)

    def _delete(self, image: JsonImage) -> bytes:
        """The statement that deletes one row with the values of ``image`` from a table without a primary key."""
        where = self._single.conditions(self._values.of(image))
        return f"DELETE FROM {self.name} WHERE {where} LIMIT 1".encode()

    def _compare(self, images: Sequence[JsonImage]) -> None:
        """Compare the generated columns of written rows."""
        if self._compared is not None and images:
            self._batches.put(
                partial(self._compared.check, images=images), self._touched_rows(None), 0, alone=self.cannot_roll_back
            )

    def _delete_alike(self) -> None:
        """Delete rows from a table without a key."""
        gone = [GoneRow(*each) for each in self._alike.take_deletes()]
        if not gone:
            return
        is_loose = any(each.row[number] == "0" for each in gone for number in self._enums)
        loose = self._labelled if is_loose else ()
        size = sum(len(literal) for each in gone for literal in each.row)
        write = partial(self._deletes.delete, rows=gone, loose=loose, zoned=self._is_zoned)
        self._batches.put(write, self._touched_rows(None), size, alone=self.cannot_roll_back)

    def _touched_rows(self, keys: Set[bytes] | None) -> TouchedRows:
        return TouchedRows(self.name, keys)

    def _already_touched(self, touched: TouchedRows) -> TouchedRows:
        """The touched rows for the next statements, if the first statement was added with the rows of all."""
        return touched if touched.keys is None else self._touched_rows(frozenset())

    def _send(self, sql: bytes, count: int | None, touched: TouchedRows) -> None:
        """Add ``sql`` to the open batch. ``count`` is the number of rows that it must change; None if it is unknown."""
        loose = self._labelled if self._loose else ()
        zoned = self._is_zoned and not sql.startswith(b"DELETE")

        def write(session: FollowerSession) -> None:
            written = write_sql(session, self.table, sql, loose=loose, zoned=zoned)
            check_written(self.table, written, written if count is None else count, sql)

        self._batches.put(write, touched, len(sql), alone=self.cannot_roll_back)


def _takes_replacement(column: Column) -> bool:
    """Whether a column's charset can have undefined bytes, and can store U+FFFD instead of them.

    With other charsets, the server refuses U+FFFD.
    """
    is_text = column.data_type in ("char", "varchar", *(f"{size}text" for size in ("tiny", "", "medium", "long")))
    return is_text and charset_of_name(column.collation or "") in ("ucs2", "gb18030")
