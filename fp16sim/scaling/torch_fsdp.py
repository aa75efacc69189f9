"""The scaler of torch's fully sharded data parallelism, on a CPU.

Source: torch/distributed/fsdp/sharded_grad_scaler.py, torch 2.13.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from fp16sim.autograd.tensor import Tensor
from fp16sim.scaling.numbers import multiply32
from fp16sim.scaling.observing import in_float32
from fp16sim.scaling.protocol import Decision, Observation
from fp16sim.scaling.torch import TorchScaler, step_of_each

__all__ = ["TorchFsdpScaler"]


@dataclass(frozen=True)
class TorchFsdpScaler(TorchScaler):
    """Move the scale as torch's GradScaler does, without a guard against infinity, and unscale float16 gradients.

    Parameters
    ----------
    init_scale, growth_factor, backoff_factor, growth_interval, scale, growth_tracker
        As in :class:`fp16sim.scaling.TorchScaler`.

    Notes
    -----
    This is ``ShardedGradScaler`` on a CPU: the factor is rounded to float32 and the product is a float32 one, two
    roundings; on a GPU it calls the kernel of GradScaler, which rounds once and does not grow to infinity. Scaled
    gradients are tested; the ranks add up what they found, so any of them skips the step on all. A float16 gradient is
    multiplied by the float32 reciprocal in float32 and rounded back to float16: at 65536 a true 5e-8 becomes 5.96e-8,
    and 2e-8 becomes 0. The loss is scaled in float32 and rounded back to its format: a float16 loss of 1 at 65536 is
    infinite. A skip leaves the optimizer as it was.

    Violates: 1, 5 and 13 (as `torch`; there is no way out of 0 either), 3 and 4 (from 2^127 with a window of 1, ``.``:
    the scale is infinite, every step overflows, and half of infinity is infinity).

    Examples
    --------
    >>> scaler, _ = TorchFsdpScaler(init_scale=2.0**127, growth_interval=1).update(Observation())
    >>> scaler.scale
    inf
    """

    name: ClassVar[str] = "torch_fsdp"

    def scale_loss(self, loss: Tensor) -> Tensor:
        """Multiply a loss by the scale in float32, and round it back to its format."""
        back: Tensor = in_float32(loss, self.scale).cast(loss.dtype)
        return back

    def _decide(self, observation: Observation) -> Decision:
        return Decision(apply=step_of_each(observation), divide_by=self.scale, dtype="float32_then_tensor")

    def _product(self, factor: float) -> float:
        return multiply32(self.scale, factor)

    def _grown(self) -> float:
        return self._product(self.growth_factor)
