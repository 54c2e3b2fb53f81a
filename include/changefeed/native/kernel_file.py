"""A compiled kernel as a file, in numba's interface of a cache.

The folder's name identifies sources, CPU and versions, so a file is valid if it exists. It does not depend on the path
of the package: an image or a wheel brings files, and any user runs them.
"""

# kernels read this file
from __future__ import annotations

import fcntl
import logging
import os
import pickle
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numba.core.compiler
import numba.core.serialize

from changefeed.native.private_folder import is_trusted_file, private_folder, trusted_folders

_log = logging.getLogger(__name__)
_CompileResult: Any = numba.core.compiler.CompileResult
_serialize: Any = numba.core.serialize


class KernelFile:
    """The file ``name`` of one kernel, below the first of ``keys`` where one is stored; written below the first key."""

    cache_path = None

    def __init__(self, name: str, keys: Sequence[str]) -> None:
        self.name = f"{name}.kernel"
        self._keys = keys
        self._folder: Path | None = None
        """The private folder for the new file; None if the kernel is stored, or cannot be."""

    @contextmanager
    def compile_once(self) -> Iterator[None]:
        """Let one of several processes compile the kernel; the others wait, and load it."""
        if self.content() is not None:
            yield
            return
        self._folder = private_folder(self._keys[0], warn_of_no_folder)
        if self._folder is None:
            yield
            return
        with ExitStack() as locked:
            with suppress(OSError):  # a full disk, or a file system without locks: several processes may compile it
                lock = locked.enter_context((self._folder / "lock").open("w"))
                fcntl.flock(lock, fcntl.LOCK_EX)
                locked.callback(fcntl.flock, lock, fcntl.LOCK_UN)
            yield

    def load_overload(self, _signature: Any, target_context: Any) -> Any:
        """The compiled kernel; None if no trusted folder has it."""
        content = self.content()
        if content is None:
            return None
        target_context.refresh()  # otherwise it misses what the kernel calls
        try:
            return _CompileResult._rebuild(target_context, *pickle.loads(content))
        except Exception as error:  # whatever the content of a damaged file raises
            _log.warning("%s is damaged, and is compiled again: %s: %s", self.name, type(error).__name__, error)
            self._folder = self._folder or private_folder(self._keys[0], warn_of_no_folder)
            return None

    def save_overload(self, _signature: Any, compiled: Any) -> None:
        """Write the compiled kernel. A full disk does not fail the run: the next process compiles again."""
        if self._folder is None or any(not lifted.can_cache for lifted in compiled.lifted):
            return
        if compiled.library.has_dynamic_globals:  # addresses of this process
            return
        with suppress(OSError):
            write_file(self._folder / self.name, _serialize.dumps(compiled._reduce()))

    def flush(self) -> None:
        """Nothing: numba calls it when a dispatcher is recompiled."""

    def content(self) -> bytes | None:
        """The content of the file in the first trusted folder that has it; None if none has it."""
        for key in self._keys:
            for folder in trusted_folders(key):
                with suppress(OSError), (folder / self.name).open("rb") as file:
                    if is_trusted_file(os.fstat(file.fileno())):
                        return file.read()
        return None


def write_file(path: Path, content: bytes) -> None:
    """Write a file that others see whole or not at all, also after a crash. Raises OSError."""
    with NamedTemporaryFile(dir=path.parent, prefix=f"{path.name}.", delete=False) as file:
        new = Path(file.name)
        try:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
            new.replace(path)
        except OSError:
            new.unlink(missing_ok=True)
            raise


@cache
def warn_of_no_folder(refused: str) -> None:
    _log.warning(
        "each process compiles the kernels anew, which takes a minute: found no folder for them that only user %d "
        "can write to. Set CHANGEFEED_KERNEL_CACHE to one with mode 0700. Skipped: %s",
        os.getuid(),
        refused,
    )
