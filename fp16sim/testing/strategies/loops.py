"""Sequences of gradient peaks, for closed loops with a loss scaler."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from hypothesis import strategies as st

from fp16sim.emulator.formats import nearest_name
from fp16sim.scaling.outcomes import ClosedLoop, log2

__all__ = ["closed_loops"]

Peaks = npt.NDArray[np.float64]

_UNITS = ("log2", "linear")
_CONSTANT, _BURST, _TAIL, _WALK, _EDGE, _NAN = "constant", "burst", "tail", "walk", "edge", "nan"
_LONGEST = {_CONSTANT: 40, _BURST: 8, _TAIL: 16, _WALK: 40, _EDGE: 8, _NAN: 3}
_LIMIT = ClosedLoop().limit  # 65520
_QUARTERS = 4
_HEIGHTS = st.integers(-64, 64)
_MOVES = np.array((0, 1, -1, 2, -2))


def closed_loops(
    *,
    units: str = "log2",
    lowest: int = -40,
    highest: int = 24,
    most_parts: int = 6,
    most_steps: int = 200,
    allow_nan: bool = True,
) -> st.SearchStrategy[Peaks]:
    """Draw peaks: the largest magnitude of the unscaled gradients of each step of a run.

    For :func:`fp16sim.scaling.simulate`: whether a step overflows depends on its peak and on the scale that the scaler
    chose. A sequence has parts. In 5% of the sequences or more, each: constant peaks, at a new level; bursts, 4 octaves
    and more above the level; tails, a jump that dies away by an octave a step; walks, up to half an octave a step;
    edges, peaks at which a scale that is a power of two gives 65520 exactly, where binary16 overflows, or the largest
    number below; and steps with a NaN.

    :class:`fp16sim.scaling.PeakModel` gives sequences of a thousand and of a million steps, of random numbers; these
    here are short and shrink.

    Parameters
    ----------
    units : {"log2", "linear"}
        Of the peaks, as in `simulate`. Levels are quarters of an octave in log2, and 1, 1.25, 1.5 or 1.75 times a
        power of two in linear units.
    lowest, highest : int
        Exponents between which peaks lie: from 2^lowest to 2^highest.
    most_parts, most_steps : int
        At most so many; at least one.
    allow_nan : bool
        Whether there are steps with a NaN; a NaN peak is one.

    Returns
    -------
    SearchStrategy of float64 array (steps,)
        Shrinks to one step with peak 1, which is 0.0 in log2, or the nearest that is allowed; fewer parts, shorter
        ones, constant ones.

    Raises
    ------
    TypeError, ValueError
        If an option is none.

    Examples
    --------
    >>> from hypothesis import find, settings
    >>> import fp16sim as fs
    >>> quiet = settings(derandomize=True, database=None, deadline=None)
    >>> find(closed_loops(), lambda peaks: True, settings=quiet)
    array([0.])

    The shortest run in which torch's scaler, 65536 at first, skips two steps: two peaks of 2, in log2 1. The first
    lowers the scale to 32768, under which a peak of 1 would not overflow, and 2 does.

    >>> def skips_twice(peaks):
    ...     return fs.scaling.simulate("torch", peaks).skipped[0] >= 2
    >>> len(find(closed_loops(), skips_twice, settings=quiet))
    2
    """
    if units not in _UNITS:
        raise ValueError(f"unknown units {units!r}: {nearest_name(units, _UNITS)}")
    for name, value in (("lowest", lowest), ("highest", highest)):
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise TypeError(f"{name}={value!r}: it is the exponent of a power of two; pass an integer")
    if not -1000 <= lowest <= highest <= 1000:
        raise ValueError(
            f"lowest={lowest} and highest={highest}: exponents from -1000 to 1000, the lowest first; choose others"
        )
    for name, value in (("most_parts", most_parts), ("most_steps", most_steps)):
        if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
            raise TypeError(f"{name}={value!r}: it is counted; pass an integer, 1 or more")
        if value < 1:
            raise ValueError(f"{name}={value}: a sequence has at least one part and one step; pass 1 or more")
    if not isinstance(allow_nan, (bool, np.bool_)):
        raise TypeError(f"allow_nan={allow_nan!r}: it is allowed or not; pass True or False")
    left_out = ([] if allow_nan else [_NAN]) + ([_EDGE] if lowest == highest else [])
    kinds = [kind for kind in _LONGEST if kind not in left_out]
    return _peaks(units, int(lowest), int(highest), int(most_parts), int(most_steps), tuple(kinds))


@st.composite
def _peaks(
    draw: st.DrawFn,
    units: str,
    lowest: int,
    highest: int,
    most_parts: int,
    most_steps: int,
    kinds: tuple[str, ...],
) -> Peaks:
    low, high = _QUARTERS * lowest, _QUARTERS * highest
    level = min(max(0, low), high)
    parts: list[Peaks] = []
    for kind in draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=most_parts)):
        # As many draws for each kind, or more, as for the simplest: what has fewer is simpler to Hypothesis.
        length, height = draw(st.integers(1, _LONGEST[kind])), draw(_HEIGHTS)
        if kind == _CONSTANT:
            level = min(max(level + height, low), high)
            parts.append(_peaks_of(np.full(length, level), units))
        elif kind == _WALK:
            moves = np.frombuffer(draw(st.binary(min_size=length, max_size=length)), np.uint8)
            walked = np.clip(level + np.cumsum(_MOVES[moves % _MOVES.size]), low, high)
            level = int(walked[-1])
            parts.append(_peaks_of(walked, units))
        elif kind in (_BURST, _TAIL):
            above = 4 * _QUARTERS + abs(height) - _QUARTERS * np.arange(length) * (kind == _TAIL)
            parts.append(_peaks_of(np.clip(level + np.maximum(above, 0), low, high), units))
        elif kind == _EDGE:
            power = draw(st.integers(16 - highest, 15 - lowest))
            parts.append(np.full(length, _at_the_limit(units, power, below=height < 0)))
        else:
            parts.append(np.full(length, math.nan))
    return np.concatenate(parts)[:most_steps]


def _at_the_limit(units: str, power: int, below: bool) -> float:
    """Give the peak that under a scale of 2^power is 65520, or the largest number below it that is told apart."""
    if units == "linear":
        limit = math.nextafter(_LIMIT, 0.0) if below else _LIMIT
        return math.ldexp(limit, -power)
    peak = log2(_LIMIT) - power
    return math.nextafter(peak, -math.inf) if below else peak


def _peaks_of(quarters: npt.NDArray[np.int64], units: str) -> Peaks:
    if units == "log2":
        return quarters / float(_QUARTERS)
    octave, quarter = np.divmod(quarters, _QUARTERS)
    return np.ldexp(1.0 + quarter / float(_QUARTERS), octave)
