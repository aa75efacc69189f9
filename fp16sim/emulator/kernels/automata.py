"""Walks of many sequences through one table of transitions, three ways out of each state."""

from fp16sim.emulator.kernels.jit import jit

__all__ = ["APPLIES", "STOPS", "walk"]

APPLIES, STOPS = 1, 2
"""Bits of a mark: the step counts as applied; the sequence ends with it."""


@jit
def walk(peaks, outcomes, closed, begin, end, factor, bound, scale, log, following, marks,
         state, position, missing, stopped, counts, extremes, total, path):  # fmt: skip
    """Take sequences `begin` to `end` as far as the table goes.

    In state s, a number x of `peaks` goes out at 0 if x * factor[s] < bound[s], at 2 if it is NaN, else at 1; without
    `closed`, `outcomes` holds 0, 1 and 2. ``following[3 s + way out]`` is the next state; if that is negative the
    sequence waits there, the edge in `missing`, and goes on from there in the next call. An edge that stops it leaves
    -2 - edge there. `counts` has the steps
    applied and the steps that did not go out at 0; `extremes` and `total` the smallest and largest `scale` and the sum
    of `log` over the states that were left. Edges are written to `path` if it has room.
    """
    steps = peaks.shape[1] if closed else outcomes.shape[1]
    tracing = path.shape[1] > 0
    for h in range(begin, end):
        s, t = state[h], position[h]
        missing[h] = -1
        if stopped[h] >= 0:
            continue
        applied, bad = counts[h, 0], counts[h, 1]
        low, high, sum_of_logs = extremes[h, 0], extremes[h, 1], total[h]
        while t < steps:
            if closed:
                x = peaks[h, t]
                # A product with NaN compares as false.
                out = 0 if x * factor[s] < bound[s] else (1 if x == x else 2)
            else:
                out = outcomes[h, t]
            edge = 3 * s + out
            n = following[edge]
            if n < 0:
                missing[h] = edge
                break
            mark = marks[edge]
            applied += mark & 1
            bad += out != 0
            now = scale[s]
            low = now if now < low else low
            high = now if now > high else high
            sum_of_logs += log[s]
            if tracing:
                path[h, t] = edge
            s = n
            t += 1
            if mark & 2:
                stopped[h] = t - 1
                missing[h] = -2 - edge
                break
        state[h], position[h] = s, t
        counts[h, 0], counts[h, 1] = applied, bad
        extremes[h, 0], extremes[h, 1], total[h] = low, high, sum_of_logs
