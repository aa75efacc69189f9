"""Makes a list of calls that shows a fault as short, and its gradients as simple, as can be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

from fp16sim.testing.bookkeeping import Books, OrderFault
from fp16sim.testing.calls import Call
from fp16sim.testing.walk import Fault

__all__ = ["with_fewer_calls"]

_SIMPLE = (1.0, math.inf)
_SIMPLER = {"clip": "unscale", "unscale": "step"}


def with_fewer_calls(fault: OrderFault, begin: Callable[[], Books]) -> OrderFault:
    """Leave out calls and gradients for as long as there is still a fault, which may become another one.

    Parameters
    ----------
    fault : OrderFault
    begin : callable
        Makes the books of a new scaler.
    """
    groups = begin().groups
    tries: set[tuple[str, ...]] = set()
    improved = True
    while improved:
        improved = False
        for calls in _simpler(fault.calls):
            words = tuple(call.words(groups) for call in calls)
            if words in tries:
                continue
            tries.add(words)
            found = _shown(calls, begin)
            if found is not None and len(found.calls) <= len(fault.calls):
                fault, improved = found, True
                break
    return fault


def _shown(calls: Sequence[Call], begin: Callable[[], Books]) -> OrderFault | None:
    try:
        books = begin()
        for call in calls:
            books.make(call)
    except OrderFault as fault:
        return fault
    except Fault:  # of making the scaler, which no calls can shorten
        return None
    return None


def _simpler(calls: tuple[Call, ...]) -> Iterator[list[Call]]:
    """Give lists with fewer calls, most of them left out first; then with fewer and simpler gradients."""
    count = len(calls)
    for size in range(count - 1, 0, -1):
        for start in range(count - size + 1):
            yield [*calls[:start], *calls[start + size :]]
    yield from _bad_from_the_start(calls)
    for place, (first, second) in enumerate(pairwise(calls)):
        for others in _simpler_pair(first, second):
            yield [*calls[:place], *others, *calls[place + 2 :]]
    for place, call in enumerate(calls):
        for other in _simpler_call(call):
            yield [*calls[:place], other, *calls[place + 1 :]]


def _bad_from_the_start(calls: tuple[Call, ...]) -> Iterator[list[Call]]:
    """Let the backward pass give what is put in its place later."""
    for last, put in enumerate(calls):
        for place, call in enumerate(calls[:last]):
            if put.name == "put" and put.group in call.gradients:
                bad = replace(call, gradients={**call.gradients, put.group: put.number})
                yield [*calls[:place], bad, *calls[place + 1 : last], *calls[last + 1 :]]


def _simpler_pair(first: Call, second: Call) -> Iterator[list[Call]]:
    if first.name == second.name == "backward" and not first.gradients.keys() & second.gradients.keys():
        yield [replace(first, gradients={**first.gradients, **second.gradients})]
    if first.name == second.name and second.group < first.group:
        yield [second, first]


def _simpler_call(call: Call) -> Iterator[Call]:
    if call.name in _SIMPLER:
        yield replace(call, name=_SIMPLER[call.name])
    for group, value in call.gradients.items():
        if len(call.gradients) > 1:
            yield replace(call, gradients={key: each for key, each in call.gradients.items() if key != group})
        for simple in _SIMPLE:
            if value == simple:
                break
            yield replace(call, gradients={**call.gradients, group: simple})
