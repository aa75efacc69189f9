"""A plugin of pytest that runs the checks of scalers without a file of tests.

``pytest --fp16sim-scaler mine.py:make`` runs each check as a test; with ids such as ``mine.py:make::exact_window``
behind it, as pytest prints them, those alone. pytest imports this module at every start where fp16sim is installed, so
it imports nothing of the package, nor NumPy, until the option is given.
"""

from __future__ import annotations

import warnings
from collections.abc import Container, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

__all__ = [
    "CheckItem",
    "ScalerCollector",
    "pytest_addoption",
    "pytest_collection_modifyitems",
    "pytest_configure",
]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    group = parser.getgroup("fp16sim", "checks of loss scalers (fp16sim)")
    group.addoption(
        "--fp16sim-scaler",
        action="append",
        default=[],
        metavar="FACTORY",
        help="check this scaler: package.module:factory, path/to/file.py:factory, or one of fp16sim's such as "
        "torch,growth_interval=2; repeat it for more. Without paths only these checks run; -k chooses among them, "
        "and so do the ids that pytest prints of them.",
    )
    group.addoption(
        "--fp16sim-traits",
        action="append",
        default=[],
        metavar="TRAITS",
        help="what is claimed of these scalers, such as power_of_two,interval=2000",
    )
    group.addoption(
        "--fp16sim-expect",
        action="append",
        default=[],
        metavar="CHECK=REASON",
        help="a check that is known to fail; it is an error if it passes",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Find the factories, so that a mistake in an option is one line; collect nothing else where no path is given."""
    texts = config.getoption("fp16sim_scaler")
    traits, expected = config.getoption("fp16sim_traits"), config.getoption("fp16sim_expect")
    if not texts:
        if traits or expected:
            raise pytest.UsageError("--fp16sim-traits or --fp16sim-expect without --fp16sim-scaler FACTORY")
        _refuse_ids(config.args)
        return
    from fp16sim.testing.checking import chosen_checks, claimed_checks, expected_reasons
    from fp16sim.testing.factories import expected_of, factory_of, traits_of
    from fp16sim.testing.search import need_hypothesis

    try:
        need_hypothesis("--fp16sim-scaler")
    except ImportError as error:
        raise pytest.UsageError(str(error)) from error
    with _usage_of("--fp16sim-traits"):
        claimed = traits_of(traits)
    checks = claimed_checks(claimed)
    with _usage_of("--fp16sim-expect"):
        reasons = expected_reasons(expected_of(expected), checks)
    with _usage_of("--fp16sim-scaler"):
        makes = {text: factory_of(text) for text in texts}
    named, paths = _ids_and_paths(config.args, makes)
    if config.args_source is not pytest.Config.ArgsSource.ARGS:
        paths = []
    with _usage_of("--fp16sim-scaler"):
        config.stash[_ASKED] = [
            (text, make, claimed, chosen_checks(named.get(text), checks), reasons)
            for text, make in makes.items()
            if text in named or not named
        ]
    config.args = paths


def _ids_and_paths(args: Iterable[str], texts: Container[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Tell the ids of these tests, as pytest prints them, from paths: the names of checks by the text of the scaler."""
    named: dict[str, list[str]] = {}
    paths = []
    for arg in args:
        text, colons, name = arg.rpartition("::")
        if colons and text in texts:
            named.setdefault(text, []).append(name)
        else:
            paths.append(arg)
    return named, paths


def _refuse_ids(args: Iterable[str]) -> None:
    """Say what is missing where an id is given without its scaler: pytest would look for a file."""
    for arg in args:
        text, colons, name = arg.rpartition("::")
        if not colons or Path(text.partition("::")[0]).exists():
            continue
        from fp16sim.testing.checks import CHECKS

        if any(check.name == name for check in CHECKS):
            raise pytest.UsageError(
                f"{arg} is a check of --fp16sim-scaler: put --fp16sim-scaler {text} before it"
            )


@contextmanager
def _usage_of(option: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        raise pytest.UsageError(f"{option}: {error}") from error


_ASKED: pytest.StashKey[list[tuple[Any, ...]]] = pytest.StashKey()


@pytest.hookimpl(tryfirst=True)  # before -k and -m choose
def pytest_collection_modifyitems(
    session: pytest.Session, config: pytest.Config, items: list[pytest.Item]
) -> None:
    """Add the checks to the tests."""
    for text, make, claimed, checks, reasons in config.stash.get(_ASKED, []):
        collector = ScalerCollector.from_parent(
            session, name=text, nodeid=text, make=make, claimed=claimed, checks=checks, reasons=reasons
        )
        report = session.ihook.pytest_make_collect_report(collector=collector)
        session.ihook.pytest_collectreport(report=report)  # so that the terminal counts them
        items.extend(report.result)


class ScalerCollector(pytest.Collector):
    """The checks of one scaler."""

    def __init__(self, *, make: Any, claimed: Any, checks: Any, reasons: Any, **known: Any) -> None:
        super().__init__(**known)
        self.make, self.claimed, self.checks, self.reasons = make, claimed, checks, reasons

    def collect(self) -> Iterator[CheckItem]:
        """Give a test for each check."""
        for check in self.checks:
            yield CheckItem.from_parent(
                self, name=check.name, check=check, reason=self.reasons.get(check.name)
            )


class CheckItem(pytest.Item):
    """One check of one scaler as a test."""

    def __init__(self, *, check: Any, reason: str | None, **known: Any) -> None:
        super().__init__(**known)
        self.check = check
        if reason is not None:
            from fp16sim.testing.walk import Fault

            self.add_marker(pytest.mark.xfail(reason=reason, strict=True, raises=Fault))

    def runtest(self) -> None:
        """Examine the scaler. Warnings are no fault of it, whatever the filters of the project."""
        from unittest import SkipTest

        assert isinstance(self.parent, ScalerCollector)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                self.check(self.parent.make, self.parent.claimed)
            except SkipTest as reason:
                pytest.skip(f"{self.name}: {reason}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Give what the check says, without a traceback through it; that of anything else as usual."""
        from fp16sim.testing.walk import Fault

        if isinstance(excinfo.value, Fault):
            return "\n".join([str(excinfo.value), *getattr(excinfo.value, "__notes__", ())])
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Any, int | None, str]:
        """Give what stands above a failure."""
        assert self.parent is not None
        return self.path, None, f"{self.parent.name}: {self.name}"
