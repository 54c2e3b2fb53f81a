"""The setting `windows`."""

from __future__ import annotations

import pytest

from changefeed.errors import SettingsError
from changefeed.settings.file import parse_pipeline
from changefeed.settings.message_rules import message_rules
from changefeed.settings.section import duration_seconds

FOR_FOLLOWERS = "values: {decimal: string, temporal: iso, documents: text}\n"
YAML = "name: shop\nsource: {connection: mysql}\nkafka: {connection: kafka}\n"


@pytest.mark.parametrize(
    ("text", "seconds"), [("0s", 0), ("500ms", 0.5), ("1s", 1), ("2.5s", 2.5), ("10m", 600), ("1h", 3600)]
)
def test_a_duration_has_a_unit(text: str, seconds: float) -> None:
    assert duration_seconds(text) == seconds


@pytest.mark.parametrize("text", ["", "1", "s", "1 s", "-1s", "1d", "1.s", "1e3s", "1m30s", "9999999999s"])
def test_any_other_text_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="500ms, 1s, 10m or 1h"):
        duration_seconds(text)


@pytest.mark.parametrize(
    ("windows", "reason"),
    [
        ("{every: 1}", "string"),
        ("{every: 1d}", "expected a time such as"),
        ("{every: 11m}", "at most 10m"),
        ("{run_for: 9s}", "10s to 1h"),
        ("{run_for: 61m}", "10s to 1h"),
        ("{max_seconds: 1}", "max_seconds"),
        ("{max_rows: 0}", "max_rows"),
        (
            "{every: 10m, run_for: 10s}",
            "line 4: 'windows'.*expected `every` of at most `run_for: 10s`, found `every: 10m`: a run's time would be "
            "over before its second window. Set a shorter `every`, or a longer `run_for`",
        ),
    ],
)
def test_values_that_make_no_sense_are_refused(windows: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        parse_pipeline(f"{YAML}windows: {windows}\n", "shop.yaml")


def test_a_run_may_have_one_window() -> None:
    windows = parse_pipeline(f"{YAML}windows: {{every: 10m, run_for: 600s}}\n", "shop.yaml").windows
    assert windows is not None
    assert windows.every_seconds == windows.run_seconds


def test_the_setting_shapes_no_message() -> None:
    plain = parse_pipeline(YAML, "shop.yaml")
    continuous = parse_pipeline(YAML + "windows: {every: 0s, run_for: 1h}\n", "shop.yaml")
    assert plain.windows is None
    assert continuous.windows is not None
    assert (continuous.windows.every_seconds, continuous.windows.run_seconds) == (0, 3600)
    assert message_rules(plain) == message_rules(continuous)


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (
            "values: {decimal: string, temporal: iso, documents: text}\nfollowers: [{connection: mysql_copy}]",
            "`windows` does not work with `followers`: .* half an hour. Remove one of them",
        ),
        ("deadline_minutes: 10", "would alert in each run"),
        ("alerts: {freshness_seconds: 1}", "`alerts.freshness_seconds: 1` would always alert .*: a change may wait"),
        (
            "spark: {master: yarn, deploy_mode: cluster, deferrable: true}",
            "`windows` does not work with `spark.deferrable`: .*Remove one of them",
        ),
    ],
)
def test_what_needs_windows_of_minutes_is_refused_beside_it(other: str, reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        parse_pipeline(f"{YAML}windows: {{}}\n{other}\n", "shop.yaml")


@pytest.mark.parametrize(("every", "seconds"), [("1s", 1.5), ("0s", 0.1), ("500ms", 1)])
def test_freshness_limit_above_the_time_between_windows_is_accepted(every: str, seconds: float) -> None:
    alerts = f"alerts: {{freshness_seconds: {seconds}}}\n"
    pipeline = parse_pipeline(f"{YAML}windows: {{every: {every}}}\n{alerts}", "shop.yaml")
    assert pipeline.alerts.freshness_seconds == seconds
    assert parse_pipeline(f"{YAML}{alerts}", "shop.yaml").windows is None
