"""The line of progress: rows, rate and time left on a terminal, nothing without one; Spark's output in a file."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from changefeed.spark.progress_line import Parts, Progress, log_text, read_log_text

INCLUDE = Path(__file__).parents[3] / "include"
SLOW = """
import logging, sys, time
from changefeed.cli.main import _StderrLines
from changefeed.spark.progress_line import Progress, progress_line
logging.basicConfig(level="INFO", handlers=[_StderrLines()])
with progress_line("shop: snapshot", lambda: Progress(250, 1000, "rows", 250)):
    print("on stdout", flush=True)
    time.sleep(0.5)
    logging.getLogger("x").info("a log line")
    time.sleep(0.3)
"""
PREFIX = "INFO changefeed.spark.progress: "
"""Of the lines of `changefeed.spark.progress` in a job's log."""
FAILING = """
import subprocess, sys
from changefeed.spark.session import jvm_output
with jvm_output() as file:
    subprocess.run([sys.executable, "-c", "print('java noise')"], stdout=file, check=True)
    if sys.argv[1] == "fails":
        raise ValueError("no")
"""

NO_JAVA = """
from changefeed.settings.new_pipeline import NewPipeline
from changefeed.spark.session import session
with session(NewPipeline().pipeline(), "json"):
    pass
"""
SPARK_SUBMIT = "#!/bin/sh\necho 'java noise' >&2\nexit 1\n"


@pytest.mark.parametrize(
    ("progress", "seconds", "line"),
    [
        (Progress(0, 0), 3.0, ""),
        (Progress(3, 12), 6.0, "3 of 12 tasks, 0:18 left"),
        (Progress(3, 12, rows=0), 6.0, "3 of 12 tasks, 0 rows, 0:18 left"),
        (Progress(3, 12, rows=60_000), 6.0, "3 of 12 tasks, 60,000 rows, 10,000 rows/s, 0:18 left"),
        (Progress(3, 12, "tasks", 60, "messages"), 6.0, "3 of 12 tasks, 60 messages, 10 messages/s, 0:18 left"),
        (
            Progress(0, 2, "tasks", 60, "messages", Parts("slices", 12, 3)),
            6.0,
            "3 of 12 slices, 60 messages, 10 messages/s, 0:18 left",
        ),
        (Progress(1, 2, parts=Parts("slices", 12, None)), 6.0, "1 of 2 tasks, 0:06 left"),
        (Progress(12, 12, rows=5), 0.1, "12 of 12 tasks, 5 rows"),
        (Progress(1, 7201, "rows", 1), 1.0, "1 of 7,201 rows, 1 rows/s, 2:00:00 left"),
        (Progress(9, 5, "rows", 9), 3.0, "9 of 9 rows, 3 rows/s"),
        (Progress(9, 0, "rows", 9), 3.0, "9 rows, 3 rows/s"),
    ],
)
def test_progress_has_units_rows_rate_and_time_left(progress: Progress, seconds: float, line: str) -> None:
    assert progress.describe(seconds) == line


@pytest.mark.parametrize("path", ["ingest/scouting.py", "ingest/window_run.py"])
def test_each_stage_of_a_job_is_read_from_its_log(path: str) -> None:
    stages = re.findall(r'show_progress\(\w+, "([^"]+)"', (INCLUDE / "changefeed" / path).read_text())
    assert stages
    many = (None, Parts("slices", 1200, 7), Parts("topic-partitions", 40, None))
    for stage, parts in product(stages, many):
        progress = Progress(3, 12, "tasks", 60_000, "messages", parts)
        assert read_log_text(f"{PREFIX}{log_text(stage, progress)}") == (stage, progress)


@pytest.mark.parametrize(
    "line",
    [
        "decode: 1 of 2 tasks done",
        f"INFO other: {PREFIX}decode: 1 of 2 tasks done",
        f"{PREFIX}decode: 1 of 2 tasks done, and more",
        f"{PREFIX}steal: 1 of 2 tasks done",
        f"{PREFIX}decode: 3 of 2 tasks done",
        f"{PREFIX}decode: 1 of {'9' * 5000} tasks done",
        f"{PREFIX}decode: 1 of 2 tasks done, ,,, messages so far",
        f"{PREFIX}decode: 1 of 2 tasks done, 5 of 4 slices",
        f"{PREFIX}decode: 1 of 2 tasks done, 5 of 6 loaves",
    ],
)
def test_no_other_line_is_taken_for_a_stage(line: str) -> None:
    assert read_log_text(line) is None


def _run(code: str, *arguments: str, temporary: Path, **variables: str) -> tuple[subprocess.CompletedProcess[str], str]:
    """The process, whose stdout is a pipe, and what its stderr, a terminal, got."""
    reader, terminal = pty.openpty()
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(INCLUDE), "TERM": "xterm", "COLUMNS": "60"}
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env={**environment, "TMPDIR": str(temporary), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
        check=False,
    )
    os.write(terminal, b"end")  # there is something to read in any case
    shown = os.read(reader, 100_000).decode()
    os.close(terminal)
    os.close(reader)
    return done, shown


def test_line_is_on_the_terminal_of_stderr_only(tmp_path: Path) -> None:
    done, shown = _run(SLOW, temporary=tmp_path)
    assert done.stdout == "on stdout\n"
    assert "shop: snapshot: 250 of 1,000 rows, " in shown
    assert "left" in shown
    assert "\x1b[2KINFO:x:a log line" in shown or "\nINFO:x:a log line" in shown or "\rINFO:x:a log line" in shown
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(INCLUDE)}
    piped = subprocess.run([sys.executable, "-c", SLOW], env=environment, capture_output=True, text=True, check=True)
    assert (piped.stdout, piped.stderr) == ("on stdout\n", "INFO:x:a log line\n")


def test_output_of_java_is_in_a_file_that_the_error_names(tmp_path: Path) -> None:
    done, shown = _run(FAILING, "fails", temporary=tmp_path)
    (file,) = tmp_path.glob("changefeed-spark-*.log")
    assert (done.returncode, file.read_text()) == (1, "java noise\n")
    assert f"The output of Spark and Java is in {file}" in shown.replace("\r\n", "\n")
    file.unlink()
    assert _run(FAILING, "succeeds", temporary=tmp_path)[1] == "end"
    assert not list(tmp_path.iterdir())


def test_java_that_does_not_start_writes_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    submit = tmp_path / "bin" / "spark-submit"
    submit.write_text(SPARK_SUBMIT)
    submit.chmod(0o700)
    done, shown = _run(NO_JAVA, temporary=tmp_path, SPARK_HOME=str(tmp_path))
    (file,) = tmp_path.glob("changefeed-spark-*.log")
    assert (done.returncode, file.read_text()) == (1, "java noise\n")
    assert f"The output of Spark and Java is in {file}" in shown.replace("\r\n", "\n")
    assert "java noise" not in shown
