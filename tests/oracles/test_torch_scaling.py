"""The model of torch's dynamic loss scaler beside a live torch.amp.GradScaler (torch 2.13), step by step.

Everything is compared exactly: the scale, whether the step is applied, what is saved, the unscaled gradient.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from fp16sim.scaling import Decision, Observation, TorchScaler
from fp16sim.scaling.protocol import observe, unscale

pytestmark = pytest.mark.oracle

LAST = {"finite": 0.75, "inf": math.inf, "minus inf": -math.inf, "nan": math.nan, "largest": 3.4e38}
Outcome = tuple[float, bool, dict[str, Any], Any]
"""The scale that was used, whether the step was applied, the saved state, the unscaled gradient if so."""


def gradient_of(kind: str) -> Any:
    return np.float32([1.0, -3.0e-8, LAST[kind]])


def live(torch: Any, options: dict[str, Any], history: list[str], reload: int) -> Iterator[Outcome]:
    """Run torch's scaler; before step `reload` a new one takes over from its saved state."""
    scaler = torch.amp.GradScaler("cpu", **options)
    parameter = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    applied: list[bool] = []
    optimizer.register_step_post_hook(lambda *_: applied.append(True))
    for step, kind in enumerate(history):
        if step == reload and step:
            state = scaler.state_dict()
            scaler = torch.amp.GradScaler("cpu")
            scaler.load_state_dict(state)
        used = scaler.scale(torch.ones(())).item()
        parameter.grad = torch.from_numpy(gradient_of(kind))
        applied.clear()
        scaler.step(optimizer)
        scaler.update()
        yield used, bool(applied), scaler.state_dict(), parameter.grad.numpy() if applied else None


def modelled(model: TorchScaler, history: list[str], reload: int) -> Iterator[Outcome]:
    """Run the model on the same gradients."""
    for step, kind in enumerate(history):
        if step == reload and step:
            model = TorchScaler().load_framework_state(model.framework_state())
        gradient = gradient_of(kind)
        following, decision = model.update(observe(model, [gradient]))
        moved = unscale(gradient, decision) if decision.apply else None
        yield float(model.scale), bool(decision.apply), following.framework_state(), moved
        model = following


def first_difference(
    torch: Any, options: dict[str, Any], model: TorchScaler, history: list[str], reload: int
) -> str:
    """Describe where the two part; empty if nowhere."""
    pairs = zip(live(torch, options, history, reload), modelled(model, history, reload), strict=True)
    for step, (theirs, ours) in enumerate(pairs):
        for what, a, b in zip(("scale", "applied", "state", "gradient"), ours, theirs, strict=True):
            if (a.tobytes() != b.tobytes()) if isinstance(a, np.ndarray) else a != b:
                return f"step {step}: {what} {b}, not {a}"
    return ""


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, Any], list[str], int]:
    """Draw options, histories that are mostly finite, and when to save and load."""
    power = st.integers(-149, 127).map(lambda n: 2.0**n)
    options = {
        "init_scale": draw(st.one_of(power, st.floats(1e-3, 1e9), st.floats(2.0**-149, 3.4e38))),
        "growth_factor": draw(
            st.one_of(st.sampled_from([2.0, 1.5, 1e30]), st.floats(1.0, 16.0, exclude_min=True))
        ),
        "backoff_factor": draw(
            st.one_of(st.just(0.5), st.floats(0.0, 1.0, exclude_min=True, exclude_max=True))
        ),
        "growth_interval": draw(st.integers(-1, 6)),
    }
    kind = st.sampled_from(["finite"] * 6 + ["largest", "inf", "minus inf", "nan"])
    length = draw(st.integers(1, 40))
    history = draw(st.lists(kind, min_size=length, max_size=length))
    return options, history, draw(st.integers(0, 40))


def test_grad_scaler_step_by_step(torch: Any) -> None:
    seen: Counter[str] = Counter()

    @settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=400,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases())
    def compare(case: tuple[dict[str, Any], list[str], int]) -> None:
        options, history, reload = case
        model = TorchScaler(**options)
        assert not first_difference(torch, options, model, history, reload)
        for used, applied, state, _ in modelled(model, history, reload):
            grown = applied and state["_growth_tracker"] == 0
            seen.update(["step", "grown" if grown else "finite" if applied else "skipped"])
            seen.update(["zero"] * (state["scale"] == 0))
            seen.update(["growth refused"] * (grown and used * options["growth_factor"] >= 2.0**128))
        seen.update(["reloaded"] * (0 < reload < len(history)))

    compare()
    assert seen["step"] > 5000, seen
    assert min(seen["grown"], seen["skipped"], seen["reloaded"]) > 100, seen
    assert min(seen["zero"], seen["growth refused"]) > 20, seen
    print(f"\nGradScaler: {dict(seen)}")


def test_grad_scaler_for_long(torch: Any) -> None:
    """The defaults, through two growths and an overflow."""
    history = ["finite"] * 2001 + ["inf"] + ["finite"] * 2001
    assert not first_difference(torch, {}, TorchScaler(), history, 1000)


class Disguised(TorchScaler):
    """A wrong model whose saved state names the right options."""

    def framework_state(self) -> dict[str, Any]:
        return {**super().framework_state(), **RIGHT}


RIGHT = {"growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 3}


@pytest.mark.parametrize(
    ("wrong", "step"),
    [
        ({}, None),
        ({"growth_interval": 4}, 2),
        ({"growth_interval": 2}, 1),
        ({"growth_factor": 2.0 + 2.0**-20}, 2),
        ({"backoff_factor": 0.25}, 4),
        ({"growth_tracker": 1}, 0),
        ({"scale": 1024.0 + 2.0**-13}, 0),
    ],
)
def test_a_wrong_model_is_noticed_at_once(torch: Any, wrong: dict[str, Any], step: int | None) -> None:
    options = {"init_scale": 1024.0, **RIGHT}
    history = ["finite"] * 4 + ["nan"] + ["finite"] * 4
    message = first_difference(torch, options, Disguised(**{**options, **wrong}), history, 0)
    assert message.startswith(f"step {step}: ") if wrong else not message, message


def test_a_model_that_takes_an_overflowing_step_is_noticed(torch: Any) -> None:
    class Careless(TorchScaler):
        def update(self, observation: Observation) -> tuple[TorchScaler, Decision]:
            following, decision = super().update(observation)
            return following, replace(decision, apply=True)

    assert first_difference(torch, {}, Careless(), ["finite", "nan"], 0).startswith("step 1: applied")


@pytest.mark.parametrize("bad", [(), (0,), (1,), (0, 1)])
def test_each_of_two_optimizers_skips_by_its_own_gradients(torch: Any, bad: tuple[int, ...]) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    optimizers = [torch.optim.SGD([parameter], lr=1.0) for parameter in parameters]
    scaler.scale(sum(parameter.sum() for parameter in parameters)).backward()
    for place in bad:
        parameters[place].grad.fill_(math.inf)
    for optimizer in optimizers:
        scaler.step(optimizer)
    scaler.update()
    overflow = {str(place): place in bad for place in range(2)}
    following, decision = TorchScaler(init_scale=8.0).update(Observation(overflow=overflow))
    assert decision.apply == {str(place): parameters[place].item() == -1.0 for place in range(2)}
    assert following.scale == scaler.get_scale()
