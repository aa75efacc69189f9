"""The recorded vowels that ship with the package, and how they are packed."""

import hashlib
import zipfile
from decimal import Decimal

import numpy as np
import pytest

from fp16sim.training.data import vowels
from fp16sim.training.data.speech import millionths
from fp16sim.training.datasets.pack import recordings


def test_the_recordings():
    training, test = vowels()
    for part, count, longest in ((training, 270, 26), (test, 370, 29)):
        assert part.inputs.shape == (count, 29, 12)
        assert part.inputs.dtype == np.float32
        assert part.lengths.dtype == part.labels.dtype == np.int64
        assert (int(part.lengths.min()), int(part.lengths.max())) == (7, longest)
        after = np.arange(29) >= part.lengths[:, None]
        assert not part.inputs[after].any()
        assert part.inputs[~after].all(axis=1).any()
    # As the UCI page states them: 30 utterances of each speaker, and these in the test set.
    assert np.bincount(training.labels).tolist() == [30] * 9
    assert np.bincount(test.labels).tolist() == [31, 35, 88, 44, 29, 24, 40, 50, 29]
    assert int(training.lengths.sum()) + int(test.lengths.sum()) == 9961


def test_a_value_is_its_decimal_rounded_once():
    training, test = vowels()
    # The first and the last frame of the published files ae.train and ae.test.
    assert training.inputs[0, 0].tolist() == np.float32(FIRST).tolist()
    assert test.inputs[-1, test.lengths[-1] - 1].tolist() == np.float32(LAST).tolist()
    values = np.concatenate([part.inputs.ravel() for part in (training, test)])
    for value in np.unique(values)[::97]:  # each is the float32 nearest to a decimal of six places
        assert np.float32(f"{float(value):.6f}") == value


def test_the_arrays_are_the_same_everywhere():
    state = hashlib.sha256()
    for part in vowels():
        for array in (part.inputs, part.lengths, part.labels):
            state.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
    assert state.hexdigest() == DIGEST


HEADER = "#comment: with @words\n@problemName JapaneseVowels\n@data\n"


def wheel(folder, training, test):
    path = folder / "aeon.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for part, lines in (("TRAIN", training), ("TEST", test)):
            archive.writestr(f"aeon/datasets/data/JapaneseVowels/JapaneseVowels_{part}.ts", HEADER + lines)
    return path


def test_packing_loses_nothing(tmp_path):
    texts = [["1.860936", "-0.000001"], ["-2", "2.203141"], ["0.5", "0"], ["-0.25", "4.1"]]  # channel, frame
    lines = [":".join(",".join(row) for row in rows) for rows in (texts[:2], texts[2:])]
    packed = recordings(wheel(tmp_path, f"{lines[0]}:1\n", f"{lines[1]}:9\n"))
    expected = [
        [int(Decimal(rows[c][t]) * 10**6) for c in (0, 1)] for rows in (texts[:2], texts[2:]) for t in (0, 1)
    ]
    assert millionths(packed["planes"]).tolist() == expected
    assert packed["lengths"].tolist() == [2, 2]
    assert packed["labels"].tolist() == [0, 8]


def test_packing_refuses_what_it_would_lose(tmp_path):
    with pytest.raises(ValueError, match="more than 6 decimals"):
        recordings(wheel(tmp_path, "0.1234567:1\n", "0:1\n"))
    with pytest.raises(ValueError, match="does not fit three bytes"):
        recordings(wheel(tmp_path, "-9:1\n", "0:1\n"))


# Python reads a decimal to float64; for these, float32 of that is float32 of the decimal (see speech.py).
FIRST = [
    1.860936, -0.207383, 0.261557, -0.214562, -0.171253, -0.118167,
    -0.277557, 0.025668, 0.126701, -0.306756, -0.213076, 0.088728,
]  # fmt: skip
LAST = [
    1.177449, -0.40408, 0.052026, -0.284812, 0.42984, -0.203484,
    -0.072393, -0.080955, -0.244424, -0.001849, -0.016634, 0.224688,
]  # fmt: skip
DIGEST = "311bd282498c5185075a74fd866d2d2e966cbdaf01763692c4cb1c0813ab3455"
