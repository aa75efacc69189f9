"""A Hypothesis state machine that calls a loss scaler in any order in which a user might."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, ClassVar

from fp16sim.testing.accounts import NORM, VALUES
from fp16sim.testing.bookkeeping import Books, OrderFault
from fp16sim.testing.calls import Call
from fp16sim.testing.case import Case, Make, case_of
from fp16sim.testing.driver import ONE_GROUP, as_groups
from fp16sim.testing.fewer_calls import with_fewer_calls
from fp16sim.testing.raised import forget_the_way
from fp16sim.testing.search import need_hypothesis, nothing_written, quiet
from fp16sim.testing.walk import Fault, Hang
from fp16sim.testing.watchdog import watched

try:
    from hypothesis import errors, settings, strategies as st
    from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test
except ModuleNotFoundError:
    need_hypothesis("fp16sim.testing.ScalerMachine")
    raise

__all__ = ["ScalerMachine", "shortest_fault"]

_RULES = 8
_RULE = "Calls in any order are right, or refused; the optimizer is given what the gradients truly are, or nothing."
_VALUE = st.sampled_from(VALUES)


def _of_groups(strategy: Callable[[tuple[str, ...]], Any]) -> Any:
    """Draw from what a strategy is for the groups of the machine that runs."""
    kept = cache(strategy)
    return st.runner().flatmap(lambda machine: kept(machine.books.groups))


def _gradients(groups: tuple[str, ...]) -> Any:
    """Draw a gradient for one group or several."""
    each = [st.fixed_dictionaries({group: _VALUE}) for group in groups]
    return st.one_of(*each, st.fixed_dictionaries(dict.fromkeys(groups, _VALUE)))


def _calls(groups: tuple[str, ...]) -> Any:
    """Draw the calls of a step in their usual order, each of them as often as not: never, once or twice."""

    def of_each(name: str, number: float, times: tuple[int, ...]) -> list[Any]:
        return [st.sampled_from(times).map([Call(name, group, number=number)].__mul__) for group in groups]

    return st.tuples(
        st.lists(_gradients(groups).map(lambda gradients: Call("backward", gradients=gradients)), max_size=2),
        *of_each("unscale", 0.0, (0, 1, 2)),
        *of_each("clip", NORM, (0, 0, 1, 2)),
        *of_each("put", math.nan, (0, 0, 0, 1)),
        *of_each("step", 0.0, (0, 1, 1, 1, 2)),
        st.sampled_from((0, 1, 1, 1, 2)).map([Call("update")].__mul__),
        st.sampled_from((0, 1, 1)).map([Call("zero_grad")].__mul__),
    ).map(lambda parts: [call for part in parts for call in part])


_amid_a_step = precondition(
    lambda machine: not machine.books.between_steps
)  # elsewhere odd_step tries these too
_GROUP = _of_groups(st.sampled_from)
_GRADIENTS = _of_groups(_gradients)


class ScalerMachine(RuleBasedStateMachine):
    """Calls a scaler in any order and keeps exact accounts, see `fp16sim.testing.bookkeeping.Books`.

    The calls are backward (again to accumulate), unscale, clip, step, update, zero_grad, and save and load, for one
    optimizer or several, with gradients or without; the scale is looked at after each. :meth:`of` makes the machine of
    a factory.

    Attributes
    ----------
    case : Case
        The factory and its claims.
    optimizers : tuple of str
    misuse : bool
    found : list of OrderFault, or None
        If it is a list, it gets every fault.

    Examples
    --------
    A failure shows the calls:

    >>> import fp16sim as fs
    >>> try:
    ...     ScalerMachine.of(lambda: fs.scaling.make("keras2")).TestCase().debug()
    ... except AssertionError as fault:
    ...     print(fault)
    "o": backward(inf), step, update: counters moved by 1 in a step that was skipped
    """

    case: ClassVar[Case]
    optimizers: ClassVar[tuple[str, ...]] = ONE_GROUP
    misuse: ClassVar[bool] = True
    found: ClassVar[list[OrderFault] | None] = None

    @classmethod
    def of(
        cls,
        make: Make | str | Case,
        *,
        groups: Iterable[str] = ONE_GROUP,
        traits: Iterable[Any] | Mapping[str, Any] = (),
        misuse: bool = True,
        examples: int = 200,
    ) -> type[ScalerMachine]:
        """Give the machine of a factory; pytest collects its `TestCase`.

        Parameters
        ----------
        make : callable
            Makes a new scaler at each call; or text, as for ``fp16sim scalers --check``.
        groups : tuple of str
            Names of the optimizers.
        traits : iterable of names and mappings
            ``"rechecks"``: gradients that turn NaN after unscaling are tried. ``"groups"``: where one optimizer skips,
            all have to.
        misuse : bool
            Whether more is tried than a correct loop does. Calls out of order: unscaling twice, stepping twice, an
            update without a check, a backward pass onto unscaled gradients or across a change of the scale; they may
            be refused. And a step of an optimizer that has no gradients, which may not.
        examples : int
            How many lists of calls are tried, of some tens each; the same for the same loaded code.

        Raises
        ------
        TypeError, ValueError
            As :func:`fp16sim.testing.case.case_of`; if `groups` is one text, is empty, or names one twice.

        Examples
        --------
        In a file of tests::

            TestMine = fs.testing.ScalerMachine.of(make_mine, groups=("generator", "critic")).TestCase
        """
        case = case_of(make, traits)
        optimizers = as_groups(groups)
        machine: Any = type(
            "ScalerMachine", (cls,), {"case": case, "optimizers": optimizers, "misuse": misuse}
        )

        class TestCase(machine.TestCase):  # type: ignore[misc]
            settings = settings(quiet(examples, shrink=False), stateful_step_count=_RULES)

            def runTest(self) -> None:
                __tracebackhide__ = True  # pytest shows the calls, and the user's own error behind them
                fault: Fault | None
                try:
                    with watched(case.make) as watch:
                        fault = shortest_fault(machine, self.settings)
                except Hang:
                    fault = watch.fault
                    fault.hangs = True
                if fault is not None:
                    forget_the_way(fault)
                    if not fault.raised:
                        fault.add_note(f"rule: {_RULE}")
                    raise fault from fault.__cause__

        machine.TestCase = TestCase
        return machine  # type: ignore[no-any-return]

    def __init__(self) -> None:
        super().__init__()
        if not hasattr(self, "case"):
            raise TypeError("ScalerMachine has no scaler: use ScalerMachine.of(make).TestCase")
        self.books = Books(self.case, self.optimizers, self.misuse)

    @rule(gradients=_GRADIENTS)
    def backward(self, gradients: dict[str, float]) -> None:
        """Scale a loss and add its gradients to those that are there."""
        self._make(Call("backward", gradients=gradients))

    @_amid_a_step
    @rule(group=_GROUP)
    def unscale(self, group: str) -> None:
        """Divide the scale out."""
        self._make(Call("unscale", group))

    @_amid_a_step
    @rule(group=_GROUP)
    def clip(self, group: str) -> None:
        """Clip by norm."""
        self._make(Call("clip", group, number=NORM))

    @precondition(lambda self: self.books.rechecks and not self.books.between_steps)
    @rule(group=_GROUP, number=st.sampled_from((float("nan"), float("inf"))))
    def put(self, group: str, number: float) -> None:
        """Let an unscaled gradient turn bad."""
        self._make(Call("unscale", group))
        self._make(Call("put", group, number=number))

    @_amid_a_step
    @rule(group=_GROUP)
    def step(self, group: str) -> None:
        """Let an optimizer move."""
        self._make(Call("step", group))

    @_amid_a_step
    @rule()
    def update(self) -> None:
        """End the step."""
        self._make(Call("update"))

    @_amid_a_step
    @rule()
    def zero_grad(self) -> None:
        """Forget all gradients."""
        self._make(Call("zero_grad"))

    @precondition(lambda self: self.books.between_steps)
    @rule(way=st.integers(0, 3))
    def save_and_load(self, way: int) -> None:
        """Go on with a new scaler that the state was loaded into."""
        for call in self.books.save_and_load(way):
            self._make(call)

    @rule(gradients=_GRADIENTS)
    def whole_step(self, gradients: dict[str, float]) -> None:
        """Make the calls of a step in their usual order, so that longer histories are met."""
        self._make(Call("backward", gradients=gradients))
        for group in self.books.groups:
            self._make(Call("step", group))
        self._make(Call("update"))
        self._make(Call("zero_grad"))

    @rule(gradients=st.lists(_GRADIENTS, min_size=2, max_size=4), updates=st.booleans())
    def accumulate(self, gradients: list[dict[str, float]], updates: bool) -> None:
        """Make a backward pass for each micro-batch, in some loops with an update after each."""
        for each in gradients:
            self._make(Call("backward", gradients=each))
            if updates:
                self._make(Call("update"))

    @rule(calls=_of_groups(_calls))
    def odd_step(self, calls: list[Call]) -> None:
        """Make them with some left out and some made twice."""
        for call in calls:
            self._make(call)

    def _make(self, call: Call) -> None:
        try:
            self.books.make(call)
        except OrderFault as fault:
            if self.found is not None:
                self.found.append(fault)
            raise


def shortest_fault(machine: type[ScalerMachine], settings: Any = None) -> OrderFault | None:
    """Run a machine, and give the fault with the fewest and simplest calls, if there is one."""
    settings = settings or machine.TestCase.settings
    recording: Any = type(machine.__name__, (machine,), {"found": []})
    try:
        with nothing_written():
            run_state_machine_as_test(recording, settings=settings)
    except OrderFault as fault:
        fault = with_fewer_calls(fault, lambda: Books(machine.case, machine.optimizers, machine.misuse))
        fault.__notes__ = []  # those of Hypothesis are about the rules of the machine
        return fault
    except errors.Flaky:
        if not recording.found:
            raise
        first: OrderFault = recording.found[0]
        return OrderFault("", f"{first.what}; the same calls end otherwise the second time")
    return None
