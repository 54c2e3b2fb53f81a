"""Replication between two servers of the devstack."""

from devstack.mariadb import MariadbServer
from devstack.mysql import OLD_RELEASES
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


def caught_up(source: SqlServer, follower: SqlServer) -> None:
    """Wait until the follower executed all that the source has."""
    if isinstance(source, MariadbServer):
        (gtids,) = source.execute("SELECT @@gtid_binlog_pos")[0]
        ((timed_out,),) = follower.execute(f"SELECT MASTER_GTID_WAIT('{gtids}', 60)")
    else:
        (gtids,) = source.execute("SELECT @@gtid_executed")[0]
        ((timed_out,),) = follower.execute(f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', 60)")
    assert timed_out == 0


def stop_replicating(follower: SqlServer) -> None:
    """As somebody does who makes the follower the new source."""
    role = _role(follower)
    follower.execute(f"STOP {role}", f"RESET {role} ALL")
