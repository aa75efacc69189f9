"""Batches of examples: their order, random access to them, and what they refuse."""

import re
from itertools import islice

import numpy as np
import pytest

from fp16sim.nn.random import permutation
from fp16sim.training.data import Batches, SequenceBatches, Sequences, Split, digits, vowels


def same(one, other):
    """Compare two batches bit for bit, through tuples."""
    if isinstance(one, tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def sources():
    return {
        "digits": Batches(digits()[0], 64, seed=5, classes=10),
        "channels": Batches(digits(channels=True)[0], 500, seed=5),
        "vowels": SequenceBatches(vowels()[0], 32, seed=5, classes=9),
        "a batch of all": SequenceBatches(vowels()[1], 370),
    }


@pytest.mark.parametrize("source", sources().values(), ids=sources())
def test_a_batch_is_a_function_of_its_number(source):
    taken = list(islice(source, 2 * source.per_epoch + 1))
    for number in (len(taken) - 1, 0, source.per_epoch, source.per_epoch - 1):  # in no order
        assert same(source.at(number), taken[number])
    assert same(next(iter(source)), taken[0])
    assert not same(taken[0], taken[source.per_epoch])


def test_an_epoch_has_every_example_once_in_an_order_of_its_own():
    train, _ = digits()
    batches = Batches(train, 64, seed=5)
    assert batches.per_epoch == 22
    taken = list(islice(batches, 2 * batches.per_epoch))
    assert [len(labels) for _, labels in taken[:22]] == [64] * 21 + [56]
    first, second = taken[:22], taken[22:]
    for epoch in (first, second):
        rows = np.concatenate([images for images, _ in epoch])
        assert sorted(map(bytes, rows)) == sorted(map(bytes, train.images))
    assert first[0][1].tolist() != second[0][1].tolist()


def test_the_order_is_the_documented_one():
    train, _ = vowels()
    order = permutation(7, 270, 3)  # the shuffle of epoch 3
    (inputs, lengths), labels = SequenceBatches(train, 100, seed=7).at(3 * 3 + 2)
    assert same(
        ((inputs, lengths), labels),
        ((train.inputs[order[200:]], train.lengths[order[200:]]), train.labels[order[200:]]),
    )
    images, labels = Batches(Split(train.inputs, train.labels), 100, seed=7).at(3 * 3 + 2)
    assert same(images, inputs)


def test_a_batch_is_a_copy():
    train, _ = digits()
    batches = Batches(train, 8)
    images, labels = batches.at(0)
    kept = images.copy(), labels.copy()
    images[:], labels[:] = 7, 7
    assert same(batches.at(0), kept)


@pytest.mark.parametrize("batch", [-1, 1.0, True, "0"])
@pytest.mark.parametrize("source", [sources()["digits"], sources()["vowels"]], ids=["digits", "vowels"])
def test_batch_numbers(source, batch):
    with pytest.raises(ValueError, match=re.escape(f"batch={batch!r}: batches are counted from 0")):
        source.at(batch)


@pytest.mark.parametrize("size", [0, 1401, 2.5, True])
def test_batch_sizes(size):
    with pytest.raises(ValueError, match=r"size=.*1 to 1400"):
        Batches(digits()[0], size)


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5])
def test_seeds_are_refused_before_the_first_batch(seed):
    with pytest.raises(ValueError, match="seed="):
        Batches(digits()[0], 10, seed)
    with pytest.raises(ValueError, match="seed="):
        SequenceBatches(vowels()[0], 10, seed)


def planted(value, dtype=np.float32):
    inputs = np.zeros((6, 5, 3), dtype)
    inputs[4, 1, 2] = value
    inputs[5, 0, 0] = value
    return inputs


LABELS = np.array([0, 1, 2, 0, 1, 2])
LENGTHS = np.array([5, 1, 2, 3, 4, 5])


@pytest.mark.parametrize("value", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_data_that_is_not_finite(value, dtype):
    for name, make in (
        ("images", lambda inputs: Batches(Split(inputs, LABELS), 2)),
        ("inputs", lambda inputs: SequenceBatches(Sequences(inputs, LENGTHS, LABELS), 2)),
    ):
        make(planted(1e3, dtype))
        with pytest.raises(
            ValueError, match=rf"^{name}\[4, 1, 2\] is -?(nan|inf), one of 2 .*leave out example 4$"
        ):
            make(planted(value, dtype))


@pytest.mark.parametrize("wrong", [3, -1, -100])
def test_labels_outside_the_classes(wrong):
    labels = LABELS.copy()
    labels[2] = wrong
    for make in (
        lambda **options: Batches(Split(planted(0), labels), 2, **options),
        lambda **options: SequenceBatches(Sequences(planted(0), LENGTHS, labels), 2, **options),
    ):
        make()  # nothing is said of classes
        with pytest.raises(
            ValueError, match=rf"^labels\[2\] is {wrong}, one of 1 .*labels are 0 to 2; correct example 2"
        ):
            make(classes=3)
    with pytest.raises(ValueError, match="classes=0"):
        Batches(Split(planted(0), LABELS), 2, classes=0)


@pytest.mark.parametrize(
    "labels", [LABELS[:5], LABELS[:, None], LABELS * 1.0, LABELS == 1], ids=["few", "column", "float", "bool"]
)
def test_labels_that_do_not_fit(labels):
    with pytest.raises(ValueError, match=r"^labels .* for 6 examples: .*shape \(6,\)"):
        Batches(Split(planted(0), labels), 2)


@pytest.mark.parametrize("wrong", [0, 6, -1])
def test_lengths_that_do_not_fit(wrong):
    lengths = LENGTHS.copy()
    lengths[3] = wrong
    with pytest.raises(ValueError, match=rf"^lengths\[3\] is {wrong}: .*1 to 5 frames"):
        SequenceBatches(Sequences(planted(0), lengths, LABELS), 2)
    for unfit in (LENGTHS[:5], LENGTHS * 1.0):
        with pytest.raises(ValueError, match=r"^lengths .*pass lengths of shape \(6,\)"):
            SequenceBatches(Sequences(planted(0), unfit, LABELS), 2)


def test_what_is_not_an_array_of_numbers():
    with pytest.raises(TypeError, match=r"images is a list.*numpy\.asarray"):
        Batches(Split([[1.0]], np.array([0])), 1)
    with pytest.raises(TypeError, match="labels is a list"):
        Batches(Split(np.zeros((1, 2)), [0]), 1)
    with pytest.raises(ValueError, match=r"images \(0, 2\) holds no example"):
        Batches(Split(np.zeros((0, 2)), np.zeros(0, np.int64)), 1)
    with pytest.raises(TypeError, match="images of dtype object: training data is numbers"):
        Batches(Split(np.array([[None]]), np.array([0])), 1)
