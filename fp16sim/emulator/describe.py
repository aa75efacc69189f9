"""One number seen up close: its bits, its neighbours, and what a loss scale does for it.

Everything is computed in exact rational arithmetic and rounded to the format once, to nearest, ties to even.
"""

from __future__ import annotations

import html
import json
import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np

from fp16sim.emulator.formats import Format, as_format
from fp16sim.emulator.rounding import round_fraction

__all__ = ["ZONES", "Description", "describe"]

ZONES = {
    "normal": "full precision",
    "subnormal": "below the smallest normal; the smaller, the fewer bits",
    "flushed": "not zero, but stored as zero; the number is lost",
    "overflow": "too large for the format",
    "zero": "zero itself",
    "infinity": "infinity itself",
    "nan": "not a number",
}
"""Where a number can fall in a format, and what that means."""


@dataclass(frozen=True)
class Description:
    """A number, what a format stores for it, and what is recovered when it is scaled before it is stored.

    Attributes
    ----------
    value : float
        The number asked for (the nearest float64; the computation itself is exact).
    format : Format
        The format that stores it.
    bits : str
        The stored encoding as ``sign | exponent | fraction``.
    stored : float
        The value stored: `value` rounded once, to nearest, ties to even.
    below, above : float
        The values of the format next to `stored` on either side; NaN where there is none.
    ulp : float
        The distance between values of the format around `stored`; NaN for infinity and NaN.
    zone : str
        A key of `ZONES`.
    error : float
        ``|stored - value| / |value|``, computed exactly and rounded to float64 at the end; infinity after an
        overflow to infinity, NaN where NaN is involved.
    scale : float
        The factor that the number is multiplied by before it is stored.
    scaled : Description or None
        What the format stores for ``value * scale``; None when `scale` is 1.
    recovered : float
        ``scaled.stored / scale``, or `stored` when `scale` is 1: what is left after unscaling in float64.
    recovered_error : float
        As `error`, of `recovered`.

    Examples
    --------
    >>> print(describe(2e-8, scale=1024))
    2e-08 in binary16
      bits         0 | 00000 | 0000000000   (0x0000)
      stored       0.0, relative error 100%
      neighbours   -5.960464477539063e-08 below, 5.960464477539063e-08 above
      ulp          2^-24 = 5.960464477539063e-08
      zone         flushed (not zero, but stored as zero; the number is lost)
    times 1024 it is 2.048e-05
      bits         0 | 00000 | 0101011000   (0x0158)
      stored       2.0503997802734375e-05, relative error 0.1172%
      neighbours   2.0444393157958984e-05 below, 2.0563602447509766e-05 above
      ulp          2^-24 = 5.960464477539063e-08
      zone         subnormal (below the smallest normal; the smaller, the fewer bits)
    divided by 1024 again
      recovered    2.0023435354232788e-08, relative error 0.1172%
    """

    value: float
    format: Format
    bits: str
    stored: float
    below: float
    above: float
    ulp: float
    zone: str
    error: float
    scale: float
    scaled: Description | None
    recovered: float
    recovered_error: float

    def _rows(self) -> list[tuple[str, str]]:
        encoding = int(self.bits.replace(" | ", ""), 2)
        digits = -(-self.format.width // 4)
        neighbours = f"{_shown(self.below)} below, {_shown(self.above)} above"
        return [
            ("bits", f"{self.bits}   (0x{encoding:0{digits}x})"),
            ("stored", _with_error(self.stored, self.error)),
            ("neighbours", neighbours),
            ("ulp", "none" if math.isnan(self.ulp) else f"{_power(self.ulp)} = {self.ulp!r}"),
            ("zone", f"{self.zone} ({ZONES[self.zone]})"),
        ]

    def _sections(self) -> list[tuple[str, list[tuple[str, str]]]]:
        sections = [(f"{self.value!r} in {self.format.name}", self._rows())]
        if self.scaled is not None:
            scale = _plain(self.scale)
            sections.append((f"times {scale} it is {self.scaled.value!r}", self.scaled._rows()))
            recovered = [("recovered", _with_error(self.recovered, self.recovered_error))]
            sections.append((f"divided by {scale} again", recovered))
        return sections

    def __str__(self) -> str:
        lines = []
        for title, rows in self._sections():
            lines.append(title)
            lines += [f"  {name:<11}  {text}" for name, text in rows]
        return "\n".join(lines)

    def to_json(self) -> str:
        """Give the description as one JSON object; infinities and NaN are "Infinity", "-Infinity", "NaN".

        >>> import json
        >>> json.loads(describe(65520.0).to_json())["stored"]
        'Infinity'
        """
        return json.dumps(self._fields(), allow_nan=False)

    def _fields(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields["format"] = self.format.name
        fields["scaled"] = None if self.scaled is None else self.scaled._fields()
        return {
            name: _json_word(field) if isinstance(field, float) and not math.isfinite(field) else field
            for name, field in fields.items()
        }

    def _repr_html_(self) -> str:
        left = "style='text-align: left; padding: .1em 1.2em .1em 0"
        parts = ["<table style='font-family: ui-monospace, monospace; border-collapse: collapse'>"]
        for title, rows in self._sections():
            parts.append(f"<tr><th colspan='2' {left}; padding-top: .6em'>{html.escape(title)}</th></tr>")
            for name, text in rows:
                parts.append(
                    f"<tr><td {left}; opacity: .7'>{name}</td><td {left}'>{html.escape(text)}</td></tr>"
                )
        return "".join([*parts, "</table>"])


def describe(x: Any, format: Format | str | Any = "binary16", scale: Any = 1.0) -> Description:
    """Show what a format stores for a number, and whether a scale saves it.

    Parameters
    ----------
    x : number
        A Python or NumPy number, a Fraction, a Decimal, or an array of one element; its exact value counts.
    format : Format, str or dtype
        As `fp16sim.emulator.formats.as_format` takes it.
    scale : number
        A positive finite factor; ``x * scale`` is computed exactly and rounded once.

    Returns
    -------
    Description
        Prints as text; shows as a table in a notebook.

    Raises
    ------
    TypeError
        If `x` or `scale` is not one real number.
    ValueError
        If the format is unknown, the scale is not positive and finite, or a number lies beyond float64.

    Examples
    --------
    >>> describe(2e-8).zone, describe(2e-8, scale=8).zone, describe(2e-8, scale=8).scaled.zone
    ('flushed', 'flushed', 'subnormal')
    >>> describe(65519.0).stored, describe(65520.0).stored, describe(500.0, "e4m3").stored
    (65504.0, inf, nan)
    """
    fmt = as_format(format)
    exact, negative = _exact("x", x)
    factor, _ = _exact("scale", scale)
    if not isinstance(factor, Fraction) or factor <= 0:
        raise ValueError(
            f"scale={scale!r}: a loss scale is positive and finite; use a power of two such as 8 or 1024"
        )
    if factor == 1:
        return _described(exact, negative, fmt, factor, None)
    product = exact * factor if isinstance(exact, Fraction) else exact
    if isinstance(product, Fraction):
        _exact("x * scale", product)
    return _described(exact, negative, fmt, factor, _described(product, negative, fmt, Fraction(1), None))


def _exact(name: str, x: Any) -> tuple[Fraction | float, bool]:
    """Give the exact value of a number (a float for infinities and NaN only) and whether it is negative."""
    if isinstance(x, np.ndarray) and x.size == 1:
        x = x.reshape(())[()]
    if isinstance(x, np.generic) and not isinstance(x, (np.complexfloating, np.object_, np.longdouble)):
        kind = np.dtype(x.dtype).kind
        # bfloat16 and the 8-bit formats are of kind V; all their values are float64 values.
        x = int(x) if kind in "biu" else float(x) if kind in "fV" else x
    if isinstance(x, (float, Decimal)) and not math.isfinite(x):
        value = float(x)
        return value, value < 0
    if not isinstance(x, (float, Rational, Decimal)):
        raise TypeError(
            f"{name}={x!r}: describe looks at one real number; pass an int, a float or a single element"
        )
    exact = Fraction(x)
    if abs(exact) >= 2**1024:
        raise ValueError(f"{name}={x!s:.40}: beyond float64; use a number below 2**1024")
    return exact, exact < 0 or (exact == 0 and isinstance(x, (float, Decimal)) and math.copysign(1.0, x) < 0)


def _described(
    exact: Fraction | float, negative: bool, fmt: Format, scale: Fraction, scaled: Description | None
) -> Description:
    bits, zone = _store(exact, negative, fmt)
    stored = fmt.decode(bits)
    below, above = _neighbours(bits, fmt)
    value = _as_float(exact, negative)
    recovered: Fraction | float = stored
    if scaled is not None:
        recovered = scaled.stored
        if math.isfinite(scaled.stored) and scaled.stored != 0:
            recovered = Fraction(scaled.stored) / scale
    text = f"{bits:0{fmt.width}b}"
    return Description(
        value=value,
        format=fmt,
        bits=f"{text[0]} | {text[1 : 1 + fmt.exponent_bits]} | {text[1 + fmt.exponent_bits :]}",
        stored=stored,
        below=below,
        above=above,
        ulp=_ulp(stored, fmt),
        zone=zone,
        error=_relative_error(stored, exact),
        scale=float(scale),
        scaled=scaled,
        recovered=_as_float(recovered, negative),
        recovered_error=_relative_error(recovered, exact),
    )


def _store(exact: Fraction | float, negative: bool, fmt: Format) -> tuple[int, str]:
    """Round to nearest even: the encoding and the zone."""
    sign = fmt.sign_bit if negative else 0
    beyond = fmt.nan_bits if fmt.inf_bits is None else sign | fmt.inf_bits
    if not isinstance(exact, Fraction):
        if math.isnan(exact):
            return fmt.nan_bits, "nan"
        return beyond, "overflow" if fmt.inf_bits is None else "infinity"
    if exact == 0:
        return sign, "zero"
    magnitude = abs(exact)
    exponent = max(_exponent(magnitude), fmt.emin)
    units = round_fraction(
        magnitude / Fraction(2) ** (exponent - fmt.fraction_bits), negative, "nearest_even"
    )
    # A carry-free packing: the implicit bit of a normal significand adds one to the exponent field.
    bits = ((exponent - fmt.emin) << fmt.fraction_bits) + units
    if bits > fmt.max_bits:
        return beyond, "overflow"
    if bits >= 1 << fmt.fraction_bits:
        # Without subnormals: tiny is what stays below the smallest normal when rounded to full precision.
        if fmt.subnormals or magnitude >= Fraction(fmt.min_normal) * (
            1 - Fraction(1, 2 ** (fmt.precision + 1))
        ):
            return sign | bits, "normal"
        return sign, "flushed"
    if bits == 0 or not fmt.subnormals:
        return sign, "flushed"
    return sign | bits, "subnormal"


def _exponent(magnitude: Fraction) -> int:
    """Floor of the base-two logarithm of a positive fraction, exactly."""
    guess = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    return guess if magnitude >= Fraction(2) ** guess else guess - 1


def _neighbours(bits: int, fmt: Format) -> tuple[float, float]:
    """The values of the format just below and just above an encoding; NaN where there is none."""
    magnitude = bits & (fmt.sign_bit - 1)
    smallest = 1 if fmt.subnormals else 1 << fmt.fraction_bits
    if magnitude > fmt.max_bits and magnitude != fmt.inf_bits:
        return math.nan, math.nan
    if magnitude == 0:
        return fmt.decode(fmt.sign_bit | smallest), fmt.decode(smallest)
    if magnitude == fmt.inf_bits:
        outward, inward = math.nan, fmt.max_finite
    else:
        outward = fmt.decode(magnitude + 1) if magnitude < fmt.max_bits else _beyond(fmt)
        inward = fmt.decode(magnitude - 1) if magnitude > smallest else 0.0
    return (-outward, -inward) if bits & fmt.sign_bit else (inward, outward)


def _beyond(fmt: Format) -> float:
    return math.nan if fmt.inf_bits is None else math.inf


def _ulp(stored: float, fmt: Format) -> float:
    if not math.isfinite(stored):
        return math.nan
    if stored == 0:
        return fmt.min_subnormal
    return math.ldexp(1.0, max(_exponent(abs(Fraction(stored))), fmt.emin) - fmt.fraction_bits)


def _relative_error(got: Fraction | float, exact: Fraction | float) -> float:
    if not isinstance(exact, Fraction):
        return 0.0 if got == exact else math.nan
    if not math.isfinite(got):
        return math.nan if math.isnan(got) else math.inf
    if exact == 0:
        return 0.0
    return float(abs(Fraction(got) - exact) / abs(exact))


def _as_float(number: Fraction | float, negative: bool) -> float:
    """The nearest float64, with the sign of a zero kept."""
    value = float(number)
    return -0.0 if value == 0 and negative else value


def _json_word(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _shown(value: float) -> str:
    return "none" if math.isnan(value) else repr(value)


def _with_error(value: float, error: float) -> str:
    if error == 0:
        return f"{value!r}, exactly"
    return f"{value!r}, relative error {100 * error:.4g}%" if math.isfinite(error) else repr(value)


def _power(value: float) -> str:
    """Write a power of two as such."""
    return f"2^{_exponent(Fraction(value))}"


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) and value < 2**53 else repr(value)
