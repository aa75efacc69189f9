"""What a command line says of a scaler under test: its factory, what is claimed of it, and what is known to fail."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import SkipTest
from zlib import crc32

from fp16sim.emulator.formats import nearest_name
from fp16sim.scaling.wording import a_kind
from fp16sim.testing.adapters import adapt
from fp16sim.testing.case import Case, need_factory
from fp16sim.testing.raised import described, place_of
from fp16sim.testing.traits import as_traits
from fp16sim.testing.walk import ERRORS, Fault, Hang
from fp16sim.testing.watchdog import watched

__all__ = ["expected_of", "factory_of", "names_own", "need_scaler", "traits_of"]

_PREFIX = "fp16sim_checks_"
"""Of the names of modules that are files."""


def factory_of(text: str) -> Callable[[], Any]:
    """Find the factory of a scaler by what a user types.

    Parameters
    ----------
    text : str
        ``package.module:factory`` or ``path/to/file.py:factory`` (or ``::``, as pytest writes it), where the factory is
        a function without arguments or a class; or a scaler of this package with options, such as
        ``torch,growth_interval=2``.

    Returns
    -------
    callable
        It was called once, and gave something that looks like a scaler.

    Raises
    ------
    ValueError
        If there is no such module, or no such factory in it, or it raises, or gives no scaler; in one line.

    Notes
    -----
    Modules are looked for in the current folder first, and beside the file: both stay in ``sys.path``, for what the
    factory imports later. A module that is imported runs; it finds no arguments of a command line in ``sys.argv``:
    they are not its own.

    Examples
    --------
    >>> factory_of("torch,init_scale=8")().scale
    8.0
    """
    text = text.strip().replace("::", ":")
    place, colon, name = text.rpartition(":")
    if not colon and _is_file(text):
        raise ValueError(f"{text}: name what makes the scaler in it too, such as {text}:{_maker_in(text)}")
    if not colon:
        return _built_in(text)
    if not (place and name):
        raise ValueError(f"{text!r}: write module:factory, such as mine.scalers:make or mine.py:make")
    make: Any = _imported(place)
    for part in name.split("."):
        make = _attribute(make, part, text)
    if not callable(make):
        raise ValueError(
            f"{text}: {a_kind(make)} is no factory: name a function, or a class, that makes a new scaler "
            "each time it is called"
        )
    _try(make, text)
    found: Callable[[], Any] = make
    return found


def traits_of(texts: Iterable[str]) -> dict[str, Any]:
    """Read traits as they are typed.

    >>> traits_of(["power_of_two,interval=2000"])
    {'power_of_two': True, 'interval': 2000}
    """
    return as_traits(list(texts))


def expected_of(texts: Iterable[str]) -> dict[str, str]:
    """Read expected failures as they are typed.

    >>> expected_of(["scale_stays_above_zero=issue 12"])
    {'scale_stays_above_zero': 'issue 12'}
    """
    found: dict[str, str] = {}
    for text in texts:
        name, _, reason = (part.strip() for part in text.partition("="))
        if not (name and reason):
            raise ValueError(f"{text!r}: write check=reason, such as 'scale_stays_above_zero=issue 12'")
        if name in found:
            raise ValueError(f"{name} is expected to fail twice: keep one reason")
        found[name] = reason
    return found


def _built_in(text: str) -> Callable[[], Any]:
    from fp16sim.scaling.registry import names, parse

    name = text.partition(",")[0].strip()
    if name not in names():
        near = nearest_name(name, names())
        remedy = near if near.startswith("did you mean") else "fp16sim scalers lists them;"
        raise ValueError(
            f"{name!r} is no scaler of this package: {remedy} for one of your own write module:factory, such as "
            "mine.scalers:make or mine.py:make"
        )
    parse(text)  # its own message

    def make() -> Any:
        return parse(text)

    _try(make, text)
    return make


def _imported(place: str) -> ModuleType:
    path, is_file = Path(place).expanduser(), _is_file(place)
    if is_file:
        _need_file(place)
    for folder in ([str(path.resolve().parent)] if is_file else []) + [os.getcwd()]:
        if folder not in sys.path:
            sys.path.insert(0, folder)
    arguments, sys.argv = sys.argv, [place]
    try:
        return _run(path) if is_file else importlib.import_module(place)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        missing = getattr(error, "name", None)
        if isinstance(error, ModuleNotFoundError) and missing and f"{place}.".startswith(f"{missing}."):
            if path.is_file():
                raise ValueError(_not_python(path)) from None
            raise ValueError(
                f"no module {missing!r} in {Path.cwd()} or among what is installed: go to the folder it is in, or "
                "write the path of its file, such as mine.py:make"
            ) from None
        raise ValueError(f"importing {place} raised {described(error)}") from error
    finally:
        sys.argv = arguments


def names_own(text: str) -> bool:
    """Whether a text names a scaler of the user's, and none of this package.

    >>> names_own("mine.py:make"), names_own("mine.py"), names_own("torch,growth_interval=2")
    (True, True, False)
    """
    return ":" in text or _is_file(text.strip())


def _is_file(place: str) -> bool:
    return Path(place).suffix == ".py" or ("," not in place and ("/" in place or os.sep in place))


def _need_file(place: str) -> Path:
    path = Path(place).expanduser()
    if path.is_dir():
        raise ValueError(f"{place}: it is a folder; name a file in it, such as {path / 'mine.py'}:make")
    if not path.is_file():
        raise ValueError(f"{place}: there is no such file; the current folder is {Path.cwd()}")
    if path.suffix != ".py":
        raise ValueError(_not_python(path))
    return path


def _not_python(path: Path) -> str:
    return (
        f"{path}: the name of a Python file ends in .py; rename it to {path.stem}.py, or name the one that makes the "
        "scaler"
    )


def _maker_in(place: str) -> str:
    """Find what in a file may make a scaler, without running it: a class with scale and update, or the like."""
    try:
        body = ast.parse(_need_file(place).read_text(encoding="utf-8")).body
    except (SyntaxError, UnicodeDecodeError):
        return "make"
    classes = [each for each in body if isinstance(each, ast.ClassDef)]
    scalers = [each for each in classes if {"scale", "update"} <= set(re.findall(r"\w+", ast.unparse(each)))]
    functions = [each for each in body if isinstance(each, ast.FunctionDef)]
    defined: list[ast.FunctionDef | ast.ClassDef] = [*functions, *classes, *scalers]
    names = [each.name for each in defined if not each.name.startswith("_")]
    return names[-1] if names else "make"


def _run(path: Path) -> ModuleType:
    """Import a file under a name that hides no other module, nor a file of the same name elsewhere."""
    name = f"{_PREFIX}{path.stem}_{crc32(bytes(path.resolve())):08x}"
    spec = importlib.util.spec_from_file_location(name, path.resolve())
    assert spec is not None
    assert spec.loader is not None  # its name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _attribute(owner: Any, name: str, text: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        valid = _own_names(owner)
        remedy = nearest_name(name, valid) if valid else "it defines no name"
        raise ValueError(f"{text}: {_named(owner)} has no {name!r}: {remedy}") from None


def _own_names(owner: Any) -> list[str]:
    """Give the public names of a module that it defines itself, of a package or a class all."""
    names = [each for each in dir(owner) if not each.startswith("_")]
    if not isinstance(owner, ModuleType) or hasattr(owner, "__path__"):
        return names
    return [each for each in names if _is_own(getattr(owner, each), owner.__name__)]


def _is_own(value: Any, module: str) -> bool:
    if isinstance(value, type) or hasattr(value, "__code__"):
        return bool(value.__module__ == module)
    return callable(value) and type(value).__module__ in (module, "functools")


def _named(owner: Any) -> str:
    name: str = getattr(owner, "__name__", type(owner).__name__)
    return Path(owner.__file__).name if name.startswith(_PREFIX) else name


def need_scaler(make: Callable[[], Any], name: str) -> None:
    """Call a factory once, and refuse what gives no scaler; what it raises, or that it hangs, is for the checks to say.

    Parameters
    ----------
    make : callable
        Called without arguments.
    name : str
        Of the factory in the message.

    Raises
    ------
    TypeError

    Examples
    --------
    >>> need_scaler(lambda: None, "make")
    Traceback (most recent call last):
        ...
    TypeError: make gave None: is a `return` missing?
    """
    with suppress(Fault, Hang, SkipTest):
        _check_adapts(_made(make), make, name)


def _made(make: Callable[[], Any]) -> Any:
    with watched(make):
        return Case(make).made()


def _try(make: Callable[[], Any], text: str) -> None:
    """Refuse a factory that cannot be called, whose first call raises, or gives no scaler."""
    try:
        need_factory(make)
    except TypeError as error:
        raise ValueError(f"{text}: {error}") from None
    try:
        made = _made(make)
    except Fault as fault:
        raise ValueError(f"{text} raised {described(fault.__cause__ or fault)} when it was called") from fault
    except Hang:
        raise ValueError(f"{text} does not return when it is called") from None
    try:
        _check_adapts(made, make, text)
    except TypeError as error:
        raise ValueError(str(error)) from error


def _check_adapts(made: Any, make: Callable[[], Any], name: str) -> None:
    if made is None:
        raise TypeError(f"{name} gave None: is a `return` missing?")
    try:
        with watched(make):
            adapt(made)
    except TypeError as error:
        if not place_of(error):
            raise TypeError(f"{name}: {error}") from error
    except (*ERRORS, Hang):
        return  # a scaler, though a bad one, and so is one with a TypeError of its own: the checks say so
