"""The package against the exact routines, by bits: one block of operands, or a long row of blocks on two threads.

`package` calls the public functions on arrays; `expected` asks `integer` for binary16 and `exact` for the other
formats; `check` compares and reports the first operands that differ.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from itertools import islice
from typing import Any

import ml_dtypes
import numpy as np

import fp16sim as fs
from fp16sim_oracles import exact, integer

THREADS = 2
DTYPES: dict[str, Any] = {
    "binary16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "binary32": np.float32,
    "binary64": np.float64,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
TF32_PADDING = np.uint32(13)
"""A tf32 array is float32 with this many last bits zero."""


def as_array(bits: Any, fmt: str) -> Any:
    """Give encodings as the array that the package takes."""
    if fmt == "tf32":
        return (bits << TF32_PADDING).view(np.float32)
    return bits.view(DTYPES[fmt])


def as_bits(array: Any, fmt: str) -> Any:
    """Give the encodings of an array of the package."""
    if fmt == "tf32":
        assert array.dtype == np.float32
        return array.view(np.uint32) >> TF32_PADDING
    assert array.dtype == DTYPES[fmt], f"{array.dtype} for {fmt}"
    return array.view(exact.FORMATS[fmt].dtype)


def package(
    op: str, fmt: str, mode: str, columns: tuple[Any, ...], source: str | None = None, **options: Any
) -> Any:
    """Give the package's encodings of ``op`` (or ``convert``, from ``source``)."""
    arrays = [as_array(column, source or fmt) for column in columns]
    if op == "convert":
        return as_bits(fs.round_to(arrays[0], fmt, rounding=mode, **options), fmt)
    return as_bits(getattr(fs, op)(*arrays, format=fmt, rounding=mode, **options), fmt)


def expected(
    op: str, fmt: str, mode: str, columns: tuple[Any, ...], source: str | None = None, draws: Any = None
) -> Any:
    """Give the encodings that the exact routines find."""
    route = {"binary32": "from_float32", "binary64": "from_float64"}
    if fmt == "binary16" and (op != "convert" or source in route):
        name = route[source] if op == "convert" and source else op
        return integer.compute(name, mode, *columns, random_bits=draws)[0]
    return exact.compute(op, fmt, mode, *columns, source=source, random_bits=draws)[0]


def assert_same_bits(ours: Any, right: Any, columns: tuple[Any, ...], draws: Any, what: str) -> None:
    """Fail with the first operands whose results differ."""
    wrong = np.flatnonzero(ours != right)
    if wrong.size:
        i = int(wrong[0])
        drawn = "" if draws is None else f" with random bits {int(draws[i]):#x}"
        operands = ", ".join(hex(int(column[i])) for column in columns)
        raise AssertionError(
            f"{what}({operands}){drawn}: {int(ours[i]):#x}, not {int(right[i]):#x}; "
            f"{wrong.size:,} of {len(ours):,} differ"
        )


def check(
    op: str,
    fmt: str,
    mode: str,
    columns: tuple[Any, ...],
    *,
    source: str | None = None,
    draws: Any = None,
) -> int:
    """Compare one operation on one block, by bits; give the number of results."""
    options = {} if mode != "stochastic" else {"random_bits": draws}
    ours = package(op, fmt, mode, columns, source, **options)
    right = expected(op, fmt, mode, columns, source, draws)
    what = f"{op} {source + ' -> ' if source else ''}{fmt} {mode}"
    assert_same_bits(ours, right, columns, draws if mode == "stochastic" else None, what)
    return len(columns[0])


def sweep(what: str, blocks: Iterable[Callable[[], int]]) -> int:
    """Run blocks on two threads (the kernels release the GIL), a few ahead; print what was covered, and when."""
    start, done = time.perf_counter(), 0
    lock = threading.Lock()
    rest = iter(blocks)
    with ThreadPoolExecutor(THREADS) as pool:
        pending = {pool.submit(block) for block in islice(rest, 2 * THREADS)}
        try:
            while pending:
                finished = next(as_completed(pending))
                pending.remove(finished)
                with lock:
                    done += finished.result()
                pending |= {pool.submit(block) for block in islice(rest, 1)}
        finally:
            for future in pending:
                future.cancel()
    seconds = time.perf_counter() - start
    print(f"{what}: {done:,} results, 0 differences, {seconds:.0f} s", flush=True)
    return done


def assert_counted(op: str, columns: tuple[Any, ...], bits: Any, flags: Any) -> None:
    """Compare results and the six counts of a binary16 operation under `count_events`."""
    with fs.count_events() as events:
        ours = package(op, "binary16", "nearest_even", columns)
    assert_same_bits(ours, bits, columns, None, f"{op}, counted")
    for place, name in enumerate(
        ("overflow", "underflow", "subnormal", "invalid", "divide_by_zero", "inexact")
    ):
        right = int(np.count_nonzero(flags & (1 << place)))
        assert getattr(events, name) == right, f"{op}: {getattr(events, name)} {name} counted, not {right}"
