"""Exponent histograms against scalar counting, and shares against rounding itself."""

import json
import math

import numpy as np
import pytest

from fp16sim.recording.histogram import Histogram, Shares, measure


def spread(seed, count=4000):
    rng = np.random.default_rng(seed)
    values = (rng.normal(size=count) * np.exp2(rng.integers(-45, 10, count))).astype(np.float32)
    values[:50] = 0
    values[50:120] = np.exp2(rng.integers(-40, 5, 70))
    values[120:160] = -np.exp2(np.float32(-25))
    return values


def test_counts_equal_scalar_counting():
    values = np.concatenate([spread(0), np.float32([np.inf, -np.inf, np.nan, -0.0])])
    histogram = Histogram()
    histogram.add(values.reshape(4, -1))
    counts, powers = {}, {}
    for value in values.tolist():
        if value and math.isfinite(value):
            mantissa, exponent = math.frexp(abs(value))
            counts[exponent - 1] = counts.get(exponent - 1, 0) + 1
            if mantissa == 0.5:
                powers[exponent - 1] = powers.get(exponent - 1, 0) + 1
    assert histogram.counts == counts
    assert histogram.powers == powers
    assert (histogram.zeros, histogram.infinities, histogram.nans) == (51, 2, 1)
    assert histogram.total == values.size


@pytest.mark.parametrize("scale", [2.0**-3, 1.0, 8.0, 1024.0, 2.0**30])
def test_shares_are_those_of_rounding(scale):
    values = spread(1)
    histogram = Histogram()
    histogram.add(values)
    with np.errstate(over="ignore"):
        rounded = (values.astype(np.float64) * scale).astype(np.float16)  # one rounding to nearest even
    zero = (values == 0).mean()
    flushed = ((values != 0) & (rounded == 0)).mean()
    assert histogram.shares(scale) == Shares(
        zero, flushed, (values.size - (rounded == 0).sum()) / values.size
    )
    assert measure(values, scale) == tuple(
        round(share * values.size) for share in (zero, flushed, (rounded != 0).mean())
    )


def test_the_edge_of_flushing():
    """2^-25 vanishes, its upper neighbour does not: the histogram must tell them apart."""
    for value, share in ((2.0**-25, 1.0), (np.nextafter(np.float32(2.0**-25), np.float32(1)), 0.0)):
        histogram = Histogram()
        histogram.add([value])
        assert histogram.shares(1.0).flushed == share


def test_subnormal_float32_values_have_their_own_exponents():
    histogram = Histogram()
    histogram.add(np.float32([2.0**-149, 3 * 2.0**-149]))
    assert histogram.counts == {-149: 1, -148: 1}


def test_dividing_the_scale_out():
    scaled, plain = Histogram(), Histogram()
    values = spread(2)
    plain.add(values)
    scaled.add(values.astype(np.float64) * 2.0**13, scale=2.0**13)
    assert scaled == plain


def test_merge_and_json():
    a, b, both = Histogram(), Histogram(), Histogram()
    a.add(spread(3))
    b.add(np.append(spread(4), [np.nan, np.inf]))
    both.add(spread(3))
    both.add(np.append(spread(4), [np.nan, np.inf]))
    merged = a.merge(b)
    assert merged == both
    restored = Histogram.from_json(merged.to_json())
    assert restored == merged
    assert json.loads(merged.to_json())["nans"] == 1


@pytest.mark.parametrize("scale", [3.0, 0.0, -8.0, math.inf, math.nan])
def test_only_powers_of_two_are_exact(scale):
    histogram = Histogram()
    histogram.add([1.0])
    with pytest.raises(ValueError, match="powers of two"):
        histogram.shares(scale)


def test_refusals():
    with pytest.raises(ValueError, match="empty"):
        Histogram().shares(1.0)
    with pytest.raises(ValueError, match="not a histogram"):
        Histogram.from_dict({"counts": {}})
    with pytest.raises(ValueError, match=r"not a histogram .*integer, 0 or more"):
        Histogram.from_dict(Histogram().to_dict() | {"zeros": 1.5})


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"counts": {-31: -5}}, r"counts\[-31\]=-5: .*an integer, 0 or more"),
        ({"counts": {-31: 5.0}}, r"counts\[-31\]=5.0"),
        ({"counts": {-31.5: 5}}, "counts has the exponent -31.5: keys are the integers"),
        ({"powers": {"-31": 5}}, "powers has the exponent '-31'"),
        ({"zeros": -1}, "zeros=-1"),
        ({"infinities": True}, "infinities=True"),
        ({"nans": 0.5}, "nans=0.5"),
    ],
)
def test_counts_are_checked(fields, message):
    with pytest.raises(ValueError, match=message):
        Histogram(**fields)
    assert Histogram(counts={np.int64(-31): np.int64(5)}).total == 5


@pytest.mark.parametrize(
    ("call", "kind", "says"),
    [
        (
            lambda: Histogram(counts=[1]),
            TypeError,
            "counts is a list: pass a dict of exponent to number of values",
        ),
        (
            lambda: Histogram(powers="x"),
            TypeError,
            "powers is a str: pass a dict of exponent to number of values",
        ),
        (
            lambda: Histogram(counts={0: 1}).shares("x"),
            ValueError,
            "scale='x': an exponent histogram answers exactly",
        ),
        (
            lambda: Histogram(counts={0: 1}).shares(2**5000),
            ValueError,
            "an exponent histogram answers exactly",
        ),
        (
            lambda: Histogram().add([1.0], 0),
            ValueError,
            "scale=0: the values are divided by it; pass the loss scale",
        ),
        (lambda: Histogram().add([1.0], -8.0), ValueError, "scale=-8.0: the values are divided by it"),
        (lambda: Histogram().add([1.0], math.inf), ValueError, "scale=inf: the values are divided by it"),
        (lambda: Histogram().add([1.0], math.nan), ValueError, "scale=nan: the values are divided by it"),
        (lambda: Histogram().add([1.0], "2"), ValueError, "scale='2': the values are divided by it"),
        (
            lambda: Histogram().add(["x"]),
            ValueError,
            r"values that are no numbers \(.*\): pass an array of gradients",
        ),
        (
            lambda: Histogram().add([[1.0], 2.0]),
            ValueError,
            r"values that are no numbers \(.*\): pass an array",
        ),
        (lambda: Histogram().merge({}), TypeError, "merge of a dict: pass another Histogram"),
        (
            lambda: Histogram.from_json("x"),
            ValueError,
            r"^not JSON \(.*\): pass what Histogram.to_json wrote$",
        ),
        (lambda: Histogram.from_json(5), ValueError, r"^not JSON \(.*\): pass what Histogram.to_json wrote$"),
    ],
)
def test_a_mistake_is_said_with_the_rule(call, kind, says):
    with pytest.raises(kind, match=says):
        call()


def test_a_scale_of_numpy_is_a_number():
    histogram = Histogram()
    histogram.add([8.0], np.float32(8.0))
    histogram.add([8.0], np.int64(8))
    assert histogram.counts == {0: 2}
    assert histogram.shares(np.float64(8.0)) == histogram.shares(8) == Shares(0.0, 0.0, 1.0)
