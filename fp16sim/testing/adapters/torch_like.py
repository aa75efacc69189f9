"""Drives objects that look like torch's GradScaler, those of FSDP too: `scale`, `unscale_`, `step` and `update`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from fp16sim.testing.adapters.looks import has_methods, is_refusal, made_of, stop_of, worded
from fp16sim.testing.driver import (
    ONE_GROUP,
    PEAK,
    Array,
    Driver,
    Floats,
    Refusal,
    Told,
    clipped,
    need_group,
    need_letter,
    scaled,
)
from fp16sim.testing.histories import FINITE, NAN, OVERFLOW

__all__ = ["TorchDriver"]

_SHOWN = {FINITE: PEAK, OVERFLOW: np.inf, NAN: np.nan}
_UNSCALED, _STEPPED = "unscaled", "stepped"
_OF_TORCH = 8  # 44 us a step of a GradScaler on a CPU, where one of this package takes 3 to 7


class TorchDriver(Driver):
    """A loop around a GradScaler (torch 2.13), with one parameter and one optimizer for each group.

    Needed are ``scale(loss)``, ``step(optimizer)`` and ``update()``. Used if they are there are
    ``unscale_(optimizer)``, ``get_scale()``, ``state_dict()`` and ``load_state_dict(state)``.

    The optimizer records what it is given. It has `param_groups`, a list of one dict, whose entry ``"params"`` is a
    list of one parameter with a `grad`; ``step()`` and ``zero_grad()``. If the object is made of torch, which is if its
    class or a base class is torch's or stands in a module that imports torch, they are an Optimizer and a Parameter of
    torch, in float32, on the scaler's device: autograd adds a float16 gradient to a float32 parameter in float32. The
    parameter of a ``ShardedGradScaler`` has the dtype of its gradient. A look-alike without torch finds float32 numpy
    arrays as `grad`, or None, and may change them in place or replace them; ``scale`` is given ``np.float32(1)``, and
    may give anything that ``float()`` takes. Arrays have no ``isfinite()``, ``mul_()`` or ``detach()``, and the
    optimizer no `state`: such a call is a fault of the scaler.

    What it says of calls out of order (RuntimeError, AssertionError, ValueError), or of a step without gradients, is a
    refusal.
    """

    can = frozenset({"groups", "unchecked", "counts"})

    def __init__(self, scaler: Any, groups: tuple[str, ...] = ONE_GROUP) -> None:
        if has_methods(scaler, "is_enabled") and not scaler.is_enabled():
            raise TypeError(
                f"this {type(scaler).__name__} is disabled (enabled=False, or no such device): pass one for 'cpu'"
            )
        self.scaler, self.groups = scaler, groups
        self._before = 0
        torch = made_of(scaler, "torch")
        self.cost = _OF_TORCH if torch else 1
        self._tensors: _Arrays = _Tensors(scaler) if torch else _Arrays()
        self._optimizers: dict[str, _Recorder] = {group: self._tensors.optimizer() for group in groups}
        self._keeps_dtype = any(kind.__name__ == "ShardedGradScaler" for kind in type(scaler).__mro__)
        self._one = self._tensors.new(np.float32(1.0))
        self._shown = {
            letter: self._tensors.new(np.full(1, value, np.float32)) for letter, value in _SHOWN.items()
        }
        self._stages: dict[str, str] = {}
        self._stop: str | None = None
        self._overflow = False

    @staticmethod
    def drives(scaler: Any) -> bool:
        """Whether an object looks like that."""
        return has_methods(scaler, "scale", "step", "update")

    @property
    def counted(self) -> int:  # type: ignore[override]
        """Steps that the optimizers took."""
        return sum((optimizer.steps for optimizer in self._optimizers.values()), self._before)

    def scale(self, group: str) -> float:
        return float(self.scaler.get_scale()) if has_methods(self.scaler, "get_scale") else self.factor(group)

    def factor(self, group: str) -> float:
        with np.errstate(all="ignore"):
            return float(self.scaler.scale(self._one))

    def backward(self, gradients: Mapping[str, Floats | None], dtype: str = "float32") -> None:
        for group, gradient in gradients.items():
            need_group(group, self.groups)
            if gradient is None:
                continue
            new, old = scaled(gradient, self.factor(group), dtype), self.gradient(group)
            if not self._keeps_dtype:
                new = new.astype(np.float32)
            with np.errstate(all="ignore"):
                self.put(group, new if old is None else old + new)

    def gradient(self, group: str) -> Array | None:
        need_group(group, self.groups)
        gradient = self._optimizers[group].parameter.grad
        return None if gradient is None else self._tensors.array(gradient)

    def put(self, group: str, gradient: Array) -> None:
        self._overflow = self._overflow or not bool(np.isfinite(gradient).all())
        wanted = gradient if self._keeps_dtype else gradient.astype(np.float32)
        self._tensors.put(self._optimizers[group].parameter, wanted)

    def unscale(self, group: str) -> None:
        if not has_methods(self.scaler, "unscale_"):
            raise Refusal(f"a {type(self.scaler).__name__} has no unscale_")
        need_group(group, self.groups)
        self._called(group in self._stages, self.scaler.unscale_, self._optimizers[group], group)
        self._stages[group] = _UNSCALED

    def clip(self, group: str, norm: float) -> None:
        if group not in self._stages:
            self.unscale(group)
        gradient = self.gradient(group)
        if gradient is not None:
            self.put(group, clipped(gradient, norm))

    def step(self, group: str) -> Array | None:
        need_group(group, self.groups)
        optimizer = self._optimizers[group]
        before, optimizer.given = optimizer.steps, None
        stepped = self._stages.get(group) == _STEPPED
        try:
            self._called(stepped, self.scaler.step, optimizer, group)
        except Refusal:
            raise
        except Exception as error:
            self._stop = stop_of(error, self._overflow)
        self._stages[group] = _STEPPED
        given = optimizer.given
        return None if optimizer.steps == before or given is None else self._tensors.array(given)

    def update(self) -> str | None:
        stop, self._stop = self._stop, None
        if stop is None:
            try:
                self._called(not self._stages, self.scaler.update)
            except Refusal:
                raise
            except Exception as error:
                stop = stop_of(error, self._overflow)
        self._stages, self._overflow = {}, False
        return stop

    def zero_grad(self) -> None:
        self._overflow = False
        for optimizer in self._optimizers.values():
            optimizer.parameter.grad = None

    def saved(self) -> dict[str, Any]:
        both = has_methods(self.scaler, "state_dict", "load_state_dict")
        return {"state_dict": self.scaler.state_dict()} if both else {}  # a copy would hide what it shares

    def restored(self, way: str, state: Any, fresh: Any) -> TorchDriver:
        fresh.load_state_dict(state)
        driver = TorchDriver(fresh, self.groups)
        driver._before = self.counted
        return driver

    def tell(self, letter: str) -> Told:
        need_letter(letter)
        scaler, before, stop = self.scaler, self.counted, None
        try:
            for optimizer in self._optimizers.values():
                with np.errstate(all="ignore"):
                    scaler.scale(self._one)
                    self._tensors.refill(optimizer.parameter, self._shown[letter])
                    scaler.step(optimizer)
            scaler.update()
        except Exception as error:
            stop = stop_of(error, letter != FINITE)
        return Told(self.counted > before, stop)

    def _called(
        self, out_of_order: bool, method: Callable[..., Any], optimizer: Any = None, group: str | None = None
    ) -> None:
        """Call a method; its error in a call out of order, or about no gradients at all, is a refusal."""
        bare = group is not None and self._optimizers[group].parameter.grad is None
        try:
            with np.errstate(all="ignore"):
                method() if optimizer is None else method(optimizer)
        except Exception as error:
            if (out_of_order or bare) and is_refusal(error):
                raise Refusal(worded(error)) from error
            raise


class _Parameter:
    """A parameter of a look-alike without torch."""

    stands_for = "a parameter that has a `grad`, and nothing else"

    def __init__(self) -> None:
        self.grad: Any = None


class _Recorder:
    """An optimizer that keeps what it is given."""

    stands_for = "an optimizer that has `param_groups`, `step()` and `zero_grad()`, and nothing else"

    def __init__(self, parameter: Any) -> None:
        self.parameter = parameter
        self.param_groups = [{"params": [parameter]}]
        self.given: Any = None
        self.steps = 0

    def step(self, *_: Any, **__: Any) -> None:
        """Take a step that changes nothing."""
        self.given = self.parameter.grad
        self.steps += 1

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradient."""
        self.parameter.grad = None


class _Arrays:
    """Tensors of a look-alike without torch: numpy arrays."""

    def optimizer(self) -> Any:
        return _Recorder(_Parameter())

    def new(self, value: Any) -> Any:
        return value

    def array(self, tensor: Any) -> Array:
        array: Array = np.array(tensor)
        return array

    def put(self, parameter: Any, gradient: Array) -> None:
        parameter.grad = gradient.copy()

    def refill(self, parameter: Any, shown: Any) -> None:
        parameter.grad = shown.copy()


class _Tensors(_Arrays):
    """Tensors of torch, on the scaler's device."""

    def __init__(self, scaler: Any) -> None:
        import torch

        device = getattr(scaler, "_device", "cpu")
        self.torch, self.device = torch, device if isinstance(device, str) else "cpu"

    def optimizer(self) -> Any:
        torch = self.torch
        return _recorder_of_torch()(torch.nn.Parameter(torch.zeros(1, device=self.device)))

    def new(self, value: Any) -> Any:
        return self.torch.tensor(value, device=self.device)

    def array(self, tensor: Any) -> Array:
        array: Array = tensor.detach().cpu().numpy().copy()
        return array

    def put(self, parameter: Any, gradient: Array) -> None:
        new = self.new(gradient)
        if parameter.shape != new.shape or parameter.dtype != new.dtype:
            parameter.grad = None
            parameter.data = self.torch.zeros_like(new)
        parameter.grad = new

    def refill(self, parameter: Any, shown: Any) -> None:
        if parameter.shape == shown.shape and parameter.dtype == shown.dtype:
            parameter.grad = shown.clone()
        else:
            self.put(parameter, self.array(shown))


@cache
def _recorder_of_torch() -> Any:
    import torch

    class Recorder(_Recorder, torch.optim.Optimizer):  # type: ignore[misc]  # step needs no closure
        def __init__(self, parameter: Any) -> None:
            torch.optim.Optimizer.__init__(self, [parameter], {})
            self.parameter, self.given, self.steps = parameter, None, 0

    return Recorder
