"""A backfill's request, the pipeline it runs as, and its identity."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.errors import SettingsError
from changefeed.model.run_identity import backfill_identity
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.requests.backfill import BackfillRequest, backfill_pipeline

SHOP = Pipeline.model_validate(
    {
        "name": "shop",
        "source": {"connection": "mysql"},
        "kafka": {"connection": "kafka"},
        "tables": {"include": ["shop.*"], "exclude": ["*.secrets"]},
    }
)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "wanted one range"),
        ({"from_file": "binlog.000001", "from_time": "2026-01-01T00:00:00Z"}, "wanted one range"),
        ({"to_file": "binlog.000002"}, "to_file needs from_file"),
        ({"from_file": "binlog"}, "has no number"),
        ({"from_coordinates": "binlog.000001:4"}, "wanted both"),
        ({"from_time": "2026-01-02T00:00:00Z", "to_time": "2026-01-01T00:00:00Z"}, "is not before"),
        ({"gtids": "nonsense"}, "is no GTID"),
        ({"from_file": "binlog.000001", "tables": ["orders"]}, "names no database"),
        ({"from_file": "binlog.000001", "suffix": "replay"}, "suffix"),
        ({"from_file": "binlog.000001", "sufix": ".replay"}, "valid: pipeline"),
    ],
)
def test_a_request_that_is_wrong_says_how(values: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        BackfillRequest.of({"pipeline": "shop", **values})


def test_an_empty_field_of_a_form_is_not_given() -> None:
    request = BackfillRequest.of({"pipeline": "shop", "from_file": "binlog.000001", "gtids": "", "suffix": None})
    assert (request.gtids, request.suffix) == (None, "")


def test_tables_are_narrowed_and_never_widened() -> None:
    request = BackfillRequest.of(
        {"pipeline": "shop", "from_file": "binlog.000001", "tables": ["*.orders", "*.secrets"]}
    )
    narrowed = backfill_pipeline(SHOP, request)
    assert narrowed.tables.matches("shop", "orders")
    assert not narrowed.tables.matches("shop", "customers")
    assert not narrowed.tables.matches("shop", "secrets"), "left out by the pipeline"
    assert not narrowed.tables.matches("other", "orders"), "not of the pipeline"


def test_the_suffix_makes_other_topics_and_none_the_live_ones() -> None:
    def template(suffix: str) -> str:
        request = BackfillRequest.of({"pipeline": "shop", "from_file": "binlog.000001", "suffix": suffix})
        return backfill_pipeline(SHOP, request).topics.template

    assert template(".replay") == "{database}.{table}.replay"
    assert template("") == SHOP.topics.template


def test_another_request_under_the_same_run_id_has_another_fingerprint() -> None:
    def fingerprint(**values: Any) -> str:
        return BackfillRequest.of({"pipeline": "shop", "from_file": "binlog.000001", **values}).fingerprint

    assert fingerprint() == fingerprint(suffix=".replay")
    assert len({fingerprint(), fingerprint(suffix=""), fingerprint(tables=["shop.*"])}) == 3


def test_each_run_is_its_own_identity_and_a_retry_the_same() -> None:
    first = backfill_identity("shop", "manual__2026-01-01T00:00:00+00:00")
    assert first == backfill_identity("shop", "manual__2026-01-01T00:00:00+00:00")
    assert first != backfill_identity("shop", "manual__2026-01-01T00:00:01+00:00")
    assert backfill_identity("shop", "a_1") == "shop.backfill.a_1"
    assert len({backfill_identity("shop", run) for run in ("a_1", "a:1", "a+1", "a/1", "a::1")}) == 5
    assert first != "shop"
