"""One call of a method of a backend, made in every way that callers may make it, and held to the definition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from fp16sim.emulator.backends.threads import set_threads
from fp16sim.testing.backend import words
from fp16sim.testing.backend.agreement import agree, first_difference, same
from fp16sim.testing.backend.calls import Array, Call, Seen, as_integers, seen_of
from fp16sim.testing.backend.case import BackendCase
from fp16sim.testing.raised import described

__all__ = ["tried"]

_FILL = 0x5A
_THREADS = (1, 3)


class _NotDone(Exception):
    """The backend does not make a call in this way, which the message tells behind the call."""


def tried(case: BackendCase, call: Call) -> None:
    """Make a call in every way and hold each to what is expected; a quick case only twice, on this thread.

    Raises
    ------
    Fault
        At the first difference.
    """
    before = [array.tobytes() for array in _arrays(call.arguments)]
    try:
        with _threads(_THREADS[0]):
            first = _performed(case, call, "", call.arguments, "")
    except _NotDone:
        case.undone[call.where] = None
        return
    _unchanged(call, before)
    agree(call, first, "", "")
    case.done += 1
    for way in _ways(case, call, first):
        try:
            way()
        except _NotDone as reason:
            case.undone[f"{call.where}{reason}"] = None
    _unchanged(call, before)


def _ways(case: BackendCase, call: Call, first: Seen) -> Iterator[Callable[[], None]]:
    """Give the other ways to make a call, each of which a backend may not do."""
    if not case.quick:
        yield from (partial(_watched, case, call, watch) for watch in call.watches[1:])
        if call.into:
            yield partial(_into, case, call)
        yield from (partial(_part, case, call, arguments, due) for arguments, due in call.parts)
    yield partial(_again, case, call, first)


def _watched(case: BackendCase, call: Call, watch: str) -> None:
    context = f", watch={watch!r}"
    with _threads(_THREADS[0]):
        agree(call, _performed(case, call, context, call.arguments, watch), watch, context)


def _part(case: BackendCase, call: Call, arguments: tuple[Any, ...], due: Array) -> None:
    context = f", as a part of the same work (shape {due.shape})"
    with _threads(_THREADS[0]):
        agree(call, _performed(case, call, context, arguments, ""), "", context, part=due)


def _performed(
    case: BackendCase,
    call: Call,
    context: str,
    arguments: tuple[Any, ...],
    watch: str,
    into: Array | None = None,
    pool: ThreadPoolExecutor | None = None,
) -> Seen:
    """Call the method as this package's functions do: all arguments by place."""
    method = case.method(call.method)
    asked = (*arguments, watch) if call.watches else arguments
    asked = asked if into is None else (*asked, into)
    try:
        given = method(*asked) if pool is None else pool.submit(method, *asked).result()
    except NotImplementedError:
        raise _NotDone(context) from None
    except Exception as error:
        raise call.fault(context, f"{call.first()} raised {described(error)}") from error
    try:
        return seen_of(given)
    except TypeError as error:
        raise call.fault(context, str(error)) from None


def _into(case: BackendCase, call: Call) -> None:
    """Offer an array for the results: it is filled and returned, or left alone."""
    (due,) = call.expected.results
    context = ", with an array to write into"
    # Beside it lies what belongs to others.
    room = np.full(due.nbytes + 32, _FILL, np.uint8)
    offered = room[16 : 16 + due.nbytes].view(due.dtype).reshape(due.shape)
    with _threads(_THREADS[0]):
        seen = _performed(case, call, context, call.arguments, "", offered)
    if due.size and not all((part == _FILL).all() for part in (room[:16], room[-16:])):
        raise call.fault(context, f"{call.first()} wrote beside that array")
    (got,) = seen.results
    if np.may_share_memory(got, offered) and due.size:
        whole = got.ctypes.data == offered.ctypes.data and got.strides == offered.strides
        if not whole or got.shape != offered.shape:
            raise call.fault(context, f"{call.first()} gave a part of that array, or another view of it")
    elif not (offered.reshape(-1).view(np.uint8) == _FILL).all():
        raise call.fault(
            context, f"{call.first()} wrote there and gave another array: callers would not look there"
        )
    agree(call, seen, "", context)


def _again(case: BackendCase, call: Call, first: Seen) -> None:
    """Call again, with another number of threads to divide work among, and unless quick from another thread."""
    pool = None if case.quick else case.pool()
    context = ", a second time" if case.quick else ", a second time, from another thread"
    with _threads(_THREADS[1]):
        again = _performed(case, call, context, call.arguments, "", pool=pool)
        if same(first, again):
            return
        here = _performed(case, call, context, call.arguments, "")
    with _threads(_THREADS[0]):
        before = _performed(case, call, context, call.arguments, "")
    why = "differs from call to call"
    if same(first, before):
        why = "depends on the thread" if same(first, here) else "depends on the number of threads"
    place, index = first_difference(first, again)
    if index < 0:
        raise call.fault("", f"{call.first()}: the shape of the result {why}")
    operands = call.named(place, index, first.results[place].size)
    pair = (
        words.hexadecimal(as_integers(seen.results[place])[index], call.format) for seen in (first, again)
    )
    raise call.fault("", "{}: the result {}: {}, then {}".format(operands, why, *pair))


def _unchanged(call: Call, before: list[bytes]) -> None:
    for place, (array, kept) in enumerate(zip(_arrays(call.arguments), before, strict=True)):
        if array.tobytes() != kept:
            old, new = as_integers(np.frombuffer(kept, array.dtype)), as_integers(array)
            index = int(np.argmax(old != new))
            raise call.fault(
                "",
                f"{call.first()} changed operand {place} from {int(old[index]):#x} to {int(new[index]):#x}",
            )


def _arrays(arguments: tuple[Any, ...]) -> list[Array]:
    """List the arrays among arguments, those in sequences too."""
    found: list[Array] = []
    for argument in arguments:
        parts = argument if isinstance(argument, (list, tuple)) else (argument,)
        found += [part for part in parts if isinstance(part, np.ndarray)]
    return found


@contextmanager
def _threads(n: int) -> Iterator[None]:
    before = set_threads(n)
    try:
        yield
    finally:
        set_threads(before)
