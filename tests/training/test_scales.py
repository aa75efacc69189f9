"""Which way a step scales, by what its scaler has; and what one scale does."""

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn import Linear
from fp16sim.scaling import Decision, Observation
from fp16sim.training.layer_scales import LayerScales
from fp16sim.training.scales import OneScale, UnitScale, scales_of_step


def test_the_way_is_chosen_by_what_the_scaler_has():
    kinds = {
        "unit": UnitScale,
        "adaptive": LayerScales,
        "delayed": LayerScales,
        "fairscale_layerwise": LayerScales,
    }
    for name in scaling.names():
        assert type(scales_of_step(Linear(2, 2), scaling.make(name))) is kinds.get(name, OneScale)


def test_an_object_with_only_scale_and_update_has_one_scale():
    class Own:
        scale = 4.0

        def update(self, observation):
            return self, Decision(True, 4.0)

    scales = scales_of_step(Linear(2, 2), Own())
    assert type(scales) is OneScale
    assert scales.prepare(Tensor([2.0]), []).data.tolist() == [8.0]
    gradients = [np.float32([8.0]), None]
    assert scales.observe([], gradients) == Observation(amax=2.0)
    assert scales.unscaled([], gradients, Decision(True, 4.0))[0].tolist() == [2.0]
    assert scales.carried({"a": Tensor([1.0])}) == {"a": 4.0}
    with scales.watching(False) as captured:
        assert captured == []


def test_a_decision_for_groups_needs_a_scaler_of_groups():
    scales = OneScale(scaling.StaticScaler(2.0))
    with pytest.raises(TypeError, match="use it with a scaler that has groups"):
        scales.unscaled([], [], Decision({"a": True}, 2.0))
