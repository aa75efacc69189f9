"""One call of a method of a backend, made in every way that callers may make it, and held to the definition."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from fp16sim.emulator.backends.base import Backend, Outcome
from fp16sim.emulator.backends.threads import set_threads
from fp16sim.emulator.datapath import Datapath
from fp16sim.emulator.formats import Format
from fp16sim.testing.backend import words
from fp16sim.testing.walk import Fault, NotApplicable

__all__ = ["DEFINITION", "BackendCase", "Call", "ElementFault", "Seen", "seen_of", "tried"]

DEFINITION = Backend()
Array = npt.NDArray[Any]
_FILL = 0x5A
_THREADS = (1, 3)


class ElementFault(Fault):
    """A fault that one element shows.

    Attributes
    ----------
    index : int
        Of the element, in the flat result.
    """

    def __init__(self, what: str, index: int) -> None:
        super().__init__("", what)
        self.index = index


class Seen(NamedTuple):
    """What a call gave: results, and if they were asked for flags, and counts by the name of an operation."""

    results: tuple[Array, ...]
    flags: Array | None = None
    counts: tuple[tuple[str, Array], ...] | None = None


def seen_of(given: Any) -> Seen:
    """Read what a method returned, of whichever kind.

    Raises
    ------
    TypeError
        If it is none of them.
    """
    if isinstance(given, np.ndarray):
        return Seen((given,))
    if isinstance(given, Outcome):
        counts = None if given.counts is None else (("", np.asarray(given.counts)),)
        return Seen((np.asarray(given.bits),), given.flags, counts)
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], list):
        results, counted = given
        return Seen(tuple(results), None, tuple((name, np.asarray(counts)) for name, counts in counted))
    raise TypeError(f"it gave a {type(given).__name__}, not what its docstring in Backend says")


@dataclass
class BackendCase:
    """A backend under test.

    Attributes
    ----------
    backend : Backend
    formats : tuple of Format
    datapaths : tuple of Datapath or None
        None: those that have names, and drawn ones.
    examples : int
        How many inputs are drawn for each kind of call.
    done : int
        Calls that were made.
    quick : bool
        Whether flags, counts and parts are left out.
    undone : dict
        Kinds of call that raised NotImplementedError, in their order.
    """

    backend: Any
    formats: tuple[Format, ...]
    datapaths: tuple[Datapath, ...] | None = None
    examples: int = 16
    quick: bool = False
    done: int = 0
    undone: dict[str, None] = field(default_factory=dict)
    _pool: ThreadPoolExecutor | None = None

    def method(self, name: str) -> Callable[..., Any]:
        """Find a method.

        Raises
        ------
        NotApplicable
            If the backend has none of that name.
        """
        found = getattr(self.backend, name, None)
        if not callable(found):
            raise NotApplicable(f"the backend has no method {name!r}")
        return found  # type: ignore[no-any-return]

    def is_plain(self, name: str) -> bool:
        """Whether a method is the definition's own, which is slow."""
        return getattr(type(self.backend), name, None) is getattr(Backend, name)

    def pool(self) -> ThreadPoolExecutor:
        """Give a thread that is not the caller's, until `close`."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "fp16sim-check")
        return self._pool

    @contextmanager
    def quickly(self, quick: bool = True) -> Iterator[None]:
        """Leave out flags, counts and parts for a while."""
        before, self.quick = self.quick, quick
        try:
            yield
        finally:
            self.quick = before

    def close(self) -> None:
        """End that thread."""
        if self._pool is not None:
            self._pool.shutdown()
        self._pool = None


@dataclass(frozen=True)
class Call:
    """A call, what it has to give, and how messages write it.

    Attributes
    ----------
    method : str
    where : str
        Such as ``"add in binary16, nearest_even"``.
    arguments : tuple
        Those before `watch`.
    expected : Seen
        With flags and counts, if the method has them.
    written : callable
        Writes the operands of an element by the number of its result and its flat index in it.
    format : Format
        Of the results.
    watches : tuple of str
        What may be asked beside results; empty if the method does not take it.
    into : bool
        Whether the method may be given an array for its results.
    parts : tuple of (arguments, Seen)
        The same work in several calls.
    """

    method: str
    where: str
    arguments: tuple[Any, ...]
    expected: Seen
    written: Callable[[int, int], str]
    format: Format
    watches: tuple[str, ...] = ("", "counts", "flags")
    into: bool = False
    parts: tuple[tuple[tuple[Any, ...], Seen], ...] = ()

    def fault(self, context: str, rest: str, index: int | None = None) -> Fault:
        """Make a fault of this call, of one element if its index is given."""
        what = f"{self.where}{context}: {rest}"
        return Fault("", what) if index is None else ElementFault(what, index)

    def named(self, result: int, index: int, size: int) -> str:
        """Write the operands of an element, and which it is if there are several."""
        place = f"element {index} of {size}, " if size > 1 else ""
        return place + self.written(result, index)

    def first(self) -> str:
        """Write the operands of the first element, if there is one."""
        sizes = [part.size for part in self.expected.results]
        return self.named(0, 0, sizes[0]) if sizes and sizes[0] else "no elements"


class _NotDone(Exception):
    """The backend does not do this kind of call."""


def tried(case: BackendCase, call: Call) -> None:
    """Make a call in every way and hold each to what is expected; a quick case leaves out flags, counts and parts.

    Raises
    ------
    Fault
        At the first difference.
    """
    try:
        _tried(case, call)
    except _NotDone:
        case.undone[call.where] = None


def _tried(case: BackendCase, call: Call) -> None:
    before = [array.tobytes() for array in _arrays(call.arguments)]
    with _threads(_THREADS[0]):
        first = _performed(case, call, "", call.arguments, "")
        _unchanged(call, before)
        _agree(call, first, call.expected, "", "")
        case.done += 1
        if not case.quick:
            for watch in call.watches[1:]:
                context = f", watch={watch!r}"
                seen = _performed(case, call, context, call.arguments, watch)
                _agree(call, seen, call.expected, watch, context)
            if call.into:
                _into(case, call)
            for arguments, expected in call.parts:
                context = f", as a part of the same work ({_lengths(expected)})"
                seen = _performed(case, call, context, arguments, "")
                _agree(call, seen, expected, "", context, whole=False)
    with _threads(_THREADS[1]):
        _elsewhere(case, call, first)
    _unchanged(call, before)


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
        raise _NotDone from None
    except Exception as error:
        raise call.fault(context, f"{call.first()} raised {type(error).__name__}: {error}") from error
    try:
        return seen_of(given)
    except TypeError as error:
        raise call.fault(context, str(error)) from None


def _agree(call: Call, seen: Seen, expected: Seen, watch: str, context: str, whole: bool = True) -> None:
    """Compare results, flags and counts, bit for bit."""
    if len(seen.results) != len(expected.results):
        raise call.fault(context, f"gave {len(seen.results)} results, not {len(expected.results)}")
    for place, (got, due) in enumerate(zip(seen.results, expected.results, strict=True)):
        if got.dtype != due.dtype or got.shape != due.shape:
            raise call.fault(
                context,
                f"gave {got.dtype} of shape {got.shape}, the definition gives {due.dtype} of shape {due.shape}",
            )
        got, due = _words(got).reshape(-1), _words(due).reshape(-1)
        if (wrong := got != due).any():
            index = int(np.argmax(wrong))
            operands = call.named(place, index, due.size) if whole else f"element {index} of {due.size}"
            pair = (words.hexadecimal(part[index], call.format) for part in (got, due))
            raise call.fault(context, "{} gave {}, the definition gives {}".format(operands, *pair), index)
    if call.watches:
        _agree_on_flags(call, seen.flags, expected.flags if watch == "flags" else None, context)
        _agree_on_counts(call, seen.counts, expected.counts if watch else None, context)


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
            index,
        )


def _agree_on_counts(
    call: Call,
    got: tuple[tuple[str, Array], ...] | None,
    due: tuple[tuple[str, Array], ...] | None,
    context: str,
) -> None:
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


def _into(case: BackendCase, call: Call) -> None:
    """Offer an array for the results: it is filled and returned, or left alone."""
    (due,) = call.expected.results
    context = ", with an array to write into"
    # Beside it lies what belongs to others.
    room = np.full(due.nbytes + 32, _FILL, np.uint8)
    offered = room[16 : 16 + due.nbytes].view(due.dtype).reshape(due.shape)
    seen = _performed(case, call, context, call.arguments, "", offered)
    if due.size and not all(part.size and (part == _FILL).all() for part in (room[:16], room[-16:])):
        raise call.fault(context, f"{call.first()} wrote beside that array")
    (got,) = seen.results
    if np.may_share_memory(got, offered) and due.size:
        same = got.ctypes.data == offered.ctypes.data and got.strides == offered.strides
        if not same or got.shape != offered.shape:
            raise call.fault(context, f"{call.first()} gave a part of that array, or another view of it")
    elif not (offered.reshape(-1).view(np.uint8) == _FILL).all():
        raise call.fault(
            context, f"{call.first()} wrote there and gave another array: callers would not look there"
        )
    _agree(call, seen, call.expected, "", context)


def _elsewhere(case: BackendCase, call: Call, first: Seen) -> None:
    """Call again, on another thread and with another number of threads to divide work among."""
    context = ", a second time, from another thread"
    again = _performed(case, call, context, call.arguments, "", pool=case.pool())
    if _same(first, again):
        return
    here = _performed(case, call, context, call.arguments, "")
    with _threads(_THREADS[0]):
        before = _performed(case, call, context, call.arguments, "")
    why = "differs from call to call"
    if _same(first, before):
        why = "depends on the thread" if _same(first, here) else "depends on the number of threads"
    place, index = _difference(first, again)
    if index < 0:
        raise call.fault("", f"{call.first()}: the shape of the result {why}")
    size = first.results[place].size
    pair = (
        words.hexadecimal(_words(part.results[place]).reshape(-1)[index], call.format)
        for part in (first, again)
    )
    raise call.fault("", "{}: the result {}: {}, then {}".format(call.named(place, index, size), why, *pair))


def _same(one: Seen, other: Seen) -> bool:
    return len(one.results) == len(other.results) and all(
        a.dtype == b.dtype and np.array_equal(_words(a), _words(b))
        for a, b in zip(one.results, other.results, strict=True)
    )


def _difference(one: Seen, other: Seen) -> tuple[int, int]:
    for place, (a, b) in enumerate(zip(one.results, other.results, strict=False)):
        if a.shape == b.shape and (wrong := _words(a) != _words(b)).any():
            return place, int(np.argmax(wrong))
    return 0, -1


def _unchanged(call: Call, before: list[bytes]) -> None:
    for place, (array, kept) in enumerate(zip(_arrays(call.arguments), before, strict=True)):
        if array.tobytes() != kept:
            old = np.frombuffer(kept, array.dtype)
            index = int(np.argmax(_words(old) != _words(array).reshape(-1)))
            pair = (f"{int(part[index]):#x}" for part in (_words(old), _words(array).reshape(-1)))
            raise call.fault("", "{} changed operand {} from {} to {}".format(call.first(), place, *pair))


def _arrays(arguments: tuple[Any, ...]) -> list[Array]:
    """List the arrays among arguments, those in sequences too."""
    found: list[Array] = []
    for argument in arguments:
        parts = argument if isinstance(argument, (list, tuple)) else (argument,)
        found += [part for part in parts if isinstance(part, np.ndarray)]
    return found


def _words(array: Array) -> Array:
    """Look at numbers as integers: a NaN equals itself, and -0 is not +0."""
    return array.view(f"u{array.itemsize}") if array.dtype.kind == "f" else array


def _lengths(expected: Seen) -> str:
    return " and ".join(f"shape {part.shape}" for part in expected.results[:1])


@contextmanager
def _threads(n: int) -> Iterator[None]:
    before = set_threads(n)
    try:
        yield
    finally:
        set_threads(before)
