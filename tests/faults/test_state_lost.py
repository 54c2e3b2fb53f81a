"""The state store lost, restored from an older backup, or away: nothing twice, nothing missing."""

from __future__ import annotations

import shutil

import pytest
from faults.feed import NOTHING_NEW, Feed

pytestmark = pytest.mark.timeout(600)


def test_a_state_store_restored_from_an_older_backup_repeats_nothing(feed: Feed) -> None:
    feed.write()
    feed.run()
    backup = feed.state.read_bytes()
    for _ in range(2):
        feed.write(10)
        feed.run()
    ids = feed.ids()
    feed.state.write_bytes(backup)
    feed.run()
    assert feed.ids() == ids
    feed.write(10)
    feed.run()
    feed.check()


def test_a_lost_checkpoint_stops_the_run_until_it_is_recovered_from_the_commit_log(feed: Feed) -> None:
    feed.write()
    feed.run()
    feed.state.unlink()
    feed.write(10)
    run = feed.begin()
    assert run.result() == 2
    assert "changefeed recover" in run.text()
    status = feed.command("status", feed.name)
    assert "changefeed recover" in status.stdout, status.stderr
    done = feed.command("recover", feed.name)
    assert "by the seal of window 1" in done.stdout, done.stderr
    again = feed.command("recover", feed.name)
    assert again.returncode == 1
    assert "nothing is lost" in again.stderr
    feed.run()
    feed.check()
    shown = feed.command("windows", feed.name, "--json")
    assert '"number": 2' in shown.stdout, shown.stderr


def test_a_checkpoint_lost_in_the_first_window_is_recovered_from_where_that_was_begun(feed: Feed) -> None:
    """With `start: latest` the pipeline would otherwise begin anew behind a window that is half published."""
    feed.settings["start"] = "latest"
    feed.configure()
    assert feed.begin().result() == NOTHING_NEW
    feed.write(60)
    run = feed.begin("after_transaction_commit:2")
    assert run.wait_until_held(), run.text()
    run.kill()
    feed.state.unlink()
    feed.write(10)
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "the begin of window 1" in run.text()
    assert feed.command("recover", feed.name).returncode == 0
    feed.run()
    feed.check()


def test_a_state_database_that_is_away_at_the_commit_costs_nothing_but_the_run(feed: Feed) -> None:
    feed.write()
    run = feed.begin("after_seal")
    assert run.wait_until_held(), run.text()
    away = feed.state.with_suffix(".away")
    shutil.move(feed.state, away)
    feed.state.mkdir()
    run.go_on()
    assert run.result() == 1
    assert "StateStoreUnavailableError" in run.text()
    feed.state.rmdir()
    shutil.move(away, feed.state)
    feed.write(10)
    feed.run()
    feed.check()


def test_progress_of_a_dropped_table_is_forgotten_by_prune(feed: Feed) -> None:
    feed.write()
    feed.run()
    feed.mysql.execute(
        f"CREATE TABLE `{feed.name}`.gone (id INT PRIMARY KEY)", f"INSERT INTO `{feed.name}`.gone VALUES (1)"
    )
    feed.run()
    feed.mysql.execute(f"DROP TABLE `{feed.name}`.gone")
    feed.run()
    done = feed.command("prune", feed.name)
    assert f"forgot {feed.name}.gone; " in done.stdout, done.stderr
    feed.write(5)
    feed.run()
    feed.check()
