"""Where compiled kernels are kept."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from changefeed.binlog.kernel.compiled import cache_folder


def parent_of(folder: Path | None) -> Path | None:
    return folder and folder.parent


def test_the_kernels_that_make_setup_compiled_are_found_by_whoever_runs_its_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CHANGEFEED_KERNEL_CACHE", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    assert parent_of(cache_folder()) == tmp_path / "home" / "changefeed" / "kernel"
    (tmp_path / "venv" / "kernel-cache").mkdir(parents=True)
    assert parent_of(cache_folder()) == tmp_path / "venv" / "kernel-cache"
    monkeypatch.setenv("CHANGEFEED_KERNEL_CACHE", str(tmp_path / "chosen"))
    assert parent_of(cache_folder()) == tmp_path / "chosen"
