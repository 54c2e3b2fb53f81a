"""A pipeline that is renamed in its YAML: refused with what to do, and moved so that each change is there once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from faults.feed import NOTHING_NEW, Feed, Run, Runner, fresh_feed
from integration.topic_rows import select_rows, topic_rows

from devstack.kafka import KafkaBroker
from devstack.mysql import MysqlServer
from devstack.schema_registry import SchemaRegistry
from devstack.spark_connect import SparkConnectServer

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def latest(
    mysql_server: MysqlServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    tmp_path: Path,
    runner: Runner,
    spark_connect: SparkConnectServer,
) -> Iterator[Feed]:
    """A feed from `start: latest`, on a server as it comes and on Spark; its first run has been."""
    with fresh_feed(mysql_server, kafka_broker, unique_name, tmp_path, runner) as feed:
        feed.settings["start"] = "latest"
        feed.use_connect(spark_connect.url)
        assert feed.begin().result() == NOTHING_NEW
        yield feed


def named(feed: Feed, name: str, *, beside: bool = False, **settings: object) -> str:
    """The pipeline's file with another name; ``beside`` it, or in its place."""
    folder = feed.folder / "pipelines"
    file = min(folder.glob(f"{feed.name}*.yaml"), key=lambda path: len(path.name))
    values = yaml.safe_load(file.read_text())
    (file.parent / f"{name}.yaml").write_text(yaml.safe_dump({**values, "name": name, **settings}))
    if not beside:
        file.unlink()
    return name


def ended(run: Run) -> tuple[int, str]:
    return run.result(), run.text()


def refused(feed: Feed, name: str, *words: str) -> None:
    for command in ("check", "plan", "run"):
        code, text = ended(feed.fork_command("", command, name))
        assert code == 1, text
        assert [word for word in words if word not in text] == [], text


@pytest.mark.extended
def test_rename_in_yaml_is_refused_and_rename_command_survives_kills(latest: Feed) -> None:
    latest.write()
    latest.run()
    latest.write(60)
    run = latest.begin("after_transaction_commit:2")
    assert run.wait_until_held(), run.text()
    run.kill()
    old, new = latest.name, named(latest, f"{latest.name}-new")
    latest.write(5)
    refused(latest, new, f"changefeed rename {old} {new}", "has published topics", "from the same server")
    for stage in ("after_rename_mark", "after_rename_log", "after_rename_checkpoint"):
        dying = latest.fork_command(stage, "rename", old, new)
        assert dying.wait_until_held(), dying.text()
        dying.kill()
        if stage != "after_rename_checkpoint":
            refused(latest, new, f"changefeed rename {old} {new}")
    code, text = ended(latest.fork_command("", "rename", old, new))
    assert code == 0, text
    assert "window 1 at" in text
    assert ended(latest.fork_command("", "rename", old, new))[0] == 0, "again: nothing is left to be moved"
    third = named(latest, f"{old}-third", beside=True)
    code, text = ended(latest.fork_command("", "rename", old, third))
    assert (code, f"was renamed to '{new}'" in text) == (1, True), text
    (latest.folder / "pipelines" / f"{third}.yaml").unlink()
    code, text = ended(latest.fork_command("", "run", new))
    assert code == 0, text
    assert ended(latest.fork_command("", "run", new))[0] in (0, NOTHING_NEW)
    latest.check()
    latest.configure()  # the old name again
    refused(latest, old, f"was renamed to '{new}'")


@pytest.mark.extended
def test_pipeline_that_never_published_is_named_where_another_begins_in_its_place(latest: Feed) -> None:
    old, new = latest.name, named(latest, f"{latest.name}-new")
    latest.write(5)
    for command in ("check", "plan"):
        text = ended(latest.fork_command("", command, new))[1]
        assert f"changefeed rename {old} {new}" in text
    assert ended(latest.fork_command("", "rename", old, new))[0] == 0
    code, text = ended(latest.fork_command("", "run", new))
    assert code == 0, text
    latest.check()


@pytest.mark.extended
def test_rename_is_refused_if_topics_are_named_after_the_pipeline(latest: Feed) -> None:
    latest.settings["topics"] = {"partitions": 2, "template": "{pipeline}.{database}.{table}"}
    latest.configure()
    latest.write(60)
    run = latest.begin("after_transaction_commit:2")
    assert run.wait_until_held(), run.text()
    run.kill()
    old = latest.name
    new = named(latest, f"{old}-new")
    code, text = ended(latest.fork_command("", "rename", old, new))
    assert code == 1
    assert f"Name the pipeline '{old}' again, run it once" in text
    named(latest, old) if (latest.folder / "pipelines" / f"{old}.yaml").exists() else latest.configure()
    (latest.folder / "pipelines" / f"{new}.yaml").unlink()
    latest.run()
    named(latest, new)
    refused(latest, new, f"changefeed rename {old} {new}", "has published tables", "no YAML file")
    assert ended(latest.fork_command("", "rename", old, new))[0] == 0
    assert ended(latest.fork_command("", "run", new))[0] in (0, NOTHING_NEW)


def test_second_pipeline_is_refused_for_the_same_tables_in_the_same_topics_only(latest: Feed) -> None:
    latest.write()
    latest.run()
    mysql, name = latest.mysql, latest.name
    mysql.execute(f"CREATE TABLE `{name}`.other (id INT PRIMARY KEY)")
    others = {"tables": {"include": [f"{name}.other"]}, "topics": {"partitions": 1}}
    second = named(latest, f"{name}-b", beside=True, **others)
    assert ended(latest.fork_command("", "run", second))[0] == NOTHING_NEW
    apart = named(latest, f"{name}-c", beside=True, topics={"template": "{pipeline}.{table}"})
    assert ended(latest.fork_command("", "run", apart))[0] == NOTHING_NEW
    twice = named(latest, f"{name}-d", beside=True)
    refused(latest, twice, "each change would be there twice", "topics.template")
    (latest.folder / "pipelines" / f"{name}.yaml").unlink()
    code, text = ended(latest.fork_command("", "seek", twice, "latest", "--why", "begins anew", "--yes"))
    assert code == 0, text
    assert ended(latest.fork_command("", "run", twice))[0] == NOTHING_NEW, "somebody said that it is another one"
    code, text = ended(latest.fork_command("", "rename", name, twice))
    assert (code, "it ran before it was renamed" in text) == (1, True), text


def half_published_and_renamed(feed: Feed) -> tuple[str, str]:
    """The name that a pipeline had when its window was published in part, and the one that its YAML has now."""
    feed.configure()
    feed.write(20)
    feed.run()
    feed.write(60)
    run = feed.begin("after_transaction_commit:2")
    assert run.wait_until_held(), run.text()
    run.kill()
    return feed.name, named(feed, f"{feed.name}-new")


@pytest.mark.extended
def test_window_that_was_begun_with_secrets_is_finished_under_the_new_name(feed: Feed) -> None:
    feed.connections["SALT"] = "generic://:pepper@"
    feed.settings["columns"] = {"mask": {"*.journal.text": {"sha256": {"connection": "salt"}}}}
    old, new = half_published_and_renamed(feed)
    code, text = ended(feed.fork_command("", "rename", old, new))
    assert code == 0, text
    code, text = ended(feed.fork_command("", "run", new))
    assert code == 0, text
    ids = feed.ids()
    assert len(ids) == len(set(ids))
    assert topic_rows(feed.records("accounts")) == select_rows(feed.mysql, feed.name, "accounts")


@pytest.mark.extended
def test_window_whose_schemas_have_the_old_name_is_finished_before_the_rename(
    feed: Feed, schema_registry: SchemaRegistry
) -> None:
    feed.connections["REGISTRY"] = schema_registry.url
    feed.settings["format"] = {"name": "avro", "registry": "registry"}
    old, new = half_published_and_renamed(feed)
    code, text = ended(feed.fork_command("", "rename", old, new))
    assert (code, f"Name the pipeline '{old}' again, run it once" in text) == (1, True), text
    named(feed, old)
    feed.run()
    new = named(feed, new)
    code, text = ended(feed.fork_command("", "rename", old, new))
    assert code == 0, text
    feed.write(5)
    code, text = ended(feed.fork_command("", "run", new))
    assert code == 0, text
    ids = feed.ids()
    assert len(ids) == len(set(ids))
