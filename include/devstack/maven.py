"""Fetches jars from Maven Central with the Ivy of pyspark, and compares each jar with a pinned SHA-256."""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from devstack.errors import FetchError
from devstack.installation import run_download
from devstack.progress import download

BLOCK = 1 << 20

_SHORT_RUN = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_WITHOUT_POMS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <property name="ivy.checksums" value=""/>
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false" useMavenMetadata="false"/></resolvers>
</ivysettings>
"""
"""Ivy's settings to fetch only jars. Their SHA-1 sums are not fetched, because each jar's SHA-256 is pinned."""


@dataclass(frozen=True)
class Artifact:
    """Maven coordinates."""

    group: str
    name: str
    version: str

    @property
    def jar(self) -> str:
        """File name of the jar."""
        return f"{self.name}-{self.version}.jar"


def read_checksums(path: Path) -> dict[str, str]:
    """SHA-256 by file name, from a file in the format of `sha256sum`."""
    return {name: digest for digest, name in _pairs(path)}


def read_artifacts(path: Path) -> dict[Artifact, str]:
    """SHA-256 by artifact, from a file in the format of `sha256sum` with Maven coordinates as names."""
    return {Artifact(*coordinates.split(":")): digest for digest, coordinates in _pairs(path)}


def _pairs(path: Path) -> list[tuple[str, str]]:
    lines = (line.split() for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return [(digest, name) for digest, name in lines]


def retrieve(
    java: Path,
    artifacts: Sequence[Artifact],
    target: Path,
    *,
    what: str,
    size: int,
    checksums: Mapping[str, str],
    transitive: bool = True,
) -> None:
    """Fetch the jars of *artifacts*, and if *transitive* their dependencies, into *target*.

    If it is not *transitive*, Ivy reads no POM files, and needs a fifth of the time.

    *what* and *size*, the approximate number of bytes, are for the progress display. Raises FetchError unless the
    result is exactly the files of *checksums*, with those SHA-256 sums.
    """
    with tempfile.TemporaryDirectory(prefix="ivy.", dir=target.parent) as scratch:
        folder = Path(scratch)
        ivy_file = folder / "ivy.xml"
        ivy_file.write_text(_ivy_file(artifacts, transitive))
        pattern = f"{folder / 'jars'}/[artifact]-[revision].[ext]"
        command = [str(java), *_SHORT_RUN, "-jar", str(_ivy_jar()), "-cache", str(folder / "cache")]
        if not transitive:
            (folder / "settings.xml").write_text(_WITHOUT_POMS)
            command += ["-settings", str(folder / "settings.xml")]
        command += ["-ivy", str(ivy_file), "-confs", "default", "-retrieve", pattern]
        with download(what, size) as progress:
            run_download(command, what=what, folder=folder / "cache", log=folder / "ivy.log", progress=progress)
        check_jars(folder / "jars", checksums, what)
        for jar in (folder / "jars").iterdir():
            shutil.move(jar, target / jar.name)


def _ivy_file(artifacts: Sequence[Artifact], transitive: bool) -> str:
    dependencies = "".join(
        f"<dependency org={quoteattr(artifact.group)} name={quoteattr(artifact.name)} "
        f'rev={quoteattr(artifact.version)} conf="default->default" transitive="{str(transitive).lower()}"/>'
        for artifact in artifacts
    )
    return (
        '<ivy-module version="2.0"><info organisation="changefeed" module="devstack"/>'
        '<configurations><conf name="default"/></configurations>'
        f"<dependencies>{dependencies}</dependencies></ivy-module>"
    )


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    folder = Path(spec.origin).parent / "jars" if spec is not None and spec.origin else None
    jars = sorted(folder.glob("ivy-*.jar")) if folder is not None else []
    if not jars:
        raise FetchError(
            "expected the Ivy jar in pyspark's folder 'jars', found none: pyspark is not installed completely. "
            "Run `make setup`."
        )
    return jars[-1]


def check_jars(folder: Path, checksums: Mapping[str, str], what: str) -> None:
    """Raise FetchError unless *folder* holds exactly the files of *checksums*, with those SHA-256 sums."""
    digests = {path.name: sha256(path) for path in folder.iterdir()}
    differing = sorted(name for name in digests.keys() & checksums.keys() if digests[name] != checksums[name])
    missing = sorted(checksums.keys() - digests.keys())
    unknown = sorted(digests.keys() - checksums.keys())
    if differing or missing or unknown:
        raise FetchError(
            f"{what}: the fetched jars are not the pinned ones (other content: {differing}, missing: {missing}, "
            f"unknown: {unknown}). They were deleted. Use a mirror that does not change files."
        )


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
