"""What an exception of somebody else's code says, and the line that it comes from."""

from __future__ import annotations

import importlib
import sysconfig
import traceback
from pathlib import Path

import numpy as np

__all__ = ["described", "forget_the_way", "kind_and_place", "place_of", "text_of"]

_PACKAGE = str(Path(__file__).parent.parent / "x")[:-1]
_IMPORTS = ("<frozen", str(Path(importlib.__file__).parent / "x")[:-1])
_INSTALLED = tuple(
    str(Path(sysconfig.get_paths()[kind]) / "x")[:-1] for kind in ("stdlib", "purelib", "platlib")
)


def described(error: BaseException) -> str:
    """Write an error in one line, with the file and the line that it comes from, unless it is this package's own.

    What was asked for a method that it lacks is named, if it is something that the checks gave.

    >>> described(ValueError("two\\n lines")), described(KeyError())
    ('ValueError: two lines', 'KeyError')
    """
    text = text_of(error)
    what = f"{type(error).__name__}: {text}" if text else type(error).__name__
    place = place_of(error)
    return (f"{what} ({place})" if place else what) + _given(error)


def _given(error: BaseException) -> str:
    """Say what the checks gave, where a scaler asked it for an attribute of another framework's."""
    asked = getattr(error, "obj", None) if isinstance(error, AttributeError) else None
    if isinstance(asked, (np.ndarray, np.generic)):
        return "; what it is given is numpy's (torch's, if it looks like a GradScaler and its module imports torch)"
    stands_for = getattr(type(asked), "stands_for", "")
    return f"; it is given {stands_for}" if stands_for else ""


def text_of(error: BaseException) -> str:
    """Give what an error says in one line; nothing if to say it raises another.

    >>> text_of(ValueError("two\\n lines"))
    'two lines'
    """
    try:
        return " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
    except Exception:
        return ""


def kind_and_place(error: BaseException) -> str:
    """Write what two errors of the same fault have in common: the place, or the whole text where it is unknown."""
    place = place_of(error)
    return f"{type(error).__name__} ({place})" if place else described(error)


def place_of(error: BaseException) -> str:
    """Give file and line of the innermost frame that is the user's; of a library, if none is; empty if none is known.

    Frames of this package and of the import system are left out: an error that the package raises about what it was
    given has no place.
    """
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}, line {error.lineno}"
    frames = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not frame.f_code.co_filename.startswith((_PACKAGE, *_IMPORTS))
    ]
    own = [frame for frame in frames if not frame[0].startswith(_INSTALLED)]
    if not frames:
        return ""
    file, line = (own or frames)[-1]
    return f"{file}, line {line}"


def forget_the_way(error: BaseException | None) -> None:
    """Drop from an error, and from those before it, the frames of this package that stand above the user's.

    What this package had found already when it was raised is dropped too, so that a traceback shows the user's code
    alone. An error may be its own cause, as after ``raise error from error``.
    """
    seen: list[BaseException] = []
    while error is not None and not any(error is each for each in seen):
        seen.append(error)
        frames = error.__traceback__
        while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_PACKAGE):
            frames = frames.tb_next
        error.__traceback__ = frames
        context = error.__context__
        if context is not None and type(context).__module__.startswith("fp16sim.testing"):
            error.__context__ = context = None
        error = error.__cause__ or context
