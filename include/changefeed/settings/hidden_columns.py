"""Compares the hidden columns of two pipelines: columns that are excluded, masked, or changed by functions."""

from __future__ import annotations

from changefeed.model.table_pattern import is_regex, matches_any
from changefeed.settings.column_settings import ColumnSettings
from changefeed.settings.message_rules import message_rules, setting_name
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import TableSettings


def find_revealing_settings(new: Pipeline, hiding: Pipeline) -> list[str]:
    """The settings by which ``new`` may reveal values that ``hiding`` hides; empty if ``hiding`` hides no columns.

    Every setting that shapes messages counts: conditions, keys and partitions depend on values of columns, and one
    table may hold values of another. ``new`` may capture fewer tables and hide more columns.
    """
    if not hiding.hides_columns:
        return []
    before, now = message_rules(hiding), message_rules(new)
    others = (before.keys() | now.keys()) - {"tables", "columns"}
    changed = {setting_name(name) for name in others if before.get(name) != now.get(name)}
    if new.transforms != hiding.transforms:  # message rules leave out where secrets are stored
        changed.add("transforms")
    if not _captures_subset(new.tables, hiding.tables):
        changed.add("tables")
    if not _hides_at_least(new.columns, hiding.columns):
        changed.add("columns")
    return sorted(changed)


def _captures_subset(new: TableSettings, old: TableSettings) -> bool:
    """Whether ``new`` captures only tables that ``old`` captures: each of its patterns is one of ``old``, or the name
    of a table that ``old`` captures."""
    return set(old.exclude) <= set(new.exclude) and all(
        pattern in old.include or _is_captured_name(pattern, old) for pattern in new.include
    )


def _is_captured_name(pattern: str, tables: TableSettings) -> bool:
    if is_regex(pattern) or set("*?[") & set(pattern):
        return False
    database, _, table = pattern.partition(".")
    return matches_any(tuple(tables.include), database, table)


def _hides_at_least(new: ColumnSettings, old: ColumnSettings) -> bool:
    """Whether ``new`` hides all columns that ``old`` hides: by the same masks, or because it excludes them.

    The first mask of a column counts, so ``new`` may have further masks only after those of ``old``.
    """
    kept = [pattern for pattern in old.mask if pattern not in new.exclude]
    return (
        set(old.exclude) <= set(new.exclude)
        and [pattern for pattern in new.mask if pattern not in new.exclude][: len(kept)] == kept
        and all(new.mask[pattern] == old.mask[pattern] for pattern in kept)
    )
