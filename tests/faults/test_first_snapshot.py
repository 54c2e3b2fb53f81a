"""`start: snapshot` and `snapshot: {new_tables: true}`: runs publish existing rows by themselves, also after a kill."""

from __future__ import annotations

import pytest
from faults.existing_rows import configure, make_tables, reads, row_from_records
from faults.feed import NOTHING_NEW, Feed
from integration.topic_rows import event_ids, select_rows

pytestmark = pytest.mark.timeout(600)

ROWS = 400


def started(feed: Feed, rows: int = ROWS) -> Feed:
    """A pipeline that has never run, over one table with rows."""
    make_tables(feed.mysql, feed.name, rows)
    configure(feed, "numbers", start="snapshot")
    return feed


def run(feed: Feed) -> tuple[int, str]:
    process = feed.fork_command("", "run", feed.name)
    return process.result(), process.text()


def check_rows(feed: Feed) -> None:
    """Check that the topic has each event once, and the rows of the source."""
    records = feed.records("numbers")
    assert len(event_ids(records)) == len(set(event_ids(records)))
    rows, expected = row_from_records(records), select_rows(feed.mysql, feed.name, "numbers")
    assert sorted(map(str, rows.values())) == sorted(map(str, expected.values()))


@pytest.mark.parametrize(
    ("server", "stage"),
    [
        ("feed", "before_log_write:3"),
        pytest.param("mariadb_feed", "in_open_transaction", marks=pytest.mark.extended),
    ],
)
def test_killed_first_snapshot_is_continued_by_the_next_run_and_never_taken_again(
    server: str, stage: str, request: pytest.FixtureRequest
) -> None:
    feed = started(request.getfixturevalue(server))
    first = feed.fork_command(stage, "run", feed.name)
    assert first.wait_until_held(400), first.text()
    first.kill()
    feed.mysql.execute(
        f"UPDATE `{feed.name}`.numbers SET version = version + 1 WHERE version = 1 LIMIT 40",
        f"INSERT INTO `{feed.name}`.numbers SELECT id + 100000, 1, text FROM `{feed.name}`.numbers LIMIT 5",
    )
    code, text = run(feed)
    assert code == 0, text
    assert "committed window" in text
    assert "its first snapshot publishes the existing rows" in text
    feed.run_until_current()
    check_rows(feed)
    known = len(reads(feed, "numbers"))
    assert ROWS - 40 <= known <= ROWS + 5, "its window publishes a row that changes meanwhile"

    code, text = run(feed)
    assert code == NOTHING_NEW, text
    feed.mysql.execute(f"UPDATE `{feed.name}`.numbers SET version = version + 1 LIMIT 3")
    code, text = run(feed)
    assert (code, "snapshot" in text) == (0, False), text
    assert len(reads(feed, "numbers")) == known


@pytest.mark.extended
def test_pipeline_without_tables_yet_has_an_empty_first_snapshot(feed: Feed) -> None:
    configure(feed, "numbers", start="snapshot")
    assert run(feed)[0] == 0
    make_tables(feed.mysql, feed.name, 10)
    feed.run_until_current()
    assert reads(feed, "numbers") == [], "all its rows are changes"
    check_rows(feed)


@pytest.mark.extended
def test_pipeline_that_had_a_snapshot_takes_no_first_one(feed: Feed) -> None:
    """As after an upgrade, or in a new Airflow."""
    started(feed, 20)
    taken = feed.fork_command("", "snapshot", feed.name)
    assert taken.result() == 0, taken.text()
    code, text = run(feed)
    assert (code, "snapshot" in text) in ((NOTHING_NEW, False), (0, False)), text
    assert len(reads(feed, "numbers")) == 20


@pytest.mark.extended
def test_snapshot_of_some_rows_does_not_replace_the_first_one(feed: Feed) -> None:
    started(feed, 20)
    some = feed.fork_command("", "snapshot", feed.name, "--where", "id < -490")
    assert some.result() == 0, some.text()
    known = len(reads(feed, "numbers"))
    assert 0 < known < 20
    code, text = run(feed)
    assert code == 0, text
    assert len(reads(feed, "numbers")) == known + 20
    again = feed.fork_command("", "snapshot", feed.name, "--run-id", "first")
    assert again.result() == 0, again.text()
    assert len(reads(feed, "numbers")) == known + 20, "it is complete"


@pytest.mark.extended
def test_two_runs_at_once_take_one_first_snapshot(feed: Feed) -> None:
    started(feed)
    feed.settings["kafka"] |= {"lease_seconds": 60}  # none is taken over, also on a slow machine
    feed.configure()
    first = feed.fork_command("after_decode", "run", feed.name)
    assert first.wait_until_held(400), first.text()
    code, text = run(feed)
    assert code == 0, text
    assert "the next run continues snapshot first" in text
    first.go_on()
    assert first.result() == 0, first.text()
    assert len(reads(feed, "numbers")) == ROWS
    assert run(feed)[0] == NOTHING_NEW


@pytest.mark.parametrize("server", ["feed", pytest.param("mariadb_feed", marks=pytest.mark.extended)])
def test_killed_snapshot_of_new_tables_is_continued_and_publishes_each_row_once(
    server: str, request: pytest.FixtureRequest
) -> None:
    """Of a table that the patterns match later, and of a renamed one; not of tables that windows published."""
    feed = request.getfixturevalue(server)
    make_tables(feed.mysql, feed.name, ROWS)
    feed.mysql.execute(f"CREATE DATABASE `{feed.name}_x`", f"CREATE TABLE `{feed.name}_x`.t (id INT PRIMARY KEY)")
    feed.mysql.execute(f"INSERT INTO `{feed.name}_x`.t VALUES (1), (2)")
    feed.settings["snapshot"] = {"new_tables": True}
    configure(feed, "pairs", "born*", "renamed")
    assert run(feed)[0] == NOTHING_NEW
    feed.mysql.execute(
        f"CREATE TABLE `{feed.name}`.born (id INT PRIMARY KEY)", f"INSERT INTO `{feed.name}`.born VALUES (1), (2), (3)"
    )
    code, text = run(feed)
    assert (code, "a snapshot publishes" in text) == (0, False), text
    assert len(feed.records("born")) == 3
    assert reads(feed, "pairs") == [], "it matched before"

    configure(feed, "pairs", "born*", "renamed", "numbers")
    killed = feed.fork_command("in_open_transaction", "run", feed.name)  # nothing is new in the binlog
    assert killed.wait_until_held(400), killed.text()
    killed.kill()
    feed.mysql.execute(
        f"UPDATE `{feed.name}`.numbers SET version = version + 1 WHERE version = 1 LIMIT 40",
        f"RENAME TABLE `{feed.name}_x`.t TO `{feed.name}`.renamed",
        f"RENAME TABLE `{feed.name}`.born TO `{feed.name}`.born_again",
    )
    text = ""
    for _ in range(3):  # the snapshot of one table, then that of the other
        code, more = run(feed)
        text += more
        if code == NOTHING_NEW:
            break
        assert code == 0, more
    assert text.count("a snapshot publishes the existing rows of new tables") == 2, text
    check_rows(feed)
    assert ROWS - 40 <= len(reads(feed, "numbers")) <= ROWS
    assert sorted(row["id"] for row in reads(feed, "renamed")) == [1, 2]
    assert feed.records("born_again") == [], "windows published its rows under its old name"

    known = len(reads(feed, "numbers"))
    feed.mysql.execute(f"DROP TABLE `{feed.name}`.numbers", f"DROP DATABASE `{feed.name}_x`")
    feed.run_until_current()
    make_numbers_again(feed)
    code, text = run(feed)
    assert (code, "a snapshot publishes" in text) == (0, False), text
    assert run(feed)[0] == NOTHING_NEW
    rows = row_from_records(feed.records("numbers")).values()
    assert sum(row["text"] == "new" for row in rows) == 2
    assert len(reads(feed, "numbers")) == known, "windows publish the rows of a table that is created again"


def make_numbers_again(feed: Feed) -> None:
    feed.mysql.execute(
        f"CREATE TABLE `{feed.name}`.numbers (id INT PRIMARY KEY, version INT NOT NULL, text VARCHAR(60))",
        f"INSERT INTO `{feed.name}`.numbers VALUES (100001, 1, 'new'), (100002, 1, 'new')",
    )
