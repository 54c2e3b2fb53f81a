"""Builds row programs: a format's templates for one table as ops and literals that the kernel runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from changefeed.binlog.kernel import layout
from changefeed.binlog.programs.bound_table import BoundTable
from changefeed.binlog.programs.program_memory import ProgramMemory
from changefeed.binlog.programs.row_filters import current_words, filter_words
from changefeed.binlog.programs.specs import Specs
from changefeed.formats.format import RowFormat, TransactionRecords
from changefeed.formats.notation import Binary, Notation, json_string, slot_text
from changefeed.formats.style import Style
from changefeed.formats.template import (
    ABSENT_IMAGE,
    NO_SNAPSHOT,
    OF_SERVER,
    OPS,
    ChangeKind,
    Messages,
    Op,
    RowHeader,
    Slot,
    Template,
)
from changefeed.model.column_rules import ColumnRules, Constant
from changefeed.model.route import Route
from changefeed.model.table_schema import TableSchema
from changefeed.records.block import MAX_HEADERS
from changefeed.records.partition import partition_of
from changefeed.records.varint import encode_bytes

_SLOT_OPS = {
    Slot.FILE: layout.OP_FILE,
    Slot.POSITION: layout.OP_POSITION,
    Slot.ROW: layout.OP_ROW,
    Slot.STATEMENT_ROW: layout.OP_STATEMENT_ROW,
    Slot.EVENT_FIRST_ROW: layout.OP_EVENT_FIRST_ROW,
    Slot.GTID: layout.OP_GTID,
    Slot.SERVER_ID: layout.OP_SERVER_ID,
    Slot.TS_SECONDS: layout.OP_TS,
    Slot.QUERY: layout.OP_QUERY,
    Slot.XID: layout.OP_XID,
    Slot.THREAD: layout.OP_THREAD,
    Slot.EVENT_ID: layout.OP_EVENT_ID,
    Slot.TIME: layout.OP_TIME,
    Slot.SEQUENCE: layout.OP_SEQUENCE,
    Slot.EVENT_TYPE: layout.OP_EVENT_TYPE,
    Slot.EVENT_SIZE: layout.OP_EVENT_SIZE,
    Slot.EVENT_END: layout.OP_EVENT_END,
    Slot.EVENT_FLAGS: layout.OP_EVENT_FLAGS,
    Slot.EVENT_COUNT: layout.OP_EVENT_COUNT,
    Slot.EVENT_COUNTS: layout.OP_EVENT_COUNTS,
}
_TEXTS = {
    Slot.GTID_TEXT: (layout.GTID_SIZE, layout.GTID_TEXT),
    Slot.XID_TEXT: (layout.PLAIN_XID_SIZE, layout.XID_TEXT + 1),
    Slot.TRANSACTION_ID: (layout.TRANSACTION_SIZE, layout.TRANSACTION_TEXT),
}
_COMMIT_INFOS = {Slot.COMMIT_INFO: 0, Slot.COMMIT_INFO_OFFSET: 1}
_IMAGES = {Slot.BEFORE: 0, Slot.AFTER: 1, Slot.KEY: 2, Slot.KEY_BEFORE: 0, Slot.KEY_AFTER: 1}
"""The image of each slot, in the kernel's numbering."""
_NUMBERS = {
    Slot.POSITION: (layout.OP_POSITION, 1),
    Slot.ROW: (layout.OP_ROW, 1),
    Slot.STATEMENT_ROW: (layout.OP_STATEMENT_ROW, 1),
    Slot.EVENT_FIRST_ROW: (layout.OP_EVENT_FIRST_ROW, 1),
    Slot.SERVER_ID: (layout.OP_SERVER_ID, 1),
    Slot.TS_SECONDS: (layout.OP_TS, 1),
    Slot.TS_MILLIS: (layout.OP_MILLIS, 1),
    Slot.TS_MICROS: (layout.OP_MICROS, 1),
    Slot.TS_NANOS: (layout.OP_MICROS, 1000),
}
"""The slots that are numbers: the op that writes the digits, and the factor."""
_COUNTED = {Slot.QUERY: layout.OP_QUERY_COUNTED, Slot.XID: layout.OP_XID_COUNTED}
"""The texts that a binary notation writes after their length."""
_MAY_BE_ABSENT = frozenset({Slot.GTID, Slot.QUERY, Slot.XID, Slot.THREAD})
_CHANGES = (ChangeKind.CREATE, ChangeKind.UPDATE, ChangeKind.DELETE, ChangeKind.READ, ChangeKind.KEY_CHANGE)
"""The kinds of changes in the kernel's numbering: `layout.CREATE` and the constants after it."""
_WITH_BOTH_IMAGES = frozenset({ChangeKind.UPDATE, ChangeKind.KEY_CHANGE})
_OF_ROW = frozenset(
    {layout.OP_OBJECT, layout.OP_CHANGED, layout.OP_SEPARATOR, layout.OP_ROW, layout.OP_EVENT_ID, layout.OP_SEQUENCE}
    | {layout.OP_COMMIT_INFO, layout.OP_TRANSACTION, layout.OP_STATEMENT_ROW}
)
_ORDER = (b'{"id":"', b'","total_order":', b',"data_collection_order":', b"}")
"""The text around the values of `Slot.TRANSACTION`."""
_PARTITION_INFO = (b',"partition_id":', b',"source_partition_id":')
"""The text before each value of `Slot.PARTITION_INFO`."""
_Part = bytes | Slot | int | tuple[int, int, int]
"""A part of a template, or an op of the kernel, with or without parameters."""
_Ops = list[tuple[int, int, int]]


WrittenRows = tuple[RowFormat, ColumnRules]
"""The format in which rows are written, and the rules for omitted and masked columns."""


class ProgramBuilder:
    """Builds the row programs of tables in a ProgramMemory.

    ``rules`` omit or mask columns; ``snapshot`` is the text of `Slot.SNAPSHOT` in messages of op r. ``style`` replaces
    the format's style of values. ``compared_as`` is the format, with its rules, in which the images of an update are
    compared to find unchanged rows; the default is the format of the messages.
    """

    def __init__(
        self,
        memory: ProgramMemory,
        format: RowFormat,
        rules: ColumnRules,
        snapshot: str,
        style: Style | None = None,
        compared_as: WrittenRows | None = None,
    ) -> None:
        self._memory = memory
        self._compared_as = compared_as
        self._style = style or format.style
        self._format = format
        self._rules = rules
        self._snapshot = snapshot
        self._same = 0

    def table(
        self,
        table: BoundTable,
        route: Route | None,
        group: int,
        counter: int,
        rewrite: bool,
        foreign_keys: int = 0,
    ) -> int:
        """Store a table's columns and programs in the memory; returns the address of the table's header.

        - ``route`` is None for a table whose rows are only counted.
        - ``group`` is the number of its topic's first group, ``counter`` of its row counters.
        - ``rewrite`` is True for tables with COMPRESSED columns.
        - ``foreign_keys`` is the value of TABLE_FOREIGN_KEYS.

        Raises SettingsError for a column rule that does not fit the table, ValueError for a format whose messages have
        no order.
        """
        treatments = self._rules.of(table.schema) if route is not None else {}
        treatments |= {position: Constant(text) for position, text in table.constants.items()}
        where = f"{self._rules.file}: {table.schema.database}.{table.schema.table}"
        self._specs = Specs(self._memory, table, self._style, treatments, where)
        header = [0] * layout.TABLE
        header[layout.TABLE_COLUMNS] = len(table.columns) - len(table.constants)
        header[layout.TABLE_CONSTANTS] = len(table.constants)
        header[layout.TABLE_SPECS], _ = self._specs.of(self._format.notation)
        header[layout.TABLE_KEY] = -1
        header[layout.TABLE_COUNTER] = counter
        header[layout.TABLE_REWRITE] = int(rewrite)
        header[layout.TABLE_FOREIGN_KEYS] = foreign_keys
        # If messages have no keys, a change of the primary key is an ordinary update.
        seen = self._rules.masked_table(table.schema) if route is not None else table.schema
        key = list(table.schema.primary_key) if route is not None and self._format.key(seen) is not None else []
        spread = route.partition_columns(table.schema) if route is not None else ()
        moving = dict.fromkeys((*key, *spread))
        header[layout.TABLE_KEY_COLUMNS] = self._memory.place_words([len(moving), *moving])
        header[layout.TABLE_KEY_CHOSEN] = int(route is not None and bool(moving) and route.chooses_columns)
        for word in (layout.TABLE_PARTITION, layout.TABLE_PARTITION_PROGRAM, layout.TABLE_FILTER, layout.TABLE_CURRENT):
            header[word] = -1
        header[layout.TABLE_UNCHANGED] = -1
        if route is not None:
            self._same = 0
            header[layout.TABLE_CAPTURED] = layout.CAPTURED
            header[layout.TABLE_SKIPPED] = sum(1 << OPS.index(op) for op in OPS if op in route.skipped)
            if route.rows is not None:
                header[layout.TABLE_FILTER] = self._memory.place_words(filter_words(route.rows, table, self._memory))
            if (row_end := table.schema.row_end) is not None and not route.with_history:
                header[layout.TABLE_CURRENT] = self._memory.place_words(current_words(row_end, table, self._memory))
            named = json_string(f"{table.schema.database}.{table.schema.table}")
            counted = b'{"data_collection":%b,"event_count":' % named
            header[layout.TABLE_NAME : layout.TABLE_NAME + 2] = self._literal(counted)
            if route.unchanged_skipped:
                header[layout.TABLE_UNCHANGED] = self._memory.place_words(self._compared_columns(table, where))
            key_template = self._format.key(seen)
            if key_template is not None:
                _check_own_key(key_template, "a key")
                header[layout.TABLE_KEY] = self._program(key_template, "u", table)
                header[layout.TABLE_SPREAD] = int(not OF_SERVER.isdisjoint(key_template))
            for index, op in enumerate(OPS):
                template = self._format.value(seen, op)
                if op != "u":
                    _check_own_key(template, f"the value of op {op}")
                header[layout.TABLE_VALUES + index] = self._program(template, op, table)
            header[layout.TABLE_GROUP] = group
            header[layout.TABLE_PARTITIONS] = route.partitions
            header[layout.TABLE_MESSAGES] = self._messages(self._format.messages(seen), table)
            if route.partition_by == "table":
                name = f"{table.schema.database}.{table.schema.table}"
                header[layout.TABLE_PARTITION] = partition_of(name.encode(), b"", route.partitions)
            elif spread:
                notation = self._format.notation.of(Slot.KEY)
                columns = self._memory.place_words(self._list(notation, spread))
                row = (notation.opening, (layout.OP_OBJECT, 2, columns), notation.closing)
                header[layout.TABLE_PARTITION_PROGRAM] = self._program(row, "u", table)
        return self._memory.place_words(header)

    def transactions(self, records: TransactionRecords, group: int, partitions: int) -> int:
        """Store the programs of the transaction records, which are the creates and deletes of a table without columns.

        Returns the address of the table's header. ``group`` is the number of their topic's first group."""
        self._same = 0
        header = [0] * layout.TABLE
        header[layout.TABLE_GROUP], header[layout.TABLE_PARTITIONS] = group, partitions
        header[layout.TABLE_PARTITION] = header[layout.TABLE_PARTITION_PROGRAM] = -1
        nothing = BoundTable(TableSchema("", "", ()), ())
        header[layout.TABLE_KEY] = self._program(records.key, "u", nothing)
        for op, value in ((layout.CREATE, records.begin), (layout.DELETE, records.end)):
            header[layout.TABLE_VALUES + op] = self._program(value, "u", nothing)
        return self._memory.place_words(header)

    def skipped_table(self) -> int:
        """Store the header of a table whose rows are not read; returns its address."""
        header = [0] * layout.TABLE
        header[layout.TABLE_CAPTURED] = layout.SKIPPED
        return self._memory.place_words(header)

    def _program(self, template: Iterable[_Part], op: Op, table: BoundTable) -> int:
        return self._memory.place_words(self._words(template, op, table, self._format.notation.binary))

    def _words(self, template: Iterable[_Part], op: Op, table: BoundTable, binary: Binary | None) -> list[int]:
        ops = self._group_constant_ops(self._ops(template, op, table, binary))
        return [len(ops), *(word for parts in ops for word in parts)]

    def _ops(self, template: Iterable[_Part], op: Op, table: BoundTable, binary: Binary | None) -> _Ops:
        """The ops of a template. Slots other than rows are written in ``binary``, or as text if it is None."""
        ops: _Ops = []
        literal = bytearray()

        def add(code: int, a: int, b: int) -> None:
            if literal:
                ops.append((layout.OP_LITERAL, *self._literal(bytes(literal))))
                literal.clear()
            ops.append((code, a, b))

        notation = self._format.notation
        absent = {ABSENT_IMAGE[op]} if op in ABSENT_IMAGE else set()
        if self._rules.hides_statements:
            absent.add(Slot.QUERY)  # a statement's text contains the values that rules hide
        if op != "u":
            absent.add(Slot.CHANGED)
        key = table.schema.primary_key
        for part in template:
            if isinstance(part, int):
                add(part, 0, 0)
            elif isinstance(part, tuple):
                add(*part)
            elif not isinstance(part, Slot):
                literal += part
            elif part in absent:
                literal += notation.absent(part)
            elif part is Slot.SNAPSHOT:
                literal += slot_text(notation, part, self._snapshot if op == "r" else NO_SNAPSHOT)
            elif part is Slot.CHANGED:
                add(layout.OP_CHANGED, 0, self._changed_columns(notation))
            elif part in _COMMIT_INFOS:
                add(layout.OP_COMMIT_INFO, _COMMIT_INFOS[part], 0)
                self._memory.has_commit_infos = True
            elif part is Slot.PARTITION_INFO:
                add(layout.OP_PARTITION_INFO, self._literals(*_PARTITION_INFO), 0)
            elif part is Slot.TRANSACTION:
                add(layout.OP_TRANSACTION, self._literals(notation.absent(part), *_ORDER), 0)
            elif part is Slot.SEPARATOR:
                add(layout.OP_SEPARATOR, *self._literal(notation.separator))
            elif part in _IMAGES:
                of_slot = notation.of(part)
                literal += of_slot.opening
                columns = None if part in (Slot.BEFORE, Slot.AFTER) else key
                add(layout.OP_OBJECT, _IMAGES[part], self._memory.place_words(self._list(of_slot, columns)))
                literal += of_slot.closing
            elif binary is not None and part in _NUMBERS:
                literal += binary.before(part)
                add(layout.OP_LONG, *_NUMBERS[part])
            elif binary is not None and part is Slot.GTID:
                add(layout.OP_GTID_SIZED, self._literals(notation.absent(part), binary.before(part)), 0)
            elif binary is not None and part is Slot.FILE:
                literal += binary.before(part)
                for code in (layout.OP_PART, layout.OP_FILE, layout.OP_PART_END):
                    add(code, 0, 0)
            elif part in _MAY_BE_ABSENT:
                code = _SLOT_OPS[part] if binary is None else _COUNTED.get(part, _SLOT_OPS[part])
                add(code, *self._literal(notation.absent(part)))
            elif part in _TEXTS:
                add(layout.OP_TEXT, *_TEXTS[part])
            elif part in _SLOT_OPS:
                add(_SLOT_OPS[part], 0, 0)
            else:
                code, times = _NUMBERS[part]
                add(code, 0, 0)
                literal += str(times)[1:].encode()
        if literal:
            ops.append((layout.OP_LITERAL, *self._literal(bytes(literal))))
        return ops

    def _literal(self, data: bytes) -> tuple[int, int]:
        """Address and size of a literal."""
        return self._memory.place_bytes(data), len(data)

    def _literals(self, *literals: bytes) -> int:
        """The address of the words with the literals' addresses and sizes."""
        return self._memory.place_words([word for literal in literals for word in self._literal(literal)])

    def _list(self, notation: Notation, columns: Sequence[int] | None = None) -> list[int]:
        """The words of a list of columns; the default is all columns that are shown."""
        specs, shown = self._specs.of(notation)
        columns = shown if columns is None else columns
        return [len(columns), len(notation.separator), specs, *columns]

    def _compared_columns(self, table: BoundTable, where: str) -> list[int]:
        """The words of the columns that are compared; an update that changes none of them is skipped."""
        if self._compared_as is None:
            return self._list(self._format.notation.of(Slot.AFTER))
        format, rules = self._compared_as
        notation = format.notation.of(Slot.AFTER)
        specs, shown = Specs(self._memory, table, format.style, rules.of(table.schema), where).of(notation)
        return [len(shown), len(notation.separator), specs, *shown]

    def _changed_columns(self, notation: Notation) -> int:
        of_slot = notation.of(Slot.CHANGED)
        literals = (of_slot.opening, of_slot.closing, notation.absent(Slot.CHANGED))
        pairs = (word for literal in literals for word in self._literal(literal))
        return self._memory.place_words([*pairs, *self._list(of_slot)])

    def _messages(self, messages: Messages, table: BoundTable) -> int:
        words: list[int] = []
        programs: dict[tuple[tuple[RowHeader, ...], Op], int] = {}
        for change in _CHANGES:
            words_of_change = [len(messages[change])]
            steps = [message.step for message in messages[change]]
            if steps != sorted(set(steps)):
                raise ValueError(
                    f"the messages of a {change} have steps {steps}: expected different ones, in rising order"
                )
            for message in messages[change]:
                op = layout.NO_VALUE if message.op is None else OPS.index(message.op)
                headers = -1
                if message.headers:
                    if change not in _WITH_BOTH_IMAGES:
                        for _, value in message.headers:
                            _check_own_key(value, f"a header of a {change}")
                    about = (message.headers, message.op or "d")
                    if about not in programs:
                        programs[about] = self._headers(*about, table)
                    headers = programs[about]
                words_of_change += (message.step, op, 0 if message.key == "before" else layout.IMAGE, headers)
            words += words_of_change + [0] * (layout.CHANGE_WORDS - len(words_of_change))
        return self._memory.place_words(words)

    def _headers(self, headers: Sequence[RowHeader], op: Op, table: BoundTable) -> int:
        """Store the number of the headers and the program that writes them; returns the address.

        Slots in headers, except for keys, are text in every notation.
        """
        most = MAX_HEADERS - 2  # a message may get two more: on foreign keys, and COMMIT_HEADER of an XA transaction
        if len(headers) > most:
            raise ValueError(f"a message has {len(headers)} headers: expected at most {most}")
        parts: list[_Part] = []
        for name, value in headers:
            parts.append(encode_bytes(name.encode()))
            if all(not isinstance(part, Slot) for part in value):
                parts.append(encode_bytes(b"".join(part for part in value if not isinstance(part, Slot))))
            else:
                parts += (layout.OP_PART, *value, layout.OP_PART_END)
        return self._memory.place_words([len(headers), *self._words(parts, op, table, None)])

    def _group_constant_ops(self, ops: _Ops) -> _Ops:
        """The ops, with OP_SAME and OP_SAME_END around each range that writes the same bytes for all rows of an event.

        The kernel runs such a range for the first row and copies its output for the others."""
        grouped: _Ops = []
        varying = _varying(ops)
        begin = 0
        while begin < len(ops):
            end = begin
            while end < len(ops) and end not in varying:
                end += 1
            worth = any(op[0] != layout.OP_LITERAL for op in ops[begin:end])
            if worth and self._same < layout.MAX_SAME:
                number = self._same
                self._same += 1
                after = len(grouped) + (end - begin) + 2
                grouped.append((layout.OP_SAME, number, after))
                grouped += ops[begin:end]
                grouped.append((layout.OP_SAME_END, number, 0))
            else:
                grouped += ops[begin:end]
            if end < len(ops):
                grouped.append(ops[end])
                end += 1
            begin = end
        return grouped


def _check_own_key(template: Template, what: str) -> None:
    """Raises ValueError for a template with the key of a particular image, which a row change may not have."""
    if Slot.KEY_BEFORE in template or Slot.KEY_AFTER in template:
        raise ValueError(f"{what} has {Slot.KEY_BEFORE} or {Slot.KEY_AFTER}: only updates have both images")


def _varying(ops: _Ops) -> set[int]:
    """The indexes of ops whose output differs by row.

    If a part has such an op, all ops of the part are included, because the content of a part moves when its length is
    written before it."""
    varying: set[int] = set()
    begin: int | None = None
    for index, (code, a, _) in enumerate(ops):
        if code == layout.OP_PART:
            begin = index
        if code in _OF_ROW or (code == layout.OP_LONG and a in _OF_ROW):
            varying.add(index)
        if code == layout.OP_PART_END and begin is not None:
            if any(inside in varying for inside in range(begin, index)):
                varying.update(range(begin, index + 1))
            begin = None
    return varying
