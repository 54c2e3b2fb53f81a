"""Java 17 or 21: the machine's own, or else Debian's in a private folder."""

from __future__ import annotations

import os
import re
import shutil
import ssl
import subprocess
import tempfile
import warnings
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import NoEncryption
from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore

from devstack.apt import PrivateApt, Source, missing_programs, unpack
from devstack.errors import FetchError
from devstack.home import Home
from devstack.installation import install_once

VERSIONS = (17, 21)
ADVICE = "Install Java 17 or 21 (Debian and Ubuntu: openjdk-17-jre-headless), or name its folder in JAVA_HOME."

_VERSION = re.compile(r'version "(\d+)')
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SYSTEM_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


def fetch_java(home: Home) -> Path:
    """A `java` program of one of VERSIONS: the machine's own, or else from the machine's Debian release, fetched once.

    Raises FetchError if there is none and it cannot be fetched.
    """
    installed = find_java()
    if installed is not None:
        return installed
    reason = missing_programs()
    if reason is not None:
        raise FetchError(f"expected Java 17 or 21 in JAVA_HOME or PATH, found none; {reason}. {ADVICE}")
    return _program(install_once(home, "java", _build))


def find_java() -> Path | None:
    """The `java` program of JAVA_HOME, or else of PATH, that is one of VERSIONS; None if there is none."""
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
    version = _VERSION.search(done.stderr)
    return int(version[1]) if version and done.returncode == 0 else None


def _build(target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="apt.", dir=target) as scratch:
        apt = PrivateApt(Path(scratch), Source.machine())
        apt.update()
        package = next((name for name in map(_package, VERSIONS) if apt.has(name)), None)
        if package is None:
            names = " nor ".join(map(_package, VERSIONS))
            raise FetchError(f"the machine's package sources have neither {names}. {ADVICE}")
        unpack(apt.fetch([package], f"Java ({package})"), target)
    _point_links_below(target)
    java = _program(target)
    _write_trust_store(java.parent.parent / "lib" / "security" / "cacerts")
    if java_version(java) not in VERSIONS:
        raise FetchError(f"the Java of {package} was unpacked, but does not run on this machine. {ADVICE}")


def _package(version: int) -> str:
    return f"openjdk-{version}-jre-headless"


def _program(root: Path) -> Path:
    programs = sorted((root / "usr" / "lib" / "jvm").glob("java-*-openjdk-*/bin/java"))
    if not programs:
        raise FetchError(
            f"expected a java in {root}/usr/lib/jvm, found none. Run `python -m devstack clean --downloads`. {ADVICE}"
        )
    return programs[0]


def _point_links_below(root: Path) -> None:
    # The package's links into /etc must lead to the unpacked /etc. They are relative, because the folder is renamed
    # later.
    for link in [path for path in (root / "usr" / "lib" / "jvm").rglob("*") if path.is_symlink()]:
        destination = link.readlink()
        if destination.is_absolute():
            link.unlink()
            link.symlink_to(os.path.relpath(f"{root}{destination}", link.parent))


def _write_trust_store(path: Path) -> None:
    """Write the machine's certificate authorities as a Java trust store, which the package's script would create."""
    chosen = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile or str(_SYSTEM_CERTIFICATES)
    if not Path(chosen).is_file():
        raise FetchError(
            f"expected the machine's certificates in {chosen}, for Java, found none: install ca-certificates"
        )
    certificates = _certificates(Path(chosen).read_bytes())
    entries = [PKCS12Certificate(certificate, str(number).encode()) for number, certificate in enumerate(certificates)]
    path.unlink(missing_ok=True)
    path.write_bytes(serialize_java_truststore(entries, NoEncryption()))


def _certificates(text: bytes) -> list[x509.Certificate]:
    # Invalid certificates, such as some old roots, are skipped.
    certificates = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for pem in _PEM.findall(text):
            try:
                certificates.append(x509.load_pem_x509_certificate(pem))
            except ValueError:
                continue
    return certificates
