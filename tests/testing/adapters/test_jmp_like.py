from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from fp16sim_lookalikes import CHECKS, FEW, JmpLike, of_model, verdicts

from fp16sim.testing import adapt
from fp16sim.testing.adapters.jmp_like import JmpDriver
from fp16sim.testing.driver import Told


def compare(scale: float, minimum: float, checks: Iterable[str] = CHECKS) -> None:
    floats = {"loss_scale": np.float32(scale), "min_loss_scale": np.float32(minimum)}
    assert verdicts(lambda: JmpLike(period=3, **floats), 3, checks) == of_model(
        "jmp", 3, checks, loss_scale=scale, period=3, min_loss_scale=minimum
    )


def test_it_has_the_verdicts_of_the_model() -> None:
    compare(1024.0, 512.0, FEW)


@pytest.mark.slow
@pytest.mark.parametrize(("scale", "minimum"), [(0.25, 1.0), (65536.0, 1.0), (1024.0, 512.0)])
def test_it_has_all_verdicts_of_the_model(scale: float, minimum: float) -> None:
    compare(scale, minimum)


def test_a_whole_step() -> None:
    driver = adapt(JmpLike(np.float32(8), period=1), ("a", "b"))
    assert isinstance(driver, JmpDriver)
    driver.backward({"a": np.array([3.0]), "b": np.array([1.0])})
    driver.unscale("a")
    assert (driver.gradient("a").tolist(), driver.gradient("b").tolist()) == ([3.0], [8.0])
    assert (driver.step("a").tolist(), driver.step("b").tolist()) == ([3.0], [1.0])
    assert driver.scale("a") == 8.0  # adjust gave the next one, which begins with the next step
    assert (driver.update(), driver.scale("a"), driver.counted) == (None, 16.0, 1)


def test_what_is_no_leaf_is_lost() -> None:
    driver = adapt(JmpLike(np.float32(1024), period=7, min_loss_scale=np.float32(512)))
    restored = driver.restored("pytree leaves", driver.saved()["pytree leaves"], JmpLike(period=7))
    for letter in "oo":
        driver.tell(letter)
        restored.tell(letter)
    assert (driver.scale("all"), restored.scale("all")) == (512.0, 256.0)


def test_a_fresh_scaler_keeps_its_own_options_on_loading() -> None:
    saved = adapt(JmpLike(np.float32(8), period=7)).saved()["pytree leaves"]
    restored = adapt(JmpLike()).restored("pytree leaves", saved, JmpLike(period=1))
    restored.tell(".")
    assert restored.scale("all") == 16.0


class Mutable:
    """No value: `adjust` changes it."""

    def __init__(self) -> None:
        self.loss_scale, self.calls = 8.0, 0

    def scale(self, loss: Any) -> Any:
        return loss * np.float32(self.loss_scale)

    def unscale(self, tree: Any) -> Any:
        return {name: gradient / np.float32(self.loss_scale) for name, gradient in tree.items()}

    def adjust(self, finite: Any) -> Mutable:
        self.calls += 1
        if not finite and self.loss_scale == 2:
            raise RuntimeError("it is low")
        self.loss_scale /= 1 if finite else 2
        return self


def test_one_that_changes_itself_is_driven_too() -> None:
    scaler = Mutable()
    driver = adapt(scaler)
    told = [driver.tell(letter) for letter in "..noo"]
    assert told == [Told(True), Told(True), Told(False), Told(False), Told(False, "it is low")]
    assert (scaler.calls, driver.scale("all"), driver.saved()) == (5, 2.0, {})
