from __future__ import annotations

import pytest

from changefeed.ddl.expression_spelling import expression_spelling


@pytest.mark.parametrize(
    ("listed", "written"),
    [
        ("(1 + 1)", "(1+1)"),
        ("(1 + (2 * 3))", "(1 + 2*3)"),
        ("((1 + 2) * 3)", "((1+2)*3)"),
        ("concat(_utf8mb4\\'a\\',_utf8mb4\\')\\')", "(CONCAT('a', ')'))"),
        ("_utf8mb4\\'it\\'\\'s\\'", "('it''s')"),
        ("json_object(_utf8mb4\\'a\\',1)", "(JSON_OBJECT('a', 1))"),
        ("(`a` * 2)", "a*2"),
        ("(curdate() + interval 1 day)", "(CURDATE() + INTERVAL 1 DAY)"),
        ("uuid_to_bin(uuid())", "(UUID_TO_BIN(UUID()))"),
    ],
)
def test_listed_and_written_expressions_have_one_spelling(listed: str, written: str) -> None:
    assert expression_spelling(listed) == expression_spelling(written)


def test_expressions_that_differ_stay_different() -> None:
    assert expression_spelling("((1+2)*3)") != expression_spelling("(1+2*3)")
    assert expression_spelling("('A')") != expression_spelling("('a')")


def test_what_sqlglot_cannot_read_stays_as_it_is() -> None:
    assert expression_spelling("NEXT VALUE FOR s2") == "NEXT VALUE FOR s2"
