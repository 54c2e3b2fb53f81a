"""Compiles all kernels that are not in the cache: `python -m changefeed.native`.

With `--into FOLDER` it compiles all kernels for any CPU of this architecture into the folder, which all users may read
and only this user may write: for an image or a wheel.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from importlib import import_module
from pathlib import Path

from changefeed.native.private_folder import privacy_problem


def compile_all() -> None:
    """Import each module that has kernels, which compiles them."""
    from changefeed.native.compiled import kernel_sources

    for module in kernel_sources(Path(__file__).parents[1]):
        import_module(f"changefeed.{module}")


def compile_into(root: Path) -> int:
    """Compile all kernels for any CPU into ``root``, readable by all users; return their number."""
    flags = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": "", "NUMBA_DISABLE_JIT": "0", "NUMBA_BOUNDSCHECK": "0"}
    os.environ |= {**flags, "CHANGEFEED_KERNEL_CACHE": str(root)}
    compile_all()
    from changefeed.native.compiled import cache_key, entry_files
    from changefeed.native.kernel_file import write_file

    folder = root / cache_key(Path(__file__).parents[1])
    folder.mkdir(exist_ok=True)
    for file in entry_files:
        path = folder / file.name
        if not path.exists() and (content := file.content()) is not None:  # compiled earlier, in another folder
            write_file(path, content)
        if not path.exists():
            sys.exit(f"expected the kernel {path.name!r} in {str(folder)!r}, found none: it could not be written")
        path.chmod(0o644)
    (folder / "lock").unlink(missing_ok=True)
    root.chmod(0o755)
    folder.chmod(0o755)
    return len(entry_files)


def main() -> None:
    """Parse the arguments and compile."""
    parser = argparse.ArgumentParser(prog="python -m changefeed.native", description="Compile the kernels.")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="for any CPU, into a folder for all users")
    root: Path | None = parser.parse_args().into
    if root is None:
        began = time.monotonic()
        compile_all()
        print(f"Kernels: ready after {time.monotonic() - began:.0f} s", flush=True)
        return
    if reason := privacy_problem(root):
        sys.exit(
            f"expected {str(root)!r} to be a folder that only this user may write to, but {reason}. Nothing was "
            "compiled. Name a folder of this user, or one that does not exist"
        )
    print(f"{compile_into(root.absolute())} kernels for any CPU are in {str(root)!r}")


if __name__ == "__main__":
    main()
