"""Compiles kernels, which run without the GIL; caches them by the sources of all kernels in all rooms.

numba's own cache checks only the source file of the outermost function, so it would miss a change in a module that this
function calls; it finds kernels by the path of their source, and tries to write to its folder. So `KernelFile` is
used in its place. The name of its folder is a digest of all kernel sources, the CPU, the versions and flags that change
the code.

Kernels that were compiled for this CPU come first, then those for any CPU of this architecture, as in an image. Their
files are unpickled and run, so they are read from `trusted_folders` and written to a `private_folder`. If there is
none, each process compiles the kernels again.

Source: https://numba.readthedocs.io/en/stable/developer/caching.html
"""

# kernels read this file
from __future__ import annotations

import hashlib
import os
import platform
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import llvmlite
import llvmlite.binding as llvm
import numba
import numba.core.config
import numpy as np
from numba.core import codegen, typeinfer
from numba.core.registry import cpu_target
from numba.core.types import unliteral

from changefeed.native.kernel_file import KernelFile, warn_of_no_folder
from changefeed.native.private_folder import private_folder

config: Any = numba.core.config
_Library: Any = codegen.JITCodeLibrary
host_cpu_features: Any = codegen.get_host_cpu_features
njit: Any = numba.njit  # its types miss some of its options

JIT_OFF = bool(config.DISABLE_JIT)
"""Whether the kernels run as plain Python (NUMBA_DISABLE_JIT=1)."""

BOUNDS = bool(config.BOUNDSCHECK)
"""Whether each raw read and write is checked (NUMBA_BOUNDSCHECK=1)."""

ROOMS = ("native", "records", "formats", "source/mysql", "binlog/kernel", "transforms", "verify", "replicate")
"""The folders of the package that have kernels, in the order in which they are compiled.

A run that begins meanwhile plans its window with kernels of the first five, and starts Spark while the largest one,
`walk`, is compiled.
"""

_OF_KERNELS = re.compile(
    rb"^(from changefeed.native.compiled import .*(inline|entry)|# kernels read this file)", re.MULTILINE
)
"""The line that marks a module as a source of kernels."""

_FLAGS = {"nogil": True, "_nrt": False}
"""Disables numba's reference counts, which took as long as the decoding itself. So a kernel must not create arrays."""

GENERIC = "generic"
"""The CPU that has what each CPU of this architecture has (NUMBA_CPU_NAME=generic)."""

Function = TypeVar("Function", bound=Callable[..., Any])

entry_files: list[KernelFile] = []
"""The files of the kernels that this process has compiled or loaded."""


def inline(function: Function) -> Function:
    """The ``function`` for calls from kernels: numba compiles it into each kernel that calls it."""
    if JIT_OFF:
        return function
    compiled: Any = njit(**_FLAGS, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    template_of = compiled.get_call_template

    def template(args: Any, kws: Any) -> Any:
        with _only_for_kernels():
            # In numba each literal number in a call has a type of its own: numba would compile the function for each.
            return template_of(tuple(map(unliteral, args)), kws)

    compiled.get_call_template = template
    return cast(Function, compiled)


class _InlineLibrary(_Library):  # type: ignore[misc]
    """The code of an `inline` function, for the kernels that call it.

    numba would optimize it and translate it to machine code, each time with the code of all functions that it calls,
    although it is optimized and translated again as a part of each kernel, and never called from Python. That took half
    of the time to compile the kernels, and made none of them faster.
    """

    def _optimize_final_module(self) -> None:
        """Nothing: the kernel's module, which this one becomes a part of, is optimized as a whole."""

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def get_pointer_to_function(self, _name: str) -> int:
        """0: there is no machine code."""
        self._ensure_finalized()
        return 0


@contextmanager
def _only_for_kernels() -> Iterator[None]:
    """Let numba compile functions into an `_InlineLibrary`."""
    generator = cpu_target.target_context.codegen()
    library_class, set_env = generator._library_class, generator.set_env
    generator._library_class = _InlineLibrary
    generator.set_env = lambda _name, _env: None  # it would write an address into the machine code
    try:
        yield
    finally:
        generator._library_class, generator.set_env = library_class, set_env


def entry(signature: Any) -> Callable[[Function], Function]:
    """A decorator for a kernel that Python calls: compiles it for exactly ``signature``, or loads it from the cache.

    ``signature`` is a text or a signature of numba.
    """

    def compile_kernel(function: Function) -> Function:
        if JIT_OFF:
            return function
        dispatcher = njit(**_FLAGS)(function)
        dispatcher._cache = file = KernelFile(file_name(function, signature), _cache_keys())
        entry_files.append(file)
        with typeinfer.register_dispatcher(dispatcher), file.compile_once():
            dispatcher.compile(signature)
        dispatcher.disable_compile()
        return cast(Function, dispatcher)

    return compile_kernel


def file_name(function: Callable[..., Any], signature: Any) -> str:
    """The name of the file with ``function``, compiled for ``signature``."""
    return f"{function.__module__}.{function.__qualname__}.{hashlib.sha256(str(signature).encode()).hexdigest()[:8]}"


def cache_folder() -> Path | None:
    """The folder to which this process writes kernels; None if no folder is private."""
    return private_folder(_cache_keys()[0], warn_of_no_folder)


def cache_key(package: Path, cpu: str = GENERIC) -> str:
    """The cache key of the kernels of ``package``, compiled by these versions with these flags for ``cpu``."""
    versions = f"{numba.__version__} {llvmlite.__version__} {np.__version__} {sys.implementation.cache_tag}"
    flags = f"{BOUNDS} {config.OPT} {config.DEBUGINFO_DEFAULT} {config.LOOP_VECTORIZE} {config.SLP_VECTORIZE}"
    digest = hashlib.sha256(f"{versions} {sys.platform} {platform.machine()} {cpu} {flags}".encode())
    for source in kernel_sources(package).values():
        digest.update(source)
    return digest.hexdigest()[:16]


@cache
def _cache_keys() -> tuple[str, ...]:
    """The cache keys of this package: for the CPU that this process compiles for, and for any CPU."""
    package = Path(__file__).parents[1]
    return tuple(dict.fromkeys(cache_key(package, cpu) for cpu in (_target_cpu(), GENERIC)))


def _target_cpu() -> str:
    """Name and features of the CPU that this process compiles for: this machine's, or NUMBA_CPU_NAME."""
    name = config.CPU_NAME or llvm.get_host_cpu_name()
    features = config.CPU_FEATURES
    return f"{name} {host_cpu_features() if features is None else features}".strip()


def kernel_sources(package: Path) -> dict[str, bytes]:
    """The sources of kernels, by module below ``package``, in the order of ROOMS."""
    found = {}
    for room in ROOMS:
        for name, source in _files(package / room):
            if _OF_KERNELS.search(source):
                found[f"{room.replace('/', '.')}.{name}"] = source
    return found


def _files(folder: Path) -> list[tuple[str, bytes]]:
    """Name and source of each module in ``folder``."""
    if folder.is_dir():
        return [(path.stem, path.read_bytes()) for path in sorted(folder.glob("*.py"))]
    loader = cast(Any, globals()["__loader__"])  # the package is inside a zip
    prefix = str(folder)[len(loader.archive) + 1 :] + os.sep
    names = (name for name in sorted(loader._files) if name.startswith(prefix) and name.endswith(".py"))
    modules = ((name, Path(name[len(prefix) :])) for name in names)
    return [(path.stem, cast(bytes, loader.get_data(name))) for name, path in modules if len(path.parts) == 1]


def python_of(function: Function) -> Function:
    """The plain Python function of a function that `inline` returned, for callers in Python."""
    return cast(Function, getattr(function, "py_func", function))
