"""Request of a backfill: the pipeline that it runs as, and its identity."""

from __future__ import annotations

from typing import Any

import pytest

from changefeed.errors import SettingsError
from changefeed.model.run_identity import backfill_identity
from changefeed.settings.message_rules import message_rules
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import TableSettings
from changefeed.settings.requests.backfill import BackfillRequest, backfill_pipeline
from changefeed.settings.routes import compile_routes

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
        ({}, "expected one range"),
        ({"from_file": "binlog.000001", "from_time": "2026-01-01T00:00:00Z"}, "expected one range"),
        ({"to_file": "binlog.000002"}, "to_file needs from_file"),
        ({"from_file": "binlog"}, "has no number"),
        ({"from_coordinates": "binlog.000001:4"}, "expected both"),
        ({"from_time": "2026-01-02T00:00:00Z", "to_time": "2026-01-01T00:00:00Z"}, "is not before"),
        ({"gtids": "nonsense"}, "is no GTID"),
        ({"from_file": "binlog.000001", "tables": ["orders"]}, "names no database"),
        ({"from_file": "binlog.000001", "suffix": "replay"}, "suffix"),
        ({"from_file": "binlog.000001", "sufix": ".replay"}, "valid: pipeline"),
    ],
)
def test_invalid_request_names_its_mistake(values: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        BackfillRequest.of({"pipeline": "shop", **values})


def test_empty_field_of_a_form_is_missing() -> None:
    request = BackfillRequest.of({"pipeline": "shop", "from_file": "binlog.000001", "gtids": "", "suffix": None})
    assert (request.gtids, request.suffix) == (None, "")


def test_backfill_tables_are_a_subset_of_the_pipelines() -> None:
    request = BackfillRequest.of(
        {"pipeline": "shop", "from_file": "binlog.000001", "tables": ["*.orders", "*.secrets"]}
    )
    narrowed = backfill_pipeline(SHOP, request)
    assert narrowed.tables.matches("shop", "orders")
    assert not narrowed.tables.matches("shop", "customers")
    assert not narrowed.tables.matches("shop", "secrets"), "left out by the pipeline"
    assert not narrowed.tables.matches("other", "orders"), "not of the pipeline"


@pytest.mark.parametrize("patterns", [[], ["*.orders", "*.secrets"]])
def test_backfill_routes_no_table_or_database_that_its_pipeline_leaves_out(patterns: list[str]) -> None:
    request = BackfillRequest.of({"pipeline": "shop", "from_file": "binlog.000001", "tables": patterns})
    narrowed = backfill_pipeline(SHOP, request)
    routed = compile_routes(narrowed)
    assert routed.of("shop", "orders") is not None
    assert (routed.of("shop", "customers") is None) == bool(patterns)
    assert routed.of("shop", "secrets") is None
    assert routed.of("other", "orders") is None
    assert narrowed.tables.names_database("shop")
    assert not narrowed.tables.names_database("other")


def test_suffix_changes_topics_and_empty_suffix_means_live_topics() -> None:
    def template(suffix: str) -> str:
        request = BackfillRequest.of({"pipeline": "shop", "from_file": "binlog.000001", "suffix": suffix})
        return backfill_pipeline(SHOP, request).topics.template

    assert template(".replay") == "{database}.{table}.replay"
    assert template("") == SHOP.topics.template


def test_requests_with_one_run_id_have_different_fingerprints() -> None:
    def fingerprint(**values: Any) -> str:
        return BackfillRequest.of({"pipeline": "shop", "from_file": "binlog.000001", **values}).fingerprint

    assert fingerprint() == fingerprint(suffix=".replay")
    assert len({fingerprint(), fingerprint(suffix=""), fingerprint(tables=["shop.*"])}) == 3


def test_runs_have_different_identities_and_a_retry_has_the_same() -> None:
    first = backfill_identity("shop", "manual__2026-01-01T00:00:00+00:00")
    assert first == backfill_identity("shop", "manual__2026-01-01T00:00:00+00:00")
    assert first != backfill_identity("shop", "manual__2026-01-01T00:00:01+00:00")
    assert backfill_identity("shop", "a_1") == "shop.backfill.a_1"
    assert len({backfill_identity("shop", run) for run in ("a_1", "a:1", "a+1", "a/1", "a::1")}) == 5
    assert first != "shop"


def test_rules_of_a_backfill_include_the_tables_of_its_pipeline() -> None:
    request = BackfillRequest.of({"pipeline": "shop", "from_file": "binlog.000001"})
    narrower = SHOP.model_copy(
        update={"tables": TableSettings(include=["shop.*"], exclude=["shop.orders", "shop.secrets"])}
    )
    assert message_rules(backfill_pipeline(SHOP, request)) != message_rules(backfill_pipeline(narrower, request))


def test_patterns_of_a_backfill_are_those_of_its_pipeline() -> None:
    """The rights of the source's user are compared with these patterns: `*.*` would ask for all databases."""
    request = BackfillRequest.of({"pipeline": "shop", "from_file": "binlog.000001"})
    tables = backfill_pipeline(SHOP, request).tables
    assert (tables.include, tables.exclude) == (SHOP.tables.include, SHOP.tables.exclude)
