"""half_arrays() and gradients(): classes of their elements, shrinking to few elements and zeros, shapes, dtypes."""

from __future__ import annotations

import inspect
import time

import numpy as np
import pytest
from fp16sim_draws import draws, rare, shares, smallest
from hypothesis import strategies as st
from hypothesis.extra import numpy as extra

from fp16sim import testing
from fp16sim.testing import strategies
from fp16sim.testing.strategies import gradients, half, half_arrays
from fp16sim.testing.strategies.halves import OPTIONS

MAGNITUDES = {
    "smallest subnormal": lambda m: m == 1,
    "subnormal": lambda m: (m > 0) & (m < 0x400),
    "smallest normal": lambda m: m == 0x400,
    "power of two": lambda m: (m >= 0x400) & (m < 0x7C00) & (m % 0x400 == 0),
    "largest": lambda m: m == 0x7BFF,
    "infinity": lambda m: m == 0x7C00,
    "NaN": lambda m: m > 0x7C00,
}


def bits(a):
    return a.view(np.uint16)


def element_shares(arrays, classes) -> dict[str, float]:
    elements = np.concatenate([a.ravel() for a in arrays])
    found = {name: float(np.mean(belongs(elements))) for name, belongs in classes.items()}
    for name, share in found.items():
        print(f"  {name:<40} {share:6.1%} of elements")
    return found


def test_each_edge_is_one_of_twenty_elements_of_dense_arrays() -> None:
    drawn = draws(half_arrays(64), 500)
    dense = [a for a in drawn if np.count_nonzero(a) > 32]
    assert len(dense) > 200
    classes = {name: lambda a, f=f: f(bits(a) & 0x7FFF) for name, f in MAGNITUDES.items()}
    classes |= {"0.0": lambda a: bits(a) == 0, "-0.0": lambda a: bits(a) == 0x8000}
    assert rare(element_shares(dense, classes)) == {}
    assert np.unique(bits(np.concatenate(drawn))).size > 2000


def test_arrays_are_dense_or_sparse_and_have_each_edge() -> None:
    classes = {name: lambda a, f=f: f(bits(a) & 0x7FFF).any() for name, f in MAGNITUDES.items()}
    classes |= {
        "all zeros": lambda a: not bits(a).any(),
        "a few that are not zero": lambda a: 0 < np.count_nonzero(bits(a)) < 8,
        "most not zero": lambda a: np.count_nonzero(bits(a)) > 10,
        "all finite": lambda a: np.isfinite(a).all(),
    }
    assert rare(shares(draws(half_arrays(20)), classes)) == {}


def test_arrays_shrink_to_few_elements_and_zeros() -> None:
    any_shape = extra.array_shapes(min_dims=1, max_dims=2, max_side=40)
    found = smallest(half_arrays(any_shape), lambda a: (a == 2.0**-24).any())
    assert found.shape == (1,)
    assert bits(found).tolist() == [1]
    found = smallest(half_arrays(1000), lambda a: np.isinf(a).any())
    assert np.flatnonzero(bits(found)).tolist() == [0]
    assert found[0] == np.inf
    found = smallest(half_arrays((5, 5)), lambda a: (a > 1000).sum() >= 2)
    assert np.count_nonzero(bits(found)) == 2
    assert (found[found != 0] <= 2048).all()
    assert not bits(smallest(half_arrays(2000), lambda a: True)).any()


@pytest.mark.parametrize("shape", [0, 7, (), (2, 3), (0, 4), (3, 1025)])
def test_shapes(shape) -> None:
    for a in draws(half_arrays(shape), 10) + draws(gradients(shape, dtype="float16"), 10):
        assert a.shape == ((shape,) if isinstance(shape, int) else shape)
        assert a.dtype == np.float16
        assert a.flags.writeable


def test_options_of_half_hold_for_each_element() -> None:
    options = {"min_value": 1, "max_value": 8}
    assert all(((a >= 1) & (a <= 8)).all() for a in draws(half_arrays(50, elements=options), 100))
    assert smallest(half_arrays(3, elements=options), lambda a: True).tolist() == [1, 1, 1]
    finite = draws(half_arrays(50, elements={"allow_nan": False, "allow_infinity": False}), 100)
    assert np.isfinite(finite).all()


def test_elements_of_another_strategy() -> None:
    assert np.isin(draws(half_arrays(5, elements=st.sampled_from([1.0, 3.0])), 50), (1, 3)).all()


@pytest.mark.parametrize("elements", [None, {"allow_nan": False}, half(0, 1)])
def test_unique_elements(elements) -> None:
    for a in draws(half_arrays(st.integers(0, 40), unique=True, elements=elements), 50):
        values = a.tolist() if elements is not None and not isinstance(elements, dict) else bits(a).tolist()
        assert len(set(values)) == a.size
    every = {"payloads": True}
    assert np.unique(bits(draws(half_arrays(2**16, unique=True, elements=every), 2)[-1])).size == 2**16


def test_unique_elements_shrink_to_the_simplest() -> None:
    found = smallest(half_arrays(4, unique=True), lambda a: True)
    assert found.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        ((-1,), {}, ValueError, "shape=-1: sides are integers, 0 or more"),
        (((2, 1.5),), {}, TypeError, r"shape=\(2, 1.5\): sides are integers"),
        ((True,), {}, TypeError, "shape=True: sides are integers"),
        ((3,), {"unique": 1}, TypeError, "unique=1: elements differ or not"),
        ((3,), {"elements": 5}, TypeError, "elements=5: pass options of half"),
        ((3,), {"elements": {"min_value": 2, "max_value": 1}}, ValueError, "leave no number of binary16"),
        (
            (30,),
            {"unique": True, "elements": {"min_value": 1, "max_value": 1.01}},
            ValueError,
            "30 unique elements",
        ),
    ],
)
def test_impossible_arrays_are_refused_before_a_draw(arguments, options, error, message) -> None:
    with pytest.raises(error, match=message):
        half_arrays(*arguments, **options)


GRADIENTS = {
    "zero": lambda g: g == 0,
    "subnormal in binary16": lambda g: (abs(g) >= 2.0**-24) & (abs(g) < 2.0**-14),
    "flushed by binary16": lambda g: (abs(g) >= 2.0**-64) & (abs(g) <= 2.0**-24),
    "subnormal in float32": lambda g: (abs(g) > 0) & (abs(g) < 2.0**-126),
    "large": lambda g: (abs(g) >= 2.0**10) & (abs(g) <= 2.0**16),
    "infinite": np.isinf,
    "NaN": np.isnan,
    "negative": lambda g: g < 0,
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_each_kind_of_gradient_is_one_of_twenty(dtype) -> None:
    drawn = [g for g in draws(gradients(64, dtype=dtype, allow_nan=True, allow_infinity=True), 500)
             if np.count_nonzero(g) > 32]  # fmt: skip
    assert len(drawn) > 200
    assert all(g.dtype == dtype for g in drawn)
    classes = {
        k: v
        for k, v in GRADIENTS.items()
        if dtype != "float16" or k not in ("flushed by binary16", "subnormal in float32")
    }
    with np.errstate(over="ignore"):  # 2^16 as float16
        assert rare(element_shares(drawn, classes)) == {}


def test_gradients_spread_over_many_powers_of_two() -> None:
    exponents = [np.frexp(g[g != 0])[1] for g in draws(gradients(64), 300) if np.count_nonzero(g) > 32]
    inner = [np.ptp(np.quantile(e, (0.1, 0.9))) for e in exponents]
    assert np.median(inner) > 20
    middles = {int(np.median(e)) for e in exponents}
    assert len(middles) > 10


def test_gradients_are_finite_unless_allowed() -> None:
    assert np.isfinite(draws(gradients(64), 100)).all()
    assert np.isfinite(np.array(draws(gradients(64, dtype="float16"), 100))).all()
    assert not np.isnan(draws(gradients(64, allow_infinity=True), 100)).any()


def test_gradients_shrink_to_zeros_and_powers_of_two() -> None:
    any_size = st.integers(1, 200)
    assert smallest(gradients(any_size), lambda g: True).tolist() == [0.0]
    assert smallest(gradients(any_size), lambda g: (g != 0).any()).tolist() == [1.0]
    assert smallest(gradients(100), lambda g: (g != 0).any()).tolist() == [1.0] + [0.0] * 99
    lost = smallest(gradients(any_size), lambda g: ((g != 0) & (abs(g) <= 2.0**-25)).any())
    assert lost.tolist() == [2.0**-25]
    assert np.isnan(smallest(gradients(any_size, allow_nan=True), lambda g: np.isnan(g).any())).tolist() == [
        True
    ]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"dtype": "int32"}, ValueError, "dtype='int32': gradients are drawn as float32"),
        (
            {"dtype": "float17"},
            ValueError,
            "dtype='float17': gradients are drawn as float32, .*; pass one of these",
        ),
        ({"dtype": None}, ValueError, "dtype=None: gradients are drawn as float32"),
        ({"dtype": 5}, ValueError, "dtype=5: gradients are drawn as float32"),
        ({"allow_nan": None}, TypeError, "allow_nan=None: they are allowed or not"),
        ({"shape": -3}, ValueError, "shape=-3: sides are integers"),
    ],
)
def test_impossible_gradients_are_refused_before_a_draw(options, error, message) -> None:
    with pytest.raises(error, match=message):
        gradients(**{"shape": 3, **options})


def test_an_option_that_half_lacks_is_told_with_the_nearest() -> None:
    with pytest.raises(
        TypeError, match=r"elements has 'allow_nann', and half\(\) no such option: did you mean 'allow_nan'"
    ):
        half_arrays(3, elements={"allow_nann": False})
    assert list(inspect.signature(half).parameters) == list(OPTIONS)


def test_a_name_that_the_package_lacks_is_told_with_the_nearest() -> None:
    for module, name, near in ((strategies, "halfs", "half"), (testing, "check_scalar", "check_scaler")):
        with pytest.raises(
            AttributeError, match=rf"{module.__name__} has no '{name}': did you mean '{near}'\?"
        ):
            getattr(module, name)


@pytest.mark.slow
def test_a_thousand_elements_take_milliseconds() -> None:
    start = time.process_time()
    draws(half_arrays(1000), 200)
    each = (time.process_time() - start) / 200
    print(f"half_arrays(1000): {1000 * each:.1f} ms of CPU an array")
    assert each < 0.05
