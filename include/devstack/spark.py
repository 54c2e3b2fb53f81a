"""Installs pyspark, which is larger than all other packages together, while `make demo` fetches other software.

`make setup` installs it with the other packages.
"""

from __future__ import annotations

import importlib
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from devstack.errors import FetchError
from devstack.home import PROJECT, Home
from devstack.lock import hold_lock

LOCK_FILE = PROJECT / "requirements-spark.lock"
PACKAGES_LOCK = "packages.lock"
"""Held while packages are installed, and by programs that read the metadata of all packages."""

_SCRATCH = ".spark.partial."
_STORED = "pyspark:--build-option=--compression=stored"
"""uv's option not to compress the wheel that it builds and unpacks at once: that would take half a minute."""


def fetch_spark(home: Home) -> None:
    """Install pyspark in the version of LOCK_FILE, with a check of its hash, unless this Python has it.

    Raises FetchError if it cannot be fetched.
    """
    if _is_installed():
        return
    with hold_lock(home.downloads / ".spark.lock", "Spark: waiting for another process that installs it"):
        if _is_installed():
            return
        for stale in home.downloads.glob(f"{_SCRATCH}*"):
            shutil.rmtree(stale)  # the process that created it has ended: this one holds the lock
        began = time.monotonic()
        print("Spark (pyspark, PyPI): 434 MB to fetch", flush=True)
        # uv keeps what it has built, so that the installation itself takes a part of a second.
        with tempfile.TemporaryDirectory(prefix=_SCRATCH, dir=home.downloads) as scratch:
            _install("--target", scratch)
        with hold_lock(home.root / PACKAGES_LOCK, "Spark: fetched; waiting until Airflow's database is created"):
            _install()
        print(f"Spark (pyspark, PyPI): done in {time.monotonic() - began:.0f} s", flush=True)


def _is_installed() -> bool:
    importlib.invalidate_caches()
    try:
        return bool(version("pyspark"))
    except PackageNotFoundError:
        return False


def _install(*options: str) -> None:
    command = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--python", sys.executable]
    command += ["--no-deps", "--require-hashes", "--requirement", str(LOCK_FILE), "--config-settings-package", _STORED]
    try:
        done = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise FetchError(
            f"expected uv in {command[0]}, to install pyspark, found none. Nothing was installed. Run `make setup`"
        ) from None
    if done.returncode != 0:
        raise FetchError(
            f"pyspark could not be installed: uv ended with exit code {done.returncode}. Check the network, and try "
            f"again. The end of its output:\n{done.stderr[-2000:]}"
        )
