"""Starts the process that runs a DAG, `dag_process.py`, for tests that run or kill it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path


class DagRunner:
    """A process in which the DAG ``dag_id`` runs. Its output is in the file ``log``."""

    def __init__(self, dag_id: str, env: Mapping[str, str], log: Path) -> None:
        self.log = log
        reading, writing = os.pipe()
        script = Path(__file__).with_name("dag_process.py")
        with log.open("w") as output:
            self.process = subprocess.Popen(
                [sys.executable, str(script), dag_id, str(writing)],
                env=env,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[writing],
                text=True,
            )
        os.close(writing)
        self._results = os.fdopen(reading)

    def begin(self, command: str) -> None:
        """Begin a command of `dag_process.py`."""
        assert self.process.stdin is not None
        print(command, file=self.process.stdin, flush=True)

    def states_after(self, command: str) -> dict[str, str]:
        """Run a command; returns the states of the tasks by id."""
        self.begin(command)
        return self.read_states()

    def read_states(self) -> dict[str, str]:
        """Wait for the end of a command that `begin` began; returns the states of the tasks by id."""
        line = self._results.readline()
        assert line, f"the DAG's process ended:\n{self.text()[-4000:]}"
        states: dict[str, str] = json.loads(line)
        return states

    def end_commands(self) -> None:
        """Let the process end after the begun command."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def stop(self) -> None:
        """Wait for the end of the begun command and of the process."""
        self.end_commands()
        self.process.wait(240)
        self._results.close()

    def text(self) -> str:
        return self.log.read_text()
