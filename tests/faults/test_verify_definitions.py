"""DDL and session settings that change the result of a SELECT but no row are no difference for verify."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from faults.existing_rows import finish
from faults.feed import Feed
from faults.test_verify import account, connections_of, copy_topic
from run_verify import run_verify

from changefeed.model.coordinates import BinlogCoordinates
from changefeed.verify.report import VerifyReport, summary

pytestmark = pytest.mark.extended


@pytest.fixture(params=["feed", "mariadb_feed"])
def any_feed(request: pytest.FixtureRequest) -> Feed:
    feed: Feed = request.getfixturevalue(request.param)
    return feed


def test_virtual_columns_of_another_time_zone_are_not_compared_and_named(any_feed: Feed) -> None:
    feed = any_feed
    feed.mysql.execute(
        "SET SESSION time_zone = '+05:00'",
        "CREATE TABLE moments (id INT PRIMARY KEY, at TIMESTAMP NULL, hour INT AS (HOUR(at)) VIRTUAL, n INT)",
        "CREATE TABLE heap (at TIMESTAMP NULL, hour INT AS (HOUR(at)) VIRTUAL, n INT)",
        "INSERT INTO moments (id, at, n) VALUES (1, '2026-01-02 03:04:05', 1), (2, NULL, 2)",
        "INSERT INTO heap (at, n) VALUES ('2026-01-02 03:04:05', 1), ('2026-01-02 03:04:05', 1)",
        database=feed.name,
    )
    feed.run()
    report = run_verify(connections_of(feed))
    assert report.outcome == "equal", summary(report)
    assert "not compared: hour, virtual columns" in " ".join(account(report, "moments").notes)
    forged = copy_topic(feed, "moments", lambda records: [each for each in records if b'"n":1' not in each.value])
    assert account(run_verify(forged), "moments").kinds["unpublished"] == 1


def test_a_table_that_got_a_key_after_its_rows_were_published_is_no_difference(any_feed: Feed) -> None:
    feed = any_feed
    feed.mysql.execute(
        "CREATE TABLE late (a INT NOT NULL, b INT)",
        "INSERT INTO late VALUES (1, 1), (2, 2), (3, 3)",
        "ALTER TABLE late ADD PRIMARY KEY (a)",
        "UPDATE late SET b = 5 WHERE a = 3",
        database=feed.name,
    )
    feed.run()
    report = run_verify(connections_of(feed))
    late = account(report, "late")
    assert (report.outcome, late.left_out, late.equal_rows) == ("incomplete", 2, 1), summary(report)
    assert "had none when they were published" in late.reasons[0]
    finish(feed, "--tables", f"{feed.name}.late")
    report = run_verify(connections_of(feed))
    assert report.outcome == "equal", summary(report)


def test_a_record_whose_key_was_lost_is_foreign(feed: Feed) -> None:
    feed.write(20)
    feed.run()
    report = run_verify(copy_topic(feed, "journal", lambda records: [records[0]._replace(key=None), *records[1:]]))
    assert account(report, "journal").faults == {"foreign": 1}, summary(report)


DURING = {
    "ALTER TABLE heap ADD PRIMARY KEY (a)": "UPDATE heap SET b = b + 1 WHERE a = 1",
    "ALTER TABLE heap ADD id INT AUTO_INCREMENT PRIMARY KEY": "UPDATE heap SET b = b + 1",
    "RENAME TABLE one TO tmp, other TO one, tmp TO other": "UPDATE one SET b = 100 WHERE a = 1",
}


@pytest.mark.parametrize("definition", DURING)
@pytest.mark.parametrize("moment", ["before the first reading", "between two"])
def test_ddl_during_a_comparison_is_named_and_is_no_difference(any_feed: Feed, definition: str, moment: str) -> None:
    feed = any_feed
    for table in ("heap", "one", "other"):
        key = "" if table == "heap" else " PRIMARY KEY"
        first = 10 if table == "other" else 0
        feed.mysql.execute(
            f"CREATE TABLE {table} (a INT{key}, b INT)",
            f"INSERT INTO {table} VALUES ({first + 1}, 1), ({first + 2}, 2)",
            database=feed.name,
        )
    feed.run()
    before = {"before the first reading": 0, "between two": 1}[moment]
    report = during(feed, before, lambda: feed.mysql.execute(definition, DURING[definition], database=feed.name))
    assert report.outcome in ("equal", "incomplete"), summary(report)
    if report.outcome == "incomplete":
        reasons = [each for of_table in report.tables for each in of_table.reasons if "any record:" not in each]
        assert all("while it was compared" in reason or "have no key" in reason for reason in reasons), reasons


def during(feed: Feed, number: int, change: Callable[[], object]) -> VerifyReport:
    """Run a comparison; make a change when it waits for the pipeline for the ``number``th time.

    A row whose change was read from the server and is missing in the topics causes a second round.
    """
    connections = connections_of(feed)
    rounds = []

    def run_until_published(_: BinlogCoordinates) -> None:
        if len(rounds) == number:
            change()
        rounds.append(number)
        feed.run()

    if number:
        for table in ("heap", "one", "other"):
            feed.mysql.execute("SET SESSION sql_log_bin = 0", f"INSERT INTO {table} VALUES (77, 7)", database=feed.name)
    report = run_verify(connections, run_until_published)
    if number:
        for of_table in report.tables:
            of_table.kinds.pop("unpublished", None)
    return report
