"""The record headers that a pipeline's `headers` may name."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pydantic import ValidationError

from changefeed.formats.headers import HEADERS, WithHeaders
from changefeed.model.statement import Statement
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.routes import compile_routes

PLAIN: dict[str, Any] = {"name": "shop", "source": {"connection": "mysql"}, "kafka": {"connection": "kafka"}}
STATEMENT = Statement("bin.000001", 157, 1_700_000_000, "uuid:9", "shop", "TRUNCATE t", "", 7, 90, 8)


def test_a_pipeline_without_headers_has_its_format_as_it_is() -> None:
    assert not isinstance(compile_routes(Pipeline.model_validate(PLAIN)).format(0), WithHeaders)


@pytest.mark.parametrize(
    ("names", "error"),
    [
        (["opp"], "unknown header 'opp' (did you mean 'op'?)"),
        (["op", "table", "op"], "header 'op' is given 2 times: expected once"),
    ],
)
def test_headers_that_no_message_can_have_are_refused(names: list[str], error: str) -> None:
    with pytest.raises(ValidationError) as refused:
        Pipeline.model_validate({**PLAIN, "headers": names})
    assert error in str(refused.value)


def test_records_of_statements_have_the_headers_that_are_named_and_no_others() -> None:
    """A header that nobody asked for stops consumers, as Debezium's JDBC sink at a TRUNCATE."""

    def headers(*names: str) -> list[tuple[str, bytes]]:
        format = compile_routes(Pipeline.model_validate({**PLAIN, "headers": list(names)})).format(0)
        return list(format.statement_headers(STATEMENT))

    assert headers() == []
    name, value = headers("mysql_binlog_headers")[0]
    assert name == "mysql_binlog_headers"
    assert json.loads(value) == {
        "timestamp": 1_700_000_000, "event_type": 2, "server_id": 7, "event_size": 90, "log_file": "bin.000001",
        "log_pos": 247, "flags": 8,
    }  # fmt: skip
    assert headers(*HEADERS) == [(name, value), ("transaction_id", b"uuid:9"), ("ts_ms", b"1700000000000")]
