"""What all elementwise functions share: their rounding options, and the way from operands to the backend."""

from __future__ import annotations

from operator import index
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from fp16sim.emulator import backends, events
from fp16sim.emulator.arrays import broadcast, delivered, encoded, format_of_operands, writable
from fp16sim.emulator.backends.base import Draws, Outcome
from fp16sim.emulator.formats import Format, nearest_name
from fp16sim.emulator.random_bits import key_of
from fp16sim.emulator.rounding import Rounding

__all__ = ["RoundingOptions", "elementwise", "on_encodings", "raised_flags", "record", "resolve", "watching"]


class RoundingOptions(TypedDict, total=False):
    """The keywords that every elementwise function takes; `arithmetic.py` explains them.

    `random_bits` is for tests: 32 for each result, instead of those that `seed` and `call` give.
    """

    rounding: str
    subnormals: str | bool
    inputs: str
    saturate: bool
    tininess: str
    seed: int | None
    call: int
    random_bits: npt.ArrayLike | None


_OPTIONS = tuple(RoundingOptions.__annotations__)
_TWO = ("add", "subtract", "multiply", "divide", "ieee_remainder", "minimum", "maximum", "nextafter")
ARITY = {"sqrt": 1, "rint": 1, "logb": 1, "fma": 3, **dict.fromkeys(_TWO, 2)}
"""Operands of each operation that `raised_flags` knows."""

_DEFAULT = Rounding()


def resolve(options: RoundingOptions, shape: tuple[int, ...]) -> tuple[Rounding, Draws]:
    """Check options: the rule, and where random bits come from."""
    if not options:
        return _DEFAULT, None
    unknown = [name for name in options if name not in _OPTIONS]
    if unknown:
        public = [name for name in _OPTIONS if name != "random_bits"]
        raise TypeError(f"unknown option {unknown[0]!r}: {nearest_name(unknown[0], public)}")
    subnormals: Any = options.get("subnormals", "gradual")
    if subnormals in (True, False):  # NumPy's too
        subnormals = "gradual" if subnormals else "flush"
    saturate = options.get("saturate", False)
    if saturate not in (True, False):
        raise ValueError(f"saturate={saturate!r}: it is on or off; pass True or False")
    rule = Rounding(
        options.get("rounding", "nearest_even"),
        subnormals,
        options.get("inputs", "keep"),
        bool(saturate),
        options.get("tininess", "after"),
    )
    return rule, _draws(options, shape) if rule.mode == "stochastic" else None


def _draws(options: RoundingOptions, shape: tuple[int, ...]) -> Draws:
    """Find where stochastic rounding takes its bits."""
    given, seed = options.get("random_bits"), options.get("seed")
    if given is not None:
        bits = np.asarray(given)
        if bits.size and (bits.dtype.kind not in "iu" or bits.min() < 0 or bits.max() >= 2**32):
            raise ValueError("random_bits: 32 for each result; pass integers in [0, 2**32)")
        return np.ascontiguousarray(np.broadcast_to(bits.astype(np.uint32), shape)).reshape(-1)
    if seed is None:
        raise ValueError("seed=None: stochastic rounding draws random bits; pass seed=0 or another integer")
    return key_of(_word("seed", seed), _word("call", options.get("call", 0)))


def _word(name: str, value: Any) -> int:
    """Check a 64-bit number; cut to 64 bits, another one would give the same random bits."""
    try:
        number = index(value)
    except TypeError:
        raise TypeError(f"{name}={value!r}: it is an integer; pass one in [0, 2**64)") from None
    if not 0 <= number < 2**64:
        raise ValueError(f"{name}={number}: it has 64 bits; pass an integer in [0, 2**64)")
    return number


def watching() -> str:
    """What an operation asks of the backend beside results."""
    return "counts" if events.counting() else ""


def record(operation: str, outcome: Outcome) -> None:
    """Add what a backend counted to the open blocks."""
    if outcome.counts is not None:
        events.record(operation, outcome.counts)


def elementwise(
    operation: str,
    operands: tuple[Any, ...],
    format: Any,
    out: npt.NDArray[Any] | None,
    options: RoundingOptions,
) -> Any:
    """Perform an operation of the backend on broadcast operands."""
    fmt = format_of_operands(operands, format)
    shape, bits = broadcast(*(encoded(x, fmt) for x in operands))
    return on_encodings(operation, bits, shape, fmt, out, options)


def on_encodings(
    operation: str,
    bits: list[npt.NDArray[Any]],
    shape: tuple[int, ...],
    fmt: Format,
    out: npt.NDArray[Any] | None,
    options: RoundingOptions,
) -> Any:
    """Perform an operation on flat encodings of one shape."""
    rule, draws = resolve(options, shape)
    into = writable(out, fmt, shape, bits)
    outcome = backends.current().elementwise(operation, bits, fmt, rule, draws, watching(), into)
    record(operation, outcome)
    return delivered(outcome.bits, into, fmt, shape, out)


def raised_flags(
    operation: str, *operands: Any, format: Any = None, **options: Unpack[RoundingOptions]
) -> npt.NDArray[np.uint8]:
    """Give the flags that each element of an operation raises, as the bits of ``flags.FLAG_NAMES``.

    `operation` is one of `ARITY`; operands and options are those of the function of that name.

    >>> raised_flags("divide", [1.0, 1.0, 0.0], [0.0, 3.0, 0.0]).tolist()
    [16, 32, 8]
    """
    if operation not in ARITY:
        raise ValueError(f"no flags of {operation!r}: {nearest_name(operation, list(ARITY))}")
    if len(operands) != ARITY[operation]:
        raise TypeError(f"{operation} of {len(operands)} operands: it takes {ARITY[operation]}; pass as many")
    fmt = format_of_operands(operands, format)
    shape, bits = broadcast(*(encoded(x, fmt) for x in operands))
    rule, draws = resolve(options, shape)
    flags = backends.current().elementwise(operation, bits, fmt, rule, draws, "flags").flags
    assert flags is not None
    return flags.reshape(shape)
