"""The servers that the other tests use."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pymysql
import pytest
from integration.kafka_pipeline import committed
from kafka import KafkaConsumer, KafkaProducer
from kafka.admin import KafkaAdminClient, NewTopic

from devstack.airflow import AirflowServer
from devstack.errors import ServerError
from devstack.home import PROJECT, Home
from devstack.identity import ProcessId, family
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.mysql import MysqlServer
from devstack.process import ServerProcess, run_server
from devstack.reaper import end_orphans
from devstack.shop import ShopWriter, create_shop
from devstack.sql_server import SqlServer

pytestmark = pytest.mark.extended


def variable(server: SqlServer, name: str) -> str:
    """The value of a system variable."""
    return str(server.execute(f"SELECT @@global.{name}")[0][0])


def test_full_mysql_has_full_metadata_and_gtids(full_mysql_server: MysqlServer) -> None:
    assert full_mysql_server.execute("SELECT VERSION()")[0][0].startswith("9.")
    assert variable(full_mysql_server, "binlog_format") == "ROW"
    assert variable(full_mysql_server, "binlog_row_metadata") == "FULL"
    assert variable(full_mysql_server, "gtid_mode") == "ON"
    assert full_mysql_server.execute("SHOW VARIABLES LIKE 'log_bin'")[0][1] == "ON"


def test_stock_mysql_has_minimal_metadata_and_no_gtids(mysql_server: MysqlServer) -> None:
    assert variable(mysql_server, "binlog_row_metadata") == "MINIMAL"
    assert variable(mysql_server, "gtid_mode") == "OFF"


def test_servers_from_one_template_have_different_identities(
    full_mysql_server: MysqlServer, mysql_server: MysqlServer
) -> None:
    assert variable(full_mysql_server, "server_uuid") != variable(mysql_server, "server_uuid")
    assert full_mysql_server.port != mysql_server.port
    for server in (full_mysql_server, mysql_server):
        assert server.execute("SHOW BINARY LOGS")[0][0] == "binlog.000001"


def test_mariadb_logs_rows_with_its_own_metadata(
    mariadb_server: MariadbServer, full_mariadb_server: MariadbServer
) -> None:
    assert mariadb_server.execute("SELECT VERSION()")[0][0].startswith("11.4.")
    assert variable(mariadb_server, "binlog_format") == "ROW"
    assert variable(mariadb_server, "binlog_row_metadata") == "NO_LOG"
    assert variable(full_mariadb_server, "binlog_row_metadata") == "FULL"


@pytest.mark.parametrize(
    ("fixture", "version"),
    [
        ("mysql_57_server", "5.7.22"),
        ("mysql_80_server", "8.0.15"),
        ("mariadb_1011_server", "10.11.5"),
        ("mariadb_118_server", "11.8."),
    ],
)
def test_server_of_an_old_or_new_release_logs_rows_with_its_own_defaults(
    fixture: str, version: str, request: pytest.FixtureRequest
) -> None:
    server: SqlServer = request.getfixturevalue(fixture)
    assert server.execute("SELECT VERSION()")[0][0].startswith(version)
    assert variable(server, "binlog_format") == "ROW"
    assert variable(server, "log_bin") == "1"
    if server.product == "MySQL":
        assert variable(server, "gtid_mode") == "OFF"
    with server.connect("changefeed") as connection, connection.cursor() as cursor:
        cursor.execute("SHOW MASTER STATUS")


@pytest.mark.parametrize("fixture", ["mysql_server", "mariadb_server"])
def test_replication_user_may_read_and_replicate_but_not_write(fixture: str, request: pytest.FixtureRequest) -> None:
    server: SqlServer = request.getfixturevalue(fixture)
    status = "SHOW BINARY LOG STATUS" if fixture == "mysql_server" else "SHOW MASTER STATUS"
    with server.connect("changefeed") as connection, connection.cursor() as cursor:
        cursor.execute(status)
        cursor.execute("SHOW BINARY LOGS")
        assert cursor.fetchall()[0][0] == "binlog.000001"
        with pytest.raises(pymysql.err.OperationalError):
            cursor.execute("CREATE DATABASE forbidden")


def test_client_programs_have_no_password_on_the_command_line(mysql_server: MysqlServer, database: str) -> None:
    mysql_server.execute("CREATE TABLE greeting (word VARCHAR(20))", database=database)
    command = [*mysql_server.client("mysqldump"), "--no-data", database]
    assert "CREATE TABLE `greeting`" in subprocess.run(command, check=True, capture_output=True, text=True).stdout
    ((file, *_),) = mysql_server.execute("SHOW BINARY LOG STATUS")
    command = [*mysql_server.client("mysqlbinlog"), "--read-from-remote-server", file]
    assert "greeting" in subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert not any(password in " ".join(command) for password in passwords(mysql_server))


def passwords(server: SqlServer) -> list[str]:
    """The passwords in the server's two URLs."""
    return [url.removeprefix("mysql://").split(":")[1].split("@")[0] for url in (server.url, server.root_url)]


def test_missing_client_program_is_named_in_the_error(mariadb_server: MariadbServer) -> None:
    with pytest.raises(ServerError, match="mariadb-binlog"):
        mariadb_server.client("mariadb-binlog")


def test_kafka_returns_a_produced_record(kafka_broker: KafkaBroker, unique_name: str) -> None:
    with KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap) as admin:
        admin.create_topics([NewTopic(unique_name, 2, 1)])
    with KafkaProducer(bootstrap_servers=kafka_broker.bootstrap) as producer:
        producer.send(unique_name, key=b"k", value=b"hello").get(timeout=120)
    assert values(kafka_broker, unique_name) == [b"hello"]


def values(broker: KafkaBroker, topic: str) -> list[bytes]:
    """The values of all records of *topic*."""
    return [record.value for record in committed(broker.bootstrap, topic)]


def test_kafka_creates_no_topic_automatically(kafka_broker: KafkaBroker, unique_name: str) -> None:
    with KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap) as admin:
        consumer = KafkaConsumer(bootstrap_servers=kafka_broker.bootstrap)
        assert consumer.partitions_for_topic(unique_name) in (None, set())
        consumer.close()
        assert unique_name not in admin.list_topics()


def test_mysql_keeps_data_port_and_passwords_after_kill(
    tmp_path: Path,
) -> None:
    server = MysqlServer(tmp_path / "killed-mysql", owner=ProcessId.own())
    server.start()
    writer = ShopWriter(server.connect)
    try:
        create_shop(server.connect)
        writer.start()
        before = (server.port, server.url, variable(server, "server_uuid"))
        server.execute("CREATE DATABASE kept", "CREATE TABLE kept.t (id INT)", "INSERT INTO kept.t VALUES (7)")
        server.kill()
        assert not server.running
        server.start()
        assert (server.port, server.url, variable(server, "server_uuid")) == before
        assert server.execute("SELECT id FROM kept.t") == [(7,)]
        written = orders(server)
        deadline = time.monotonic() + 60
        while orders(server) <= written and time.monotonic() < deadline:
            time.sleep(0.1)
        assert orders(server) > written
        writer.stop()
        server.restart({"binlog_row_metadata": "FULL"})
        assert server.port == before[0]
        assert variable(server, "binlog_row_metadata") == "FULL"
    finally:
        writer.stop()
        server.stop()


def orders(server: SqlServer) -> int:
    """The id of the last order."""
    return int(server.execute("SELECT MAX(id) FROM shop.orders")[0][0] or 0)


def test_server_starts_while_its_killed_process_is_a_zombie(tmp_path: Path) -> None:
    directory = tmp_path / "zombie-mysql"
    with run_server(MysqlServer(directory, owner=ProcessId.own(), quick=True)):
        of_another_shell = MysqlServer(directory, owner=ProcessId.own(), quick=True)
        of_another_shell.kill()
        with run_server(of_another_shell) as again:
            assert again.execute("SELECT 1") == [(1,)]


def test_kafka_keeps_data_and_port_after_kill(tmp_path: Path) -> None:
    broker = KafkaBroker(tmp_path / "killed-kafka", owner=ProcessId.own())
    broker.start()
    try:
        before = broker.bootstrap
        with KafkaAdminClient(bootstrap_servers=before) as admin:
            admin.create_topics([NewTopic("kept", 1, 1)])
        with KafkaProducer(bootstrap_servers=before) as producer:
            producer.send("kept", b"hello").get(timeout=120)
        broker.kill()
        broker.start()
        assert broker.bootstrap == before
        assert values(broker, "kept") == [b"hello"]
    finally:
        broker.stop()


def test_a_server_that_does_not_come_up_shows_the_end_of_its_log(tmp_path: Path) -> None:
    server = MysqlServer(tmp_path / "broken-mysql", owner=ProcessId.own())
    server.start()
    server.stop()
    server.options["no_such_option"] = "1"
    with pytest.raises(
        ServerError, match=r"(?s)stopped by itself with exit code 1\..*unknown variable 'no-such-option=1'"
    ):
        server.start()
    assert not server.running


@pytest.mark.timeout(600)
def test_airflow_serves_logged_in_users_locally_and_stops_completely(
    session_folder: Path,
) -> None:
    project = session_folder / "project"
    for folder in ("dags", "plugins", "include"):
        (project / folder).mkdir(parents=True)
    connections = {"mysql_shop": "mysql://reader:secret@127.0.0.1:3306"}
    server = AirflowServer(
        session_folder / "airflow", project=project, connections=connections, owner=ProcessId.own(), quick=True
    )
    server.start()
    try:
        assert server.running
        with urllib.request.urlopen(f"{server.url}/api/v2/version", timeout=120) as answer:
            assert json.load(answer)["version"].startswith("3.")
        for refused in ("/api/v2/dags", "/auth/token", "/auth/token/login"):
            with pytest.raises(urllib.error.HTTPError, match=r"401|403"):
                urllib.request.urlopen(server.url + refused, timeout=120)
        assert server.read("/api/v2/dags")["total_entries"] == 0
        assert AirflowServer(server.directory, project=project).password == server.password
        assert (server.directory / "passwords.json").stat().st_mode & 0o777 == 0o600
        assert "mysql://reader:secret@127.0.0.1:3306" in server.cli("connections", "get", "mysql_shop", "-o", "plain")
        with pytest.raises(OSError, match="refused"):
            socket.create_connection(("127.0.0.2", server.port), timeout=5)
        components = [process for pid in server.pids for process in (ProcessId.of(pid),) if process is not None]
        everyone = [*components, *(member for component in components for member in family(component))]
    finally:
        server.stop()
    assert len(everyone) > len(components) == 4
    assert not [process for process in everyone if process.alive()]


def test_another_object_for_the_same_folder_finds_the_running_server(mysql_server: MysqlServer) -> None:
    same = MysqlServer(mysql_server.directory)
    assert same.running
    assert (same.pid, same.url) == (mysql_server.pid, mysql_server.url)


def test_stop_ends_child_processes_and_may_be_repeated(tmp_path: Path) -> None:
    process = ServerProcess("parent", tmp_path / "parent.json", tmp_path / "parent.log")
    script = "sh -c 'trap \"\" TERM; echo $$ > child; while true; do sleep 0.1; done' & wait"
    process.start(["/bin/sh", "-c", script], env={"PATH": os.environ["PATH"]}, cwd=tmp_path)
    process.wait_until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text() != "", 120)
    child = ProcessId.of(int((tmp_path / "child").read_text()))
    assert child is not None
    process.stop(grace=5)
    assert not process.running
    assert not child.alive()
    process.stop(grace=5)


@pytest.mark.parametrize(("script", "starts"), [("while sleep 0.1; do echo x; done", True), ("sleep 60", False)])
def test_limit_of_a_start_follows_the_log(script: str, starts: bool, tmp_path: Path) -> None:
    process = ServerProcess("slow", tmp_path / "slow.json", tmp_path / "slow.log")
    process.start(["/bin/sh", "-c", script], env={"PATH": os.environ["PATH"]}, cwd=tmp_path)
    ready_at = time.monotonic() + 1.5  # later than the limit of a process that writes nothing
    try:
        if starts:
            process.wait_until(lambda: time.monotonic() > ready_at, 1)
        else:
            with pytest.raises(ServerError, match="was not ready after 1 s"):
                process.wait_until(lambda: time.monotonic() > ready_at, 1)
    finally:
        process.kill()


def test_reused_pid_is_not_killed(tmp_path: Path) -> None:
    innocent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        record = tmp_path / "record.json"
        record.write_text(
            f'{{"name": "gone", "process": {{"pid": {innocent.pid}, "started": "earlier"}}, '
            f'"log": "gone.log", "owner": null}}'
        )
        ServerProcess("gone", record, tmp_path / "gone.log").stop(grace=5)
        assert innocent.poll() is None
        assert not record.exists()
    finally:
        innocent.kill()
        innocent.wait()


def test_servers_of_a_killed_test_session_are_ended_by_the_next(tmp_path: Path) -> None:
    home = Home(tmp_path)
    session = subprocess.Popen(
        [sys.executable, "-c", SESSION, str(tmp_path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(PROJECT / "include")},
    )
    assert session.stdout is not None
    server = ProcessId.of(int(session.stdout.readline()))
    assert server is not None
    assert end_orphans(home) == []
    assert server.alive()
    session.kill()
    session.wait()
    assert end_orphans(home) == ["sleeper"]
    deadline = time.monotonic() + 120
    while server.alive() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not server.alive()
    session.stdout.close()


SESSION = """
import sys, time
from pathlib import Path
from devstack.home import Home
from devstack.identity import ProcessId
from devstack.process import ServerProcess
home = Home(Path(sys.argv[1]))
process = ServerProcess("sleeper", home.run / "sleeper.json", home.root / "log", ProcessId.own())
process.start(["sleep", "60"], env={"PATH": "/usr/bin:/bin"}, cwd=home.root)
print(process.pid, flush=True)
time.sleep(60)
"""
