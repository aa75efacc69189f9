"""Gradient peaks that are drawn: the same numbers whatever the blocks, distributed as the docstring says."""

import hashlib
import math

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.nn.random import normals
from fp16sim.scaling import PeakModel, simulate
from fp16sim.scaling.histories import CHUNK

RICH = PeakModel(
    start=-3.0, drift=1e-3, walk=0.05, jitter=0.5, tail_index=2.0, burst_rate=0.002, burst_length=40, burst_height=9.0,
    nan_rate=0.001, seed=7,
)  # fmt: skip


def test_the_numbers_do_not_depend_on_blocks_steps_or_other_histories():
    peaks = RICH.peaks(3, 2 * CHUNK + 100)
    for block in (1000, CHUNK, CHUNK + 1, 10**6):
        blocks = list(RICH.blocks(3, 2 * CHUNK + 100, block))
        assert {each.shape[1] for each in blocks[:-1]} <= {block}
        assert np.concatenate(blocks, axis=1).tobytes() == peaks.tobytes()
    assert RICH.peaks(3, CHUNK + 7).tobytes() == peaks[:, : CHUNK + 7].tobytes()
    assert RICH.peaks(1, 50).tobytes() == peaks[:1, :50].tobytes()
    assert not np.array_equal(peaks[0], peaks[1])
    assert PeakModel(**{**RICH.to_dict(), "seed": 8}).peaks(1, 9).tobytes() != peaks[:1, :9].tobytes()


def test_the_numbers_are_those_written_down():
    # Made of Philox and of + - * / sqrt alone: the same on every machine.
    digest = hashlib.sha256(RICH.peaks(2, CHUNK + 10).astype("<f8").tobytes()).hexdigest()
    assert digest == "7f516a84a1115bbd0214aae844c341d75fd1083530bb75b36592265d6c8b5128"


def test_the_walk_is_a_sum_in_order():
    model = PeakModel(start=2.0, drift=0.25, walk=0.1, jitter=0.0, seed=3)
    moves = [float(normal) * 0.1 + 0.25 for normal in normals(3, CHUNK, 0, 0)]
    level, expected = 2.0, []
    for move in [*moves, 0.0]:
        expected.append(level)
        level += move
    assert model.peaks(1, CHUNK + 1)[0].tolist() == expected


def test_plain_parameters_give_plain_peaks():
    assert PeakModel(start=1.5, walk=0.0, jitter=0.0).peaks(2, 4).tolist() == [[1.5] * 4] * 2
    assert PeakModel(start=0.0, walk=0.0, jitter=0.0, drift=0.5).peaks(1, 4).tolist() == [
        [0.0, 0.5, 1.0, 1.5]
    ]
    assert np.isnan(PeakModel(nan_rate=1).peaks(1, 9)).all()
    assert PeakModel(walk=0, jitter=0, burst_rate=1.0, start=1.0, burst_height=2.0).peaks(1, 3).tolist() == [
        [3.0] * 3
    ]


def test_distributions():
    n = 16 * CHUNK
    jitter = PeakModel(start=0.0, walk=0.0, jitter=2.0, seed=1).peaks(1, n)[0]
    # Four standard errors of the mean, 4 * 2 / 256, and of the deviation, 4 * 2 / sqrt(2) / 256.
    assert abs(jitter.mean()) < 0.032
    assert abs(jitter.std() - 2) < 0.023
    tail = PeakModel(start=0.0, walk=0.0, jitter=0.0, tail_index=1.5, seed=1).peaks(1, n)[0]
    assert tail.min() >= 0
    for y in (2, 8, 64):
        share = y**-1.5  # P(magnitude above y)
        assert abs((tail > math.log2(y)).mean() - share) < 4 * math.sqrt(share / n)
    steps = np.diff(PeakModel(start=0.0, walk=0.5, jitter=0.0, drift=0.1, seed=1).peaks(1, n)[0])
    assert abs(steps.mean() - 0.1) < 0.008
    assert abs(steps.std() - 0.5) < 0.006


@pytest.mark.parametrize("length", [1, 7, CHUNK, 3 * CHUNK])
def test_bursts_last_as_long_as_they_should(length):
    short = {"start": 0.0, "walk": 0.0, "jitter": 0.0, "burst_rate": 0.001, "burst_height": 5.0, "seed": 2}
    begun = PeakModel(**short, burst_length=1).peaks(1, 4 * CHUNK)[0] > 0
    assert 4 <= begun.sum() <= 40
    expected = np.zeros(4 * CHUNK, bool)
    for step in np.flatnonzero(begun):
        expected[step : step + length] = True
    assert ((PeakModel(**short, burst_length=length).peaks(1, 4 * CHUNK)[0] == 5.0) == expected).all()


def test_what_is_drawn_is_simulated():
    found = simulate("torch,growth_interval=50", RICH.blocks(5, 3 * CHUNK))
    whole = simulate("torch,growth_interval=50", RICH.peaks(5, 3 * CHUNK))
    assert found.overflows.tolist() == whole.overflows.tolist()
    assert found.mean_log2_scale.tolist() == whole.mean_log2_scale.tolist()
    assert min(found.overflows) > 0
    assert scaling.PeakModel is PeakModel


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"walk": -1}, "walk=-1: it must be a finite number, 0 or more$"),
        ({"jitter": math.nan}, "jitter=nan"),
        ({"start": math.inf}, "start=inf"),
        ({"tail_index": 0}, "tail_index=0: it must be a finite number above 0"),
        ({"burst_rate": 1.5}, "burst_rate=1.5: it must be a finite number from 0 to 1$"),
        ({"nan_rate": -0.1}, "nan_rate=-0.1"),
        ({"burst_length": 0}, "burst_length=0: it must be an integer above 0"),
        ({"seed": -1}, "seed=-1"),
    ],
)
def test_impossible_parameters(options, message):
    with pytest.raises(ValueError, match=message):
        PeakModel(**options)


@pytest.mark.parametrize(
    ("histories", "steps", "block", "message"),
    [
        (0, 5, 5, "histories=0: it must be an integer from 1 to 4294967296$"),
        (2, -1, 5, "steps=-1: it must be an integer from 0 to 2199023255552$"),
        (2, 5, 0, "block=0: it must be an integer, 1 or more$"),
        (2, 2.5, 5, "steps=2.5: it must be an integer from 0 to"),
    ],
)
def test_impossible_sizes_are_noticed_at_the_call(histories, steps, block, message):
    with pytest.raises(ValueError, match=message):
        PeakModel().blocks(histories, steps, block)
    assert list(PeakModel().blocks(2, 0)) == []
    assert PeakModel().peaks(2, 0).shape == (2, 0)
