"""Functions of one binary16 argument, correctly rounded in every mode.

Each result is the exact value of the function at the argument, rounded once. All go through tables with an entry
for each of the 65,536 encodings, made when a function is first used (`tables.py`). All take the rounding options
of `arithmetic.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, Unpack

import numpy as np
import numpy.typing as npt

from fp16sim.emulator import backends
from fp16sim.emulator.arrays import delivered, encoded, format_of_operands, writable
from fp16sim.emulator.elementwise import RoundingOptions, elementwise, record, resolve, watching
from fp16sim.emulator.formats import binary16, nearest_name

__all__ = [
    "atan",
    "cbrt",
    "cos",
    "cosh",
    "erf",
    "exp",
    "exp2",
    "expm1",
    "gelu",
    "log",
    "log1p",
    "log2",
    "log10",
    "reciprocal",
    "rsqrt",
    "sigmoid",
    "silu",
    "sin",
    "sinh",
    "softplus",
    "sqrt",
    "square",
    "tan",
    "tanh",
]


class Function(Protocol):
    """A function of one argument with the rounding options of `arithmetic.py`."""

    def __call__(
        self, x: Any, *, out: npt.NDArray[Any] | None = None, **options: Unpack[RoundingOptions]
    ) -> Any:
        """Compute the function."""


def _look_up(name: str, x: Any, out: npt.NDArray[Any] | None, options: RoundingOptions) -> Any:
    if "format" in options:
        given = dict(options)["format"]
        raise TypeError(
            f"format={given!r}: {name} is tabulated for binary16 only and takes no format; convert with "
            "fp16sim.round_to(x, 'binary16')"
        )
    fmt = format_of_operands((x,), None)
    if fmt != binary16:
        raise TypeError(
            f"{fmt.name} argument: {name} is tabulated for binary16; convert with fp16sim.round_to(x, 'binary16')"
        )
    bits = encoded(x, fmt)
    rule, draws = resolve(options, bits.shape)
    flat = np.ascontiguousarray(bits).reshape(-1)
    into = writable(out, fmt, bits.shape, (flat,))
    outcome = backends.current().function(name, flat, rule, draws, watching(), into)
    record(name, outcome)
    return delivered(outcome.bits, into, fmt, bits.shape, out)


def _tabulated(name: str, meaning: str, argument: str, result: str) -> Function:
    """Make the public function of a table."""

    def function(x: Any, *, out: npt.NDArray[Any] | None = None, **options: Unpack[RoundingOptions]) -> Any:
        return _look_up(name, x, out, options)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{meaning}, rounded once.

    Parameters
    ----------
    x : array_like
        binary16 arrays of any shape; Python numbers and lists are rounded to binary16 (nearest even) first.
    out : float16 array, optional
        Where to put the result; may be the argument.
    **options
        `rounding`, `subnormals`, `inputs`, `saturate`, `tininess`, `seed` and `call`: see
        ``help("fp16sim.emulator.arithmetic")``.

    Returns
    -------
    float16 array or scalar

    >>> import fp16sim as fs
    >>> float(fs.{name}({argument}))
    {result}
    """
    return function


exp = _tabulated("exp", "Exponential", "1.0", "2.71875")
exp2 = _tabulated("exp2", "2 to the power x", "-24.0", "5.960464477539063e-08")
expm1 = _tabulated("expm1", "exp(x) - 1", "2.0**-12", "0.000244140625")
log = _tabulated("log", "Natural logarithm; of 0 -infinity with divide_by_zero, below invalid", "0.0", "-inf")
log2 = _tabulated(
    "log2", "Logarithm to base 2; of 0 -infinity with divide_by_zero, below invalid", "2.0**-24", "-24.0"
)
log10 = _tabulated(
    "log10", "Logarithm to base 10; of 0 -infinity with divide_by_zero, below invalid", "1000.0", "3.0"
)
log1p = _tabulated(
    "log1p", "log(1 + x); at -1 -infinity with divide_by_zero, below invalid", "2.0**-12", "0.000244140625"
)
sin = _tabulated("sin", "Sine of an angle in radians", "65504.0", "0.9755859375")
cos = _tabulated("cos", "Cosine of an angle in radians", "0.0", "1.0")
tan = _tabulated("tan", "Tangent of an angle in radians", "0.0", "0.0")
tanh = _tabulated("tanh", "Hyperbolic tangent", "5.0", "1.0")
sinh = _tabulated("sinh", "Hyperbolic sine", "12.0", "inf")
cosh = _tabulated("cosh", "Hyperbolic cosine", "0.0", "1.0")
atan = _tabulated("atan", "Arc tangent, in radians", "1.0", "0.78515625")
sigmoid = _tabulated("sigmoid", "Logistic function 1 / (1 + exp(-x))", "8.4", "1.0")
softplus = _tabulated("softplus", "log(1 + exp(x))", "0.0", "0.693359375")
erf = _tabulated("erf", "Error function", "0.5", "0.5205078125")
silu = _tabulated("silu", "x / (1 + exp(-x)), also called swish", "1.0", "0.73095703125")
rsqrt = _tabulated("rsqrt", "1 / sqrt(x); of a zero an infinity with divide_by_zero", "4.0", "0.5")
reciprocal = _tabulated(
    "reciprocal", "1 / x; of a zero an infinity with divide_by_zero", "3.0", "0.333251953125"
)
cbrt = _tabulated("cbrt", "Cube root", "-27.0", "-3.0")
square = _tabulated("square", "x * x", "256.0", "inf")

_GELUS: dict[str, Callable[..., Any]] = {
    "none": _tabulated("gelu", "x times the normal distribution function", "1.0", "0.84130859375"),
    "tanh": _tabulated("gelu_tanh", "The tanh form of gelu", "1.0", "0.84130859375"),
}


def gelu(
    x: Any,
    *,
    approximate: str = "none",
    out: npt.NDArray[Any] | None = None,
    **options: Unpack[RoundingOptions],
) -> Any:
    """Gaussian error linear unit, rounded once.

    Parameters
    ----------
    x : array_like
        As for `exp`.
    approximate : {"none", "tanh"}
        x times the normal distribution function at x, or x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
        (Hendrycks and Gimpel, arXiv 1606.08415); the whole formula is rounded once.
    out, **options
        As for `exp`.

    Returns
    -------
    float16 array or scalar

    >>> import fp16sim as fs
    >>> float(fs.gelu(-1.0)), float(fs.gelu(41.0, approximate="tanh"))
    (-0.15869140625, 41.0)
    """
    if approximate not in _GELUS:
        raise ValueError(f"unknown approximate {approximate!r}: {nearest_name(approximate, list(_GELUS))}")
    return _GELUS[approximate](x, out=out, **options)


def sqrt(
    x: Any,
    *,
    format: Any = None,
    out: npt.NDArray[Any] | None = None,
    **options: Unpack[RoundingOptions],
) -> Any:
    """Square root, rounded once; below zero invalid, sqrt(-0) = -0 (IEEE 754-2019, 5.4.1).

    Parameters
    ----------
    x : array_like
        Of any format; arguments as those of `fp16sim.add`.

    >>> import fp16sim as fs
    >>> float(fs.sqrt(2.0)), float(fs.sqrt(2.0, rounding="toward_positive"))
    (1.4140625, 1.4150390625)
    """
    if format_of_operands((x,), format) == binary16:
        return _look_up("sqrt", x, out, options)
    return elementwise("sqrt", (x,), format, out, options)
