"""Optimizers, ranks or layers that share a scaler act together: property 13."""

from __future__ import annotations

from itertools import product

import numpy as np

from fp16sim.testing.case import Case
from fp16sim.testing.checks.check import Check
from fp16sim.testing.driver import ONE_GROUP, Array
from fp16sim.testing.histories import FINITE, NAN, OVERFLOW
from fp16sim.testing.search import search
from fp16sim.testing.values import ValueDriver
from fp16sim.testing.walk import Joint, NotApplicable, Walk, usable, written

__all__ = ["CHECKS"]

_GROUPS = ("a", "b")
_MOST_SPELLED, _MOST_DRAWN = 1600, 500  # steps of a group, at each length
_MOST_NAMED = 3
_Step = tuple[str, ...]


def groups_agree(case: Case) -> None:
    """Groups skip together where any of them overflows, and each is unscaled by what scaled it.

    Each group has its own pattern of overflows. Where the groups show different scales, what is applied is compared
    with the scaled gradient: dividing by the scale of another group is the fault.
    """
    groups = _groups(case)
    skipped = "".join(letter for letter in (OVERFLOW, NAN) if _skips(case, groups, letter))
    if OVERFLOW not in skipped:
        raise NotApplicable("it applies overflows")

    def examine(steps: tuple[_Step, ...] | list[_Step]) -> None:
        walk = case.walk(groups)
        for letters in steps:
            each = dict(zip(groups, letters, strict=True))
            joint = walk.take_each(each)
            _agree(case, walk, each, joint)
            if joint.stop:
                return

    patterns = _patterns(len(groups))
    for length in range(1, 4):
        few = len(patterns) if length == 1 else max(2, int((_MOST_SPELLED / len(groups)) ** (1 / length)))
        for steps in product(patterns[:few], repeat=length):
            examine(steps)

    from hypothesis import strategies as st

    letter = st.sampled_from(FINITE + skipped)
    step = st.tuples(*(letter for _ in groups))
    search(st.lists(step, max_size=12), examine, max(4, min(50, case.examples, _MOST_DRAWN // len(groups))))


def _groups(case: Case) -> tuple[str, ...]:
    """Give the groups of a scaler that has a scale for each of some, or two names that any other is told of."""
    driver = case.walk().driver
    own = driver.groups if driver.groups != ONE_GROUP else _GROUPS
    if len(own) < 2:
        raise NotApplicable(f"it has a scale for one group, {own[0]!r}")
    if "groups" not in driver.can or case.walk(own).driver.groups != own:
        raise NotApplicable("it cannot be driven with several groups")
    return own


def _patterns(groups: int) -> list[_Step]:
    """Give the steps in which each group may overflow or not; of many groups those where one does, or all but one."""
    if groups < 4:
        return list(product(FINITE + OVERFLOW, repeat=groups))
    alone = ((FINITE, OVERFLOW), (OVERFLOW, FINITE))
    return [
        *((letter,) * groups for letter in FINITE + OVERFLOW),
        *(
            tuple(one if place == which else others for place in range(groups))
            for which in range(groups)
            for others, one in alone
        ),
    ]


def _skips(case: Case, groups: tuple[str, ...], letter: str) -> bool:
    joint = case.walk(groups).take_each(dict.fromkeys(groups, letter))
    return all(update is None for update in joint.applied.values())


def _agree(case: Case, walk: Walk, letters: dict[str, str], joint: Joint) -> None:
    overflowed = [group for group, letter in letters.items() if letter != FINITE]
    applied = {group: update for group, update in joint.applied.items() if update is not None}
    skipped = [group for group in letters if group not in applied]
    if applied and skipped:
        raise walk.fault(
            f"{_named(overflowed)} overflowed: the step of {_named(skipped)} was skipped, that of "
            f"{_named(list(applied))} was applied"
        )
    if applied and overflowed:
        raise walk.fault(f"{_named(overflowed)} overflowed, and the steps of all groups were applied")
    if skipped and not overflowed and _applies_with_one_group(case, walk.history):
        remedy = "; use observation.overflowed" if isinstance(walk.driver, ValueDriver) else ""
        raise walk.fault(
            f"no group overflowed, and the step was skipped, which with one group is applied{remedy}"
        )
    for group, update in applied.items():
        given = joint.given[group]
        assert given is not None  # it has a letter
        _unscaled_by_its_own(walk, group, _divisor(given, update), joint)


def _applies_with_one_group(case: Case, history: str) -> bool:
    walk = case.walk()
    # With gradients: at an infinite scale they are infinite.
    taken = [walk.take(letter) for letter in history]
    return taken[-1].applied is not None


def _unscaled_by_its_own(walk: Walk, group: str, divisor: float, joint: Joint) -> None:
    own = joint.factors[group]
    for other, scale in joint.scales.items():
        # Scales differ by factors of more than 2^(1/8); rounding twice to float16 moves the quotient by less.
        if not usable(scale) or not usable(own) or _near(divisor, 1.0):
            continue  # one that was not divided at all is the business of another check
        if _near(divisor, scale) and not _near(divisor, own):
            raise walk.fault(
                f"the loss was multiplied by {written(own)}, and the gradient of {group!r} divided by "
                f"{written(scale)}, the scale of {other!r}"
            )


def _near(divisor: float, scale: float) -> bool:
    return abs(divisor / scale - 1.0) < 0.04


def _divisor(given: Array, update: Array) -> float:
    with np.errstate(all="ignore"):
        return float(given.astype(np.float64).ravel()[0] / update.astype(np.float64).ravel()[0])


def _named(groups: list[str]) -> str:
    more = [f"{len(groups) - _MOST_NAMED} more"] if len(groups) > _MOST_NAMED + 1 else []
    return " and ".join([*map(repr, groups[: _MOST_NAMED if more else None]), *more])


CHECKS = (Check("groups_agree", 13, groups_agree, trait="groups"),)
