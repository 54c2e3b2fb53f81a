"""A backfill beside the live windows: what it publishes again goes to its own topics."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from both_settings import on_both_settings
from faults.feed import Feed, Runner
from faults.inline_spark import InlineSpark
from integration.topic_rows import event_ids, records_of

from changefeed.ingest.window_run import ingest
from changefeed.operations.backfill import plan_backfill
from changefeed.pipeline.connections import PipelineConnections
from changefeed.settings.file import read_pipeline
from changefeed.settings.requests.backfill import BackfillRequest, backfill_pipeline
from changefeed.source.archive.archive import Archive
from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.mysql import GTIDS, MysqlServer
from devstack.process import run_server
from devstack.sql_server import SqlServer


@on_both_settings
def test_a_backfill_into_replay_topics_leaves_the_live_schema_changes_alone(feed: Feed) -> None:
    feed.mysql.execute(f"ALTER TABLE `{feed.name}`.accounts ADD COLUMN extra INT FIRST")
    feed.run()
    environment = feed.env()
    pipeline = read_pipeline(Path(environment["CHANGEFEED_PIPELINES"]) / f"{feed.name}.yaml")
    file = feed.settings["start"].partition(":")[0]
    request = BackfillRequest(pipeline=feed.name, from_file=file)

    def lookup(connection_id: str) -> str:
        return environment[f"AIRFLOW_CONN_{connection_id.upper()}"]

    planned = plan_backfill(PipelineConnections(pipeline, lookup), request, archive_of=Archive)
    live = f"changefeed.{feed.name}.schema-changes"
    before = event_ids(records_of(feed.kafka.bootstrap, live))
    replayed = PipelineConnections(backfill_pipeline(pipeline, request), lookup)
    ingest(InlineSpark(), replayed, planned.window, identity=f"{feed.name}.backfill.1")
    assert event_ids(records_of(feed.kafka.bootstrap, live)) == before
    again = [
        name.replace(f"{live}.replay", live) for name in event_ids(records_of(feed.kafka.bootstrap, f"{live}.replay"))
    ]
    assert again == before
    assert len(before) == 4  # the database, its two tables, and what was altered


ROWS = 6

SERVERS = {
    "mysql": (MysqlServer, {"gtid-mode": "OFF", "enforce-gtid-consistency": "OFF"}),
    "mysql-gtids": (MysqlServer, GTIDS),
    "mariadb": (MariadbServer, {}),
}


@dataclass
class Archived:
    """A file of a binlog with the transactions of ROWS rows, and one after it, and copies of both in ``folder``."""

    feed: Feed
    file: str
    following: str
    folder: Path
    ends: list[int]
    """Ends of the transactions."""
    inside: int
    """A position in the last transaction, after its rows event."""
    begun: str
    """A time before the first transaction."""

    @property
    def copy(self) -> Path:
        return self.folder / self.file

    def cut(self, size: int) -> None:
        """Truncate the copy."""
        with self.copy.open("r+b") as file:
            file.truncate(size)

    def backfill(self, *arguments: str) -> tuple[int, str]:
        run = self.feed.fork_command("", "backfill", self.feed.name, "--archive", str(self.folder), *arguments)
        return run.result(), " ".join(run.text().split())

    def published_rows(self) -> int:
        """How many rows backfills have published."""
        return len(self.feed.records("journal.replay"))

    def check_refused(self, *arguments: str) -> None:
        before = self.published_rows()
        code, text = self.backfill(*arguments)
        assert (code, "is not known to be complete" in text) == (1, True), text
        assert "Traceback" not in text
        assert self.published_rows() == before

    def check_published(self, rows: int, *arguments: str) -> None:
        before = self.published_rows()
        code, text = self.backfill(*arguments)
        assert code == 0, text
        assert self.published_rows() == before + rows


def archive_binlogs(server: SqlServer, feed: Feed, folder: Path, *, dies: bool) -> Archived:
    """Archive a binlog file that the server closed, or left when it ``dies``; then it is the server's only file."""
    server.execute("FLUSH BINARY LOGS")
    file, ends = server.head().partition(":")[0], []
    begun = f"{server.execute('SELECT UTC_TIMESTAMP()')[0][0].isoformat()}Z"
    for _ in range(ROWS):
        server.execute("INSERT INTO journal (text) VALUES ('x')", database=feed.name)
        ends.append(int(server.head().partition(":")[2]))
    if dies:
        server.kill()
        server.start()
    else:
        server.execute("FLUSH BINARY LOGS")
    events = server.execute(f"SHOW BINLOG EVENTS IN '{file}' FROM {ends[-2]}")
    rows = next(number for number, event in enumerate(events) if str(event[2]).startswith("Write_rows"))
    inside = int(events[rows + 1][1])
    following = server.head().partition(":")[0]
    server.execute("INSERT INTO journal (text) VALUES ('of the next file')", "FLUSH BINARY LOGS", database=feed.name)
    feed.run()  # so that what tables were is known without the files
    folder.mkdir()
    for name in (file, following):
        shutil.copy(server.data / name, folder)
    server.execute(f"PURGE BINARY LOGS TO '{following}'")
    return Archived(feed, file, following, folder, ends, inside, begun)


@pytest.fixture
def own(
    request: pytest.FixtureRequest, kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner
) -> Iterator[Feed]:
    """A feed on its own server, whose binlog may be purged."""
    kind, options = SERVERS[request.param]
    with run_server(kind(tmp_path / "server", options=options, owner=ProcessId.own(), quick=True)) as server:
        feed = Feed(unique_name, server, kafka_broker, tmp_path, runner, {"topics": {"partitions": 1}})
        feed.run()
        yield feed


@pytest.mark.parametrize(
    "own",
    ["mysql", *(pytest.param(name, marks=pytest.mark.extended) for name in SERVERS if name != "mysql")],
    indirect=True,
)
def test_truncated_archived_file_is_refused_before_anything_is_published(own: Feed, tmp_path: Path) -> None:
    archived = archive_binlogs(own.mysql, own, tmp_path / "archive", dies=False)
    one, both = ("--from-file", archived.file), ("--from-file", archived.file, "--to-file", archived.following)
    archived.check_published(ROWS, *one)
    archived.check_published(ROWS + 1, *both)
    archived.cut(archived.ends[-2])
    archived.check_refused(*one)
    archived.check_refused(*both)
    (archived.folder / archived.following).unlink()
    archived.check_refused(*one)
    archived.check_refused("--from", archived.begun)
    archived.check_published(ROWS - 1, "--from", f"{archived.file}:4", "--to", f"{archived.file}:{archived.ends[-2]}")


@pytest.mark.parametrize("own", SERVERS, indirect=True)
@pytest.mark.extended
def test_archived_file_that_was_cut_inside_a_transaction_is_refused(own: Feed, tmp_path: Path) -> None:
    """It looks like the file of a server that died and rolled the transaction back."""
    archived = archive_binlogs(own.mysql, own, tmp_path / "archive", dies=False)
    archived.cut(archived.inside)
    for arguments in (
        ("--from-file", archived.file),
        ("--from-file", archived.file, "--to-file", archived.following),
        ("--from", f"{archived.file}:4", "--to", f"{archived.file}:{archived.inside}"),
    ):
        archived.check_refused(*arguments)
    (archived.folder / archived.following).unlink()
    archived.check_refused("--from-file", archived.file)


@pytest.mark.parametrize("own", SERVERS, indirect=True)
@pytest.mark.extended
def test_archived_file_of_a_server_that_died_is_published_where_its_end_is_proved(own: Feed, tmp_path: Path) -> None:
    """By the GTIDs of the file after it; without GTIDs by coordinates alone."""
    archived = archive_binlogs(own.mysql, own, tmp_path / "archive", dies=True)
    full_range = ("--from-file", archived.file)
    if own.mysql.options.get("gtid-mode") != "OFF":
        archived.check_published(ROWS, *full_range)
        archived.cut(archived.ends[-2])
        archived.check_refused(*full_range)
        return
    archived.check_refused(*full_range)
    archived.check_published(ROWS, "--from", f"{archived.file}:4", "--to", f"{archived.file}:{archived.ends[-1]}")


PERMISSIVE = {"gtid-mode": "ON_PERMISSIVE", "enforce-gtid-consistency": "ON"}
ANONYMOUS, AUTOMATIC = "SET SESSION gtid_next = 'ANONYMOUS'", "SET SESSION gtid_next = 'AUTOMATIC'"


@pytest.mark.parametrize("sign", ["next file", "server"])
@pytest.mark.extended
def test_archived_file_without_its_tail_of_transactions_without_gtids_is_refused(
    kafka_broker: KafkaBroker, unique_name: str, tmp_path: Path, runner: Runner, sign: str
) -> None:
    """All of the copy has GTIDs, and the next file names only these. That gtid_mode was not ON is known from the
    server, or from a transaction of the next file."""
    with run_server(MysqlServer(tmp_path / "server", options=PERMISSIVE, owner=ProcessId.own(), quick=True)) as server:
        feed = Feed(unique_name, server, kafka_broker, tmp_path, runner, {"topics": {"partitions": 1}})
        feed.run()
        row = "INSERT INTO journal (text) VALUES ('x')"
        server.execute("FLUSH BINARY LOGS", row, database=feed.name)
        file, _, end = server.head().partition(":")
        server.execute(ANONYMOUS, row, database=feed.name)
        server.kill()
        server.start()
        following = server.head().partition(":")[0]
        server.execute(row, *([ANONYMOUS, row, AUTOMATIC] if sign == "next file" else []), database=feed.name)
        server.execute("FLUSH BINARY LOGS")
        folder = tmp_path / "archive"
        folder.mkdir()
        for name in (file, following):
            shutil.copy(server.data / name, folder)
        feed.run()
        if sign == "next file":
            server.execute("SET GLOBAL gtid_mode = ON")
        server.execute(f"PURGE BINARY LOGS TO '{server.head().partition(':')[0]}'")
        archived = Archived(feed, file, following, folder, [int(end)], 0, "")
        archived.check_refused("--from-file", file)
        archived.cut(int(end))
        archived.check_refused("--from-file", file)
        archived.check_published(2 if sign == "next file" else 1, "--from-file", following)


@pytest.mark.extended
def test_archived_file_that_the_server_still_has_is_complete_at_its_size(feed: Feed, tmp_path: Path) -> None:
    """This includes the active file while nothing is added; afterwards the older copy is incomplete."""
    feed.mysql.execute("FLUSH BINARY LOGS")
    file = feed.mysql.head().partition(":")[0]
    feed.mysql.execute("INSERT INTO journal (text) VALUES ('x')", database=feed.name)
    folder = tmp_path / "archive"
    folder.mkdir()
    shutil.copy(feed.mysql.data / file, folder)
    archived = Archived(feed, file, "", folder, [], 0, "")
    archived.check_published(1, "--from-file", file)
    feed.mysql.execute("INSERT INTO journal (text) VALUES ('y')", database=feed.name)
    archived.check_refused("--from-file", file)
