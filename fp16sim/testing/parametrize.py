"""The checks of scalers as tests of pytest."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fp16sim.emulator.formats import nearest_name
from fp16sim.extras import not_installed
from fp16sim.testing.case import Make, need_factory
from fp16sim.testing.checking import claimed_checks, expected_reasons, need_reasons
from fp16sim.testing.checks import Check
from fp16sim.testing.factories import factory_of
from fp16sim.testing.search import need_hypothesis
from fp16sim.testing.traits import as_traits
from fp16sim.testing.walk import Fault

__all__ = ["ClaimedCheck", "parametrize_scalers"]


@dataclass(frozen=True, repr=False)
class ClaimedCheck:
    """A check, and what is claimed of the scalers that it is called with.

    Attributes
    ----------
    check : Check
    traits : mapping

    Examples
    --------
    A call may claim more: ``check(make, traits=["groups"])``.
    """

    check: Check
    traits: Mapping[str, Any]

    def __post_init__(self) -> None:
        object.__setattr__(self, "__doc__", self.check.__doc__)

    def __repr__(self) -> str:
        return self.name

    @property
    def name(self) -> str:
        """That of the check."""
        return self.check.name

    def __call__(self, make: Make | str, traits: Iterable[Any] | Mapping[str, Any] = ()) -> None:
        """Examine a scaler of which `traits` are claimed besides, see :class:`fp16sim.testing.checks.check.Check`."""
        __tracebackhide__ = True
        self.check(make, {**self.traits, **as_traits(traits)})


def parametrize_scalers(
    factories: Iterable[Make | str] | Mapping[str, Make | str],
    *,
    traits: Iterable[Any] | Mapping[str, Any] = (),
    expected_failures: Mapping[str, Any] | None = None,
) -> Any:
    """Make a test of pytest run once for each scaler and check.

    Parameters
    ----------
    factories : iterable, or mapping of name to factory
        Functions or classes that make a new scaler at each call; or text, as for ``fp16sim scalers --check``. Without
        names the functions' own are the ids of the tests.
    traits : iterable of names and mappings
        What is claimed of all of them, see :func:`fp16sim.testing.check_scaler`.
    expected_failures : mapping of check to reason, or of name to such a mapping
        Checks that are known to fail, of all scalers, or of those of a name. They are strict xfails.

    Returns
    -------
    decorator
        For a function ``test(make, check)``. A check that is not applicable skips, with its reason.

    Raises
    ------
    ImportError
        Without pytest or Hypothesis.
    ValueError
        On an unknown trait, an unknown check in `expected_failures`, or a factory that cannot be found.
    TypeError
        On what is no list of factories, nor of traits, or no mapping of expected failures.

    Examples
    --------
    >>> @parametrize_scalers({"mine": "robust,growth_interval=20"}, traits=["power_of_two"])
    ... def test_scaler(make, check):
    ...     check(make)
    """
    pytest = _pytest()
    need_hypothesis("parametrize_scalers")
    claimed, named = as_traits(traits), _named(factories)
    checks, given = claimed_checks(claimed), _expected(expected_failures, named)
    for_all = {name: reason for name, reason in given.items() if name not in named}
    for name, reasons in for_all.items():
        if isinstance(reasons, Mapping):
            raise ValueError(
                f"expected_failures[{name!r}]: no factory is called {name!r}: {nearest_name(name, list(named))}"
            )
    parameters = []
    for name, make in named.items():
        expected = expected_reasons({**for_all, **given.get(name, {})}, checks)
        for check in checks:
            marks = (
                [pytest.mark.xfail(reason=expected[check.name], strict=True, raises=Fault)]
                if check.name in expected
                else []
            )
            values = (make, ClaimedCheck(check, claimed))
            parameters.append(pytest.param(*values, id=f"{name}-{check.name}", marks=marks))
    return pytest.mark.parametrize(("make", "check"), parameters)


def _expected(given: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    """Read what is expected to fail: of all scalers, by the checks, and of one by its name."""
    reasons = {} if given is None else given
    need_reasons(reasons)
    for name in named:
        if name in reasons:
            need_reasons(reasons[name], f"expected_failures[{name!r}]")
    return dict(reasons)


def _named(factories: Any) -> dict[str, Callable[[], Any]]:
    if isinstance(factories, (str, bytes)) or callable(factories):
        raise TypeError(f"{factories!r} is one factory: pass a list of them")
    if not isinstance(factories, Iterable):
        raise TypeError(f"factories={factories!r}: pass a list of functions, or classes, that make a scaler")
    found: dict[str, Callable[[], Any]] = {}
    pairs = factories.items() if isinstance(factories, Mapping) else ((None, each) for each in factories)
    for place, (name, given) in enumerate(pairs):
        make = factory_of(given) if isinstance(given, str) else given
        need_factory(make)
        label = name or (given if isinstance(given, str) else getattr(make, "__name__", "<lambda>"))
        label = f"scaler{place}" if label == "<lambda>" else str(label)
        if label in found:
            raise ValueError(
                f"two factories are called {label!r}: pass a mapping of name to factory, with a name for each"
            )
        found[label] = make
    if not found:
        raise ValueError("no factories: pass at least one function that makes a scaler")
    return found


def _pytest() -> Any:
    try:
        import pytest
    except ImportError as error:
        raise ImportError(not_installed("parametrize_scalers needs pytest", "testing")) from error
    return pytest
