"""Runs the complete example: `python examples/leader-and-follower/run.py`.

It starts a leader, a follower and Kafka in a temporary folder, and stops them at the end.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1] / "include"))

from devstack.identity import ProcessId  # noqa: E402
from devstack.kafka import KafkaBroker  # noqa: E402
from devstack.mysql import MysqlServer  # noqa: E402
from devstack.process import run_server  # noqa: E402
from devstack.sql_server import SqlServer  # noqa: E402

FIRST = """\
CREATE DATABASE flvDb;
USE flvDb;
CREATE TABLE pet (name VARCHAR(20), owner VARCHAR(20), species VARCHAR(20), sex CHAR(1), birth DATE);
INSERT INTO pet VALUES ('Puffball','Diane','hamster','f','1999-03-30');
INSERT INTO pet VALUES ('Jack','Peter','dog','m','1999-03-30');
UPDATE pet SET birth = '1989-08-31' WHERE name = 'Jack';"""
THEN = """\
USE flvDb;
ALTER TABLE pet ADD COLUMN last_vaccine DATE;
DELETE FROM pet WHERE name = 'Puffball';
INSERT INTO pet VALUES ('Spot','Jane','dog','m','2010-11-2',NULL);
UPDATE pet SET last_vaccine = '2020-6-10' WHERE name = 'Spot';"""


def changefeed(*arguments: str) -> str:
    """Run a command; returns its output. Exit code 3 means that nothing was new."""
    print("$ changefeed", *arguments, flush=True)
    command = [str(Path(sys.executable).with_name("changefeed")), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(done.stderr)
    return done.stdout


def execute(leader: SqlServer, script: str) -> None:
    """Print a script, and run it on the leader."""
    print(*(f"leader> {line}" for line in script.splitlines()), sep="\n", flush=True)
    leader.execute(*filter(None, map(str.strip, script.split(";"))))


def publish_and_follow() -> None:
    """Run the commands that are equivalent to the pipeline's two DAGs."""
    print(changefeed("run", "pets"), end="")
    print(changefeed("replicate", "pets", "--to", "follower"), end="")


def main() -> None:
    """Run the example."""
    with TemporaryDirectory(prefix="changefeed-") as folder, ExitStack() as servers:
        owner, data = ProcessId.own(), Path(folder)
        leader = servers.enter_context(run_server(MysqlServer(data / "leader", owner=owner, quick=True)))
        options = {"server-id": 2}
        follower = servers.enter_context(
            run_server(MysqlServer(data / "follower", options=options, owner=owner, quick=True))
        )
        kafka = servers.enter_context(run_server(KafkaBroker(data / "kafka", owner=owner, quick=True)))
        os.environ |= {
            "CHANGEFEED_PIPELINES": str(HERE / "pipelines"),
            "AIRFLOW_CONN_LEADER": leader.url,
            "AIRFLOW_CONN_FOLLOWER": follower.root_url,
            "AIRFLOW_CONN_KAFKA": f"kafka://{kafka.bootstrap}",
            "AIRFLOW_CONN_STATE": f"sqlite:///{data / 'state.db'}",
        }
        publish_and_follow()
        execute(leader, FIRST)
        publish_and_follow()
        execute(leader, THEN)
        publish_and_follow()
        for line in changefeed("tail", "pets", "--table", "flvDb.pet", "--from-beginning", "--no-follow").splitlines():
            print(json.dumps(json.loads(line)["value"], separators=(",", ":")))
        for name, server in (("leader", leader), ("follower", follower)):
            print(f"{name}> SELECT * FROM flvDb.pet;")
            for row in server.execute("SELECT * FROM flvDb.pet ORDER BY name"):
                print(*("NULL" if value is None else value for value in row), sep=" | ")


if __name__ == "__main__":
    main()
