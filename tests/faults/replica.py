"""Replication between two servers of the devstack."""

from devstack.mysql import MysqlServer


def replicate(source: MysqlServer, follower: MysqlServer) -> None:
    follower.execute(
        f"CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1', SOURCE_PORT={source.port}, SOURCE_USER='root', "
        f"SOURCE_PASSWORD='{source._account().root_password}', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1",
        "START REPLICA",
    )


def caught_up(source: MysqlServer, follower: MysqlServer) -> None:
    """Wait until the follower executed all that the source has."""
    (gtids,) = source.execute("SELECT @@gtid_executed")[0]
    ((timed_out,),) = follower.execute(f"SELECT WAIT_FOR_EXECUTED_GTID_SET('{gtids}', 60)")
    assert timed_out == 0
