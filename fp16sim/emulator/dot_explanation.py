"""One dot product seen up close: every product, alignment and rounding of a datapath, as text."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any, TextIO

import numpy as np

from fp16sim.emulator.arrays import encoded
from fp16sim.emulator.datapath import Datapath
from fp16sim.emulator.exact import Value, decode, power_of_two
from fp16sim.emulator.flags import flag_names
from fp16sim.emulator.matmul import formats_of
from fp16sim.emulator.reference_dot import Step, trace_dot
from fp16sim.emulator.reference_tensor_core import Block

__all__ = ["explain", "explanation"]


def explain(
    datapath: str | Datapath,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    out_format: Any = None,
    format: Any = None,
    file: TextIO | None = None,
) -> None:
    """Print, step by step, what one dot product does.

    For one number and its scale see `fp16sim.describe`, which the command ``fp16sim explain`` prints.

    Parameters
    ----------
    datapath : str or Datapath
        As `fp16sim.matmul` takes it.
    a, b : array_like
        Vectors of one length and one format.
    c : number, optional
        What the accumulator holds at first, of its format. Default: +0.
    out_format : Format, str or dtype, optional
        That of the result, as in `fp16sim.matmul`.
    format : Format, str or dtype, optional
        That of operands in float32 carriers, such as ``"tf32"``.
    file : text stream, optional
        Where to. Default: standard output.

    Raises
    ------
    ValueError, TypeError
        If lengths or formats do not fit.

    Examples
    --------
    >>> explain("float16", [2048, 1, 1], [1, 1, 1])
    Datapath('float16': products and sums rounded to binary16, in order of k; takes binary16)
    3 products of binary16 numbers, on top of 0.0
      product 0      2048.0 * 1.0 = 2048.0
      sum of 0       2048.0
      product 1      1.0 * 1.0 = 1.0
      sum of 0 to 1  2049.0 -> 2048.0  (inexact; swamped)
      product 2      1.0 * 1.0 = 1.0
      sum of 0 to 2  2049.0 -> 2048.0  (inexact; swamped)
    result 2048.0 in binary16 (0x6800); 2 additions swamped
    """
    text = explanation(datapath, a, b, c, out_format=out_format, format=format)
    print(text, file=sys.stdout if file is None else file)


def explanation(
    datapath: str | Datapath,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    out_format: Any = None,
    format: Any = None,
) -> str:
    """Give the text that `explain` prints.

    A tensor core's blocks are shown as it sees them: the exponent by which each term aligns, what is kept of it, as
    an integer, and what is cut off.

    >>> text = explanation("v100", [1, 1, 0.375], [1, 2**-12, 2**-23], 2**-12)
    >>> print("\\n".join(text.splitlines()[1:]))
    3 products of binary16 numbers, on top of 0.000244140625
      block of 0 to 2, kept in units of 2^-23
        product 0    1.0                    exponent 0    8388608
        product 1    0.000244140625         exponent -12  2048
        product 2    4.470348358154297e-08  exponent -16  0        4.470348358154297e-08 cut off
        accumulator  0.000244140625         exponent -12  2048
        1 zero
        sum          1.00048828125                        8392704
      rounded  1.00048828125  (inexact)
    result 1.00048828125 in binary32 (0x3f801000)
    """
    fmt, path, target = formats_of((a, b), datapath, format, out_format)
    left, right = (np.atleast_1d(encoded(x, fmt)) for x in (a, b))
    if left.ndim != 1 or left.shape != right.shape:
        raise ValueError(
            f"shapes {left.shape} and {right.shape}: one dot product is explained; pass two vectors of one length"
        )
    start = np.asarray(0 if c is None else encoded(c, path.start_format))
    if start.ndim != 0:
        raise ValueError(f"c has shape {start.shape}: one dot product is explained; pass a number")

    trace = trace_dot(left.tolist(), right.tolist(), int(start), fmt, path, target)
    lines = [
        repr(path),
        f"{_number(left.size, 'product')} of {fmt.name} numbers, on top of "
        f"{_shown(decode(int(start), path.start_format))}",
    ]
    factors = [
        f"{_shown(decode(int(x), fmt))} * {_shown(decode(int(y), fmt))}"
        for x, y in zip(left, right, strict=True)
    ]
    rows = [row for step in trace.steps for row in _rows(step, path, factors)]
    width = max((len(name) for name, text in rows if text), default=0)
    lines += [f"  {name:<{width}}  {text}".rstrip() for name, text in rows]
    swamped = trace.accumulation().swamped
    lines.append(
        f"result {_shown(decode(trace.bits, target))} in {target.name} (0x{trace.bits:0{-(-target.width // 4)}x})"
        + (f"; {_number(swamped, 'addition')} swamped" if swamped else "")
    )
    return "\n".join(lines)


def _rows(step: Step, path: Datapath, factors: list[str]) -> Iterator[tuple[str, str]]:
    """Give lines as (name, text); the lines about a block have no text."""
    if step.block is not None:
        yield from _table(step.block, path, step)
        yield "rounded", _stored(step)
    elif step.what == "product":
        yield f"product {step.first}", f"{factors[step.first]} = {_stored(step)}"
    elif step.what == "sum" and path.fused:
        yield f"sum of {_span(step)}", f"adds {factors[step.last - 1]}: {_stored(step)}"
    elif step.what in ("sum", "total"):
        yield f"{step.what} of {_span(step)}", _stored(step)
    else:
        yield f"rounded to {step.format.name}" if step.what == "result" else step.what, _stored(step)


def _table(block: Block, path: Datapath, step: Step) -> Iterator[tuple[str, str]]:
    """Show the terms of a block as they are aligned and cut."""
    title = f"block of {_span(step)}"
    if block.unit is None or path.fraction_bits is None:
        yield f"{title}, nothing to align", ""
        return
    terms = [term for term in block.terms if not term.value.is_zero]
    zeros = len(block.terms) - len(terms)
    by_zero = all(term.exponent != block.unit + path.fraction_bits for term in terms)
    yield f"{title}, {'aligned by its zeros, ' if by_zero else ''}kept in units of 2^{block.unit}", ""
    cells: list[tuple[str, ...]] = []
    for k, term in enumerate(block.terms):
        if term.value.is_zero:
            continue
        name = "accumulator" if k == len(block.terms) - 1 else f"product {step.first + k}"
        rest = term.value.magnitude - abs(term.kept) * power_of_two(block.unit)
        cut = f"{_shown(Value.of(rest))} cut off" if rest else ""
        cells.append((name, _shown(term.value), f"exponent {term.exponent}", str(term.kept), cut))
    cells.append(("sum", _shown(block.exact), "", str(sum(term.kept for term in terms)), ""))
    widths = [max(len(row[i]) for row in cells) for i in range(4)]
    if zeros:
        cells.insert(-1, (_number(zeros, "zero"), "", "", "", ""))
    for row in cells:
        yield "  " + "  ".join(cell.ljust(n) for cell, n in zip(row, (*widths, 0), strict=True)).rstrip(), ""


def _span(step: Step) -> str:
    return str(step.first) if step.last - step.first == 1 else f"{step.first} to {step.last - 1}"


def _stored(step: Step) -> str:
    """Show what was rounded, what it became, and what happened."""
    result = decode(step.result.bits, step.format)
    text = _shown(step.exact)
    if result != step.exact and not (result.kind == step.exact.kind == "nan"):
        text += f" -> {_shown(result)}"
    notes = [", ".join(flag_names(step.result.flags))] if step.result.flags else []
    notes += ["swamped"] if step.swamped else []
    return text + (f"  ({'; '.join(notes)})" if notes else "")


def _shown(value: Value) -> str:
    """Write a value as a float64, with "about" where it is none."""
    if value.kind == "nan":
        return "nan"
    if value.kind == "infinity":
        return "-inf" if value.negative else "inf"
    try:
        size = float(value.magnitude)
    except OverflowError:
        size = math.inf
    sign = "-" if value.negative else ""
    if math.isinf(size):
        return f"{sign}about 2^{value.magnitude.numerator.bit_length() - 1}"
    return f"{sign}{size!r}" if value.magnitude == size else f"about {sign}{size!r}"


def _number(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
