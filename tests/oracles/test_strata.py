"""Each stratum of operands reaches the edge that it is named for, and often."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import pytest
from fp16sim_oracles import exact, strata
from fp16sim_oracles.exact import INEXACT, INVALID, OVERFLOW, SUBNORMAL, UNDERFLOW

COUNT = 2000
OPERATIONS = ("add", "subtract", "multiply", "divide", "fma")


def shares(name: str, op: str, fmt: str, columns: tuple[Any, ...]) -> dict[str, float]:
    """Give the shares of operands that reach each edge of a stratum."""
    a, b, c = columns
    used = columns if op == "fma" else columns[:2]
    spec = exact.FORMATS[fmt]
    grid = strata.Grid(spec)
    bits, flags = exact.compute(op, fmt, "nearest_even", a, b, c)
    found = {}
    if name == "random":
        found["distinct"] = len(np.unique(a)) / min(COUNT, 2 * grid.sign)
    if name == "special":
        found["nan"] = np.mean(bits == spec.nan)
        found["zero operand"] = np.mean([(x & (grid.sign - 1) == 0).mean() for x in used])
        if spec.infinities:
            found["invalid"] = np.mean(flags & INVALID != 0)
            found["infinite"] = np.mean(bits & (grid.sign - 1) == spec.inf_code)
    if name == "subnormal":
        found["subnormal operand"] = np.mean([(x & (grid.sign - 1) < grid.normal).mean() for x in used])
    if name == "tiny":
        found["subnormal result"] = np.mean(flags & SUBNORMAL != 0)
        if op in ("multiply", "divide", "fma"):
            found["underflow"] = np.mean(flags & UNDERFLOW != 0)
    if name == "tie":
        away, _ = exact.compute(op, fmt, "nearest_away", a, b, c)
        found["ties whose even neighbour is the lower one"] = np.mean(away != bits)
    if name == "cancellation":
        value = grid.value(np.where(bits & (grid.sign - 1) > grid.max, 0, bits).astype(np.int64))
        term = np.abs(grid.value((c if op == "fma" else a).astype(np.int64)))
        found["a quarter or less is left"] = np.mean(np.abs(value) <= term / 4)
    if name == "overflow":
        value = np.where(bits & (grid.sign - 1) > grid.max, grid.max, bits & (grid.sign - 1)).astype(np.int64)
        found["overflow"] = np.mean(flags & OVERFLOW != 0)
        found["just not"] = np.mean((flags & OVERFLOW == 0) & (value >= grid.max - 2))
    if name == "far":
        up, _ = exact.compute(op, fmt, "toward_positive", a, b, c)
        found["inexact"] = np.mean(flags & INEXACT != 0)
        found["only a mode sees it"] = np.mean(((c if op == "fma" else a) == bits) & (up != bits))
    return found


@pytest.mark.parametrize("fmt", list(exact.FORMATS))
@pytest.mark.parametrize("op", OPERATIONS)
def test_every_stratum_reaches_its_edge(op: str, fmt: str) -> None:
    for name in strata.strata(op):
        found = shares(name, op, fmt, strata.stratum(name, op, fmt, COUNT, 1))
        assert found, f"no edge is measured for {name}"
        for edge, share in found.items():
            assert share >= 0.05, f"{op} {fmt} {name}: {share:.1%} reach {edge!r}, 5% should"


@pytest.mark.parametrize("name", ["tie", "cancellation", "overflow", "special", "tiny", "subnormal"])
def test_random_operands_do_not_reach_the_edges(name: str) -> None:
    """The measure tells strata apart: random bits fail the test above."""
    op = "multiply" if name == "tiny" else "add"
    found = shares(name, op, "binary32", strata.stratum("random", op, "binary32", COUNT, 1))
    assert min(found.values()) < 0.05, found


def test_the_two_tininess_rules_part_often_enough() -> None:
    # No quotient lies in the gap: a/b < 1 is at most 1 - 1/(2^p - 1), below the last value of p bits.
    for op in ("multiply", "fma"):
        a, b, c = strata.stratum("tiny", op, "binary16", 20_000, 1)
        _, after = exact.compute(op, "binary16", "nearest_even", a, b, c)
        _, before = exact.compute(op, "binary16", "nearest_even", a, b, c, tininess="before")
        assert np.mean(after != before) >= 0.005, op


@pytest.mark.parametrize("source", ["binary32", "binary64"])
@pytest.mark.parametrize("fmt", list(exact.FORMATS))
def test_conversion_sources_reach_every_edge(fmt: str, source: str) -> None:
    x = strata.sources(fmt, source, 3 * COUNT, 1)
    even, flags = exact.compute("convert", fmt, "nearest_even", x, source=source)
    away, _ = exact.compute("convert", fmt, "nearest_away", x, source=source)
    if (fmt, source) == ("binary32", "binary32"):
        assert not np.any(flags & INEXACT)
        return
    for edge, share in {
        "inexact": np.mean(flags & INEXACT != 0),
        "ties": np.mean(even != away),
        "overflow": np.mean(flags & OVERFLOW != 0),
        "underflow": np.mean(flags & UNDERFLOW != 0),
    }.items():
        assert share >= (0.005 if edge == "underflow" or fmt == "binary32" else 0.01), f"{share:.2%} {edge}"


def test_operands_are_the_same_on_every_machine() -> None:
    columns = strata.operands("fma", "binary16", 800, 2)
    digest = hashlib.sha256(b"".join(column.astype("<u2").tobytes() for column in columns)).hexdigest()
    assert digest[:16] == "713c018d50957343"
