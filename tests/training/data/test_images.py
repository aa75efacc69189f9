"""The digits that ship with the package."""

import hashlib

import numpy as np
import pytest

from fp16sim.training.data import digits
from fp16sim.training.data.source import stored


def test_the_digits():
    train, test = digits()
    images, labels = np.concatenate([train.images, test.images]), np.concatenate([train.labels, test.labels])
    assert images.shape == (1797, 64)
    assert images.dtype == np.float32
    assert labels.dtype == np.int64
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]  # as published
    pixels = images * 8 + 5
    assert set(np.unique(pixels)) == set(range(17))
    assert images.astype(np.float16).astype(np.float32).tobytes() == images.tobytes()  # exact in binary16


def test_the_file_is_the_published_data():
    with stored("digits.npz") as file:
        data = np.load(file)
        content = data["images"].tobytes() + data["labels"].tobytes()
    assert len(content) == 1797 * 65
    assert hashlib.sha256(content).hexdigest() == DIGEST


def test_a_split_keeps_every_image_once():
    for training in (1, 1400, 1796):
        train, test = digits(training)
        assert len(train.labels) == training
        rows = np.concatenate([train.images, test.images])
        assert sorted(map(bytes, rows)) == sorted(map(bytes, np.concatenate([d.images for d in digits()])))


def test_channels_change_the_shape_only():
    for rows, images in zip(digits(), digits(channels=True), strict=True):
        assert images.images.shape == (len(rows.images), 1, 8, 8)
        assert images.images.tobytes() == rows.images.tobytes()
        assert images.labels.tobytes() == rows.labels.tobytes()


@pytest.mark.parametrize("training", [0, 1797, -3, 2.5, True])
def test_split_sizes(training):
    with pytest.raises(ValueError, match=r"training=.*1 to 1796"):
        digits(training)


DIGEST = "87ff0c9e40dc7e2c0e34e7257799c2e3f3aec1a016363bb11cad869ec428a826"
