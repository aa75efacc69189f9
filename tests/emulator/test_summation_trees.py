"""The order of summation is what it says: masked probes (FPRev, arXiv 2411.00442) recover every summation tree.

A probe has M at i, -M at j and a small unit everywhere else. M swallows every unit that is added to it before it
meets -M, so the result counts the units outside the smallest subtree that holds both i and j. From those sizes, for
all pairs, the tree follows. Nothing here looks at how a datapath is written.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import fp16sim as fs
from fp16sim.emulator.datapath import Datapath, as_datapath
from fp16sim.emulator.formats import bfloat16, binary16, binary32, binary64
from fp16sim.emulator.reference_dot import dot

Tree = Any
"""A leaf is its place; a node a tuple of what is summed at once or in any order that does not show."""

Product = Callable[[npt.NDArray[Any], npt.NDArray[Any]], list[float]]


def subtree_sizes(
    product: Product, n: int, big: float, factor: float, unit: float, dtype: Any
) -> npt.NDArray[Any]:
    """Size of the smallest subtree with both i and j, for all pairs; products are ``big * factor`` and the unit's."""
    pairs = [(i, j) for i in range(n) for j in range(i + 1, n)]
    probes = np.full((len(pairs), n), unit / factor)
    for row, (i, j) in zip(probes, pairs, strict=True):
        row[i], row[j] = big, -big
    results = product(probes.astype(dtype), np.full((n, 1), factor).astype(dtype))
    sizes = np.ones((n, n), int)
    for (i, j), result in zip(pairs, results, strict=True):
        left = result / unit
        assert left == int(left), f"probe ({i}, {j}) gave {result!r}, no multiple of the unit"
        sizes[i, j] = sizes[j, i] = n - int(left)
    return sizes


def tree_of(sizes: npt.NDArray[Any], leaves: tuple[int, ...]) -> Tree:
    """Build the tree: two leaves lie under one child of the root where their subtree is smaller than the whole."""
    if len(leaves) == 1:
        return leaves[0]
    children: list[list[int]] = []
    for leaf in leaves:
        home = next((c for c in children if sizes[c[0], leaf] < len(leaves)), None)
        if home is None:
            children.append([leaf])
        else:
            home.append(leaf)
    assert len(children) > 1, "sizes of no tree"
    return tuple(tree_of(sizes, tuple(child)) for child in children)


# The trees that are claimed.


def in_order(leaves: range) -> Tree:
    tree: Tree = leaves[0]
    for leaf in leaves[1:]:
        tree = (tree, leaf)
    return tree


def pairwise(n: int) -> Tree:
    def node(first: int, count: int) -> Tree:
        if count == 1:
            return first
        half = 1
        while 2 * half < count:
            half *= 2
        return (node(first, half), node(first + half, count - half))

    return node(0, n)


def in_pieces(n: int, length: int) -> Tree:
    pieces = [in_order(range(first, min(first + length, n))) for first in range(0, n, length)]
    tree = pieces[0]
    for piece in pieces[1:]:
        tree = (tree, piece)
    return tree


def in_blocks(n: int, block: int) -> Tree:
    """Each block is a node with the tree before it and its leaves for children."""
    tree: Tree = tuple(range(min(block, n))) if n > 1 else 0
    for first in range(block, n, block):
        tree = (tree, *range(first, min(first + block, n)))
    return tree


HALF = {"big": 2.0**15, "factor": 1.0, "unit": 2.0**-20, "dtype": np.float16}
WIDE = {"big": 2.0**15, "factor": 2.0**15, "unit": 2.0**-9, "dtype": np.float16}
BRAIN = {"big": 2.0**30, "factor": 2.0**30, "unit": 1.0, "dtype": bfloat16.dtype}
SINGLE = {"big": 2.0**40, "factor": 2.0**20, "unit": 1.0, "dtype": np.float32}
DOUBLE = {"big": 2.0**40, "factor": 2.0**40, "unit": 1.0, "dtype": np.float64}
EIGHT = {"big": 2.0**15, "factor": 1.0, "unit": 2.0**-16, "dtype": fs.e5m2.dtype}

blocked = partial(Datapath, order="blocked")
CASES: list[tuple[str | Datapath, dict[str, Any], Callable[[int], Tree]]] = [
    ("float32", WIDE, lambda n: in_order(range(n))),
    ("float32", SINGLE, lambda n: in_order(range(n))),
    ("float32", BRAIN, lambda n: in_order(range(n))),
    ("float16", HALF, lambda n: in_order(range(n))),
    ("float16_fma", HALF, lambda n: in_order(range(n))),
    ("float16_kahan", HALF, lambda n: in_order(range(n))),
    ("bfloat16", BRAIN, lambda n: in_order(range(n))),
    ("float64", DOUBLE, lambda n: in_order(range(n))),
    ("pairwise", WIDE, pairwise),
    (Datapath("pairwise16", binary16, order="pairwise"), HALF, pairwise),
    (blocked("blocks of 4", block=4), WIDE, lambda n: in_pieces(n, 4)),
    (blocked("blocks of 5, binary16", binary16, block=5), HALF, lambda n: in_pieces(n, 5)),
    (Datapath("3 pieces", order="split_k", splits=3), WIDE, lambda n: in_pieces(n, -(-n // 3))),
    (Datapath("16 pieces", order="split_k", splits=16), WIDE, lambda n: in_pieces(n, -(-n // 16))),
    *[(name, WIDE, partial(in_blocks, block=as_datapath(name).block))
      for name in ("v100", "turing", "a100", "ada", "h100", "blackwell")],
    *[(f"{name}:float16", HALF, partial(in_blocks, block=as_datapath(name).block))
      for name in ("v100", "turing", "a100", "ada", "h100", "blackwell")],
    ("a100", BRAIN, lambda n: in_blocks(n, 8)),
    ("h100:fp8", EIGHT, lambda n: in_blocks(n, 32)),
]  # fmt: skip
IDS = [
    f"{path if isinstance(path, str) else path.name}-{np.dtype(setting['dtype'])}"
    for path, setting, _ in CASES
]


def by_definition(path: str | Datapath, a: npt.NDArray[Any], b: npt.NDArray[Any]) -> list[float]:
    formats = {np.dtype(np.float64): binary64}
    fmt = formats.get(a.dtype) or fs.as_format(a.dtype)
    model = as_datapath(path).for_operands(fmt)
    target = model.accumulator or binary32
    left, right = a.view(fmt.uint).tolist(), b[:, 0].view(fmt.uint).tolist()
    return [_value(dot(row, right, 0, fmt, model, target).bits, target) for row in left]


def _value(bits: int, fmt: fs.Format) -> float:
    if fmt == binary64:
        return float(np.array([bits], np.uint64).view(np.float64)[0])
    return float(fmt.decode(bits))


def by_matmul(path: str | Datapath, a: npt.NDArray[Any], b: npt.NDArray[Any]) -> list[float]:
    model = as_datapath(path)
    wide = None if a.dtype == np.float64 or model.accumulator != binary32 else "binary32"
    return [float(x) for x in fs.matmul(a, b, path, out_format=wide)[:, 0]]


@pytest.mark.parametrize("path, setting, expected", CASES, ids=IDS)
def test_probes_of_the_definition_recover_the_tree(
    path: str | Datapath, setting: dict[str, Any], expected: Callable[[int], Tree]
) -> None:
    for n in (2, 3, 11, 35 if path == "h100:fp8" else 19):
        sizes = subtree_sizes(partial(by_definition, path), n, **setting)
        assert tree_of(sizes, tuple(range(n))) == expected(n), n


@pytest.mark.parametrize("path, setting, expected", CASES, ids=IDS)
def test_probes_of_matmul_recover_the_tree(
    path: str | Datapath, setting: dict[str, Any], expected: Callable[[int], Tree]
) -> None:
    for n in (2, 19, 37):
        sizes = subtree_sizes(partial(by_matmul, path), n, **setting)
        assert tree_of(sizes, tuple(range(n))) == expected(n), n


def test_an_exact_sum_has_no_tree() -> None:
    for product in (partial(by_definition, "exact"), partial(by_matmul, "exact")):
        sizes = subtree_sizes(product, 9, **{**WIDE, "unit": 2.0**-9})
        assert (sizes[~np.eye(9, dtype=bool)] == 2).all()  # no unit is ever lost


def test_probes_tell_a_planted_order_from_the_right_one() -> None:
    def backwards(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> list[float]:
        return by_definition("float32", np.ascontiguousarray(a[:, ::-1]), b)

    sizes = subtree_sizes(backwards, 9, **WIDE)
    assert tree_of(sizes, tuple(range(9))) != in_order(range(9))
    smaller = subtree_sizes(partial(by_definition, "v100"), 9, **WIDE)
    assert tree_of(smaller, tuple(range(9))) != in_blocks(9, 8)
