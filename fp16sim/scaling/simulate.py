"""Thousands of histories at once under one scaler: what the object does step by step, without the object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.backends import Backend, current
from fp16sim.emulator.formats import Format, nearest_name
from fp16sim.scaling.one_scale import need_one_scale
from fp16sim.scaling.outcomes import FINITE, NAN, OVERFLOW, ClosedLoop
from fp16sim.scaling.registry import as_scaler
from fp16sim.scaling.simulation import Simulation, Trace
from fp16sim.scaling.stepwise import stepwise

__all__ = ["reads_sizes", "simulate"]

Array = npt.NDArray[Any]

_LETTERS = {".": FINITE, "o": OVERFLOW, "n": NAN}
_LETTER_EACH = "'.' is a finite step, 'o' an overflow, 'n' a NaN"
_RUNS = (
    "simulate takes a letter for each step; for o{3} pass 'o' * 3, or let fp16sim.testing.histories.expanded(text) "
    "write out what the checks print"
)


def simulate(
    scaler: Any,
    histories: Any,
    *,
    units: str = "log2",
    format: str | Format = "binary16",
    trace: bool = False,
    method: str | None = None,
) -> Simulation:
    """Run a loss scaler over many histories at once.

    Parameters
    ----------
    scaler : object with `scale` and `update`, or str
        Any with one scale for all gradients; text is read by :func:`fp16sim.scaling.parse`. It is told the kind of
        each step, finite, overflow or NaN, and no `amax`.
    histories : array (n, steps) or (steps,), text, sequence of texts, or iterator of blocks
        *Open loop*, the kinds are given: booleans, true where the step overflowed, or text of ``.`` finite, ``o``
        overflow, ``n`` NaN. *Closed loop*, they depend on the scale: float32 or float64 peaks, the largest magnitude
        of the unscaled gradients of each step. NaN is a step with a NaN; a step overflows where the peak times the
        scale does, see `units`. An iterator gives blocks of n histories, one after the other in time, and may go on
        for any number of steps.
    units : {"log2", "linear"}
        Of the peaks. ``"linear"``: a step overflows unless peak * scale, a binary64 product, is below the smallest
        magnitude that rounds to infinity (65520 in binary16); exact for float32 peaks and scales. ``"log2"``, the
        default: unless the peak is below log2 of that magnitude minus log2(scale), a binary64 difference; log2 of a
        power of two is exact.
    format : str or Format
        In which a scaled gradient overflows.
    trace : bool
        Whether to keep every step. Without, memory does not depend on the number of steps (beyond the array that is
        passed), which may be millions.
    method : {"automaton", "objects"}, optional
        Default: ``"automaton"``. The states that the scaler meets are numbered, `update` is asked once for each state
        and kind of step, and compiled code walks all histories through the table of answers; so it equals the objects
        on every step, your own scaler included, provided `update` is a function of the scaler's fields and of the
        observation. ``"objects"``: `update` at every step, in Python. It is the default for openseq2seq_logmax, which
        depends on the size of every gradient and needs a closed loop.

    Returns
    -------
    Simulation

    Raises
    ------
    ValueError, TypeError
        If histories are neither, lie in more than two dimensions, or differ in length; if the scaler has a scale for
        each group, as adaptive, delayed, fairscale_layerwise and unit have; if its `update` gives what is no next
        scaler with a decision, or ends the process.

    Notes
    -----
    A history ends with the first decision that says stop, as training does.

    The table is filled as states are met, and closes: with a window of 2000 torch's rule has some ten thousand states.
    A rule whose states hardly ever come back (guided_diffusion adds to an exponent at every step, chainer multiplies by
    a root of 2; fairseq with a tolerance counts overflows, metaseq clean steps) runs at the speed of the objects, in
    bounded memory.

    Examples
    --------
    >>> simulate("torch,growth_interval=2", "oo...o.", trace=True).trace.scale.tolist()
    [[65536.0, 32768.0, 16384.0, 16384.0, 32768.0, 32768.0, 16384.0]]
    >>> found = simulate("torch", np.full((3, 1000), 1.0))  # peaks of 2^1
    >>> found.final_scale.tolist(), found.skipped.tolist()
    ([16384.0, 16384.0, 16384.0], [2, 2, 2])
    """
    scaler, loop = as_scaler(scaler), ClosedLoop(units, format)
    need_one_scale(scaler)
    reads_amax = reads_sizes(scaler)
    if method is None:
        plain = type(current()) is Backend  # it computes by the definition, here as elsewhere
        method = "objects" if reads_amax or plain else "automaton"
    if method not in ("automaton", "objects"):
        raise ValueError(f"unknown method {method!r}: {nearest_name(method, ['automaton', 'objects'])}")
    if reads_amax and method == "automaton":
        raise ValueError(
            f"{type(scaler).__name__} depends on the size of every gradient: use method='objects'"
        )
    if method == "objects":
        return stepwise(scaler, _blocks(histories, units), loop, trace, reads_amax)
    return _walked(scaler, _blocks(histories, units), loop, trace)


def reads_sizes(scaler: Any) -> bool:
    """Whether a scaler of this package depends on the size of every gradient, so that it needs peaks."""
    from fp16sim.scaling.openseq2seq import OpenSeq2SeqLogMaxScaler

    return isinstance(scaler, OpenSeq2SeqLogMaxScaler)


def _walked(scaler: Any, blocks: Iterator[Array], loop: ClosedLoop, trace: bool) -> Simulation:
    from fp16sim.scaling.automaton import Automaton  # loads numba

    automaton = Automaton(scaler, loop)
    first = next(blocks)
    n = len(first)
    walkers = automaton.walkers(n)
    steps, first_stop = np.zeros(n, np.int64), np.full(n, -1, np.int64)
    paths = []
    for block in chain([first], blocks):
        path = np.full(block.shape, -1, np.int32) if trace else None
        running = first_stop < 0
        automaton.advance(block, walkers, path)
        ended = running & (walkers.stopped >= 0)
        first_stop[ended] = steps[ended] + walkers.stopped[ended]
        steps += walkers.position
        if path is not None:
            paths.append(path)
    low, high = (np.where(steps > 0, walkers.extremes[:, side], np.nan) for side in (0, 1))
    applied = walkers.counts[:, 0]
    with np.errstate(invalid="ignore"):
        mean = walkers.total / steps
    return Simulation(
        steps=steps,
        applied=applied,
        skipped=steps - applied,
        overflows=walkers.counts[:, 1],
        first_stop=first_stop,
        stop_reasons=[automaton.stop_reasons.get(history) for history in range(n)],
        lowest=low,
        highest=high,
        mean_log2_scale=mean,
        final_scale=automaton.scale[walkers.state],
        scalers=[automaton.states[state] for state in walkers.state.tolist()],
        trace=_trace(automaton, np.concatenate(paths, axis=1)) if trace else None,
    )


def _trace(automaton: Any, path: npt.NDArray[np.int32]) -> Trace:
    taken, kind = path >= 0, path % 3
    return Trace(
        scale=np.where(taken, automaton.scale[path // 3], np.nan),
        divide_by=np.where(taken, automaton.divide_by[path], np.nan),
        applied=taken & automaton.applies[path],
        overflow=taken & (kind != FINITE),
        nan=taken & (kind == NAN),
    )


def _blocks(histories: Any, units: str) -> Iterator[Array]:
    """Give blocks (n, steps) of the same n: peaks, or kinds of steps as uint8."""
    first: Array | None = None
    for given in histories if isinstance(histories, Iterator) else (histories,):
        block = _block(given)
        first = block if first is None else first
        if len(block) != len(first) or (block.dtype == np.uint8) != (first.dtype == np.uint8):
            raise ValueError(
                f"a block of shape {block.shape} and dtype {block.dtype} after one of shape {first.shape} and dtype "
                f"{first.dtype}: blocks follow in time, with the same histories in each"
            )
        if units == "linear" and block.dtype != np.uint8 and (block < 0).any():
            raise ValueError(
                f"a peak of {block[block < 0][0]}: linear peaks are magnitudes, 0 or more; pass units='log2' for their "
                "logarithms"
            )
        yield block
    if first is None:
        raise ValueError("no block of histories: the iterator gives one or more")


def _block(histories: Any) -> Array:
    if isinstance(histories, str):
        return _kinds([histories])
    if isinstance(histories, Sequence) and any(isinstance(part, str) for part in histories):
        return _kinds(histories)
    try:
        array = np.asarray(histories)
    except ValueError:  # not a box of numbers
        sizes = sorted({len(row) if isinstance(row, Sized) else 1 for row in histories})
        several = (
            f"of {' and of '.join(map(str, sizes[:2]))} steps" if len(sizes) > 1 else "of different shapes"
        )
        raise ValueError(f"histories {several}: make them equally long, or simulate apart") from None
    if array.ndim == 1:
        array = array[np.newaxis]
    if array.ndim != 2:
        raise ValueError(f"histories of shape {array.shape}: pass (histories, steps), or (steps,) for one")
    if array.dtype == np.bool_:
        return np.ascontiguousarray(array).view(np.uint8)
    if array.dtype.kind == "f" and array.itemsize <= 8:
        wide = np.float64 if array.itemsize == 8 else np.float32
        return np.ascontiguousarray(array, dtype=wide)
    raise TypeError(
        f"histories of dtype {array.dtype}: pass booleans (which steps overflowed), text such as 'oo...o.', or peaks "
        "as float32 or float64"
    )


def _kinds(texts: Sequence[Any]) -> Array:
    for text in texts:
        wrong = sorted(set(text) - set(_LETTERS)) if isinstance(text, str) else [text]
        if {"{", "}"} <= set(wrong):
            raise ValueError(f"'{{' in a history: {_RUNS}")
        if wrong:
            raise ValueError(f"{wrong[0]!r} in a history: {_LETTER_EACH}")
        if len(text) != len(texts[0]):
            raise ValueError(
                f"histories of {len(texts[0])} and of {len(text)} steps: make them equally long, or simulate apart"
            )
    return np.array([[_LETTERS[letter] for letter in text] for text in texts], np.uint8).reshape(
        len(texts), -1
    )
