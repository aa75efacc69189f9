"""Runs the checks on a backend and reports what each found."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from fp16sim.emulator.backends.base import Backend
from fp16sim.emulator.datapath import Datapath, as_datapath
from fp16sim.emulator.formats import (
    Format,
    as_format,
    bfloat16,
    binary16,
    binary32,
    binary64,
    e4m3,
    e5m2,
    nearest_name,
    tf32,
)
from fp16sim.testing.backend import (
    convolutions,
    elementwise,
    functions,
    index_sums,
    order,
    products,
    programs,
    sums,
)
from fp16sim.testing.backend.case import BackendCase
from fp16sim.testing.backend.check import BackendCheck
from fp16sim.testing.report import Report, Verdict, judged

__all__ = ["BackendCheckError", "backend_checks", "check_backend"]

CHECKS: tuple[BackendCheck, ...] = (
    *elementwise.CHECKS,
    *programs.CHECKS,
    *functions.CHECKS,
    *products.CHECKS,
    *sums.CHECKS,
    *index_sums.CHECKS,
    *order.CHECKS,
    *convolutions.CHECKS,
)
METHODS = tuple(dict.fromkeys(check.method for check in CHECKS))
FORMATS = (
    binary16,
    bfloat16,
    tf32,
    binary32,
    e4m3,
    e5m2,
    binary64,
    Format("two_bits", exponent_bits=2, precision=2),
    Format("no_subnormals", exponent_bits=3, precision=5, subnormals=False),
    Format("small_emax", exponent_bits=4, precision=6, emax=5),
)
"""The formats of a backend that does not say which it knows: the last three are such as users make."""


class BackendCheckError(AssertionError):
    """A backend failed; the message has every failure.

    Attributes
    ----------
    report : Report
    """

    def __init__(self, report: Report) -> None:
        super().__init__("\n".join([report.summary(), *report.reasons()]))
        self.report = report

    def __reduce__(self) -> Any:  # so that it comes back from another process
        return type(self), (self.report,)


def check_backend(
    make: Any,
    *,
    formats: Iterable[Any] | None = None,
    datapaths: Iterable[str | Datapath] | None = None,
    methods: Iterable[str] | None = None,
    expected_failures: Mapping[str, str] | None = None,
    examples: int = 16,
    progress: Callable[[Verdict], object] | None = None,
) -> Report:
    """Test a backend against the definition, method by method, bit for bit.

    The definition is the plain :class:`fp16sim.emulator.backends.Backend`. Each method is given inputs that are drawn,
    the same ones at every run on every machine: signed zeros, subnormals, ties, cancellation, swamping, infinities,
    NaN; in every format, rounding mode and datapath, at sizes around those of vectors and blocks, in every layout that
    it has to take. Products and sums are walked through as well: every number of terms up to two blocks and a term,
    every number of rows and columns up to 17, and 31, 32, 33 and 65; and by each datapath a product of 777 terms. (A
    cumulative sum, of which each beginning may be summed anew, has 17 terms at most.) Results and counts equal the
    definition's, and of what rounds each element once its flags; an array ``into`` is filled and returned, or left
    alone; operands are unchanged; the same work in parts, a second time, from another thread and with another number of
    threads gives the same bits. (What is walked through is called twice, on one thread.) A failure is cut to the
    smallest input found.

    All of it takes a minute or more, see Notes: for a first look name `methods`, or `formats` and `datapaths`.

    Parameters
    ----------
    make : Backend, or callable that gives one
        An object with the methods of ``Backend``, which need not be a subclass of it. A method that it lacks, or that
        raises NotImplementedError in every call, is reported as not applicable; where it raises that in some calls,
        the verdict names them.
    formats : iterable of Format or str, optional
        Default: the attribute `formats` of the backend if it has one; otherwise the six that have names, binary64, and
        three such as users make.
    datapaths : iterable of Datapath or str, optional
        Default: those that have names, and drawn ones.
    methods : iterable of str, optional
        Methods or checks to run, such as ``"matmul"`` or ``"elementwise.add"``. Default: all.
    expected_failures : mapping of check to reason
        Checks that are known to fail. One that passes is an error.
    examples : int
        How many inputs are drawn for each kind of call; more take longer and find more.
    progress : callable, optional
        Is given each :class:`fp16sim.testing.Verdict` as soon as it is found, such as
        ``lambda verdict: print(verdict.lines())``.

    Returns
    -------
    Report

    Raises
    ------
    BackendCheckError
        With all failures.
    ValueError
        On an unknown name, and on an expected failure of a check that does not run.
    TypeError
        If `make` gives nothing that looks like a backend.

    Notes
    -----
    Times of the package's own CPU backend, which passes: all checks took 60 seconds of one core, longest ``"matmul"``
    with 11; ``formats=["binary16"]`` took 16 seconds, with ``datapaths=["float16"]`` 6, and with ``methods=["matmul"]``
    too 0.4. A backend that is slow itself takes longer: half of these times is spent on the definition. A check that
    fails ends at its first fault in each format or datapath, and cuts the first of them by at most 2,000 inputs.

    Examined at every size are the datapaths that have names, or those of `datapaths`; of the others, which are drawn,
    the sizes are drawn as well.

    Examples
    --------
    A backend whose rectifier leaves -0 as it is:

    >>> import numpy as np
    >>> from fp16sim.emulator.backends.base import Backend
    >>> class Mine(Backend):
    ...     def relu(self, bits, fmt):
    ...         return np.where(bits == fmt.sign_bit, bits, super().relu(bits, fmt))
    >>> try:
    ...     check_backend(Mine, formats=["binary16"], methods=["relu", "maximum_of"])
    ... except BackendCheckError as error:
    ...     print(error)
    1 of 2 checks failed: 1 passed
    relu: relu in binary16: 0x8000 (-0) gave 0x8000, the definition gives 0x0000
    >>> known = {"relu": "-0 may stay here"}
    >>> report = check_backend(Mine, formats=["binary16"], methods=["relu"], expected_failures=known)
    >>> report.verdicts[0].status
    'failed as expected'
    """
    if progress is not None and not callable(progress):
        raise TypeError(f"progress={progress!r}: pass what takes a Verdict, such as print, or None")
    case = _case(make, formats, datapaths, examples)
    chosen = _chosen(methods)
    expected = _expected(expected_failures or {}, chosen)
    verdicts = []
    for check in chosen:
        verdicts.append(judged(check.name, None, partial(check, case), expected.get(check.name)))
        if progress is not None:
            progress(verdicts[-1])
    report = Report(tuple(verdicts))
    if report.failures:
        raise BackendCheckError(report)
    return report


@dataclass(frozen=True)
class _Bound:
    """A check as a test of one backend."""

    check: BackendCheck

    def __call__(
        self,
        make: Any,
        *,
        formats: Iterable[Any] | None = None,
        datapaths: Iterable[str | Datapath] | None = None,
        examples: int = 16,
    ) -> str:
        """Examine a backend, with arguments as those of :func:`check_backend`; give a note of what it does not do."""
        return self.check(_case(make, formats, datapaths, examples))


def backend_checks() -> Iterator[tuple[str, Callable[..., str]]]:
    """Give all checks, as (name, check); ``check(make)`` examines one backend.

    It raises :class:`fp16sim.testing.Fault`, or ``unittest.SkipTest`` where it does not apply, which pytest reports as
    a skip. Other arguments are those of :func:`check_backend`.

    >>> from fp16sim.emulator.backends.base import Backend
    >>> dict(backend_checks())["relu"](Backend)
    ''
    """
    for check in CHECKS:
        yield check.name, _Bound(check)


def _case(make: Any, formats: Any, datapaths: Any, examples: int) -> BackendCase:
    backend = make() if isinstance(make, type) or (callable(make) and not _looks_like_one(make)) else make
    if not _looks_like_one(backend):
        raise TypeError(
            f"a {type(backend).__name__} is no backend: pass an object with methods of Backend, or what makes one"
        )
    if isinstance(examples, bool) or not isinstance(examples, int) or examples < 1:
        raise ValueError(f"examples={examples!r}: at least one is drawn; pass a positive integer")
    known = getattr(backend, "formats", FORMATS) if formats is None else formats
    paths = None if datapaths is None else tuple(as_datapath(path) for path in _several(datapaths))
    return BackendCase(backend, tuple(dict.fromkeys(map(_format, _several(known)))), paths, examples)


def _format(spec: Any) -> Format:
    return binary64 if spec in ("binary64", binary64) else as_format(spec)


def _several(given: Any) -> Iterable[Any]:
    return (given,) if isinstance(given, (str, Format, Datapath)) else given


def _looks_like_one(thing: Any) -> bool:
    return isinstance(thing, Backend) or any(callable(getattr(thing, name, None)) for name in METHODS)


def _chosen(methods: Iterable[str] | None) -> list[BackendCheck]:
    if methods is None:
        return list(CHECKS)
    asked = list(_several(methods))
    valid = [*METHODS, *(check.name for check in CHECKS)]
    for name in asked:
        if name not in valid:
            raise ValueError(f"unknown method {name!r}: {nearest_name(name, valid)}")
    return [check for check in CHECKS if check.name in asked or check.method in asked]


def _expected(given: Mapping[str, str], chosen: list[BackendCheck]) -> dict[str, str]:
    """Read expected failures: of checks that run, each with a reason."""
    if not isinstance(given, Mapping):
        raise TypeError(
            f"expected_failures is a {type(given).__name__}: pass a mapping of check to reason, such as "
            "{'matmul': 'issue 12'}"
        )
    names = [check.name for check in CHECKS]
    running = [check.name for check in chosen]
    for name, reason in given.items():
        if name not in names:
            raise ValueError(f"unknown check {name!r}: {nearest_name(str(name), names)}")
        if name not in running:
            raise ValueError(
                f"{name} is expected to fail and does not run: add {name!r} to methods, or take it out of "
                "expected_failures"
            )
        if not isinstance(reason, str) or not reason.strip():
            raise ValueError(f"{name} is expected to fail for the reason {reason!r}: say why in words")
    return dict(given)
