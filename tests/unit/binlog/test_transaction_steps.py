"""What a QUERY event does to a transaction, by its text: as servers write it, and as people do."""

from __future__ import annotations

import pytest

from changefeed.binlog.events.framing import DamagedEvent
from changefeed.binlog.events.query_event import TransactionStep, prepared_xid, savepoint_of, transaction_step, xid_of


@pytest.mark.parametrize(
    ("sql", "step"),
    [
        ("ROLLBACK", TransactionStep.ROLLBACK),
        ("rollback work", TransactionStep.ROLLBACK),
        ("ROLLBACK TO `s`", TransactionStep.ROLLBACK_TO),
        ("/* trace */ ROLLBACK WORK TO SAVEPOINT s", TransactionStep.ROLLBACK_TO),
        ("SAVEPOINT `s`", TransactionStep.SAVEPOINT),
        ("RELEASE SAVEPOINT s", TransactionStep.RELEASE),
        ("XA COMMIT X'78',X'',1", TransactionStep.XA_COMMIT),
        ("INSERT INTO t VALUES ('ROLLBACK TO s')", None),
    ],
)
def test_steps_are_recognized(sql: str, step: TransactionStep | None) -> None:
    assert transaction_step(sql) is step


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("SAVEPOINT `a``b c`", "a`b c"),
        ('ROLLBACK TO "a""b"', 'a"b'),
        ("/* x */ rollback work to savepoint été", "été"),
    ],
)
def test_a_savepoint_has_its_name_without_quotes(sql: str, name: str) -> None:
    assert savepoint_of(sql) == name


def test_xid_of_xa_prepare_equals_xid_of_xa_commit() -> None:
    prepared = bytes.fromhex("00 03000000 02000000 01000000 78ab 62")
    assert prepared_xid(prepared) == xid_of("XA COMMIT X'78AB',X'62',3") == xid_of("XA ROLLBACK X'78ab',X'62',3")
    assert prepared_xid(b"\x01" + prepared[1:]) is None, "one phase: it is committed there"


@pytest.mark.parametrize("sql", ["XA COMMIT", "XA COMMIT 'x'", "SAVEPOINT"])
def test_what_names_nothing_is_refused(sql: str) -> None:
    with pytest.raises(DamagedEvent, match="names no"):
        xid_of(sql) if sql.startswith("XA") else savepoint_of(sql)
