"""LSTM and GRU, values and gradients, held to torch 2.13 on a CPU; packed sequences stand for lengths.

Tolerances say why they are what they are, and something planted shows that they notice a fault.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from fp16sim import nn
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn.random import normals, streams

pytestmark = pytest.mark.oracle

U = 2.0**-24
"""Half an ulp of float32, relative: what one rounding may change."""


def drawn(seed: int, *shape: int) -> Any:
    return normals(seed, math.prod(shape)).reshape(shape)


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    steps, batch = draw(st.integers(1, 6)), draw(st.integers(1, 4))
    lengths = st.lists(st.integers(1, steps), min_size=batch, max_size=batch)
    return {
        "kind": draw(st.sampled_from(["LSTM", "GRU"])),
        "sizes": (draw(st.integers(1, 5)), draw(st.integers(1, 6))),
        "num_layers": draw(st.integers(1, 2)),
        "bias": draw(st.booleans()),
        "batch_first": draw(st.booleans()),
        "bidirectional": draw(st.booleans()),
        "steps": steps,
        "batch": batch,
        "lengths": draw(st.none() | lengths),
        "state": draw(st.booleans()),
        "seed": draw(st.integers(0, 1000)),
    }


OPTIONS = ("num_layers", "bias", "batch_first", "bidirectional")


def differences(torch: Any, case: dict[str, Any], dtype: str, spoil: str = "") -> dict[str, float]:
    """Compute by both; give each array's largest difference over the largest magnitude of torch's float64 array."""
    options = {name: case[name] for name in OPTIONS}
    inputs, hidden = case["sizes"]
    with streams(case["seed"]):
        ours = getattr(nn, case["kind"])(inputs, hidden, **options).to(dtype)
    theirs = getattr(torch.nn, case["kind"])(inputs, hidden, dtype=torch.float64, **options)
    with torch.no_grad():
        for name, parameter in ours.named_parameters():
            getattr(theirs, name).copy_(torch.from_numpy(parameter.numpy().astype(np.float64)))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    if spoil:
        parameter = getattr(ours, spoil)
        changed = parameter.numpy()
        changed.reshape(-1)[0] *= 1 + 2.0**-12
        parameter.data = changed
    shape = (case["batch"], case["steps"]) if case["batch_first"] else (case["steps"], case["batch"])
    directions = 1 + case["bidirectional"]
    state_shape = (case["num_layers"] * directions, case["batch"], hidden)
    arrays = [drawn(case["seed"] + 1, *shape, inputs).astype(dtype)]
    if case["state"]:
        arrays += [drawn(case["seed"] + 2 + i, *state_shape).astype(dtype) for i in range(ours.states)]
    mine = [Tensor(array, requires_grad=True) for array in arrays]
    other = [torch.from_numpy(array.astype(np.float64)).requires_grad_() for array in arrays]

    def state(given: list[Any]) -> Any:
        return None if len(given) == 1 else tuple(given[1:]) if ours.states == 2 else given[1]

    output, last = ours(mine[0], state(mine), case["lengths"])
    if case["lengths"] is None:
        their_output, their_last = theirs(other[0], state(other))
    else:
        rnn = torch.nn.utils.rnn
        packed = rnn.pack_padded_sequence(
            other[0], torch.tensor(case["lengths"]), case["batch_first"], enforce_sorted=False
        )
        packed, their_last = theirs(packed, state(other))
        their_output, _ = rnn.pad_packed_sequence(packed, case["batch_first"], total_length=case["steps"])
    results = [output, *(last if isinstance(last, tuple) else [last])]
    their_results = [their_output, *(their_last if isinstance(their_last, tuple) else [their_last])]
    total = their_total = None
    for position, (a, b) in enumerate(zip(results, their_results, strict=True)):
        weight = drawn(case["seed"] + 50 + position, *a.shape).astype(dtype)
        term, their_term = (a * Tensor(weight)).sum(), (b * torch.from_numpy(weight.astype(np.float64))).sum()
        total, their_total = (term, their_term) if total is None else (total + term, their_total + their_term)
    total.backward()
    their_total.backward()
    pairs = {
        f"result {i}": (a.data, b.detach())
        for i, (a, b) in enumerate(zip(results, their_results, strict=True))
    }
    pairs |= {f"operand {i}": (a.grad, b.grad) for i, (a, b) in enumerate(zip(mine, other, strict=True))}
    pairs |= {name: (p.grad, getattr(theirs, name).grad) for name, p in ours.named_parameters()}
    found = {}
    for name, (a, b) in pairs.items():
        b = b.numpy()
        assert a.shape == b.shape
        assert a.dtype == dtype
        assert ((a == 0) | (b != 0)).all(), name  # padding is exactly zero
        found[name] = float(np.abs(a - b).max() / (np.abs(b).max() or 1.0))
    return found


@pytest.mark.parametrize(("dtype", "bound"), [("float64", 1e-12), ("float32", 200 * U)])
def test_recurrent_layers(torch: Any, dtype: str, bound: float) -> None:
    """float64: 1e-12 of the largest element.

    float32: a step makes about 10 roundings, each direction of a layer has up to 6 steps, and 2 layers go forward and
    back: 240 roundings of u each at most on a path, most of which partly cancel.
    """
    worst: dict[str, float] = {}

    @settings(derandomize=True, deadline=None, max_examples=40, database=None)
    @given(cases())
    def compare(case: dict[str, Any]) -> None:
        for name, difference in differences(torch, case, dtype).items():
            worst[name] = max(worst.get(name, 0.0), difference)
            assert difference <= bound, (name, difference)

    compare()
    print(f"\n{dtype}: {max(worst.values()) / U:.3g} u at most")


@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
@pytest.mark.parametrize("spoil", ["weight_ih_l0", "weight_hh_l0_reverse", "bias_hh_l1"])
def test_a_wrong_weight_is_noticed(torch: Any, kind: str, spoil: str) -> None:
    case = {
        "kind": kind,
        "sizes": (3, 4),
        "num_layers": 2,
        "bias": True,
        "batch_first": False,
        "bidirectional": True,
        "steps": 5,
        "batch": 3,
        "lengths": [5, 2, 3],
        "state": True,
        "seed": 5,
    }
    assert max(differences(torch, case, "float64").values()) < 1e-12
    assert max(differences(torch, case, "float64", spoil).values()) > 200 * U / 8
