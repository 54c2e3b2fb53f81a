"""Compiles all kernels, or finds them compiled: `python -m changefeed.binlog.kernel`."""

from __future__ import annotations

import pkgutil
from importlib import import_module

from changefeed.binlog import kernel

for module in pkgutil.iter_modules(kernel.__path__, f"{kernel.__name__}."):
    if not module.name.endswith("__main__"):
        import_module(module.name)
