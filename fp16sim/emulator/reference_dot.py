"""The definition of dot products and sums: the operations of `reference.py`, one after another."""

from __future__ import annotations

from collections.abc import Sequence

from fp16sim.emulator import reference
from fp16sim.emulator.datapath import Datapath
from fp16sim.emulator.formats import Format
from fp16sim.emulator.reference import Result

__all__ = ["accumulate", "dot"]


def dot(
    a: Sequence[int], b: Sequence[int], c: int, fmt: Format, datapath: Datapath, out_format: Format
) -> tuple[int, list[int]]:
    """Accumulate the products of two vectors of encodings in order.

    Parameters
    ----------
    a, b : sequence of int
        Encodings of `fmt`.
    c : int
        What the accumulator holds at first, an encoding of ``datapath.accumulator``.
    out_format : Format
        To which the accumulator is rounded at the end.

    Returns
    -------
    bits : int
        An encoding of `out_format`.
    flags : list of int
        The flags of every rounding, in order.
    """
    inner = datapath.accumulator
    flags = []
    for x, y in zip(a, b, strict=True):
        product = reference.multiply(_widen(x, fmt, inner), _widen(y, fmt, inner), inner)
        total = reference.add(c, product.bits, inner)
        flags += [product.flags, total.flags]
        c = total.bits
    return _finish(c, inner, out_format, flags)


def accumulate(
    values: Sequence[int], fmt: Format, datapath: Datapath, out_format: Format
) -> tuple[int, list[int]]:
    """Sum a vector of encodings in order from +0; arguments and results as those of `dot`."""
    inner = datapath.accumulator
    c, flags = 0, []
    for x in values:
        total = reference.add(c, _widen(x, fmt, inner), inner)
        flags.append(total.flags)
        c = total.bits
    return _finish(c, inner, out_format, flags)


def _widen(bits: int, source: Format, target: Format) -> int:
    return bits if source == target else reference.convert(bits, source, target).bits


def _finish(bits: int, inner: Format, out_format: Format, flags: list[int]) -> tuple[int, list[int]]:
    if out_format == inner:
        return bits, flags
    result: Result = reference.convert(bits, inner, out_format)
    return result.bits, [*flags, result.flags]
