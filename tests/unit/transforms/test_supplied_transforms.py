"""The functions that come with the package."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from changefeed.transforms.change import Change, Coordinates, Row
from changefeed.transforms.supplied import drop_fields, flatten, obfuscate, rename, to_epoch


def change(before: Row | None, after: Row | None) -> Change:
    op: Any = "u" if before and after else "d" if before else "c"
    at = Coordinates("bin.000001", 4, 0)
    return Change(op, "shop", "people", before, after, ("id",), "shop.people", datetime.fromtimestamp(0, UTC), None, at)


def test_fields_are_dropped_from_both_images() -> None:
    made = drop_fields.transform(change({"id": 1, "a": 1, "b": 2}, {"id": 1, "b": 3}), ["a", "c"])
    assert (made.before, made.after) == ({"id": 1, "b": 2}, {"id": 1, "b": 3})


def test_columns_get_other_names_in_their_places_and_in_the_key() -> None:
    made = rename.transform(change(None, {"id": 1, "a": 2, "b": 3}), {"id": "number", "a": "first"})
    assert (list((made.after or {}).items()), made.key) == ([("number", 1), ("first", 2), ("b", 3)], ("number",))
    with pytest.raises(ValueError, match="two columns would have one name"):
        rename.transform(change(None, {"id": 1, "a": 2}), {"a": "id"})


@pytest.mark.parametrize(
    ("text", "keep", "shown"),
    [("Ada Lovelace, 1815", 0, "Xxx Xxxxxxxx, 9999"), ("4111-1111", 4, "9999-1111"), ("ab", 4, "ab"), ("", 0, "")],
)
def test_text_is_obfuscated_and_keeps_its_shape(text: str, keep: int, shown: str) -> None:
    made = obfuscate.transform(change({"id": 1, "name": None}, {"id": 1, "name": text}), ["name"], keep)
    assert (made.before, made.after) == ({"id": 1, "name": None}, {"id": 1, "name": shown})
    with pytest.raises(TypeError, match="expected text to obfuscate, found int"):
        obfuscate.transform(change(None, {"id": 1}), ["id"])


def test_a_documents_members_become_columns() -> None:
    text = '{"a": 1, "b": {"c": [1], "d": {"e": null}}}'
    made = flatten.transform(change(None, {"id": 1, "doc": text}), "doc")
    assert made.after == {"id": 1, "doc_a": 1, "doc_b_c": [1], "doc_b_d_e": None}
    made = flatten.transform(change(None, {"id": 1, "doc": {"a": {"b": 1}}}), "doc", separator=".", depth=1)
    assert made.after == {"id": 1, "doc.a": {"b": 1}}
    for same in ("[1, 2]", None, "3"):
        assert flatten.transform(change(None, {"id": 1, "doc": same}), "doc").after == {"id": 1, "doc": same}
    with pytest.raises(ValueError, match="'doc_id' of the document in 'doc' is a column already"):
        flatten.transform(change(None, {"doc": '{"id": 1}', "doc_id": 2}), "doc")


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("1970-01-02", "days", 1),
        ("1969-12-31", "days", -1),
        ("2026-02-03T04:05:06.789012Z", "microseconds", 1770091506789012),
        ("2026-02-03T04:05:06.789", "milliseconds", 1770091506789),
        ("2026-02-03T04:05:06", "seconds", 1770091506),
        ("0000-00-00", "days", None),
        ("2026-00-01", "days", None),
        (None, "days", None),
    ],
)
def test_dates_and_times_become_numbers(text: str | None, unit: Any, number: int | None) -> None:
    assert to_epoch.transform(change(None, {"id": 1, "at": text}), ["at"], unit).after == {"id": 1, "at": number}
