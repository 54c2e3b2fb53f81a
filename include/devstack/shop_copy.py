"""The demo's follower: a second server, to which the command `changefeed replicate` brings what was published."""

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
    """Bring the follower of *stack* to where the pipeline is; what the command says. Raises DevstackError."""
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
    """A line for each table whose rows are the same on both servers; raises DevstackError where they differ."""
    lines = []
    for table in TABLES:
        wanted, found = shop_rows(source, table), shop_rows(follower, table)
        if wanted != found:
            raise DevstackError(f"{table}: the source has {len(wanted)} rows, and the follower {len(found)} or others")
        lines.append(f"{table}: {len(wanted)} rows on the source, and the same on the follower")
    return lines
