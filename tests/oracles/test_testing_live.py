"""The kit on the scalers of torch, Keras 3, DeepSpeed, jmp and flax themselves, and on the models of them.

Every check has to give both the same verdict, and the same shortest history; `DIFFERENCES` has the exceptions. Each
framework but torch is tried where it is installed: `pip install 'fp16sim[oracles-keras]'`, `pip install
'fp16sim[oracles-jax]'`, `DS_BUILD_OPS=0 pip install --no-build-isolation deepspeed`. With `-s` they print a table.
"""

from __future__ import annotations

import importlib
import os
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.testing import adapt, scaler_checks
from fp16sim.testing.case import Case, case_of
from fp16sim.testing.checking import examined
from fp16sim.testing.report import Verdict

pytestmark = pytest.mark.oracle

Options = dict[str, Any]
SMALLEST, TINY, LARGE = 2.0**-149, 2.0**-128, 2.0**127
SCALES = (SMALLEST, TINY, 0.25, 3.0, LARGE, 65536.0)
# Not `any_order`: the loop around a model refuses calls out of order that torch takes.
CLAIMS: list[Any] = ["power_of_two", "groups", "rechecks", "checked", {"hysteresis": 2}]


class Difference(NamedTuple):
    """A verdict in which a framework and its model differ, and why they have to."""

    check: str
    frameworks: str
    reason: str
    where: Callable[[Options], bool] = lambda options: True


DIFFERENCES = (
    Difference(
        "changes_nothing_it_is_given",
        "torch torch_fsdp keras3 deepspeed jmp flax",
        "the check is about an `update` that takes an observation and gives the next scaler: the models' interface",
    ),
    Difference(
        "unchecked_update_is_refused",
        "keras3 deepspeed jmp flax",
        "there is no call that updates without a check: apply looks itself, update_scale and adjust are told",
    ),
    Difference(
        "clamp_leaves_other_state_alone",
        "deepspeed",
        "the object has a `min_scale`, which the kit takes for its floor; the model's option is `min_loss_scale`, and "
        "with a hysteresis of 0 the scale never falls to it",
        lambda options: options.get("hysteresis") == 0,
    ),
    Difference(
        "power_of_two_transparency",
        "jmp",
        "XLA on a CPU takes the subnormal reciprocal of 2^127 as zero, and jmp applies zeros; the model keeps it",
        lambda options: options["loss_scale"] != 3.0,  # from which no scale is a power of two
    ),
)


def listed(framework: str, options: Options) -> dict[str, str]:
    """Give the differences of a framework with these options: the reason by check."""
    return {
        each.check: each.reason
        for each in DIFFERENCES
        if framework in each.frameworks.split() and each.where(options)
    }


def claims(framework: str, options: Options) -> list[Any]:
    window = type(scaling.make(framework)).window
    assert window is not None
    return [*CLAIMS, {"interval": options[window]}]


def verdicts(case: Case) -> Iterator[tuple[Verdict, float]]:
    """Give what each check says, and the CPU seconds that it took."""
    for _, check in scaler_checks():
        begun = time.process_time()
        verdict = examined(check, case)
        yield verdict, time.process_time() - begun


def compare(framework: str, make: Callable[[Options], Any], options: Options) -> list[Verdict]:
    """Run the kit on the framework's object and on the model, print both, and give the object's verdicts."""
    traits = claims(framework, options)
    theirs = case_of(lambda: make(options), traits)
    ours = case_of(lambda: scaling.make(framework, **options), traits)
    allowed, differing, found = listed(framework, options), set(), []
    lines = [f"\n{framework} {options}, its own verdicts and CPU seconds; the model's where they differ"]
    for (real, seconds), (model, _) in zip(verdicts(theirs), verdicts(ours), strict=True):
        found.append(real)
        lines.append(f"  {real.check:<41} {real.status:<15} {seconds:6.2f}  {real.what[:90]}".rstrip())
        if (real.status, real.history) != (model.status, model.history):
            differing.add(real.check)
            lines.append(f"    {'model':<39} {model.status:<15} {'':6}  {model.what[:90]}".rstrip())
    print("\n".join(lines))
    assert differing <= set(allowed), f"{sorted(differing - set(allowed))}\n" + "\n".join(lines)
    assert differing == set(allowed), f"no difference any more: {sorted(set(allowed) - differing)}"
    return found


def failed(found: list[Verdict]) -> dict[str, str | None]:
    return {verdict.check: verdict.history for verdict in found if verdict.bad}


def installed(module: str, hint: str) -> Any:
    """Import a module whose import may warn; skip where it is absent."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip(
            module, reason=f"{module} is not installed: pip install {hint}", exc_type=ImportError
        )
        return importlib.import_module(module)


@pytest.fixture(autouse=True)
def one_thread(torch: Any) -> None:
    torch.set_num_threads(1)


# torch ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def sharded(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The scaler of FSDP with one rank: the sum over the ranks leaves a value alone."""
    from torch.distributed.fsdp import sharded_grad_scaler as module

    class Done:
        def wait(self) -> None:
            pass

    monkeypatch.setattr(module.dist, "all_reduce", lambda *_, **__: Done())
    return module.ShardedGradScaler


def test_torch(torch: Any) -> None:
    found = compare(
        "torch",
        lambda options: torch.amp.GradScaler("cpu", **options),
        {"init_scale": 65536.0, "growth_interval": 3},
    )
    histories = failed(found)
    assert histories["scale_stays_above_zero"] == "o" * 166
    assert histories["rechecks_after_unscaling"] == "."
    assert len(found) > 10


@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("sharding", [False, True])
def test_torch_from_many_scales(torch: Any, sharded: Any, sharding: bool, scale: float) -> None:
    kind = sharded if sharding else torch.amp.GradScaler
    compare(
        "torch_fsdp" if sharding else "torch",
        lambda options: kind("cpu", **options),
        {"init_scale": scale, "growth_interval": 2},
    )


def test_calls_in_any_order_in_torch(torch: Any) -> None:
    """A step of an optimizer without gradients is an error in torch; calls out of order are right or refused."""
    check = dict(scaler_checks())["any_order_of_calls"]
    verdict = examined(check, case_of(lambda: torch.amp.GradScaler("cpu"), ["any_order"]))
    assert verdict.status == "failed"
    assert "No inf checks were recorded for this optimizer" in verdict.what


def test_float16_gradients_in_torch(torch: Any, sharded: Any) -> None:
    """GradScaler refuses float16 gradients; a parameter in float32 has none. FSDP's may be in float16."""
    for kind, dtype in ((torch.amp.GradScaler, "float32"), (sharded, "float16")):
        driver = adapt(kind("cpu", init_scale=1024.0))
        driver.backward({"all": np.array([3.0])}, "float16")
        given = driver.step("all")
        assert given is not None
        assert (given.dtype, given.tolist(), driver.update()) == (dtype, [3.0], None)


def test_a_disabled_scaler_is_refused(torch: Any) -> None:
    with pytest.raises(TypeError, match="disabled"):
        adapt(torch.amp.GradScaler("cpu", enabled=False))


# Keras 3 ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keras(torch: Any) -> Any:
    os.environ.setdefault("KERAS_BACKEND", "torch")
    module = installed("keras", "'fp16sim[oracles-keras]'")
    if module.backend.backend() != "torch":
        pytest.skip(f"keras runs on {module.backend.backend()}; set KERAS_BACKEND=torch")
    return module


# Of numpy, about the tensors of torch that Keras passes to it.
@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
@pytest.mark.slow
@pytest.mark.parametrize("scale", SCALES)
def test_keras3(keras: Any, scale: float) -> None:
    compare(
        "keras3",
        lambda options: keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(0.5), **options),
        {"initial_scale": scale, "dynamic_growth_steps": 2},
    )


# DeepSpeed --------------------------------------------------------------------------------------------------------


@pytest.fixture
def deepspeed(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("DS_BUILD_OPS", "0")
    module = installed("deepspeed.runtime.fp16.loss_scaler", "--no-build-isolation deepspeed")
    monkeypatch.setattr(module.dist, "get_rank", lambda: 1)  # whose scaler writes no messages
    return module.DynamicLossScaler


DEEPSPEED: list[Options] = [
    {"initial_scale_power": 4},
    {"initial_scale_power": -1, "hysteresis": 1},
    {"initial_scale_power": 2, "hysteresis": 0},
    {"initial_scale_power": 16, "consecutive_hysteresis": True},
    {"initial_scale_power": -128},
    {"initial_scale_power": 5, "min_loss_scale": 3},
]


@pytest.mark.slow
@pytest.mark.parametrize("options", DEEPSPEED, ids=str)
def test_deepspeed(deepspeed: Any, options: Options) -> None:
    compare(
        "deepspeed",
        lambda options: deepspeed(
            init_scale=2 ** options["initial_scale_power"],
            scale_window=options["loss_scale_window"],
            min_scale=options.get("min_loss_scale", 1),
            delayed_shift=options.get("hysteresis", 2),
            consecutive_hysteresis=options.get("consecutive_hysteresis", False),
        ),
        {**options, "loss_scale_window": 2},
    )


# JAX --------------------------------------------------------------------------------------------------------------


@pytest.fixture
def jmp() -> Any:
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    return installed("jmp", "'fp16sim[oracles-jax]'")


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        *({"loss_scale": scale, "period": 2} for scale in SCALES if scale > TINY),
        {"loss_scale": 1024.0, "period": 3, "min_loss_scale": 512.0},
    ],
    ids=str,
)
def test_jmp(jmp: Any, options: Options) -> None:
    found = compare(
        "jmp",
        lambda options: jmp.DynamicLossScale(
            **{key: value if key == "period" else np.float32(value) for key, value in options.items()}
        ),
        options,
    )
    # Its pytree, and with it a checkpoint, lacks the minimum.
    assert ("checkpoint_round_trip" in failed(found)) is (options.get("min_loss_scale") == 512.0)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [2.0**-100, 0.25, 3.0, LARGE, 65536.0, np.inf])
def test_flax(scale: float) -> None:
    # Below 2^-126 XLA takes the scale itself as zero, and no step is finite: there is no letter for that.
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    module = installed("flax.training.dynamic_scale", "'fp16sim[oracles-jax]'")
    compare("flax", lambda options: module.DynamicScale(**options), {"scale": scale, "growth_interval": 2})


# The comparison itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "check"),
    [
        ({"growth_interval": 4}, "exact_window"),
        ({"init_scale": 2.0**-100}, "scale_stays_above_zero"),
    ],
    ids=["window", "initial scale"],
)
def test_a_wrong_model_is_noticed(torch: Any, fault: Options, check: str) -> None:
    options = {"init_scale": 65536.0, "growth_interval": 3}
    traits = claims("torch", options)
    theirs = case_of(lambda: torch.amp.GradScaler("cpu", **options), traits)
    wrong = case_of(lambda: scaling.make("torch", **{**options, **fault}), traits)
    verdict, wrongly = (examined(dict(scaler_checks())[check], case) for case in (theirs, wrong))
    assert (verdict.status, verdict.history) != (wrongly.status, wrongly.history)
