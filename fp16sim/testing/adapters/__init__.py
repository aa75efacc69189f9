"""Drivers of scalers as other frameworks have them, and the choice between them by what an object looks like.

Nothing of the frameworks is imported here: an object of one brings its own, and look-alikes need none.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fp16sim.scaling.wording import a_kind
from fp16sim.testing.adapters.chain import Chain
from fp16sim.testing.adapters.deepspeed_like import DeepSpeedDriver
from fp16sim.testing.adapters.flax_like import FlaxDriver
from fp16sim.testing.adapters.jmp_like import JmpDriver
from fp16sim.testing.adapters.keras_like import KerasDriver
from fp16sim.testing.adapters.looks import has_methods
from fp16sim.testing.adapters.torch_like import TorchDriver
from fp16sim.testing.driver import ONE_GROUP, Driver, as_groups
from fp16sim.testing.values import ValueDriver

__all__ = ["Chain", "adapt"]

_DRIVERS = (TorchDriver, JmpDriver, FlaxDriver, KerasDriver, DeepSpeedDriver)
_OWN = "this package's"
_FORMS = {
    _OWN: ("scale", "update"),
    "torch's": ("scale", "step", "update"),
    "jmp's": ("scale", "unscale", "adjust"),
    "flax's": ("scale", "value_and_grad"),
    "Keras 3's": ("scale_loss", "apply", "inner_optimizer"),
    "DeepSpeed's": ("cur_scale", "update_scale"),
}
_ACCEPTED = (
    "`scale` and `update(observation)`; or, as in torch, methods `scale`, `step` and `update`; as in jmp, `scale`, "
    "`unscale` and `adjust`; as in flax, `scale` and `value_and_grad`; as in Keras 3, `scale_loss`, `apply` and "
    "`inner_optimizer`; as in DeepSpeed, `cur_scale` and `update_scale`"
)


def adapt(scaler: Any, groups: Iterable[str] = ONE_GROUP) -> Driver:
    """Give a driver of a scaler, chosen by the methods and attributes that it has.

    Parameters
    ----------
    scaler : object
        One of this package's protocol (`scale`, a number, and `update`, which takes an observation); one that looks
        like torch's ``GradScaler``, FSDP's too, jmp's ``DynamicLossScale``, flax's ``DynamicScale``, Keras 3's
        ``LossScaleOptimizer`` or DeepSpeed's ``DynamicLossScaler``, see the drivers in this package on what each
        needs; or a driver already.
    groups : tuple of str
        Names of the optimizers, ranks or layers that share it; a driver has its own.

    Returns
    -------
    Driver

    Raises
    ------
    TypeError
        If it looks like none of these, if it is disabled, or if it chooses a scale for each tensor; or if `groups` is
        one text, or no names.
    ValueError
        If `groups` is empty, or names one twice.

    Examples
    --------
    >>> class Halving:
    ...     scale_now = 1024.0
    ...     def scale(self, loss):
    ...         return loss * self.scale_now
    ...     def step(self, optimizer):
    ...         (parameter,) = optimizer.param_groups[0]["params"]
    ...         parameter.grad /= self.scale_now
    ...         self.overflow = not abs(parameter.grad).max() < float("inf")
    ...         if not self.overflow:
    ...             optimizer.step()
    ...     def update(self):
    ...         self.scale_now *= 0.5 if self.overflow else 1.0
    >>> driver = adapt(Halving())
    >>> driver.tell("o"), driver.scale("all")
    (Told(applied=False, stop=None), 512.0)
    """
    kind, groups = a_kind(scaler), as_groups(groups)
    if isinstance(scaler, Driver):
        return scaler
    if isinstance(scaler, Chain):
        return scaler.driver(groups)
    if isinstance(scaler, type):
        raise TypeError(
            f"{scaler.__name__} is a class: pass a factory of objects, such as lambda: {scaler.__name__}()"
        )
    if has_methods(scaler, "scale_for"):
        raise TypeError(
            f"{kind} chooses a scale for each tensor on the way (`scale_for`): "
            "the checks are of scalers that have one for the whole loss"
        )
    if hasattr(scaler, "update") and not callable(getattr(scaler, "scale", print)):
        return ValueDriver(scaler, groups)
    for driver in _DRIVERS:
        if driver.drives(scaler):
            return driver(scaler, groups)
    raise TypeError(_refusal(scaler))


def _refusal(scaler: Any) -> str:
    """Say what an object lacks of the form that it is nearest to, or all forms if it is near none."""
    if scaler is None:
        return "None is no scaler: is a `return` missing in what makes it?"
    kind = a_kind(scaler)
    method = callable(getattr(scaler, "scale", None))
    has = {
        form: [
            name for name in names if hasattr(scaler, name) and (name != "scale" or method == (form != _OWN))
        ]
        for form, names in _FORMS.items()
    }
    near = max(_FORMS, key=lambda form: len(has[form]) / len(_FORMS[form]))
    if not has[near]:
        return f"{kind} is no scaler: it needs {_ACCEPTED}"
    lacks = [name for name in _FORMS[near] if name not in has[near]]
    if not lacks:
        return f"{kind} is no scaler: it looks like {near}, and not all of {_listed(has[near])} are methods"
    what = ", a number" if near == _OWN and lacks == ["scale"] else ""
    return f"{kind} is no scaler: it looks like {near}, with {_listed(has[near])}, and lacks {_listed(lacks)}{what}"


def _listed(names: list[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return " and ".join(filter(None, [", ".join(quoted[:-1]), quoted[-1]]))
