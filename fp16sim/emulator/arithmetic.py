"""Correctly rounded arithmetic on arrays: conversions and the operations of IEEE 754-2019 clause 5.

Every operation computes the exact result and rounds it once, as its rounding options say; operands are arrays of
one format, Python numbers follow them. All options are keywords, shared by all functions (`RoundingOptions`):

rounding : str
    ``"nearest_even"`` (default), ``"nearest_away"``, ``"toward_zero"``, ``"toward_positive"``,
    ``"toward_negative"``, ``"to_odd"`` or ``"stochastic"``.
subnormals : {"gradual", "flush"} or bool
    Flush replaces every nonzero tiny result by a zero of its sign.
inputs : {"keep", "zero"}
    ``"zero"`` reads subnormal operands as zeros of their sign.
saturate : bool
    Whether overflows and infinities become the largest finite value.
tininess : {"after", "before"}
    When a result is tiny: judged after rounding or before.
seed, call : int
    Of the random bits of stochastic rounding (`random_bits.py`): the same seed, call and index give the same
    bits. `seed` is required there; count `call` up to draw afresh.
"""

from __future__ import annotations

from typing import Any, Unpack

import numpy as np
import numpy.typing as npt

from fp16sim.emulator import backends
from fp16sim.emulator.arrays import (
    as_values,
    broadcast,
    delivered,
    encoded,
    format_of_operands,
    source_format,
    writable,
)
from fp16sim.emulator.elementwise import (
    RoundingOptions,
    elementwise,
    on_encodings,
    raised_flags,
    record,
    resolve,
    watching,
)
from fp16sim.emulator.formats import as_format

__all__ = [
    "RoundingOptions",
    "add",
    "divide",
    "fma",
    "ieee_remainder",
    "ldexp",
    "logb",
    "maximum",
    "minimum",
    "multiply",
    "nextafter",
    "raised_flags",
    "rint",
    "round_to",
    "subtract",
]


def round_to(
    x: Any,
    format: Any = "binary16",
    *,
    out: npt.NDArray[Any] | None = None,
    **options: Unpack[RoundingOptions],
) -> Any:
    """Round numbers to a format, once.

    A result in tf32 or a format of your own is a float32 array, which does not say its format: pass ``format=`` to
    every operation on it, ``fs.add(a, b, format=it)``. Without, it is taken for binary32 and the result is rounded to
    that.

    Parameters
    ----------
    x : array_like
        Real numbers: float16, bfloat16, 8-bit floats, float32, float64, integers, bool; any shape. A list is
        first made an array by NumPy, which keeps integers beside floats as float64.
    format : Format, str or dtype
        The target.
    out : array, optional
        Where to put the result.
    **options
        `rounding`: ``"nearest_even"`` (default), ``"nearest_away"``, ``"toward_zero"``, ``"toward_positive"``,
        ``"toward_negative"``, ``"to_odd"`` or ``"stochastic"``, which needs ``seed=``. `subnormals`, `inputs`,
        `saturate`, `tininess`, `seed` and `call`: see ``help("fp16sim.emulator.arithmetic")``.
        ``inputs="zero"`` looks at subnormals of the source's own format.

    Returns
    -------
    array or scalar
        Of ``format.dtype``; a format without a dtype (tf32, your own) comes as float32 that holds exact values.

    Raises
    ------
    ValueError, TypeError
        On unknown names and on complex, object or text data.

    Examples
    --------
    >>> import fp16sim as fs
    >>> fs.round_to([65519.0, 65520.0, 2.0**-25]).tolist()
    [65504.0, inf, 0.0]
    >>> hex(fs.round_to(1 + 2**-11 + 2**-40).view("uint16"))
    '0x3c01'
    >>> float(fs.round_to(0.1, "tf32"))
    0.0999755859375
    """
    target = as_format(format)
    values = as_values(x)
    rule, draws = resolve(options, values.shape)
    source = source_format(values)
    flat = np.ascontiguousarray(values).reshape(-1)
    into = writable(out, target, values.shape, (flat,))
    backend = backends.current()
    if source is None:
        words = flat.astype(np.uint64 if values.dtype == np.uint64 else np.int64)
        outcome = backend.convert_integers(words, target, rule, draws, watching(), into)
    else:
        outcome = backend.convert(flat.view(source.uint), source, target, rule, draws, watching(), into)
    record("round_to", outcome)
    return delivered(outcome.bits, into, target, values.shape, out)


def add(
    a: Any,
    b: Any,
    *,
    format: Any = None,
    out: npt.NDArray[Any] | None = None,
    **options: Unpack[RoundingOptions],
) -> Any:
    """Add, rounding the exact sum once.

    Parameters
    ----------
    a, b : array_like
        Arrays of one format, which broadcast; Python numbers are rounded to it (nearest even) first.
    format : Format, str or dtype, optional
        Needed where float32 arrays carry a format without a dtype (``"tf32"``); otherwise the operands tell.
    out : array, optional
        Where to put the result; may be an operand.
    **options
        `rounding`, `subnormals`, `inputs`, `saturate`, `tininess`, `seed` and `call`: see
        ``help("fp16sim.emulator.arithmetic")``.

    Returns
    -------
    array or scalar
        Of the format's dtype.

    >>> import fp16sim as fs
    >>> float(fs.add(2048.0, 1.0)), float(fs.add(2048.0, 1.0, rounding="toward_positive"))
    (2048.0, 2050.0)
    """
    return elementwise("add", (a, b), format, out, options)


def subtract(
    a: Any,
    b: Any,
    *,
    format: Any = None,
    out: npt.NDArray[Any] | None = None,
    **options: Unpack[RoundingOptions],
) -> Any:
    """Subtract, rounding the exact difference once; arguments as those of `add`.

    >>> import fp16sim as fs
    >>> float(fs.subtract(1.0, 1.0, rounding="toward_negative"))
    -0.0
    """
    return elementwise("subtract", (a, b), format, out, options)


def multiply(
    a: Any,
    b: Any,
    *,
    format: Any = None,
    out: npt.NDArray[Any] | None = None,
    **options: Unpack[RoundingOptions],
) -> Any:
    """Multiply, rounding the exact product once; arguments as those of `add`.

    >>> import fp16sim as fs
    >>> float(fs.multiply(256.0, 256.0)), float(fs.multiply(256.0, 256.0, saturate=True))
    (inf, 65504.0)
    """
    return elementwise("multiply", (a, b), format, out, options)


def divide(
    a: Any,
    b: Any,
    *,
    format: Any = None,
    out: npt.NDArray[Any] | None = None,
    **options: Unpack[RoundingOptions],
) -> Any:
    """Divide, rounding the exact quotient once; arguments as those of `add`.

    >>> import fp16sim as fs
    >>> float(fs.divide(1.0, 3.0)), float(fs.divide(1.0, 0.0))
    (0.333251953125, inf)
    """
    return elementwise("divide", (a, b), format, out, options)


def fma(
    a: Any,
    b: Any,
    c: Any,
    *,
    format: Any = None,
    out: npt.NDArray[Any] | None = None,
    **options: Unpack[RoundingOptions],
) -> Any:
    """Multiply and add with one rounding, a * b + c; arguments as those of `add`.

    fma(0, inf, NaN) raises invalid, as Berkeley SoftFloat has it.

    >>> import fp16sim as fs
    >>> x = 1 + 2**-6
    >>> float(fs.fma(x, x, -1.0)), float(fs.subtract(fs.multiply(x, x), 1.0))
    (0.031494140625, 0.03125)
    """
    return elementwise("fma", (a, b, c), format, out, options)


def ieee_remainder(
    a: Any,
    b: Any,
    *,
    format: Any = None,
    out: npt.NDArray[Any] | None = None,
    **options: Unpack[RoundingOptions],
) -> Any:
    """Give a - b * n, exactly, with n the integer nearest to a / b, ties to even (IEEE 754-2019, 5.3.1).

    NumPy's ``remainder`` is another function: it has the sign of b. Arguments as those of `add`.

    >>> import fp16sim as fs
    >>> float(fs.ieee_remainder(5.0, 3.0)), float(fs.ieee_remainder(4.0, 3.0))
    (-1.0, 1.0)
    """
    return elementwise("ieee_remainder", (a, b), format, out, options)


def minimum(
    a: Any,
    b: Any,
    *,
    format: Any = None,
    out: npt.NDArray[Any] | None = None,
    **options: Unpack[RoundingOptions],
) -> Any:
    """Give the smaller operand (IEEE 754-2019, 9.6): NaN propagates, -0 is below +0. Arguments as those of `add`.

    It is delivered as a result: flushed or saturated where the options say so.

    >>> import fp16sim as fs
    >>> float(fs.minimum(0.0, -0.0))
    -0.0
    """
    return elementwise("minimum", (a, b), format, out, options)


def maximum(
    a: Any,
    b: Any,
    *,
    format: Any = None,
    out: npt.NDArray[Any] | None = None,
    **options: Unpack[RoundingOptions],
) -> Any:
    """Give the larger operand (IEEE 754-2019, 9.6): NaN propagates, +0 is above -0. Arguments as those of `add`.

    It is delivered as a result: flushed or saturated where the options say so.

    >>> import fp16sim as fs
    >>> float(fs.maximum(float("nan"), 1.0))
    nan
    """
    return elementwise("maximum", (a, b), format, out, options)


def nextafter(
    a: Any,
    b: Any,
    *,
    format: Any = None,
    out: npt.NDArray[Any] | None = None,
    **options: Unpack[RoundingOptions],
) -> Any:
    """Give the value next to a in the direction of b, b where they are equal; raises no flag but invalid.

    Arguments as those of `add`.

    >>> import fp16sim as fs
    >>> float(fs.nextafter(float("inf"), 0.0)), float(fs.nextafter(0.0, 1.0)) == 2**-24
    (65504.0, True)
    """
    return elementwise("nextafter", (a, b), format, out, options)


def ldexp(
    x: Any,
    n: Any,
    *,
    format: Any = None,
    out: npt.NDArray[Any] | None = None,
    **options: Unpack[RoundingOptions],
) -> Any:
    """Multiply by a power of two, rounding once (scaleB, IEEE 754-2019, 5.3.3).

    Parameters
    ----------
    x : array_like
        Of one format.
    n : array_like of integers
        Exponents of the power, however large; broadcasts with `x`.
    format, out, **options
        As those of `add`.

    >>> import fp16sim as fs
    >>> fs.ldexp(1.0, [-24, -25, 16]).tolist()
    [5.960464477539063e-08, 0.0, inf]
    """
    # Beyond +-2000 nothing changes any more for formats of up to 8 exponent bits.
    exponents = as_values(max(-2000, min(n, 2000)) if isinstance(n, int) and not isinstance(n, bool) else n)
    if exponents.dtype.kind not in "iu":
        raise TypeError(
            f"n is {exponents.dtype}: the exponent of a power of two is an integer; pass integers"
        )
    fmt = format_of_operands((x,), format)
    whole = np.clip(exponents, -2000, 2000).astype(np.int64)
    shape, bits = broadcast(encoded(x, fmt), whole)
    return on_encodings("ldexp", bits, shape, fmt, out, options)


def rint(
    x: Any,
    *,
    format: Any = None,
    out: npt.NDArray[Any] | None = None,
    **options: Unpack[RoundingOptions],
) -> Any:
    """Round to an integral value in the mode, raising inexact where that changes it (IEEE 754-2019, 5.3.1).

    Arguments as those of `add`.

    >>> import fp16sim as fs
    >>> fs.rint([0.5, 1.5, -0.25]).tolist()
    [0.0, 2.0, -0.0]
    """
    return elementwise("rint", (x,), format, out, options)


def logb(
    x: Any,
    *,
    format: Any = None,
    out: npt.NDArray[Any] | None = None,
    **options: Unpack[RoundingOptions],
) -> Any:
    """Give the exponent of each value as a number of the format (IEEE 754-2019, 5.3.3).

    Zero gives -infinity and raises divide_by_zero. Arguments as those of `add`.

    >>> import fp16sim as fs
    >>> fs.logb([1.0, 6e-8, 65504.0]).tolist()
    [0.0, -24.0, 15.0]
    """
    return elementwise("logb", (x,), format, out, options)
