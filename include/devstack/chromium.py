"""Chromium and its driver for the browser tests: the machine's own, or Debian's in a private folder."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from devstack.apt import PrivateApt, Source, missing_programs, unpack
from devstack.errors import FetchError
from devstack.home import Home
from devstack.installation import install_once

PACKAGES = ("chromium", "chromium-driver")
ADVICE = f"Install Chromium and its driver (Debian: apt-get install {' '.join(PACKAGES)})."


@dataclass(frozen=True)
class Chromium:
    """The programs, and their LD_LIBRARY_PATH ``libraries``, which is empty for the machine's own."""

    browser: Path
    driver: Path
    libraries: str = ""


def fetch_chromium(home: Home) -> Chromium:
    """The machine's Chromium, or else Chromium of the machine's Debian release, which is fetched once.

    Raises FetchError if there is none and it cannot be fetched.
    """
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if browser and driver:
        return Chromium(Path(browser), Path(driver))
    reason = missing_programs()
    if reason is not None:
        raise FetchError(f"expected Chromium in PATH, found none; {reason}. {ADVICE}")
    return _software(install_once(home, "chromium", _build))


def _build(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="apt.", dir=target) as scratch:
        apt = PrivateApt(Path(scratch), Source.machine())
        apt.update()
        if not all(apt.has(package) for package in PACKAGES):
            raise FetchError(f"the machine's package sources have no {' or no '.join(PACKAGES)}. {ADVICE}")
        unpack(apt.fetch(PACKAGES, "Chromium"), target)
    software = _software(target)
    done = subprocess.run(
        [software.browser, "--version"],
        env={"LD_LIBRARY_PATH": software.libraries},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise FetchError(f"the unpacked Chromium does not run on this machine: {done.stderr.strip()[:500]}. {ADVICE}")


def _software(root: Path) -> Chromium:
    # Not /usr/bin/chromium, which is a script with absolute paths.
    folders = sorted({path.parent for path in (root / "usr" / "lib").rglob("*.so*")})
    libraries = ":".join(str(folder) for folder in folders if "gdk-pixbuf" not in str(folder))
    return Chromium(root / "usr/lib/chromium/chromium", root / "usr/bin/chromedriver", libraries)
