"""The definition of dot products and sums under every datapath, in Python integers and Fractions.

`trace_dot` and `trace_sum` list every rounding, in the order in which it happens; `dot` and `accumulate` give the
result, the flags and the swamped additions alone. Fast kernels equal these bit for bit and count for count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from fp16sim.emulator.datapath import Datapath
from fp16sim.emulator.exact import Result, Value, decode, round_value
from fp16sim.emulator.formats import Format
from fp16sim.emulator.reference import exact_product, exact_sum
from fp16sim.emulator.reference_tensor_core import Block, Factor, add_block, exponent_of

__all__ = ["Accumulation", "Step", "Trace", "accumulate", "dot", "running_sums", "trace_dot", "trace_sum"]


class Accumulation(NamedTuple):
    """A dot product or sum.

    Parameters
    ----------
    bits : int
        An encoding of the result's format.
    flags : list of int
        The flags of every rounding, in order.
    swamped : int
        How many additions of something other than zero left an accumulator other than zero as it was.
    """

    bits: int
    flags: list[int]
    swamped: int


@dataclass(frozen=True)
class Step:
    """One rounding.

    Parameters
    ----------
    what : str
        ``"product"``; ``"sum"``, of products in order or of two nodes of a tree; ``"total"``, of the accumulator and
        a piece or tree; ``"block"``; ``"result"``; or an assignment of Kahan's algorithm.
    first, last : int
        The products that are in it are those from k = `first` up to, not including, `last`.
    exact : Value
        What was rounded.
    format : Format
        To which.
    result : Result
        The encoding and its flags.
    swamped : bool
        Whether it is an addition that changed nothing.
    block : Block, optional
        What a tensor core did.
    """

    what: str
    first: int
    last: int
    exact: Value
    format: Format
    result: Result
    swamped: bool = False
    block: Block | None = None


@dataclass
class Trace:
    """Every rounding of a dot product or sum, and its result."""

    steps: list[Step] = field(default_factory=list)
    bits: int = 0

    def accumulation(self) -> Accumulation:
        """Leave out the steps."""
        return Accumulation(
            self.bits, [step.result.flags for step in self.steps], sum(step.swamped for step in self.steps)
        )


def dot(
    a: Sequence[int], b: Sequence[int], c: int, fmt: Format, datapath: Datapath, out_format: Format
) -> Accumulation:
    """Accumulate the products of two vectors of encodings.

    Parameters
    ----------
    a, b : sequence of int
        Encodings of `fmt`, of one length.
    c : int
        What the accumulator holds at first, an encoding of ``datapath.start_format``.
    datapath : Datapath
        One whose `inputs` have `fmt`; none of its variants is looked at.
    out_format : Format
        To which the accumulator is rounded at the end.

    Returns
    -------
    Accumulation

    Examples
    --------
    >>> from fp16sim.emulator.datapath import as_datapath
    >>> from fp16sim.emulator.formats import binary16
    >>> one = 0x3C00
    >>> total = dot([one] * 2050, [one] * 2050, 0, binary16, as_datapath("float16"), binary16)
    >>> binary16.decode(total.bits), total.swamped
    (2048.0, 2)
    """
    return trace_dot(a, b, c, fmt, datapath, out_format).accumulation()


def accumulate(values: Sequence[int], fmt: Format, datapath: Datapath, out_format: Format) -> Accumulation:
    """Sum a vector of encodings from +0; arguments and results as those of `dot`.

    The values take the place of exact products; nothing is rounded before it is added. In a tensor core they are
    products with 1.
    """
    return trace_sum(values, fmt, datapath, out_format).accumulation()


def running_sums(
    values: Sequence[int], fmt: Format, datapath: Datapath, out_format: Format
) -> list[Accumulation]:
    """Sum every beginning of a vector in one pass, where ``datapath.adds_in_order``.

    Each has the bits of `accumulate` on it, and the flags of its last addition and of rounding to the result only.
    """
    assert datapath.accumulator is not None
    total, sums = 0, []
    for k, x in enumerate(values):
        trace = Trace()
        total = _added(trace, total, decode(x, fmt), 0, k + 1, datapath.accumulator)
        trace.bits = _delivered(trace, total, k + 1, datapath, datapath.accumulator, out_format)
        sums.append(trace.accumulation())
    return sums


def trace_dot(
    a: Sequence[int], b: Sequence[int], c: int, fmt: Format, datapath: Datapath, out_format: Format
) -> Trace:
    """Do what `dot` does and list every rounding."""
    pairs = [(decode(x, fmt), decode(y, fmt)) for x, y in zip(a, b, strict=True)]
    factors = [Factor(exact_product(x, y), exponent_of(x, fmt) + exponent_of(y, fmt)) for x, y in pairs]
    return _trace(factors, datapath.products, c, datapath, out_format)


def trace_sum(values: Sequence[int], fmt: Format, datapath: Datapath, out_format: Format) -> Trace:
    """Do what `accumulate` does and list every rounding."""
    numbers = [decode(x, fmt) for x in values]
    return _trace([Factor(x, exponent_of(x, fmt)) for x in numbers], None, 0, datapath, out_format)


def _trace(
    factors: Sequence[Factor], products: Format | None, c: int, path: Datapath, out_format: Format
) -> Trace:
    """Accumulate exact products, each rounded to the format `products` first unless that is None."""
    trace = Trace()

    def addend(k: int) -> Value:
        exact = factors[k].value
        if products is None:
            return exact
        return decode(_rounded(trace, "product", k, k + 1, exact, products), products)

    if path.accumulator is None:
        terms = [decode(c, path.start_format), *(factor.value for factor in factors)]
        trace.bits = _rounded(trace, "result", 0, len(factors), _exactly(terms), out_format)
        return trace
    if path.is_tensor_core:
        total = _blocks(trace, factors, c, path)
    elif path.compensated:
        total = _compensated(trace, addend, len(factors), c, path.accumulator)
    elif path.order == "pairwise":
        total = _pairwise(trace, addend, len(factors), c, path.accumulator)
    elif path.order == "sequential":
        total = _in_order(trace, addend, range(len(factors)), c, path.accumulator)
    else:
        total = _pieces(trace, addend, len(factors), c, path, path.accumulator)
    trace.bits = _delivered(trace, total, len(factors), path, path.accumulator, out_format)
    return trace


def _in_order(trace: Trace, addend: Callable[[int], Value], ks: range, total: int, fmt: Format) -> int:
    for k in ks:
        total = _added(trace, total, addend(k), ks.start, k + 1, fmt)
    return total


def _pieces(
    trace: Trace, addend: Callable[[int], Value], count: int, total: int, path: Datapath, fmt: Format
) -> int:
    """Sum pieces in order, each from +0, and add their sums in order."""
    length = path.block if path.order == "blocked" else max(1, -(-count // path.splits))
    for first in range(0, count, length):
        last = min(first + length, count)
        piece = _in_order(trace, addend, range(first, last), 0, fmt)
        total = _added(trace, total, decode(piece, fmt), 0, last, fmt, "total")
    return total


def _pairwise(trace: Trace, addend: Callable[[int], Value], count: int, total: int, fmt: Format) -> int:
    """Sum by a tree, and add its root last."""

    def node(first: int, last: int) -> Value:
        if last - first == 1:
            return addend(first)  # a number of the accumulator's format: it holds all products and inputs
        middle = first + (
            1 << (last - first - 1).bit_length() - 1
        )  # the largest power of two below their number
        left, right = node(first, middle), node(middle, last)
        return decode(_added_values(trace, left, right, first, last, fmt), fmt)

    return _added(trace, total, node(0, count), 0, count, fmt, "total") if count else total


def _compensated(trace: Trace, addend: Callable[[int], Value], count: int, total: int, fmt: Format) -> int:
    """Kahan's algorithm."""
    error = Value.of(0)
    for k in range(count):
        y = _rounded(trace, "y = p - e", k, k + 1, _difference(addend(k), error), fmt)
        before, total = decode(total, fmt), _added(trace, total, decode(y, fmt), 0, k + 1, fmt, "t = s + y")
        gained = _rounded(trace, "t - s", k, k + 1, _difference(decode(total, fmt), before), fmt)
        lost = _difference(decode(gained, fmt), decode(y, fmt))
        error = decode(_rounded(trace, "e = (t - s) - y", k, k + 1, lost, fmt), fmt)
    return total


def _blocks(trace: Trace, factors: Sequence[Factor], total: int, path: Datapath) -> int:
    """Add block after block, as a tensor core does."""
    assert path.accumulator is not None
    for first in range(0, len(factors), path.block):
        last = min(first + path.block, len(factors))
        block = add_block(total, factors[first:last], path)
        trace.steps.append(
            Step("block", first, last, block.exact, path.accumulator, block.result, block.swamped, block)
        )
        total = block.result.bits
    return total


def _exactly(terms: Sequence[Value]) -> Value:
    """Add values without rounding. The sum of zeros is -0 if all of them are; any other that vanishes is +0."""
    total = terms[0]
    for term in terms[1:]:
        total = exact_sum(total, term)
    return total


def _added(
    trace: Trace, total: int, addend: Value, first: int, last: int, fmt: Format, what: str = "sum"
) -> int:
    return _added_values(trace, decode(total, fmt), addend, first, last, fmt, what)


def _added_values(
    trace: Trace, total: Value, addend: Value, first: int, last: int, fmt: Format, what: str = "sum"
) -> int:
    exact = exact_sum(total, addend)
    result = round_value(exact, fmt)
    swamped = (
        total.kind == addend.kind == "finite"
        and not total.is_zero
        and not addend.is_zero
        and decode(result.bits, fmt) == total
    )
    trace.steps.append(Step(what, first, last, exact, fmt, result, swamped))
    return result.bits


def _rounded(trace: Trace, what: str, first: int, last: int, exact: Value, fmt: Format) -> int:
    result = round_value(exact, fmt)
    trace.steps.append(Step(what, first, last, exact, fmt, result))
    return result.bits


def _difference(x: Value, y: Value) -> Value:
    return exact_sum(x, Value(y.kind, not y.negative, y.magnitude, y.signalling))


def _delivered(
    trace: Trace, total: int, count: int, path: Datapath, inner: Format, out_format: Format
) -> int:
    """Round the accumulator to the result's format, if that is another; give a NaN as the datapath does."""
    value = decode(total, inner)
    bits = total if out_format == inner else _rounded(trace, "result", 0, count, value, out_format)
    if value.kind != "nan":
        return bits
    own = path.out_format or inner
    return path.nan_bits if path.nan_bits is not None and out_format == own else out_format.nan_bits
