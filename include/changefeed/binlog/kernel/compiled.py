"""How kernels are compiled: without the GIL, with a cache that knows all of the room's sources.

numba's own cache looks only at the file that holds the outermost function; a change in a module that it calls would
go unnoticed. So the cache is in a folder named by a digest of all sources of kernels, of numba's version and of the
flags that change the code. ``CHANGEFEED_KERNEL_CACHE`` (or numba's ``NUMBA_CACHE_DIR``) says where such folders
are kept; without it they are in the virtual environment's `kernel-cache`, where `make setup` has made one, else in the
user's cache folder, or in the temporary one where that cannot be written.

Source: https://numba.readthedocs.io/en/stable/developer/caching.html
"""

# kernels read this file
from __future__ import annotations

import fcntl
import hashlib
import os
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numba.core.config
from numba.core.types import unliteral

config: Any = numba.core.config
njit: Any = numba.njit  # its types lack some of its options

JIT_OFF = bool(config.DISABLE_JIT)
"""Whether the kernels run as plain Python (NUMBA_DISABLE_JIT=1)."""

BOUNDS = bool(config.BOUNDSCHECK)
"""Whether each raw read and write is checked (NUMBA_BOUNDSCHECK=1)."""

_OF_KERNELS = re.compile(
    rb"^(from changefeed.binlog.kernel.compiled import .*(inline|entry)|# kernels read this file)", re.MULTILINE
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
        before = config.CACHE_DIR
        folder = cache_folder()
        config.CACHE_DIR = str(folder)
        try:
            with _alone(folder):
                return cast(Function, njit(signature, cache=True, **_FLAGS)(function))
        finally:
            config.CACHE_DIR = before

    return compile_kernel


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: of workers that start at once the first compiles, and the others load what it made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError:  # a folder that can only be read: there is nothing to wait for
        yield
        return
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def cache_folder() -> Path:
    """The folder that holds the compiled kernels of exactly these sources."""
    digest = hashlib.sha256(f"{numba.__version__} bounds={BOUNDS}".encode())
    for source in _sources():
        if _OF_KERNELS.search(source):
            digest.update(source)
    return _cache_root() / digest.hexdigest()[:16]


def _sources() -> list[bytes]:
    folder = Path(__file__).parent
    if folder.is_dir():
        return [path.read_bytes() for path in sorted(folder.glob("*.py"))]
    loader = cast(Any, globals()["__loader__"])  # the package is inside a zip
    prefix = str(folder)[len(loader.archive) + 1 :]
    names = sorted(name for name in loader._files if name.startswith(prefix) and name.endswith(".py"))
    return [cast(bytes, loader.get_data(name)) for name in names]


def _cache_root() -> Path:
    chosen = os.environ.get("CHANGEFEED_KERNEL_CACHE") or os.environ.get("NUMBA_CACHE_DIR")
    of_setup = Path(sys.prefix) / "kernel-cache"
    candidates = [Path(chosen)] if chosen else [of_setup] if of_setup.is_dir() else []
    candidates.append(Path(os.environ.get("XDG_CACHE_HOME") or Path("~/.cache").expanduser()) / "changefeed" / "kernel")
    candidates.append(Path(tempfile.gettempdir()) / f"changefeed-kernel-{os.getuid()}")
    for candidate in candidates:
        try:
            candidate.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError:
            continue
        # A folder that somebody else may write to could hand us their machine code.
        if os.access(candidate, os.W_OK) and candidate.stat().st_uid == os.getuid():
            return candidate
        if chosen and candidate == candidates[0] and os.access(candidate, os.R_OK):
            return candidate
    return candidates[-1]


def python_of(function: Function) -> Function:
    """The plain Python function behind an inline function, for the few that Python calls too."""
    return cast(Function, getattr(function, "py_func", function))
