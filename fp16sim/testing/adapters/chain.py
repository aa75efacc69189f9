"""Optimizers in a chain, each with a scaler of its own, as Megatron's ChainedOptimizer has them.

Source: megatron-core 0.16.1: megatron/core/optimizer/optimizer.py (`ChainedOptimizer.get_loss_scale`,
`ChainedOptimizer.prepare_grads`, `MixedPrecisionOptimizer.prepare_grads`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fp16sim.testing.driver import ONE_GROUP, Array, Driver, Floats, Told, need_group, scaled

__all__ = ["Chain", "ChainDriver"]

_ONE = ONE_GROUP[0]


class Chain:
    """A chain of optimizers, to be checked as one scaler with groups.

    The loss is multiplied by the first one's scale. Each unscales by its own, and updates that by its own overflow; all
    skip together if any of them overflowed. Where the scales have drifted apart, the gradients of all but the first are
    divided by what did not multiply them.

    Parameters
    ----------
    make : callable
        Makes the scaler of one optimizer.

    Examples
    --------
    >>> import fp16sim as fs
    >>> from fp16sim.testing import scaler_checks
    >>> from fp16sim.testing.adapters import Chain
    >>> check = dict(scaler_checks())["groups_agree"]
    >>> try:
    ...     check(lambda: Chain(lambda: fs.scaling.make("megatron", hysteresis=1)), ["groups"])
    ... except AssertionError as fault:
    ...     print(fault)
    "o.": the loss was multiplied by 2^32, and the gradient of 'b' divided by 2^31, the scale of 'b'
    """

    def __init__(self, make: Callable[[], Any]) -> None:
        self.make = make

    def driver(self, groups: tuple[str, ...]) -> ChainDriver:
        """Give a driver with a new scaler for each group."""
        from fp16sim.testing.adapters import adapt

        return ChainDriver({group: adapt(self.make()) for group in groups})


class ChainDriver(Driver):
    """Drives the scalers of a chain, one for each group.

    Parameters
    ----------
    members : mapping of group to Driver
        Of one scaler each.
    """

    can = frozenset({"groups"})

    def __init__(self, members: Mapping[str, Driver]) -> None:
        self.members = dict(members)
        self.groups = tuple(members)
        self._first = self.members[self.groups[0]]
        self._stepped: dict[str, Array | None] | None = None

    def _member(self, group: str) -> Driver:
        need_group(group, self.groups)
        return self.members[group]

    def scale(self, group: str) -> float:
        return self._member(group).scale(_ONE)

    def factor(self, group: str) -> float:
        return self._first.factor(_ONE)

    def backward(self, gradients: Mapping[str, Floats | None], dtype: str = "float32") -> None:
        factor = self._first.factor(_ONE)
        for group, gradient in gradients.items():
            if gradient is None:
                continue
            member, new = self._member(group), scaled(gradient, factor, dtype)
            old = member.gradient(_ONE)
            member.backward(
                {_ONE: gradient}, dtype
            )  # by its own scale, which is not what multiplied this loss
            with np.errstate(all="ignore"):
                member.put(_ONE, new if old is None else old + new)

    def gradient(self, group: str) -> Array | None:
        return self._member(group).gradient(_ONE)

    def put(self, group: str, gradient: Array) -> None:
        self._member(group).put(_ONE, gradient)

    def unscale(self, group: str) -> None:
        self._member(group).unscale(_ONE)

    def step(self, group: str) -> Array | None:
        need_group(group, self.groups)
        if self._stepped is None:
            self._stepped = {each: member.step(_ONE) for each, member in self.members.items()}
            if any(
                update is None and self.gradient(each) is not None for each, update in self._stepped.items()
            ):
                self._stepped = dict.fromkeys(self.groups)
        return self._stepped[group]

    def update(self) -> str | None:
        self._stepped = None
        stops = [member.update() for member in self.members.values()]
        return next((stop for stop in stops if stop), None)

    def zero_grad(self) -> None:
        for member in self.members.values():
            member.zero_grad()

    def tell(self, letter: str) -> Told:
        told = [member.tell(letter) for member in self.members.values()]
        return Told(all(each.applied for each in told), next((each.stop for each in told if each.stop), None))

    def saved(self) -> dict[str, Any]:
        states = {group: member.saved() for group, member in self.members.items()}
        return {way: {group: state[way] for group, state in states.items()} for way in self._first.saved()}

    def restored(self, way: str, state: Any, fresh: Chain) -> ChainDriver:
        loaded = {
            group: member.restored(way, state[group], fresh.make()) for group, member in self.members.items()
        }
        return ChainDriver(loaded)
