"""Finds users' functions by name, and checks their source text without running it.

A function is the file NAME.py in the folder of transforms, with `def transform(change, ...)`, or `def
transform_batch(batch, ...)` for many changes at once. Reading a pipeline never runs it, because Airflow's processes
parse DAG files continuously. The job gets the text that was checked, so that the same text runs on every machine.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import Any

from changefeed.errors import SettingsError, did_you_mean

BATCH_FUNCTION = "transform_batch"
FUNCTIONS = ("transform", BATCH_FUNCTION)
"""Functions that a file may define: of one change, or of a batch of changes."""
_MAX_BYTES = 1 << 20
_PACKAGE = "transforms"


@dataclass(frozen=True)
class TransformSource:
    """A function and the modules of its folder that it imports. ``modules`` are the texts of the files by name."""

    name: str
    function: str
    """One of FUNCTIONS."""
    modules: Mapping[str, str] = field(repr=False)
    is_supplied: bool = False
    """Whether the function comes with the package. A file of the same name in the users' folder replaces it."""

    @property
    def digest(self) -> str:
        """A digest of the texts of all modules."""
        return hashlib.sha256(repr((self.name, sorted(self.modules.items()))).encode()).hexdigest()[:16]

    @property
    def signature(self) -> inspect.Signature:
        """The function's parameters, without annotations. A computed default is None."""
        return _signature(_find_function(self.name, self.modules[self.name]))

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Raises SettingsError if the function cannot be called with a change and ``arguments``."""
        signature = self.signature
        try:
            signature.bind(None, **arguments)
        except TypeError as error:
            known = list(signature.parameters)[1:]
            unknown = [name for name in arguments if name not in known]
            near = did_you_mean(unknown[0], known) if unknown else ""
            raise SettingsError(
                f"transform {self.name!r} cannot be called with these arguments: {error}{near}; it is "
                f"{self.function}{signature}"
            ) from None


def transforms_folder() -> Path:
    """The folder of users' functions.

    It is CHANGEFEED_TRANSFORMS; or `include/transforms` of the checkout that contains the package; or, for an installed
    package, `include/transforms` of the Airflow project.
    """
    if named := os.environ.get("CHANGEFEED_TRANSFORMS"):
        return Path(named)
    of_checkout = Path(__file__).parents[2] / "transforms"
    if of_checkout.is_dir():
        return of_checkout
    return Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser() / "include" / "transforms"


def list_supplied_transforms() -> list[str]:
    """The names of the functions that come with the package."""
    files = resources.files("changefeed.transforms.supplied").iterdir()
    return sorted(file.name.removesuffix(".py") for file in files if _is_module(file.name))


def list_own_transforms(folder: Path) -> list[str]:
    """The names of the functions in a folder."""
    return sorted(path.stem for path in folder.glob("*.py") if _is_module(path.name)) if folder.is_dir() else []


def transform_source(name: str, folder: Path | None = None) -> TransformSource:
    """The function ``name`` of ``folder``, or of the package.

    Raises SettingsError in these cases:

    - There is no such function; the message has the nearest name.
    - The file is not Python, or does not define exactly one of FUNCTIONS.
    - The file imports a module of the folder by another form than `from .`.
    """
    folder = folder or transforms_folder()
    own = list_own_transforms(folder)
    if name in own:
        modules = dict(_read_modules(name, folder))
    elif name in (supplied := list_supplied_transforms()):
        file = resources.files("changefeed.transforms.supplied").joinpath(f"{name}.py")
        modules = {name: file.read_text(encoding="utf-8")}
    else:
        known = sorted({*own, *supplied})
        raise SettingsError(
            f"no transform {name!r}{did_you_mean(name, known)}: expected a file {name}.py in {str(folder)!r} with "
            f"`def transform(change)`, or one of {', '.join(known)}"
        )
    return TransformSource(name, _find_function(name, modules[name]).name, modules, is_supplied=name not in own)


def _is_module(file: str) -> bool:
    return file.endswith(".py") and file.removesuffix(".py").isidentifier() and not file.startswith("_")


def _read_modules(name: str, folder: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of a module, and of the modules of its folder that it imports, recursively."""
    pending, known = [name], {name}
    while pending:
        module = pending.pop()
        text = _text(folder / f"{module}.py")
        yield module, text
        for other in _find_imports(module, text):
            if other not in known:
                if not (folder / f"{other}.py").is_file():
                    raise SettingsError(f"transform {module}.py imports .{other}, and there is no {other}.py beside it")
                known.add(other)
                pending.append(other)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise SettingsError(f"transform {path.name} has more than {_MAX_BYTES:,} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"transform {path.name} cannot be read: {error}") from None


def _tree(name: str, text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise SettingsError(f"transform {name}.py{f', line {line}' if line else ''} is no Python: {error}") from None


def _find_imports(name: str, text: str) -> Iterator[str]:
    for node in ast.walk(_tree(name, text)):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield from [node.module.partition(".")[0]] if node.module else [alias.name for alias in node.names]
            continue
        absolute = [node.module] if isinstance(node, ast.ImportFrom) else []
        absolute += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for module in absolute:
            if module is not None and module.partition(".")[0] == _PACKAGE:
                raise SettingsError(
                    f"transform {name}.py, line {getattr(node, 'lineno', 0)}, imports {module!r}: expected `from "
                    f".{module.partition('.')[2] or 'NAME'} import ...`, which also works on Spark's workers"
                )


def _find_function(name: str, text: str) -> ast.FunctionDef:
    defined = [node for node in _tree(name, text).body if isinstance(node, ast.FunctionDef) and node.name in FUNCTIONS]
    if len(defined) != 1:
        raise SettingsError(
            f"transform {name}.py has {' and '.join(node.name for node in defined) or 'no such function'}: expected "
            "either `def transform(change)` or `def transform_batch(batch)` at the top level"
        )
    return defined[0]


def _signature(definition: ast.FunctionDef) -> inspect.Signature:
    given, kinds = definition.args, inspect.Parameter
    plain = [*given.posonlyargs, *given.args]
    defaults = [*[None] * (len(plain) - len(given.defaults)), *given.defaults]
    parameters = [
        _parameter(arg, kinds.POSITIONAL_ONLY if arg in given.posonlyargs else kinds.POSITIONAL_OR_KEYWORD, default)
        for arg, default in zip(plain, defaults, strict=True)
    ]
    if given.vararg:
        parameters.append(_parameter(given.vararg, kinds.VAR_POSITIONAL, None))
    parameters += [
        _parameter(arg, kinds.KEYWORD_ONLY, default)
        for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.kwarg:
        parameters.append(_parameter(given.kwarg, kinds.VAR_KEYWORD, None))
    return inspect.Signature(parameters)


def _parameter(arg: ast.arg, kind: Any, default: ast.expr | None) -> inspect.Parameter:
    value: Any = inspect.Parameter.empty
    if default is not None:
        try:
            value = ast.literal_eval(default)
        except (ValueError, TypeError):
            value = None
    return inspect.Parameter(arg.arg, kind, default=value)
