"""Recurrent layers over a whole sequence, one entry of the tape each: the loop over time is inside.

Arrays are (time, batch, width). The products of the inputs with their weights are made outside, in one matmul.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.autograd.arithmetic import Arithmetic, Array, keep
from fp16sim.autograd.operation import Op, converted, run
from fp16sim.autograd.ops.products import need_same_dtype
from fp16sim.autograd.tensor import Context, Tensor

__all__ = ["gru", "lstm"]

Saved = tuple[Any, ...]
Parts = tuple[Array | None, ...]
Active = npt.NDArray[np.bool_] | None


# ---------------------------------------------------------------------------------------------------- lstm


def _lstm(
    arithmetic: Arithmetic,
    gates: Array,
    weight: Array,
    h0: Array,
    c0: Array,
    *bias: Array,
    active: Active,
    reverse: bool,
) -> tuple[Array, Saved]:
    r, (steps, batch, width) = arithmetic, (*gates.shape[:2], h0.shape[-1])
    product = _recurrent_product(r, weight, batch, bias)
    result = np.empty((steps + 2, batch, width), gates.dtype)
    kept, cells = np.empty_like(gates), np.empty_like(result[:-2])
    h, c = h0, c0
    for t in _order(steps, reverse):
        a = r.add(product(h), gates[t])
        kept[t, :, : 2 * width] = r.function("sigmoid", a[:, : 2 * width])
        kept[t, :, 2 * width : 3 * width] = r.function("tanh", a[:, 2 * width : 3 * width])
        kept[t, :, 3 * width :] = r.function("sigmoid", a[:, 3 * width :])
        i, f, g, o = _side_by_side(kept[t], 4)
        new_c = r.add(r.multiply(f, c), r.multiply(i, g))
        new_h = r.multiply(o, r.function("tanh", new_c))
        result[t], h = _kept(active, t, new_h, h)
        c = cells[t] = _chosen(active, t, new_c, c)
    result[steps], result[steps + 1] = h, c
    return result, (kept, cells, result, weight, h0, c0, active, reverse)


def _lstm_gradient(context: Context, gradient: Array) -> Parts:
    kept, cells, result, weight, h0, c0, active, reverse = context.saved
    r, (steps, batch, width) = context.arithmetic, cells.shape
    i, f, g, o = _side_by_side(kept, 4)
    tanh_c = r.function("tanh", cells)
    tanh_slope = _tanh_slope(r, tanh_c)
    slopes = np.concatenate(
        [_sigmoid_slope(r, kept[:, :, : 2 * width]), _tanh_slope(r, g), _sigmoid_slope(r, o)], axis=2
    )
    # Of i, f, g and o the gradients are dc g, dc c', dc i and dh tanh(c): the second factors, side by side.
    factors = np.concatenate([g, _shifted(cells, c0, None, reverse), i, tanh_c], axis=2)
    parts = np.empty((steps, batch, 4 * width), gradient.dtype)
    dh, dc = gradient[steps], gradient[steps + 1]
    for t in _order(steps, not reverse):
        dh = _chosen(active, t, r.add(gradient[t], dh), dh)
        dc = _chosen(active, t, r.add(dc, r.multiply(r.multiply(dh, o[t]), tanh_slope[t])), dc)
        part = r.multiply(r.multiply(np.concatenate([dc, dc, dc, dh], axis=1), factors[t]), slopes[t])
        parts[t] = part if active is None else keep(part, active[t])
        dh = _chosen(active, t, r.matmul(part, weight), dh)
        dc = _chosen(active, t, r.multiply(dc, f[t]), dc)
    previous = _shifted(result[:steps], h0, active, reverse)
    return _all_parts(context, parts, parts, previous, (dh, dc))


_LSTM = Op("lstm", _lstm, _lstm_gradient)


def lstm(
    gates: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    c0: Tensor,
    active: Active = None,
    reverse: bool = False,
) -> Tensor:
    """Run a long short-term memory over time (Hochreiter and Schmidhuber 1997; torch's gate order and formulas).

    Parameters
    ----------
    gates : Tensor, shape (time, batch, 4 width)
        Products of the inputs with their weights, biases added: the gates i, f, g, o side by side.
    weight : Tensor, shape (4 width, width)
        Of the hidden state.
    bias : Tensor, shape (4 width,), or None
        Added to its products.
    h0, c0 : Tensor, shape (batch, width)
        Hidden state and cell before the first step.
    active : bool array, shape (time, batch), optional
        Where False, the state stays and the output is +0.
    reverse : bool
        Go from the last step to the first.

    Returns
    -------
    Tensor, shape (time + 2, batch, width)
        The outputs, then the last hidden state, then the last cell.

    Notes
    -----
    All in the format of `gates`, to which the other operands are converted. R(.) is a rounding; a step is::

        a        <- R(R(R(h W^T) + b) + gates[t])       the product accumulates as the policy says
        i, f, o  <- R(sigmoid(a_i)), R(sigmoid(a_f)), R(sigmoid(a_o));   g <- R(tanh(a_g))
        c        <- R(R(f c) + R(i g))
        h        <- R(o R(tanh(c)))

    Gradient: from the last step back, G[t] being that of output t; dh and dc begin with those of the last state, c' is
    the cell before the step::

        dh  <- R(G[t] + dh)
        dc  <- R(dc + R(R(dh o) R(1 - R(R(tanh(c)) R(tanh(c))))))
        dg  <- R(R(dc i) R(1 - R(g g)))
        di  <- R(R(dc g) R(i R(1 - i)));  df <- R(R(dc c') R(f R(1 - f)));  do <- R(R(dh tanh(c)) R(o R(1 - o)))
        dh  <- R([di df dg do] W)
        dc  <- R(dc f)

    [di df dg do] is the gradient of `gates`. That of W is one product of its transpose with the hidden states before
    each step, summed over (time, batch) in C order; that of b its sum over the same. Where a step is not active, dh and
    dc pass as they are and the gradients are +0.

    Examples
    --------
    >>> zeros = [Tensor(np.zeros(shape, np.float32)) for shape in ((3, 1, 4), (4, 1), (1, 1), (1, 1))]
    >>> lstm(zeros[0], zeros[1], None, zeros[2], zeros[3]).shape
    (5, 1, 1)
    """
    operands, options = _operands("lstm", 4, gates, weight, bias, (h0, c0), active, reverse)
    return run(_LSTM, *operands, **options)


# ---------------------------------------------------------------------------------------------------- gru


def _gru(
    arithmetic: Arithmetic,
    gates: Array,
    weight: Array,
    h0: Array,
    *bias: Array,
    active: Active,
    reverse: bool,
) -> tuple[Array, Saved]:
    r, (steps, batch, width) = arithmetic, (*gates.shape[:2], h0.shape[-1])
    product = _recurrent_product(r, weight, batch, bias)
    result = np.empty((steps + 1, batch, width), gates.dtype)
    kept = np.empty((steps, batch, 4 * width), gates.dtype)
    h = h0
    for t in _order(steps, reverse):
        a = product(h)
        both, q = r.add(a[:, : 2 * width], gates[t, :, : 2 * width]), a[:, 2 * width :]
        reset, z = _side_by_side(r.function("sigmoid", both), 2)
        n = r.function("tanh", r.add(gates[t, :, 2 * width :], r.multiply(q, reset)))
        new = r.add(r.multiply(r.subtract(h, n), z), n)
        np.concatenate([reset, z, n, q], axis=1, out=kept[t])
        result[t], h = _kept(active, t, new, h)
    result[steps] = h
    return result, (kept, result, weight, h0, active, reverse)


def _gru_gradient(context: Context, gradient: Array) -> Parts:
    kept, result, weight, h0, active, reverse = context.saved
    r, steps, (batch, width) = context.arithmetic, len(kept), h0.shape
    reset, z, n, q = _side_by_side(kept, 4)
    previous = _shifted(result[:steps], h0, active, reverse)
    update_factors = np.concatenate([z, r.subtract(previous, n)], axis=2)
    reset_factors = np.concatenate([reset, q], axis=2)
    slopes = _sigmoid_slope(r, kept[:, :, : 2 * width])
    tanh_slope = _tanh_slope(r, n)
    parts = np.empty((steps, batch, 3 * width), gradient.dtype)
    inner = np.empty_like(
        parts
    )  # of the products with the hidden state: other than `parts` in the last third
    dh = gradient[steps]
    for t in _order(steps, not reverse):
        d = r.add(gradient[t], dh)
        pair = r.multiply(np.concatenate([d, d], axis=1), update_factors[t])
        through, dz = _side_by_side(pair, 2)
        dn = r.multiply(r.subtract(d, through), tanh_slope[t])
        dq, dr = _side_by_side(r.multiply(np.concatenate([dn, dn], axis=1), reset_factors[t]), 2)
        part = r.multiply(np.concatenate([dr, dz], axis=1), slopes[t])
        outer, hidden = np.concatenate([part, dn], axis=1), np.concatenate([part, dq], axis=1)
        parts[t] = outer if active is None else keep(outer, active[t])
        inner[t] = hidden if active is None else keep(hidden, active[t])
        dh = _chosen(active, t, r.add(through, r.matmul(hidden, weight)), dh)
    return _all_parts(context, parts, inner, previous, (dh,))


_GRU = Op("gru", _gru, _gru_gradient)


def gru(
    gates: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    h0: Tensor,
    active: Active = None,
    reverse: bool = False,
) -> Tensor:
    """Run a gated recurrent unit over time (Cho et al., arXiv 1406.1078, with the reset after the product, as torch).

    Parameters
    ----------
    gates : Tensor, shape (time, batch, 3 width)
        Products of the inputs with their weights, biases added: r, z, n side by side.
    weight : Tensor, shape (3 width, width)
    bias : Tensor, shape (3 width,), or None
    h0 : Tensor, shape (batch, width)
    active, reverse
        As in :func:`lstm`.

    Returns
    -------
    Tensor, shape (time + 1, batch, width)
        The outputs, then the last hidden state.

    Notes
    -----
    All in the format of `gates`. R(.) is a rounding; a step is, in the order of torch 2.13 on a CPU::

        p     <- R(R(h W^T) + b)                         the product accumulates as the policy says
        r, z  <- R(sigmoid(R(p_r + gates_r[t]))), R(sigmoid(R(p_z + gates_z[t])))
        n     <- R(tanh(R(gates_n[t] + R(p_n r))))
        h     <- R(R(R(h - n) z) + n)                    which is (1 - z) n + z h

    Gradient: from the last step back, h' being the state before the step::

        d   <- R(G[t] + dh);   u <- R(d z)
        dn  <- R(R(d - u) R(1 - R(n n)));   dp <- R(dn r)
        dr  <- R(R(dn p_n) R(r R(1 - r)));   dz <- R(R(d R(h' - n)) R(z R(1 - z)))
        dh  <- R(u + R([dr dz dp] W))

    [dr dz dn] is the gradient of `gates`, [dr dz dp] that of p, from which those of W and b follow as in :func:`lstm`.

    Examples
    --------
    >>> zeros = [Tensor(np.zeros(shape, np.float32)) for shape in ((3, 1, 3), (3, 1), (1, 1))]
    >>> gru(zeros[0], zeros[1], None, zeros[2]).shape
    (4, 1, 1)
    """
    operands, options = _operands("gru", 3, gates, weight, bias, (h0,), active, reverse)
    return run(_GRU, *operands, **options)


# ---------------------------------------------------------------------------------------------------- what both share


def _operands(
    name: str,
    number: int,
    gates: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    states: tuple[Tensor, ...],
    active: Active,
    reverse: bool,
) -> tuple[list[Tensor], dict[str, Any]]:
    """Check all operands and convert them to the format of the gates."""
    given = [weight, *states, *([] if bias is None else [bias])]
    for operand in given:
        need_same_dtype(name, gates, operand)
    steps, batch, width = (*gates.shape, 0, 0, 0)[:3]
    width //= number
    shapes = [(number * width, width), *[(batch, width)] * len(states), (number * width,)][: len(given)]
    found = [operand.shape for operand in given]
    if gates.ndim != 3 or gates.shape[2] != number * width or not width or found != shapes:
        raise ValueError(
            f"{name} of gates {gates.shape} with {' '.join(map(str, found))}: pass (time, batch, {number} width), a "
            f"weight ({number} width, width), states (batch, width) and a bias ({number} width,)"
        )
    if active is not None:
        if not isinstance(active, np.ndarray) or active.dtype != np.bool_ or active.shape != (steps, batch):
            raise ValueError(f"{name}: active is a bool array of shape {(steps, batch)}; pass one, or None")
        active = active[:, :, None].copy()
    return [gates, *(converted(operand, gates.dtype) for operand in given)], {
        "active": active,
        "reverse": reverse,
    }


def _side_by_side(a: Array, count: int) -> list[Array]:
    width = a.shape[-1] // count
    return [a[..., k * width : (k + 1) * width] for k in range(count)]


def _order(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)


def _recurrent_product(
    arithmetic: Arithmetic, weight: Array, batch: int, bias: tuple[Array, ...]
) -> Callable[[Array], Array]:
    """Give the function h -> h W^T, or h W^T + b."""
    transposed = np.ascontiguousarray(weight.T)
    if not bias:
        return lambda h: arithmetic.matmul(h, transposed)
    rows = np.repeat(bias[0][None], batch, axis=0)
    return lambda h: arithmetic.add(arithmetic.matmul(h, transposed), rows)


def _kept(active: Active, t: int, new: Array, old: Array) -> tuple[Array, Array]:
    """Give the output of a step and the state after it."""
    if active is None:
        return new, new
    return keep(new, active[t]), np.where(active[t], new, old)


def _chosen(active: Active, t: int, new: Array, old: Array) -> Array:
    return new if active is None else np.where(active[t], new, old)


def _shifted(states: Array, first: Array, active: Active, reverse: bool) -> Array:
    """Give the state before each step; what it is before a step that is not active does not matter."""
    if reverse:
        later = states[1:] if active is None else np.where(active[1:], states[1:], first)
        return np.concatenate([later, first[None]])
    return np.concatenate([first[None], states[:-1]])


def _sigmoid_slope(arithmetic: Arithmetic, y: Array) -> Array:
    return arithmetic.multiply(y, arithmetic.subtract(arithmetic.constant(1.0, y), y))


def _tanh_slope(arithmetic: Arithmetic, y: Array) -> Array:
    return arithmetic.subtract(arithmetic.constant(1.0, y), arithmetic.multiply(y, y))


def _all_parts(
    context: Context, outer: Array, inner: Array, previous: Array, states: tuple[Array, ...]
) -> Parts:
    """Give the gradients of gates, weight, states and bias from those of the gates and of the hidden products."""
    rows, needs = inner.reshape(-1, inner.shape[-1]), context.needs
    parts: list[Array | None] = [outer, None, *states]
    if needs[1]:
        parts[1] = context.arithmetic.matmul(rows.T, previous.reshape(len(rows), -1))
    if len(needs) > len(parts):
        parts.append(context.arithmetic.sum(rows, 0) if needs[-1] else None)
    return tuple(part if needed else None for part, needed in zip(parts, needs, strict=True))
