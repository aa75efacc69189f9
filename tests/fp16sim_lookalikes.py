"""Loss scalers that look like those of five frameworks, in plain Python and numpy, each with the framework's rule."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from fp16sim import scaling
from fp16sim.testing import scaler_checks
from fp16sim.testing.case import case_of
from fp16sim.testing.checking import examined

F = np.float32
ONE, JMP_SCALE, FLAX_SCALE = F(1), F(32768), F(65536)
FEW = ("scale_stays_above_zero", "exact_window", "checkpoint_round_trip", "groups_agree")
CHECKS = (
    *FEW,
    "applies_only_finite_updates",
    "unscales_by_the_scale_that_scaled",
    "overflow_never_raises_the_scale",
    "skip_changes_nothing",
    "no_gradients_are_no_event",
)


def verdicts(
    make: Callable[[], Any], window: int, checks: Iterable[str] = CHECKS
) -> dict[str, tuple[str, str | None]]:
    """Give the status and the shortest history of some checks."""
    case = case_of(make, ["groups", {"interval": window}])
    found = {name: examined(dict(scaler_checks())[name], case) for name in checks}
    return {name: (verdict.status, verdict.history) for name, verdict in found.items()}


def of_model(
    name: str, window: int, checks: Iterable[str] = CHECKS, **options: Any
) -> dict[str, tuple[str, str | None]]:
    """Give those of the model of a framework's scaler."""
    return verdicts(lambda: scaling.make(name, **options), window, checks)


class TorchLike:
    """torch's GradScaler without torch."""

    def __init__(self, init_scale: float = 65536.0, growth_interval: int = 2000) -> None:
        self._scale, self._tracker, self._interval = F(init_scale), 0, growth_interval
        self._states: dict[int, dict[str, Any]] = defaultdict(dict)

    def scale(self, loss: Any) -> Any:
        return loss * self._scale

    def get_scale(self) -> float:
        return float(self._scale)

    def unscale_(self, optimizer: Any) -> None:
        state = self._states[id(optimizer)]
        if "found_inf" in state:
            raise RuntimeError(
                "unscale_() has already been called on this optimizer since the last update()."
            )
        inverse = F(np.float64(1.0) / np.float64(self._scale))
        gradients = [
            parameter
            for group in optimizer.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        state["found_inf"] = [not np.isfinite(parameter.grad).all() for parameter in gradients]
        for parameter in gradients:
            parameter.grad *= inverse

    def step(self, optimizer: Any) -> None:
        state = self._states[id(optimizer)]
        if "stepped" in state:
            raise RuntimeError("step() has already been called since the last update().")
        if "found_inf" not in state:
            self.unscale_(optimizer)
        if not state["found_inf"]:
            raise AssertionError("No inf checks were recorded for this optimizer.")
        if not any(state["found_inf"]):
            optimizer.step()
        state["stepped"] = True

    def update(self) -> None:
        found = [each for state in self._states.values() for each in state.get("found_inf", [])]
        if not found:
            raise AssertionError("No inf checks were recorded prior to update.")
        if any(found):
            self._scale, self._tracker = F(self._scale * 0.5), 0
        else:
            self._tracker += 1
            if self._tracker == self._interval:
                with np.errstate(over="ignore"):  # torch warns of no overflow
                    grown = F(np.float64(self._scale) * 2.0)
                self._scale, self._tracker = grown if np.isfinite(grown) else self._scale, 0
        self._states = defaultdict(dict)

    def state_dict(self) -> dict[str, Any]:
        return {"scale": float(self._scale), "tracker": self._tracker}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._scale, self._tracker = F(state["scale"]), state["tracker"]


class KerasLike:
    """Keras 3's LossScaleOptimizer without Keras."""

    built = False

    def __init__(self, initial_scale: float = 32768.0, dynamic_growth_steps: int = 2000) -> None:
        self.dynamic_scale, self.step_counter = F(initial_scale), 0
        self.dynamic_growth_steps = dynamic_growth_steps
        self.inner_optimizer = SimpleNamespace(apply=self._refuse)

    @staticmethod
    def _refuse(gradients: Any, trainable_variables: Any = None) -> None:
        raise ValueError("No gradients provided for any variable.")

    def build(self, variables: Any) -> None:
        self.built = True

    def scale_loss(self, loss: Any) -> Any:
        return loss * self.dynamic_scale

    def apply(self, gradients: Any, variables: Any = None) -> None:
        if not all(np.isfinite(gradient).all() for gradient in gradients if gradient is not None):
            self.dynamic_scale, self.step_counter = F(self.dynamic_scale * F(0.5)), 0
            return
        self.inner_optimizer.apply(
            [None if gradient is None else F(gradient) / self.dynamic_scale for gradient in gradients],
            variables,
        )
        self.step_counter += 1
        if self.step_counter == self.dynamic_growth_steps:
            self.dynamic_scale, self.step_counter = F(self.dynamic_scale * F(2)), 0

    def save_own_variables(self, store: dict[str, Any]) -> None:
        store.update({"0": self.step_counter, "1": self.dynamic_scale})

    def load_own_variables(self, store: dict[str, Any]) -> None:
        self.step_counter, self.dynamic_scale = int(store["0"]), F(store["1"])


class DeepSpeedLike:
    """DeepSpeed's DynamicLossScaler without DeepSpeed."""

    def __init__(self, init_scale: float = 65536, scale_window: int = 1000, delayed_shift: int = 2) -> None:
        self.cur_scale, self.scale_window, self.delayed_shift = init_scale, scale_window, delayed_shift
        self.cur_hysteresis, self.cur_iter, self.last_overflow_iter = delayed_shift, 0, -1

    def update_scale(self, overflow: bool) -> None:
        if overflow:
            if self.delayed_shift == 1 or self.cur_hysteresis == 1:
                if self.cur_scale == 1:
                    raise Exception("Current loss scale already at minimum")
                self.cur_scale = max(self.cur_scale / 2.0, 1)
            else:
                self.cur_hysteresis -= 1
            self.last_overflow_iter = self.cur_iter
        else:
            stable = self.cur_iter - self.last_overflow_iter - 1
            if stable > 0 and stable % self.scale_window == 0:
                self.cur_hysteresis = self.delayed_shift
                self.cur_scale *= 2.0
        self.cur_iter += 1


@dataclass(frozen=True)
class JmpLike:
    """jmp's DynamicLossScale without JAX."""

    loss_scale: Any = JMP_SCALE
    counter: int = 0
    period: int = 2000
    min_loss_scale: Any = ONE

    def scale(self, loss: Any) -> Any:
        return loss * self.loss_scale

    def unscale(self, tree: Any) -> Any:
        return {name: gradient * (F(1) / self.loss_scale) for name, gradient in tree.items()}

    def adjust(self, finite: Any) -> JmpLike:
        assert finite.ndim == 0, "Expected boolean scalar"
        if not finite:
            return replace(self, loss_scale=max(self.min_loss_scale, self.loss_scale / F(2)), counter=0)
        with np.errstate(over="ignore"):
            grown = self.loss_scale * F(2)
        grows = self.counter == self.period - 1 and np.isfinite(grown)
        scale = grown if grows else self.loss_scale
        return replace(self, loss_scale=scale, counter=(self.counter + 1) % self.period)

    def tree_flatten(self) -> Any:
        return (self.loss_scale, self.counter), (self.period,)

    @classmethod
    def tree_unflatten(cls, rest: Any, leaves: Any) -> JmpLike:
        return cls(F(leaves[0]), int(leaves[1]), *rest)


@dataclass(frozen=True)
class FlaxLike:
    """flax's DynamicScale without JAX: it takes derivatives that it is given."""

    scale: Any = FLAX_SCALE
    growth_interval: int = 2000
    fin_steps: int = 0

    def value_and_grad(self, loss: Any) -> Any:
        def run(parameters: Any) -> Any:
            with np.errstate(over="ignore", invalid="ignore"):
                grad = {name: F(part) / self.scale for name, part in loss.derivatives.items()}
            finite = all(np.isfinite(part).all() for part in grad.values())
            return SimpleNamespace(dynamic_scale=self._following(finite), finite=finite, grad=grad)

        return run

    def _following(self, finite: bool) -> FlaxLike:
        if not finite:
            return replace(self, scale=max(self.scale * F(0.5), F(2.0**-126)), fin_steps=0)
        if self.fin_steps == self.growth_interval:
            with np.errstate(over="ignore"):
                grown = min(self.scale * F(2), np.finfo(F).max)
            return replace(self, scale=grown, fin_steps=0)
        return replace(self, fin_steps=self.fin_steps + 1)
