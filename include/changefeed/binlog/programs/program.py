"""Row programs: a format's templates for one table, turned into ops and literals that the kernel runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from changefeed.binlog.kernel import layout
from changefeed.binlog.programs import codecs, masks
from changefeed.binlog.programs.bound_table import BoundTable
from changefeed.binlog.programs.program_memory import ProgramMemory
from changefeed.formats.format import RowFormat
from changefeed.formats.notation import ColumnText
from changefeed.formats.template import ABSENT_IMAGE, NO_SNAPSHOT, OPS, Change, Messages, Op, Slot, Template
from changefeed.pipelines.column_rules import ColumnRules, Constant, Excluded, Treatment
from changefeed.reader import Route

_SLOT_OPS = {
    Slot.FILE: layout.OP_FILE,
    Slot.POSITION: layout.OP_POSITION,
    Slot.ROW: layout.OP_ROW,
    Slot.GTID: layout.OP_GTID,
    Slot.SERVER_ID: layout.OP_SERVER_ID,
    Slot.TS_SECONDS: layout.OP_TS,
    Slot.QUERY: layout.OP_QUERY,
    Slot.XID: layout.OP_XID,
}
_MAY_BE_ABSENT = frozenset({Slot.GTID, Slot.QUERY, Slot.XID})
_CHANGES = (Change.CREATE, Change.UPDATE, Change.DELETE, Change.READ, Change.KEY_CHANGE)
"""In the kernel's numbering: `layout.CREATE` and those that follow it."""
_OF_ROW = frozenset({layout.OP_OBJECT, layout.OP_ROW})


def _is_shown(treatment: Treatment | None, text: ColumnText) -> bool:
    return treatment != Excluded() and (treatment != Constant(None) or bool(text.null))


class ProgramBuilder:
    """Turns tables into row programs, which it puts into a ProgramMemory.

    ``rules`` leave columns out or mask them; ``snapshot`` is the text of `Slot.SNAPSHOT` in messages of op r.
    """

    def __init__(self, memory: ProgramMemory, format: RowFormat, rules: ColumnRules, snapshot: str) -> None:
        self._memory = memory
        self._format = format
        self._rules = rules
        self._snapshot = snapshot
        self._same = 0

    def table(self, table: BoundTable, route: Route | None, group: int, counter: int, rewrite: bool) -> int:
        """Put a table's columns and programs into the memory; returns the address of the table's header.

        ``route`` is None for a table whose rows are only counted; ``group`` and ``counter`` are the numbers of its
        topic's first group and of its row counters; ``rewrite`` marks tables with COMPRESSED columns. Raises
        SettingsError for a column rule that does not fit the table, ValueError for a format whose messages have no
        order.
        """
        treatments = self._rules.of(table.schema) if route is not None else {}
        notation = self._format.notation
        texts = [notation.column(column) for column in table.schema.columns]
        shown = [number for number in range(len(texts)) if _is_shown(treatments.get(number), texts[number])]
        where = f"{self._rules.file}: {table.schema.database}.{table.schema.table}"
        specs: list[int] = []
        for number, column in enumerate(table.columns):
            plain = codecs.spec_of(column, self._format.style, self._memory)
            treatment = treatments.get(number)
            spec, mask = masks.masked(plain, column, treatment, self._memory, notation, where)
            specs += (spec.fixed, spec.prefix, spec.kind, spec.a, spec.b, spec.c, spec.d, mask)
            text = texts[number]
            if treatment == Constant(None):
                text = replace(text, value=text.null)
            specs += self._literal(notation.separator + text.value)
            for literal in (text.null, text.missing):
                specs += self._literal(notation.separator + literal if literal else b"")
        header = [0] * layout.TABLE
        header[layout.TABLE_COLUMNS] = len(table.columns)
        header[layout.TABLE_SPECS] = self._memory.place_words(specs)
        header[layout.TABLE_KEY] = -1
        header[layout.TABLE_COUNTER] = counter
        header[layout.TABLE_REWRITE] = int(rewrite)
        # Without keys a change of the primary key is an update like any other.
        key = list(table.schema.primary_key) if self._format.key(table.schema) is not None else []
        header[layout.TABLE_KEY_COLUMNS] = self._memory.place_words([len(key), *key])
        if route is not None:
            self._same = 0
            header[layout.TABLE_CAPTURED] = 1
            key_template = self._format.key(table.schema)
            if key_template is not None:
                header[layout.TABLE_KEY] = self._program(key_template, "u", table, shown)
            for index, op in enumerate(OPS):
                template = self._format.value(table.schema, op)
                header[layout.TABLE_VALUES + index] = self._program(template, op, table, shown)
            header[layout.TABLE_GROUP] = group
            header[layout.TABLE_PARTITIONS] = route.partitions
            header[layout.TABLE_MESSAGES] = self._messages(self._format.messages(table.schema))
        return self._memory.place_words(header)

    def _program(self, template: Template, op: Op, table: BoundTable, shown: Sequence[int]) -> int:
        ops = self._marked(self._ops(template, op, table, shown))
        return self._memory.place_words([len(ops), *(word for parts in ops for word in parts)])

    def _ops(self, template: Template, op: Op, table: BoundTable, shown: Sequence[int]) -> list[tuple[int, int, int]]:
        ops: list[tuple[int, int, int]] = []
        literal = bytearray()

        def add(code: int, a: int, b: int) -> None:
            if literal:
                ops.append((layout.OP_LITERAL, *self._literal(bytes(literal))))
                literal.clear()
            ops.append((code, a, b))

        notation = self._format.notation
        absent = {ABSENT_IMAGE[op]} if op in ABSENT_IMAGE else set()
        if self._rules.rules:
            absent.add(Slot.QUERY)  # a statement's text has the values that rules hide
        images = {
            Slot.BEFORE: (0, shown),
            Slot.AFTER: (1, shown),
            Slot.KEY: (2, table.schema.primary_key),
        }
        for part in template:
            if not isinstance(part, Slot):
                literal += part
            elif part in absent:
                literal += notation.absent(part)
            elif part is Slot.SNAPSHOT:
                literal += (self._snapshot if op == "r" else NO_SNAPSHOT).encode()
            elif part in images:
                image, columns = images[part]
                literal += notation.opening
                add(layout.OP_OBJECT, image, self._columns(columns))
                literal += notation.closing
            elif part in _MAY_BE_ABSENT:
                add(_SLOT_OPS[part], *self._literal(notation.absent(part)))
            else:
                add(_SLOT_OPS[part], 0, 0)
        if literal:
            ops.append((layout.OP_LITERAL, *self._literal(bytes(literal))))
        return ops

    def _literal(self, data: bytes) -> tuple[int, int]:
        """Address and size of a literal."""
        return self._memory.place_bytes(data), len(data)

    def _columns(self, numbers: Sequence[int]) -> int:
        return self._memory.place_words([len(numbers), len(self._format.notation.separator), *numbers])

    def _messages(self, messages: Messages) -> int:
        words: list[int] = []
        for change in _CHANGES:
            made = [len(messages[change])]
            steps = [message.step for message in messages[change]]
            if steps != sorted(set(steps)):
                raise ValueError(
                    f"the messages of a {change} have steps {steps}: wanted different ones, in rising order"
                )
            for message in messages[change]:
                op = layout.NO_VALUE if message.op is None else OPS.index(message.op)
                made += (message.step, op, 0 if message.key == "before" else layout.IMAGE)
            words += made + [0] * (layout.MADE - len(made))
        return self._memory.place_words(words)

    def _marked(self, ops: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
        """Put marks around stretches of ops that write the same bytes for all rows of an event: the kernel runs them
        for the first row and copies their output for the others."""
        marked: list[tuple[int, int, int]] = []
        begin = 0
        while begin < len(ops):
            end = begin
            while end < len(ops) and ops[end][0] not in _OF_ROW:
                end += 1
            worth = any(op[0] != layout.OP_LITERAL for op in ops[begin:end])
            if worth and self._same < layout.MAX_SAME:
                number = self._same
                self._same += 1
                behind = len(marked) + (end - begin) + 2
                marked.append((layout.OP_SAME, number, behind))
                marked += ops[begin:end]
                marked.append((layout.OP_SAME_END, number, 0))
            else:
                marked += ops[begin:end]
            if end < len(ops):
                marked.append(ops[end])
                end += 1
            begin = end
        return marked
