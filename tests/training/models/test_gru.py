"""The classifier of sequences: what it does not depend on."""

from __future__ import annotations

import numpy as np
import pytest

from fp16sim.autograd.policy import autocast
from fp16sim.autograd.tensor import Tensor, no_grad
from fp16sim.training.data import vowels
from fp16sim.training.models.gru import gru


@pytest.fixture
def recordings():
    training, _ = vowels()
    return training.inputs[:6], training.lengths[:6]


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_what_stands_beyond_a_length_does_not_matter(recordings, policy) -> None:
    inputs, lengths = recordings
    model = gru(0)
    other = inputs.copy()
    other[np.arange(inputs.shape[1]) >= lengths[:, None]] = 7.0
    assert not np.array_equal(other, inputs)
    with no_grad(), autocast(policy):
        right = model(Tensor(inputs), lengths).data
        assert model(Tensor(other), lengths).data.tobytes() == right.tobytes()
        assert (
            model(Tensor(inputs[::-1].copy()), lengths[::-1].copy()).data[::-1].tobytes() == right.tobytes()
        )
        longest = int(lengths[0])
        assert model(Tensor(inputs[:1, :longest])).data.tobytes() == right[:1].tobytes()
        assert model(Tensor(other)).data.tobytes() != right.tobytes()


def test_it_hears_both_ends(recordings) -> None:
    inputs, lengths = recordings
    model = gru(0)
    with no_grad():
        right = model(Tensor(inputs), lengths).data
        for place in (0, int(lengths.min()) - 1):
            changed = inputs.copy()
            changed[:, place] += np.float32(1.0)
            assert not (model(Tensor(changed), lengths).data == right).all(axis=1).any()
