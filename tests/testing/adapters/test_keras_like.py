from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fp16sim_lookalikes import FEW, KerasLike, of_model, verdicts

from fp16sim.testing import adapt
from fp16sim.testing.adapters.keras_like import KerasDriver
from fp16sim.testing.driver import Refusal, Told

OPTIONS = {"initial_scale": 2.0**-128, "dynamic_growth_steps": 3}


def test_it_has_the_verdicts_of_the_model() -> None:
    assert verdicts(lambda: KerasLike(**OPTIONS), 3, FEW) == of_model("keras3", 3, FEW, **OPTIONS)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [2.0**-149, 0.25, 65536.0])
def test_it_has_all_verdicts_of_the_model(scale: float) -> None:
    options = {**OPTIONS, "initial_scale": scale}
    assert verdicts(lambda: KerasLike(**options), 3) == of_model("keras3", 3, **options)


def test_a_whole_step() -> None:
    driver = adapt(KerasLike(8.0, 1), ("a", "b"))
    assert isinstance(driver, KerasDriver)
    driver.backward({"a": np.array([3.0, 5.0])})
    assert driver.gradient("a").tolist() == [24.0, 40.0]
    assert driver.step("a").tolist() == [3.0, 5.0]
    assert driver.step("b") is None
    assert (driver.update(), driver.scale("a"), driver.counted) == (None, 16.0, 1)


def test_nothing_is_unscaled_by_hand() -> None:
    driver = adapt(KerasLike())
    driver.backward({"all": np.array([3.0])})
    for call in (lambda: driver.unscale("all"), lambda: driver.clip("all", 1.0)):
        with pytest.raises(Refusal, match="unscales inside of apply"):
            call()
    with pytest.raises(Refusal, match="nothing to update by"):
        driver.update()


def test_a_step_without_gradients_is_refused() -> None:
    driver = adapt(KerasLike())
    with pytest.raises(Refusal, match="No gradients provided"):
        driver.step("all")
    driver.backward({"all": np.array([3.0])})
    assert driver.step("all").tolist() == [3.0]


def test_one_that_is_built_is_refused() -> None:
    scaler = KerasLike()
    adapt(scaler)
    with pytest.raises(TypeError, match="is built for variables of its own: pass a factory"):
        adapt(scaler)


class Counting(KerasLike):
    """Its iterations move on a skip too, as in Keras 2."""

    iterations = 0

    def apply(self, gradients: Any, variables: Any = None) -> None:
        finite = all(np.isfinite(gradient).all() for gradient in gradients)
        super().apply(gradients, variables)
        self.iterations += not finite


def test_what_moves_on_a_skip_is_counted() -> None:
    driver = adapt(Counting())
    assert [driver.tell(letter) for letter in ".o"] == [Told(True), Told(False)]
    assert driver.counted == 2
    assert verdicts(Counting, 3, ["skip_changes_nothing"]) == {"skip_changes_nothing": ("failed", "o")}
