"""numba unpickles the cache of kernels, which can run code, so folders that other users can write to are not used."""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from changefeed.native import compiled
from changefeed.native.compiled import cache_folder
from changefeed.native.kernel_file import warn_of_no_folder
from changefeed.native.private_folder import trusted_folders

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The three candidate folders, none of which exists."""
    for name in ("CHANGEFEED_KERNEL_CACHE", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    monkeypatch.setenv("CHANGEFEED_KERNEL_CACHE", str(tmp_path / "chosen"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    return {
        "chosen": tmp_path / "chosen",
        "home": tmp_path / "home" / "changefeed" / "kernel",
        "tmp": tmp_path / "tmp" / f"changefeed-kernel-{os.getuid()}",
    }


def used_folder(folders: dict[str, Path]) -> str | None:
    """The name of the folder that is used."""
    folder = cache_folder()
    return next((name for name, path in folders.items() if folder is not None and folder.parent == path), None)


def test_used_folder_is_private_to_this_user(folders: dict[str, Path]) -> None:
    old = os.umask(0)
    try:
        folder = cache_folder()
    finally:
        os.umask(old)
    assert folder is not None
    for path in (folder, folder.parent):
        assert (stat.S_IMODE(path.stat().st_mode), path.stat().st_uid) == (0o700, os.getuid())
    folder.chmod(0o755)  # all users run what root compiled for them: the mode is not changed back
    assert cache_folder() == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755
    assert used_folder(folders) == "chosen"


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o707, 0o702, 0o720])
def test_folder_writable_by_others_is_skipped(folders: dict[str, Path], mode: int) -> None:
    for name, next_one in (("chosen", "home"), ("home", "tmp"), ("tmp", None)):
        folders[name].mkdir(parents=True, exist_ok=True)
        folders[name].chmod(mode)
        assert used_folder(folders) == next_one
    assert cache_folder() is None


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_folder_below_a_writable_one_is_skipped(folders: dict[str, Path], mode: int) -> None:
    folder = cache_folder()
    assert folder is not None
    folder.chmod(mode)
    assert used_folder(folders) == "home"


def test_link_is_skipped_wherever_it_leads(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folders["chosen"].symlink_to(tmp_path / "elsewhere")
    assert used_folder(folders) == "home"
    folder = cache_folder()
    assert folder is not None
    folder.rmdir()
    folder.symlink_to(tmp_path / "elsewhere")
    assert used_folder(folders) == "tmp"


def test_folder_of_another_user_is_skipped(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    assert used_folder(folders) == "chosen"
    monkeypatch.setattr(os, "getuid", lambda: 4321)
    assert cache_folder() is None


def test_folder_others_may_replace_is_skipped(folders: dict[str, Path]) -> None:
    folders["chosen"].parent.chmod(0o777)
    assert used_folder(folders) is None
    folders["chosen"].parent.chmod(0o1777)  # like /tmp, where users may rename only their own files
    assert used_folder(folders) == "chosen"


OTHER = 65534


def give(monkeypatch: pytest.MonkeyPatch, path: Path, user: int, group: int) -> None:
    """Make ``path`` appear to belong to ``user`` and ``group``, as chown requires root."""
    lstat = Path.lstat

    def lstat_as(self: Path) -> os.stat_result:
        status = lstat(self)
        return os.stat_result((*status[:4], user, group, *status[6:])) if self == path else status

    monkeypatch.setattr(Path, "lstat", lstat_as)


def test_folder_below_another_users_folder_is_skipped(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of a parent folder can replace the folder, independent of its mode."""
    assert used_folder(folders) == "chosen"
    give(monkeypatch, tmp_path, OTHER, OTHER)
    assert used_folder(folders) is None
    give(monkeypatch, tmp_path, 0, 0)
    assert used_folder(folders) == "chosen"


def test_folder_below_a_group_writable_one_is_skipped(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o770)
    give(monkeypatch, tmp_path, os.getuid(), os.getuid())
    assert used_folder(folders) == "chosen", "the user's own group"
    give(monkeypatch, tmp_path, os.getuid(), OTHER)
    assert used_folder(folders) is None
    tmp_path.chmod(0o1770)
    assert used_folder(folders) == "chosen"


def test_target_of_another_users_link_is_skipped(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "public").mkdir()
    (tmp_path / "public").chmod(0o1777)
    link = tmp_path / "public" / "link"
    link.symlink_to(tmp_path / "mine")
    folders["chosen"] = link / "cache"
    monkeypatch.setenv("CHANGEFEED_KERNEL_CACHE", str(folders["chosen"]))
    assert used_folder(folders) == "chosen"
    give(monkeypatch, link, OTHER, OTHER)
    assert used_folder(folders) == "home"


def test_target_of_a_link_in_another_users_folder_is_skipped(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs" / "mine").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "theirs" / "mine")
    folders["chosen"] = tmp_path / "link" / "cache"
    monkeypatch.setenv("CHANGEFEED_KERNEL_CACHE", str(folders["chosen"]))
    assert used_folder(folders) == "chosen"
    give(monkeypatch, tmp_path / "theirs", OTHER, OTHER)
    assert used_folder(folders) == "home"


def test_only_a_folder_is_used(folders: dict[str, Path]) -> None:
    folders["chosen"].write_text("")
    assert used_folder(folders) == "home"


def test_without_a_private_folder_kernels_are_compiled_not_unpickled(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for folder in folders.values():
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    monkeypatch.setattr(compiled, "JIT_OFF", False)
    warn_of_no_folder.cache_clear()

    def nothing() -> None:
        return None

    for key in compiled._cache_keys():
        for folder in folders.values():
            (folder / key).mkdir()
            (folder / key / f"{compiled.file_name(nothing, 'void()')}.kernel").write_bytes(b"planted: no pickle")
    assert compiled.entry("void()")(nothing)() is None
    assert "Set CHANGEFEED_KERNEL_CACHE to one with mode 0700" in caplog.text
    assert "others may write to it (mode 0777)" in caplog.text


def kernel_of_scatter() -> Path:
    """The file with a small kernel in this session's cache, compiled if it is missing."""
    subprocess.run([sys.executable, "-c", "import changefeed.native.scatter"], check=True)
    file, *_ = (
        file
        for key in compiled._cache_keys()
        for folder in trusted_folders(key)
        for file in folder.glob("*.scatter.*.kernel")
    )
    return file


def test_planted_cache_of_another_user_is_not_run(tmp_path: Path) -> None:
    """The attack: a folder that everybody may write to, with files whose pickle runs code."""

    class Planted:
        def __reduce__(self) -> tuple[object, ...]:
            return os.system, (f"touch {tmp_path}/run",)

    planted = tmp_path / "open"
    planted.mkdir()
    planted.chmod(0o777)
    for key in compiled._cache_keys():
        (planted / key).mkdir()
        (planted / key / kernel_of_scatter().name).write_bytes(pickle.dumps(Planted()))
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "include"),
        "CHANGEFEED_KERNEL_CACHE": str(planted),
        "XDG_CACHE_HOME": "/dev/null/none",
        "TMPDIR": str(planted),
    }
    environment.pop("NUMBA_DISABLE_JIT", None)
    done = subprocess.run(
        [sys.executable, "-c", "import changefeed.native.scatter"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert not (tmp_path / "run").exists()
