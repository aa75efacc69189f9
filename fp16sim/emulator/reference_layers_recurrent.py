"""The definition of recurrent layers: formulas on lists of encodings, as `reference_layers.py` has them.

One sequence of a batch at a time, where sequences do not meet; gradients of weights and biases sum over
(time, sequence) and are made from those of all sequences by the caller with `Roundings.dot` and `Roundings.sum`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fp16sim.emulator.reference_layers import Roundings, columns

__all__ = ["GruStep", "LstmStep", "gru", "gru_gradient", "lstm", "lstm_gradient"]

Row = Sequence[int]
Rows = Sequence[Row]


class GruStep(NamedTuple):
    """What a step of a gated recurrent unit makes: state before, gates, the product of n, state after."""

    before: list[int]
    r: list[int]
    z: list[int]
    n: list[int]
    p_n: list[int]
    h: list[int]


class LstmStep(NamedTuple):
    """What a step of a long short-term memory makes: cell and state before, gates, cell and state after."""

    h_before: list[int]
    c_before: list[int]
    i: list[int]
    f: list[int]
    g: list[int]
    o: list[int]
    c: list[int]
    h: list[int]


def _products(r: Roundings, h: Row, weight: Rows, bias: Row | None) -> list[int]:
    products = [r.dot(h, row) for row in weight]
    return products if bias is None else [r.add(p, b) for p, b in zip(products, bias, strict=True)]


def _each(function: Callable[..., int], *rows: Row) -> list[int]:
    return [function(*values) for values in zip(*rows, strict=True)]


def _parts(row: Row, count: int) -> list[Row]:
    width = len(row) // count
    return [row[n * width : (n + 1) * width] for n in range(count)]


def gru(r: Roundings, gates: Rows, weight: Rows, bias: Row | None, h: Row) -> list[GruStep]:
    """Run over the steps of one sequence: h <- (h - n) z + n; the formulas are those of `ops.gru`."""
    steps = []
    for each in gates:
        (p_r, p_z, p_n), (g_r, g_z, g_n) = _parts(_products(r, h, weight, bias), 3), _parts(each, 3)
        reset = [r.function("sigmoid", r.add(p, g)) for p, g in zip(p_r, g_r, strict=True)]
        z = [r.function("sigmoid", r.add(p, g)) for p, g in zip(p_z, g_z, strict=True)]
        inner = _each(r.add, g_n, _each(r.multiply, p_n, reset))
        n = [r.function("tanh", a) for a in inner]
        new = _each(r.add, _each(r.multiply, _each(r.subtract, h, n), z), n)
        steps.append(GruStep(list(h), reset, z, n, list(p_n), new))
        h = new
    return steps


def gru_gradient(
    r: Roundings, steps: Sequence[GruStep], weight: Rows, g: Rows
) -> tuple[list[list[int]], list[list[int]], list[int]]:
    """Give the gradients of the gates and of the products p at each step, and of the first state.

    `g` has the gradient of each output and last that of the last state.
    """
    one = r.number(1.0)
    of_gates, of_products, dh = [], [], list(g[len(steps)])
    for step, given in zip(reversed(steps), reversed(g[: len(steps)]), strict=True):
        d = _each(r.add, given, dh)
        u = _each(r.multiply, d, step.z)
        slope = [r.subtract(one, r.multiply(n, n)) for n in step.n]
        dn = _each(r.multiply, _each(r.subtract, d, u), slope)
        dp = _each(r.multiply, dn, step.r)
        dr = _each(r.multiply, _each(r.multiply, dn, step.p_n), _sigmoid_slopes(r, step.r))
        away = _each(r.subtract, step.before, step.n)
        dz = _each(r.multiply, _each(r.multiply, d, away), _sigmoid_slopes(r, step.z))
        back = [r.dot([*dr, *dz, *dp], column) for column in columns(weight)]
        dh = _each(r.add, u, back)
        of_gates.append([*dr, *dz, *dn])
        of_products.append([*dr, *dz, *dp])
    return of_gates[::-1], of_products[::-1], dh


def lstm(r: Roundings, gates: Rows, weight: Rows, bias: Row | None, h: Row, c: Row) -> list[LstmStep]:
    """Run over the steps of one sequence: c <- f c + i g, h <- o tanh(c); the formulas are those of `ops.lstm`."""
    steps = []
    for each in gates:
        a_i, a_f, a_g, a_o = _parts(_each(r.add, _products(r, h, weight, bias), each), 4)
        i, f, o = ([r.function("sigmoid", x) for x in a] for a in (a_i, a_f, a_o))
        g = [r.function("tanh", x) for x in a_g]
        new_c = _each(r.add, _each(r.multiply, f, c), _each(r.multiply, i, g))
        new_h = _each(r.multiply, o, [r.function("tanh", x) for x in new_c])
        steps.append(LstmStep(list(h), list(c), i, f, g, o, new_c, new_h))
        h, c = new_h, new_c
    return steps


def lstm_gradient(
    r: Roundings, steps: Sequence[LstmStep], weight: Rows, g: Rows
) -> tuple[list[list[int]], list[int], list[int]]:
    """Give the gradients of the gates at each step, and of the first state and cell.

    `g` has the gradient of each output, then those of the last state and of the last cell.
    """
    one = r.number(1.0)
    of_gates, dh, dc = [], list(g[len(steps)]), list(g[len(steps) + 1])
    for step, given in zip(reversed(steps), reversed(g[: len(steps)]), strict=True):
        dh = _each(r.add, given, dh)
        t = [r.function("tanh", x) for x in step.c]
        rise = [r.subtract(one, r.multiply(x, x)) for x in t]
        dc = _each(r.add, dc, _each(r.multiply, _each(r.multiply, dh, step.o), rise))
        slope_g = [r.subtract(one, r.multiply(x, x)) for x in step.g]
        dg = _each(r.multiply, _each(r.multiply, dc, step.i), slope_g)
        di = _each(r.multiply, _each(r.multiply, dc, step.g), _sigmoid_slopes(r, step.i))
        df = _each(r.multiply, _each(r.multiply, dc, step.c_before), _sigmoid_slopes(r, step.f))
        do = _each(r.multiply, _each(r.multiply, dh, t), _sigmoid_slopes(r, step.o))
        of_gates.append([*di, *df, *dg, *do])
        dh = [r.dot(of_gates[-1], column) for column in columns(weight)]
        dc = _each(r.multiply, dc, step.f)
    return of_gates[::-1], dh, dc


def _sigmoid_slopes(r: Roundings, y: Row) -> list[int]:
    one = r.number(1.0)
    return [r.multiply(each, r.subtract(one, each)) for each in y]
