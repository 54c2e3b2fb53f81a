"""Imports the modules that have kernels, which compiles those that are not in the cache."""

from __future__ import annotations

import os
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path


def import_all() -> None:
    """Import each module that has kernels. With several cores two processes do so, from both ends."""
    other = None
    if (os.cpu_count() or 1) > 1:
        other = get_context("spawn").Process(target=_import, kwargs={"backwards": True})
        other.start()
    _import(backwards=False)  # loads what the other process has compiled
    if other is not None:
        other.join()


def _import(*, backwards: bool) -> None:
    from changefeed.native.compiled import kernel_sources

    modules = list(kernel_sources(Path(__file__).parents[1]))
    for module in reversed(modules) if backwards else modules:
        import_module(f"changefeed.{module}")
