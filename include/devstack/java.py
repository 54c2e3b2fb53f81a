"""Java 17 or 21: the machine's own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from devstack.errors import FetchError
from devstack.home import Home

VERSIONS = (17, 21)
_VERSION = re.compile(r'version "(\d+)')


def find_java() -> Path | None:
    """The `java` program of JAVA_HOME or else of PATH if it is one of VERSIONS; None otherwise."""
    home = os.environ.get("JAVA_HOME")
    candidates = [str(Path(home) / "bin" / "java")] if home else []
    candidates += [path] if (path := shutil.which("java")) else []
    return next((Path(path) for path in candidates if java_version(Path(path)) in VERSIONS), None)


def java_version(java: Path) -> int | None:
    """Major version of the program *java*; None if it does not run."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    found = _VERSION.search(done.stderr)
    return int(found[1]) if found and done.returncode == 0 else None


def fetch_java(home: Home) -> Path:
    """A `java` program of one of VERSIONS.

    Raises FetchError with what to install if there is none.
    """
    found = find_java()
    if found is None:
        raise FetchError(f"Java 17 or 21 was looked for and not found in {home}: install openjdk-17-jre-headless")
    return found
