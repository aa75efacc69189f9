"""The character models: who sees whom, which targets count, and where the places start."""

from __future__ import annotations

import gmpy2
import numpy as np
import pytest

from fp16sim.autograd.tensor import Tensor, no_grad
from fp16sim.nn.random import uniform_integers
from fp16sim.training.models.bert import bert
from fp16sim.training.models.gpt import gpt
from fp16sim.training.models.transformer import CharacterTransformer, character_loss, waves


def text(length: int, seed: int = 5) -> np.ndarray:
    return (uniform_integers(seed, length) % np.uint32(94)).astype(np.int64).reshape(1, length)


@pytest.mark.parametrize(("build", "causal"), [(gpt, True), (bert, False)])
def test_who_sees_the_last_character(build, causal) -> None:
    model, first = build(0), text(20)
    second = first.copy()
    second[0, -1] = (second[0, -1] + 1) % 94
    with no_grad():
        a, b = model(first).data, model(second).data
    same = (a.view(np.uint32) == b.view(np.uint32)).all(axis=2)[0]
    assert not same[-1]
    assert same[:-1].all() if causal else not same.any()


def test_a_shorter_text_is_the_beginning_of_a_longer_one() -> None:
    model, whole = gpt(0), text(30)
    with no_grad():
        long, short = model(whole).data, model(whole[:, :12]).data
    # Other shapes, the same sums: each score sums over the characters before it, in their order.
    assert long[:, :12].tobytes() == short.tobytes()


def test_targets_of_minus_100_do_not_count() -> None:
    scores = np.float32(np.arange(24).reshape(2, 3, 4) % 5)
    targets = np.array([[1, -100, 2], [-100, -100, 3]])
    kept = scores[targets >= 0][None], targets[targets >= 0][None]
    assert character_loss(Tensor(scores), targets).item() == character_loss(Tensor(kept[0]), kept[1]).item()


@pytest.mark.parametrize(
    ("count", "width", "longest"), [(64, 96, 100.0), (32, 96, 100.0), (7, 2, 3.0), (500, 4, 1e4)]
)
def test_waves_are_sines_and_cosines(count: int, width: int, longest: float) -> None:
    found, half = waves(count, width, longest), width // 2
    assert found.shape == (count, width)
    assert found.dtype == np.float32
    with gmpy2.context(precision=100):
        for place in range(0, count, 3):
            for i in range(half):
                angle = place / gmpy2.mpfr(longest) ** (gmpy2.mpfr(i) / half)
                for right, value in (
                    (gmpy2.sin(angle), found[place, i]),
                    (gmpy2.cos(angle), found[place, half + i]),
                ):
                    # The angle is within a few units of 2^-53 of it, relative, before the one rounding to float32.
                    error = abs(float(right - gmpy2.mpfr(float(value))))
                    assert error <= np.spacing(np.abs(value)) / 2 + 8 * 2.0**-53 * (float(angle) + 1)


def test_sizes_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"text of shape \(1, 65\) for a model with 64 places"):
        gpt(0)(text(65))
    with pytest.raises(ValueError, match=r"text of shape \(5,\)"):
        gpt(0)(text(5)[0])
    with pytest.raises(ValueError, match="width=5: half of the columns are sines"):
        waves(3, 5)
    with pytest.raises(ValueError, match="multiple of num_heads"):
        CharacterTransformer(10, context=4, width=16, heads=3, layers=1, causal=True)
