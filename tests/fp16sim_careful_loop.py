"""A training loop around a loss scaler that is right in any order of calls, for tests to plant faults into."""

import numpy as np

from fp16sim.testing.driver import ONE_GROUP, Driver, Refusal, scaled

__all__ = ["TWO", "Careful"]

TWO = ("a", "b")


class Careful(Driver):
    """A loop around torch's rule with a window of 2 that is right, and refuses what is out of order."""

    can = frozenset({"groups", "rechecks", "counts"})
    window = 2

    def __init__(self, groups=ONE_GROUP):
        self.groups, self.now, self.tracker, self.counted = groups, 2.0**16, 0, 0
        self.zero_grad()
        self.begin()

    def begin(self):
        self.ahead = set()  # unscaled with another, before they were asked for
        self.unscaled, self.stepped, self.bad, self.moved = set(), set(), False, False

    def zero_grad(self):
        self.held, self.carried = {}, {}

    def scale(self, group):
        return self.now

    def backward(self, gradients, dtype="float32"):
        if self.unscaled:
            raise Refusal("gradients were unscaled already")
        if any(self.carried.get(group, self.now) != self.now for group in gradients):
            raise Refusal("gradients of another scale are there")
        self.add(gradients, dtype)

    def add(self, gradients, dtype="float32"):
        for group, gradient in gradients.items():
            new = scaled(gradient, self.now, dtype)
            with np.errstate(all="ignore"):
                self.held[group] = self.held[group] + new if group in self.held else new
            self.carried.setdefault(group, self.now)

    def gradient(self, group):
        return self.held[group].copy() if group in self.held else None

    def put(self, group, gradient):
        self.held[group] = gradient

    def unscale(self, group):
        if group in self.ahead:
            self.ahead.remove(group)
            return
        if group in self.unscaled:
            raise Refusal("unscaled already")
        self.look()
        self.unscaled.add(group)
        self.divide(group)

    def divide(self, group):
        if group in self.held:
            self.held[group] = self.held[group] / np.float32(self.carried[group])

    def look(self):
        self.bad = self.bad or not all(np.isfinite(gradient).all() for gradient in self.held.values())

    def step(self, group):
        if group in self.stepped:
            raise Refusal("stepped already")
        for each in self.groups:
            if each not in self.unscaled:
                self.unscale(each)
                self.ahead.add(each)
        self.ahead.discard(group)
        self.look()
        self.stepped.add(group)
        applied = None if self.bad else self.gradient(group)
        self.moved = self.moved or applied is not None
        return applied

    def update(self):
        if not self.unscaled:
            raise Refusal("nothing was looked at")
        self.move()
        self.zero_grad()
        self.begin()

    def move(self):
        self.counted += self.moved
        self.tracker = 0 if self.bad else self.tracker + 1
        if self.bad or self.tracker == self.window:
            self.now, self.tracker = self.now * (0.5 if self.bad else 2.0), 0

    def saved(self):
        return {"state_dict": {"scale": self.now, "tracker": self.tracker}}

    def restored(self, way, state, fresh):
        fresh.now, fresh.tracker = state["scale"], state["tracker"]
        return fresh
