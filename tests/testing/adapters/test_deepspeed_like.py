from __future__ import annotations

import numpy as np
import pytest
from fp16sim_lookalikes import FEW, DeepSpeedLike, of_model, verdicts

from fp16sim.testing import adapt
from fp16sim.testing.adapters.deepspeed_like import DeepSpeedDriver
from fp16sim.testing.driver import Refusal, Told


def test_it_has_the_verdicts_of_the_model() -> None:
    checks = [*FEW, "unscales_by_the_scale_that_scaled"]
    found = verdicts(lambda: DeepSpeedLike(16, 3, 2), 3, checks)
    assert found == of_model("deepspeed", 3, checks, initial_scale_power=4, loss_scale_window=3)


@pytest.mark.slow
@pytest.mark.parametrize(("power", "hysteresis"), [(4, 2), (-1, 1), (-128, 2)])
def test_it_has_all_verdicts_of_the_model(power: int, hysteresis: int) -> None:
    assert verdicts(lambda: DeepSpeedLike(2.0**power, 3, hysteresis), 3) == of_model(
        "deepspeed", 3, initial_scale_power=power, loss_scale_window=3, hysteresis=hysteresis
    )


def test_the_scale_is_updated_before_it_divides() -> None:
    driver = adapt(DeepSpeedLike(4, 1))
    assert isinstance(driver, DeepSpeedDriver)
    applied = []
    for _ in range(2):
        driver.backward({"all": np.array([3.0])})
        applied += driver.step("all").tolist()
        driver.update()
    assert (applied, driver.scale("all")) == ([3.0, 1.5], 8.0)


def test_the_norm_has_to_fit() -> None:
    driver = adapt(DeepSpeedLike(1.0, 1, 1), ("a", "b"))
    driver.backward({"a": np.array([2e19]), "b": np.array([1.0])})
    assert driver.step("b") is None
    assert driver.update() == "Current loss scale already at minimum"
    assert driver.counted == 0


def test_calls_out_of_order_are_refused() -> None:
    driver = adapt(DeepSpeedLike())
    driver.backward({"all": np.array([3.0])})
    driver.unscale("all")
    with pytest.raises(Refusal, match="unscaled already"):
        driver.unscale("all")
    with pytest.raises(Refusal, match="looked at already"):
        driver.backward({"all": np.array([3.0])})
    assert driver.step("all").tolist() == [3.0]
    with pytest.raises(Refusal, match="stepped already"):
        driver.step("all")
    assert driver.update() is None
    with pytest.raises(Refusal, match="nothing to update by"):
        driver.update()


def test_steps_of_one_kind() -> None:
    driver = adapt(DeepSpeedLike(1, 1, 1))
    assert driver.tell("o") == Told(False, "Current loss scale already at minimum")
    assert driver.tell(".") == Told(True)


def test_loss_scale_alone_will_do() -> None:
    class Other:
        loss_scale = 2.0**130

        def update_scale(self, overflow: bool) -> None:
            self.loss_scale *= 0.5

    driver = adapt(Other())
    assert (driver.scale("all"), driver.factor("all")) == (2.0**130, np.inf)
    driver.tell("o")
    assert driver.scale("all") == 2.0**129


def test_the_object_is_saved_whole() -> None:
    driver = adapt(DeepSpeedLike(4, 2))
    driver.tell("o")
    ((way, state),) = driver.saved().items()
    restored = driver.restored(way, state, DeepSpeedLike())
    driver.tell("o")
    assert (driver.scale("all"), restored.scale("all")) == (2.0, 4.0)
    restored.tell("o")
    assert restored.scale("all") == 2.0
