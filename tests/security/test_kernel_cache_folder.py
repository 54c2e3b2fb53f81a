"""numba runs what it unpickles from the cache of kernels: no folder is used that somebody else can write to."""

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

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """The three folders that are tried, none of which is there yet."""
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


def used(folders: dict[str, Path]) -> str | None:
    """Which of the folders is taken."""
    folder = cache_folder()
    return next((name for name, path in folders.items() if folder is not None and folder.parent == path), None)


def test_what_is_used_is_made_for_this_user_alone(folders: dict[str, Path]) -> None:
    old = os.umask(0)
    try:
        folder = cache_folder()
    finally:
        os.umask(old)
    assert folder is not None
    for path in (folder, folder.parent):
        assert (stat.S_IMODE(path.stat().st_mode), path.stat().st_uid) == (0o700, os.getuid())
    folder.chmod(0o755)
    assert cache_folder() == folder
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert used(folders) == "chosen"


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770, 0o707, 0o702, 0o720])
def test_a_folder_that_others_may_write_to_is_passed_over(folders: dict[str, Path], mode: int) -> None:
    for name, next_one in (("chosen", "home"), ("home", "tmp"), ("tmp", None)):
        folders[name].mkdir(parents=True, exist_ok=True)
        folders[name].chmod(mode)
        assert used(folders) == next_one
    assert cache_folder() is None


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_neither_is_one_inside_of_it(folders: dict[str, Path], mode: int) -> None:
    folder = cache_folder()
    assert folder is not None
    folder.chmod(mode)
    assert used(folders) == "home"


def test_a_link_is_passed_over_wherever_it_leads(folders: dict[str, Path], tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    folders["chosen"].symlink_to(tmp_path / "elsewhere")
    assert used(folders) == "home"
    folder = cache_folder()
    assert folder is not None
    folder.rmdir()
    folder.symlink_to(tmp_path / "elsewhere")
    assert used(folders) == "tmp"


def test_another_users_folder_is_passed_over(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    assert used(folders) == "chosen"
    monkeypatch.setattr(os, "getuid", lambda: 4321)
    assert cache_folder() is None


def test_one_that_others_may_replace_is_passed_over(folders: dict[str, Path]) -> None:
    folders["chosen"].parent.chmod(0o777)
    assert used(folders) is None
    folders["chosen"].parent.chmod(0o1777)  # as /tmp: there each may rename only what is theirs
    assert used(folders) == "chosen"


OTHER = 65534


def give(monkeypatch: pytest.MonkeyPatch, path: Path, user: int, group: int) -> None:
    """Have ``path`` belong to them, which only root could do in truth."""
    lstat = Path.lstat

    def given(self: Path) -> os.stat_result:
        status = lstat(self)
        return os.stat_result((*status[:4], user, group, *status[6:])) if self == path else status

    monkeypatch.setattr(Path, "lstat", given)


def test_one_below_another_users_folder_is_passed_over(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever owns a parent puts another folder in the place of ours, whatever its mode is."""
    assert used(folders) == "chosen"
    give(monkeypatch, tmp_path, OTHER, OTHER)
    assert used(folders) is None
    give(monkeypatch, tmp_path, 0, 0)
    assert used(folders) == "chosen"


def test_one_below_a_folder_that_a_group_may_write_to_is_passed_over(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(0o770)
    give(monkeypatch, tmp_path, os.getuid(), os.getuid())
    assert used(folders) == "chosen", "the user's own group"
    give(monkeypatch, tmp_path, os.getuid(), OTHER)
    assert used(folders) is None
    tmp_path.chmod(0o1770)
    assert used(folders) == "chosen"


def test_one_that_another_users_link_leads_to_is_passed_over(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir(mode=0o700)
    (tmp_path / "public").mkdir()
    (tmp_path / "public").chmod(0o1777)
    link = tmp_path / "public" / "link"
    link.symlink_to(tmp_path / "mine")
    folders["chosen"] = link / "cache"
    monkeypatch.setenv("CHANGEFEED_KERNEL_CACHE", str(folders["chosen"]))
    assert used(folders) == "chosen"
    give(monkeypatch, link, OTHER, OTHER)
    assert used(folders) == "home"


def test_one_that_a_link_leads_to_out_of_another_users_folder_is_passed_over(
    folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "theirs" / "mine").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "theirs" / "mine")
    folders["chosen"] = tmp_path / "link" / "cache"
    monkeypatch.setenv("CHANGEFEED_KERNEL_CACHE", str(folders["chosen"]))
    assert used(folders) == "chosen"
    give(monkeypatch, tmp_path / "theirs", OTHER, OTHER)
    assert used(folders) == "home"


def test_nothing_but_a_folder_is_taken(folders: dict[str, Path]) -> None:
    folders["chosen"].write_text("")
    assert used(folders) == "home"


def test_where_no_folder_is_private_kernels_are_compiled_and_nothing_is_unpickled(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for folder in folders.values():
        folder.mkdir(parents=True)
        folder.chmod(0o777)
    monkeypatch.setattr(compiled, "JIT_OFF", False)
    compiled._warn.cache_clear()
    seen: list[object] = []
    monkeypatch.setattr(compiled, "njit", lambda *_, **options: lambda function: seen.append(options) or function)
    compiled.entry("void()")(lambda: None)
    assert seen == [compiled._FLAGS], "without cache=True"
    assert "Set CHANGEFEED_KERNEL_CACHE to one with mode 0700" in caplog.text
    assert "others may write to it (mode 0777)" in caplog.text


def test_what_another_user_planted_is_not_run(tmp_path: Path) -> None:
    """The attack: a folder that anybody may write to, with an index of numba's that is a pickle which runs code."""

    class Planted:
        def __reduce__(self) -> tuple[object, ...]:
            return os.system, (f"touch {tmp_path}/run",)

    planted = tmp_path / "open"
    planted.mkdir()
    planted.chmod(0o777)
    script = (
        "import numba.core.caching as caching, pickle, sys\n"
        "caching.IndexDataCacheFile.load = lambda self, *a, **k: pickle.loads(open(sys.argv[1], 'rb').read())\n"
        "import changefeed.native.scatter\n"
    )
    (tmp_path / "payload").write_bytes(pickle.dumps(Planted()))
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "include"),
        "CHANGEFEED_KERNEL_CACHE": str(planted),
        "XDG_CACHE_HOME": "/dev/null/none",
        "TMPDIR": str(planted),
    }
    environment.pop("NUMBA_DISABLE_JIT", None)
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "payload")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert not (tmp_path / "run").exists()
