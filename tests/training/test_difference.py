"""Where two saved runs part: every field and every bit is looked at."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fp16sim.training.difference import difference
from fp16sim.training.results import Step
from fp16sim.training.saving import SavedRun

STEPS = tuple(Step(i, 1.0 / i, 8.0, True, False, math.nan, 0.25, 0.75) for i in (1, 2, 3))
RUN = SavedRun(
    {}, 3, 3, 3, "", "{}", "ab", {"w": np.float32([[1, 2], [math.nan, 0]]), "calls": np.array(3)}, {}, STEPS
)


def changed(number, **values):
    history = list(STEPS)
    history[number - 1] = replace(history[number - 1], **values)
    return replace(RUN, history=tuple(history))


def test_the_same_run_is_the_same():
    assert difference(RUN, RUN) is None
    assert (
        difference(RUN, replace(RUN, model={name: array.copy() for name, array in RUN.model.items()})) is None
    )
    assert difference(RUN, replace(RUN, settings={"policy name": "other"}, digest="cd")) is None


def test_every_nan_is_one_value():
    bits = RUN.model["w"].view(np.uint32).copy()
    bits[1, 0] ^= 0x80000001
    assert difference(RUN, replace(RUN, model=RUN.model | {"w": bits.view(np.float32)})) is None
    assert difference(RUN, changed(2, zero=math.copysign(math.nan, -1))) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("loss", 0.25), ("loss", math.nan), ("scale", 4.0), ("applied", False), ("overflow", True),
        ("zero", 0.0), ("flushed", 0.5), ("survive", 0.5), ("loss", float(np.nextafter(0.5, 1))),
    ],
)  # fmt: skip
def test_the_first_step_that_differs_and_how(field, value):
    found = difference(RUN, changed(2, **{field: value}))
    assert found.step == 2
    assert list(found.values) == [field]
    assert found.values[field][0] == getattr(STEPS[1], field) or field == "zero"
    assert str(found).startswith(f"first difference at step 2: {field} ")


def test_signed_zeros_differ():
    assert difference(changed(1, loss=0.0), changed(1, loss=-0.0)).step == 1


def test_what_it_says():
    found = difference(RUN, changed(2, loss=0.25, applied=False))
    assert str(found) == "first difference at step 2: loss 0.5 and 0.25, applied yes and no"
    short = replace(RUN, history=STEPS[:1])
    assert str(difference(RUN, short)) == "the same for 1 steps, but one has 3 steps and the other 1"
    assert difference(short, RUN).values == {"steps": (1, 3)}


@pytest.mark.parametrize(
    ("model", "count"),
    [
        ({"w": np.float32([[1, 2], [math.nan, -0.0]])}, (1, 4)),
        ({"w": np.float32([[1, 2], [0, 5e-39]])}, (2, 4)),
        ({"w": np.float64([[1, 2], [math.nan, 0]])}, (4, 4)),
        ({"w": np.float32([1, 2, math.nan, 0])}, (4, 4)),
        ({"calls": np.array(4)}, (1, 1)),
    ],
)
def test_the_state_of_the_model_is_compared_bit_for_bit(model, count):
    found = difference(RUN, replace(RUN, model=RUN.model | model))
    (name,) = model
    assert (found.step, dict(found.values)) == (None, {name: count})
    assert str(found) == f"every step is the same, but {name} differs in {count[0]} of {count[1]} elements"


def test_arrays_that_only_one_model_has():
    found = difference(RUN, replace(RUN, model={"v": np.zeros(0, np.float32)}))
    assert set(found.values) == {"w", "calls", "v"}
    assert str(found).endswith("and 2 other arrays differ")
