"""The changes of one table that are still to be written, joined: what becomes of each row, not each step on the way.

Several changes of a row within one follower transaction are one to whoever reads the follower. So rows are told apart
by the primary key, or where there is none by all their values, of which a table may have several alike; rows that were
there before are deleted, and those that there are now inserted, in statements of many rows.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace
from functools import partial

from changefeed.formats.reader import Envelope, JsonImage
from changefeed.formats.style import Style
from changefeed.formats.typed_values import WRONG, RowValues
from changefeed.model.charset_codes import charset_of_name
from changefeed.model.identifier import quoted
from changefeed.model.row_shape import HASH
from changefeed.model.table_schema import Column, TableSchema
from changefeed.native.memory import Bytes, Words
from changefeed.replicate.batch_sessions import BatchSessions, Touched
from changefeed.replicate.generated_columns import GeneratedColumns
from changefeed.replicate.joined_rows import STATEMENT_BYTES, CountedColumn, KeyedRows, KeylessRows, Row, joined
from changefeed.replicate.keyless_deletes import GoneRow, KeylessDeletes
from changefeed.replicate.literals import in_utc, literal_of
from changefeed.replicate.row_texts import RowTextMaker, RowTexts
from changefeed.replicate.single_rows import SingleRows, check_written, undefined_bytes, write_sql
from changefeed.source.mysql.follower_session import FollowerSession


class TableChanges:
    """What is still to be written to ``table``, which is as the follower has it now.

    A change that takes rows of other tables along (``in_order``: foreign keys cascade, and the source does not log what
    they did) is a statement of its own, at once; so is one whose row image is partial. Where
    the server cannot roll back (``lasting``, the table is not InnoDB's) its statements are done alone, too.

    ``lacks_rows`` says that a snapshot still fills the table: a row that is not there is made by its change, if that is
    the whole row. If it is not, the snapshot has the row later. ``compared`` are generated columns whose values have
    to be what the source logged.
    """

    def __init__(
        self,
        batches: BatchSessions,
        table: TableSchema,
        style: Style,
        *,
        lasting: bool = False,
        compared: GeneratedColumns | None = None,
        lacks_rows: bool = False,
    ) -> None:
        self._batches, self.table, self.lasting, self._compared = batches, table, lasting, compared
        self._lacks_rows = lacks_rows
        self._is_told_by_key = bool(table.primary_key) and not any(index.unique for index in table.indexes or ())
        """Whether rows are alike only where their primary keys are."""
        self._single = SingleRows(table, style, lacks_rows=lacks_rows)
        self._values = RowValues(table, style)
        self._columns = [column for column in table.columns if not column.generated]
        zoned = in_utc if self._is_zoned else literal_of
        self._literals = [(column.name, zoned(column, style)) for column in self._columns]
        self._enums = [number for number, column in enumerate(self._columns) if column.data_type == "enum"]
        self._labelled = [self._columns[number].name for number in self._enums]
        names = ", ".join(quoted(column.name) for column in self._columns)
        insert = f"INSERT INTO {self.name} ({names}) VALUES "
        self._replace = f"REPLACE INTO {self.name} ({names}) VALUES ".encode()
        numbered = [number for number, column in enumerate(self._columns) if column.auto_increment]
        counted = CountedColumn(numbered[0]) if numbered else None
        self._keyed = KeyedRows(table, self.name, insert, counted) if table.primary_key else None
        keys = [table.columns[number] for number in sorted(table.primary_key)]
        self._key_literals = [(column.name, literal_of(column, style)) for column in keys]
        """Of a key's columns, which may be generated ones, that no statement writes."""
        self._alike = KeylessRows(insert, counted)
        self._deletes = KeylessDeletes(table, insert, lambda image: self._single.conditions(self._values.of(image)))
        self._images: dict[object, JsonImage] = {}
        """By key, or by all literals, the rows that are new, where something of them is compared."""
        self._doubted = [column.name for column in self._columns if _takes_replacement(column)]
        is_read_here = compared is not None or bool(self._doubted)
        self._texts = None if is_read_here else RowTextMaker.of(table, style)
        self._loose = False
        """Whether an invalid value of an ENUM is among them, which a strict session does not take."""

    @property
    def name(self) -> str:
        """As SQL."""
        return f"{quoted(self.table.database)}.{quoted(self.table.table)}"

    @property
    def _is_zoned(self) -> bool:
        """Whether rows are written in the server's own time zone."""
        return self._compared is not None and self._compared.is_zoned

    def take(self, change: Envelope, *, in_order: bool = False) -> None:
        """Add a change of a row, or write it at once, in the session's transaction. ``in_order`` says that it takes
        rows of other tables along.

        Raises SchemaError for one that is not of such a table.
        """
        before, after = change.before, change.after
        self._check_characters(after or {})
        if in_order or not self.joins(change):
            self.write()
            size = sum(len(str(image)) for image in (before, after) if image)
            write = partial(self._single.write, change=change, in_order=in_order)
            self._batches.put(write, self._touched(None), size, alone=True)
            if after is not None:
                self._compare([{**(before or {}), **after}])
            return
        try:
            old, new = (None if image is None else self._row(image) for image in (before, after))
        except WRONG:
            for image in filter(None, (before, after)):
                self._values.of(image)  # says which column and value it is
            raise
        if old is not None:
            self._remove(old, before or {})
        if new is not None:
            self._add(new, after or {})

    def texts_of(self, data: Bytes, values: Words) -> RowTexts | None:
        """The SQL of the messages at ``values``, for `take_texts`; None where not all are whole rows of this table of
        which the kernel knows it."""
        texts = None if self._texts is None else self._texts.made_of(data, values)
        return texts if texts is not None and texts.is_whole else None

    def take_texts(self, texts: RowTexts) -> None:
        """Add changes of rows, as `take`; or write them, where that is the same."""
        assert self._keyed is not None
        if self._keyed or not texts.are_all_new:
            self._keyed.take(texts)
            return
        touched = self._touched(texts.new_keys if self._is_told_by_key else None)
        for rows, count in texts.statements(STATEMENT_BYTES):
            self._send(b"".join((self._keyed.insert, rows)), count, touched)
            touched = self._again(touched)

    def overwrite(self, texts: RowTexts) -> None:
        """Write rows as a snapshot read them, whatever was there."""
        self.write()
        for rows, _ in texts.statements(STATEMENT_BYTES):
            self._send(b"".join((self._replace, rows)), None, self._touched(None))

    def overwrite_each(self, images: Sequence[JsonImage]) -> None:
        """As `overwrite`, for rows as messages have them. Raises SchemaError as `take`."""
        self.write()
        for image in images:
            self._check_characters(image)
        rows = [self._row(image) for image in images]
        for row in rows:
            self._loose = self._loose or any(row[number] == "0" for number in self._enums)
        for sql, _ in joined(self._replace, [f"({','.join(row)})".encode() for row in rows], b"", b","):
            self._send(sql, None, self._touched(None))
        self._loose = False
        self._compare(images)

    def joins(self, change: Envelope) -> bool:
        """Whether the change is joined with others, and no statement of its own: its images have all columns."""
        return self._single.is_whole(change.before) and self._single.is_whole(change.after)

    def _row(self, image: JsonImage) -> Row:
        return tuple(["NULL" if (value := image[name]) is None else literal(value) for name, literal in self._literals])

    def _check_characters(self, image: JsonImage) -> None:
        """Raises UnwritableRowError where the follower would take U+FFFD for bytes that are no character."""
        for name in self._doubted:
            if "\ufffd" in (image.get(name) or ""):
                raise undefined_bytes(self.table, f"column {name!r}")

    def of_own_columns(self, change: Envelope) -> Envelope:
        """The change without what MariaDB keeps beside the columns for a UNIQUE key that is too long for an index."""
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
        """Have all written that was taken. AccountingError comes of it where the follower lacks a row that changed."""
        if self._keyed is not None:
            touched = self._touched(self._keyed.keys if self._is_told_by_key else None)
            for sql, count in self._keyed.statements():
                self._send(sql, None if self._lacks_rows and sql.startswith(b"DELETE") else count, touched)
                touched = self._again(touched)
        else:
            self._delete_alike()
            for insert, image in self._alike.passed():
                self._send(insert, 1, self._touched(None))
                self._send(self._delete(image), 1, self._touched(None))
            for sql, count in self._alike.inserts():
                self._send(sql, count, self._touched(None))
        self._loose = False
        images, self._images = list(self._images.values()), {}
        self._compare(images)

    def _delete(self, image: JsonImage) -> bytes:
        """The statement that deletes one row like ``image``, of a table without a primary key."""
        where = self._single.conditions(self._values.of(image))
        return f"DELETE FROM {self.name} WHERE {where} LIMIT 1".encode()

    def _compare(self, images: Sequence[JsonImage]) -> None:
        """Have generated columns of rows compared that were written."""
        if self._compared is not None and images:
            self._batches.put(partial(self._compared.check, images=images), self._touched(None), 0, alone=self.lasting)

    def _delete_alike(self) -> None:
        """Have the rows that are gone deleted from a table without a key."""
        gone = [GoneRow(*each) for each in self._alike.gone()]
        if not gone:
            return
        is_loose = any(each.row[number] == "0" for each in gone for number in self._enums)
        loose = self._labelled if is_loose else ()
        size = sum(len(literal) for each in gone for literal in each.row)
        write = partial(self._deletes.delete, rows=gone, loose=loose, zoned=self._is_zoned)
        self._batches.put(write, self._touched(None), size, alone=self.lasting)

    def _touched(self, keys: Set[bytes] | None) -> Touched:
        return Touched(self.name, keys)

    def _again(self, touched: Touched) -> Touched:
        """For the further statements of rows of which the first said what all touch."""
        return touched if touched.keys is None else self._touched(frozenset())

    def _send(self, sql: bytes, count: int | None, touched: Touched) -> None:
        """Have ``sql`` written, which writes ``count`` rows where that is known."""
        loose = self._labelled if self._loose else ()
        zoned = self._is_zoned and not sql.startswith(b"DELETE")

        def write(session: FollowerSession) -> None:
            written = write_sql(session, self.table, sql, loose=loose, zoned=zoned)
            check_written(self.table, written, written if count is None else count, sql)

        self._batches.put(write, touched, len(sql), alone=self.lasting)


def _takes_replacement(column: Column) -> bool:
    """Whether a column may have bytes that are no character, and would take U+FFFD in their place: a server that
    refuses it says by that what it was."""
    is_text = column.data_type in ("char", "varchar", *(f"{size}text" for size in ("tiny", "", "medium", "long")))
    return is_text and charset_of_name(column.collation or "") in ("ucs2", "gb18030")
