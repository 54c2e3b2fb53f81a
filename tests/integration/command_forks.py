"""`changefeed` in forks of one process that has imported it all: to start Python and import costs 2 seconds each.

As a program: a line on stdin asks for a command, {"arguments", "env", "folder", "out", "err"}. It runs in a fork of
this process, with that environment, in that folder, its output in those two files; its exit code is a line on stdout.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

IMPORTED = (
    "changefeed.source.mysql.packets",  # these are compiled: to load them takes a second
    "changefeed.binlog.search.file_ranges",
    "changefeed.binlog.search.schema_scan",
    "changefeed.cli.main",
    "changefeed.source.mysql.dump",
    "changefeed.ingest.commit",
    "changefeed.pipeline.plan",
    "changefeed.ingest.run",
    "changefeed.spark.session",
    "changefeed.state.table_store",
    "changefeed.operations.backfill",
    "changefeed.operations.check",
    "changefeed.operations.seek",
    "changefeed.operations.status",
    "sqlite3",
)
"""Modules that commands import. They must not start threads, which a fork does not have."""


class CommandForks:
    """The process that forks commands, one at a time."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], env=dict(env), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, arguments: tuple[str, ...], env: Mapping[str, str], folder: Path) -> tuple[int, str, str]:
        """Exit code, output and error output of `changefeed ARGUMENTS`."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        out, err = folder / "out", folder / "err"
        asked = {"arguments": arguments, "env": dict(env), "folder": str(folder), "out": str(out), "err": str(err)}
        print(json.dumps(asked), file=self._process.stdin, flush=True)
        line = self._process.stdout.readline()
        assert line, "the process that commands are forked from has ended"
        return int(line), out.read_text(), err.read_text()

    def stop(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(120)


def main() -> None:
    """Fork for each line of stdin."""
    for name in IMPORTED:
        importlib.import_module(name)
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            _child(asked)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _child(asked: dict[str, Any]) -> None:
    from changefeed.cli.main import main as command

    os.environ.clear()
    os.environ.update(asked["env"])
    os.chdir(asked["folder"])
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
    sys.argv = ["changefeed", *asked["arguments"]]
    code = 0
    try:
        command()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:
        traceback.print_exc()
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


if __name__ == "__main__":
    main()
