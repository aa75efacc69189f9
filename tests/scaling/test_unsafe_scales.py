"""Scales whose reciprocal float32 does not hold: which models apply an infinite update, and which notice in time."""

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.scaling import observe, unscale

TINY = 2.0**-128  # 1 / TINY is infinite in float32

UNSAFE = [
    ("deepspeed", {"initial_scale_power": -128}),
    ("deepspeed_unfused", {"initial_scale_power": -128}),
    ("megatron", {"initial_scale": TINY, "min_scale": TINY}),
    ("colossalai", {"initial_scale": TINY, "min_scale": None}),
    ("guided_diffusion", {"initial_lg_loss_scale": -128.0}),
]
SAFE = [
    ("fairseq", {"init_scale": TINY}),
    ("metaseq", {"init_scale": TINY}),
    ("mindspore_cell", {"loss_scale_value": TINY}),
    ("openseq2seq_backoff", {"scale_max": TINY, "scale_min": 0.0}),
    ("openseq2seq_logmax", {"scale_max": TINY, "scale_min": 0.0}),
]


def take(scaler, gradient):
    following, decision = scaler.update(observe(scaler, [gradient]))
    return following, unscale(gradient, decision) if decision.apply else None


@pytest.mark.parametrize(("name", "options"), UNSAFE)
def test_an_infinite_update_is_applied(name, options):
    scaler = scaling.make(name, **options)
    assert scaler.scale == TINY
    assert take(scaler, np.float32([1.0]))[1].tolist() == [np.inf]


@pytest.mark.parametrize(("name", "options"), SAFE)
def test_it_is_noticed_after_unscaling(name, options):
    scaler = scaling.make(name, **options)
    if name == "openseq2seq_logmax":
        scaler = take(scaler, np.float32([1.0]))[0]  # it starts at 1
    assert scaler.scale == TINY
    assert take(scaler, np.float32([1.0]))[1] is None


@pytest.mark.parametrize("name", [name for name, _ in UNSAFE + SAFE])
def test_the_defaults_are_safe(name):
    scaler = scaling.make(name)
    _, update = take(scaler, np.float32([scaler.scale]))
    assert update is None or np.isfinite(update).all()
