"""A trace is what `simulate` gives with the objects, and says what a scale does to what is unscaled by it."""

import math

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.scaling import Decision, simulate, unscale
from fp16sim.testing.tracing import Traced, _harm, form_of, traced

OTHERS = {"adaptive", "delayed", "fairscale_layerwise", "openseq2seq_logmax", "unit"}
NAMES = [name for name in scaling.names() if name not in OTHERS]
VARIANTS = ["deepspeed,hysteresis=1", "torch,init_scale=2**-140", "robust,min_scale=1,floor_patience=3"]


@pytest.mark.parametrize("text", NAMES + VARIANTS)
@pytest.mark.parametrize("history", ["oo...o.n.." * 4, "o" * 170 + "...", ""])
def test_a_trace_is_the_simulation(text: str, history: str) -> None:
    found = traced(lambda: scaling.parse(text), history)
    expected = simulate(text, history, trace=True, method="objects")
    steps = int(expected.steps[0])
    assert expected.trace is not None
    assert np.array_equal(found.scale, expected.trace.scale[0, :steps], equal_nan=True)
    assert np.array_equal(found.divide_by, expected.trace.divide_by[0, :steps], equal_nan=True)
    assert list(found.applied) == expected.trace.applied[0, :steps].tolist()
    assert (found.final, found.stop, found.error) == (expected.final_scale[0], expected.stop_reasons[0], None)
    assert found.after() == [
        *expected.trace.scale[0, 1:steps].tolist(),
        *[expected.final_scale[0]] * (steps > 0),
    ]


SCALES = [
    0.0, -0.0, 2.0**-1074, 2.0**-150, 1.5 * 2.0**-150, 2.0**-149, 2.0**-128, 1.5 * 2.0**-128, 2.0**-127, 1.0, 3.0,
    2.0**127, 2.0**128 - 2.0**103, 2.0**128, 2.0**1023, math.inf, math.nan,
]  # fmt: skip


@pytest.mark.parametrize("method", ["reciprocal", "divide"])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("divide_by", [None, 0.0, 1.0, 2.0**-128, 2.0**140, math.nan])
def test_a_scale_harms_if_and_only_if_unscale_gives_what_is_not_finite(scale, divide_by, method) -> None:
    divide_by = scale if divide_by is None else divide_by
    with np.errstate(over="ignore"):
        gradient = np.float32([scale])
    given = unscale(gradient, Decision(True, divide_by, method=method))
    assert (_harm(scale, divide_by, method) is None) == bool(np.isfinite(given[0]))


@pytest.mark.parametrize(
    ("scale", "divide_by", "method", "why"),
    [
        (0.0, 0.0, "reciprocal", ""),
        (math.inf, math.inf, "reciprocal", ""),
        (math.nan, math.nan, "divide", ""),
        (2.0**-150, 2.0**-150, "reciprocal", "zero in float32"),
        (2.0**128, 2.0**128, "reciprocal", "infinite in float32"),
        (2.0**-128, 2.0**-128, "reciprocal", "its reciprocal infinite in float32"),
        (2.0**-128, 2.0**-128, "divide", None),
        (2.0, 0.0, "reciprocal", "divided by 0"),
    ],
)
def test_what_is_said_of_a_scale(scale, divide_by, method, why) -> None:
    assert _harm(scale, divide_by, method) == why


class Gives:
    """A scaler that does what it is told on the step of that number."""

    def __init__(self, at: int, does, steps: int = 0) -> None:
        self.at, self.does, self.steps, self.scale = at, does, steps, 8.0

    def update(self, observation):
        following = Gives(self.at, self.does, self.steps + 1)
        return self.does(following) if following.steps == self.at else (following, Decision(True, 8.0))


def raises(error: BaseException):
    def do(following):
        raise error

    return do


def hides_its_scale(following):
    following.scale = "big"
    return following, Decision(True, 8.0)


def hangs(following):
    while True:
        pass


@pytest.mark.parametrize(
    ("does", "error"),
    [
        (
            lambda following: None,
            "TypeError: Gives.update gave None: a scaler gives the next one and a decision; ",
        ),
        (raises(ValueError("no")), "ValueError: no ("),
        (raises(SystemExit(0)), "TypeError: Gives.update raised SystemExit(0): the process is not"),
        (raises(GeneratorExit()), "TypeError: Gives.update raised GeneratorExit(): the process is not"),
        (hides_its_scale, "TypeError: the scale of Gives is 'big': a scale is a number above 0"),
        (hangs, "Gives.update does not return"),
    ],
)
def test_a_scaler_that_fails_is_traced_up_to_there(does, error: str) -> None:
    found = traced(lambda: Gives(3, does), "......")
    assert isinstance(found, Traced)
    assert found.error is not None
    assert found.error.startswith(error)
    assert (found.start, found.after(), found.final) == (8.0, [8.0, 8.0], 8.0)


def test_ctrl_c_is_nobodys_fault() -> None:
    with pytest.raises(KeyboardInterrupt):
        traced(lambda: Gives(3, raises(KeyboardInterrupt())), "......")


def test_what_cannot_be_made_or_read_has_no_start() -> None:
    def make():
        raise SystemExit(3)

    found = traced(make, "..")
    assert (found.start, found.after(), found.stop) == (None, [], None)
    assert found.error is not None
    assert found.error.startswith("SystemExit: 3 (")


class ScaleRaises:
    @property
    def scale(self):
        raise SystemExit(0)

    def update(self, observation):
        return self, Decision(True, 8.0)


class TorchLike:
    def scale(self, loss):
        return loss

    def update(self):
        return None


@pytest.mark.parametrize(
    ("scaler", "form"),
    [
        (scaling.make("robust"), "one scale"),
        (ScaleRaises(), "one scale"),
        *((scaling.make(name), "scales") for name in ("adaptive", "delayed", "fairscale_layerwise", "unit")),
        (TorchLike(), "another"),
        (3, "another"),
    ],
)
def test_the_form_of_a_scaler(scaler, form: str) -> None:
    assert form_of(lambda: scaler, scaler) == form
