"""States with the same future: clocks counted from the last event, and counters that can no longer matter, cut off.

Frameworks count steps for ever; what their rules ask is how long ago something was. A table of transitions closes only
if states that will do the same are one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fp16sim.scaling.apex import ApexFp16UtilsScaler, ApexScaler
from fp16sim.scaling.colossalai import ColossalAIScaler
from fp16sim.scaling.deepspeed import DeepSpeedScaler, DeepSpeedUnfusedScaler
from fp16sim.scaling.fairseq import FairseqScaler, MetaseqScaler
from fp16sim.scaling.jax import FlaxScaler
from fp16sim.scaling.keras3 import Keras3Scaler
from fp16sim.scaling.megatron import MegatronScaler
from fp16sim.scaling.mindspore import MindSporeCellScaler, MindSporeManagerScaler
from fp16sim.scaling.mxnet import MxnetScaler
from fp16sim.scaling.openseq2seq import OpenSeq2SeqBackoffScaler
from fp16sim.scaling.paddle import PaddleScaler
from fp16sim.scaling.torch import TorchScaler
from fp16sim.scaling.torch_fsdp import TorchFsdpScaler

__all__ = ["reduced"]


def reduced(scaler: Any) -> Any:
    """Give the scaler, or one that does the same on every history and counts less.

    Examples
    --------
    >>> old = DeepSpeedScaler(loss_scale_window=10, iteration=1_000_007, last_overflow=0)
    >>> reduced(old).iteration, reduced(old).last_overflow
    (6, -1)
    """
    reduce = _RULES.get(type(scaler))
    return scaler if reduce is None else reduce(scaler)


def _capped(*counters: tuple[str, str]) -> Callable[[Any], Any]:
    """Cut counters that are compared with their limit for equality: beyond it they never meet it again."""

    def reduce(scaler: Any) -> Any:
        most = {counter: max(getattr(scaler, limit), 0) + 1 for counter, limit in counters}
        over = {counter: value for counter, value in most.items() if getattr(scaler, counter) > value}
        return replace(scaler, **over) if over else scaler

    return reduce


def _remainder(steps: int, window: Any) -> int:
    """Give the number from 1 to the window that leaves the same remainder by it: none for a window of 0."""
    return (steps - 1) % abs(window) + 1 if isinstance(window, int) and window else steps


def _clock(now: str, last: str, window: str, start: int) -> Callable[[Any], Any]:
    """Count from the last event, which is put at `start`; only the remainder by the window is asked for."""

    def reduce(scaler: Any) -> Any:
        steps = _remainder(getattr(scaler, now) - getattr(scaler, last), getattr(scaler, window))
        return _with(scaler, **{now: start + steps, last: start})

    return reduce


def _deepspeed(scaler: Any) -> Any:
    stable = scaler.iteration - scaler.last_overflow - 1  # 0 is unlike the window: no growth there
    if stable > scaler.loss_scale_window:
        stable = _remainder(stable, scaler.loss_scale_window)
    return _with(scaler, iteration=stable, last_overflow=-1)


def _deepspeed_with_hysteresis(scaler: Any) -> Any:
    # Below 1 it is counted down for ever and never meets 1.
    return _with(_deepspeed(scaler), hysteresis_left=max(scaler.hysteresis_left, 0))


def _fairseq(scaler: Any) -> Any:
    return _since(scaler, _remainder(scaler.iteration - scaler.last_overflow, scaler.scale_window))


def _metaseq(scaler: Any) -> Any:
    # Growth doubles the window, so the remainder by the present one is not enough.
    return _since(scaler, scaler.iteration - scaler.last_overflow)


def _since(scaler: Any, steps: int) -> Any:
    rescaled = scaler.iteration - scaler.last_rescale
    if scaler.tolerance <= 0 and rescaled > 0 and scaler.overflows >= 0:
        rescaled = 1  # any share of overflows is tolerance enough
    return _with(scaler, iteration=steps - 1, last_overflow=-1, last_rescale=steps - 1 - rescaled)


def _cell(scaler: Any) -> Any:
    steps = min(scaler.iteration - scaler.last_change, max(scaler.scale_window, 0))
    return _with(scaler, iteration=steps, last_change=0)


def _megatron(scaler: Any) -> Any:
    return _with(scaler, hysteresis_tracker=max(scaler.hysteresis_tracker, 0))


def _colossalai(scaler: Any) -> Any:
    return _with(_COLOSSALAI_GROWTH(scaler), hysteresis_step=min(scaler.hysteresis_step, scaler.hysteresis))


def _with(scaler: Any, **values: int) -> Any:
    return (
        scaler
        if all(getattr(scaler, key) == value for key, value in values.items())
        else replace(scaler, **values)
    )


_COLOSSALAI_GROWTH = _capped(("growth_step", "growth_interval"))
_RULES: dict[type, Callable[[Any], Any]] = {
    TorchScaler: _capped(("growth_tracker", "growth_interval")),
    TorchFsdpScaler: _capped(("growth_tracker", "growth_interval")),
    ApexScaler: _capped(("unskipped", "scale_window")),
    ApexFp16UtilsScaler: _clock("cur_iter", "last_overflow_iter", "scale_window", -1),
    Keras3Scaler: _capped(("step_counter", "dynamic_growth_steps")),
    FlaxScaler: _capped(("fin_steps", "growth_interval")),
    MxnetScaler: _capped(("unskipped", "scale_seq_len")),
    PaddleScaler: _capped(("incr_count", "incr_every_n_steps"), ("decr_count", "decr_every_n_nan_or_inf")),
    DeepSpeedScaler: _deepspeed_with_hysteresis,
    DeepSpeedUnfusedScaler: _deepspeed,
    FairseqScaler: _fairseq,
    MetaseqScaler: _metaseq,
    MegatronScaler: _megatron,
    MindSporeManagerScaler: _clock("iteration", "last_overflow", "scale_window", 0),
    MindSporeCellScaler: _cell,
    ColossalAIScaler: _colossalai,
    OpenSeq2SeqBackoffScaler: _clock("iteration", "last_overflow", "step_window", -1),
}
