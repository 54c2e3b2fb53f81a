"""Users' functions in runs that are killed: with drops, splits and other topics, each message once."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from faults.feed import NOTHING_NEW, Feed
from integration.topic_rows import event_ids, records_of, select_rows, topic_rows
from long_form import long

from devstack.spark_connect import SparkConnectServer

pytestmark = pytest.mark.timeout(600)

FUNCTION = """\
from changefeed.transforms.change import Change


def transform(change: Change, copies: str) -> list[Change] | Change | None:
    if change.table == "accounts":  # each change once more, into a topic of its own
        return [change, change.replace(topic=copies)]
    return None if len(change.row["text"]) % 2 else change.replace(topic=copies.replace("copies", "even"))
"""


def transformed(feed: Feed, function: str = FUNCTION) -> None:
    folder = feed.folder / "transforms"
    folder.mkdir(exist_ok=True)
    (folder / "twice.py").write_text(function)
    arguments = {"copies": f"{feed.name}.copies"}
    feed.settings["transforms"] = [{"tables": f"{feed.name}.*", "function": "twice", "arguments": arguments}]
    feed.configure(transaction_rows=10)


def check(feed: Feed) -> None:
    for topic in ("accounts", "copies"):
        records = records_of(feed.kafka.bootstrap, f"{feed.name}.{topic}")
        assert [event for event, count in Counter(event_ids(records)).items() if count > 1] == [], topic
        assert topic_rows(records) == select_rows(feed.mysql, feed.name, "accounts"), topic
    even = records_of(feed.kafka.bootstrap, f"{feed.name}.even")
    expected = {
        key: row for key, row in select_rows(feed.mysql, feed.name, "journal").items() if len(row["text"]) % 2 == 0
    }
    assert topic_rows(even) == expected
    assert len(even) == len(expected)
    assert feed.records("journal") == []


@pytest.mark.extended
@pytest.mark.parametrize("stage", ["after_transaction_commit:2", *long("in_open_transaction:2", "before_seal")])
def test_killed_with_functions_the_next_run_repeats_nothing_and_loses_nothing(feed: Feed, stage: str) -> None:
    transformed(feed)
    feed.write(60)
    run = feed.begin(stage)
    assert run.wait_until_held(), run.text()
    run.kill()
    feed.run()
    check(feed)
    assert feed.begin().result() == NOTHING_NEW


@pytest.mark.extended
def test_a_window_of_many_slices_on_spark_is_finished_after_a_kill(
    feed: Feed, spark_connect: SparkConnectServer
) -> None:
    transformed(feed)
    for _ in range(3):
        feed.write(30)
        feed.mysql.execute("FLUSH BINARY LOGS")
    run = feed.begin("after_transaction_commit:3", spark=True)
    assert run.wait_until_held(400), run.text()
    run.kill()
    feed.use_connect(spark_connect.url)
    transformed(feed)
    text = feed.run(spark=True)
    check(feed)
    assert "rows dropped by transform twice" in text


def test_a_window_is_finished_by_the_functions_that_it_was_begun_with_or_not_at_all(feed: Feed) -> None:
    transformed(feed)
    feed.write(60)
    run = feed.begin("after_transaction_commit:2")
    assert run.wait_until_held(), run.text()
    run.kill()
    transformed(feed, FUNCTION + "\n# another version\n")
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "`transforms` of the pipeline's settings changed" in run.text()
    transformed(feed)
    feed.run()
    check(feed)


@pytest.mark.extended
def test_a_function_that_makes_other_messages_at_a_retry_is_caught(feed: Feed) -> None:
    """What decides is not in the file, so no digest knows of it."""
    marker = feed.folder / "marker"
    marker.touch()
    random = FUNCTION.replace(
        "    if change.table",
        f"    import os\n    if change.table == 'accounts' and not os.path.exists({str(marker)!r}):\n"
        "        return [change, change.replace(topic=copies), change.replace(topic=copies)]\n    if change.table",
    )
    transformed(feed, random)
    feed.write(60)
    run = feed.begin("before_seal")
    assert run.wait_until_held(), run.text()
    run.kill()
    marker.unlink()
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "AccountingError: partition" in run.text()
    assert "were decoded now" in run.text()
    marker.touch()
    feed.run()
    check(feed)


ROUTED = """\
import os

from changefeed.transforms.change import Change


def transform(change: Change, copies: str, salt: str = "old") -> Change:
    number = change.row["id"]
    if (salt == "new" or os.path.exists({marker!r})) and number % 3 == 0:
        return change.replace(topic=copies + ".a")  # is published before the others
    return change.replace(topic=copies + (".z" if number % 2 else ".m"))
"""
ROUTED_ROWS = 90


def routed(feed: Feed, **transform: Any) -> None:
    """Rows whose function sends some of them elsewhere with another ``salt``, or where a marker is; half published."""
    transformed(feed, ROUTED.format(marker=str(feed.folder / "marker")))
    feed.settings["transforms"][0] |= transform
    feed.settings["topics"] = {"partitions": 1}
    feed.configure(transaction_rows=10)
    values = ", ".join(f"({number}, 'x')" for number in range(1, ROUTED_ROWS + 1))
    feed.mysql.execute(f"INSERT INTO `{feed.name}`.journal VALUES {values}")


def routed_ids(feed: Feed) -> Counter[str]:
    """What was published, by event, in whatever topic."""
    topics = [f"{feed.name}.copies.{each}" for each in "amz"]
    return Counter(each for topic in topics for each in event_ids(records_of(feed.kafka.bootstrap, topic)))


def half_published(feed: Feed) -> Counter[str]:
    run = feed.begin("after_transaction_commit:2")
    assert run.wait_until_held(), run.text()
    run.kill()
    return routed_ids(feed)


def check_routed(feed: Feed) -> None:
    feed.run()
    ids = routed_ids(feed)
    assert (len(ids), set(ids.values())) == (ROUTED_ROWS, {1})
    assert feed.begin().result() == NOTHING_NEW


def test_a_window_is_finished_with_the_secrets_that_it_was_begun_with_or_not_at_all(feed: Feed) -> None:
    feed.connections["SALT"] = "generic://:old@"
    routed(feed, secrets={"salt": {"connection": "salt"}})
    before = half_published(feed)
    feed.connections["SALT"] = "generic://:new@"
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "`secrets` of the pipeline's settings changed" in run.text()
    assert routed_ids(feed) == before
    feed.connections["SALT"] = "generic://:old@"
    check_routed(feed)


def test_retry_with_other_routing_fails_before_publishing(feed: Feed) -> None:
    """No digest knows what decides, and the topic that comes first was given nothing before."""
    routed(feed)
    before = half_published(feed)
    (feed.folder / "marker").touch()
    run = feed.begin()
    assert run.result() == 2, run.text()
    assert "were decoded now" in run.text()
    assert routed_ids(feed) == before
    (feed.folder / "marker").unlink()
    check_routed(feed)


@pytest.mark.extended
def test_retry_on_spark_compares_all_slices_before_publishing(feed: Feed, spark_connect: SparkConnectServer) -> None:
    feed.use_connect(spark_connect.url)
    routed(feed)
    feed.mysql.execute("FLUSH BINARY LOGS", f"INSERT INTO `{feed.name}`.accounts VALUES (1, 1, 'x')")
    before = half_published(feed)
    (feed.folder / "marker").touch()
    run = feed.begin(spark=True)
    assert run.result() == 1, run.text()
    assert "were decoded now" in run.text()
    assert routed_ids(feed) == before


@pytest.mark.extended
def test_function_error_fails_the_run_or_writes_one_dead_letter(feed: Feed) -> None:
    failing = FUNCTION.replace(
        "    if change.table", "    if change.row['id'] == 7:\n        1 / 0\n    if change.table", 1
    )
    transformed(feed, failing)
    feed.mysql.execute(*(f"INSERT INTO `{feed.name}`.accounts VALUES ({key}, 1, 'x')" for key in range(60)))
    run = feed.begin()
    assert run.result() == 2, run.text()
    for words in ("BadRecordError: transform 'twice'", f"{feed.name}.accounts", "{'id': 7}", "ZeroDivisionError"):
        assert words in run.text()
    assert feed.records("accounts") == [], "nothing of the window is there"
    feed.configure(on_bad_record="dead_letter", transaction_rows=10)
    run = feed.begin("after_transaction_commit:6")
    assert run.wait_until_held(), run.text()
    run.kill()
    feed.run()
    (letter,) = records_of(feed.kafka.bootstrap, f"changefeed.{feed.name}.dead-letter")
    assert (letter.key, letter.value) == (None, None)
    assert dict(letter.headers)["changefeed.topic"].decode() == f"{feed.name}.accounts"
    for topic in ("accounts", "copies"):
        ids = event_ids(records_of(feed.kafka.bootstrap, f"{feed.name}.{topic}"))
        assert (len(ids), len(set(ids))) == (59, 59)
