"""Which captured tables have all their rows in Kafka, after each kind of DDL and each change of the patterns."""

from __future__ import annotations

import pytest

from changefeed.ddl import Schemas, SchemaTimeline
from changefeed.ddl.history import SchemaHistory
from changefeed.kafka.commit_log.records import CompleteTablesRecord
from changefeed.kafka.commit_log.snapshots import SnapshotRecord, TableProgress
from changefeed.model.coordinates import BinlogCoordinates
from changefeed.model.statement import Statement
from changefeed.model.window import Window
from changefeed.pipeline.complete_tables import complete_after, incomplete_tables
from changefeed.settings.pipeline import Pipeline

START, HEAD = 1000, 2000
SEALED_MS, FROZEN_MS = 50_000, 60_000


def at(position: int) -> BinlogCoordinates:
    return BinlogCoordinates("binlog.000001", position)


def pipeline(*include: str) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "shop",
            "source": {"connection": "m"},
            "kafka": {"connection": "k"},
            "tables": {"include": list(include or ("shop.*",))},
            "snapshot": {"new_tables": True},
        }
    )


def history(*statements: tuple[int, str]) -> SchemaHistory:
    known = SchemaHistory("uuid", at(4), at(4), SchemaTimeline(Schemas()))
    for position, sql in ((100, "CREATE TABLE t (id INT)"), (200, "CREATE TABLE tmp.x (id INT)"), *statements):
        known = known.advance(Statement("binlog.000001", position, 0, "", "shop", sql))
    return known.extend_to(at(HEAD))


def taken(
    table: str, began_ms: int, *, finished: bool = True, where: str | None = None, gone: str = ""
) -> SnapshotRecord:
    progress = TableProgress(*table.split(".", 1), key="id int", estimated_rows=1, gone=gone)
    request = {"pipeline": "shop", "tables": [table], "where": where}
    return SnapshotRecord(request, {}, (progress,), began_ms, finished=finished)


def after(
    known: SchemaHistory,
    before: CompleteTablesRecord,
    *snapshots: SnapshotRecord,
    of: Pipeline | None = None,
) -> CompleteTablesRecord:
    window = Window("shop", 2, "uuid", at(START), at(HEAD), "", "", FROZEN_MS)
    return complete_after(of or pipeline(), window, known, before, lambda: snapshots)


KNOWN = CompleteTablesRecord(("shop.t",), {}, SEALED_MS)


@pytest.mark.parametrize(
    ("statements", "complete", "missing"),
    [
        ((), ["shop.t"], []),
        (["CREATE TABLE u (id INT)"], ["shop.t", "shop.u"], []),
        (["CREATE TABLE u LIKE tmp.x"], ["shop.t", "shop.u"], []),
        (["CREATE TABLE u (id INT)", "ALTER TABLE u ADD c INT"], ["shop.t", "shop.u"], []),
        (["DROP TABLE t"], [], []),
        (["DROP TABLE t", "CREATE TABLE t (id INT, b INT)"], ["shop.t"], []),
        (["RENAME TABLE tmp.x TO u"], ["shop.t"], ["shop.u"]),
        (["ALTER TABLE tmp.x RENAME TO shop.u"], ["shop.t"], ["shop.u"]),
        (["RENAME TABLE tmp.x TO u", "DROP TABLE u", "CREATE TABLE u (a INT)"], ["shop.t", "shop.u"], []),
        (["RENAME TABLE t TO u"], ["shop.u"], []),
        (["CREATE TABLE _g LIKE t", "RENAME TABLE t TO _o, _g TO t"], ["shop._o", "shop.t"], []),
        (["CREATE TABLE tmp.g LIKE t", "RENAME TABLE t TO tmp.o, tmp.g TO t"], ["shop.t"], []),
        (["CREATE TABLE tmp.y (id INT)", "RENAME TABLE tmp.y TO u"], ["shop.t"], ["shop.u"]),
        (["CREATE TABLE IF NOT EXISTS tmp.x (id INT)"], ["shop.t"], []),
    ],
)
def test_table_is_complete_if_windows_have_all_its_rows(
    statements: list[str], complete: list[str], missing: list[str]
) -> None:
    known = history(*((START + 10 * number, sql) for number, sql in enumerate(statements)))
    record = after(known, KNOWN)
    assert (list(record.tables), list(record.missing)) == (complete, missing)
    assert incomplete_tables(pipeline(), record, known, at(HEAD), ()) == set(missing)
    assert set(record.missing.values()) <= {FROZEN_MS}, "a snapshot of a renamed table begins after the RENAME"


def test_table_that_existed_before_the_patterns_matched_it_needs_a_snapshot() -> None:
    wide, known = pipeline("shop.*", "tmp.*"), history()
    assert incomplete_tables(wide, KNOWN, known, at(HEAD), ()) == {"tmp.x"}, "also before another window"
    assert incomplete_tables(wide, KNOWN, known, at(HEAD), [taken("tmp.x", SEALED_MS)]) == set()
    record = after(known, KNOWN, of=wide)
    assert (record.tables, dict(record.missing)) == (("shop.t",), {"tmp.x": SEALED_MS})
    narrow = after(known, CompleteTablesRecord(("shop.t", "tmp.x"), {}, SEALED_MS))
    assert narrow.tables == ("shop.t",)
    assert incomplete_tables(wide, narrow, known, at(HEAD), ()) == {"tmp.x"}, "changes of a window were left out"


def test_table_of_a_window_that_is_not_sealed_needs_no_snapshot_yet() -> None:
    known = history((START, "CREATE TABLE u (id INT)"), (START + 10, "RENAME TABLE t TO t2"))
    assert incomplete_tables(pipeline(), KNOWN, known, at(START), ()) == set()


@pytest.mark.parametrize(
    ("snapshot", "is_complete"),
    [
        (taken("tmp.x", SEALED_MS + 1), True),
        (taken("tmp.x", SEALED_MS - 1), False),
        (taken("tmp.x", SEALED_MS + 1, finished=False), False),
        (taken("tmp.x", SEALED_MS + 1, where="id > 1"), False),
        (taken("tmp.x", SEALED_MS + 1, gone="binlog.000001:900"), False),
        (taken("tmp.y", SEALED_MS + 1), False),
    ],
)
def test_finished_snapshot_of_all_rows_makes_a_table_complete(snapshot: SnapshotRecord, is_complete: bool) -> None:
    before = CompleteTablesRecord(("shop.t",), {"tmp.x": SEALED_MS}, SEALED_MS + 5)
    record = after(history(), before, snapshot, of=pipeline("*.*"))
    assert ("tmp.x" in record.tables, "tmp.x" in record.missing) == (is_complete, not is_complete)


def test_record_survives_storage() -> None:
    record = CompleteTablesRecord(("shop.t",), {"tmp.x": 7}, 8)
    assert CompleteTablesRecord.from_json(record.parts, record.to_json()) == record
