"""Models of loss scalers beside the live frameworks, step by step: torch, FSDP, Keras 3, jmp, flax.

Each compares 1,000 drawn histories of up to 300 steps, with drawn windows, factors and initial scales: the scale that
multiplied the loss, whether the step was applied, the unscaled gradient bit for bit (and with it the scale that
divided), and the saved state. Each skips where its framework is absent; `pip install 'fp16sim[oracles-keras]'` and
`pip install 'fp16sim[oracles-jax]'`, torch 2.13 first.
"""

from __future__ import annotations

import importlib
import os
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from fp16sim import scaling
from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling.protocol import observe, scale_loss, unscale

pytestmark = pytest.mark.oracle

STEPS = 300
HISTORIES = 1000
LAST = {".": 0.75, "o": np.inf, "m": -np.inf, "n": np.nan, "l": 3.4e38}
GRADIENTS = {kind: np.float32([1.0, -3.0e-8, last]) for kind, last in LAST.items()}


class Outcome(NamedTuple):
    """What one step showed, in the framework or in the model."""

    scale: float
    applied: bool
    gradient: bytes | None
    state: dict[str, Any]


Live = Callable[[dict[str, Any], str], list[Outcome]]


@st.composite
def histories(draw: st.DrawFn) -> str:
    """Draw runs of finite steps (l: one with a gradient close to the largest) between bursts of bad ones."""
    run = st.tuples(st.sampled_from("....lomn"), st.integers(1, 60))
    runs = draw(st.lists(run, min_size=1, max_size=16))
    return "".join(kind * (length if kind == "." else 1 + length % 9) for kind, length in runs)[:STEPS]


def powers(low: int, high: int) -> st.SearchStrategy[float]:
    return st.integers(low, high).map(lambda n: 2.0**n)


def bits(gradient: Any) -> bytes | None:
    """Give the bits; of a NaN, whose sign and payload are the processor's, those of one NaN."""
    if gradient is None:
        return None
    return bytes(np.where(np.isnan(gradient), np.float32(np.nan), gradient).tobytes())


def modelled(model: Any, history: str, flush: bool) -> Iterator[Outcome]:
    for kind in history:
        gradient = GRADIENTS[kind]
        following, decision = model.update(observe(model, [gradient]))
        moved = unscale(gradient, decision) if decision.apply else None
        if moved is not None and flush:
            moved = np.where(np.abs(moved) < 2.0**-126, np.copysign(np.float32(0), moved), moved)
        yield Outcome(float(model.scale), decision.apply, bits(moved), following.framework_state())
        model = following


def difference(theirs: list[Outcome], ours: list[Outcome]) -> str:
    """Describe where the two part; empty if nowhere."""
    for step, (theirs_here, ours_here) in enumerate(zip(theirs, ours, strict=True)):
        for what, a, b in zip(Outcome._fields, ours_here, theirs_here, strict=True):
            if a != b and repr(a) != repr(b):  # NaN has a repr
                return f"step {step}: {what} {a!r}, not {b!r}"
    return ""


def compare(
    name: str,
    live: Live,
    options: st.SearchStrategy[dict[str, Any]],
    flush: bool = False,
    largest_scale: float = np.inf,
) -> None:
    """Compare many histories; above `largest_scale`, all but the unscaled gradients."""
    seen: Counter[str] = Counter()

    @settings(
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=HISTORIES,
        suppress_health_check=list(HealthCheck),
    )
    @given(options, histories())
    def run(drawn: dict[str, Any], history: str) -> None:
        ours = list(modelled(scaling.make(name, **drawn), history, flush))
        theirs = live(drawn, history)
        for outcomes in (ours, theirs):
            outcomes[:] = [o._replace(gradient=None) if o.scale > largest_scale else o for o in outcomes]
        found = difference(theirs, ours)
        assert not found, f"{found}; {history!r} with {drawn}"
        scales = {outcome.scale for outcome in ours}
        seen.update({"histories": 1, "steps": len(history), "long": len(history) > STEPS // 2})
        seen.update({"moved": len(scales) > 1, "zero": 0.0 in scales, "infinite": np.inf in scales})
        seen.update(applied=sum(outcome.applied for outcome in ours))

    run()
    print(f"\n{name}: {dict(seen)}, 0 differences")
    assert seen["histories"] >= HISTORIES, seen
    assert min(seen["long"], seen["moved"]) > 100, seen
    assert min(seen["applied"], seen["steps"] - seen["applied"]) > 10_000, seen


def installed(*modules: str, hint: str) -> list[Any]:
    """Import modules whose imports may warn; skip where one is absent."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in modules:
            reason = f"{module} is not installed: {hint}"
            pytest.importorskip(module, reason=reason, exc_type=ImportError)
            found.append(importlib.import_module(module))
    return found


# torch ------------------------------------------------------------------------------------------------------------


def torch_driver(torch: Any, kind: Any) -> Live:
    def live(options: dict[str, Any], history: str) -> list[Outcome]:
        scaler, outcomes = kind("cpu", **options), []
        parameter = torch.nn.Parameter(torch.zeros(3))
        optimizer = torch.optim.SGD([parameter], lr=1.0)
        applied: list[bool] = []
        optimizer.register_step_post_hook(lambda *_: applied.append(True))
        for letter in history:
            used = scaler.scale(torch.ones(())).item()
            parameter.grad = torch.from_numpy(GRADIENTS[letter].copy())
            applied.clear()
            scaler.step(optimizer)
            scaler.update()
            gradient = bits(parameter.grad.numpy()) if applied else None
            outcomes.append(Outcome(used, bool(applied), gradient, scaler.state_dict()))
        return outcomes

    return live


TORCH_OPTIONS = st.fixed_dictionaries(
    {
        "init_scale": st.one_of(powers(-149, 127), st.floats(1e-3, 1e9), st.floats(2.0**-149, 3.4e38)),
        "growth_factor": st.one_of(st.sampled_from([2.0, 1.5, 1e30]), st.floats(1.0, 16.0, exclude_min=True)),
        "backoff_factor": st.one_of(st.sampled_from([0.5, 0.0]), st.floats(0.0, 1.0, exclude_max=True)),
        "growth_interval": st.integers(-1, 40),
    }
)


@pytest.fixture
def sharded(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The scaler of FSDP with one rank: the sum over the ranks leaves a value alone."""
    from torch.distributed.fsdp import sharded_grad_scaler as module

    class Done:
        def wait(self) -> None:
            pass

    monkeypatch.setattr(module.dist, "all_reduce", lambda *_, **__: Done())
    return module.ShardedGradScaler


@pytest.mark.slow
def test_torch(torch: Any) -> None:
    compare("torch", torch_driver(torch, torch.amp.GradScaler), TORCH_OPTIONS)


@pytest.mark.slow
def test_torch_fsdp(torch: Any, sharded: Any) -> None:
    compare("torch_fsdp", torch_driver(torch, sharded), TORCH_OPTIONS)


FLOAT16_GRADIENTS = np.float16([65504, 2.0**-24, 5e-8 * 65536, 2e-8 * 65536, -1.0, 0.1])


@pytest.mark.parametrize("scale", [65536.0, 3.0, 2.0**25, 2.0**-3, 1000.0])
def test_a_float16_gradient_in_fsdp(torch: Any, sharded: Any, scale: float) -> None:
    """Multiplied in float32 and rounded back: the same bits, in float16."""
    scaler, model = sharded("cpu", init_scale=scale), scaling.make("torch_fsdp", init_scale=scale)
    parameter = torch.nn.Parameter(torch.zeros(6, dtype=torch.float16))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler.scale(torch.ones(()))
    parameter.grad = torch.from_numpy(FLOAT16_GRADIENTS.copy())
    scaler.unscale_(optimizer)
    _, decision = model.update(observe(model, [FLOAT16_GRADIENTS]))
    assert unscale(FLOAT16_GRADIENTS, decision).tobytes() == parameter.grad.numpy().tobytes()


@pytest.mark.parametrize("name", ["torch", "torch_fsdp"])
@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_scaled_loss_in_torch(torch: Any, sharded: Any, name: str, shape: Any, dtype: str) -> None:
    loss = np.full(shape, 0.75, dtype)
    for scale in (65536.0, 8.0, 3.3):
        scaler = (torch.amp.GradScaler if name == "torch" else sharded)("cpu", init_scale=scale)
        theirs = scaler.scale(torch.from_numpy(loss)).numpy()
        ours = scale_loss(scaling.make(name, init_scale=scale), Tensor(loss)).data
        assert (ours.dtype, ours.shape, ours.tobytes()) == (theirs.dtype, theirs.shape, theirs.tobytes())


# Keras 3 ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keras(torch: Any) -> Any:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    (module,) = installed("keras", hint="pip install 'fp16sim[oracles-keras]'")
    if module.backend.backend() != "torch":
        pytest.skip(f"keras runs on {module.backend.backend()}; set KERAS_BACKEND=torch")
    return module


def keras_driver(keras: Any, torch: Any) -> Live:
    class Watched(keras.optimizers.SGD):
        seen: Any = None

        def apply(self, grads: Any, trainable_variables: Any = None) -> None:
            self.seen = bits(grads[0].detach().numpy())

    def live(options: dict[str, Any], history: str) -> list[Outcome]:
        inner, outcomes = Watched(0.5), []
        optimizer = keras.optimizers.LossScaleOptimizer(inner, **options)
        variable = keras.Variable(np.zeros(3, np.float32))
        optimizer.build([variable])
        for letter in history:
            inner.seen = None
            used = float(optimizer.scale_loss(torch.ones(())))
            optimizer.apply([torch.from_numpy(GRADIENTS[letter])], [variable])
            state = {
                "step_counter": int(optimizer.step_counter),
                "dynamic_scale": float(optimizer.dynamic_scale),
            }
            outcomes.append(Outcome(used, inner.seen is not None, inner.seen, state))
        return outcomes

    return live


KERAS_OPTIONS = st.fixed_dictionaries(
    {
        "initial_scale": st.one_of(powers(-149, 127), st.floats(1e-3, 1e9)),
        "dynamic_growth_steps": st.integers(-1, 40),
    }
)


@pytest.mark.slow
def test_keras3(keras: Any, torch: Any) -> None:
    compare("keras3", keras_driver(keras, torch), KERAS_OPTIONS)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_scaled_loss_in_keras3(keras: Any, torch: Any, dtype: str) -> None:
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(), initial_scale=65536.0)
    optimizer.build([keras.Variable(np.zeros(3, np.float32))])
    loss = np.full((), 1.5, dtype)
    theirs = optimizer.scale_loss(torch.from_numpy(loss)).detach().numpy()
    ours = scale_loss(scaling.make("keras3", initial_scale=65536.0), Tensor(loss)).data
    assert (ours.dtype, ours.tobytes()) == (theirs.dtype, theirs.tobytes())


# JAX: XLA on a CPU takes subnormal numbers as zero, so subnormal unscaled gradients are compared as zeros ------------


@pytest.fixture(scope="module")
def jax() -> Any:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    modules = installed(
        "jax", "jmp", "flax.training.dynamic_scale", hint="pip install 'fp16sim[oracles-jax]'"
    )
    return modules


def stacked(history: str) -> Any:
    """The gradients of a history, filled up to one shape so that XLA compiles once."""
    return np.stack([GRADIENTS[kind] for kind in history.ljust(STEPS, ".")])


def jmp_driver(modules: list[Any]) -> Live:
    jax, jmp, _ = modules

    @jax.jit
    def run(scale: Any, period: Any, factor: Any, minimum: Any, gradients: Any) -> Any:
        def step(carry: Any, gradient: Any) -> Any:
            scaler = jmp.DynamicLossScale(*carry, period, factor, minimum)
            unscaled = scaler.unscale(gradient)
            finite = jmp.all_finite(unscaled)
            after = scaler.adjust(finite)
            used = scaler.scale(jax.numpy.float32(1))
            return (after.loss_scale, after.counter), (
                used,
                finite,
                unscaled,
                after.loss_scale,
                after.counter,
            )

        return jax.lax.scan(step, (scale, jax.numpy.zeros([], jax.numpy.int32)), gradients)[1]

    def live(options: dict[str, Any], history: str) -> list[Outcome]:
        start, factor, minimum = (
            np.float32(options[key]) for key in ("loss_scale", "factor", "min_loss_scale")
        )
        parts = map(np.asarray, run(start, np.int32(options["period"]), factor, minimum, stacked(history)))
        return [
            Outcome(
                float(used),
                bool(finite),
                bits(unscaled) if finite else None,
                {"loss_scale": float(scale), "counter": int(counter)},
            )
            for used, finite, unscaled, scale, counter in list(zip(*parts, strict=True))[: len(history)]
        ]

    return live


JMP_OPTIONS = st.fixed_dictionaries(
    {
        "loss_scale": st.one_of(powers(-126, 127), st.floats(2.0**-10, 2.0**30, width=32)),
        "period": st.integers(1, 40),
        "factor": st.sampled_from([2.0, 2.0, 2.0, 4.0, 3.0, 1.5, 10.0]),
        "min_loss_scale": st.sampled_from([1.0, 0.25, 2.0**-126, 512.0, 3.0]),
    }
)


@pytest.mark.slow
def test_jmp(jax: Any) -> None:
    # From 2^126 on 1/S is subnormal, so zero for XLA, and with it the gradient.
    compare("jmp", jmp_driver(jax), JMP_OPTIONS, flush=True, largest_scale=2.0**126)


def flax_driver(modules: list[Any]) -> Live:
    jax, _, dynamic_scale = modules

    @jax.custom_vjp
    def deliver(weight: Any, gradient: Any) -> Any:
        return weight.sum() * 0 + 1

    deliver.defvjp(
        lambda weight, gradient: (deliver(weight, gradient), gradient), lambda gradient, _: (gradient, None)
    )

    @jax.jit
    def run(scale: Any, growth: Any, backoff: Any, interval: Any, minimum: Any, gradients: Any) -> Any:
        def step(carry: Any, gradient: Any) -> Any:
            fin_steps, used = carry
            scaler = dynamic_scale.DynamicScale(growth, backoff, interval, fin_steps, used, minimum)
            found = scaler.value_and_grad(deliver)(jax.numpy.zeros(3), gradient)
            after = found.dynamic_scale
            return (after.fin_steps, after.scale), (
                used,
                found.finite,
                found.grad,
                after.scale,
                after.fin_steps,
            )

        return jax.lax.scan(step, (jax.numpy.int32(0), scale), gradients)[1]

    def live(options: dict[str, Any], history: str) -> list[Outcome]:
        names = ("scale", "growth_factor", "backoff_factor")
        numbers = [np.float32(options[key]) for key in names]
        interval, minimum = np.int32(options["growth_interval"]), np.float32(options["minimum_scale"])
        parts = map(np.asarray, run(*numbers, interval, minimum, stacked(history)))
        return [
            Outcome(
                float(used),
                bool(finite),
                bits(unscaled) if finite else None,
                {"fin_steps": int(fin_steps), "scale": float(scale)},
            )
            for used, finite, unscaled, scale, fin_steps in list(zip(*parts, strict=True))[: len(history)]
        ]

    return live


FLAX_OPTIONS = st.fixed_dictionaries(
    {
        "scale": st.one_of(powers(-126, 127), st.floats(1e-3, 1e9)),
        "growth_factor": st.one_of(st.just(2.0), st.floats(1.0, 16.0)),
        "backoff_factor": st.one_of(st.just(0.5), st.floats(0.0, 1.0)),
        "growth_interval": st.integers(-1, 40),
        "minimum_scale": st.sampled_from([2.0**-126, 1.0, 0.25, 3.0, 0.0]),
    }
)


@pytest.mark.slow
def test_flax(jax: Any) -> None:
    compare("flax", flax_driver(jax), FLAX_OPTIONS, flush=True)


@pytest.mark.parametrize("scale", [1024.0, 3.3])
def test_eager_jax_gives_the_same(jax: Any, scale: float) -> None:
    """The drivers above compile one loop over all steps; here the libraries run step by step, without jit."""
    jax, jmp, dynamic_scale = jax
    history = "..o.lm...n"
    theirs = jmp.DynamicLossScale(
        jax.numpy.float32(scale), period=2, factor=3, min_loss_scale=np.float32(0.25)
    )
    flaxs = dynamic_scale.DynamicScale(scale=scale, growth_interval=1, minimum_scale=None)
    ours = [
        scaling.make("jmp", loss_scale=scale, period=2, factor=3, min_loss_scale=0.25),
        scaling.make("flax", scale=scale, growth_interval=1, minimum_scale=None),
    ]
    for kind in history:
        gradient = GRADIENTS[kind]
        unscaled = theirs.unscale(gradient)
        found = flaxs.value_and_grad(lambda p, g=gradient, s=flaxs.scale: (p * (g / s)).sum())(
            jax.numpy.ones(3)
        )
        finite = [bool(jmp.all_finite(unscaled)), bool(found.finite)]
        theirs, flaxs = theirs.adjust(jax.numpy.array(finite[0])), found.dynamic_scale
        for index, model in enumerate(ours):
            following, decision = model.update(observe(model, [gradient]))
            assert decision.apply is finite[index]
            if decision.apply and index == 0:
                assert bits(unscale(gradient, decision)) == bits(np.asarray(unscaled))
            ours[index] = following
        assert [float(theirs.loss_scale), float(flaxs.scale)] == [model.scale for model in ours]
        assert [int(theirs.counter), int(flaxs.fin_steps)] == [ours[0].counter, ours[1].fin_steps]


def test_the_scaled_loss_in_jax(jax: Any) -> None:
    """flax multiplies the first float16 loss in float16, where 65536 is infinite, also under jit."""
    jax, jmp, dynamic_scale = jax
    loss, weight = np.float16(0.5), jax.numpy.float16(1)
    theirs = jmp.DynamicLossScale(jax.numpy.float32(65536)).scale(jax.numpy.asarray(loss))
    ours = scale_loss(scaling.make("jmp", loss_scale=65536.0), Tensor(loss)).data
    assert (str(theirs.dtype), float(theirs)) == (str(ours.dtype), float(ours)) == ("float32", 32768.0)

    def step(scaler: Any) -> Any:
        return scaler.value_and_grad(lambda w: (w * loss).astype(jax.numpy.float16))(weight)

    for run in (step, jax.jit(step)):
        scaler, model = dynamic_scale.DynamicScale(), scaling.make("flax")
        for applied in (False, True):  # the second at half the scale, in float32
            found = run(scaler)
            assert bool(found.finite) is applied
            assert bool(np.isfinite(scale_loss(model, Tensor(loss)).item())) is applied
            model, _ = model.update(scaling.Observation(overflow=not applied))
            scaler = found.dynamic_scale
            assert float(scaler.scale) == model.scale


# Faults that have to show -------------------------------------------------------------------------------------------

HISTORY = "....n...." * 2
RIGHT: dict[str, dict[str, Any]] = {
    "torch": {"init_scale": 1024.0, "growth_factor": 2.0, "backoff_factor": 0.5, "growth_interval": 3},
    "keras3": {"initial_scale": 1024.0, "dynamic_growth_steps": 3},
    "jmp": {"loss_scale": 1024.0, "period": 3, "factor": 2.0, "min_loss_scale": 1.0},
    "flax": {
        "scale": 1024.0,
        "growth_factor": 2.0,
        "backoff_factor": 0.5,
        "growth_interval": 3,
        "minimum_scale": 2.0**-126,
    },
}


@pytest.mark.parametrize("name", list(RIGHT))
@pytest.mark.parametrize("fault", ["none", "window", "initial", "divisor", "applied"])
def test_a_wrong_model_is_noticed(request: pytest.FixtureRequest, name: str, fault: str) -> None:
    if name == "torch":
        torch = request.getfixturevalue("torch")
        live = torch_driver(torch, torch.amp.GradScaler)
    elif name == "keras3":
        live = keras_driver(request.getfixturevalue("keras"), request.getfixturevalue("torch"))
    else:
        live = {"jmp": jmp_driver, "flax": flax_driver}[name](request.getfixturevalue("jax"))
    kind = type(scaling.make(name))
    changed = dict(RIGHT[name])
    if fault == "window":
        changed[kind.window] += 1
    elif fault == "initial":
        changed[kind.initial] = float(np.nextafter(np.float32(1024), np.float32(2048)))
    ours = list(modelled(scaling.make(name, **changed), HISTORY, flush=False))
    if fault == "divisor":
        ours[0] = ours[0]._replace(gradient=bits(GRADIENTS["."] / np.float32(2048)))
    elif fault == "applied":
        ours[4] = ours[4]._replace(applied=True)
    if name == "torch":  # whose state holds the options
        ours = [o._replace(state={**o.state, "growth_interval": 3}) for o in ours]
    found = difference(live(RIGHT[name], HISTORY), ours)
    step = {"none": None, "window": 2 + (name == "flax"), "initial": 0, "divisor": 0, "applied": 4}[fault]
    assert found.startswith(f"step {step}: ") if fault != "none" else not found, found
