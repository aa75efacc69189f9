"""Which operation computes in which format, and how its sums are accumulated: a policy, as data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from fp16sim.autograd.arithmetic import DTYPES, Arithmetic, format_of
from fp16sim.autograd.flavours import FLAVOURS
from fp16sim.emulator.datapath import Datapath, as_datapath
from fp16sim.emulator.formats import nearest_name

__all__ = ["POLICIES", "Policy", "as_policy", "autocast", "current_policy"]

_PRESETS = {
    #                 compute    parameters   wide       sums of compute operands
    "float32": ("float32", "float32", "float32", "float32"),
    "float16": ("float16", "float16", "float16", "float16"),
    "mixed_float16": ("float16", "float32", "float32", "float32"),
    "mixed_bfloat16": ("bfloat16", "float32", "float32", "float32"),
    "float64": ("float64", "float64", "float64", "float64"),
}
POLICIES = tuple(_PRESETS)
"""The names that a :class:`Policy` takes."""


@dataclass(frozen=True)
class Policy:
    """The formats and datapaths of a training run.

    Parameters
    ----------
    name : {"float32", "float16", "mixed_float16", "mixed_bfloat16", "float64"}
        Fills the fields that are not given.
    compute : {"float16", "bfloat16", "float32", "float64"}
        Format of the operations that are cheap in it (products, convolutions), and of what lies between them.
    parameters : likewise
        Format of the stored parameters. Under the mixed policies they are float32 master weights, which are rounded
        to `compute` where an operation uses them.
    wide : likewise
        Format of the operations that need range: losses, and what else the flavour lists.
    flavour : {"torch", "torch_cpu", "keras"}
        Whose lists say which operation computes where, if `compute` and `wide` differ: `autograd/flavours.py`.
    matmul, convolution : str or Datapath
        How products and convolutions of `compute` operands accumulate; the result is rounded to `compute`. By
        default `convolution` is as `matmul`.
    gradients : str or Datapath, optional
        How the products in a backward pass accumulate. Default: as forward.
    reduction : str or Datapath
        How sums of `compute` operands accumulate: reductions, gradients of biases and of broadcasting, norms.

    Operands of another format (such as float32 in a mixed policy) accumulate in their own.

    Raises
    ------
    ValueError
        On an unknown name.
    TypeError
        If a datapath does not take operands of the compute format.

    Examples
    --------
    >>> policy = Policy("mixed_float16", matmul="h100")
    >>> policy.compute, policy.parameters, policy.rule("matmul"), policy.rule("cross_entropy")
    ('float16', 'float32', 'compute', 'wide')
    """

    name: str = "float32"
    compute: str = ""
    parameters: str = ""
    wide: str = ""
    flavour: str = "torch"
    matmul: str | Datapath = ""
    convolution: str | Datapath = ""
    gradients: str | Datapath = ""
    reduction: str | Datapath = ""
    _rules: dict[str, str] = field(init=False, repr=False, compare=False, hash=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.name not in _PRESETS:
            raise ValueError(f"unknown policy {self.name!r}: {nearest_name(self.name, list(_PRESETS))}")
        if self.flavour not in FLAVOURS:
            raise ValueError(
                f"unknown flavour {self.flavour!r}: {nearest_name(self.flavour, list(FLAVOURS))}"
            )
        *formats, sums = _PRESETS[self.name]
        for name, preset in zip(("compute", "parameters", "wide"), formats, strict=True):
            self._default(name, preset)
            value = getattr(self, name)
            if value not in DTYPES:
                raise ValueError(f"unknown {name} format {value!r}: {nearest_name(value, list(DTYPES))}")
        self._default("matmul", sums)
        self._default("convolution", self.matmul)
        self._default("reduction", sums)
        for name in ("matmul", "convolution", "gradients", "reduction"):
            if getattr(self, name) != "":
                as_datapath(getattr(self, name)).for_operands(format_of(DTYPES[self.compute]))
        # A policy of one format computes everything in it; a mixed one goes by the lists of its flavour.
        if self.compute != self.wide:
            self._rules.update(FLAVOURS[self.flavour])

    def _default(self, name: str, value: Any) -> None:
        if getattr(self, name) == "":
            object.__setattr__(self, name, value)

    @property
    def is_mixed(self) -> bool:
        """Whether some operations compute in another format than others."""
        return self.compute != self.wide

    def rule(self, operation: str) -> str:
        """Say what happens to the operands of an operation, by name.

        Returns
        -------
        {"compute", "wide", "inside", "promote"}
            They are converted to `compute`; to `wide`; to `wide` and the result back to the format of the first; or to
            the widest among them. That is also the answer for a name that no list has, one that no operation has
            included: lists name the exceptions only.
        """
        return self._rules.get(operation, "promote") if self.is_mixed else "compute"

    @cached_property
    def forward(self) -> Arithmetic:
        """The arithmetic of forward passes."""
        return Arithmetic(self.matmul, self.convolution, self.reduction)

    @cached_property
    def backward(self) -> Arithmetic:
        """The arithmetic of gradients."""
        return Arithmetic(self.gradients or self.matmul, self.gradients or self.convolution, self.reduction)


@dataclass(frozen=True)
class Scope:
    """The policy in force, and what it has rounded already: a weight that is used twice is rounded once."""

    policy: Policy
    casts: dict[Any, Any]
    active: bool = True


_OUTSIDE = Scope(Policy("float32"), {}, active=False)
_current: ContextVar[Scope] = ContextVar("fp16sim_policy", default=_OUTSIDE)


def as_policy(policy: Policy | str) -> Policy:
    """Take a policy as it is, or find it by name."""
    if isinstance(policy, Policy):
        return policy
    if not isinstance(policy, str):
        raise TypeError(
            f"a {type(policy).__name__} is no policy: pass a name such as 'mixed_float16', or fs.Policy"
        )
    return Policy(policy)


def current_policy() -> Policy:
    """Give the policy of the innermost `autocast`; float32 outside of any."""
    return _current.get().policy


def current_scope() -> Scope:
    """Give the innermost `autocast` block; outside of any one that is not active."""
    return _current.get()


def autocast(policy: Policy | str) -> AbstractContextManager[Policy]:
    """Compute under a policy inside a ``with`` block; blocks nest.

    Outside of any block nothing is converted, except that operands of elementwise operations meet in the widest of
    their formats. As in torch, a parameter that several operations of the outermost block use is converted once, so
    its gradients meet in the narrow format.

    >>> with autocast("mixed_float16"):
    ...     current_policy().compute
    'float16'
    >>> current_policy().compute
    'float32'
    """
    return _under(as_policy(policy))  # an unknown name is refused here, not when the block begins


@contextmanager
def _under(policy: Policy) -> Iterator[Policy]:
    outer = _current.get()
    token = _current.set(Scope(policy, outer.casts if outer.active else {}))
    try:
        yield policy
    finally:
        _current.reset(token)
