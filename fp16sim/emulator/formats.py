"""Binary floating-point formats as frozen data (IEEE 754-2019 clause 3; OCP 8-bit specification 1.0).

A :class:`Format` is a handful of integers. Nothing here rounds: `encode` and `decode` translate between the
values of a format and their bit patterns, exactly.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

__all__ = [
    "Format",
    "as_format",
    "bfloat16",
    "binary16",
    "binary32",
    "binary64",
    "conversion_to",
    "e4m3",
    "e5m2",
    "hint",
    "is_built_in",
    "nearest_name",
    "no_such_name",
    "tf32",
]


_OTHER_NAMES = {
    "f16": "'binary16'",
    "fp16": "'binary16'",
    "float16": "'binary16'",
    "half": "'binary16'",
    "bf16": "'bfloat16'",
    "f32": "'binary32'",
    "fp32": "'binary32'",
    "float32": "'binary32'",
    "single": "'binary32'",
    "fp8": "'e4m3' or 'e5m2'",
    "float8": "'e4m3' or 'e5m2'",
    "float8_e4m3fn": "'e4m3'",
    "float8_e5m2": "'e5m2'",
}
"""What else the formats are called, also where they have no such name here."""


def hint(name: object) -> str:
    """Say which format another name of one means; an empty string if it means none.

    >>> hint("bf16"), hint("fp8"), hint("x")
    ("did you mean 'bfloat16'?", "did you mean 'e4m3' or 'e5m2'?", '')
    """
    meant = _OTHER_NAMES.get(name.lower()) if isinstance(name, str) else None
    return f"did you mean {meant}?" if meant else ""


def nearest_name(name: object, valid: list[str] | tuple[str, ...]) -> str:
    """End an error message with the closest valid name, or with all of them.

    >>> nearest_name("binry16", ["binary16", "tf32"])
    "did you mean 'binary16'?"
    """
    close = difflib.get_close_matches(str(name), valid, n=1)
    return f"did you mean {close[0]!r}?" if close else f"use one of {', '.join(map(repr, valid))}"


def no_such_name(module: str, name: str, valid: Sequence[str]) -> str:
    """Say that a module lacks a name, and which of its names is near.

    >>> no_such_name("fp16sim.scaling", "simulat", ["make", "simulate"])
    "fp16sim.scaling has no 'simulat': did you mean 'simulate'?"
    >>> no_such_name("fp16sim.scaling", "xyz", ["make", "simulate"])
    "fp16sim.scaling has no 'xyz': dir(fp16sim.scaling) lists the names"
    """
    close = difflib.get_close_matches(name, valid, n=1)
    return f"{module} has no {name!r}: " + (
        f"did you mean {close[0]!r}?" if close else f"dir({module}) lists the names"
    )


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


@dataclass(frozen=True, repr=False)
class Format:
    """A binary floating-point format with a sign bit.

    A format of your own has no dtype: its arrays are float32 arrays that hold exact values, and nothing in such an
    array says which format that is. So name it in every operation, ``fs.add(a, b, format=it)``: without ``format=``
    the operands are taken for binary32 and the result is rounded to that, without a warning. A datapath for it names
    it too: ``fs.Datapath("mine", inputs=(it,))``. The same holds for tf32.

    Parameters
    ----------
    name : str
        What messages call it.
    exponent_bits : int
        Width of the exponent field, 2 to 8. The bias is ``2**(exponent_bits - 1) - 1``.
    precision : int
        Bits of the significand, the implicit one included, 2 to 24.
    emax : int, optional
        Exponent of the largest finite value. Default: the largest that leaves the all-ones exponent to infinity
        and NaN, or the largest of all where there is no infinity and ``nan`` is ``"all_ones"``.
    infinities : bool
        Whether infinities exist. Without them an overflow that is not saturated gives NaN.
    nan : {"ieee", "all_ones"}
        Which encoding the canonical NaN has: the quiet bit alone (``"ieee"``: binary16 0x7e00), or every bit but
        the sign (``"all_ones"``: e4m3 0x7f).
    subnormals : bool
        Whether subnormal values exist; without them tiny results are flushed to zero.

    Raises
    ------
    ValueError
        If no such format is possible; the message says which rule is broken.

    Examples
    --------
    >>> fp8 = Format("e3m4", exponent_bits=3, precision=5)
    >>> fp8.max_finite, fp8.min_subnormal, fp8.width
    (15.5, 0.015625, 8)

    A sum in it, and the sum in binary32 that the same operands have without ``format=``:

    >>> import fp16sim as fs
    >>> a, b = fs.round_to([1.0], fp8), fs.round_to([2.0**-6], fp8)
    >>> float(fs.add(a, b, format=fp8)[0]), float(fs.add(a, b)[0])
    (1.0, 1.015625)
    """

    name: str
    exponent_bits: int
    precision: int
    emax: int = None  # type: ignore[assignment]  # an int from __post_init__ on
    infinities: bool = True
    nan: str = "ieee"
    subnormals: bool = True

    def __post_init__(self) -> None:
        if self.nan not in ("ieee", "all_ones"):
            raise ValueError(f"nan={self.nan!r}: {nearest_name(self.nan, ['ieee', 'all_ones'])}")
        widest = (11, 53) if (self.exponent_bits, self.precision) == (11, 53) else (8, 24)
        for field, value, low, high in (
            ("exponent_bits", self.exponent_bits, 2, widest[0]),
            ("precision", self.precision, 2, widest[1]),
        ):
            if not _is_integer(value):
                raise ValueError(
                    f"{field}={value!r}: it counts bits; pass an integer from {low} to {high}, without a point"
                )
            if not low <= value <= high:
                raise ValueError(
                    f"{field}={value!r}: a format has {low} to {high}; choose a value in that range"
                )
            object.__setattr__(self, field, int(value))  # NumPy's small integers would overflow
        for field in ("infinities", "subnormals"):
            if getattr(self, field) not in (True, False):
                raise ValueError(
                    f"{field}={getattr(self, field)!r}: a format has them or not; pass True or False"
                )
            object.__setattr__(self, field, bool(getattr(self, field)))
        if self.infinities and self.nan == "all_ones" and self.precision == 2:
            raise ValueError(
                "precision=2 with infinities and nan='all_ones': choose nan='ieee', the same encoding"
            )
        # The top exponent field belongs to infinity and NaN, unless NaN is one encoding and infinity none.
        top = self.bias if self.infinities or self.nan == "ieee" else self.bias + 1
        emax = min(top, 127 if widest[0] == 8 else top) if self.emax is None else self.emax
        if not _is_integer(emax) or not self.emin <= emax <= top:
            raise ValueError(
                f"emax={emax!r}: {self.exponent_bits} exponent bits with nan={self.nan!r} and infinities="
                f"{self.infinities} allow emin={self.emin} <= emax <= {top}; choose one of these"
            )
        if widest[0] == 8 and emax > 127:
            raise ValueError(
                f"emax={emax}: values are carried as float32, whose exponents end at 127; lower emax"
            )
        object.__setattr__(self, "emax", int(emax))

    def __hash__(self) -> int:
        return hash(self.name)  # which equal formats share: caches look formats up at every operation

    def __repr__(self) -> str:
        # What the other fields say by default is left out; the rest makes the same format again.
        plain = Format(
            self.name, self.exponent_bits, self.precision, infinities=self.infinities, nan=self.nan
        )
        said = [f"exponent_bits={self.exponent_bits}", f"precision={self.precision}"]
        said += [f"emax={self.emax}"] if self.emax != plain.emax else []
        said += [] if self.infinities else ["infinities=False"]
        said += [] if self.nan == "ieee" else [f"nan={self.nan!r}"]
        said += [] if self.subnormals else ["subnormals=False"]
        return f"Format({self.name!r}, {', '.join(said)})"

    @cached_property
    def bias(self) -> int:
        """The exponent field minus the exponent."""
        return int(2 ** (self.exponent_bits - 1) - 1)

    @property
    def emin(self) -> int:
        """Exponent of the smallest normal value."""
        return 1 - self.bias

    @cached_property
    def width(self) -> int:
        """Bits of an encoding, the sign included."""
        return self.exponent_bits + self.precision

    @property
    def fraction_bits(self) -> int:
        """Width of the trailing significand field."""
        return self.precision - 1

    @cached_property
    def max_bits(self) -> int:
        """Encoding of the largest finite value."""
        field = self.emax + self.bias
        bits = ((field + 1) << self.fraction_bits) - 1
        return bits - 1 if self.nan == "all_ones" and bits == self._magnitude_mask else bits

    @cached_property
    def inf_bits(self) -> int | None:
        """Encoding of +infinity, or None."""
        return (2**self.exponent_bits - 1) << self.fraction_bits if self.infinities else None

    @cached_property
    def nan_bits(self) -> int:
        """Encoding of the one NaN that every operation returns: quiet, positive, without payload."""
        if self.nan == "all_ones":
            return self._magnitude_mask
        top = int(2**self.exponent_bits - 1)
        return top << self.fraction_bits | 1 << (self.fraction_bits - 1)

    @cached_property
    def sign_bit(self) -> int:
        """The encoding of -0."""
        return 1 << (self.width - 1)

    @property
    def _magnitude_mask(self) -> int:
        return self.sign_bit - 1

    @property
    def max_finite(self) -> float:
        """The largest finite value."""
        return float(self.decode(self.max_bits))

    @property
    def min_normal(self) -> float:
        """The smallest positive normal value."""
        return float(2.0**self.emin)

    @property
    def min_subnormal(self) -> float:
        """The smallest positive value: a subnormal, or `min_normal` where the format has none."""
        return float(2.0 ** (self.emin - self.fraction_bits)) if self.subnormals else self.min_normal

    @property
    def epsilon(self) -> float:
        """The distance from 1 to the next larger value."""
        return float(2.0**-self.fraction_bits)

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """The array dtype that holds this format: its own, or float32 as a carrier of exact values.

        >>> binary16.dtype, tf32.dtype
        (dtype('float16'), dtype('float32'))
        """
        return _DTYPES.get(self, np.dtype(np.float32))

    @cached_property
    def is_carried(self) -> bool:
        """Whether arrays of this format are float32 carriers: it has no dtype of its own."""
        return self not in _DTYPES

    @cached_property
    def uint(self) -> np.dtype[Any]:
        """The unsigned integer dtype in which encodings are kept."""
        return np.dtype(f"u{next(size for size in (1, 2, 4, 8) if 8 * size >= self.width)}")

    def decode(self, bits: npt.ArrayLike) -> Any:
        """Give the values of encodings, as float64 (exact for every format).

        Parameters
        ----------
        bits : int or array of integers
            Encodings, each below ``2**width``.

        Returns
        -------
        float or float64 array
            A Python float for a single encoding.

        >>> binary16.decode(0x3C01), e4m3.decode([0x7E, 0x7F, 0x80])
        (1.0009765625, array([448.,  nan,  -0.]))
        """
        array = np.asarray(bits)
        if array.dtype.kind not in "ui" or (array.size and (array.min() < 0 or array.max() >> self.width)):
            raise ValueError(
                f"bits={bits!r}: an encoding of {self.name} is an integer in [0, 2**{self.width})"
            )
        array = array.astype(np.uint64)
        magnitude = (array & np.uint64(self._magnitude_mask)).astype(np.int64)
        field = magnitude >> self.fraction_bits
        trailing = magnitude & ((1 << self.fraction_bits) - 1)
        normal = field > 0
        significand = trailing + np.where(normal, 1 << self.fraction_bits, 0)
        if not self.subnormals:
            significand = np.where(normal, significand, 0)
        # ldexp of an integer below 2^53 is exact: the result is a value of the format.
        exponent = np.maximum(field, 1) - self.bias - self.fraction_bits
        with np.errstate(over="ignore"):  # binary64's infinities and NaNs, which are set below
            value = np.ldexp(significand.astype(np.float64), exponent)
        value = np.where(magnitude > self.max_bits, np.nan, value)
        if self.inf_bits is not None:
            value = np.where(magnitude == self.inf_bits, np.inf, value)
        value = np.where(array >= self.sign_bit, -value, value)
        value = np.where(np.isnan(value), np.nan, value)
        return value if np.ndim(bits) else float(value)

    def encode(self, values: npt.ArrayLike) -> Any:
        """Give the encodings of values that the format holds exactly; a NaN becomes the canonical one.

        Parameters
        ----------
        values : float or array
            Values of the format.

        Returns
        -------
        int or array of `uint`

        Raises
        ------
        ValueError
            If a value is not one of the format's: round it first.

        >>> hex(binary16.encode(-2.0)), hex(binary16.encode(float("nan")))
        ('0xc000', '0x7e00')
        """
        given = np.asarray(values)
        if given.dtype.kind in "cmMOSU":
            raise TypeError(f"values of {given.dtype}: the values of a format are real numbers; pass floats")
        with np.errstate(invalid="ignore"):  # signalling NaNs
            array = given.astype(np.float64)
        magnitude = np.abs(array)
        finite = magnitude <= self.max_finite
        safe = np.where(finite, magnitude, 0.0)
        exponent = np.where(safe > 0, np.maximum(np.frexp(safe)[1] - 1, self.emin), self.emin)
        significand = np.ldexp(safe, self.fraction_bits - exponent)
        whole = np.where(significand < 2.0**self.precision, significand, 0).astype(np.int64)
        # A carry-free packing: the implicit bit of a normal significand adds one to the exponent field.
        bits = ((exponent - self.emin).astype(np.int64) << self.fraction_bits) + whole
        bits = np.where(np.isinf(magnitude), self.inf_bits or 0, bits).astype(np.uint64)
        bits = np.where(
            np.isnan(magnitude), self.nan_bits, bits + np.signbit(array) * np.uint64(self.sign_bit)
        )
        wrong = ~np.isnan(magnitude) & (self.decode(bits) != array)
        if wrong.any():
            raise ValueError(
                f"{float(array[wrong].flat[0])!r} is not a value of {self.name}; round it first: {conversion_to(self)}"
            )
        return bits.astype(self.uint) if np.ndim(values) else int(bits)


binary16 = Format("binary16", exponent_bits=5, precision=11)
bfloat16 = Format("bfloat16", exponent_bits=8, precision=8)
tf32 = Format("tf32", exponent_bits=8, precision=11)
binary32 = Format("binary32", exponent_bits=8, precision=24)
e4m3 = Format("e4m3", exponent_bits=4, precision=4, infinities=False, nan="all_ones")
e5m2 = Format("e5m2", exponent_bits=5, precision=3)
binary64 = Format("binary64", exponent_bits=11, precision=53)
"""A source of conversions only: nothing is rounded to it."""

_DTYPES: dict[Format, np.dtype[Any]] = {
    binary16: np.dtype(np.float16),
    bfloat16: np.dtype(ml_dtypes.bfloat16),
    binary32: np.dtype(np.float32),
    binary64: np.dtype(np.float64),
    e4m3: np.dtype(ml_dtypes.float8_e4m3fn),
    e5m2: np.dtype(ml_dtypes.float8_e5m2),
}
_BY_DTYPE = {dtype: fmt for fmt, dtype in _DTYPES.items()}
_BY_NAME = {fmt.name: fmt for fmt in (binary16, bfloat16, tf32, binary32, e4m3, e5m2)}
_ALIASES = {
    "float16": binary16,
    "half": binary16,
    "float32": binary32,
    "single": binary32,
    "float8_e4m3fn": e4m3,
    "float8_e5m2": e5m2,
}


def conversion_to(fmt: Format) -> str:
    """Write, for an error message, what converts an array to a format; one of your own is no name to pass.

    >>> conversion_to(binary16), conversion_to(binary64)
    ("fp16sim.round_to(x, 'binary16')", 'x.astype(float)')
    >>> conversion_to(Format("e3m4", 3, 5))
    "fp16sim.round_to(x, <the Format 'e3m4'>)"
    """
    if fmt == binary64:
        return "x.astype(float)"
    spelled = repr(fmt.name) if is_built_in(fmt) else f"<the Format {fmt.name!r}>"
    return f"fp16sim.round_to(x, {spelled})"


def is_built_in(fmt: Format) -> bool:
    """Whether a format is one of this module's, not one of your own."""
    return fmt == binary64 or _BY_NAME.get(fmt.name) == fmt


def as_format(spec: Any) -> Format:
    """Find a format by its name, by a dtype that holds it, or take it as it is.

    Parameters
    ----------
    spec : Format, str or dtype
        ``"binary16"``, ``"bfloat16"``, ``"tf32"``, ``"binary32"``, ``"e4m3"``, ``"e5m2"``; also ``"float16"``,
        ``"half"``, ``"float32"``, ``"single"``, ``"float8_e4m3fn"``, ``"float8_e5m2"``.

    Raises
    ------
    ValueError
        If there is no such format; the message names the nearest.

    >>> as_format("float16") is as_format(np.float16) is binary16
    True
    """
    if isinstance(spec, Format):
        if spec.precision > 24:
            raise ValueError(
                f"{spec.name} is a source of conversions only; round to at most 24 bits of precision"
            )
        return spec
    if isinstance(spec, str):
        found = _BY_NAME.get(spec) or _ALIASES.get(spec)
        if found is None:
            remedy = hint(spec) or nearest_name(spec, [*_BY_NAME, *_ALIASES])
            raise ValueError(f"unknown format {spec!r}: {remedy}")
        return found
    if spec is None:  # which NumPy takes for float64
        raise ValueError(f"no format for None: {nearest_name(None, list(_BY_NAME))}, or pass a Format")
    try:
        found = _BY_DTYPE.get(np.dtype(spec).newbyteorder("="))
    except TypeError:
        found = None
    if found is None or found is binary64:
        raise ValueError(f"no format for {spec!r}: {nearest_name(spec, list(_BY_NAME))}")
    return found
