"""LSTM and GRU over time: every rounded step against scalars, lengths and directions, gradients against differences."""

import numpy as np
import pytest
from fp16sim_steps import BFLOAT16, FLOAT16, FLOAT32, Steps, same_bits

from fp16sim.autograd import ops
from fp16sim.autograd.backward import gradients, saved_bytes
from fp16sim.autograd.checkpoint import checkpoint
from fp16sim.autograd.gradcheck import gradcheck
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor

POLICIES = [
    ("float32", FLOAT32, FLOAT32),
    ("mixed_float16", FLOAT16, FLOAT32),
    ("float16", FLOAT16, FLOAT16),
    ("mixed_bfloat16", BFLOAT16, FLOAT32),
]
TIME, BATCH, WIDTH = 3, 2, 2
LENGTHS = (3, 1)


class Scalar(Steps):
    """Steps with the functions of the gates, and dot products in an accumulator."""

    def __init__(self, dtype, accumulator):
        super().__init__(dtype, accumulator)

    def dot(self, a, b):
        return super().dot(zip(a, b, strict=True))

    def one_minus(self, a):
        return self.subtract(self.number(1.0), a)

    def sigmoid_slope(self, y):
        return self.multiply(y, self.one_minus(y))

    def tanh_slope(self, y):
        return self.one_minus(self.multiply(y, y))


def draw(seed, shape, dtype):
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32).astype(dtype)


def products(m, h, weight, bias):
    return [
        m.add(m.dot(h, row), bias[k]) if bias is not None else m.dot(h, row) for k, row in enumerate(weight)
    ]


def walk(m, gates, weight, bias, states, lengths, reverse, step):
    """Go through time one number at a time; give outputs, last states, and a record of each active step."""
    result = np.zeros((TIME + len(states), BATCH, WIDTH), m.dtype)
    records = {}
    for b in range(BATCH):
        state = [list(s[b]) for s in states]
        for t in range(TIME)[:: -1 if reverse else 1]:
            if t >= lengths[b]:
                continue
            p = products(m, state[0], weight, bias)
            record = [step(m, j, p, gates[t, b], [s[j] for s in state]) for j in range(WIDTH)]
            records[t, b] = (state, record)
            state = [[r[k] for r in record] for k in ("h", "c")[: len(states)]]
            result[t, b] = state[0]
        for k, s in enumerate(state):
            result[TIME + k, b] = s
    return result, records


def lstm_step(m, j, p, gates, state):
    a = [m.add(p[k * WIDTH + j], gates[k * WIDTH + j]) for k in range(4)]
    i, f, o = (m.function("sigmoid", a[k]) for k in (0, 1, 3))
    g = m.function("tanh", a[2])
    c = m.add(m.multiply(f, state[1]), m.multiply(i, g))
    tanh_c = m.function("tanh", c)
    return {"i": i, "f": f, "g": g, "o": o, "c": c, "tanh_c": tanh_c, "h": m.multiply(o, tanh_c)}


def lstm_back(m, j, r, before, upstream, dh, dc):
    dh = m.add(upstream, dh)
    dc = m.add(dc, m.multiply(m.multiply(dh, r["o"]), m.tanh_slope(r["tanh_c"])))
    parts = [
        m.multiply(m.multiply(dc, r["g"]), m.sigmoid_slope(r["i"])),
        m.multiply(m.multiply(dc, before[1][j]), m.sigmoid_slope(r["f"])),
        m.multiply(m.multiply(dc, r["i"]), m.tanh_slope(r["g"])),
        m.multiply(m.multiply(dh, r["tanh_c"]), m.sigmoid_slope(r["o"])),
    ]
    return parts, parts, None, m.multiply(dc, r["f"])


def gru_step(m, j, p, gates, state):
    reset, z = (m.function("sigmoid", m.add(p[k * WIDTH + j], gates[k * WIDTH + j])) for k in (0, 1))
    q = p[2 * WIDTH + j]
    n = m.function("tanh", m.add(gates[2 * WIDTH + j], m.multiply(q, reset)))
    h = m.add(m.multiply(m.subtract(state[0], n), z), n)
    return {"r": reset, "z": z, "n": n, "q": q, "h": h}


def gru_back(m, j, r, before, upstream, dh, dc):
    d = m.add(upstream, dh)
    u = m.multiply(d, r["z"])
    dn = m.multiply(m.subtract(d, u), m.tanh_slope(r["n"]))
    dq = m.multiply(dn, r["r"])
    dr = m.multiply(m.multiply(dn, r["q"]), m.sigmoid_slope(r["r"]))
    dz = m.multiply(m.multiply(d, m.subtract(before[0][j], r["n"])), m.sigmoid_slope(r["z"]))
    return [dr, dz, dn], [dr, dz, dq], u, None


def walk_back(m, number, weight, states, records, reverse, upstream, back):
    """Give the gradients of gates, weight, states and bias."""
    zero = m.number(0.0)
    outer = np.zeros((TIME, BATCH, number * WIDTH), m.dtype)
    inner, previous = np.zeros_like(outer), np.zeros((TIME, BATCH, WIDTH), m.dtype)
    first = [np.zeros_like(s) for s in states]
    for b in range(BATCH):
        dh, dc = list(upstream[TIME, b]), list(upstream[-1, b])
        for t in range(TIME)[:: 1 if reverse else -1]:
            if (t, b) not in records:
                continue
            before, record = records[t, b]
            previous[t, b] = before[0]
            direct = [zero] * WIDTH
            for j in range(WIDTH):
                mine, hidden, direct[j], dc[j] = back(
                    m, j, record[j], before, upstream[t, b, j], dh[j], dc[j]
                )
                outer[t, b, j::WIDTH], inner[t, b, j::WIDTH] = mine, hidden
            dh = [m.dot(inner[t, b], column) for column in weight.T]
            if direct[0] is not None:
                dh = [m.add(u, x) for u, x in zip(direct, dh, strict=True)]
        for k, values in enumerate((dh, dc)[: len(states)]):
            first[k][b] = values
    rows, before = inner.reshape(-1, number * WIDTH), previous.reshape(-1, WIDTH)
    of_weight = np.array(
        [[m.dot(rows[:, k], before[:, j]) for j in range(WIDTH)] for k in range(rows.shape[1])]
    )
    of_bias = np.array([m.sum(rows[:, k], m.accumulator) for k in range(rows.shape[1])], m.dtype)
    return outer, of_weight.astype(m.dtype), first, of_bias


KINDS = {
    "lstm": (4, 2, ops.lstm, lstm_step, lstm_back),
    "gru": (3, 1, ops.gru, gru_step, gru_back),
}


def operands(kind, dtype, bias=True):
    number, count = KINDS[kind][:2]
    rows = number * WIDTH
    gates, weight = draw(1, (TIME, BATCH, rows), dtype), draw(2, (rows, WIDTH), dtype)
    states = [draw(3 + k, (BATCH, WIDTH), dtype) for k in range(count)]
    return gates, weight, draw(9, (rows,), dtype) if bias else None, states


def mask(lengths):
    return np.arange(TIME)[:, None] < np.array(lengths)


@pytest.mark.parametrize(("policy", "dtype", "accumulator"), POLICIES, ids=str)
@pytest.mark.parametrize("reverse", [False, True], ids=["forward", "reverse"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_step_against_scalars(kind, reverse, policy, dtype, accumulator):
    number, _, op, step, back = KINDS[kind]
    gates, weight, bias, states = operands(kind, dtype)
    m = Scalar(dtype, accumulator)
    tensors = [Tensor(array, requires_grad=True) for array in (gates, weight, bias, *states)]
    with autocast(policy):
        result = op(*tensors, active=mask(LENGTHS), reverse=reverse)
    expected, records = walk(m, gates, weight, bias, states, LENGTHS, reverse, step)
    same_bits(result.data, expected)
    upstream = draw(7, result.shape, dtype)
    result.backward(upstream)
    outer, of_weight, first, of_bias = walk_back(m, number, weight, states, records, reverse, upstream, back)
    found = [tensor.grad for tensor in tensors]
    for mine, theirs in zip(found, [outer, of_weight, of_bias, *first], strict=True):
        same_bits(mine, theirs)


@pytest.mark.parametrize("kind", KINDS)
def test_without_bias_and_lengths(kind):
    op, step = KINDS[kind][2:4]
    gates, weight, _, states = operands(kind, FLOAT16)
    tensors = [Tensor(array, requires_grad=True) for array in (gates, weight, *states)]
    result = op(*tensors[:2], None, *tensors[2:])
    m = Scalar(FLOAT16, FLOAT32)
    expected, _ = walk(m, gates, weight, None, states, (TIME, TIME), False, step)
    same_bits(result.data, expected)
    everything = op(*tensors[:2], None, *tensors[2:], active=mask((TIME, TIME)))
    same_bits(everything.data, expected)
    result.backward(np.ones_like(expected))
    assert all(tensor.grad.shape == tensor.shape for tensor in tensors)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_equal_differences(kind, reverse):
    op = KINDS[kind][2]
    gates, weight, bias, states = operands(kind, np.float64)
    tensors = [Tensor(np.float64(array), requires_grad=True) for array in (gates, weight, bias, *states)]
    gradcheck(lambda *t: op(*t, active=mask(LENGTHS), reverse=reverse), tensors)
    gradcheck(lambda *t: op(*t, reverse=reverse), tensors)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_what_stands_beyond_a_sequence_changes_no_bit(kind, reverse):
    op = KINDS[kind][2]
    gates, weight, bias, states = operands(kind, FLOAT16)
    spoiled = gates.copy()
    spoiled[1, 1], spoiled[2, 1] = np.nan, np.inf
    found = []
    for given in (gates, spoiled):
        tensors = [Tensor(array, requires_grad=True) for array in (given, weight, bias, *states)]
        result = op(*tensors, active=mask(LENGTHS), reverse=reverse)
        upstream = np.ones_like(result.data)
        upstream[:TIME][~mask(LENGTHS)] = np.nan  # of outputs that are +0 whatever the operands are
        result.backward(upstream)
        found.append([result.data, *(tensor.grad for tensor in tensors)])
        assert not found[-1][1][1:, 1].any()
    for a, b in zip(*found, strict=True):
        same_bits(a, b)
        assert np.isfinite(a).all()


def test_a_sequence_alone_gives_what_it_gives_among_others():
    gates, weight, bias, states = operands("lstm", FLOAT16)
    for reverse in (False, True):
        both = ops.lstm(
            *(Tensor(array) for array in (gates, weight, bias, *states)),
            active=mask(LENGTHS),
            reverse=reverse,
        )
        alone = ops.lstm(
            *(Tensor(a) for a in (gates[:1, 1:], weight, bias, *(s[1:] for s in states))), reverse=reverse
        )
        same_bits(both.data[[0, 3, 4], 1], alone.data[:, 0])


@pytest.mark.parametrize("kind", KINDS)
def test_parts_that_need_no_gradient_get_none(kind):
    op = KINDS[kind][2]
    gates, weight, bias, states = operands(kind, FLOAT32)
    weight_only = Tensor(weight, requires_grad=True)
    op(Tensor(gates), weight_only, Tensor(bias), *map(Tensor, states)).sum().backward()
    everything = [Tensor(array, requires_grad=True) for array in (gates, weight, bias, *states)]
    op(*everything).sum().backward()
    same_bits(weight_only.grad, everything[1].grad)


@pytest.mark.parametrize("kind", KINDS)
def test_checkpointing_and_a_wide_backward_pass(kind):
    op = KINDS[kind][2]
    gates, weight, bias, states = operands(kind, FLOAT16)

    def run(use):
        tensors = [Tensor(array, requires_grad=True) for array in (gates, weight, bias, *states)]
        result = use(op, *tensors).sum()
        return [*gradients(result, tensors), *gradients(result, tensors, wide=True)]

    plain, again = run(lambda op, *tensors: op(*tensors)), run(checkpoint)
    for a, b in zip(plain, again, strict=True):
        same_bits(a, b)
    half = len(plain) // 2
    assert {a.dtype for a in plain[:half]} == {FLOAT16}
    assert {a.dtype for a in plain[half:]} == {FLOAT32}
    for narrow, wide in zip(plain[:half], plain[half:], strict=True):
        # Some 10 roundings of 2^-11 a step, 3 steps, next to the largest element.
        assert np.abs(narrow.astype(np.float32) - wide).max() <= 30 * 2.0**-11 * np.abs(wide).max()


@pytest.mark.parametrize("kind", KINDS)
def test_float16_keeps_half_the_bytes(kind):
    op, kept = KINDS[kind][2], {}
    for dtype in (FLOAT16, FLOAT32):
        gates, weight, bias, states = operands(kind, dtype)
        tensors = [Tensor(array, requires_grad=True) for array in (gates, weight, bias, *states)]
        kept[dtype] = saved_bytes(op(*tensors))
    assert 2 * kept[FLOAT16] == kept[FLOAT32]


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"gates": np.zeros((3, 2, 6), np.float32)}, ValueError, r"lstm of gates \(3, 2, 6\)"),
        ({"gates": np.zeros((3, 2, 0), np.float32)}, ValueError, "lstm of gates"),
        ({"gates": np.zeros((2, 8), np.float32)}, ValueError, r"pass \(time, batch, 4 width\)"),
        ({"weight": np.zeros((8, 3), np.float32)}, ValueError, r"a weight \(4 width, width\)"),
        ({"h0": np.zeros((1, 2), np.float32)}, ValueError, r"states \(batch, width\)"),
        ({"bias": np.zeros(4, np.float32)}, ValueError, r"a bias \(4 width,\)"),
        ({"weight": np.zeros((8, 2), np.float16)}, TypeError, "lstm of float32 and float16"),
        ({"active": np.ones((2, 2), bool)}, ValueError, r"active is a bool array of shape \(3, 2\)"),
        ({"active": np.ones((3, 2))}, ValueError, "pass one, or None"),
    ],
)
def test_refusals(change, kind, message):
    gates, weight, bias, (h0, c0) = operands("lstm", FLOAT32)
    given = {"gates": gates, "weight": weight, "bias": bias, "h0": h0, "c0": c0} | change
    active = given.pop("active", None)
    with pytest.raises(kind, match=message):
        ops.lstm(**{name: Tensor(array) for name, array in given.items()}, active=active)


def test_a_scalar_walk_that_is_wrong_is_noticed():
    gates, weight, bias, states = operands("gru", FLOAT16)
    result = ops.gru(*(Tensor(array) for array in (gates, weight, bias, *states)))

    def other_order(m, j, p, gates, state):
        step = gru_step(m, j, p, gates, state)
        kept = m.multiply(m.one_minus(step["z"]), step["n"])
        return step | {"h": m.add(kept, m.multiply(step["z"], state[0]))}

    m = Scalar(FLOAT16, FLOAT32)
    expected, _ = walk(m, gates, weight, bias, states, (TIME, TIME), False, other_order)
    with pytest.raises(AssertionError):
        same_bits(result.data, expected)
