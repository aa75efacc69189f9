from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fp16sim_lookalikes import FEW, TorchLike, of_model, verdicts

from fp16sim.testing import adapt
from fp16sim.testing.adapters.torch_like import TorchDriver
from fp16sim.testing.driver import Driver, Refusal, Told


def started(gradient: float = 3.0, **options: Any) -> Driver:
    driver = adapt(TorchLike(init_scale=8.0, **options))
    driver.backward({"all": np.array([gradient])})
    return driver


OPTIONS = {"init_scale": 2.0**-128, "growth_interval": 3}


def test_it_has_the_verdicts_of_the_model() -> None:
    assert verdicts(lambda: TorchLike(**OPTIONS), 3, FEW) == of_model("torch", 3, FEW, **OPTIONS)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [2.0**-149, 2.0**-128, 0.25, 65536.0])
def test_it_has_all_verdicts_of_the_model(scale: float) -> None:
    options = {**OPTIONS, "init_scale": scale}
    assert verdicts(lambda: TorchLike(**options), 3) == of_model("torch", 3, **options)


def test_a_whole_step() -> None:
    driver = started(growth_interval=1)
    assert isinstance(driver, TorchDriver)
    assert (driver.scale("all"), driver.factor("all")) == (8.0, 8.0)
    assert driver.gradient("all").tolist() == [24.0]
    assert driver.step("all").tolist() == [3.0]
    assert (driver.update(), driver.scale("all"), driver.counted) == (None, 16.0, 1)


def test_gradients_are_added_and_forgotten() -> None:
    driver = started()
    driver.backward({"all": np.array([1.0])}, "float16")
    gradient = driver.gradient("all")
    assert (gradient.dtype, gradient.tolist()) == (np.float32, [32.0])
    driver.zero_grad()
    assert driver.gradient("all") is None


def test_a_gradient_can_be_unscaled_clipped_and_replaced() -> None:
    driver = started()
    driver.clip("all", 1.5)
    assert driver.gradient("all").tolist() == [1.5]
    driver.clip("all", 1.0)
    driver.put("all", np.array([0.5]))
    assert driver.step("all").tolist() == [0.5]


@pytest.mark.parametrize(
    "calls", [("unscale", "unscale"), ("step", "step"), ("step", "unscale"), ("update",)]
)
def test_calls_out_of_order_are_refused(calls: tuple[str, ...]) -> None:
    driver = started()
    *before, last = [
        (lambda name=name: getattr(driver, name)(*(["all"] if name != "update" else []))) for name in calls
    ]
    for call in before:
        call()
    with pytest.raises(Refusal, match=r"already|No inf checks"):
        last()


def test_a_step_without_gradients_is_refused() -> None:
    with pytest.raises(Refusal, match="No inf checks"):
        adapt(TorchLike()).step("all")


def test_each_optimizer_has_its_own_gradients() -> None:
    driver = adapt(TorchLike(init_scale=8.0), ("a", "b"))
    driver.backward({"a": np.array([1.0]), "b": np.array([np.inf])})
    assert driver.step("a").tolist() == [1.0]
    assert driver.step("b") is None
    assert (driver.update(), driver.scale("a"), driver.counted) == (None, 4.0, 1)


def test_steps_of_one_kind() -> None:
    driver = adapt(TorchLike(init_scale=8.0, growth_interval=2))
    assert [driver.tell(letter).applied for letter in ".on.."] == [True, False, False, True, True]
    assert (driver.scale("all"), driver.counted) == (4.0, 3)


def test_its_state_is_saved_and_counting_goes_on() -> None:
    driver = adapt(TorchLike(init_scale=8.0, growth_interval=2))
    driver.tell(".")
    restored = driver.restored("state_dict", driver.saved()["state_dict"], TorchLike(growth_interval=2))
    assert restored.tell(".").applied
    assert (restored.scale("all"), restored.counted) == (16.0, 2)


class Stopping(TorchLike):
    """Raises an error on an overflow, in step or in update."""

    def __init__(self, error: Exception, where: str) -> None:
        super().__init__()
        self.error, self.where = error, where

    def step(self, optimizer: Any) -> None:
        super().step(optimizer)
        if self.where == "step" and any(self._states[id(optimizer)]["found_inf"]):
            raise self.error

    def update(self) -> None:
        before = self._scale
        super().update()
        if self.where == "update" and self._scale < before:
            raise self.error


@pytest.mark.parametrize("where", ["step", "update"])
@pytest.mark.parametrize("told", [False, True])
def test_an_error_on_an_overflow_is_a_stop(where: str, told: bool) -> None:
    driver = adapt(Stopping(RuntimeError("no scale\n is left"), where))
    if told:
        assert driver.tell("o") == Told(False, "no scale is left")
    else:
        driver.backward({"all": np.array([np.inf])})
        assert driver.step("all") is None
        assert driver.update() == "no scale is left"


@pytest.mark.parametrize("crash", [ZeroDivisionError, TypeError, KeyError, AttributeError, OverflowError])
def test_a_crash_is_none(crash: type[Exception]) -> None:
    driver = adapt(Stopping(crash("of the scaler"), "update"))
    with pytest.raises(crash, match="of the scaler"):
        driver.tell("o")


class Minimal:
    """Without unscale_, get_scale and a state."""

    factor = 8.0

    def scale(self, loss: Any) -> Any:
        return loss * self.factor

    def step(self, optimizer: Any) -> None:
        (parameter,) = optimizer.param_groups[0]["params"]
        parameter.grad = parameter.grad / np.float32(self.factor)
        optimizer.step()

    def update(self) -> None:
        self.factor *= 2


def test_what_is_missing_is_not_needed() -> None:
    driver = adapt(Minimal())
    assert (driver.scale("all"), driver.saved()) == (8.0, {})
    driver.backward({"all": np.array([3.0])})
    with pytest.raises(Refusal, match="a Minimal has no unscale_"):
        driver.unscale("all")
    assert driver.step("all").tolist() == [3.0]
    assert (driver.update(), driver.scale("all")) == (None, 16.0)


def test_a_wrong_look_alike_is_noticed() -> None:
    class Slow(TorchLike):
        def __init__(self) -> None:
            super().__init__(growth_interval=4)

    right = of_model("torch", 3, ["exact_window"], growth_interval=3)
    assert verdicts(Slow, 3, ["exact_window"]) != right
