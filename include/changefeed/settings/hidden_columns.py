"""Whether a pipeline shows what another one hides: its columns that are left out, masked, or changed by functions."""

from __future__ import annotations

from changefeed.model.table_pattern import is_regex, matches_any
from changefeed.settings.column_settings import ColumnSettings
from changefeed.settings.message_rules import message_rules
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import TableSettings


def settings_that_may_show(new: Pipeline, hiding: Pipeline) -> list[str]:
    """The settings by which ``new`` may show something that the pipeline ``hiding`` hides; none where that hides no
    columns.

    All that shape messages count, and so do those that are added some day: what a condition, a key or a partition is
    made of tells what stands in a column, and a table may hold another one's values. ``new`` may take fewer tables and
    hide more columns.
    """
    if not hiding.hides_columns:
        return []
    before, now = message_rules(hiding), message_rules(new)
    others = (before.keys() | now.keys()) - {"tables", "columns"}
    changed = {name for name in others if before.get(name) != now.get(name)}
    if new.transforms != hiding.transforms:  # a rule does not say where their secrets stand
        changed.add("transforms")
    if not _takes_no_others(new.tables, hiding.tables):
        changed.add("tables")
    if not _hides_as_much(new.columns, hiding.columns):
        changed.add("columns")
    return sorted(changed)


def _takes_no_others(new: TableSettings, old: TableSettings) -> bool:
    """Whether ``new`` takes only tables that ``old`` takes, as far as their patterns say so: each is one of its, or the
    name of a table that it takes."""
    return set(old.exclude) <= set(new.exclude) and all(
        pattern in old.include or _is_name_in(pattern, old) for pattern in new.include
    )


def _is_name_in(pattern: str, tables: TableSettings) -> bool:
    if is_regex(pattern) or set("*?[") & set(pattern):
        return False
    database, _, table = pattern.partition(".")
    return matches_any(tuple(tables.include), database, table)


def _hides_as_much(new: ColumnSettings, old: ColumnSettings) -> bool:
    """Whether ``new`` hides what ``old`` does, as that does, or leaves it out. Of two masks for a column the first
    counts: further ones stand behind."""
    kept = [pattern for pattern in old.mask if pattern not in new.exclude]
    return (
        set(old.exclude) <= set(new.exclude)
        and [pattern for pattern in new.mask if pattern not in new.exclude][: len(kept)] == kept
        and all(new.mask[pattern] == old.mask[pattern] for pattern in kept)
    )
