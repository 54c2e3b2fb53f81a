"""A changed YAML takes effect at the next window of a continuous run, which goes on."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from faults.feed import Feed, Run
from faults.proxy import Proxy
from faults.test_continuous import checkpoint_window, repeating, sealed, wait
from faults.test_verify import connections_of
from integration.topic_rows import event_ids, records_of, topics_of

pytestmark = pytest.mark.timeout(600)


@dataclass
class Following:
    """A continuous run of a pipeline, whose YAML tests change. The table `journal` gets rows of ascending ids."""

    feed: Feed
    run: Run
    last: int = 0
    """The id of the last row."""
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    @property
    def path(self) -> Path:
        return self.feed.folder / "pipelines" / f"{self.feed.name}.yaml"

    def insert(self, rows: int = 1, table: str = "journal") -> None:
        """Insert rows, each in a transaction of its own."""
        for number in itertools.islice(self.numbers, rows):
            columns = "id, text" if table == "journal" else "id, version, text"
            values = f"{number}, 'x'" if table == "journal" else f"{number}, 1, 'x'"
            self.feed.mysql.execute(f"INSERT INTO `{self.feed.name}`.{table} ({columns}) VALUES ({values})")
            self.last = number

    def inserting(self) -> AbstractContextManager[None]:
        """Insert a row into `journal` about ten times a second."""
        return repeating(self.insert, 0.1)

    def change(self, **settings: Any) -> None:
        """Write the YAML with these settings too, and wait until the run has them."""
        before = self.changes()
        self.feed.settings.update(settings)
        self.feed.configure()
        self.wait(lambda: self.changes() > before)

    def changes(self) -> int:
        """How often the run has changed its settings."""
        return self.run.text().count("the next window has the new settings")

    def wait(self, until: Any) -> None:
        wait(until, self.run)

    def insert_until(self, until: Any) -> None:
        """Insert rows until the condition is true."""

        def is_true() -> bool:
            self.insert()
            return bool(until())

        self.wait(is_true)

    def rows(self, topic: str = "journal") -> list[dict[str, Any]]:
        """The rows of a topic, in the order of their ids. Each event is there once."""
        name = f"{self.feed.name}.{topic}"
        if name not in topics_of(self.feed.kafka.bootstrap, name):
            return []
        records = records_of(self.feed.kafka.bootstrap, name)
        assert len(set(event_ids(records))) == len(records), f"{name}: published twice"
        rows = (json.loads(record.value)["after"] for record in records)
        return sorted(rows, key=lambda row: int(row["id"]))

    def ids(self, *topics: str) -> list[int]:
        return [row["id"] for topic in topics or ("journal",) for row in self.rows(topic)]

    def wait_until_published(self, *topics: str) -> None:
        """Wait until the last row is in one of the topics."""
        self.wait(lambda: self.last in self.ids(*topics))

    def check_all_once(self, *topics: str) -> None:
        self.wait_until_published(*topics)
        assert Counter(self.ids(*topics)) == Counter(range(1, self.last + 1))


@pytest.fixture
def following(feed: Feed) -> Iterator[Following]:
    """A run that goes on for ten minutes, and has published a row."""
    feed.settings["windows"] = {"every": "100ms", "run_for": "10m"}
    feed.configure()
    started = Following(feed, feed.begin())
    started.insert()
    started.wait_until_published()
    yield started
    if started.run.process.poll() is None:
        started.run.kill()


def test_a_table_that_is_added_is_published_from_the_next_window_on(following: Following) -> None:
    following.change(tables={"include": [f"{following.feed.name}.journal"]})
    following.insert(3, "accounts")
    following.insert(1)
    following.wait_until_published()
    following.change(tables={"include": [f"{following.feed.name}.*"]})
    following.insert(3, "accounts")
    following.insert(2)
    following.wait_until_published()
    assert (following.ids("accounts"), following.ids()) == ([6, 7, 8], [1, 5, 9, 10])


@pytest.mark.extended
def test_a_changed_topic_divides_the_rows_at_a_window(following: Following) -> None:
    with following.inserting():
        following.change(topics={"partitions": 2, "template": "{database}.new-{table}"})
        following.wait(lambda: len(following.rows("new-journal")) > 5)
    following.check_all_once("journal", "new-journal")
    assert following.ids("journal", "new-journal") == [*range(1, following.last + 1)], "the later rows in the new topic"


@pytest.mark.extended
def test_an_excluded_column_is_in_no_later_window(following: Following) -> None:
    with following.inserting():
        following.change(columns={"exclude": [f"{following.feed.name}.journal.text"]})
        following.wait(lambda: "text" not in following.rows()[-1])
    following.check_all_once()
    has_text = ["text" in row for row in following.rows()]
    assert has_text == sorted(has_text, reverse=True)


@pytest.mark.extended
def test_a_file_that_cannot_be_used_changes_nothing_until_it_is_correct(following: Following) -> None:
    text = following.path.read_text()
    with following.inserting():
        following.path.write_text(text + "tabels: {}\n")
        following.wait(lambda: "cannot be used" in following.run.text())
        published = len(following.ids())
        following.wait(lambda: len(following.ids()) > published + 10)
        following.path.unlink()
        following.wait(lambda: following.run.text().count("cannot be used") == 2)
        published = len(following.ids())
        following.wait(lambda: len(following.ids()) > published + 10)
        assert following.run.text().count("cannot be used") == 2, "each error is logged once"
        following.change(columns={"exclude": [f"{following.feed.name}.journal.text"]})
        following.wait(lambda: "text" not in following.rows()[-1])
    following.check_all_once()


@pytest.mark.extended
def test_a_shorter_pause_counts_at_once(following: Following) -> None:
    following.change(windows={"every": "10m", "run_for": "20m"})
    following.insert()
    time.sleep(2)
    assert following.last not in following.ids(), "the next window is in ten minutes"
    following.change(windows={"every": "100ms", "run_for": "20m"})
    following.check_all_once()


@pytest.mark.extended
@pytest.mark.parametrize("change", ["windows", "kafka"])
def test_a_change_that_only_another_run_can_apply_ends_the_run(following: Following, change: str) -> None:
    feed = following.feed
    with following.inserting():
        following.wait(lambda: len(sealed(following.run)) > 3)
        match change:
            case "windows":
                del feed.settings["windows"]
                feed.configure()
            case "kafka":
                feed.connections["KAFKA_OTHER"] = f"kafka://127.0.0.1:{feed.kafka.port}"
                feed.configure(connection="kafka_other")
        assert following.run.result() == 0, following.run.text()
    assert "the next run has the changes" in following.run.text()
    assert checkpoint_window(feed) == sealed(following.run)[-1]
    feed.settings.pop("windows", None)
    feed.configure(**({"connection": "kafka_other"} if change == "kafka" else {}))
    feed.run_until_current()
    following.check_all_once()


@pytest.mark.extended
def test_a_run_goes_on_with_its_spark_and_the_rest_of_the_new_settings(following: Following) -> None:
    with following.inserting():
        columns = {"exclude": [f"{following.feed.name}.journal.text"]}
        following.change(spark={"master": "local[1]"}, columns=columns)
        following.wait(lambda: "text" not in following.rows()[-1])
    following.check_all_once()
    assert following.run.text().count("(`spark`): this counts from the next run on") == 1


@pytest.mark.extended
def test_a_run_without_what_the_new_settings_name_ends(following: Following) -> None:
    feed = following.feed
    mask = {f"{feed.name}.journal.text": {"hmac_sha256": {"environment": "CHANGEFEED_TEST_SALT"}}}
    feed.settings["columns"] = {"mask": mask}
    feed.configure()
    assert following.run.result() == 0, following.run.text()
    assert "CHANGEFEED_TEST_SALT" in following.run.text()
    feed.environment["CHANGEFEED_TEST_SALT"] = "s" * 40
    following.insert(2)
    del feed.settings["windows"]
    feed.configure()
    feed.run_until_current()
    following.check_all_once()
    assert [row["text"] == "x" for row in following.rows()] == [True, False, False]


@pytest.mark.extended
def test_a_run_that_takes_over_has_what_the_older_run_has_found(feed: Feed) -> None:
    feed.settings["windows"] = {"every": "100ms", "run_for": "10m"}
    feed.environment["CHANGEFEED_HANDOVER"] = "1"
    feed.configure()
    older = Following(feed, feed.begin())
    older.insert()
    older.wait_until_published()
    newer = feed.begin("after_plan:2")  # just before it takes over
    try:
        assert newer.wait_until_held(), newer.text()
        older.change(columns={"exclude": [f"{feed.name}.journal.text"]})
        older.insert()
        older.wait_until_published()
        newer.go_on()
        with older.inserting():
            assert older.run.result() == 0, older.run.text()
            wait(lambda: "sealed window" in newer.text(), newer)
        following = replace(older, run=newer)
        following.check_all_once()
        assert ["text" in row for row in following.rows()] == [True, *[False] * (following.last - 1)]
    finally:
        older.run.kill()
        newer.kill()


@pytest.mark.extended
def test_a_change_need_not_wait_until_another_process_gives_the_lease_back(following: Following) -> None:
    feed = following.feed
    with connections_of(feed).lease(feed.name, timeout_seconds=60):
        following.insert()
        following.wait(lambda: "the run tries again" in following.run.text())
        following.change(columns={"exclude": [f"{feed.name}.journal.text"]})
        assert following.ids() == [1]
    following.check_all_once()
    assert ["text" in row for row in following.rows()] == [True, False]


@pytest.mark.extended
def test_a_begun_window_that_failed_is_published_under_the_settings_that_it_began_with(feed: Feed) -> None:
    feed.settings["windows"] = {"every": "100ms", "run_for": "10m"}
    feed.configure()
    following = Following(feed, feed.begin("after_decode:4"))
    try:
        following.insert_until(following.run.file.exists)
        begun = max(following.ids()) + 1  # and perhaps more rows
        feed.settings["columns"] = {"exclude": [f"{feed.name}.journal.text"]}
        feed.configure()
        time.sleep(2)  # the change could be applied before the next attempt
        feed.kafka.kill()
        following.run.go_on()
        following.wait(lambda: "the run tries again" in following.run.text())
        feed.kafka.start()
        following.insert_until(lambda: following.changes() and "text" not in following.rows()[-1])
        following.check_all_once()
        assert all("text" in row for row in following.rows()[:begun])
    finally:
        following.run.kill()


@pytest.mark.extended
def test_after_an_error_before_a_window_is_begun_the_new_settings_count(feed: Feed, mysql_proxy: Proxy) -> None:
    feed.settings["windows"] = {"every": "100ms", "run_for": "10m"}
    feed.configure()
    following = Following(feed, feed.begin("after_plan:5"))

    def attempts() -> int:
        return following.run.text().count("the run tries again")

    try:
        following.insert_until(following.run.file.exists)
        mysql_proxy.cut()
        following.run.go_on()
        following.wait(lambda: attempts() > 0)
        before = following.last
        feed.settings["columns"] = {"exclude": [f"{feed.name}.journal.text"]}
        feed.configure()
        time.sleep(2)  # the file is read when nobody has written to it for a second
        failed = attempts()
        following.wait(lambda: attempts() > failed)  # no attempt that began earlier succeeds
        mysql_proxy.mend()
        following.insert()
        following.check_all_once()
        assert all("text" not in row for row in following.rows()[before:])
    finally:
        following.run.kill()


@pytest.mark.extended
def test_the_command_follows_its_file(feed: Feed) -> None:
    """`changefeed run` as a user starts it, with Spark."""
    feed.settings["windows"] = {"every": "100ms", "run_for": "10m"}
    feed.configure()
    following = Following(feed, feed.begin_command("", "run", feed.name))
    try:
        following.insert()
        following.wait_until_published()
        with following.inserting():
            feed.settings["columns"] = {"exclude": [f"{feed.name}.journal.text"]}
            feed.configure()
            following.wait(lambda: "text" not in following.rows()[-1])
            del feed.settings["windows"]
            feed.configure()
            assert following.run.result() == 0, following.run.text()
        feed.run_until_current()
        following.check_all_once()
    finally:
        following.run.kill()
