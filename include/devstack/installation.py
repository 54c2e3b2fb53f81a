"""Software that is either installed completely or not at all."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from devstack.errors import FetchError
from devstack.home import Home
from devstack.lock import exclusive
from devstack.progress import Download, bytes_below

TAIL_LINES = 15


def install_once(home: Home, name: str, build: Callable[[Path], None]) -> Path:
    """Folder `downloads/<name>`, which *build* fills if it is not there yet.

    *build* gets an empty folder and must raise if it cannot complete it; only a completed folder gets its
    name, by a rename. Two processes asking at once: the second waits and finds it done.
    """
    target = home.downloads / name
    if target.is_dir():
        return target
    with exclusive(home.downloads / f".{name}.lock", f"{name}: another process is fetching it; waiting"):
        if target.is_dir():
            return target
        for stale in home.downloads.glob(f".{name}.partial.*"):
            shutil.rmtree(stale)  # its process is gone: we hold the lock
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
    shown: Download,
    environment: Mapping[str, str] | None = None,
    inside: bool = False,
) -> None:
    """Run *command*, reporting to *shown* how many bytes it has put below *folder*; *inside* says to run it there.

    Raises FetchError with the end of its output if it fails.
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
                shown.arrived(bytes_below(folder) - before)
                time.sleep(0.2)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    if process.returncode != 0:
        lines = log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        raise FetchError(
            f"{what} could not be fetched: {Path(command[0]).name} ended with exit code {process.returncode}. "
            "Check the network and run it again. The end of its output:\n" + "\n".join(lines)
        )
