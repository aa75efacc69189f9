"""Operations of the engine, forward and gradient, have the bits of their scalar formulas, on arrays drawn to hurt.

Every comparison is made again with a fault planted in the formula, which has to be seen: mostly the order of two
roundings.
"""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

import fp16sim as fs
from fp16sim.autograd import ops
from fp16sim.autograd.backward import gradients
from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor
from fp16sim.emulator import reference
from fp16sim.emulator.backends.base import Backend
from fp16sim.emulator.convolution_geometry import Geometry
from fp16sim.emulator.datapath import as_datapath
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32
from fp16sim.optim import SGD, Adam, clip_grad_norm
from fp16sim.scaling.protocol import Decision, unscale

HOME = "fp16sim.emulator."
MODULES = (
    "reference_layers",
    "reference_layers_norms",
    "reference_layers_recurrent",
    "reference_layers_updates",
)


@dataclass(frozen=True)
class Case:
    """A format and how it accumulates, in the words of a policy."""

    policy: fs.Policy
    fmt: Format
    dtype: Any

    def roundings(self, definition: Any) -> Any:
        paths = [
            as_datapath(path).for_operands(self.fmt) for path in (self.policy.matmul, self.policy.reduction)
        ]
        return definition.Roundings(self.fmt, *paths, real_function)

    def decoded(self, bits: Any, *shape: int) -> Any:
        """Make an array of encodings."""
        return np.array(bits, self.fmt.uint).view(self.dtype).reshape(shape)


CASES = {
    "float16": Case(fs.Policy("float16"), binary16, np.dtype(np.float16)),
    "float16 summed in float32": Case(
        fs.Policy("float16", matmul="float32", reduction="float32"), binary16, np.dtype(np.float16)
    ),
    "bfloat16": Case(
        fs.Policy("mixed_bfloat16", parameters="bfloat16", wide="bfloat16"),
        bfloat16,
        np.dtype(ml_dtypes.bfloat16),
    ),
    "float32": Case(fs.Policy("float32"), binary32, np.dtype(np.float32)),
}


def real_function(name: str, bits: int) -> int:
    """Give the fixed sequence of a float32 function, which is its definition."""
    value = np.array([bits], np.uint32).view(np.float32)
    with np.errstate(all="ignore"):
        return int(Backend().real_function(name, value).view(np.uint32)[0])


# ------------------------------------------------------------------------------------------------ drawing


def ordinary(fmt: Format, octaves: int = 4) -> st.SearchStrategy[int]:
    """Draw encodings of both signs between 2^-octaves and 2^octaves."""
    step = 1 << fmt.fraction_bits
    lowest = fmt.bias * step - octaves * step
    one_sign = st.integers(lowest, lowest + 2 * octaves * step)
    return st.builds(lambda n, negative: n + negative * fmt.sign_bit, one_sign, st.booleans())


def special(fmt: Format) -> st.SearchStrategy[int]:
    """Draw signed zeros, subnormals, the largest values, infinities, NaN."""
    step = 1 << fmt.fraction_bits
    assert fmt.inf_bits is not None
    codes = [0, 1, 2, step - 1, step, fmt.max_bits - step, fmt.max_bits, fmt.inf_bits]
    codes += [(fmt.bias - 2 * fmt.precision // 3) * step, (fmt.bias + 2 * fmt.precision // 3) * step]
    return st.sampled_from([*codes, *(code + fmt.sign_bit for code in codes), fmt.nan_bits])


@st.composite
def encodings(draw: Any, fmt: Format, count: int, octaves: int = 4) -> list[int]:
    """Draw ordinary numbers, up to three of them replaced by special ones."""
    bits = draw(st.lists(ordinary(fmt, octaves), min_size=count, max_size=count))
    for place, value in draw(st.lists(st.tuples(st.integers(0, count - 1), special(fmt)), max_size=3)):
        bits[place] = value
    return bits


def rows(bits: list[int], width: int) -> list[list[int]]:
    return [bits[n : n + width] for n in range(0, len(bits), width)]


def flat(values: Any) -> list[int]:
    return [bits for row in values for bits in row]


# ------------------------------------------------------------------------------------------------ comparing


def same(case: Case, found: Any, expected: list[int], what: str) -> None:
    """Compare an array of the engine with encodings of the definition."""
    array = found.data if isinstance(found, Tensor) else np.asarray(found)
    assert array.dtype == case.dtype, what
    bits = np.ascontiguousarray(array).view(case.fmt.uint).reshape(-1).tolist()
    # Moved and chosen values keep what they are; every NaN here is the canonical one.
    assert bits == expected, f"{what}: {[hex(b) for b in bits]} for {[hex(b) for b in expected]}"


def engine(case: Case, function: Any, *arrays: Any, g: Any = None) -> tuple[Any, list[Any]]:
    """Give the result of an operation under the policy, and its gradients."""
    tensors = [Tensor(array.copy(), requires_grad=True) for array in arrays]
    with autocast(case.policy):
        result = function(*tensors)
        return result.data, gradients(result, tensors, g)


def check_linear(draw: Any, case: Case, at: Any) -> None:
    r = case.roundings(at)
    x, w, b, g = (draw(encodings(case.fmt, n)) for n in (12, 12, 3, 9))
    y, (dx, dw, db) = engine(
        case,
        ops.linear,
        case.decoded(x, 3, 4),
        case.decoded(w, 3, 4),
        case.decoded(b, 3),
        g=case.decoded(g, 3, 3),
    )
    same(case, y, flat(at.linear(r, rows(x, 4), rows(w, 4), b)), "y")
    of_x, of_w, of_b = at.linear_gradient(r, rows(x, 4), rows(w, 4), rows(g, 3))
    same(case, dx, flat(of_x), "dx")
    same(case, dw, flat(of_w), "dw")
    same(case, db, of_b, "db")


def check_relu(draw: Any, case: Case, at: Any) -> None:
    r = case.roundings(at)
    x, g = (draw(st.lists(special(case.fmt) | ordinary(case.fmt), min_size=6, max_size=6)) for _ in "xg")
    y, (dx,) = engine(case, ops.relu, case.decoded(x, 6), g=case.decoded(g, 6))
    same(case, y, at.relu(r, x), "y")
    same(case, dx, at.relu_gradient(r, x, g), "dx")


def check_slope(operation: Any, name: str, slope: str) -> Any:
    def check(draw: Any, case: Case, at: Any) -> None:
        r = case.roundings(at)
        x, g = draw(encodings(case.fmt, 5)), draw(encodings(case.fmt, 5))
        y, (dx,) = engine(case, operation, case.decoded(x, 5), g=case.decoded(g, 5))
        same(case, y, [r.function(name, a) for a in x], "y")
        same(case, dx, [r.multiply(b, getattr(at, slope)(r, a)) for a, b in zip(x, g, strict=True)], "dx")

    return check


def check_softmax(draw: Any, case: Case, at: Any) -> None:
    r = case.roundings(at)
    x, g = draw(encodings(case.fmt, 10, 3)), draw(encodings(case.fmt, 10))
    y, (dx,) = engine(case, ops.softmax, case.decoded(x, 2, 5), g=case.decoded(g, 2, 5))
    expected = [at.softmax(r, row) for row in rows(x, 5)]
    same(case, y, flat(expected), "y")
    same(
        case, dx, flat(at.softmax_gradient(r, a, b) for a, b in zip(expected, rows(g, 5), strict=True)), "dx"
    )


def check_cross_entropy(draw: Any, case: Case, at: Any) -> None:
    r = case.roundings(at)
    x, (g,) = draw(encodings(case.fmt, 12, 3)), draw(encodings(case.fmt, 1))
    labels = draw(st.lists(st.integers(0, 3), min_size=3, max_size=3))
    loss, (dx,) = engine(
        case, lambda logits: ops.cross_entropy(logits, labels), case.decoded(x, 3, 4), g=case.decoded(g)
    )
    same(case, loss, [at.cross_entropy(r, rows(x, 4), labels)], "loss")
    same(case, dx, flat(at.cross_entropy_gradient(r, rows(x, 4), labels, g)), "dx")


def check_embedding(draw: Any, case: Case, at: Any) -> None:
    r = case.roundings(at)
    w, g = draw(encodings(case.fmt, 8)), draw(encodings(case.fmt, 10, 6))
    ids = draw(st.lists(st.integers(0, 3), min_size=5, max_size=5))
    y, (dw,) = engine(case, lambda w: ops.embedding(ids, w), case.decoded(w, 4, 2), g=case.decoded(g, 5, 2))
    same(case, y, flat(rows(w, 2)[i] for i in ids), "y")
    same(case, dw, flat(at.embedding_gradient(r, rows(g, 2), ids, 4)), "dw")


def check_layer_norm(draw: Any, case: Case, at: Any) -> None:
    r, eps = case.roundings(at), draw(st.sampled_from([1e-5, 0.0, 0.25]))
    x, w, b, g = (draw(encodings(case.fmt, n)) for n in (10, 5, 5, 10))
    y, (dx, dw, db) = engine(
        case,
        lambda x, w, b: ops.layer_norm(x, 5, w, b, eps),
        case.decoded(x, 2, 5),
        case.decoded(w, 5),
        case.decoded(b, 5),
        g=case.decoded(g, 2, 5),
    )
    groups = [at.normalise(r, row, eps) for row in rows(x, 5)]
    same(case, y, flat(at.scale_and_shift(r, to.n, w, b) for to in groups), "y")
    pairs = list(zip(groups, rows(g, 5), strict=True))
    same(case, dx, flat(at.layer_norm_gradient(r, to, w, each) for to, each in pairs), "dx")
    products = [[r.multiply(a, n) for a, n in zip(each, to.n, strict=True)] for to, each in pairs]
    same(case, dw, [r.sum(column) for column in at.columns(products)], "dw")
    same(case, db, [r.sum(column) for column in at.columns(rows(g, 5))], "db")


def check_rms_norm(draw: Any, case: Case, at: Any) -> None:
    r, eps = case.roundings(at), draw(st.sampled_from([None, 0.0, 0.25]))
    x, w, g = (draw(encodings(case.fmt, n)) for n in (10, 5, 10))
    y, (dx, _) = engine(
        case,
        lambda x, w: ops.rms_norm(x, 5, w, eps),
        case.decoded(x, 2, 5),
        case.decoded(w, 5),
        g=case.decoded(g, 2, 5),
    )
    value = 2.0 ** (1 - case.fmt.precision) if eps is None else eps
    groups = [at.normalise(r, row, value, centred=False) for row in rows(x, 5)]
    same(case, y, flat(at.scale_and_shift(r, to.n, w, None) for to in groups), "y")
    pairs = zip(groups, rows(g, 5), strict=True)
    same(case, dx, flat(at.layer_norm_gradient(r, to, w, each) for to, each in pairs), "dx")


def check_batch_norm(draw: Any, case: Case, at: Any) -> None:
    r, eps = case.roundings(at), draw(st.sampled_from([1e-5, 0.25]))
    x, w, b, g = (draw(encodings(case.fmt, n)) for n in (10, 2, 2, 10))
    seen = []
    y, (dx, dw, db) = engine(
        case,
        lambda x, w, b: ops.batch_norm(x, w, b, eps=eps, observe=lambda *found: seen.append(found)),
        case.decoded(x, 5, 2),
        case.decoded(w, 2),
        case.decoded(b, 2),
        g=case.decoded(g, 5, 2),
    )
    groups = [at.normalise(r, column, eps) for column in at.columns(rows(x, 2))]
    columns = [at.scale_and_shift(r, to.n, [w[c]] * 5, [b[c]] * 5) for c, to in enumerate(groups)]
    same(case, y, flat(at.columns(columns)), "y")
    ((mean, variance, _),) = seen
    same(case, mean, [to.mean for to in groups], "mean")
    same(case, variance, [to.variance for to in groups], "variance")
    given_g = at.columns(rows(g, 2))
    of_x, of_w, of_b = zip(
        *(at.batch_norm_gradient(r, to, w[c], given_g[c]) for c, to in enumerate(groups)), strict=True
    )
    same(case, dx, flat(at.columns(of_x)), "dx")
    same(case, dw, list(of_w), "dw")
    same(case, db, list(of_b), "db")


def _placed(bits: list[int], *shape: int) -> dict[tuple[int, ...], int]:
    return dict(zip(np.ndindex(shape), bits, strict=True))


WINDOWS = Geometry((4, 3), (3, 2), (1, 1), (1, 1), ((1, 1), (0, 0)), 1)


def check_max_pool(draw: Any, case: Case, at: Any) -> None:
    r = case.roundings(at)
    x, g = draw(encodings(case.fmt, 12, 1)), draw(encodings(case.fmt, 8))
    y, (dx,) = engine(
        case,
        lambda x: ops.max_pool(x, (3, 2), stride=1, padding=(1, 0)),
        case.decoded(x, 1, 1, 4, 3),
        g=case.decoded(g, 1, 1, *WINDOWS.output),
    )
    values, chosen = at.max_pool(r, _placed(x, 4, 3), WINDOWS)
    same(case, y, list(values.values()), "y")
    of_x = at.max_pool_gradient(r, _placed(g, *WINDOWS.output), chosen, WINDOWS)
    same(case, dx, list(of_x.values()), "dx")


def check_avg_pool(draw: Any, case: Case, at: Any) -> None:
    r = case.roundings(at)
    x, g = draw(encodings(case.fmt, 12)), draw(encodings(case.fmt, 8))
    y, (dx,) = engine(
        case,
        lambda x: ops.avg_pool(x, (3, 2), stride=1, padding=(1, 0)),
        case.decoded(x, 1, 1, 4, 3),
        g=case.decoded(g, 1, 1, *WINDOWS.output),
    )
    same(case, y, list(at.avg_pool(r, _placed(x, 4, 3), WINDOWS).values()), "y")
    same(case, dx, list(at.avg_pool_gradient(r, _placed(g, *WINDOWS.output), WINDOWS).values()), "dx")


def check_convolution(draw: Any, case: Case, at: Any) -> None:
    r, geometry = case.roundings(at), Geometry((3, 4), (2, 2), (1, 2), (1, 1), ((1, 1), (1, 1)), 2)
    x, w, b = (draw(encodings(case.fmt, n)) for n in (48, 8, 2))
    g = draw(encodings(case.fmt, 4 * geometry.output[0] * geometry.output[1]))
    y, (dx, dw, db) = engine(
        case,
        lambda x, w, b: ops.convolution(x, w, b, stride=(1, 2), padding=1, groups=2),
        case.decoded(x, 2, 2, 3, 4),
        case.decoded(w, 2, 1, 2, 2),
        case.decoded(b, 2),
        g=case.decoded(g, 2, 2, *geometry.output),
    )
    places = (_placed(x, 2, 2, 3, 4), _placed(w, 2, 1, 2, 2))
    same(case, y, at.convolution(r, *places, b, 2, (2, 2), geometry), "y")
    of_x, of_w, of_b = at.convolution_gradient(
        r, *places, _placed(g, 2, 2, *geometry.output), 2, (2, 2), geometry
    )
    same(case, dx, of_x, "dx")
    same(case, dw, of_w, "dw")
    same(case, db, of_b, "db")


def check_gru(draw: Any, case: Case, at: Any) -> None:
    r, steps, batch, width = case.roundings(at), 2, 2, 1
    gates, w, b, h0 = (draw(encodings(case.fmt, n, 2)) for n in (12, 3, 3, 2))
    g = draw(encodings(case.fmt, 6))
    y, (dgates, dw, db, dh0) = engine(
        case,
        ops.gru,
        case.decoded(gates, steps, batch, 3 * width),
        case.decoded(w, 3, 1),
        case.decoded(b, 3),
        case.decoded(h0, batch, 1),
        g=case.decoded(g, steps + 1, batch, 1),
    )
    made, parts, inner, first = [], [], [], []
    for n in range(batch):
        mine = [rows(gates, 3)[t * batch + n] for t in range(steps)]
        made.append(at.gru(r, mine, rows(w, 1), b, [h0[n]]))
        found = at.gru_gradient(r, made[-1], rows(w, 1), [[g[t * batch + n]] for t in range(steps + 1)])
        for store, part in zip((parts, inner, first), found, strict=True):
            store.append(part)
    outputs = [made[n][t].h for t in (*range(steps), steps - 1) for n in range(batch)]
    same(case, y, flat(outputs), "y")
    order = [(t, n) for t in range(steps) for n in range(batch)]
    same(case, dgates, flat(parts[n][t] for t, n in order), "dgates")
    of_products, before = [inner[n][t] for t, n in order], [made[n][t].before for t, n in order]
    same(case, dw, flat([[r.dot(p, h) for h in at.columns(before)] for p in at.columns(of_products)]), "dw")
    same(case, db, [r.sum(column) for column in at.columns(of_products)], "db")
    same(case, dh0, flat(first), "dh0")


def check_lstm(draw: Any, case: Case, at: Any) -> None:
    r, steps = case.roundings(at), 2
    gates, w, b, h0, c0 = (draw(encodings(case.fmt, n, 2)) for n in (16, 16, 8, 2, 2))
    g = draw(encodings(case.fmt, 8))
    y, (dgates, dw, db, dh0, dc0) = engine(
        case,
        ops.lstm,
        case.decoded(gates, steps, 1, 8),
        case.decoded(w, 8, 2),
        case.decoded(b, 8),
        case.decoded(h0, 1, 2),
        case.decoded(c0, 1, 2),
        g=case.decoded(g, steps + 2, 1, 2),
    )
    made = at.lstm(r, rows(gates, 8), rows(w, 2), b, h0, c0)
    same(case, y, flat([*(step.h for step in made), made[-1].h, made[-1].c]), "y")
    parts, dh, dc = at.lstm_gradient(r, made, rows(w, 2), rows(g, 2))
    same(case, dgates, flat(parts), "dgates")
    before = at.columns([step.h_before for step in made])
    same(case, dw, flat([[r.dot(p, h) for h in before] for p in at.columns(parts)]), "dw")
    same(case, db, [r.sum(column) for column in at.columns(parts)], "db")
    same(case, dh0, dh, "dh0")
    same(case, dc0, dc, "dc0")


def check_sgd(draw: Any, case: Case, at: Any) -> None:
    r, options = case.roundings(at), draw(st.sampled_from([{}, {"weight_decay": 0.01}, {"nesterov": True}]))
    w = draw(encodings(case.fmt, 4))
    parameter, velocity = Tensor(case.decoded(w, 4), requires_grad=True), None
    optimizer = SGD([parameter], lr=0.3, momentum=0.9, **options)
    for _ in range(3):
        g = draw(encodings(case.fmt, 4))
        optimizer.step([case.decoded(g, 4)])
        w, velocity = at.sgd(r, w, g, velocity, 0.3, 0.9, **options)
        same(case, optimizer.velocity[0], velocity, "velocity")
        same(case, parameter, w, "weight")


def check_adam(draw: Any, case: Case, at: Any) -> None:
    r, betas = (
        case.roundings(at),
        draw(st.sampled_from([(0.9, 0.999), (0.4, 0.75), (0.0, 0.0), (0.5001, 0.9)])),
    )
    w = draw(encodings(case.fmt, 4))
    parameter, m, v = Tensor(case.decoded(w, 4), requires_grad=True), [0] * 4, [0] * 4
    optimizer = Adam([parameter], lr=0.3, betas=betas, eps=1e-6)
    for step in (1, 2, 3):
        g = draw(encodings(case.fmt, 4))
        optimizer.step([case.decoded(g, 4)])
        w, m, v = at.adam(r, w, g, m, v, step, 0.3, betas, 1e-6)
        same(case, optimizer.first[0], m, "first")
        same(case, optimizer.second[0], v, "second")
        same(case, parameter, w, "weight")


def check_unscale(draw: Any, case: Case, at: Any) -> None:
    scale, method = (
        draw(st.sampled_from([8.0, 65536.0, 3.0, 2.0**-20])),
        draw(st.sampled_from(["reciprocal", "divide"])),
    )
    g = draw(encodings(case.fmt, 6))
    for dtype, to in (("tensor", case), ("float32", CASES["float32"])):
        decision = Decision(True, scale, method=method, dtype=dtype)
        found = unscale(case.decoded(g, 6), decision)
        same(to, found, at.unscale(to.roundings(at), g, case.fmt, scale, method), dtype)


def check_clip(draw: Any, case: Case, at: Any) -> None:
    r = case.roundings(at)
    a, b = draw(encodings(case.fmt, 3)), draw(encodings(case.fmt, 2))
    limit = draw(st.sampled_from([1.0, 0.3, 100.0]))
    found, norm = clip_grad_norm(
        [case.decoded(a, 3), case.decoded(b, 2)], limit, arithmetic=case.policy.backward
    )
    expected, bits = at.clip_by_norm(r, [a, b], limit)
    same(case, case.dtype.type(norm), [bits], "norm")
    same(case, found[0], expected[0], "first")
    same(case, found[1], expected[1], "second")


# ------------------------------------------------------------------------------------------------ mixed precision


def mixed_roundings(at: Any) -> tuple[Any, Any]:
    """Give the steps of both formats: float16 operands accumulate in float32."""
    path = as_datapath("float32")
    return tuple(
        at.Roundings(fmt, path.for_operands(fmt), path.for_operands(fmt), real_function) for fmt in BOTH
    )


BOTH = (binary16, binary32)
HALF, SINGLE = CASES["float16"], CASES["float32"]


def wide(bits: list[int]) -> list[int]:
    return [reference.convert(a, binary16, binary32).bits for a in bits]


def narrow(bits: list[int]) -> list[int]:
    return [reference.convert(a, binary32, binary16).bits for a in bits]


def mixed(function: Any, *arrays: Any, g: Any) -> tuple[Any, list[Any]]:
    return engine(Case(fs.Policy("mixed_float16"), binary16, np.dtype(np.float16)), function, *arrays, g=g)


def check_mixed_linear(draw: Any, case: Case, at: Any) -> None:
    """Parameters are rounded to float16, and their gradients widened."""
    r, _ = mixed_roundings(at)
    x, g = (draw(encodings(binary16, n)) for n in (12, 9))
    w, b = (draw(encodings(binary32, n)) for n in (12, 3))
    y, (dx, dw, db) = mixed(
        ops.linear,
        HALF.decoded(x, 3, 4),
        SINGLE.decoded(w, 3, 4),
        SINGLE.decoded(b, 3),
        g=HALF.decoded(g, 3, 3),
    )
    w16 = rows(narrow(w), 4)
    same(HALF, y, flat(at.linear(r, rows(x, 4), w16, narrow(b))), "y")
    of_x, of_w, of_b = at.linear_gradient(r, rows(x, 4), w16, rows(g, 3))
    same(HALF, dx, flat(of_x), "dx")
    same(SINGLE, dw, wide(flat(of_w)), "dw")
    same(SINGLE, db, wide(of_b), "db")


def check_mixed_layer_norm(draw: Any, case: Case, at: Any) -> None:
    """The float16 input is widened, the result stays float32, and the gradient of the input is rounded to float16."""
    _, r = mixed_roundings(at)
    x = draw(encodings(binary16, 8))
    w, b, g = (draw(encodings(binary32, n)) for n in (4, 4, 8))
    y, (dx, _, _) = mixed(
        lambda x, w, b: ops.layer_norm(x, 4, w, b),
        HALF.decoded(x, 2, 4),
        SINGLE.decoded(w, 4),
        SINGLE.decoded(b, 4),
        g=SINGLE.decoded(g, 2, 4),
    )
    groups = [at.normalise(r, wide(row), 1e-5) for row in rows(x, 4)]
    same(SINGLE, y, flat(at.scale_and_shift(r, to.n, w, b) for to in groups), "y")
    parts = [at.layer_norm_gradient(r, to, w, each) for to, each in zip(groups, rows(g, 4), strict=True)]
    same(HALF, dx, narrow(flat(parts)), "dx")


def check_mixed_batch_norm(draw: Any, case: Case, at: Any) -> None:
    """Computed in float32 inside, between two conversions: result and gradient of the input are float16."""
    _, r = mixed_roundings(at)
    x, g = (draw(encodings(binary16, 5)) for _ in "xg")
    w, b = (draw(encodings(binary32, 1)) for _ in "wb")
    y, (dx, dw, db) = mixed(
        ops.batch_norm,
        HALF.decoded(x, 5, 1),
        SINGLE.decoded(w, 1),
        SINGLE.decoded(b, 1),
        g=HALF.decoded(g, 5, 1),
    )
    to = at.normalise(r, wide(x), 1e-5)
    same(HALF, y, narrow(at.scale_and_shift(r, to.n, w * 5, b * 5)), "y")
    of_x, of_w, of_b = at.batch_norm_gradient(r, to, w[0], wide(g))
    same(HALF, dx, narrow(of_x), "dx")
    same(SINGLE, dw, [of_w], "dw")
    same(SINGLE, db, [of_b], "db")


MIXED = {
    "mixed linear": check_mixed_linear,
    "mixed layer_norm": check_mixed_layer_norm,
    "mixed batch_norm": check_mixed_batch_norm,
}
CHECKS = {
    "linear": check_linear,
    "relu": check_relu,
    "silu": check_slope(ops.silu, "silu", "silu_slope"),
    "gelu": check_slope(ops.gelu, "gelu", "gelu_slope"),
    "softmax": check_softmax,
    "cross_entropy": check_cross_entropy,
    "embedding": check_embedding,
    "layer_norm": check_layer_norm,
    "rms_norm": check_rms_norm,
    "batch_norm": check_batch_norm,
    "max_pool": check_max_pool,
    "avg_pool": check_avg_pool,
    "convolution": check_convolution,
    "gru": check_gru,
    "lstm": check_lstm,
    "sgd": check_sgd,
    "adam": check_adam,
    "unscale": check_unscale,
    "clip": check_clip,
    **MIXED,
}


PAIRS = [(name, case) for name in CHECKS for case in ((*CASES,) if name not in MIXED else ("float16",))]


def compare(name: str, case: Case, definition: Any, examples: int, phases: Any = tuple(Phase)) -> None:
    """Run a check on drawn arrays."""

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        phases=phases,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def run(data: Any) -> None:
        CHECKS[name](data.draw, case, definition)

    run()


def gathered(modules: list[ModuleType]) -> Any:
    """Put the public names of modules side by side."""
    names = {
        name: value for module in modules for name, value in vars(module).items() if not name.startswith("_")
    }
    return SimpleNamespace(**names)


def definition() -> Any:
    return gathered([importlib.import_module(HOME + name) for name in MODULES])


@pytest.mark.parametrize(("name", "case"), PAIRS)
def test_the_engine_computes_the_formulas(name: str, case: str) -> None:
    compare(name, CASES[case], definition(), 12)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "case"), PAIRS)
def test_the_engine_computes_the_formulas_on_more_arrays(name: str, case: str) -> None:
    compare(name, CASES[case], definition(), 60)


# ------------------------------------------------------------------------------------------------ planted faults

FAULTS = [
    # check, case, module, what the definition says, what is planted in its place
    ("linear", "float16", "reference_layers", "r.dot(each, column)", "r.dot(each[::-1], column[::-1])"),
    ("linear", "float32", "reference_layers", "r.dot(row, each) for each in columns(weight)",
     "r.dot(row[::-1], each[::-1]) for each in columns(weight)"),
    ("relu", "float16", "reference_layers", "r.compare(a, 0) > 0 else 0 for a in x",
     "r.compare(a, 0) >= 0 else 0 for a in x"),
    ("relu", "bfloat16", "reference_layers", "[b if r.is_nan(a) or r.compare(a, 0) > 0", "[b if r.compare(a, 0) > 0"),
    ("silu", "float16", "reference_layers", "r.multiply(s, r.add(one, r.multiply(x, r.subtract(one, s))))",
     "r.add(s, r.multiply(s, r.multiply(x, r.subtract(one, s))))"),
    ("gelu", "float16", "reference_layers", "e = r.multiply(e, r.number(1.0 / ", "x = r.multiply(x, r.number(1.0 / "),
    ("softmax", "float16", "reference_layers", "r.divide(each, s)", "r.multiply(each, r.divide(r.number(1.0), s))"),
    ("softmax", "float32", "reference_layers", "r.multiply(b, r.subtract(a, t))",
     "r.subtract(r.multiply(b, a), r.multiply(b, t))"),
    ("cross_entropy", "float16", "reference_layers", "r.divide(r.sum(losses), r.number(len(losses)))",
     "r.sum([r.divide(a, r.number(len(losses))) for a in losses])"),
    ("cross_entropy", "float32", "reference_layers", "r.subtract(logarithm, r.subtract(row[label], r.maximum(row)))",
     "r.subtract(r.add(logarithm, r.maximum(row)), row[label])"),
    ("cross_entropy", "float16", "reference_layers", "r.multiply(r.subtract(p, r.number(float(n == label))), q)",
     "r.divide(r.multiply(r.subtract(p, r.number(float(n == label))), g), r.number(len(labels)))"),
    ("embedding", "float16", "reference_layers", "strict=True) if i == n]", "strict=True) if i == n][::-1]"),
    ("layer_norm", "float16", "reference_layers_norms", "r.multiply(r.subtract(x, y), to.root)",
     "r.subtract(r.multiply(x, to.root), r.multiply(y, to.root))"),
    ("layer_norm", "float16 summed in float32", "reference_layers_norms",
     "r.divide(r.number(1.0), r.sqrt(r.add(variance, r.number(eps))))",
     "r.sqrt(r.divide(r.number(1.0), r.add(variance, r.number(eps))))"),
    ("rms_norm", "bfloat16", "reference_layers_norms", "[r.multiply(each, root) for each in d]",
     "[r.divide(each, r.sqrt(r.add(variance, r.number(eps)))) for each in d]"),
    ("batch_norm", "float32", "reference_layers_norms", "r.subtract(r.subtract(each, a), r.multiply(n, c))",
     "r.subtract(r.subtract(each, r.multiply(n, c)), a)"),
    ("max_pool", "float16", "reference_layers", "r.compare(x[tap], x[best]) > 0", "r.compare(x[tap], x[best]) >= 0"),
    ("max_pool", "float16", "reference_layers", "if element in covered]", "if element in covered][::-1]"),
    ("avg_pool", "float16 summed in float32", "reference_layers",
     "r.mean([x.get(tap, 0) for tap in _window(geometry, place)])",
     "r.divide(r.sum([x.get(tap, 0) for tap in _window(geometry, place)]), r.number(math.prod(geometry.kernel)))"),
    ("avg_pool", "float16", "reference_layers", "r.divide(g[window], count)",
     "r.multiply(g[window], r.divide(r.number(1.0), count))"),
    ("convolution", "float16", "reference_layers", "for n in range(batch) for place in places",
     "for place in places for n in range(batch)"),
    ("gru", "float16", "reference_layers_recurrent", "_each(r.add, _each(r.multiply, _each(r.subtract, h, n), z), n)",
     "[r.add(r.multiply(r.subtract(r.number(1.0), c), b), r.multiply(c, a)) for a, b, c in zip(h, n, z)]"),
    ("gru", "float32", "reference_layers_recurrent",
     "_each(r.multiply, _each(r.multiply, d, away), _sigmoid_slopes(r, step.z))",
     "_each(r.multiply, d, _each(r.multiply, away, _sigmoid_slopes(r, step.z)))"),
    ("lstm", "float16", "reference_layers_recurrent", "_each(r.add, _products(r, h, weight, bias), each)",
     "_each(r.add, _each(r.add, _products(r, h, weight, None), each), bias)"),
    ("lstm", "bfloat16", "reference_layers_recurrent", "_each(r.add, _each(r.multiply, f, c), _each(r.multiply, i, g))",
     "_each(lambda a, b, c: reference.fma(a, b, c, r.fmt).bits, f, c, _each(r.multiply, i, g))"),
    ("sgd", "float16", "reference_layers_updates", "r.add(r.multiply(r.number(momentum), b), a) for b",
     "reference.fma(r.number(momentum), b, a, r.fmt).bits for b"),
    ("sgd", "float32", "reference_layers_updates", "r.subtract(w, r.multiply(r.number(lr), a))",
     "reference.fma(r.number(-lr), a, w, r.fmt).bits"),
    ("adam", "float16", "reference_layers_updates", "r.multiply(r.multiply(r.number(1.0 - b2), g), g)",
     "r.multiply(r.number(1.0 - b2), r.multiply(g, g))"),
    ("adam", "float32", "reference_layers_updates", "r.divide(r.multiply(r.number(lr / (1.0 - power1)), m), d)",
     "r.multiply(r.number(lr / (1.0 - power1)), r.divide(m, d))"),
    ("unscale", "float16", "reference_layers_updates", "r.multiply(g, r.number(1.0 / scale))",
     "r.divide(g, r.number(scale))"),
    ("mixed linear", "float16", "reference_layers", "[r.sum(each) for each in columns(g)]",
     "[reduce(r.add, each, 0) for each in columns(g)]"),
    ("mixed layer_norm", "float16", "reference_layers_norms", "r.mean([r.multiply(each, each) for each in d])",
     "r.subtract(r.mean([r.multiply(x, x) for x in group]), r.multiply(mean or 0, mean or 0))"),
    ("mixed batch_norm", "float16", "reference_layers_norms",
     "u = r.sum([r.multiply(a, n) for a, n in zip(g, to.n, strict=True)])",
     "u = r.sum([r.multiply(a, n) for a, n in zip(g, to.n, strict=True)][::-1])"),
    ("clip", "float32", "reference_layers_updates", "[[r.multiply(c, g) for g",
     "[[r.divide(r.multiply(r.number(max_norm), g), r.add(norm, r.number(1e-6))) for g"),
]  # fmt: skip


def planted(module: str, old: str, new: str) -> Any:
    """Give the definition with a piece of its source replaced."""
    modules = []
    for name in MODULES:
        found = importlib.import_module(HOME + name)
        if name == module:
            source = inspect.getsource(found)
            assert source.count(old) == 1, f"{old!r} occurs {source.count(old)} times in {module}"
            mutant = ModuleType(found.__name__)
            mutant.__dict__["reference"] = reference
            exec(compile(source.replace(old, new), found.__file__ or "", "exec"), mutant.__dict__)
            found = mutant
        modules.append(found)
    return gathered(modules)


@pytest.mark.parametrize(
    ("name", "case", "module", "old", "new"),
    FAULTS,
    ids=[f"{name}-{n}" for n, (name, *_) in enumerate(FAULTS)],
)
def test_a_planted_fault_is_seen(name: str, case: str, module: str, old: str, new: str) -> None:
    with pytest.raises(AssertionError):
        compare(name, CASES[case], planted(module, old, new), 200, phases=(Phase.generate,))


def test_every_check_has_a_planted_fault() -> None:
    assert {name for name, *_ in FAULTS} == set(CHECKS)
