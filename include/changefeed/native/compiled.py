"""How kernels are compiled: without the GIL, with a cache that knows the sources of all kernels, in all rooms.

numba's own cache looks only at the file that holds the outermost function; a change in a module that it calls would
go unnoticed. So the cache is in a folder named by a digest of all sources of kernels, of numba's version and of the
flags that change the code.

numba unpickles what it finds there, and runs it, so the folder is a `private_folder`. Where there can be none, kernels
are compiled anew by each process.

Source: https://numba.readthedocs.io/en/stable/developer/caching.html
"""

# kernels read this file
from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numba.core.config
from numba.core.types import unliteral

from changefeed.native.private_folder import private_folder

config: Any = numba.core.config
njit: Any = numba.njit  # its types lack some of its options

JIT_OFF = bool(config.DISABLE_JIT)
"""Whether the kernels run as plain Python (NUMBA_DISABLE_JIT=1)."""

BOUNDS = bool(config.BOUNDSCHECK)
"""Whether each raw read and write is checked (NUMBA_BOUNDSCHECK=1)."""

_log = logging.getLogger(__name__)

ROOMS = ("native", "records", "formats", "binlog/kernel", "source/mysql", "transforms", "verify", "replicate")
"""The folders of the package that have kernels."""

_OF_KERNELS = re.compile(
    rb"^(from changefeed.native.compiled import .*(inline|entry)|# kernels read this file)", re.MULTILINE
)
"""What a source has that kernels are made of."""

_FLAGS = {"nogil": True, "_nrt": False}
"""Without numba's reference counts: they took as long as all decoding. So a kernel may not create an array."""

Function = TypeVar("Function", bound=Callable[..., Any])


def inline(function: Function) -> Function:
    """Compile ``function`` for callers inside kernels; typed by each caller, never cached by itself."""
    if JIT_OFF:
        return function
    compiled: Any = njit(**_FLAGS, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    template_of = compiled.get_call_template
    # To numba a literal number in a call is a type of its own: the function would be compiled once for each number.
    compiled.get_call_template = lambda args, kws: template_of(tuple(map(unliteral, args)), kws)
    return cast(Function, compiled)


def entry(signature: Any) -> Callable[[Function], Function]:
    """Compile a kernel that Python calls for exactly ``signature``, a text or numba's; or load it from the cache."""

    def compile_kernel(function: Function) -> Function:
        if JIT_OFF:
            return function
        folder = cache_folder()
        if folder is None:
            return cast(Function, njit(signature, **_FLAGS)(function))
        before = config.CACHE_DIR
        config.CACHE_DIR = str(folder)
        try:
            with _compiled_once(folder / f"{function.__module__}.{function.__qualname__}.compiled"):
                return cast(Function, njit(signature, cache=True, **_FLAGS)(function))
        finally:
            config.CACHE_DIR = before

    return compile_kernel


@contextmanager
def _compiled_once(mark: Path) -> Iterator[None]:
    """Of workers that start at once the first compiles a kernel, and leaves a ``mark`` behind; the others load it, with
    nobody to wait for."""
    if mark.exists():
        yield
        return
    with _alone(mark.parent):
        yield
    with suppress(OSError):  # a folder that can only be read
        mark.touch()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock."""
    try:
        lock = (folder / "lock").open("w")
    except OSError:  # a folder that can only be read: there is nothing to wait for
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def cache_folder() -> Path | None:
    """The folder that holds the compiled kernels of exactly these sources; None where there can be no private one."""
    return private_folder(cache_key(Path(__file__).parents[1]), _warn)


def cache_key(package: Path) -> str:
    """What tells the kernels of ``package``, compiled by this numba with these flags, from any others."""
    digest = hashlib.sha256(f"{numba.__version__} bounds={BOUNDS}".encode())
    for source in kernel_sources(package).values():
        digest.update(source)
    return digest.hexdigest()[:16]


def kernel_sources(package: Path) -> dict[str, bytes]:
    """The sources that kernels are made of, by module below ``package``, in the order of ROOMS."""
    found = {}
    for room in ROOMS:
        for name, source in _files(package / room):
            if _OF_KERNELS.search(source):
                found[f"{room.replace('/', '.')}.{name}"] = source
    return found


@cache
def _warn(refused: str) -> None:
    _log.warning(
        "each process compiles the kernels anew, which takes a minute: there is no folder for them that only user %d "
        "can write to. Set CHANGEFEED_KERNEL_CACHE to one with mode 0700. Passed over: %s",
        os.getuid(),
        refused,
    )


def _files(folder: Path) -> list[tuple[str, bytes]]:
    """Name and source of each module of ``folder``."""
    if folder.is_dir():
        return [(path.stem, path.read_bytes()) for path in sorted(folder.glob("*.py"))]
    loader = cast(Any, globals()["__loader__"])  # the package is inside a zip
    prefix = str(folder)[len(loader.archive) + 1 :] + os.sep
    names = (name for name in sorted(loader._files) if name.startswith(prefix) and name.endswith(".py"))
    modules = ((name, Path(name[len(prefix) :])) for name in names)
    return [(path.stem, cast(bytes, loader.get_data(name))) for name, path in modules if len(path.parts) == 1]


def python_of(function: Function) -> Function:
    """The plain Python function behind an inline function, for the few that Python calls too."""
    return cast(Function, getattr(function, "py_func", function))
