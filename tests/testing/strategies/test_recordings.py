"""recordings(): coverage, shrinking, and that a layer has as many gradients in each step."""

from __future__ import annotations

import pytest
from fp16sim_draws import draws, rare, shares, smallest

from fp16sim.recording.histogram import Histogram
from fp16sim.testing.strategies import recordings

HISTOGRAMS = {
    "all zeros": lambda h: h.zeros == h.total,
    "some zeros": lambda h: 0 < h.zeros < h.total,
    "subnormal in binary16": lambda h: any(-24 <= e < -14 for e in h.counts),
    "flushed by binary16": lambda h: any(-64 <= e < -24 for e in h.counts),
    "subnormal in float32": lambda h: any(e < -126 for e in h.counts),
    "infinities": lambda h: h.infinities,
    "NaNs": lambda h: h.nans,
    "all finite": lambda h: not h.infinities + h.nans,
    "powers of two": lambda h: h.powers,
    "counts above 10,000": lambda h: h.total > 10_000,
    "ten powers of two and more": lambda h: len(h.counts) >= 10,
}
RECORDINGS = {
    "one step": lambda steps: len(steps) == 1,
    "more steps": lambda steps: len(steps) > 3,
    "one layer": lambda steps: len(steps[0]) == 1,
    "three layers": lambda steps: len(steps[0]) == 3,
    "finite throughout": lambda steps: not any(h.infinities + h.nans for s in steps for h in s.values()),
    "a NaN in one step, finite in another": lambda steps: 0 < sum(
        any(h.nans for h in s.values()) for s in steps) < len(steps),
}  # fmt: skip


def test_each_class_is_drawn_in_one_of_twenty() -> None:
    drawn = draws(recordings(), 300)
    assert rare(shares(drawn, RECORDINGS)) == {}
    assert rare(shares((h for steps in drawn for step in steps for h in step.values()), HISTOGRAMS)) == {}


def test_steps_have_the_same_layers_of_the_same_size() -> None:
    for steps in draws(recordings(), 200):
        assert 1 <= len(steps) <= 8
        sizes = [{name: h.total for name, h in step.items()} for step in steps]
        assert all(size == sizes[0] for size in sizes)
        assert min(sizes[0].values()) > 0
        for step in steps:
            for h in step.values():
                assert Histogram.from_json(h.to_json()) == h
                assert all(h.powers[e] <= h.counts[e] for e in h.powers)


def test_options() -> None:
    assert {tuple(s[0]) for s in draws(recordings(layers=["w", "b"]), 50)} == {("w", "b")}
    assert {tuple(s[0]) for s in draws(recordings(layers=2), 50)} == {("layer1", "layer2")}
    finite = draws(recordings(allow_nan=False, allow_infinity=False, most_steps=2), 100)
    assert not any(h.infinities + h.nans for steps in finite for step in steps for h in step.values())
    assert max(len(steps) for steps in finite) == 2


def test_recordings_shrink_to_little() -> None:
    zero = Histogram(zeros=1)
    assert smallest(recordings(), lambda steps: True) == [{"layer1": zero}]
    assert smallest(recordings(), lambda steps: len(steps) >= 3) == [{"layer1": zero}] * 3
    assert smallest(recordings(), lambda steps: any(s["layer1"].nans for s in steps)) == [
        {"layer1": Histogram(nans=1)}
    ]


@pytest.mark.slow
def test_recordings_shrink_to_one_layer_that_matters_and_one_gradient() -> None:
    zero = Histogram(zeros=1)
    assert smallest(recordings(), lambda steps: any(s["layer1"].counts for s in steps)) == [
        {"layer1": Histogram({0: 1}, {0: 1})}
    ]
    second = smallest(
        recordings(), lambda steps: any("layer2" in s and s["layer2"].infinities for s in steps), 500
    )
    assert second == [{"layer1": zero, "layer2": Histogram(infinities=1)}]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"layers": 0}, ValueError, "layers=0"),
        ({"layers": "w"}, TypeError, "layers='w': pass how many, or their names"),
        ({"layers": []}, ValueError, r"layers=\[\]"),
        ({"layers": ["a", "a"]}, ValueError, "of different names"),
        ({"most_steps": 0}, ValueError, "most_steps=0"),
        ({"most_values": 2.0}, TypeError, "most_values=2.0"),
        ({"allow_infinity": 2}, TypeError, "allow_infinity=2"),
    ],
)
def test_impossible_options_are_refused_before_a_draw(options, error, message) -> None:
    with pytest.raises(error, match=message):
        recordings(**options)
