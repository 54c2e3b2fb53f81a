"""Replication between two servers of the devstack."""

from devstack.mariadb import MariadbServer
from devstack.sql_server import SqlServer


def replicate(source: SqlServer, follower: SqlServer) -> None:
    password = source._account().root_password
    if isinstance(source, MariadbServer):
        follower.execute(
            f"CHANGE MASTER TO MASTER_HOST='127.0.0.1', MASTER_PORT={source.port}, MASTER_USER='root', "
            f"MASTER_PASSWORD='{password}', MASTER_SSL=0, MASTER_USE_GTID=slave_pos",
            "START SLAVE",
        )
        return
    follower.execute(
        f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={source.port}, SOURCE_USER='root', "
        f"SOURCE_PASSWORD='{password}', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1",
        "START REPLICA",
    )


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
    if isinstance(follower, MariadbServer):
        follower.execute("STOP SLAVE", "RESET SLAVE ALL")
    else:
        follower.execute("STOP REPLICA", "RESET REPLICA ALL")
