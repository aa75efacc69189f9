from __future__ import annotations

import numpy as np
import pytest
from fp16sim_lookalikes import CHECKS, FlaxLike, of_model, verdicts

from fp16sim.testing import adapt
from fp16sim.testing.adapters.flax_like import FlaxDriver
from fp16sim.testing.driver import Told

UNSAVED = [name for name in CHECKS if name != "checkpoint_round_trip"]  # which flax.serialization does


def test_it_has_the_verdicts_of_the_model() -> None:
    checks = ["exact_window", "groups_agree"]
    found = verdicts(lambda: FlaxLike(np.float32(2.0**-120), 3), 3, checks)
    assert found == of_model("flax", 3, checks, scale=2.0**-120, growth_interval=3)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [2.0**-100, 0.25, 65536.0, 2.0**127])
def test_it_has_all_verdicts_of_the_model(scale: float) -> None:
    assert verdicts(lambda: FlaxLike(np.float32(scale), 3), 3, UNSAVED) == of_model(
        "flax", 3, UNSAVED, scale=scale, growth_interval=3
    )


def test_a_whole_step() -> None:
    driver = adapt(FlaxLike(np.float32(8), 0), ("a", "b"))
    assert isinstance(driver, FlaxDriver)
    driver.backward({"a": np.array([3.0, 1.0]), "b": np.array([1.0])}, "float16")
    assert driver.step("a").tolist() == [3.0, 1.0]
    assert driver.step("b").dtype == np.float32
    assert (driver.update(), driver.scale("a"), driver.counted) == (None, 16.0, 1)


def test_steps_of_one_kind() -> None:
    driver = adapt(FlaxLike(np.float32(8), 1))
    assert [driver.tell(letter) for letter in "on.."] == [Told(False)] * 2 + [Told(True)] * 2
    assert (driver.scale("all"), driver.counted, driver.saved()) == (4.0, 2, {})
