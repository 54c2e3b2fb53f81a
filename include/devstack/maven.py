"""Jars of Maven Central, by the Ivy that pyspark brings, each compared with a pinned SHA-256."""

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


@dataclass(frozen=True)
class Artifact:
    """Coordinates in Maven's sense."""

    group: str
    name: str
    version: str


def read_checksums(path: Path) -> dict[str, str]:
    """File name to SHA-256, from a file as `sha256sum` writes it."""
    pairs = (line.split() for line in path.read_text().splitlines() if line and not line.startswith("#"))
    return {name: digest for digest, name in pairs}


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
    """Put the jars of *artifacts* (and, if *transitive*, all they depend on) into *target*.

    *size* is about how many bytes that is, for the progress. Exactly the files of *checksums* must come
    out, with those SHA-256 sums; anything else is a FetchError.
    """
    with tempfile.TemporaryDirectory(prefix="ivy.", dir=target.parent) as scratch:
        folder = Path(scratch)
        wanted = folder / "ivy.xml"
        wanted.write_text(_ivy_file(artifacts, transitive))
        pattern = f"{folder / 'jars'}/[artifact]-[revision].[ext]"
        command = [str(java), "-jar", str(_ivy_jar()), "-cache", str(folder / "cache"), "-ivy", str(wanted)]
        command += ["-confs", "default", "-retrieve", pattern]
        with download(what, size) as shown:
            run_download(command, what=what, folder=folder / "cache", log=folder / "ivy.log", shown=shown)
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
            "the Ivy jar that fetches from Maven Central was looked for in pyspark's folder 'jars' and is not "
            "there: pyspark is not installed completely. Run `make setup`."
        )
    return jars[-1]


def check_jars(folder: Path, checksums: Mapping[str, str], what: str) -> None:
    """Raises FetchError unless *folder* holds exactly the files of *checksums*, with those SHA-256 sums."""
    digests = {path.name: sha256(path) for path in folder.iterdir()}
    differing = sorted(name for name in digests.keys() & checksums.keys() if digests[name] != checksums[name])
    missing = sorted(checksums.keys() - digests.keys())
    unknown = sorted(digests.keys() - checksums.keys())
    if differing or missing or unknown:
        raise FetchError(
            f"{what}: the fetched jars are not the pinned ones (other content: {differing}, missing: {missing}, "
            f"unknown: {unknown}). They were thrown away. A mirror that changes files must not be used."
        )


def sha256(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            digest.update(block)
    return digest.hexdigest()
