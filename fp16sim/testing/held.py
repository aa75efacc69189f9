"""A loop that holds gradients as arrays, and lets one decision be about all groups."""

from __future__ import annotations

from abc import abstractmethod

from fp16sim.testing.driver import Array, Driver, Refusal, clipped, need_group

__all__ = ["HeldGradients"]


class HeldGradients(Driver):
    """Unscales each group once in a step, whoever asks first, and lets each optimizer step once.

    A second `unscale` or `step` is refused; `clip` unscales what is not.
    """

    def begin(self) -> None:
        """Begin a step, without gradients."""
        self.zero_grad()
        self.asked: set[str] = set()
        self.unscaled: set[str] = set()
        self.stepped: set[str] = set()

    @abstractmethod
    def unscale_once(self, group: str) -> None:
        """Replace the gradient of a group by its unscaled one, if it is not yet."""

    @abstractmethod
    def moves(self, group: str) -> bool:
        """Whether the optimizer of a group moves, once all are unscaled."""

    def zero_grad(self) -> None:
        self.gradients: dict[str, Array] = {}

    def gradient(self, group: str) -> Array | None:
        gradient = self.gradients.get(group)
        return None if gradient is None else gradient.copy()

    def put(self, group: str, gradient: Array) -> None:
        need_group(group, self.groups)
        self.gradients[group] = gradient.copy()

    def unscale(self, group: str) -> None:
        need_group(group, self.groups)
        if group in self.asked or group in self.stepped:
            raise Refusal(f"the gradient of {group!r} is unscaled already: call update before the next")
        self.asked.add(group)
        self.unscale_once(group)

    def clip(self, group: str, norm: float) -> None:
        need_group(group, self.groups)
        self.unscale_once(group)
        gradient = self.gradient(group)
        if gradient is not None:
            self.put(group, clipped(gradient, norm))

    def step(self, group: str) -> Array | None:
        need_group(group, self.groups)
        if group in self.stepped:
            raise Refusal(f"the optimizer of {group!r} has stepped already: call update before the next")
        for each in self.groups:
            self.unscale_once(each)
        moves = self.moves(group)
        self.stepped.add(group)
        return self.gradient(group) if moves else None
