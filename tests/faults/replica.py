"""Replication between two servers of the devstack."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from devstack.identity import ProcessId
from devstack.mariadb import MariadbServer
from devstack.mysql import OLD_RELEASES, MysqlServer
from devstack.port import free_port
from devstack.process import run_server
from devstack.sql_server import SqlServer


def replicate(source: SqlServer, follower: SqlServer) -> None:
    account = {"HOST": "127.0.0.1", "PORT": source.port, "USER": "root", "PASSWORD": source._account().root_password}
    if isinstance(source, MariadbServer):
        change, prefix = "CHANGE MASTER TO", "MASTER_"
        more = "MASTER_SSL=0, MASTER_USE_GTID=slave_pos"
    elif source.release in OLD_RELEASES:
        change, prefix = "CHANGE MASTER TO", "MASTER_"
        more = "MASTER_AUTO_POSITION=1" + (", GET_MASTER_PUBLIC_KEY=1" if source.release != "5.7" else "")
    else:
        change, prefix = "CHANGE REPLICATION SOURCE TO", "SOURCE_"
        more = "SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1"
    said = ", ".join(f"{prefix}{name}={value!r}" for name, value in account.items())
    follower.execute(f"{change} {said}, {more}", f"START {_role(source)}")


def _role(server: SqlServer) -> str:
    return "SLAVE" if isinstance(server, MariadbServer) or server.release in OLD_RELEASES else "REPLICA"


def wait_until_caught_up(source: SqlServer, follower: SqlServer) -> None:
    """Wait until the follower has executed all transactions of the source."""
    if isinstance(source, MariadbServer):
        (gtids,) = source.execute("SELECT @@gtid_binlog_pos")[0]
        ((timed_out,),) = follower.execute(f"SELECT MASTER_GTID_WAIT('{gtids}', 60)")
    else:
        (gtids,) = source.execute("SELECT @@gtid_executed")[0]
        ((timed_out,),) = follower.execute(f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', 60)")
    assert timed_out == 0


def stop_replicating(follower: SqlServer) -> None:
    """Stop replication, as for a promotion of the follower."""
    role = _role(follower)
    follower.execute(f"STOP {role}", f"RESET {role} ALL")


@contextmanager
def replication_group(folder: Path) -> Iterator[tuple[MysqlServer, MysqlServer]]:
    """Two members of a group of MySQL's Group Replication that both take writes, each in blocks of 5 GTIDs."""
    ports = [free_port(), free_port()]
    common: dict[str, str | int] = {
        "plugin_load_add": "group_replication.so",
        "report_host": "127.0.0.1",
        "group_replication_group_name": "aaaaaaaa-0000-4000-8000-00000000000a",
        "group_replication_start_on_boot": "OFF",
        "group_replication_group_seeds": ",".join(f"127.0.0.1:{port}" for port in ports),
        "group_replication_single_primary_mode": "OFF",
        "group_replication_enforce_update_everywhere_checks": "ON",
        "group_replication_recovery_get_public_key": "ON",
        "group_replication_gtid_assignment_block_size": 5,
    }
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(run_server(MysqlServer(folder / f"member{number}", options={
                **common, "server_id": number, "group_replication_local_address": f"127.0.0.1:{port}",
            }, owner=ProcessId.own(), quick=True)))
            for number, port in enumerate(ports, 1)
        )  # fmt: skip
        for member in (first, second):
            member.execute(
                "RESET BINARY LOGS AND GTIDS",
                "CHANGE REPLICATION SOURCE TO SOURCE_USER = 'root', "
                f"SOURCE_PASSWORD = {member._account().root_password!r} FOR CHANNEL 'group_replication_recovery'",
            )
        bootstrap = "SET GLOBAL group_replication_bootstrap_group = "
        first.execute(f"{bootstrap} ON", "START GROUP_REPLICATION", f"{bootstrap} OFF")
        second.execute("START GROUP_REPLICATION")
        yield first, second
