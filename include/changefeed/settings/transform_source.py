"""Users' row functions as source text: found by name, checked without being run, and sent to where they run.

A function is the file NAME.py of the folder of transforms, with `def transform(change, ...)`, or `def
transform_batch(batch, ...)` for many changes at once. Reading a pipeline never runs it: DAG files are parsed all the
time, and by Airflow's own processes. The text that was checked is the text that runs, on whatever machine that is.
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
"""What a file may define: a function of one change, or one of a batch of them."""
_LARGEST = 1 << 20
_PACKAGE = "transforms"


@dataclass(frozen=True)
class TransformSource:
    """A function and all that it imports of its folder. ``modules`` have the text of each file by its name."""

    name: str
    function: str
    """One of FUNCTIONS."""
    modules: Mapping[str, str] = field(repr=False)

    @property
    def digest(self) -> str:
        """Changes whenever the text of any of its modules does."""
        return hashlib.sha256(repr((self.name, sorted(self.modules.items()))).encode()).hexdigest()[:16]

    @property
    def signature(self) -> inspect.Signature:
        """The function's parameters, without annotations; a default is what it is, or None where it is computed."""
        return _signature(_definition(self.name, self.modules[self.name]))

    def check_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Raises SettingsError where the function cannot be called with a change and ``arguments``."""
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
    """The folder of users' functions: CHANGEFEED_TRANSFORMS; or `include/transforms` of the checkout that the package
    stands in; or, for an installed package, `include/transforms` of the Airflow project."""
    if named := os.environ.get("CHANGEFEED_TRANSFORMS"):
        return Path(named)
    of_checkout = Path(__file__).parents[2] / "transforms"
    if of_checkout.is_dir():
        return of_checkout
    return Path(os.environ.get("AIRFLOW_HOME", "~/airflow")).expanduser() / "include" / "transforms"


def supplied_names() -> list[str]:
    """The functions that come with the package."""
    files = resources.files("changefeed.transforms.supplied").iterdir()
    return sorted(file.name.removesuffix(".py") for file in files if _is_module(file.name))


def own_names(folder: Path) -> list[str]:
    """The functions of a folder."""
    return sorted(path.stem for path in folder.glob("*.py") if _is_module(path.name)) if folder.is_dir() else []


def transform_source(name: str, folder: Path | None = None) -> TransformSource:
    """The function called ``name``: of ``folder``, or else supplied.

    Raises SettingsError, which names the nearest function, where there is none; and for a file that is no Python, that
    defines neither of FUNCTIONS, or both, or that imports a module of the folder otherwise than by `from .`.
    """
    folder = folder or transforms_folder()
    own = own_names(folder)
    if name in own:
        modules = dict(_closure(name, folder))
    elif name in (supplied := supplied_names()):
        file = resources.files("changefeed.transforms.supplied").joinpath(f"{name}.py")
        modules = {name: file.read_text(encoding="utf-8")}
    else:
        known = sorted({*own, *supplied})
        raise SettingsError(
            f"no transform {name!r}{did_you_mean(name, known)}: wanted a file {name}.py in {str(folder)!r} with "
            f"`def transform(change)`, or one of {', '.join(known)}"
        )
    return TransformSource(name, _definition(name, modules[name]).name, modules)


def _is_module(file: str) -> bool:
    return file.endswith(".py") and file.removesuffix(".py").isidentifier() and not file.startswith("_")


def _closure(name: str, folder: Path) -> Iterator[tuple[str, str]]:
    """The text of a module, and of those of its folder that it imports, and so on."""
    wanted, known = [name], {name}
    while wanted:
        module = wanted.pop()
        text = _text(folder / f"{module}.py")
        yield module, text
        for other in _imported(module, text):
            if other not in known:
                if not (folder / f"{other}.py").is_file():
                    raise SettingsError(f"transform {module}.py imports .{other}, and there is no {other}.py beside it")
                known.add(other)
                wanted.append(other)


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > _LARGEST:
            raise SettingsError(f"transform {path.name} has more than {_LARGEST:,} bytes")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"transform {path.name} cannot be read: {error}") from None


def _tree(name: str, text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise SettingsError(f"transform {name}.py{f', line {line}' if line else ''} is no Python: {error}") from None


def _imported(name: str, text: str) -> Iterator[str]:
    for node in ast.walk(_tree(name, text)):
        if isinstance(node, ast.ImportFrom) and node.level:
            yield from [node.module.partition(".")[0]] if node.module else [alias.name for alias in node.names]
            continue
        absolute = [node.module] if isinstance(node, ast.ImportFrom) else []
        absolute += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        for module in absolute:
            if module is not None and module.partition(".")[0] == _PACKAGE:
                raise SettingsError(
                    f"transform {name}.py, line {getattr(node, 'lineno', 0)}, imports {module!r}: wanted `from "
                    f".{module.partition('.')[2] or 'NAME'} import ...`, which holds on Spark's workers too"
                )


def _definition(name: str, text: str) -> ast.FunctionDef:
    defined = [node for node in _tree(name, text).body if isinstance(node, ast.FunctionDef) and node.name in FUNCTIONS]
    if len(defined) != 1:
        raise SettingsError(
            f"transform {name}.py has {' and '.join(node.name for node in defined) or 'no function of that kind'}: "
            "wanted `def transform(change)` or `def transform_batch(batch)`, one of them, at the top level"
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
