"""The benchmarks' meter counts the CPU time of each process once, also of those for which no process waits."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[1] / "bench"
BURN = "import pathlib, sys, time\nwhile time.process_time() < 0.4: pass\n"
END = "pathlib.Path(sys.argv[1]).touch()\n"
ORPHAN = "import os\nif os.fork(): os._exit(0)\n"
"""Its parent ends first, as a JVM before its Python daemon."""
UNWAITED = "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\nif os.fork(): time.sleep(5)\n"
"""The kernel adds the time of the child to nobody. The child waits before it ends, as a worker for tasks."""
MEASURE = f"""
import json, pathlib, subprocess, sys, time
sys.path.insert(0, {str(BENCH)!r})
from process_use import FamilyMeter, adopt_orphans
code, end = sys.argv[1:]
adopt_orphans()
script = "read go; " + '"$@"; exec sleep 600'
server = subprocess.Popen(["/bin/sh", "-c", script, "sh", sys.executable, "-c", code, end], stdin=subprocess.PIPE)
with FamilyMeter([server.pid], lambda command: b"python" in command) as meter:
    server.stdin.write(b"go\\n")
    server.stdin.flush()
    while not pathlib.Path(end).exists():
        time.sleep(0.1)
    time.sleep(1)
server.kill()
print(json.dumps([meter.used, meter.used_by_chosen]))
"""


@pytest.mark.extended
@pytest.mark.parametrize(
    "code",
    [
        BURN + END,
        ORPHAN + BURN + END,
        f"{UNWAITED}else:\n    exec({BURN!r})\n    time.sleep(2)\n    exec({END!r})  # changefeed.spark.daemon",
    ],
    ids=["waited", "orphan", "unwaited"],
)
def test_meter_counts_each_process_once(tmp_path: Path, code: str) -> None:
    command = [sys.executable, "-c", MEASURE, code, str(tmp_path / "end")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    used, of_python = json.loads(done.stdout)
    assert 0.35 < used < 0.7
    assert 0 < of_python <= used + 0.02
