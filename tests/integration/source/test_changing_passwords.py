"""Logins whose password a command returns: the next login gets the next password, on Spark's workers too."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from integration.kafka.test_kafka_security import Guarded

from changefeed.errors import (
    BrokerUnavailableError,
    FollowerUnavailableError,
    RetryableError,
    SourceError,
    SourceUnavailableError,
)
from changefeed.ingest.commit import commit
from changefeed.ingest.window_run import ingest
from changefeed.model.connection import MysqlConnection
from changefeed.pipeline.checkpoint_store import checkpoint_store
from changefeed.pipeline.connections import PipelineConnections, mysql_connection
from changefeed.pipeline.plan import plan
from changefeed.settings.pipeline import Pipeline
from changefeed.settings.pipeline_settings import (
    CheckpointSettings,
    KafkaSettings,
    SourceSettings,
    TableSettings,
)
from changefeed.source.mysql.follower_session import FollowerSession
from changefeed.source.mysql.session import Session
from changefeed.spark.target import SparkTarget
from devstack.mysql import MysqlServer
from devstack.process import run_server
from devstack.topics import read_topics


@dataclass
class Rotation:
    """A user of MySQL, and the file with the password that the site's command prints."""

    server: MysqlServer
    user: str
    file: Path

    @property
    def uri(self) -> str:
        return f"mysql://{self.user}:unused@127.0.0.1:{self.server.port}"

    def change_server(self, password: str) -> None:
        self.server.execute(f"ALTER USER {self.user} IDENTIFIED BY '{password}'")

    def change(self, password: str) -> None:
        self.change_server(password)
        self.file.write_text(password)


@pytest.fixture
def rotation(
    mysql_server: MysqlServer, unique_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Rotation]:
    ours = Rotation(mysql_server, f"u_{unique_name}", tmp_path / "password")
    mysql_server.execute(
        f"CREATE USER {ours.user} IDENTIFIED BY 'first-pl4nted'",
        f"GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO {ours.user}",
        f"GRANT SESSION_VARIABLES_ADMIN ON *.* TO {ours.user}",  # for followers
        f"GRANT ALL ON `{unique_name}`.* TO {ours.user}",
    )
    ours.file.write_text("first-pl4nted")
    command = json.dumps(["cat", str(ours.file)])
    (tmp_path / "site.yaml").write_text(
        f"passwords:\n- {{connection: mysql, command: {command}}}\n- {{connection: state, command: {command}}}\n"
        f"- {{connection: kafka, command: {command}}}\n"
    )
    monkeypatch.setenv("CHANGEFEED_SITE", str(tmp_path / "site.yaml"))
    yield ours
    mysql_server.execute(f"DROP USER {ours.user}")


def test_login_after_a_change_of_the_password_gets_the_new_one(rotation: Rotation) -> None:
    connection = mysql_connection("mysql", lambda _: rotation.uri)
    with Session(connection) as session:
        rotation.change("second-pl4nted")
        assert session.row("SELECT 1") == (1,)  # an open connection stays
    with Session(connection) as session:
        assert session.row("SELECT CURRENT_USER()") == (f"{rotation.user}@%",)


def test_refused_login_can_be_retried_only_if_its_password_is_renewed(rotation: Rotation) -> None:
    rotation.change_server("second-pl4nted")
    connection = mysql_connection("mysql", lambda _: rotation.uri)
    with pytest.raises(SourceUnavailableError, match=r"refuses user.*`passwords` of the site's file.*Run again"):
        Session(connection)
    with pytest.raises(FollowerUnavailableError, match=r"refuses the password that `passwords`.*Run again") as caught:
        FollowerSession(connection)
    assert "pl4nted" not in str(caught.value)
    with pytest.raises(SourceError, match="Check user and password"):
        Session(MysqlConnection.from_uri(rotation.uri))
    rotation.file.write_text("second-pl4nted")
    with FollowerSession(connection) as session:
        assert session.row("SELECT 1") == (1,)


@pytest.fixture
def guarded(session_folder: Path) -> Iterator[Guarded]:
    ours = Guarded(session_folder / "renewing-kafka")
    with run_server(ours.broker):
        ours.guard()
        yield ours


@pytest.mark.extended
def test_run_survives_a_change_of_its_password_between_plan_and_tasks(
    spark: SparkTarget,
    guarded: Guarded,
    database: str,
    server_id: int,
    rotation: Rotation,
) -> None:
    """The checkpoint is in a table of the same server. Its logins, and those to Kafka, get the same password."""
    guarded.set_password(rotation.user, "first-pl4nted")
    pipeline = Pipeline(
        name=database,
        source=SourceSettings(connection="mysql", server_ids=f"{server_id}-{server_id + 8}"),
        kafka=KafkaSettings(connection="kafka"),
        tables=TableSettings(include=[f"{database}.*"]),
        checkpoint=CheckpointSettings(store="table", connection="state"),
        start="latest",
    )
    uris = {
        "mysql": rotation.uri,
        "state": f"{rotation.uri}/{database}".replace("mysql:", "mysql+pymysql:"),
        "kafka": guarded.uri(rotation.user),
    }
    connections = PipelineConnections(pipeline, uris.__getitem__)
    store = checkpoint_store(connections, pytest.fail)
    plan(connections, store)
    rotation.server.execute(
        f"CREATE TABLE {database}.t (id INT PRIMARY KEY)", f"INSERT INTO {database}.t VALUES (1), (2), (3)"
    )
    planned = plan(connections, store)
    assert b"pl4nted" not in pickle.dumps(connections)
    guarded.set_password(rotation.user, "second-pl4nted")
    with pytest.raises(BrokerUnavailableError, match="refuses the login") as refused:
        ingest(spark, connections, planned.window)
    rotation.file.write_text("second-pl4nted")
    with pytest.raises(RetryableError, match="refuses user") as caught:
        ingest(spark, connections, planned.window)
    assert "pl4nted" not in str(caught.value) + str(refused.value)
    rotation.change_server("second-pl4nted")
    ingest(spark, connections, planned.window)
    rotation.change("third-pl4nted")
    guarded.set_password(rotation.user, "third-pl4nted")
    commit(connections, planned.window, planned.expected, checkpoint_store(connections, pytest.fail))
    rows = [record.value["after"]["id"] for record in read_topics(guarded.broker.bootstrap, [f"{database}.t"])]
    assert sorted(rows) == [1, 2, 3]
