"""Windows of a text: where they lie, what is masked, and what is refused."""

import hashlib
import re
from itertools import islice

import numpy as np
import pytest

from fp16sim.training.data import IGNORED, MaskedTextBatches, TextBatches, characters, windows

LINE = np.arange(100, dtype=np.uint8)  # a token says where it stands
TEXT = characters()


def of_both(context=32, size=5, seed=3):
    return [
        TextBatches(TEXT.training, context, size, seed),
        MaskedTextBatches(TEXT.training, context, size, seed, mask=TEXT.mask_token),
    ]


@pytest.mark.parametrize("source", of_both(), ids=["next", "masked"])
def test_a_batch_is_a_function_of_its_number(source):
    taken = list(islice(source, 6))
    for number in (5, 0, 3):
        for again, before in zip(source.at(number), taken[number], strict=True):
            assert again.dtype == np.int64
            assert again.shape == (5, 32)
            assert again.tobytes() == before.tobytes()
    assert len({inputs.tobytes() for inputs, _ in taken}) == 6


def test_other_seeds_give_other_windows():
    for one, other in zip(of_both(seed=3), of_both(seed=4), strict=True):
        assert one.at(0)[0].tobytes() != other.at(0)[0].tobytes()


def test_the_batches_are_the_same_everywhere():
    state = hashlib.sha256()
    for source in of_both():
        for number in (0, 1, 2, 2**32 - 1):
            for array in source.at(number):
                state.update(array.astype("<i8").tobytes())
    assert state.hexdigest() == DIGEST


def test_targets_follow_their_inputs_and_every_place_is_met():
    starts = set()
    for inputs, targets in islice(TextBatches(LINE, 90, 20, 1), 20):
        assert (np.diff(inputs, axis=1) == 1).all()
        assert (targets == inputs + 1).all()
        starts |= set(inputs[:, 0].tolist())
    assert starts == set(range(10))  # the last target is token 99
    inputs, targets = TextBatches(LINE, 99, 3).at(0)
    assert inputs.tolist() == [list(range(99))] * 3
    assert targets.tolist() == [list(range(1, 100))] * 3


def test_windows_start_evenly():
    starts = np.concatenate([inputs[:, 0] for inputs, _ in islice(TextBatches(LINE, 90, 500, 2), 20)])
    counts = np.bincount(starts)
    # 1,000 each are expected; the standard deviation is 30, so that 5 of them are 150.
    assert len(counts) == 10
    assert abs(counts - 1000).max() < 150


@pytest.mark.parametrize(
    "context, masked", [(1, 1), (3, 1), (9, 1), (10, 2), (16, 2), (20, 3), (64, 10), (100, 15)]
)
def test_how_many_are_masked(context, masked):
    source = MaskedTextBatches(LINE, context, 50, mask=100)
    assert source.masked == masked
    for inputs, targets in islice(source, 3):
        hidden = inputs == 100
        assert (hidden.sum(axis=1) == masked).all()
        assert ((targets == IGNORED) == ~hidden).all()
        whole = np.where(hidden, targets, inputs)
        assert (np.diff(whole, axis=1) == 1).all()


def test_every_position_is_masked_as_often():
    source = MaskedTextBatches(LINE, 20, 1000, 4, mask=100)
    counts = sum((inputs == 100).sum(axis=0) for inputs, _ in islice(source, 10))
    # 3 of 20 positions in 10,000 windows: 1,500 each, standard deviation 36.
    assert abs(counts - 1500).max() < 180


def test_masked_windows_reach_the_ends():
    inputs, targets = MaskedTextBatches(LINE, 100, 2, mask=100).at(0)
    assert np.where(inputs == 100, targets, inputs).tolist() == [list(range(100))] * 2


def test_batches_share_no_memory():
    for source in of_both():
        inputs, targets = source.at(0)
        kept = inputs.tobytes(), targets.tobytes()
        inputs[:] = 0
        assert targets.tobytes() == kept[1]
        targets[:] = 0
        assert tuple(array.tobytes() for array in source.at(0)) == kept


def test_consecutive_windows():
    inputs, targets = windows(TEXT.test, 64)
    assert inputs.shape == targets.shape == (399, 64)
    assert inputs.ravel().tobytes() == TEXT.test[: 399 * 64].tobytes()
    assert targets.ravel().tobytes() == TEXT.test[1 : 399 * 64 + 1].tobytes()
    inputs, targets = windows(LINE, 99)
    assert (inputs[0, 0], targets[0, -1], len(inputs)) == (0, 99, 1)
    with pytest.raises(ValueError, match=r"context=100: .*1 to 99"):
        windows(LINE, 100)


@pytest.mark.parametrize("context", [0, 101, -1, 2.0, True])
def test_contexts(context):
    for make in (
        lambda: TextBatches(LINE, context, 2),
        lambda: MaskedTextBatches(LINE, context, 2, mask=100),
    ):
        with pytest.raises(ValueError, match=re.escape(f"context={context!r}: windows, with their targets")):
            make()
    with pytest.raises(ValueError, match=r"context=100: .*1 to 99"):
        TextBatches(LINE, 100, 2)


def test_what_else_is_refused():
    with pytest.raises(ValueError, match="size=0: a batch holds windows"):
        TextBatches(LINE, 10, 0)
    with pytest.raises(ValueError, match="seed=-1"):
        TextBatches(LINE, 10, 1, -1)
    with pytest.raises(ValueError, match=r"tokens \(100,\) of float64: a text is one row of integers"):
        TextBatches(LINE * 1.0, 10, 1)
    with pytest.raises(ValueError, match=r"tokens \(10, 10\)"):
        MaskedTextBatches(LINE.reshape(10, 10), 10, 1, mask=100)
    with pytest.raises(TypeError, match="tokens is a list"):
        TextBatches([1, 2, 3], 1, 1)
    with pytest.raises(ValueError, match=r"tokens\[2\] is -100: tokens are numbered from 0"):
        TextBatches(np.array([1, 2, IGNORED]), 1, 1)
    with pytest.raises(
        ValueError, match=r"mask=99: the mask is no character, and tokens go to 99; .* 100 or more"
    ):
        MaskedTextBatches(LINE, 10, 1, mask=99)
    for source in of_both():
        for batch in (-1, 0.0, False):
            with pytest.raises(ValueError, match=re.escape(f"batch={batch!r}: batches are counted from 0")):
                source.at(batch)


DIGEST = "f21f9c3559bbb4ec8a10469d7199c36571921c6366ccc8141d1b0911806e5611"
