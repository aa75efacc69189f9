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

from fp16sim.emulator.exact import Value, decode, floor_log2, round_value
from fp16sim.emulator.flags import OVERFLOW
from fp16sim.emulator.formats import Format, as_format
from fp16sim.emulator.number_text import parse_number
from fp16sim.emulator.reference_order import nextafter

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


@dataclass(frozen=True, repr=False)
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

    __repr__ = __str__

    def to_json(self) -> str:
        """Give the description as one JSON object; infinities and NaN are "Infinity", "-Infinity", "NaN".

        What is recovered is null without a scale.

        >>> import json
        >>> json.loads(describe(65520.0).to_json())["stored"]
        'Infinity'
        """
        return json.dumps(self._fields(), allow_nan=False)

    def _fields(self) -> dict[str, Any]:
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields["format"] = self.format.name
        fields["scaled"] = None if self.scaled is None else self.scaled._fields()
        if self.scaled is None:  # nothing was scaled, so nothing is recovered
            fields["recovered"] = fields["recovered_error"] = None
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

    The command ``fp16sim explain`` prints this; `fp16sim.explain` is something else, a dot product step by step.

    Parameters
    ----------
    x : number or str
        A Python or NumPy number, a Fraction, a Decimal, an array of one element, or text as the command line takes
        it (``"2e-8"``, ``"2^-25"``, ``"1/3"``); its exact value counts.
    format : Format, str or dtype
        As `fp16sim.emulator.formats.as_format` takes it.
    scale : number or str
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
        If the format is unknown, text is no number, the scale is not positive and finite, or a number is beyond
        float64.

    Examples
    --------
    >>> describe(2e-8).zone, describe(2e-8, scale=8).zone, describe(2e-8, scale=8).scaled.zone
    ('flushed', 'flushed', 'subnormal')
    >>> describe(65519.0).stored, describe(65520.0).stored, describe(500.0, "e4m3").stored
    (65504.0, inf, nan)
    """
    fmt = as_format(format)
    exact = _exact("x", x)
    factor = _exact("scale", scale)
    if factor.kind != "finite" or factor.number <= 0:
        raise ValueError(
            f"scale={scale}: a loss scale is positive and finite; use a power of two such as 8 or 1024"
        )
    if factor.number == 1:
        return _described(exact, fmt, factor.number, None)
    product = exact
    if exact.kind == "finite":
        product = Value("finite", exact.negative, _within("x * scale", exact.magnitude * factor.magnitude))
    return _described(exact, fmt, factor.number, _described(product, fmt, Fraction(1), None))


def _exact(name: str, x: Any) -> Value:
    """Read a number of any kind without loss."""
    if isinstance(x, str):
        x = parse_number(x, name)
    if isinstance(x, np.ndarray) and x.size == 1:
        x = x.reshape(())[()]
    if isinstance(x, np.generic) and not isinstance(x, (np.complexfloating, np.longdouble)):
        # bfloat16 and the 8-bit formats are of kind V; all their values are float64 values.
        kind = np.dtype(x.dtype).kind
        x = int(x) if kind in "biu" else float(x) if kind in "fV" else x
    if not isinstance(x, (float, Rational, Decimal)):
        raise TypeError(
            f"{name}={x!r}: one real number is described; pass an int, a float or a single element"
        )
    # Not math.isfinite: it turns a Decimal into a float first, and 1e400 into infinity.
    if not (x.is_finite() if isinstance(x, Decimal) else math.isfinite(x) if isinstance(x, float) else True):
        return Value("nan") if x != x else Value("infinity", x < 0)
    if isinstance(x, Decimal) and abs(x.adjusted()) > 1000:
        raise ValueError(f"{name}={x}: describe works out the exact value; use an exponent within 1000")
    minus_zero = isinstance(x, (float, Decimal)) and math.copysign(1.0, x) < 0
    number = Fraction(x)
    _within(name, abs(number))
    return Value.of(number, negative_zero=minus_zero)


def _within(name: str, magnitude: Fraction) -> Fraction:
    if magnitude >= 2**1024:
        raise ValueError(
            f"{name}: about 2^{floor_log2(magnitude)} is beyond float64; use a number below 2^1024"
        )
    return magnitude


def _described(exact: Value, fmt: Format, scale: Fraction, scaled: Description | None) -> Description:
    bits, flags = round_value(exact, fmt)
    stored = decode(bits, fmt)
    recovered = stored if scaled is None else _exact("stored", scaled.stored)
    if scaled is not None and recovered.kind == "finite":
        recovered = Value("finite", recovered.negative, recovered.magnitude / scale)
    text = f"{bits:0{fmt.width}b}"
    return Description(
        value=_as_float(exact),
        format=fmt,
        bits=f"{text[0]} | {text[1 : 1 + fmt.exponent_bits]} | {text[1 + fmt.exponent_bits :]}",
        stored=_as_float(stored),
        below=_neighbour(bits, fmt, up=False),
        above=_neighbour(bits, fmt, up=True),
        ulp=_ulp(stored, fmt),
        zone=_zone(exact, stored, fmt, flags),
        error=_relative_error(stored, exact),
        scale=float(scale),
        scaled=scaled,
        recovered=_as_float(recovered),
        recovered_error=_relative_error(recovered, exact),
    )


def _zone(exact: Value, stored: Value, fmt: Format, flags: int) -> str:
    if flags & OVERFLOW:
        return "overflow"
    if exact.kind != "finite":
        return exact.kind
    if exact.is_zero:
        return "zero"
    if stored.is_zero:
        return "flushed"
    return "normal" if stored.magnitude >= fmt.min_normal else "subnormal"


def _neighbour(bits: int, fmt: Format, up: bool) -> float:
    """The next value of the format in one direction; NaN where there is none."""
    outermost = fmt.max_bits if fmt.inf_bits is None else fmt.inf_bits
    beside = nextafter(bits, outermost if up else fmt.sign_bit | outermost, fmt).bits
    return math.nan if beside == bits else float(fmt.decode(beside))


def _ulp(stored: Value, fmt: Format) -> float:
    if stored.kind != "finite":
        return math.nan
    if stored.is_zero:
        return fmt.min_subnormal
    return math.ldexp(1.0, max(floor_log2(stored.magnitude), fmt.emin) - fmt.fraction_bits)


def _relative_error(got: Value, exact: Value) -> float:
    if exact.kind == "infinity" and got == exact:
        return 0.0
    if exact.kind != "finite" or got.kind == "nan":
        return math.nan
    if got.kind == "infinity":
        return math.inf
    return 0.0 if exact.is_zero else _nearest(abs(got.number - exact.number) / exact.magnitude)


def _as_float(value: Value) -> float:
    if value.kind == "nan":
        return math.nan
    size = math.inf if value.kind == "infinity" else _nearest(value.magnitude)
    return -size if value.negative else size


def _nearest(magnitude: Fraction) -> float:
    """The nearest float64; infinity beyond its range."""
    try:
        return float(magnitude)
    except OverflowError:
        return math.inf


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
    return f"2^{floor_log2(Fraction(value))}"


def _plain(value: float) -> str:
    return str(int(value)) if value == int(value) and value < 2**53 else repr(value)
