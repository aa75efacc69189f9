"""The two dynamic rules of OpenSeq2Seq: backoff, and logmax, which follows the logarithm of the largest gradient.

Source: NVIDIA/OpenSeq2Seq (master): open_seq2seq/optimizers/automatic_loss_scaler.py, mp_wrapper.py. Older versions
have 2^24 for `scale_max`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np

from fp16sim.autograd.arithmetic import Array
from fp16sim.emulator import float32_functions
from fp16sim.scaling.framework import check_entries
from fp16sim.scaling.numbers import divide32, float32, multiply32, need_float32, need_integer
from fp16sim.scaling.observing import observe_unscaled
from fp16sim.scaling.protocol import Decision, Observation, need_check, unscale
from fp16sim.scaling.state import SavedScaler

__all__ = ["OpenSeq2SeqBackoffScaler", "OpenSeq2SeqLogMaxScaler"]

_BACKOFF_STATE = ("iteration", "last_overflow_iteration", "scale")
_LOGMAX_STATE = (
    "iteration",
    "scale",
    "x_hat",
    "slow_x_hat",
    "xsquared_hat",
    "b1_correction",
    "b2_correction",
)


@dataclass(frozen=True)
class OpenSeq2SeqBackoffScaler(SavedScaler):
    """Divide at every overflow; multiply after `step_window` finite steps; stay between two bounds.

    Parameters
    ----------
    scale_min, scale_max : float
        Bounds, rounded to float32; the scale starts at the upper one. Above it, the minimum wins.
    step_factor : float
        Not 0; rounded to float32.
    step_window : int
        The scale grows on exactly that finite step; a negative one works as its magnitude. 0 stops at the first
        finite step (an integer division by zero in TensorFlow).
    scale : float, optional
        State: the current scale, a float32 value. Default: `scale_max`.
    iteration, last_overflow : int
        State: steps so far, and the one that overflowed last (-1: none).

    Notes
    -----
    Quotients and products are float32. Gradients become float32, are multiplied by the float32 reciprocal, and are
    tested after that, element by element. A skip leaves the global step alone. All state is TensorFlow variables, which
    a checkpoint holds.

    Violates: 3 (at the minimum overflows are skipped for ever), 7 (only with a minimum above the maximum: ``o``), 8
    (other factors or bounds than powers of two). Without a minimum (0) also 5.

    Examples
    --------
    >>> scaler = OpenSeq2SeqBackoffScaler(step_window=2)
    >>> for letter in "o...":
    ...     scaler, _ = scaler.update(Observation(overflow=letter == "o"))
    ...     print(scaler.scale)
    8192.0
    8192.0
    16384.0
    16384.0
    """

    name: ClassVar[str] = "openseq2seq_backoff"
    options: ClassVar[tuple[str, ...]] = ("scale_min", "scale_max", "step_factor", "step_window")
    initial: ClassVar[str | None] = "scale_max"
    window: ClassVar[str | None] = "step_window"
    growth: ClassVar[str | None] = "step_factor"

    scale_min: float = 1.0
    scale_max: float = 2.0**14
    step_factor: float = 2.0
    step_window: int = 2000
    scale: float = None  # type: ignore[assignment]  # a float after __post_init__
    iteration: int = 0
    last_overflow: int = -1

    def __post_init__(self) -> None:
        for option in ("scale_min", "scale_max", "step_factor"):
            value = getattr(self, option)
            need_float32(option, value)
            if value == 0 and option != "scale_min":
                raise ValueError(f"{option}={value!r}: it is divided by; pass another number than 0")
        need_integer("step_window", self.step_window)
        object.__setattr__(self, "scale", float32(self.scale_max if self.scale is None else self.scale))

    def update(self, observation: Observation) -> tuple[OpenSeq2SeqBackoffScaler, Decision]:
        """Move the scale by one step."""
        need_check(observation)
        following = self.moved(iteration=self.iteration + 1)
        if observation.overflowed:
            scale = _clip(divide32(self.scale, self.step_factor), self.scale_min, self.scale_max)
            following = replace(following, scale=scale, last_overflow=self.iteration)
            return following, Decision(apply=False, divide_by=self.scale)
        if not self.step_window:
            stop = "step_window is 0: integer division by zero"
            return self, Decision(apply=True, divide_by=self.scale, stop=stop)
        if (self.iteration - self.last_overflow) % self.step_window == 0:
            scale = _clip(multiply32(self.scale, self.step_factor), self.scale_min, self.scale_max)
            following = replace(following, scale=scale)
        return following, Decision(apply=True, divide_by=self.scale)

    def observe(self, gradients: Sequence[Array | None]) -> Observation:
        """Test every element after unscaling."""
        return observe_unscaled(gradients, Decision(apply=True, divide_by=self.scale))

    def framework_state(self) -> dict[str, Any]:
        """Give the variables of ``BackoffScaler``."""
        return dict(zip(_BACKOFF_STATE, (self.iteration, self.last_overflow, self.scale), strict=True))

    def load_framework_state(self, state: Mapping[str, Any]) -> OpenSeq2SeqBackoffScaler:
        """Give this scaler with the saved variables.

        >>> saved = OpenSeq2SeqBackoffScaler(scale_max=8.0).framework_state()
        >>> OpenSeq2SeqBackoffScaler().load_framework_state(saved).scale
        8.0
        """
        check_entries(state, _BACKOFF_STATE, "BackoffScaler", "its variables")
        return replace(
            self,
            iteration=int(state["iteration"]),
            last_overflow=int(state["last_overflow_iteration"]),
            scale=float(state["scale"]),
        )


@dataclass(frozen=True)
class OpenSeq2SeqLogMaxScaler(SavedScaler):
    """Put the scale so that the largest gradient, taken as log-normal, seldom reaches 2^16.

    Parameters
    ----------
    scale_min, scale_max : float
        Bounds, rounded to float32.
    log_max : float
        Of an overflow, 2^log_max is taken as the logarithm.
    beta1, beta2 : float
        Decay of the mean, and of the mean and mean square from which comes the standard deviation.
    overflow_std_dev : float
        Standard deviations between the mean and 2^16.
    scale : float
        State: the current scale, a float32 value, 1 at the start.
    x_hat, slow_x_hat, xsquared_hat, b1_correction, b2_correction : float
        State: running means and the powers of the betas, float32 values.
    iteration : int
        State: steps so far.

    Notes
    -----
    With a the largest magnitude of the unscaled gradients and x = log(a) / log(2), or x = 2^log_max after an overflow,
    each operation rounded to float32::

        x_hat   <- beta1 x_hat + (1 - beta1) x;       mu <- x_hat / (1 - beta1^t)
        slow    <- beta2 slow + (1 - beta2) x;        m  <- slow / (1 - beta2^t)
        square  <- beta2 square + (1 - beta2) x^2;    v  <- square / (1 - beta2^t)
        scale   <- clip(2^(16 - (sqrt(max(v - m^2, 0)) std + mu)), scale_min, scale_max)

    log and power are this package's, within .500001 units in the last place; TensorFlow's own differ in the last
    place, by which the scale was off by 1.3e-5 relative at most in 1,000 steps beside TensorFlow 2.21. `log_max` was
    meant to be the logarithm, but 2^16 is fed where 16 belongs. The scale is no power of two. Every step, skipped ones
    too, moves the averages. An amax of 0 has the logarithm -infinity: mu is infinite, the deviation NaN, and so is the
    scale, for ever.

    Violates: 3 (after one ``o`` the scale is 1 for 11,009 steps where amax is 2^-10; after an amax of 0 it is NaN, and
    every step overflows for ever), 4 (the same NaN), 6 (the same ``o``), 8 (the scale is no power of two), 9 (it has no
    window), 14 (each further ``o`` at the minimum holds it there for longer).

    Examples
    --------
    >>> scaler, _ = OpenSeq2SeqLogMaxScaler().update(Observation(amax=8.0))
    >>> scaler.scale
    8191.98388671875
    """

    name: ClassVar[str] = "openseq2seq_logmax"
    options: ClassVar[tuple[str, ...]] = (
        "scale_min",
        "scale_max",
        "log_max",
        "beta1",
        "beta2",
        "overflow_std_dev",
    )

    scale_min: float = 1.0
    scale_max: float = 2.0**14
    log_max: float = 16.0
    beta1: float = 0.99
    beta2: float = 0.999
    overflow_std_dev: float = 3.09
    scale: float = 1.0
    x_hat: float = 0.0
    slow_x_hat: float = 0.0
    xsquared_hat: float = 0.0
    b1_correction: float = 1.0
    b2_correction: float = 1.0
    iteration: int = 0

    def __post_init__(self) -> None:
        for option in self.options:
            need_float32(option, getattr(self, option))

    def update(self, observation: Observation) -> tuple[OpenSeq2SeqLogMaxScaler, Decision]:
        """Move the averages and the scale by one step.

        Raises
        ------
        ValueError
            If a finite step comes without its `amax`.
        """
        need_check(observation)
        f = np.float32
        with np.errstate(all="ignore"):
            x = self._logarithm(observation)
            beta1, rest1 = f(self.beta1), f(1 - self.beta1)
            beta2, rest2 = f(self.beta2), f(1 - self.beta2)
            x_hat = beta1 * f(self.x_hat) + rest1 * x
            slow = beta2 * f(self.slow_x_hat) + rest2 * x
            square = beta2 * f(self.xsquared_hat) + rest2 * (x * x)
            power1 = f(self.b1_correction) * beta1
            power2 = f(self.b2_correction) * beta2
            mu = x_hat / (f(1) - power1)
            slow_mu = slow / (f(1) - power2)
            variance = square / (f(1) - power2) - slow_mu * slow_mu
            sigma = np.sqrt(np.maximum(variance, f(0)))  # NaN stays NaN
            proposed = _power_of_two(f(16) - (sigma * f(self.overflow_std_dev) + mu))
        following = self.moved(
            scale=_clip(float(proposed), self.scale_min, self.scale_max),
            x_hat=float(x_hat),
            slow_x_hat=float(slow),
            xsquared_hat=float(square),
            b1_correction=float(power1),
            b2_correction=float(power2),
            iteration=self.iteration + 1,
        )
        return following, Decision(apply=not observation.overflowed, divide_by=self.scale)

    def observe(self, gradients: Sequence[Array | None]) -> Observation:
        """Test every element after unscaling, and take the largest magnitude of the unscaled float32 gradients."""
        decision = Decision(apply=True, divide_by=self.scale)
        found = observe_unscaled(gradients, decision)
        if found.overflowed:
            return found
        peaks = [
            float(np.max(np.abs(unscale(gradient, decision))))
            for gradient in gradients
            if gradient is not None and gradient.size
        ]
        return replace(found, amax=max(peaks, default=0.0))

    def framework_state(self) -> dict[str, Any]:
        """Give the variables of ``LogMaxScaler``."""
        return {entry: getattr(self, entry) for entry in _LOGMAX_STATE}

    def load_framework_state(self, state: Mapping[str, Any]) -> OpenSeq2SeqLogMaxScaler:
        """Give this scaler with the saved variables.

        >>> scaler, _ = OpenSeq2SeqLogMaxScaler().update(Observation(amax=8.0))
        >>> OpenSeq2SeqLogMaxScaler().load_framework_state(scaler.framework_state()) == scaler
        True
        """
        check_entries(state, _LOGMAX_STATE, "LogMaxScaler", "its variables")
        numbers = {entry: float(state[entry]) for entry in _LOGMAX_STATE if entry != "iteration"}
        return replace(self, iteration=int(state["iteration"]), **numbers)

    def _logarithm(self, observation: Observation) -> np.float32:
        amax = observation.amax
        if isinstance(amax, Mapping):
            amax = max(amax.values(), default=0.0)
        if observation.overflowed or (amax is not None and not math.isfinite(float32(amax))):
            return _power_of_two(np.float32(self.log_max))
        if amax is None:
            raise ValueError(
                "amax=None: logmax follows the largest gradient; pass Observation(amax=...), or observe the gradients"
            )
        return _log2(float32(amax))


@lru_cache(maxsize=4096)
def _log2(value: float) -> np.float32:
    """Give the quotient of two logarithms, as the framework takes it; it is the same for both zeros."""
    with np.errstate(all="ignore"):
        return np.float32(float32_functions.log(np.float32(value)) / float32_functions.log(np.float32(2)))


@lru_cache(maxsize=4096)
def _power_of_two(exponent: np.float32) -> np.float32:
    return np.float32(float32_functions.pow(np.float32(2), exponent))


def _clip(value: float, low: float, high: float) -> float:
    """Limit as ``tf.clip_by_value``: NaN stays, and the lower bound wins."""
    if math.isnan(value):
        return value
    return max(min(value, float32(high)), float32(low))
