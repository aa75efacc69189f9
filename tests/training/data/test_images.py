"""The digits that ship with the package, and the order of batches."""

import hashlib
from importlib import resources
from itertools import islice

import numpy as np
import pytest

from fp16sim.training.data import Batches, digits


def test_the_digits():
    train, test = digits()
    images, labels = np.concatenate([train.images, test.images]), np.concatenate([train.labels, test.labels])
    assert images.shape == (1797, 64)
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # as published
    pixels = images * 8 + 5
    assert set(np.unique(pixels)) == set(range(17))
    assert images.astype(np.float16).astype(np.float32).tobytes() == images.tobytes()  # exact in binary16


def test_the_file_is_the_published_data():
    with resources.files("fp16sim.training").joinpath("datasets/digits.npz").open("rb") as file:
        data = np.load(file)
        content = data["images"].tobytes() + data["labels"].tobytes()
    assert len(content) == 1797 * 65
    assert hashlib.sha256(content).hexdigest() == DIGEST


def test_it_ships_with_its_attribution():
    text = resources.files("fp16sim.training").joinpath("datasets/ATTRIBUTION.md").read_text(encoding="utf-8")
    assert "10.24432/C50P49" in text
    assert "CC BY 4.0" in text


def test_a_split_keeps_every_image_once():
    for training in (1, 1400, 1796):
        train, test = digits(training)
        assert len(train.labels) == training
        rows = np.concatenate([train.images, test.images])
        assert sorted(map(bytes, rows)) == sorted(map(bytes, np.concatenate([d.images for d in digits()])))


def test_an_epoch_has_every_example_once_in_an_order_of_its_own():
    train, _ = digits()
    batches = Batches(train, 64, seed=5)
    taken = list(islice(batches, 2 * batches.per_epoch))
    assert [len(labels) for _, labels in taken[:22]] == [64] * 21 + [56]
    first, second = taken[:22], taken[22:]
    for epoch in (first, second):
        rows = np.concatenate([images for images, _ in epoch])
        assert sorted(map(bytes, rows)) == sorted(map(bytes, train.images))
    assert first[0][1].tolist() != second[0][1].tolist()
    again = next(iter(batches))
    assert again[1].tolist() == first[0][1].tolist()


@pytest.mark.parametrize("training", [0, 1797, -3])
def test_split_sizes(training):
    with pytest.raises(ValueError, match="1 to 1796"):
        digits(training)


@pytest.mark.parametrize("size", [0, 1401])
def test_batch_sizes(size):
    with pytest.raises(ValueError, match="1 to 1400"):
        Batches(digits()[0], size)


DIGEST = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
