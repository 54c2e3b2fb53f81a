"""Seeks by GTIDs: sets of MySQL with tags, positions of MariaDB, and GTIDs that the server does not have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from integration.command import Command
from integration.command_forks import CommandForks

from devstack.identity import ProcessId
from devstack.kafka import KafkaBroker
from devstack.mariadb import MariadbServer
from devstack.process import run_server

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def spare_mariadb(session_folder: Path) -> Iterator[MariadbServer]:
    """A MariaDB whose binlogs may be purged."""
    options = {"slave-connections-needed-for-purge": "0"}
    with run_server(
        MariadbServer(session_folder / "spare-mariadb", options=options, owner=ProcessId.own(), quick=True)
    ) as server:
        yield server


@pytest.fixture
def on_mariadb(
    tmp_path: Path,
    spare_mariadb: MariadbServer,
    kafka_broker: KafkaBroker,
    unique_name: str,
    server_id: int,
    forks: CommandForks,
) -> Command:
    spare_mariadb.execute(f"CREATE DATABASE `{unique_name}`")
    return Command(tmp_path, unique_name, unique_name, spare_mariadb, kafka_broker, server_id, forks=forks)


def place(command: Command, gtids: str, status: str) -> tuple[str, str]:
    """The server's current GTIDs, and its head."""
    ((found,),) = command.server.execute(f"SELECT {gtids}")
    file, position, *_ = command.server.execute(status)[0]
    return found.replace("\n", ""), f"{file}:{position}"


def target(command: Command, gtids: str) -> str:
    shown = command("seek", command.name, gtids, "--plan", "--json")
    assert shown.exit_code == 0, shown
    return str(json.loads(shown.out)["to"])


def insert(command: Command, row: int) -> None:
    command.server.execute(f"INSERT INTO t VALUES ({row}, 'x')", database=command.database)


def purge(command: Command) -> None:
    command.server.execute("FLUSH BINARY LOGS")
    last = command.server.execute("SHOW BINARY LOGS")[-1][0]
    command.server.execute(f"PURGE BINARY LOGS TO '{last}'")


def test_seek_by_mysql_gtids_names_unknown_and_purged_gtids(spare: Command) -> None:
    def now() -> tuple[str, str]:
        return place(spare, "@@global.gtid_executed", "SHOW BINARY LOG STATUS")

    name, _ = spare.name, spare.begin()
    places = []
    for tag in ("", "", "audit", "audit"):
        spare.server.execute(
            f"SET gtid_next = 'AUTOMATIC{':' if tag else ''}{tag}'",
            f"INSERT INTO t VALUES ({len(places) + 10}, 'x')",
            database=spare.database,
        )
        places.append(now())
    assert "audit:1-2" in places[-1][0]
    insert(spare, 20)
    assert [target(spare, gtids) for gtids, _ in places] == [at for _, at in places]
    done = spare("seek", name, places[2][0], "--why", "a test", "--yes", "--json")
    assert (done.exit_code, json.loads(done.out)["to"], json.loads(done.out)["to_gtids"]) == (
        0,
        places[2][1],
        places[2][0],
    )

    unknown = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"
    for extra in (unknown, f"{places[0][0].partition(':')[0]}:audit:7-9", "0-1-7"):
        spare("seek", name, f"{now()[0]},{extra}", "--plan").is_refused(
            "SettingsError", f"never executed transactions {extra}"
        )
    purge(spare)
    spare("seek", name, places[1][0], "--plan").is_refused(
        "BinlogGoneError", "are no longer in the binlog", "audit:1-2", "backfill"
    )
    assert target(spare, now()[0]) == now()[1]


def test_seek_by_mariadb_gtids_names_unknown_and_purged_gtids(
    on_mariadb: Command,
) -> None:
    def now() -> tuple[str, str]:
        return place(on_mariadb, "@@global.gtid_binlog_pos", "SHOW MASTER STATUS")

    name, _ = on_mariadb.name, on_mariadb.begin()
    places = []
    for domain in (0, 0, 7, 7):
        on_mariadb.server.execute(
            f"SET gtid_domain_id = {domain}",
            f"INSERT INTO t VALUES ({len(places) + 10}, 'x')",
            database=on_mariadb.database,
        )
        places.append(now())
    insert(on_mariadb, 20)
    assert [target(on_mariadb, gtids) for gtids, _ in places] == [at for _, at in places]
    done = on_mariadb("seek", name, places[2][0], "--why", "a test", "--yes", "--json")
    assert (done.exit_code, json.loads(done.out)["to"]) == (0, places[2][1])

    domain, server, number = now()[0].split(",")[0].split("-")
    for extra in (f"{domain}-{server}-{int(number) + 5}", "9-1-1", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"):
        on_mariadb("seek", name, extra, "--plan").is_refused("SettingsError", f"never executed transactions {extra}")
    on_mariadb("seek", name, f"{domain}-77-{number}", "--plan").is_refused("BinlogGoneError", f"{domain}-77-{number}")
    purge(on_mariadb)
    on_mariadb("seek", name, places[1][0], "--plan").is_refused("BinlogGoneError", "are no longer in the binlog", "7-")
    assert target(on_mariadb, now()[0]) == now()[1]
