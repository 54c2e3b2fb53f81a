"""A job ends in order when the process that started it has ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from changefeed.spark.task_watch import TASK_PROCESSES

JOB = """
import os, sys, time
from pathlib import Path
from changefeed.spark import task_watch
folder = Path(sys.argv[1])
task_watch.END_SECONDS = 1 if "stuck" in sys.argv else 240
if "no-pidfd" in sys.argv:
    del os.pidfd_open
task_watch.end_with_task()
try:
    (folder / "partial").write_text(str(os.getpid()))
    (folder / "partial").rename(folder / "job")
    time.sleep(60)
finally:
    time.sleep(60 if "stuck" in sys.argv else 0)
    (folder / "ended").write_text("in order")
"""
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {JOB!r}, *sys.argv[1:]])"


@pytest.fixture
def task() -> Iterator[subprocess.Popen[bytes]]:
    """A process that represents a task; the job is not its child."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def start_job(folder: Path, *pids: int, how: str = "", script: str = JOB) -> subprocess.Popen[bytes]:
    environment = {**os.environ, TASK_PROCESSES: ",".join(map(str, pids))}
    job = subprocess.Popen([sys.executable, "-c", script, folder, how], env=environment)
    while not (folder / "job").exists() and job.poll() is None:
        time.sleep(0.01)
    return job


@pytest.mark.parametrize("how", ["", "no-pidfd"])
def test_job_ends_in_order_when_one_of_its_task_s_processes_is_killed(
    task: subprocess.Popen[bytes], tmp_path: Path, how: str
) -> None:
    """A kernel before Linux 5.3, or a container, may have no pidfd_open. The task is a zombie: nobody waits for it."""
    job = start_job(tmp_path, os.getpid(), task.pid, how=how)
    task.kill()
    assert job.wait(300) == 128 + signal.SIGTERM
    assert (tmp_path / "ended").read_text() == "in order"


def test_job_whose_task_ended_before_it_began_ends_in_order(task: subprocess.Popen[bytes], tmp_path: Path) -> None:
    task.kill()
    task.wait()
    job = start_job(tmp_path, os.getpid(), task.pid)
    assert job.wait(300) == 128 + signal.SIGTERM


def test_job_that_does_not_end_in_order_is_killed(task: subprocess.Popen[bytes], tmp_path: Path) -> None:
    job = start_job(tmp_path, task.pid, how="stuck")
    task.kill()
    assert job.wait(300) == -signal.SIGALRM
    assert not (tmp_path / "ended").exists()


def test_job_continues_while_its_task_lives_and_ends_on_sigterm(task: subprocess.Popen[bytes], tmp_path: Path) -> None:
    job = start_job(tmp_path, task.pid)
    with pytest.raises(subprocess.TimeoutExpired):
        job.wait(0.2)
    job.terminate()
    assert job.wait(300) == 128 + signal.SIGTERM
    assert (tmp_path / "ended").read_text() == "in order"


def test_job_ends_when_its_parent_is_killed_as_under_spark_submit(
    task: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    """The parent is a process between task and job, such as the JVM."""
    parent = start_job(tmp_path, task.pid, script=PARENT)
    job = psutil.Process(int((tmp_path / "job").read_text()))
    parent.kill()
    parent.wait()
    job.wait(300)
    assert (tmp_path / "ended").read_text() == "in order"
