"""The definition of layers: their formulas on lists of encodings, every step one rounded operation of the definition.

Written from the docstrings of `autograd/ops`, not from its code: what is said there has to be enough. A matrix is a
list of rows, and a gradient function takes the gradient of the result, `g`. Norms, recurrent layers and
optimizers stand in modules of their own beside this one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import product

from fp16sim.emulator import reference, reference_convolution, reference_dot, reference_functions
from fp16sim.emulator.convolution_geometry import Geometry
from fp16sim.emulator.datapath import Datapath
from fp16sim.emulator.exact import Value, decode, round_value
from fp16sim.emulator.formats import Format, binary16, binary32

__all__ = [
    "Roundings",
    "avg_pool",
    "avg_pool_gradient",
    "convolution",
    "convolution_gradient",
    "cross_entropy",
    "cross_entropy_gradient",
    "embedding_gradient",
    "gelu_slope",
    "linear",
    "linear_gradient",
    "max_pool",
    "max_pool_gradient",
    "relu",
    "relu_gradient",
    "silu_slope",
    "softmax",
    "softmax_gradient",
]

Row = Sequence[int]
Rows = Sequence[Row]
Places = Mapping[tuple[int, ...], int]


@dataclass(frozen=True)
class Roundings:
    """Single steps on encodings of one format, each rounded to nearest even once.

    Parameters
    ----------
    fmt : Format
        Of all operands and results.
    products, reductions : Datapath
        How dot products and sums accumulate; ones that take `fmt`.
    real_function : callable, optional
        ``(name, bits) -> bits`` on encodings of binary32. The functions of binary32 values are fixed sequences of
        float64 operations, which have no other definition, so they are handed in. Binary16 needs none: its functions
        are correctly rounded (`reference_functions.py`). Those of bfloat16 are those of binary32, rounded once more.

    Examples
    --------
    >>> from fp16sim.emulator.datapath import as_datapath
    >>> r = Roundings(binary16, as_datapath("float16"), as_datapath("float16"))
    >>> binary16.decode(r.sum([r.number(1.0)] * 3000))
    2048.0
    """

    fmt: Format
    products: Datapath
    reductions: Datapath
    real_function: Callable[[str, int], int] | None = None

    def number(self, value: float) -> int:
        """Round a finite Python number once; -0.0 keeps its sign."""
        exact = Value.of(Fraction(value), negative_zero=math.copysign(1.0, value) < 0)
        return round_value(exact, self.fmt).bits

    def add(self, a: int, b: int) -> int:
        """Give a + b."""
        return reference.add(a, b, self.fmt).bits

    def subtract(self, a: int, b: int) -> int:
        """Give a - b."""
        return reference.subtract(a, b, self.fmt).bits

    def multiply(self, a: int, b: int) -> int:
        """Give a b."""
        return reference.multiply(a, b, self.fmt).bits

    def divide(self, a: int, b: int) -> int:
        """Give a / b."""
        return reference.divide(a, b, self.fmt).bits

    def sqrt(self, a: int) -> int:
        """Give the square root."""
        return reference.sqrt(a, self.fmt).bits

    def maximum(self, values: Row) -> int:
        """Choose the largest value; NaN if there is one."""
        return reduce(lambda a, b: reference.maximum(a, b, self.fmt).bits, values, values[0])

    def function(self, name: str, a: int) -> int:
        """Give exp, log, tanh, ... of a."""
        if self.fmt == binary16:
            return reference_functions.evaluate(name, a, binary16).bits
        if self.real_function is None:
            raise ValueError(
                f"{name} of {self.fmt.name} without a real_function: pass the one of the backend"
            )
        if self.fmt == binary32:
            return self.real_function(name, a)
        wide = reference.convert(a, self.fmt, binary32).bits
        return reference.convert(self.real_function(name, wide), binary32, self.fmt).bits

    def dot(self, a: Row, b: Row) -> int:
        """Sum the products in order, as `products` says."""
        return reference_dot.dot(a, b, 0, self.fmt, self.products, self.fmt).bits

    def sum(self, values: Row) -> int:
        """Sum in order from +0, as `reductions` says."""
        return reference_dot.accumulate(values, self.fmt, self.reductions, self.fmt).bits

    def mean(self, values: Row) -> int:
        """Divide the sum by the number of terms, all three in the accumulator's format; round to `fmt` last."""
        inner = self.reductions.accumulator
        assert inner is not None
        total = reference_dot.accumulate(values, self.fmt, self.reductions, inner).bits
        quotient = reference.divide(total, reference.convert_integer(len(values), inner).bits, inner)
        return reference.convert(quotient.bits, inner, self.fmt).bits

    def is_nan(self, a: int) -> bool:
        """Whether an encoding is a NaN."""
        return decode(a, self.fmt).kind == "nan"

    def compare(self, a: int, b: int) -> int:
        """Give -1, 0 or 1 as a is below, equal to or above b; a NaN compares as 0."""
        below = reference.less(a, b, self.fmt).bits
        return reference.less(b, a, self.fmt).bits - below


def columns(rows: Rows) -> list[list[int]]:
    """Turn rows into columns.

    >>> columns([[1, 2], [3, 4]])
    [[1, 3], [2, 4]]
    """
    return [list(column) for column in zip(*rows, strict=True)]


# ---------------------------------------------------------------------------------------------------- products


def linear(r: Roundings, x: Rows, weight: Rows, bias: Row | None) -> list[list[int]]:
    """Give x W^T, rounded, plus b, rounded: x (examples, inputs), W (outputs, inputs)."""
    products = [[r.dot(row, each) for each in weight] for row in x]
    if bias is None:
        return products
    return [[r.add(p, b) for p, b in zip(row, bias, strict=True)] for row in products]


def linear_gradient(
    r: Roundings, x: Rows, weight: Rows, g: Rows
) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """Give the gradients of x (sums over the outputs), of W and of b (sums over the examples)."""
    of_x = [[r.dot(row, each) for each in columns(weight)] for row in g]
    of_weight = [[r.dot(each, column) for column in columns(x)] for each in columns(g)]
    return of_x, of_weight, [r.sum(each) for each in columns(g)]


def convolution(
    r: Roundings,
    x: Places,
    weight: Places,
    bias: Row | None,
    batch: int,
    channels: tuple[int, int],
    geometry: Geometry,
) -> list[int]:
    """Correlate as `reference_convolution.forward`, and add the bias of the output channel, rounded."""
    results = reference_convolution.forward(x, weight, batch, channels, geometry, r.fmt, r.products, r.fmt)
    places = math.prod(geometry.output)
    if bias is None:
        return [result.bits for result in results]
    return [r.add(result.bits, bias[number // places % channels[1]]) for number, result in enumerate(results)]


def convolution_gradient(
    r: Roundings,
    x: Places,
    weight: Places,
    g: Places,
    batch: int,
    channels: tuple[int, int],
    geometry: Geometry,
) -> tuple[list[int], list[int], list[int]]:
    """Give the gradients of input and weight, by `reference_convolution`, and of the bias: summed over the rest."""
    shared = (batch, channels, geometry, r.fmt, r.products, r.fmt)
    of_x = [result.bits for result in reference_convolution.input_gradient(g, weight, *shared)]
    of_weight = [result.bits for result in reference_convolution.weight_gradient(x, g, *shared)]
    places = list(product(*map(range, geometry.output)))
    of_bias = [
        r.sum([g[(n, o, *place)] for n in range(batch) for place in places]) for o in range(channels[1])
    ]
    return of_x, of_weight, of_bias


def embedding_gradient(r: Roundings, g: Rows, ids: Row, rows: int) -> list[list[int]]:
    """Give the gradient of a table: row n is the sum of the gradients whose id is n, in their order from +0."""
    return [
        [r.sum([row[column] for row, i in zip(g, ids, strict=True) if i == n]) for column in range(len(g[0]))]
        for n in range(rows)
    ]


# ---------------------------------------------------------------------------------------------------- activations


def relu(r: Roundings, x: Row) -> list[int]:
    """Replace what is not above zero by +0; NaN stays."""
    return [a if r.is_nan(a) or r.compare(a, 0) > 0 else 0 for a in x]


def relu_gradient(r: Roundings, x: Row, g: Row) -> list[int]:
    """Give +0 where the value was at most zero, g elsewhere."""
    return [b if r.is_nan(a) or r.compare(a, 0) > 0 else 0 for a, b in zip(x, g, strict=True)]


def silu_slope(r: Roundings, x: int) -> int:
    """Give the derivative of x sigmoid(x): in binary32 one function, else s (1 + x (1 - s)) from the inside out."""
    if r.fmt == binary32:
        return r.function("silu_derivative", x)
    one, s = r.number(1.0), r.function("sigmoid", x)
    return r.multiply(s, r.add(one, r.multiply(x, r.subtract(one, s))))


def gelu_slope(r: Roundings, x: int) -> int:
    """Give the derivative of x Phi(x): in binary32 one function, else h + x e after limiting x to +-16.

    h = (1 + erf(x sqrt(1/2))) 0.5; e = exp((x x)(-0.5)) (1 / sqrt(2 pi)).
    """
    if r.fmt == binary32:
        return r.function("gelu_derivative", x)
    for limit in (r.number(16.0), r.number(-16.0)):
        if r.compare(x, limit) * r.compare(limit, 0) > 0:
            x = limit
    h = r.multiply(
        r.add(r.number(1.0), r.function("erf", r.multiply(x, r.number(math.sqrt(0.5))))), r.number(0.5)
    )
    e = r.function("exp", r.multiply(r.multiply(x, x), r.number(-0.5)))
    e = r.multiply(e, r.number(1.0 / math.sqrt(2.0 * math.pi)))
    return r.add(h, r.multiply(x, e))


def softmax(r: Roundings, x: Row) -> list[int]:
    """Maximum, difference, exponential, sum, quotient."""
    e = _exponentials(r, x)
    s = r.sum(e)
    return [r.divide(each, s) for each in e]


def softmax_gradient(r: Roundings, y: Row, g: Row) -> list[int]:
    """Give y (g - sum(g y)) for the result y."""
    t = r.sum([r.multiply(a, b) for a, b in zip(g, y, strict=True)])
    return [r.multiply(b, r.subtract(a, t)) for a, b in zip(g, y, strict=True)]


def _exponentials(r: Roundings, x: Row) -> list[int]:
    m = r.maximum(x)
    return [r.function("exp", r.subtract(a, m)) for a in x]


# ---------------------------------------------------------------------------------------------------- a loss


def cross_entropy(r: Roundings, logits: Rows, labels: Row) -> int:
    """Give the mean of log(sum(exp(z))) - z[label], z = logits - max: the sum over rows, then the quotient."""
    losses = []
    for row, label in zip(logits, labels, strict=True):
        logarithm = r.function("log", r.sum(_exponentials(r, row)))
        losses.append(r.subtract(logarithm, r.subtract(row[label], r.maximum(row))))
    return r.divide(r.sum(losses), r.number(len(losses)))


def cross_entropy_gradient(r: Roundings, logits: Rows, labels: Row, g: int) -> list[list[int]]:
    """Give (softmax - t) (g / count), t being 1 at the label and 0 elsewhere."""
    q = r.divide(g, r.number(len(labels)))
    return [
        [r.multiply(r.subtract(p, r.number(float(n == label))), q) for n, p in enumerate(softmax(r, row))]
        for row, label in zip(logits, labels, strict=True)
    ]


# ---------------------------------------------------------------------------------------------------- pooling


def max_pool(
    r: Roundings, x: Places, geometry: Geometry
) -> tuple[dict[tuple[int, ...], int], dict[tuple[int, ...], tuple[int, ...]]]:
    """Choose the largest of each window of one plane: values, and whence they came, by place of the output.

    The first of the largest in C order; the first NaN before all numbers; padding never.
    """
    values, chosen = {}, {}
    for place in product(*map(range, geometry.output)):
        inside = [tap for tap in _window(geometry, place) if tap in x]
        nans = [tap for tap in inside if r.is_nan(x[tap])]
        best = inside[0]
        for tap in inside[1:]:
            best = tap if r.compare(x[tap], x[best]) > 0 else best
        chosen[place] = nans[0] if nans else best
        values[place] = x[chosen[place]]
    return values, chosen


def max_pool_gradient(
    r: Roundings, g: Places, chosen: Mapping[tuple[int, ...], tuple[int, ...]], geometry: Geometry
) -> dict[tuple[int, ...], int]:
    """Sum for each element, from +0, over the windows that reach it in C order: g if it was chosen, else +0."""
    return _gathered(r, geometry, lambda window, element: g[window] if chosen[window] == element else 0)


def avg_pool(r: Roundings, x: Places, geometry: Geometry) -> dict[tuple[int, ...], int]:
    """Take the mean of each window of one plane, +0 for the padding included."""
    return {
        place: r.mean([x.get(tap, 0) for tap in _window(geometry, place)])
        for place in product(*map(range, geometry.output))
    }


def avg_pool_gradient(r: Roundings, g: Places, geometry: Geometry) -> dict[tuple[int, ...], int]:
    """Sum g / (elements of a window) for each element over the windows that reach it, in C order from +0."""
    count = r.number(math.prod(geometry.kernel))
    return _gathered(r, geometry, lambda window, element: r.divide(g[window], count))


def _window(geometry: Geometry, place: tuple[int, ...]) -> list[tuple[int, ...]]:
    """List the elements that a window covers, in C order; some may lie in the padding."""
    return [
        tuple(
            p * stride + t * dilation - before
            for p, t, stride, dilation, (before, _) in zip(
                place, tap, geometry.stride, geometry.dilation, geometry.padding, strict=True
            )
        )
        for tap in product(*map(range, geometry.kernel))
    ]


def _gathered(
    r: Roundings, geometry: Geometry, part: Callable[[tuple[int, ...], tuple[int, ...]], int]
) -> dict[tuple[int, ...], int]:
    windows = {place: set(_window(geometry, place)) for place in product(*map(range, geometry.output))}
    return {
        element: r.sum([part(place, element) for place, covered in windows.items() if element in covered])
        for element in product(*map(range, geometry.size))
    }
