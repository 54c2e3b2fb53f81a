"""Replicates to the demo's follower, a second MySQL server, and compares its tables with the source's."""

from __future__ import annotations

import os
import subprocess
import sys

from devstack.errors import DevstackError
from devstack.shop import TABLES, Connect, shop_rows
from devstack.stack import Stack

PIPELINE = "shop"
CONNECTION = "mysql_shop_copy"


def replicate(stack: Stack) -> str:
    """Replicate to the follower of *stack*; returns the command's output. Raises DevstackError if the command fails."""
    environment = {
        **os.environ,
        "AIRFLOW_CONN_MYSQL_SHOP": stack.mysql_url,
        "AIRFLOW_CONN_KAFKA_SHOP": f"kafka://{stack.bootstrap}",
        f"AIRFLOW_CONN_{CONNECTION.upper()}": stack.follower.root_url,
    }
    command = [sys.executable, "-m", "changefeed.cli.main", "replicate", PIPELINE, "--to", CONNECTION]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise DevstackError(f"`changefeed replicate {PIPELINE} --to {CONNECTION}` failed:\n{done.stdout}{done.stderr}")
    return done.stdout.strip()


def verify_copy(source: Connect, follower: Connect) -> list[str]:
    """Compare the tables of both servers; returns a line for each table. Raises DevstackError if one differs."""
    lines = []
    for table in TABLES:
        expected, actual = shop_rows(source, table), shop_rows(follower, table)
        if expected != actual:
            raise DevstackError(
                f"{table}: the source has {len(expected)} rows, and the follower {len(actual)} or others"
            )
        lines.append(f"{table}: {len(expected)} rows, equal on source and follower")
    return lines
