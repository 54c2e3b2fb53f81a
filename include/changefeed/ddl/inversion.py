"""ALTER TABLE applied backwards, which derives the table before the statement.

- Added columns are removed, and renamed columns get their old names.
- The old type of a changed column, and the place of a dropped or moved one, must follow from rows before the statement.
- All other properties stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from changefeed.ddl.changes import (
    Action,
    AddColumn,
    AddKey,
    AddPeriod,
    ChangeColumn,
    ConvertCharset,
    DefaultCharset,
    DropColumn,
    DropIndex,
    DropPrimaryKey,
    RenameColumn,
    RenameIndex,
    SetDefault,
)
from changefeed.ddl.column_type import is_textual
from changefeed.ddl.draft import Draft, Slot, UnresolvedError
from changefeed.ddl.keys import NamedIndex
from changefeed.ddl.seen_rows import SeenRows
from changefeed.ddl.table_elements import KeyDefinition, KeyKind, own_keys
from changefeed.model.row_shape import hidden_columns


def before_alter(after: Draft, actions: Sequence[Action], where: str, seen: SeenRows | None) -> Draft:
    """The table before an ALTER TABLE at ``where``. ``seen`` has rows of the table before the statement, if any.

    Raises UnresolvedError if the table cannot be derived, for example if ``after`` misses a column.
    """
    return _Inversion(after, actions, where, seen).draft()


class _Inversion:
    def __init__(self, after: Draft, actions: Sequence[Action], where: str, seen: SeenRows | None) -> None:
        self._after, self._actions, self._where, self._seen = after, actions, where, seen
        self._added = {action.column.name.lower(): action for action in actions if isinstance(action, AddColumn)}
        self._old: dict[str, ChangeColumn | RenameColumn] = {}
        """The clause that changed or renamed a column, by the column's new name."""
        present = {slot.name.lower() for slot in (*after.slots, *after.floating)}
        for action in actions:
            if isinstance(action, ChangeColumn):
                old, new = action.old.lower(), action.column.name.lower()
                _check_done(action.if_exists and old != new and new in present, where)
                # MariaDB changes a column that the same statement adds.
                if old not in self._added or (old != new and old in present):
                    self._old[new] = action
            elif isinstance(action, RenameColumn):
                _check_done(action.if_exists and action.new.lower() in present, where)
                self._old[action.new.lower()] = action
            elif isinstance(action, AddKey) and action.key.kind is KeyKind.PRIMARY:
                _check_done(action.key.if_not_exists, where)
        self._converts = any(isinstance(action, ConvertCharset) for action in actions)

    def draft(self) -> Draft:
        present = {slot.name.lower() for slot in (*self._after.slots, *self._after.floating)}
        for name, action in (self._old | self._added).items():
            if name not in present and not getattr(action, "if_exists", False):
                raise UnresolvedError(
                    f"the statement at {self._where} names column `{name}`, which the table does not have afterwards"
                )
        slots = [slot for slot in map(self._before, self._after.slots) if slot is not None]
        floating = [slot for slot in map(self._before, self._after.floating) if slot is not None]
        moved = {self._old_name(name) for name, action in self._old.items() if getattr(action, "position", None)}
        floating += [slot for slot in slots if slot.name.lower() in moved]
        slots = [slot for slot in slots if slot.name.lower() not in moved]
        collates = self._converts or any(isinstance(action, DefaultCharset) for action in self._actions)
        collation = "" if collates else self._after.collation
        draft = replace(self._after, slots=tuple(slots), floating=tuple(floating), collation=collation)
        draft = self._with_kept(draft, present)
        return self._with_dropped(self._with_keys(draft))

    def _old_name(self, name: str) -> str:
        return self._old[name].old.lower()

    def _before(self, slot: Slot) -> Slot | None:
        """A column before the statement; None for a column that the statement adds."""
        name = slot.name.lower()
        if name in self._added and name not in self._old:
            return None
        action = self._old.get(name)
        if isinstance(action, ChangeColumn):
            return Slot(action.old, None, f"ALTER TABLE at {self._where} changed it")
        if isinstance(action, RenameColumn):
            column = slot.column and replace(slot.column, name=action.old)
            slot = replace(slot, name=action.old, column=column)
        if self._converts and slot.column is not None and _is_converted(slot):
            return Slot(slot.name, None, f"ALTER TABLE at {self._where} converted its character set")
        if slot.column is not None and any(
            isinstance(each, SetDefault) and each.column.lower() == name for each in self._actions
        ):
            return replace(slot, column=replace(slot.column, default=None))
        return slot

    def _with_kept(self, draft: Draft, present: set[str]) -> Draft:
        """``draft`` with the columns of ADD COLUMN IF NOT EXISTS that already existed, as the rows show."""
        doubtful = [action for action in self._added.values() if action.if_not_exists]
        if not doubtful:
            return draft
        drops = [action for action in self._actions if isinstance(action, DropColumn)]
        _check_done(self._seen is None or self._has_hidden_tail, self._where)
        _check_done(any(action.if_exists for action in drops), self._where)
        assert self._seen is not None
        missing = len(self._seen.columns) - draft.column_count - len(drops)
        if missing <= 0:
            return draft
        if missing != len(doubtful):
            raise UnresolvedError(
                f"ALTER TABLE at {self._where} adds columns if they do not exist; which existed is unknown"
            )
        names = {action.column.name.lower() for action in doubtful}
        _check_done(self._converts, self._where)
        kept = [slot for slot in self._after.slots if slot.name.lower() in names & present]
        return replace(draft, floating=(*draft.floating, *kept), indexes=None)

    @property
    def _has_hidden_tail(self) -> bool:
        """Whether the last column of the rows may be a hidden column of MariaDB. Then the number of columns proves
        nothing."""
        return self._seen is not None and len(hidden_columns(self._seen.columns[-1:])) > 0

    def _with_dropped(self, draft: Draft) -> Draft:
        dropped = [action for action in self._actions if isinstance(action, DropColumn)]
        if not dropped:
            return draft
        since = f"ALTER TABLE at {self._where} dropped it"
        if any(action.if_exists for action in dropped):
            _check_done(self._seen is None or self._has_hidden_tail, self._where)
            assert self._seen is not None
            missing = len(self._seen.columns) - draft.column_count
            sure = [action for action in dropped if not action.if_exists]
            if missing == len(sure):
                dropped = sure
            elif missing != len(dropped):
                raise UnresolvedError(
                    f"ALTER TABLE at {self._where} dropped columns if they existed; which existed is unknown"
                )
        slots = tuple(Slot(action.name, None, since) for action in dropped)
        doubt = _key_problem(f"a column was dropped that may have been part of it, at {self._where}")
        return replace(
            draft,
            floating=(*draft.floating, *slots),
            indexes=None if slots else draft.indexes,
            doubted=draft.doubted | {slot.name for slot in slots},
            key_since=draft.key_since or doubt,
        )

    def _with_keys(self, draft: Draft) -> Draft:
        keys = [action.key for action in self._actions if isinstance(action, AddKey)]
        for action in self._actions:
            if isinstance(action, AddColumn | ChangeColumn):
                keys += own_keys(action.column)
        names = {new: action.old for new, action in self._old.items()}
        is_dropped = any(isinstance(action, DropPrimaryKey) for action in self._actions)
        is_added = any(key.kind is KeyKind.PRIMARY for key in keys)
        key = draft.key
        if is_dropped:
            key = None
        elif is_added:
            key = ()
        elif key is not None:
            key = tuple(names.get(column.lower(), column) for column in key)
        since = _key_problem(f"ALTER TABLE at {self._where} dropped it") if is_dropped else draft.key_since
        was_null = {name.lower() for added in keys if added.kind is KeyKind.PRIMARY for name in added.columns if name}
        was_null |= {name.lower() for each in self._actions if isinstance(each, AddPeriod) for name in _ends(each)}
        return replace(
            draft,
            slots=tuple(_perhaps_null(slot, was_null) for slot in draft.slots),
            key=key,
            key_since=since,
            doubted=frozenset(names.get(name.lower(), name) for name in draft.doubted),
            indexes=self._indexes(draft.indexes, keys, names),
        )

    def _indexes(
        self, indexes: Sequence[NamedIndex] | None, keys: Iterable[KeyDefinition], names: dict[str, str]
    ) -> tuple[NamedIndex, ...] | None:
        """The indexes without those that the statement adds.

        None if the statement dropped indexes, or may have changed the order of unique indexes.
        """
        if indexes is None or any(isinstance(action, DropIndex | DropPrimaryKey) for action in self._actions):
            return None
        if any(
            isinstance(action, AddKey) and (action.replaces or action.key.if_not_exists) for action in self._actions
        ):
            return None
        unique = [{(name or "").lower() for name in index.columns} for index in indexes if index.unique]
        changed = {action.column.name.lower() for action in self._actions if isinstance(action, ChangeColumn)}
        if len(unique) > 1 and any(changed & columns for columns in unique):
            return None
        left = list(indexes)
        for key in keys:
            if key.kind in (KeyKind.UNIQUE, KeyKind.OTHER):
                own = next((index for index in left if _is_index_of(index, key)), None)
                if own is None:
                    return None
                left.remove(own)
        renamed = {action.new.lower(): action.old for action in self._actions if isinstance(action, RenameIndex)}
        return tuple(
            replace(
                index,
                name=renamed.get(index.name.lower(), index.name),
                columns=tuple(name and names.get(name.lower(), name) for name in index.columns),
            )
            for index in left
        )


def _check_done(is_doubtful: bool, where: str) -> None:
    """Raises UnresolvedError if a clause with IF EXISTS or IF NOT EXISTS may have had no effect."""
    if is_doubtful:
        raise UnresolvedError(f"whether ALTER TABLE at {where} changed it, IF EXISTS or IF NOT EXISTS, is not known")


def _key_problem(what: str) -> str:
    return f"its primary key is not known: {what}"


def _ends(action: AddPeriod) -> tuple[str, ...]:
    return action.period.start, action.period.end


def _is_converted(slot: Slot) -> bool:
    column = slot.column
    return (
        column is not None
        and column.collation not in (None, "binary")
        and is_textual(column.data_type)
        and not column.labels
    )


def _perhaps_null(slot: Slot, names: set[str]) -> Slot:
    if slot.column is None or slot.name.lower() not in names:
        return slot
    return replace(slot, column=replace(slot.column, nullable=None))


def _is_index_of(index: NamedIndex, key: KeyDefinition) -> bool:
    if key.name:
        return index.name.lower() == key.name.lower()
    folded = [name and name.lower() for name in index.columns]
    return folded == [name and name.lower() for name in key.columns] and index.unique is (key.kind is KeyKind.UNIQUE)
