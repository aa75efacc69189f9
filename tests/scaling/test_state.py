"""A scaler moves without its fields being looked at again: what it makes of them is what a look would."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.scaling import Observation
from fp16sim.scaling.state import SavedScaler

LETTERS = {
    ".": Observation(amax=2.0**-10),
    "o": Observation(overflow=True, amax=float("inf")),
}
HISTORIES = (
    "." * 12 + "o" * 5 + "." * 9 + "o.o..oo...ooo",
    "o" * 160 + "." * 8,
    "ooo" + "." * 300,
)


def settings():
    """Every scaler with a short window, and those that take it with a factor that is no power of two."""
    for name in scaling.names():
        kind = type(scaling.make(name))
        window = {kind.window: 2} if kind.window else {}
        yield name, window
        if kind.growth and name != "oneflow":
            yield name, {**window, kind.growth: 3 if name == "mindspore_amp" else np.float64(3.3)}


def bits(scaler):
    """Every field with its type; NaN equals itself."""
    return {name: (type(value), repr(value)) for name, value in vars(scaler).items()}


@pytest.mark.parametrize(("name", "options"), list(settings()), ids=str)
def test_what_an_update_makes_is_what_making_it_anew_would(name, options):
    for history in HISTORIES:
        scaler = type(scaling.make(name))(**options)  # make would take the numbers of NumPy as Python's
        for letter in history:
            scaler, decision = scaler.update(LETTERS[letter])
            assert bits(replace(scaler)) == bits(scaler)
            if decision.stop:
                break


def test_a_moved_scaler_is_another_one_and_keeps_its_options():
    before = scaling.make("torch", init_scale=8.0, growth_interval=5)
    after = before.moved(growth_tracker=3)
    assert type(after) is scaling.TorchScaler
    assert after == replace(before, growth_tracker=3)
    assert before.growth_tracker == 0
    assert hash(after) == hash(replace(after))


@dataclass(frozen=True)
class Floored(scaling.TorchScaler):
    """A user's own floor, in the one place that every new scaler passes."""

    def __post_init__(self):
        super().__post_init__()
        object.__setattr__(self, "scale", max(self.scale, 1.0))


def test_a_subclass_of_somebody_else_is_made_anew():
    assert issubclass(Floored, SavedScaler)
    scaler = Floored(init_scale=2.0)
    for expected in (1.0, 1.0):
        scaler, _ = scaler.update(LETTERS["o"])
        assert (type(scaler), scaler.scale) == (Floored, expected)
