"""Whether what a call gave is what it has to give, bit for bit, and how a difference is told."""

from __future__ import annotations

import numpy as np

from fp16sim.testing.backend import words
from fp16sim.testing.backend.calls import Array, Call, Counts, Seen, as_integers

__all__ = ["agree", "first_difference", "same"]


def agree(call: Call, seen: Seen, watch: str, context: str, part: Array | None = None) -> None:
    """Hold what was seen to what is due to a call, where `watch` was asked for; or to a part of its results.

    Raises
    ------
    Fault
        At the first difference.
    """
    due = call.expected.results if part is None else (part,)
    if len(seen.results) != len(due):
        raise call.fault(context, f"gave {len(seen.results)} results, not {len(due)}")
    for place, (got, right) in enumerate(zip(seen.results, due, strict=True)):
        _agree_on_bits(call, place, got, right, context, part is None)
    if call.watches:
        _agree_on_flags(call, seen.flags, call.expected.flags if watch == "flags" else None, context)
        _agree_on_counts(call, seen.counts, call.expected.counts if watch else None, context)


def _agree_on_bits(call: Call, place: int, got: Array, due: Array, context: str, whole: bool) -> None:
    if got.dtype != due.dtype or got.shape != due.shape:
        raise call.fault(
            context,
            f"gave {got.dtype} of shape {got.shape}, the definition gives {due.dtype} of shape {due.shape}",
        )
    got, due = as_integers(got), as_integers(due)
    if (wrong := got != due).any():
        index = int(np.argmax(wrong))
        operands = call.named(place, index, due.size) if whole else f"element {index} of {due.size}"
        pair = (words.hexadecimal(part[index], call.format) for part in (got, due))
        raise call.fault(context, "{} gave {}, the definition gives {}".format(operands, *pair))


def _agree_on_flags(call: Call, got: Array | None, due: Array | None, context: str) -> None:
    if (got is None) != (due is None):
        raise call.fault(context, "gave flags that nobody asked for" if due is None else "gave no flags")
    if got is None or due is None:
        return
    if got.dtype != due.dtype or got.shape != due.shape:
        raise call.fault(context, f"flags are {got.dtype} of shape {got.shape}, not uint8 of {due.shape}")
    if (wrong := got != due).any():
        index = int(np.argmax(wrong))
        raise call.fault(
            context,
            f"{call.named(0, index, due.size)} raised {words.raised(got[index])}, the definition raises "
            f"{words.raised(due[index])}",
        )


def _agree_on_counts(call: Call, got: Counts | None, due: Counts | None, context: str) -> None:
    if not got and not due:  # a program without counts has an empty list of them
        return
    if not got or not due:
        raise call.fault(context, "gave counts that nobody asked for" if not due else "gave no counts")
    names = [[name for name, _ in part] for part in (got, due)]
    if names[0] != names[1]:
        raise call.fault(context, f"counted for {names[0]}, the definition for {names[1]}")
    for (name, mine), (_, right) in zip(got, due, strict=True):
        if mine.shape != right.shape or mine.dtype != right.dtype:
            raise call.fault(
                context, f"counts are {mine.dtype} of shape {mine.shape}, not int64 of {right.shape}"
            )
        if not np.array_equal(mine, right):
            step = f"{name}: " if name else ""
            raise call.fault(
                context,
                f"{step}{call.first()} counted {words.counted(mine)}; the definition counts {words.counted(right)}",
            )


def same(one: Seen, other: Seen) -> bool:
    """Whether two calls gave the same results."""
    return len(one.results) == len(other.results) and all(
        a.dtype == b.dtype and a.shape == b.shape and np.array_equal(as_integers(a), as_integers(b))
        for a, b in zip(one.results, other.results, strict=True)
    )


def first_difference(one: Seen, other: Seen) -> tuple[int, int]:
    """Give the number of the result, and the flat index in it, where two calls differ first; index -1 for a shape."""
    for place, (a, b) in enumerate(zip(one.results, other.results, strict=False)):
        if a.shape == b.shape and (wrong := as_integers(a) != as_integers(b)).any():
            return place, int(np.argmax(wrong))
    return 0, -1
