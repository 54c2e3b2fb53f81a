"""The folder of compiled kernels."""

from __future__ import annotations

import fcntl
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import pytest
from numba import njit

from changefeed.native.compiled import ROOMS, cache_folder, cache_key, inline, kernel_sources

PACKAGE = Path(__file__).parents[3] / "include" / "changefeed"


def parent_of(folder: Path | None) -> Path | None:
    return folder and folder.parent


def test_kernels_of_make_setup_are_found_by_every_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CHANGEFEED_KERNEL_CACHE", "NUMBA_CACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "venv"))
    assert parent_of(cache_folder()) == tmp_path / "home" / "changefeed" / "kernel"
    (tmp_path / "venv" / "kernel-cache").mkdir(parents=True)
    assert parent_of(cache_folder()) == tmp_path / "venv" / "kernel-cache"
    monkeypatch.setenv("CHANGEFEED_KERNEL_CACHE", str(tmp_path / "chosen"))
    assert parent_of(cache_folder()) == tmp_path / "chosen"


def test_a_change_in_a_kernel_of_any_room_asks_for_another_cache(tmp_path: Path) -> None:
    package = shutil.copytree(PACKAGE, tmp_path / "changefeed", ignore=shutil.ignore_patterns("__pycache__"))
    known = {cache_key(package)}
    for room in ROOMS:
        kernel = next(name for name in kernel_sources(package) if name.startswith(room.replace("/", ".")))
        file = package / (kernel.replace(".", "/") + ".py")
        file.write_text(file.read_text() + "\n# changed\n")
        known.add(cache_key(package))
    assert len(known) == 1 + len(ROOMS)


def test_each_kernel_is_in_a_room_whose_kernels_the_cache_knows() -> None:
    compiled = {
        path for path in PACKAGE.rglob("*.py") if re.search(r"^@(inline|entry\()", path.read_text(), re.MULTILINE)
    }
    assert compiled <= {PACKAGE / (name.replace(".", "/") + ".py") for name in kernel_sources(PACKAGE)}


def test_compiled_kernels_load_while_another_process_compiles() -> None:
    load = [sys.executable, "-c", "import changefeed.native.scatter"]
    subprocess.run(load, check=True)  # whoever comes first compiles them
    folder = cache_folder()
    assert folder is not None
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        subprocess.run(load, check=True, timeout=600)


def test_inline_functions_become_machine_code_only_as_parts_of_kernels() -> None:
    @inline
    def plus(a: int, b: int) -> int:
        return a + b

    @njit
    def twice(a: int) -> int:
        return plus(a, a)

    assert twice(4) == 8
    (compiled,) = cast(Any, plus).overloads.values()
    assert compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name) == 0
