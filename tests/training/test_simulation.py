"""A network trained under each scaler: its history is what `simulate` makes of the recorded gradient peaks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from fp16sim import optim, scaling
from fp16sim.scaling import simulate
from fp16sim.training.fit import fit
from fp16sim.training.models import mlp

OTHERS = {"adaptive", "delayed", "fairscale_layerwise", "openseq2seq_logmax", "unit", "none", "static"}
NAMES = [name for name in scaling.names() if name not in OTHERS]
STEPS = 60


def made(name: str):
    """Make a scaler that grows after three finite steps; metaseq's initial scale is too low to overflow here."""
    option = scaling.make(name).window
    more = {"init_scale": 2.0**16} if name == "metaseq" else {}
    return scaling.make(name, **({option: 3} if option else {}), **more)


@dataclass(frozen=True)
class Recorded:
    """Passes everything on to a scaler and notes what it observed."""

    inner: Any
    peaks: list[float]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def scale(self) -> float:
        return self.inner.scale

    def update(self, observation):
        self.peaks.append(observation.amax)
        following, decision = self.inner.update(observation)
        return Recorded(following, self.peaks), decision


def trained(name: str):
    """Train on one batch, again and again; give the history and the peaks."""
    scaler = Recorded(made(name), [])
    model = mlp(inputs=6, hidden=8, layers=1, outputs=3, seed=2)
    rng = np.random.default_rng(5)
    batch = (rng.normal(size=(64, 6)).astype(np.float32), np.arange(64) % 3)
    optimizer = optim.SGD(model.parameters(), lr=2.0**-8)
    run = fit(
        model, [batch], policy="mixed_float16", scaler=scaler, optimizer=optimizer, steps=STEPS, measure=False,
        loss_factor=64.0,
    )  # fmt: skip
    return run.history, np.array(scaler.peaks)


def overflowing_peaks(peaks):
    """Put the peak of the next finite step where a step overflowed.

    There is one batch, and a skipped step leaves the weights alone, so the gradients of an overflowing step are those
    of the next one that is applied; where the run ends before, any peak that overflows will do.
    """
    filled = peaks.copy()
    for step in range(len(peaks) - 2, -1, -1):
        if np.isinf(filled[step]):
            filled[step] = filled[step + 1]
    return filled


@pytest.mark.parametrize("name", NAMES)
def test_a_history_is_what_simulate_makes_of_its_peaks(name):
    history, peaks = trained(name)
    overflow = [step.overflow for step in history]
    assert 0 < sum(overflow) < STEPS
    for recorded in (peaks, overflowing_peaks(peaks)):
        found = simulate(made(name), recorded, units="linear", trace=True)
        assert found.trace.scale[0].tolist() == [step.scale for step in history]
        assert found.trace.applied[0].tolist() == [step.applied for step in history]
        assert found.trace.overflow[0].tolist() == overflow
        assert found.first_stop.tolist() == [-1]


def test_another_peak_gives_another_history():
    history, peaks = trained("torch")
    found = simulate("torch,growth_interval=3", 2 * overflowing_peaks(peaks), units="linear", trace=True)
    assert found.trace.scale[0].tolist() != [step.scale for step in history]
