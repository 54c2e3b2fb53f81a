"""Kernels that root compiled for all users, as in an image: who may run them, and that nobody else's are run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from changefeed.native.compiled import GENERIC, cache_key

PACKAGE = Path(__file__).parents[2] / "include" / "changefeed"
NOBODY = 65534
LOAD = "import changefeed.native.scatter as module; print(len(module.scatter._cache_hits))"
"""Prints 1 if the kernel was loaded, and 0 if it was compiled."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with one kernel for any CPU."""
    root = tmp_path_factory.mktemp("generic")
    environment = {
        **os.environ,
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "CHANGEFEED_KERNEL_CACHE": str(root),
        "XDG_CACHE_HOME": str(root),
    }
    subprocess.run([sys.executable, "-c", LOAD], env=environment, check=True, capture_output=True)
    return root / cache_key(PACKAGE, GENERIC)


@pytest.fixture
def system(compiled: Path) -> Iterator[Path]:
    """A system cache, in a folder that all users can reach, with nothing but this kernel."""
    with TemporaryDirectory() as made:
        Path(made).chmod(0o755)
        root = Path(made) / "kernels"
        shutil.copytree(compiled, root / compiled.name, ignore=shutil.ignore_patterns("lock"))
        for path in (root, *root.rglob("*")):
            path.chmod(0o755 if path.is_dir() else 0o644)
        yield root


def load(system: Path, tmp_path: Path, *prefix: str) -> subprocess.CompletedProcess[str]:
    """Load the kernel with ``system`` as the first cache, and no folder that can be written to."""
    open_folder = tmp_path / "open"
    open_folder.mkdir(exist_ok=True)
    open_folder.chmod(0o777)  # no kernels are stored in it
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(PACKAGE.parent),
        "CHANGEFEED_KERNEL_CACHE": str(system),
        "XDG_CACHE_HOME": "/dev/null/none",
        "TMPDIR": str(open_folder),
        "HOME": str(tmp_path),
    }
    return subprocess.run(
        [*prefix, sys.executable, "-c", LOAD], env=environment, capture_output=True, text=True, check=False
    )


READ_ONLY = "-all,+dac_read_search"
OTHER_USER = (
    *("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"),
    *(f"--bounding-set={READ_ONLY}", f"--inh-caps={READ_ONLY}", f"--ambient-caps={READ_ONLY}"),
)
"""The capability to read replaces the rights on the folders of Python, which can be root's. It allows no write."""


def can_be_other_user() -> bool:
    """Whether this process is root and has these capabilities, which root in a container may not have."""
    return os.getuid() == 0 and subprocess.run([*OTHER_USER, "true"], capture_output=True, check=False).returncode == 0


if can_be_other_user():

    def test_another_user_runs_kernels_that_root_compiled(system: Path, tmp_path: Path) -> None:
        done = load(system, tmp_path, *OTHER_USER)
        assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")

    @pytest.mark.parametrize("thing", ["folder", "file"])
    @pytest.mark.parametrize("change", ["owner", "mode"])
    def test_tampered_system_cache_is_not_read(system: Path, tmp_path: Path, thing: str, change: str) -> None:
        (file,) = system.rglob("*.scatter.*.kernel")
        target = file if thing == "file" else system
        if change == "mode":
            target.chmod(target.stat().st_mode | 0o002)
        else:
            os.chown(target, NOBODY - 1, -1)
        for prefix in (OTHER_USER, ()):  # root last: it compiles the kernel again, into its own folder
            done = load(system, tmp_path, *prefix)
            assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


def test_damaged_kernel_is_compiled_again(system: Path, tmp_path: Path) -> None:
    (file,) = system.rglob("*.scatter.*.kernel")
    file.write_bytes(file.read_bytes()[:100])
    done = load(system, tmp_path)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr
    assert "is damaged, and is compiled again" in done.stderr


def test_kernels_are_for_one_cpu_or_for_any() -> None:
    assert cache_key(PACKAGE, GENERIC) == cache_key(PACKAGE)
    assert len({cache_key(PACKAGE, cpu) for cpu in (GENERIC, "skylake +avx2", "skylake")}) == 3
