"""The rectifier and the largest value, against their definitions, and against NumPy's comparisons."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from fp16sim_encodings import STYLES, draw

from fp16sim.emulator.backends import Backend, current
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32, binary64, e4m3, e5m2, tf32

Array = npt.NDArray[Any]
FAST = (binary16, bfloat16, binary32, binary64)
FORMATS = (*FAST, e4m3, e5m2, tf32, Format("binary16", 4, 5), Format("no_subnormals", 3, 5, subnormals=False))
SHAPES = [(1, 1, 1), (3, 5, 1), (2, 100, 1), (2, 3, 4), (1, 2, 1030), (0, 3, 2), (2, 3, 0), (0, 0, 4)]
DEFINITION = Backend()


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: f"{fmt.name}_{fmt.width}")
def test_they_equal_their_definitions(fmt: Format) -> None:
    rng = np.random.Generator(np.random.PCG64(fmt.width))
    for shape in SHAPES if fmt in FAST else SHAPES[:4]:  # the others take the definition
        for style in STYLES:
            bits = draw(rng, fmt, shape, style)
            expected = DEFINITION.relu(bits, fmt)
            assert expected.shape == shape
            assert np.array_equal(current().relu(bits, fmt), expected)
            if shape[1]:
                expected = DEFINITION.maximum_of(bits, fmt)
                got = current().maximum_of(bits, fmt)
                assert got.dtype == fmt.uint
                assert np.array_equal(got, expected)
                strided = np.ascontiguousarray(bits.transpose(2, 1, 0)).transpose(2, 1, 0)
                assert np.array_equal(current().maximum_of(strided, fmt), expected)
                assert np.array_equal(current().relu(strided, fmt), current().relu(bits, fmt))


@pytest.mark.parametrize("fmt", [binary16, bfloat16], ids=lambda fmt: fmt.name)
def test_every_16_bit_float(fmt: Format) -> None:
    every = np.arange(65536, dtype=np.uint16)
    values = every.view(fmt.dtype).astype(np.float32)
    expected = np.where(values > 0, every, np.uint16(0))
    expected[np.isnan(values)] = fmt.nan_bits
    assert np.array_equal(current().relu(every, fmt), expected)
    # Beside each value, one that it has to be told from.
    for other in (
        0,
        1,
        fmt.sign_bit,
        fmt.sign_bit | 1,
        fmt.inf_bits,
        fmt.sign_bit | (fmt.inf_bits or 0),
        fmt.max_bits,
    ):
        pairs = np.stack([every, np.full(65536, other, np.uint16)], 1)
        wide = pairs.view(fmt.dtype).astype(np.float32)
        largest = np.where(wide[:, 0] > wide[:, 1], pairs[:, 0], pairs[:, 1])
        largest[wide[:, 0] == wide[:, 1]] = pairs.min(1)[wide[:, 0] == wide[:, 1]]  # equal, or zeros: +0
        largest[np.isnan(wide).any(1)] = fmt.nan_bits
        for order in (pairs, pairs[:, ::-1]):
            assert np.array_equal(current().maximum_of(order[:, :, np.newaxis], fmt)[:, 0], largest)
            assert np.array_equal(current().maximum_of(order.T[np.newaxis], fmt)[0], largest)


@pytest.mark.parametrize("fmt", FAST, ids=lambda fmt: fmt.name)
def test_special_values(fmt: Format) -> None:
    minus, nan = fmt.sign_bit, fmt.nan_bits
    infinity = fmt.inf_bits or 0
    bits = np.array(
        [0, minus, 1, minus | 1, infinity, minus | infinity, nan, minus | nan, infinity | 1], fmt.uint
    )
    for backend in (DEFINITION, current()):
        assert backend.relu(bits, fmt).tolist() == [0, 0, 1, 0, infinity, 0, nan, nan, nan]
        rows = [
            [minus, 0],
            [0, minus],
            [minus, minus],
            [minus | 1, minus],
            [minus | infinity] * 2,
            [minus | nan, infinity],
        ]
        largest = backend.maximum_of(np.array(rows, fmt.uint)[:, :, np.newaxis], fmt)
        assert largest[:, 0].tolist() == [0, 0, minus, minus, minus | infinity, nan]


def test_nothing_has_no_largest_value() -> None:
    for backend in (DEFINITION, current()):
        with pytest.raises(ValueError, match="maximum of no values") as caught:
            backend.maximum_of(np.empty((2, 0, 3), np.uint16), binary16)
        assert "\n" not in str(caught.value)


def test_a_wrong_order_would_be_seen() -> None:
    """As integers, -1 is above 1 and NaN above all: the samples have to notice."""
    bits = draw(np.random.Generator(np.random.PCG64(2)), binary16, (50, 6, 1), "any")
    assert not np.array_equal(bits.max(1), DEFINITION.maximum_of(bits, binary16))
    assert not np.array_equal(
        bits.view(np.int16).max(1).view(np.uint16), DEFINITION.maximum_of(bits, binary16)
    )
