"""How messages write calls: encodings with their values, flags, datapaths."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import fields
from itertools import groupby
from typing import Any

from fp16sim.emulator.datapath import DATAPATHS, Datapath
from fp16sim.emulator.flags import FLAG_NAMES, flag_names
from fp16sim.emulator.formats import Format
from fp16sim.emulator.rounding import Rounding

__all__ = ["counted", "datapath_text", "hexadecimal", "listed", "number", "raised", "rule_text"]

_MOST = 4
_COUNTS = (*FLAG_NAMES, "swamped")


def hexadecimal(bits: int, fmt: Format) -> str:
    """Write an encoding.

    >>> from fp16sim.emulator.formats import binary16
    >>> hexadecimal(1, binary16)
    '0x0001'
    """
    return f"{int(bits):#0{2 + (fmt.width + 3) // 4}x}"


def number(bits: int, fmt: Format) -> str:
    """Write an encoding and its value.

    >>> from fp16sim.emulator.formats import binary16
    >>> number(0x8001, binary16)
    '0x8001 (-5.96e-08)'
    """
    return f"{hexadecimal(bits, fmt)} ({fmt.decode(int(bits)):.3g})"


def listed(texts: Sequence[str], joint: str = ", ") -> str:
    """Join texts; of many only the first, and how many there are, unless what follows itself leaves few.

    >>> listed(["0", "0", "0", "0", "1"], " + "), listed("abcde")
    ('0 [4 times] + 1', 'a, b, c, d, ... (5 in all)')
    """
    if len(texts) <= _MOST:
        return joint.join(texts)
    runs = [(text, len(list(run))) for text, run in groupby(texts)]
    if len(runs) <= _MOST:
        return joint.join(text if n == 1 else f"{text} [{n} times]" for text, n in runs)
    return f"{joint.join(texts[:_MOST])}{joint}... ({len(texts)} in all)"


def rule_text(rule: Rounding) -> str:
    """Write a rounding rule: its mode, and what else is not as by default."""
    plain = Rounding()
    others = [
        f"{field.name}={getattr(rule, field.name)!r}"
        for field in fields(rule)
        if field.name != "mode" and getattr(rule, field.name) != getattr(plain, field.name)
    ]
    return ", ".join([rule.mode, *others])


def raised(flags: int) -> str:
    """Write a word of flags."""
    return " and ".join(flag_names(int(flags))) or "nothing"


def counted(counts: Iterable[Any]) -> str:
    """Write counts, those that are not 0."""
    found = [f"{int(n)} {name}" for name, n in zip(_COUNTS, counts, strict=False) if n]
    return ", ".join(found) or "nothing"


def datapath_text(path: Datapath) -> str:
    """Write a datapath: its name, or for one that has none what makes it.

    >>> datapath_text(Datapath("drawn", order="blocked", block=2)), datapath_text(DATAPATHS["a100"])
    ("Datapath(products=binary32, order='blocked', block=2)", "'a100'")
    """
    if DATAPATHS.get(path.name) == path:
        return repr(path.name)
    given = {field.name: getattr(path, field.name) for field in fields(path)}
    plain = {field.name: field.default for field in fields(path)}
    said = [
        f"{name}={value.name if isinstance(value, Format) else repr(value)}"
        for name, value in given.items()
        if name not in ("name", "inputs", "variants") and value != plain[name]
    ]
    return f"Datapath({', '.join(said)})"
