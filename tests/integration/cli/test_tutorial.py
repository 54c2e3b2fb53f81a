"""Each command of docs/tutorial.md runs as it is written there, and prints the lines that the page shows.

It takes minutes, because it starts the demo with its Airflow, and Spark seven times. No other test runs `make demo`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from changefeed.native.compiled import cache_folder
from devstack.airflow import AirflowServer
from devstack.home import PROJECT, Home

PAGE = PROJECT / "docs" / "tutorial.md"
COPIED = ("Makefile", "pyproject.toml", "requirements.lock", "dags", "include", "jobs", "plugins")
NOT_INHERITED = ("AIRFLOW", "CHANGEFEED_", "COLUMNS", "KAFKA_", "MAKE", "MFLAGS", "MYSQL_", "PYSPARK_", "SPARK_")
STEP_SECONDS = 600.0
FAILED = "\x1ffailed: "
DONE = "\x1fdone"

pytestmark = [pytest.mark.extended, pytest.mark.timeout(1800)]


@dataclass(frozen=True)
class Step:
    """Commands of the page, and the lines that it shows of their output, with … for any text."""

    commands: str
    shown: str

    @property
    def fails(self) -> list[str]:
        """The commands that the page shows to fail: the last one, if its output is an error."""
        return [self.commands.splitlines()[-1]] if re.match(r"\w+Error: ", self.shown) else []


def steps_of(page: str) -> list[Step]:
    """The blocks of commands, each with the block of output that comes after it."""
    steps: list[Step] = []
    for language, text in re.findall(r"^```(\w*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        if language == "sh":
            steps.append(Step(text, ""))
        else:
            assert not steps[-1].shown
            steps[-1] = Step(steps[-1].commands, text)
    return steps


def missing(shown: str, printed: str) -> str | None:
    """The first line of `shown` that `printed` does not have after the lines before it; None if it has all."""
    lines = iter([" ".join(line.split()) for line in printed.splitlines()])
    for line in shown.splitlines():
        pattern = re.escape(" ".join(line.split())).replace("…", ".*")
        if not any(re.fullmatch(pattern, found) for found in lines):
            return line
    return None


def wait_until(reached: Callable[[], bool], what: str) -> None:
    """Return when `reached`; fail after STEP_SECONDS."""
    deadline = time.monotonic() + STEP_SECONDS
    while not reached():
        assert time.monotonic() < deadline, f"waited {STEP_SECONDS:g} seconds for {what}"
        time.sleep(0.5)


@pytest.fixture
def clone(tmp_path: Path) -> Iterator[Path]:
    """A copy of the project with its packages and downloads, and without its servers; they are stopped at the end."""
    folder = tmp_path / "clone"
    for name in COPIED:
        source = PROJECT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            folder.mkdir(exist_ok=True)
            shutil.copy(source, folder)
            os.utime(folder / name, (0, 0))  # older than the packages: `make` installs none
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / ".devstack").mkdir()
    (folder / ".devstack" / "downloads").symlink_to(Home.default().downloads)
    copy_kernels(folder)
    yield folder
    subprocess.run(["make", "stop"], cwd=folder, env=environment(folder), check=True)


def copy_kernels(folder: Path) -> None:
    """Copy the compiled kernels of this checkout for `folder`."""
    compiled = cache_folder()
    assert compiled is not None
    subprocess.run(
        [sys.executable, "-m", "changefeed.native"],
        env=os.environ | {"PYTHONPATH": str(PROJECT / "include")},
        check=True,
    )
    shutil.copytree(compiled, kernel_cache(folder) / compiled.name)


def kernel_cache(folder: Path) -> Path:
    return folder.parent / "kernel-cache"


def environment(folder: Path) -> dict[str, str]:
    """That of a terminal of a person; the packages, which are installed for another folder, are those of `folder`."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(NOT_INHERITED) and name != "ARGS"
    }
    return {**inherited, "PYTHONPATH": str(folder / "include"), "CHANGEFEED_KERNEL_CACHE": str(kernel_cache(folder))}


@contextmanager
def first_terminal(folder: Path, commands: str) -> Iterator[Path]:
    """`commands`, at work until the end or Ctrl-C; the file of what they print."""
    log = folder.parent / "demo.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            ["bash", "-c", commands],
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        yield log
        process.wait(240)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGINT)
            process.wait(240)


class SecondTerminal:
    """A shell that keeps its environment from step to step."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._shell = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=environment(folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._send(f'trap \'printf "{FAILED}%s\\n" "$BASH_COMMAND"\' ERR\n')

    def __enter__(self) -> SecondTerminal:
        return self

    def __exit__(self, *_: object) -> None:
        self._shell.kill()
        self._shell.wait()

    def run(self, commands: str) -> tuple[str, list[str]]:
        """What `commands` print on both streams, and those that failed."""
        script = self.folder.parent / "step.sh"
        script.write_text(commands)
        self._send(f". {script} </dev/null\nprintf '{DONE}\\n'\n")
        assert self._shell.stdout is not None
        lines: list[str] = []
        while (line := self._shell.stdout.readline()) != f"{DONE}\n":
            assert line, f"the shell ended: {lines}"
            lines.append(line)
        failed = [line.removeprefix(FAILED).strip() for line in lines if line.startswith(FAILED)]
        of_script = [command for command in failed if not command.startswith(f". {script}")]
        return "".join(line for line in lines if not line.startswith(FAILED)), of_script

    def _send(self, text: str) -> None:
        assert self._shell.stdin is not None
        self._shell.stdin.write(text)
        self._shell.stdin.flush()


def test_commands_of_the_tutorial_print_what_it_shows(clone: Path) -> None:
    demo, *steps = steps_of(PAGE.read_text())
    airflow = AirflowServer(clone / ".devstack" / "servers" / "airflow", home=Home(clone / ".devstack"))

    def answer(path: str) -> Any:
        try:
            return airflow.read(path)
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return None

    def has_dag() -> bool:
        return answer("/api/v2/dags/changefeed_ingest__cinema") is not None

    def has_run() -> bool:
        variable = answer("/api/v2/variables/changefeed_checkpoint__shop")
        return variable is not None and json.loads(variable["value"])["window"] > 0

    with first_terminal(clone, demo.commands) as log, SecondTerminal(clone) as terminal:
        wait_until(lambda: missing(demo.shown, log.read_text()) is None, f"{demo.shown} in {log.read_text()}")
        for step in steps:
            if "airflow dags trigger" in step.commands:
                wait_until(has_dag, "the DAG of the pipeline")
            if "tail shop" in step.commands:
                wait_until(has_run, "a window of the demo's pipeline")
            started = time.monotonic()
            printed, failed = terminal.run(step.commands)
            print(f"{time.monotonic() - started:.0f} s: {step.commands.splitlines()[-1]}\n{printed}")
            assert failed == step.fails, printed
            assert missing(step.shown, printed) is None, f"{missing(step.shown, printed)!r} is not in:\n{printed}"
