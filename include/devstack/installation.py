"""Installs software atomically: completely, or not at all."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from devstack.errors import FetchError
from devstack.home import Home
from devstack.lock import hold_lock
from devstack.progress import Download, bytes_below

TAIL_LINES = 15


def install_once(home: Home, name: str, build: Callable[[Path], None]) -> Path:
    """The folder `downloads/<name>`, filled by *build* if it does not exist.

    *build* gets an empty folder, and must raise if it cannot complete it. The complete folder is renamed to its final
    name. If two processes install the same name, the second one waits for the first.
    """
    target = home.downloads / name
    if target.is_dir():
        return target
    with hold_lock(home.downloads / f".{name}.lock", f"{name}: waiting for another process that fetches it"):
        if target.is_dir():
            return target
        for stale in home.downloads.glob(f".{name}.partial.*"):
            shutil.rmtree(stale)  # the process that created it has ended: this one holds the lock
        partial = Path(tempfile.mkdtemp(prefix=f".{name}.partial.", dir=home.downloads))
        partial.chmod(0o755)
        try:
            build(partial)
            partial.rename(target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    return target


def run_download(
    command: Sequence[str],
    *,
    what: str,
    folder: Path,
    log: Path,
    progress: Download,
    environment: Mapping[str, str] | None = None,
    inside: bool = False,
) -> None:
    """Run *command*, and report to *progress* how many bytes it has written below *folder*.

    With *inside* it runs in *folder*. Its output goes to the file *log*. Raises FetchError with the end of the output
    if the command fails.
    """
    before = bytes_below(folder)
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            cwd=folder if inside else None,
        )
        try:
            while process.poll() is None:
                progress.update(bytes_below(folder) - before)
                time.sleep(0.2)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode != 0:
        lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        raise FetchError(
            f"{what} could not be fetched: {Path(command[0]).name} ended with exit code {process.returncode}. "
            "Check the network, and try again. The end of its output:\n" + "\n".join(lines)
        )
