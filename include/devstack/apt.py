"""Fetches and unpacks Debian packages into a private folder, without root and without a change to the machine.

apt checks the signatures of the archive and the checksum of each package. It has private lists, cache and package
status, and uses the machine's other settings (proxy, certificates).
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from devstack.errors import FetchError
from devstack.installation import run_download
from devstack.progress import download

_T = TypeVar("_T")

KEYRINGS = tuple(Path(f"/usr/share/keyrings/debian-archive-keyring.{ending}") for ending in ("gpg", "pgp"))
STANDARD_MIRROR = "http://deb.debian.org/debian"
"""Debian's redirector to a near mirror, used if the machine's sources name no mirror."""

MACHINE_SETTINGS = Path("/etc/apt/apt.conf.d")
MACHINE_STATUS = Path("/var/lib/dpkg/status")

_HOOKLESS = (
    "#clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n"
)
"""Disables the machine's hooks of an update, which act on the machine's lists and cache."""


def missing_programs() -> str | None:
    """The reason why packages cannot be fetched on this machine; None if they can."""
    missing = [program for program in ("apt-get", "apt-cache", "dpkg-deb") if shutil.which(program) is None]
    return (
        f"expected apt-get, apt-cache and dpkg-deb, but this machine has no {' and no '.join(missing)}, so Debian "
        "packages cannot be fetched"
        if missing
        else None
    )


def missing_for_debian() -> str | None:
    """The reason why packages of other Debian suites cannot be fetched; None if they can."""
    reason = missing_programs()
    if reason is None and _keyring() is None:
        return (
            f"expected Debian's signing keys in {KEYRINGS[0]}, found none: install the package debian-archive-keyring"
        )
    return reason


def _keyring() -> Path | None:
    return next((path for path in KEYRINGS if path.exists()), None)


def mirrors() -> list[str]:
    """The Debian mirrors of the machine's own sources, then the standard one."""
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
        capture_output=True,
        text=True,
        check=False,
    )
    uris = [line.strip().rstrip("/") for line in listed.stdout.splitlines()]
    return list(dict.fromkeys([*(uri for uri in uris if uri.endswith("/debian")), STANDARD_MIRROR]))


@dataclass(frozen=True)
class Source:
    """Source of packages: one `sources.list` line, or the machine's own sources if *line* is None.

    With *fresh_status*, apt assumes that nothing is installed, and fetches all dependencies, including libc. Without
    it, apt fetches only dependencies that are not installed.
    """

    line: str | None
    fresh_status: bool

    @classmethod
    def debian(cls, mirror: str, suite: str) -> Source:
        """Debian's *suite* with all dependencies, independent of the machine's own release."""
        return cls(f"deb [signed-by={_keyring()}] {mirror} {suite} main", fresh_status=True)

    @classmethod
    def machine(cls) -> Source:
        """The machine's own suite, for packages that use the machine's libraries."""
        return cls(None, fresh_status=False)


class PrivateApt:
    """An apt whose state and cache are in *folder*.

    All methods raise FetchError with the end of apt's output if apt fails.
    """

    def __init__(self, folder: Path, source: Source) -> None:
        self._folder = folder
        self._source = source
        for name in ("state/lists/partial", "cache/archives/partial", "empty", "parts"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        # A copy of the machine's status file: apt locks the folder of that file even for a download, and root owns the
        # machine's folder.
        (folder / "status").write_bytes(b"" if source.fresh_status else MACHINE_STATUS.read_bytes())
        for part in MACHINE_SETTINGS.glob("*"):
            (folder / "parts" / part.name).symlink_to(part)
        # apt reads the parts in the order of their names, after the file of APT_CONFIG. The last setting wins.
        (folder / "parts" / "zzz-devstack").write_text(_HOOKLESS + self._settings())
        (folder / "apt.conf").write_text(f'Dir::Etc::parts "{folder / "parts"}";\n')

    def _settings(self) -> str:
        folder = self._folder
        settings: dict[str, Path | str] = {
            "Dir::State": folder / "state",
            "Dir::State::status": folder / "status",
            "Dir::Cache": folder / "cache",
            "Acquire::Languages": "none",
            "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false",
            "Acquire::Retries": "3",
            "APT::Sandbox::User": "root",
            "APT::Keep-Downloaded-Packages": "true",
        }
        if self._source.line is not None:
            (folder / "sources.list").write_text(f"{self._source.line}\n")
            settings |= {
                "Dir::Etc::sourcelist": folder / "sources.list",
                "Dir::Etc::sourceparts": folder / "empty",
                "Dir::Etc::preferences": folder / "empty" / "preferences",
                "Dir::Etc::preferencesparts": folder / "empty",
            }
        return "".join(f'{name} "{value}";\n' for name, value in settings.items())

    def update(self) -> None:
        """Fetch the package lists."""
        self._run("update", "--error-on=any")

    def has(self, package: str) -> bool:
        """Whether the lists have an installable version of *package*."""
        policy = self._run("policy", package, program="apt-cache")
        return "Candidate:" in policy and "Candidate: (none)" not in policy

    def fetch(self, packages: Sequence[str], what: str) -> list[Path]:
        """Download *packages* and their dependencies; *what* is the title of the progress display."""
        install = ["install", "--yes", "--no-install-recommends", "--reinstall", *packages]
        uris = [line for line in self._run(*install, "--print-uris").splitlines() if line.startswith("'")]
        fields = [shlex.split(line) for line in uris]
        total = sum(int(field[2]) for field in fields)
        archives = self._folder / "cache" / "archives"
        with download(what, total) as progress:
            run_download(
                ["apt-get", *install, "--download-only"],
                what=what,
                folder=archives,
                log=self._folder / "apt.log",
                progress=progress,
                environment=self._environment(),
            )
        fetched = [archives / field[1] for field in fields]
        missing = [path.name for path in fetched if not path.exists()]
        if missing:
            raise FetchError(f"{what}: apt reported success, but {', '.join(missing)} is not in {archives}")
        return fetched

    def fetch_alone(self, package: str, what: str) -> Path:
        """Download *package* without its dependencies; *what* is the title of the progress display."""
        (line,) = (line for line in self._run("download", package, "--print-uris").splitlines() if line.startswith("'"))
        _, name, size, *_ = shlex.split(line)
        archives = self._folder / "cache" / "archives"
        with download(what, int(size)) as progress:
            run_download(
                ["apt-get", "download", package],
                what=what,
                folder=archives,
                log=self._folder / "apt.log",
                progress=progress,
                environment=self._environment(),
                inside=True,
            )
        return archives / name

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "APT_CONFIG": str(self._folder / "apt.conf"), "LC_ALL": "C.UTF-8"}

    def _run(self, *arguments: str, program: str = "apt-get") -> str:
        done = subprocess.run(
            [program, "-q", *arguments],
            env=self._environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise FetchError(
                f"{program} {shlex.join(arguments)} failed with exit code {done.returncode}. Check the network "
                f"and the machine's apt sources:\n{(done.stdout + done.stderr)[-2000:]}"
            )
        return done.stdout


def unpack(packages: Sequence[Path], root: Path) -> None:
    """Unpack *packages* into *root*, without running their scripts."""
    root.mkdir(parents=True, exist_ok=True)
    for package in packages:
        done = subprocess.run(
            ["dpkg-deb", "--extract", str(package), str(root)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise FetchError(f"{package.name} could not be unpacked into {root}: {done.stderr.strip()}")


def fetch_from_debian(suite: str, what: str, scratch: Path, fetch: Callable[[PrivateApt], _T]) -> _T:
    """The result of *fetch* with an apt of Debian's *suite* below *scratch*, from the first mirror that works.

    Raises FetchError with *what* and each mirror's error if none works.
    """
    if (reason := missing_for_debian()) is not None:
        raise FetchError(f"{what}: {reason}")
    failures = []
    for mirror in mirrors():
        apt = PrivateApt(Path(tempfile.mkdtemp(prefix="mirror.", dir=scratch)), Source.debian(mirror, suite))
        try:
            apt.update()
            return fetch(apt)
        except FetchError as error:
            failures.append(f"{mirror}: {error}")
    raise FetchError(f"{what} could not be fetched from any mirror.\n" + "\n".join(failures))


def unpack_from_debian(suite: str, packages: Sequence[str], what: str, root: Path) -> None:
    """Unpack *packages* of Debian's *suite* and all dependencies, including the C library, into *root*."""
    with tempfile.TemporaryDirectory(prefix="apt.", dir=root.parent) as scratch:
        unpack(fetch_from_debian(suite, what, Path(scratch), lambda apt: apt.fetch(packages, what)), root)


def loader(root: Path, *folders: Path) -> list[str]:
    """The beginning of a command line that runs a program with the libraries in *folders* and those unpacked in *root*.

    The machine's C library may be too old for the program. Raises FetchError if *root* has no dynamic loader.
    """
    loaders = sorted((root / "usr" / "lib").glob("*/ld-linux*.so.*")) or sorted((root / "lib").glob("*/ld-linux*.so.*"))
    if not loaders:
        raise FetchError(
            f"expected the dynamic loader in {root}/usr/lib/*/, found none: this processor is not supported, or "
            "the folder is damaged. Run `python -m devstack clean --downloads`, or name a server of "
            "your own in MYSQL_URL."
        )
    libraries = (*folders, root / "usr" / "lib" / loaders[0].parent.name, loaders[0].parent, root / "usr" / "lib")
    return [str(loaders[0]), "--library-path", ":".join(map(str, dict.fromkeys(libraries)))]
