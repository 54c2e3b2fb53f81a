"""The findings of `changefeed check` before a run, and their output."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from integration.command import NOTHING_NEW, Command

from changefeed.model.connection import MysqlConnection
from changefeed.source.mysql.session import Session
from changefeed.source.mysql.side_effects import cascading_keys, logs_cascades
from devstack.identity import ProcessId
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.process import run_server

pytestmark = pytest.mark.timeout(600)


@pytest.fixture(autouse=True)
def without_a_mask(changefeed: Command) -> None:
    changefeed.mask = ""
    changefeed.write()


def edit_yaml(changefeed: Command, old: str, new: str, *, name: str | None = None) -> None:
    """Replace a text of the pipeline's file; with ``name``, in a copy as another pipeline beside it."""
    text = (changefeed.pipelines / f"{changefeed.name}.yaml").read_text()
    assert old in text
    text = text.replace(old, new)
    if name:
        text = text.replace(f"name: {changefeed.name}\n", f"name: {name}\n")
    (changefeed.pipelines / f"{name or changefeed.name}.yaml").write_text(text)


def with_a_table(changefeed: Command) -> Command:
    changefeed.server.execute("CREATE TABLE t (id INT PRIMARY KEY)", database=changefeed.database)
    return changefeed


def test_each_passed_check_is_a_line_and_a_json_entry(changefeed: Command) -> None:
    with_a_table(changefeed)
    checked = changefeed("check")
    assert (checked.exit_code, checked.err) == (0, "")
    for line in (f"1 tables: {changefeed.database}.t", "reachable, 1 broker", "4 topics: 0 exist, 4 will be created"):
        assert line in checked.out
    as_json = json.loads(changefeed("check", changefeed.name, "--json").out)
    (report,) = as_json["pipelines"]
    assert as_json == {"pipelines": [{**report, "wrong": [], "warnings": []}], "unreadable": []}
    right = [f"{changefeed.name}: OK   {line}" for line in report["right"]]
    summary = f"{changefeed.name}: {len(right)} OK, 0 WARN, 0 FAIL"
    assert "\n".join([*right, summary]).splitlines() == checked.out.splitlines()
    assert report["lines"] == [{"level": "OK", "text": text} for text in report["right"]]


@pytest.mark.extended
def test_more_replicas_than_brokers_and_unknown_topic_config_are_refused(
    changefeed: Command,
) -> None:
    with_a_table(changefeed)
    edit_yaml(changefeed, "{partitions: 2}", "{partitions: 2, replication_factor: 3}")
    changefeed("check").is_refused("TopicError", "replication_factor", "is 3", "has 1 broker up", "at most 1")
    edit_yaml(changefeed, "replication_factor: 3", "configs: {retention.millis: '5'}")
    changefeed("check").is_refused("TopicError", "retention.millis", "cannot be made", "topic settings")
    with_topics = changefeed("run", changefeed.name)
    assert with_topics.exit_code == NOTHING_NEW, "a first run without rows makes no topic"


@pytest.mark.extended
def test_a_pattern_without_a_table_is_wrong_in_check_and_not_in_a_run(changefeed: Command) -> None:
    with_a_table(changefeed)
    database = changefeed.database
    edit_yaml(changefeed, f"'{database}.*'", f"'{database}.t', '{database}.odrers'")
    changefeed.server.execute("CREATE TABLE orders (id INT PRIMARY KEY)", database=database)
    changefeed("check").is_refused("SettingsError", f"'{database}.odrers'", f"did you mean '{database}.orders'")
    assert changefeed("plan", changefeed.name).exit_code == NOTHING_NEW


@pytest.mark.extended
def test_automatic_snapshot_that_other_settings_refuse_is_wrong(changefeed: Command) -> None:
    with_a_table(changefeed)
    changefeed.write("snapshot: {new_tables: true}\n")
    assert "takes snapshots by itself: of new tables" in changefeed("check").out
    changefeed.write("snapshot: {new_tables: true}\nskip: [r]\n")
    changefeed("check").is_refused("SettingsError", "has 'r' in `skip`", "Remove these ops")


@pytest.mark.extended
def test_a_mask_without_a_column_is_wrong(changefeed: Command) -> None:
    with_a_table(changefeed)
    changefeed.write("columns: {mask: {'*.t.emial': {text: '-'}}}\n")
    changefeed("check").is_refused("SettingsError", "'*.t.emial' in columns.mask", "published as it is")


@pytest.mark.extended
def test_function_is_imported_and_its_tables_are_listed(changefeed: Command) -> None:
    with_a_table(changefeed)
    folder = changefeed.folder / "transforms"
    folder.mkdir()
    (folder / "mine.py").write_text("import json\n\ndef transform(change):\n    return change\n")
    changefeed.env["CHANGEFEED_TRANSFORMS"] = str(folder)
    changefeed.write("transforms: [{tables: '*.t', function: mine}, {tables: '*.u', function: mine}]\n")
    checked = changefeed("check")
    assert f"transform mine gets the changes of {changefeed.database}.t" in checked.out
    checked.is_refused("SettingsError", "'*.u' of transform 'mine'", "matches no table")
    (folder / "mine.py").write_text("import no_such\n\ndef transform(change):\n    return change\n")
    changefeed("check").is_refused("SettingsError", "'mine'", "No module named 'no_such'", "Spark's workers")


@pytest.mark.extended
@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("sasl.mechanizm=PLAIN", ["sasl.mechanizm", "did you mean 'sasl.mechanism'"]),
        ("security_protocol=PLAINTEXT", ["security_protocol", "did you mean 'security.protocol'"]),
        ("socket.timeout.ms=soon", ["socket.timeout.ms"]),
    ],
)
def test_an_option_that_kafkas_clients_do_not_know_is_wrong(changefeed: Command, option: str, words: list[str]) -> None:
    with_a_table(changefeed)
    changefeed.connect(kafka=f"kafka://{changefeed.broker.bootstrap}/?{option}")
    changefeed("check").is_refused("SettingsError", "option of the Kafka connection", *words)


@pytest.mark.extended
def test_a_notifier_that_is_not_allowed_is_wrong(changefeed: Command) -> None:
    with_a_table(changefeed)
    notifier = "airflow.providers.smtp.notifications.smtp.SmtpNotifier"
    alerts = f"alerts: {{notify: [{{notifier: {notifier}, arguments: {{to: ops@example.com}}}}]}}\n"
    edit_yaml(changefeed, "name:", f"{alerts}name:")
    changefeed("check").is_refused("SettingsError", repr(notifier), "not in `notifiers`", "CHANGEFEED_SITE")
    site = changefeed.folder / "site.yaml"
    site.write_text(f"notifiers: [{notifier}]\n")
    changefeed.env["CHANGEFEED_SITE"] = str(site)
    assert f"notifier {notifier}: allowed" in changefeed("check").out


@pytest.mark.extended
def test_pipelines_that_share_a_topic_or_server_ids_are_both_reported(changefeed: Command) -> None:
    with_a_table(changefeed)
    name, database, first = changefeed.name, changefeed.database, changefeed.server_id
    edit_yaml(changefeed, "topics: {", "topics: {", name=f"{name}-b")
    for each, other in ((name, f"{name}-b"), (f"{name}-b", name)):
        checked = changefeed("check", each)
        checked.is_refused("TopicError", repr(each), repr(other), f"'{database}.t'", "twice", "topics.template")
        checked.is_refused("SettingsError", f"server_ids of pipeline {each!r}", repr(other), "10 ids")
    edit_yaml(changefeed, f"server_ids: {first}", f"server_ids: {first - 0}", name=f"{name}-b")
    edit_yaml(changefeed, "{partitions: 2}", "{partitions: 2, template: '{pipeline}.{table}'}", name=f"{name}-b")
    text = (changefeed.pipelines / f"{name}-b.yaml").read_text()
    apart = text.replace(f", server_ids: {first}-{first + 9}", "")
    (changefeed.pipelines / f"{name}-b.yaml").write_text(apart)
    checked = changefeed("check")
    assert checked.exit_code == 0, checked
    assert "compared with 1 other pipeline" in checked.out


CASCADES = (
    "CREATE TABLE parent (id INT PRIMARY KEY)",
    "CREATE TABLE child (p INT, CONSTRAINT `on delete` FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE)",
    "CREATE TABLE second (p INT, CONSTRAINT `a``b` FOREIGN KEY (p) REFERENCES parent (id) ON UPDATE SET NULL)",
    "CREATE TABLE plain (p INT, CONSTRAINT `plain ON DELETE CASCADE` FOREIGN KEY (p) REFERENCES parent (id))",
    "CREATE TABLE plain2 (p INT, FOREIGN KEY (p) REFERENCES parent (id) ON DELETE RESTRICT ON UPDATE NO ACTION)",
)


@pytest.mark.extended
def test_cascading_keys_are_reported_by_table_unless_the_binlog_has_their_rows(
    changefeed: Command, mariadb_server: MariadbServer
) -> None:
    changefeed.server.execute(*CASCADES, database=changefeed.database)
    assert "foreign keys" not in changefeed("check").out, "MySQL 9.6 and later log what a key changes"
    database = changefeed.database
    mariadb_server.execute(f"CREATE DATABASE {database}")
    with_long_key = "CREATE TABLE hashed (a TEXT, UNIQUE (a))"
    in_memory = "CREATE TABLE plain3 (a INT, UNIQUE (a) USING HASH) ENGINE=MEMORY"
    mariadb_server.execute(*CASCADES, with_long_key, in_memory, database=database)
    report = (
        "2 foreign keys change rows of captured tables, and this server does not write these changes to its binlog: "
    )
    for url in (mariadb_server.root_url, mariadb_server.url):  # the replication user cannot see the rules of keys
        changefeed.connect(mysql=url)
        checked = changefeed("check")
        assert f"{report}{database}.child (on delete); {database}.second (a`b). " in checked.out
        assert f"1 tables with a UNIQUE key that is too long for an index: {database}.hashed; " in checked.out
        assert checked.exit_code == 0
    edit_yaml(changefeed, f"'{database}.*'", f"'{database}.p*'")
    assert "foreign keys" not in changefeed("check").out, "the children are not captured"
    mariadb_server.execute(f"DROP DATABASE {database}")


@pytest.mark.extended
def test_virtual_columns_of_mysql_are_reported(changefeed: Command) -> None:
    made = "CREATE TABLE t (id INT PRIMARY KEY, v INT AS (id + 1) VIRTUAL, s INT AS (id + 1) STORED, w INT AS (1))"
    changefeed.server.execute(made, "CREATE TABLE u (id INT PRIMARY KEY)", database=changefeed.database)
    checked = changefeed("check")
    assert f"2 virtual columns: {changefeed.database}.t.v, {changefeed.database}.t.w; MySQL may log" in checked.out
    assert checked.exit_code == 0


@pytest.mark.extended
def test_server_that_leaves_foreign_keys_to_innodb_is_reported(session_folder: Path, unique_name: str) -> None:
    options = {"innodb_native_foreign_keys": "ON"}
    server = MysqlServer(session_folder / unique_name, options=options, owner=ProcessId.own(), quick=True)
    with run_server(server), Session(MysqlConnection.from_uri(server.url)) as session:
        assert not logs_cascades(session)
        server.execute("CREATE DATABASE d")
        server.execute(*CASCADES, database="d")
        keys = [(name.table, key) for name, key in cascading_keys(session, lambda database, _: database == "d")]
        assert keys == [("child", "on delete"), ("second", "a`b")]
        before = server.execute("SHOW BINARY LOG STATUS")[0][1]
        server.execute(
            "INSERT INTO parent VALUES (1)", "INSERT INTO child VALUES (1)", "DELETE FROM parent", database="d"
        )
        (file, *_), *_ = server.execute("SHOW BINARY LOG STATUS")
        kinds = [row[2] for row in server.execute(f"SHOW BINLOG EVENTS IN '{file}' FROM {before}")]
        assert kinds.count("Delete_rows") == 1, "of the parent only"


@pytest.mark.extended
def test_no_pipelines_are_an_error_that_names_the_folder(changefeed: Command) -> None:
    (changefeed.pipelines / f"{changefeed.name}.yaml").unlink()
    for command in ("check", "status"):
        changefeed(command).is_refused("SettingsError", "no pipelines", str(changefeed.pipelines), "has no .yaml file")
    changefeed.env["CHANGEFEED_PIPELINES"] = str(changefeed.folder / "nowhere")
    changefeed("check").is_refused("SettingsError", "nowhere", "does not exist", "CHANGEFEED_PIPELINES")


@pytest.mark.extended
def test_all_failures_are_reported_at_once_and_other_pipelines_are_checked(changefeed: Command) -> None:
    with_a_table(changefeed)
    (changefeed.pipelines / "broken.yaml").write_text("name: broken\n")
    edit_yaml(changefeed, "{partitions: 2}", "{partitions: 2, replication_factor: 3}")
    edit_yaml(changefeed, f"'{changefeed.database}.*'", "'nowhere.*'")
    checked = changefeed("check", "--json")
    assert checked.exit_code == 1
    report = json.loads(checked.out)
    assert [message.partition(":")[0] for message in report["pipelines"][0]["wrong"]] == ["SettingsError", "TopicError"]
    assert "broken.yaml" in report["unreadable"][0]
    assert all(message in checked.err for message in report["pipelines"][0]["wrong"] + report["unreadable"])
