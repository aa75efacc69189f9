"""Operations and their gradients held to torch 2.13 on a CPU, over shapes that broadcast.

Tolerances are in units of the largest magnitude of the array that is compared, since elements that are small
differences of large terms carry the errors of those terms:

- float64: 1e-12 where both compute the same formula in float64 (a few hundred roundings of 1.1e-16 at most);
- float32: torch's own functions (exp, sin, ...) err by up to 2 ulps, ours by half a one; with the multiplications of
  the gradient 4 ulps (2^-23 each) are allowed, and one for each term of a sum, whose order differs.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as shapes

from fp16sim.autograd import ops
from fp16sim.autograd.operation import Op, run
from fp16sim.autograd.tensor import Tensor

pytestmark = pytest.mark.oracle

ULP = 2.0**-23
few = settings(derandomize=True, deadline=None, max_examples=25)
seeds = st.integers(0, 2**16)


def draw(seed: int, shape: tuple[int, ...], dtype: Any, domain: str = "any") -> Any:
    rng = np.random.default_rng([seed, *shape])
    values = rng.uniform(0.25, 3.0, shape)
    if domain == "any":
        values = values * rng.choice([-1.0, 1.0], shape)
    return values.astype(dtype)


def both(
    torch: Any, ours: Callable[..., Tensor], theirs: Callable[..., Any], arrays: list[Any], seed: int
) -> Any:
    """Give pairs of arrays: the results, and the gradients of each operand."""
    torch.set_num_threads(1)
    mine = [Tensor(array.copy(), requires_grad=True) for array in arrays]
    other = [torch.tensor(array, requires_grad=True) for array in arrays]
    result, expected = ours(*mine), theirs(*other)
    g = draw(seed + 1, result.shape, result.dtype)
    result.backward(g)
    expected.backward(torch.tensor(g))
    yield result.data, expected.detach().numpy()
    for a, b in zip(mine, other, strict=True):
        yield a.grad, b.grad.numpy()


def check(pairs: Any, terms: int = 1) -> None:
    for found, expected in pairs:
        assert found.dtype == expected.dtype
        assert found.shape == expected.shape
        if not found.size:
            continue
        unit = 1e-12 if found.dtype == np.float64 else (4 + terms) * ULP
        special = ~np.isfinite(expected)
        np.testing.assert_array_equal(found[special], expected[special])
        if not special.all():
            scale = np.abs(expected[~special]).max()
            assert np.abs(found[~special] - expected[~special]).max() <= unit * scale


def torch_of(torch: Any, name: str) -> Any:
    return getattr(torch, {"absolute": "abs"}.get(name, name))


ONE = [
    ("absolute", "any"), ("cos", "any"), ("erf", "any"), ("exp", "any"), ("expm1", "any"), ("log", "positive"),
    ("log1p", "positive"), ("reciprocal", "any"), ("rsqrt", "positive"), ("sin", "any"), ("sqrt", "positive"),
    ("square", "any"),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("name", "domain"), ONE)
@few
@given(shape=shapes.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5), seed=seeds)
def test_functions(torch: Any, name: str, domain: str, dtype: Any, shape: tuple[int, ...], seed: int) -> None:
    array = draw(seed, shape, dtype, domain)
    check(both(torch, getattr(ops, name), torch_of(torch, name), [array], seed))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("exponent", [0, 1, 2, 3, -1, 0.5, -0.5, 1.7])
@few
@given(shape=shapes.array_shapes(max_dims=2, max_side=4), seed=seeds)
def test_powers(torch: Any, exponent: float, dtype: Any, shape: tuple[int, ...], seed: int) -> None:
    array = draw(seed, shape, dtype, "positive")
    check(both(torch, lambda x: x**exponent, lambda x: torch.pow(x, exponent), [array], seed))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "divide", "maximum", "minimum"])
@few
@given(
    broadcast=shapes.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=4),
    seed=seeds,
    ties=st.booleans(),
)
def test_two_operands(torch: Any, name: str, dtype: Any, broadcast: Any, seed: int, ties: bool) -> None:
    arrays = [draw(seed + i, shape, dtype) for i, shape in enumerate(broadcast.input_shapes)]
    if ties:  # equal operands, where the gradient of maximum is shared
        arrays = [np.ceil(array) for array in arrays]
        arrays = [np.where(array == 0, 1, array).astype(dtype) for array in arrays]
    terms = int(np.prod(broadcast.result_shape))
    check(both(torch, getattr(ops, name), getattr(torch, name), arrays, seed), terms)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@few
@given(broadcast=shapes.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, max_side=4), seed=seeds)
def test_where(torch: Any, dtype: Any, broadcast: Any, seed: int) -> None:
    where, *rest = broadcast.input_shapes
    condition = draw(seed, where, dtype) > 0
    arrays = [draw(seed + i, shape, dtype) for i, shape in enumerate(rest, 1)]
    check(
        both(
            torch,
            lambda a, b: ops.where(condition, a, b),
            lambda a, b: torch.where(torch.tensor(condition), a, b),
            arrays,
            seed,
        ),
        int(np.prod(broadcast.result_shape)),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("low", "high"), [(-1.0, 1.0), (None, 1.0), (-1.0, None)])
@few
@given(shape=shapes.array_shapes(max_dims=2), seed=seeds)
def test_clip(torch: Any, low: Any, high: Any, dtype: Any, shape: tuple[int, ...], seed: int) -> None:
    array = draw(seed, shape, dtype)
    array.reshape(-1)[::3] = 1.0  # on the bound, where the gradient passes
    check(both(torch, lambda x: ops.clip(x, low, high), lambda x: torch.clamp(x, low, high), [array], seed))


def dimensions(shape: tuple[int, ...]) -> Any:
    """Every choice of axes, None among them."""
    axes = range(len(shape))
    several = [choice for n in range(2, len(shape) + 1) for choice in itertools.combinations(axes, n)]
    return st.sampled_from([None, *axes, *(-1 - n for n in axes), *several])


REDUCTIONS: dict[str, Callable[[Any, Any, Any, bool], Any]] = {
    "sum": lambda torch, x, dim, keep: torch.sum(x, dim, keep),
    "mean": lambda torch, x, dim, keep: torch.mean(x, dim, keep),
    "variance": lambda torch, x, dim, keep: torch.var(x, dim, correction=1, keepdim=keep),
    "norm": lambda torch, x, dim, keep: torch.linalg.vector_norm(x, 2, dim, keep),
    "logsumexp": lambda torch, x, dim, keep: torch.logsumexp(x, dim, keep),
    "amax": lambda torch, x, dim, keep: torch.amax(x, dim, keep),
    "amin": lambda torch, x, dim, keep: torch.amin(x, dim, keep),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", REDUCTIONS)
@few
@given(
    data=st.data(),
    shape=shapes.array_shapes(max_dims=3, min_side=2, max_side=5),
    seed=seeds,
    keep=st.booleans(),
)
def test_reductions(
    torch: Any, name: str, dtype: Any, data: Any, shape: tuple[int, ...], seed: int, keep: bool
) -> None:
    axis = data.draw(dimensions(shape))
    array = draw(seed, shape, dtype)
    if name in ("amax", "amin"):
        array = np.round(array)  # ties, among which the gradient is shared
    every = tuple(range(len(shape)))
    check(
        both(
            torch,
            lambda x: getattr(ops, name)(x, axis, keepdims=keep),
            lambda x: REDUCTIONS[name](torch, x, every if axis is None else axis, keep),
            [array],
            seed,
        ),
        array.size,
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@few
@given(data=st.data(), shape=shapes.array_shapes(max_dims=3, max_side=5), seed=seeds)
def test_cumsum(torch: Any, dtype: Any, data: Any, shape: tuple[int, ...], seed: int) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    array = draw(seed, shape, dtype)
    pairs = both(torch, lambda x: ops.cumsum(x, axis), lambda x: torch.cumsum(x, axis), [array], seed)
    check(pairs, array.size)


@few
@given(data=st.data(), shape=shapes.array_shapes(max_dims=3, max_side=4), seed=seeds)
def test_places_of_extremes(torch: Any, data: Any, shape: tuple[int, ...], seed: int) -> None:
    axis = data.draw(st.one_of(st.none(), st.integers(-len(shape), len(shape) - 1)))
    array = draw(seed, shape, np.float32)  # no ties: torch promises no place among equals
    for name in ("argmax", "argmin"):
        expected = getattr(torch, name)(torch.tensor(array), axis).numpy()
        np.testing.assert_array_equal(getattr(ops, name)(Tensor(array), axis), expected)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@few
@given(data=st.data(), shape=shapes.array_shapes(max_dims=3, max_side=4), seed=seeds)
def test_indexing(torch: Any, dtype: Any, data: Any, shape: tuple[int, ...], seed: int) -> None:
    """Of torch's indexing what NumPy shares: no negative steps, and arrays of integers without slices between."""
    forward = st.builds(slice, st.integers(0, 3), st.integers(1, 4), st.integers(1, 2))
    key = data.draw(
        st.one_of(
            st.tuples(*(st.one_of(st.integers(-n, n - 1), forward) for n in shape)),
            shapes.integer_array_indices(shape, result_shape=shapes.array_shapes(max_dims=2, max_side=4)),
            st.just((None, ..., 0)),
            shapes.arrays(np.bool_, shape),
        )
    )
    array = draw(seed, shape, dtype)
    as_torch = key if isinstance(key, tuple) else (key,)
    as_torch = tuple(torch.tensor(item) if isinstance(item, np.ndarray) else item for item in as_torch)
    check(both(torch, lambda x: x[key], lambda x: x[as_torch], [array], seed), array.size)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@few
@given(data=st.data(), shape=shapes.array_shapes(min_dims=2, max_dims=3, max_side=4), seed=seeds)
def test_rearrangements(torch: Any, dtype: Any, data: Any, shape: tuple[int, ...], seed: int) -> None:
    array, other = draw(seed, shape, dtype), draw(seed + 7, shape, dtype)
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    order = tuple(data.draw(st.permutations(range(len(shape)))))
    width = data.draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
    zero = (0, 0)
    pairs: list[tuple[Any, Any, list[Any]]] = [
        (lambda a, b: ops.concatenate([a, b], axis), lambda a, b: torch.cat([a, b], axis), [array, other]),
        (lambda a, b: ops.stack([a, b], axis), lambda a, b: torch.stack([a, b], axis), [array, other]),
        (lambda a: ops.transpose(a, order), lambda a: a.permute(order), [array]),
        (lambda a: ops.swapaxes(a, 0, axis), lambda a: a.transpose(0, axis), [array]),
        (lambda a: ops.expand_dims(a, axis), lambda a: a.unsqueeze(axis), [array]),
        (lambda a: ops.squeeze(a), lambda a: a.squeeze(), [array]),
        (lambda a: ops.flatten(a, 1), lambda a: a.flatten(1), [array]),
        (lambda a: ops.flip(a, axis), lambda a: a.flip(axis), [array]),
        (lambda a: ops.broadcast_to(a, (3, *shape)), lambda a: a.broadcast_to((3, *shape)), [array]),
        (
            lambda a: ops.pad(a, [zero] * (len(shape) - 1) + [width], 0.5),
            lambda a: torch.nn.functional.pad(a, width, value=0.5),
            [array],
        ),
    ]
    for ours, theirs, arrays in pairs:
        check(both(torch, ours, theirs, arrays, seed), 3)


def test_values_at_the_edges(torch: Any) -> None:
    """NaN, infinities and zeros: results and gradients are of the same kind."""
    special = np.float32([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 3e38, 1e-40])
    for name, _ in ONE:
        if name == "absolute":  # an infinite gradient at 0: ours stays 0 there, torch's is inf * 0
            continue
        x, y = Tensor(special, requires_grad=True), torch.tensor(special, requires_grad=True)
        getattr(ops, name)(x).backward(np.ones_like(special))
        torch_of(torch, name)(y).backward(torch.ones(len(special)))
        for found, expected in (
            (getattr(ops, name)(x).data, torch_of(torch, name)(y).detach().numpy()),
            (x.grad, y.grad),
        ):
            np.testing.assert_array_equal(np.isnan(found), np.isnan(np.asarray(expected)), err_msg=name)
            np.testing.assert_array_equal(np.isinf(found), np.isinf(np.asarray(expected)), err_msg=name)


def test_ties_and_nan_of_extremes(torch: Any) -> None:
    for values in ([1.0, 1.0, 0.0], [np.nan, 1.0, 2.0], [0.0, -0.0, -1.0], [np.inf, np.inf, 1.0]):
        array = np.float32(values)
        for name in ("amax", "amin"):
            for found, expected in both(torch, getattr(ops, name), getattr(torch, name), [array], 3):
                np.testing.assert_array_equal(found, expected)
        for name in ("maximum", "minimum"):
            for found, expected in both(
                torch, getattr(ops, name), getattr(torch, name), [array, np.float32([1.0, np.nan, -0.0])], 3
            ):
                np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("factor", [1 + 1e-5, -1.0, 0.0])
def test_the_comparison_sees_a_wrong_gradient(torch: Any, factor: float) -> None:
    """Planted: an exponential whose gradient is off by more than the tolerance, in both formats."""
    row = Op(
        "exp",
        lambda arithmetic, a: (result := arithmetic.function("exp", a), (result,)),
        lambda context, g: (g * context.saved[0] * g.dtype.type(factor),),
    )
    for dtype in (np.float32, np.float64):
        with pytest.raises(AssertionError):
            check(both(torch, lambda x: run(row, x), torch.exp, [draw(0, (3,), dtype)], 0))
