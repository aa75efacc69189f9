from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import pytest
from fp16sim_lookalikes import DeepSpeedLike, FlaxLike, JmpLike, KerasLike, TorchLike

from fp16sim import scaling
from fp16sim.testing import adapt


@pytest.mark.parametrize(
    ("scaler", "driver"),
    [
        (scaling.make("torch"), "ValueDriver"),
        (TorchLike(), "TorchDriver"),
        (KerasLike(), "KerasDriver"),
        (DeepSpeedLike(), "DeepSpeedDriver"),
        (JmpLike(), "JmpDriver"),
        (FlaxLike(), "FlaxDriver"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_driver_is_chosen_by_what_an_object_looks_like(scaler: Any, driver: str) -> None:
    found = adapt(scaler, ("a", "b"))
    assert (type(found).__name__, found.groups) == (driver, ("a", "b"))
    assert adapt(found) is found


@pytest.mark.parametrize(
    ("scaler", "message"),
    [
        (3.0, "a float is no scaler: it needs `scale` and `update"),
        (TorchLike, "TorchLike is a class: pass a factory"),
        (scaling.make("adaptive"), "an AdaptiveScaler chooses a scale for each tensor"),
        (scaling.make("unit"), "chooses a scale for each tensor"),
    ],
    ids=["number", "class", "adaptive", "unit"],
)
def test_what_is_no_scaler_is_refused(scaler: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        adapt(scaler)


@pytest.mark.parametrize(
    ("members", "says"),
    [
        ({"update": print}, "it looks like this package's, with `update`, and lacks `scale`, a number"),
        ({"scale": 8.0}, "it looks like this package's, with `scale`, and lacks `update`"),
        ({"scale": print, "update": print}, "it looks like torch's, with `scale` and `update`, and lacks `step`"),
        ({"scale": print, "unscale": print}, "it looks like jmp's, with `scale` and `unscale`, and lacks `adjust`"),
        ({"cur_scale": 8.0}, "it looks like DeepSpeed's, with `cur_scale`, and lacks `update_scale`"),
        ({"scale": print, "value_and_grad": 3}, "it looks like flax's, and not all of `scale` and"),
    ],
)  # fmt: skip
def test_what_is_nearly_one_is_told_what_it_lacks(members: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=re.escape(f"a Nearly is no scaler: {says}")):
        adapt(type("Nearly", (), members)())


def test_nothing_is_no_scaler() -> None:
    with pytest.raises(TypeError, match="None is no scaler: is a `return` missing"):
        adapt(None)


def test_a_disabled_scaler_is_refused() -> None:
    class Disabled(TorchLike):
        def is_enabled(self) -> bool:
            return False

    with pytest.raises(TypeError, match="this Disabled is disabled"):
        adapt(Disabled())


def test_no_framework_is_imported() -> None:
    code = (
        "import sys, fp16sim.testing.adapters\n"
        "print(sorted({'torch', 'jax', 'flax', 'jmp', 'keras', 'deepspeed'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
