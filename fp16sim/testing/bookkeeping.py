"""Exact accounts beside a scaler: what each gradient truly is, and so what may be applied after any order of calls."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from fp16sim.testing.accounts import Account
from fp16sim.testing.calls import Call, Seen, in_words, is_clear, outcome
from fp16sim.testing.case import Case
from fp16sim.testing.driver import ONE_GROUP, Array, Driver
from fp16sim.testing.histories import FINITE, NAN, OVERFLOW, RESTART
from fp16sim.testing.raised import described
from fp16sim.testing.walk import ERRORS, Fault, Walk, usable, written

__all__ = ["Books", "OrderFault"]

_LEFT_OUT = (
    "; skip an optimizer without gradients, or leave such steps out: ScalerMachine.of(make, misuse=False)"
)
_SAVED = "; save all that later steps depend on"
_REFUSED = "; refuse before anything is changed"


class OrderFault(Fault):
    """A fault that a list of calls shows.

    Attributes
    ----------
    calls : tuple of Call
    """

    calls: tuple[Call, ...] = ()


class Books:
    """Makes calls on a scaler, in any order, and holds it to the rules.

    A call in order must not raise, and what is applied must be the true sum of the gradients, or that clipped to the
    norm, or nothing if something overflowed; nothing infinite or NaN is applied. After a skip no counter has moved. The
    scale is a positive, finite number. Saving and loading between steps changes nothing that follows: a twin that is
    never saved tells. A call out of order may be refused with a clear error, after which everything is as it was;
    if it is taken, what is applied later is right as before, or nothing.

    Parameters
    ----------
    case : Case
    groups : tuple of str
        Optimizers. A factory of drivers has its own.
    misuse : bool
        Whether calls out of order, and steps of an optimizer that has no gradients, are made; or left out.

    Attributes
    ----------
    calls : list of Call
        Those made so far, refused ones too.
    rechecks : bool
        Whether gradients are to be looked at when they are applied, so that `put` is made.
    ended : bool
        Whether the scaler said to stop; no call is made after that.

    Raises
    ------
    OrderFault
        With all calls in words.

    Examples
    --------
    >>> from fp16sim.scaling import DeepSpeedScaler
    >>> books = Books(Case(lambda: DeepSpeedScaler(initial_scale_power=2, loss_scale_window=1)))
    >>> try:
    ...     for _ in range(2):
    ...         books.make(Call("backward", gradients={"all": 1.0}))
    ...         books.make(Call("step", "all"))
    ...         books.make(Call("update"))
    ... except OrderFault as fault:
    ...     print(*fault.what.split(": "), sep=chr(10))
    backward(1), step, update, backward(1), step
    applied 0.5 where the gradient was 1
    multiplied by 4, divided by 8
    """

    def __init__(self, case: Case, groups: tuple[str, ...] = ONE_GROUP, misuse: bool = True) -> None:
        self.case, self.misuse = case, misuse
        self.walk = case.walk(groups)
        self.groups = self.walk.driver.groups
        self.rechecks = "rechecks" in self.walk.driver.can or "rechecks" in case.traits
        self.ended = False
        self.calls: list[Call] = []
        self._accounts = {group: Account() for group in self.groups}
        self._twin: Driver | None = None
        self._strayed = False  # a call out of order was taken, and what it left is not forgotten yet
        self._odd = ""  # the last of these, in words
        self._bad_seen = False  # in this step, by whoever looked
        self._spoiled_late = False  # after another optimizer moved
        self._plain = len(self.groups) == 1  # the calls are whole steps, which letters can say
        self._ways = self._saved_ways()
        self._seen = self._look(self.walk.driver)
        self._counted = self._seen.counted
        self._judge_scales()

    @property
    def between_steps(self) -> bool:
        """Whether nothing is held, and nothing was looked at since the last update."""
        return self._undecided and all(account.true is None for account in self._accounts.values())

    def save_and_load(self, number: int) -> list[Call]:
        """Give the call that saves by one of the scaler's ways, the same for the same number; none if it has none."""
        return [Call("save and load", way=self._ways[number % len(self._ways)])] if self._ways else []

    def make(self, call: Call) -> None:
        """Make a call, if it is one that is made in this place, and look at what it did."""
        in_order = self._is_in_order(call)
        bare = self._lacks_gradients(call)
        usual = in_order and not bare
        if self.ended or not (usual or self.misuse) or not self._is_possible(call):
            return
        if call.name == "save and load" and self._twin is None:
            self._twin = self._grown_twin()
        strict = in_order and not self._strayed
        self.calls.append(call)
        result, error = _made(call, self.walk.driver, self.case)
        if error is not None and (strict or not is_clear(error)):
            says = described(error)
            raise self.fault(
                f"raised {says.rstrip('.') + _LEFT_OUT if in_order and bare else says}"
            ) from error
        refusal = _briefly(error) if error is not None else self._refusal_in(call, result, strict)
        if call.name == "save and load" and error is None:
            self.walk.driver = result
        before, self._seen = self._seen, self._look(self.walk.driver)
        if refusal is not None:
            self._need_unchanged(refusal, before)
        else:
            self._plain &= in_order and call.name not in ("unscale", "clip", "put")
            self._strayed |= not in_order
            self._odd = self._odd if in_order else call.words(self.groups)
            self._enter(call, result)
        self._judge_scales()
        if self._twin is not None and call.name != "save and load":
            own, other = outcome(call, result, error), outcome(call, *_made(call, self._twin, self.case))
            if own != other:
                raise self.fault(f"{own}, and without saving and loading {other}{_SAVED}")
        self._compare_with_twin()

    # What is in order

    @property
    def _undecided(self) -> bool:
        return not any(account.unscaled or account.stepped for account in self._accounts.values())

    def _is_fresh(self, group: str) -> bool:
        account = self._accounts[group]
        carried = account.factors == {self._seen.factors[group]} and not account.stale
        return account.true is None or account.unscaled or carried

    def _is_in_order(self, call: Call) -> bool:
        account = self._accounts.get(call.group, Account())
        match call.name:
            case "backward":
                return self._undecided and all(self._is_fresh(group) for group in call.gradients)
            case "unscale" | "clip":
                return self._is_fresh(call.group) and not (account.unscaled or account.stepped)
            case "step":
                return self._is_fresh(call.group) and not account.stepped
            case "update":
                every = self._accounts.values()
                moved = any(each.stepped for each in every)
                return moved and all(each.stepped or each.true is None for each in every)
        return True

    def _lacks_gradients(self, call: Call) -> bool:
        return call.name in ("unscale", "clip", "step") and self._accounts[call.group].true is None

    def _is_possible(self, call: Call) -> bool:
        if call.name == "put":
            account = self._accounts[call.group]
            held = account.true is not None and not account.stale
            return self.rechecks and held and account.unscaled and not account.stepped
        return call.name != "save and load" or self.between_steps

    # What a call did

    def _enter(self, call: Call, result: Any) -> None:
        account = self._accounts.get(call.group, Account())
        match call.name:
            case "backward":
                for group, value in call.gradients.items():
                    self._accounts[group].add(value, self._seen.factors[group])
            case "unscale" | "clip":
                self._notice()
                account.unscaled |= not account.stepped
                account.clipped |= call.name == "clip" and not account.stepped and account.true is not None
            case "put":
                account.true = call.number
                self._spoiled_late |= any(each.stepped for each in self._accounts.values())
            case "step":
                self._notice()
                self._judge_applied(call.group, result)
            case "update":
                self._end_step()
                self.ended = result is not None
            case "zero_grad":
                self._forget_all()
            case "save and load":
                self.walk.letters.append(RESTART)
                self._counted = self._seen.counted

    def _notice(self) -> None:
        self._bad_seen |= any(account.bad for account in self._accounts.values())

    def _judge_applied(self, group: str, applied: Array | None) -> None:
        account = self._accounts[group]
        numbers = [] if applied is None else np.asarray(applied, np.float64).ravel().tolist()
        for number in numbers:
            self._judge_number(account, number)
        if account.stepped and numbers:
            raise self.fault("moved twice; refuse a second step before update, as torch does")
        if applied is None and account.true is not None and not (self._bad_seen or self._strayed):
            raise self.fault("skipped the step though nothing overflowed")
        account.stepped = True
        account.applied = None if account.true is None else applied is not None
        moved = {each.applied for each in self._accounts.values() if each.stepped}
        if "groups" in self.case.traits and {True, False} <= moved:
            self._judge_joint()

    def _judge_number(self, account: Account, number: float) -> None:
        shown = f"applied {written(number)}"
        if account.true is None:
            if number != 0:
                raise self.fault(f"{shown} where there was no gradient; skip an optimizer without gradients")
        elif account.bad or not math.isfinite(number):
            raise self.fault(f"{shown} where the gradient was {written(account.true)}; skip such a step")
        else:
            expected, tolerance = account.expected(), account.tolerance()
            if tolerance is not None and not abs(number - expected) <= tolerance:
                clipped = f", clipped {written(expected)}" * (expected != account.true)
                how = _multiplied_and_divided(account, number)
                odd = f"; refuse {self._odd}, which is out of order, or be right after it" * self._strayed
                raise self.fault(f"{shown} where the gradient was {written(account.true)}{clipped}{how}{odd}")

    def _judge_joint(self) -> None:
        if self._strayed or self._spoiled_late:
            return
        moved, skipped = (
            [name for name, each in self._accounts.items() if each.applied is applied]
            for applied in (True, False)
        )
        raise self.fault(
            f"{' and '.join(moved)} moved where {' and '.join(skipped)} was skipped; skip all or none"
        )

    def _judge_update(self) -> None:
        moved = self._seen.counted - self._counted
        stepped = [account.applied for account in self._accounts.values() if account.stepped]
        skipped = bool(stepped) and all(applied is False for applied in stepped)
        if "counts" in self.walk.driver.can and skipped and moved and not self._strayed:
            raise self.fault(f"counters moved by {moved} in a step that was skipped")

    def _refusal_in(self, call: Call, result: Any, strict: bool) -> str | None:
        """Give the reason to stop that an update gave, if no overflow explains it: an error, in an adapter's words."""
        if call.name != "update" or result is None or self._bad_seen:
            return None
        if strict:
            raise self.fault(f"stopped though nothing overflowed: {result}")
        return str(result)

    def _need_unchanged(self, refusal: str, before: Seen) -> None:
        for what, now, then in self._seen.differences(before):
            raise self.fault(f"refused ({refusal}), and yet {what} went from {then} to {now}{_REFUSED}")
        if self._seen.counted != before.counted:
            raise self.fault(f"refused ({refusal}), and yet counters moved{_REFUSED}")

    def _end_step(self) -> None:
        values = [account.true for account in self._accounts.values() if account.true is not None]
        self._plain &= bool(values)
        nan = any(math.isnan(value) for value in values)
        self.walk.letters.append(NAN if nan else OVERFLOW if self._bad_seen else FINITE)
        self._judge_update()
        self._bad_seen = self._spoiled_late = False
        self._counted = self._seen.counted
        for group, account in self._accounts.items():
            if account.true is not None:
                account.true, account.clipped = account.expected(), False
                account.stale |= account.unscaled or account.stepped
            if self._seen.gradients[group] is None:
                account.forget()
            account.unscaled = account.stepped = False
            account.applied = None
        self._strayed &= not self.between_steps

    def _forget_all(self) -> None:
        for group, account in self._accounts.items():
            left = self._seen.gradients[group]
            if left is not None and left.any():
                raise self.fault(f"zero_grad left the gradient {in_words(left)}")
            account.forget()
        self._strayed &= not self.between_steps

    # The scaler and its twin

    def _look(self, driver: Driver) -> Seen:
        try:
            return Seen.of(driver)
        except ERRORS as error:
            raise self.fault(f"the scale or a gradient cannot be read: {described(error)}") from error

    def _judge_scales(self) -> None:
        for what, values in (("scale", self._seen.scales), ("factor", self._seen.factors)):
            for value in values.values():
                if not usable(value):
                    raise self.fault(
                        f"the {what} is {written(value)}; keep it positive and finite in float32"
                    )

    def _grown_twin(self) -> Driver:
        """Make the same calls on a new scaler."""
        twin = self.case.walk(self.groups).driver
        Walk.current = self.walk
        for call in self.calls:
            _made(call, twin, self.case)
        return twin

    def _compare_with_twin(self) -> None:
        if self._twin is not None:
            for what, own, other in self._seen.differences(self._look(self._twin)):
                raise self.fault(f"{what} is {own}, and without saving and loading {other}{_SAVED}")

    def _saved_ways(self) -> list[str]:
        try:
            return sorted(self.walk.driver.saved())
        except ERRORS:  # another check's business
            return []

    def fault(self, what: str) -> OrderFault:
        """Give the fault that the calls so far show."""
        words = ", ".join(call.words(self.groups) for call in self.calls)
        fault = OrderFault(self._history() if self._plain else "", f"{words}: {what}" if words else what)
        fault.calls = tuple(self.calls)
        return fault

    def _history(self) -> str:
        held = [account.true for account in self._accounts.values() if account.true is not None]
        unfinished = self.calls and self.calls[-1].name not in ("update", "save and load") and held
        letter = NAN if any(map(math.isnan, held)) else OVERFLOW if self._bad_seen else FINITE
        return self.walk.history + (letter if unfinished else "")


def _multiplied_and_divided(account: Account, number: float) -> str:
    """Say by what a gradient was multiplied, and what it must have been divided by, where that leaves no doubt."""
    if account.clipped or account.stale or len(account.factors) != 1 or not number:
        return ""
    (factor,), divisor = account.factors, float(account.given[0]) / number
    powers_of_two = all(math.isfinite(each) and math.frexp(each)[0] == 0.5 for each in (factor, divisor))
    if divisor == factor or not powers_of_two:
        return ""
    return f": multiplied by {written(factor)}, divided by {written(divisor)}"


def _made(call: Call, driver: Driver, case: Case) -> tuple[Any, BaseException | None]:
    """Make a call, and give its result and its error."""
    try:
        return call.on(driver, case.made), None
    except Fault:
        raise
    except ERRORS as error:
        return None, error


def _briefly(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}".removesuffix(": ")
