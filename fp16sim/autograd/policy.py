"""Which operation computes in which format, and how its sums are accumulated: a policy, as data."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

from fp16sim.emulator.formats import nearest_name

__all__ = ["Policy", "as_policy", "autocast", "current_policy"]

_PRESETS = {
    #                   compute    parameters  losses     matmul     reduction
    "float32": ("float32", "float32", "float32", "float32", "float32"),
    "float16": ("float16", "float16", "float16", "float16", "float16"),
    "mixed_float16": ("float16", "float32", "float32", "float32", "float32"),
}
_FORMATS = ("float16", "float32")
_DATAPATHS = ("float16", "float32")


@dataclass(frozen=True)
class Policy:
    """The formats and datapaths of a training run.

    Parameters
    ----------
    name : {"float32", "float16", "mixed_float16"}
        Fills the fields that are not given.
    compute : {"float16", "float32"}
        Format of layers: activations, weights as the layers see them, and their gradients.
    parameters : {"float16", "float32"}
        Format of the stored parameters. Under mixed_float16 they are float32 master weights, which each layer
        rounds to float16 when it uses them.
    losses : {"float16", "float32"}
        Format in which losses compute.
    matmul : {"float16", "float32"}
        Format in which a matrix product accumulates, in increasing k; the result is rounded to `compute`
        once.
    reduction : {"float16", "float32"}
        Format in which every other sum accumulates, in increasing C-order index.

    Raises
    ------
    ValueError
        On an unknown name or format, with the nearest valid one, or if float32 results would be accumulated
        in float16.

    Examples
    --------
    >>> Policy("mixed_float16").compute, Policy("mixed_float16").parameters
    ('float16', 'float32')
    >>> Policy("float16", matmul="float32").matmul
    'float32'
    """

    name: str = "float32"
    compute: str = ""
    parameters: str = ""
    losses: str = ""
    matmul: str = ""
    reduction: str = ""

    def __post_init__(self) -> None:
        if self.name not in _PRESETS:
            raise ValueError(f"unknown policy {self.name!r}: {nearest_name(self.name, list(_PRESETS))}")
        fields = ("compute", "parameters", "losses", "matmul", "reduction")
        for field, preset in zip(fields, _PRESETS[self.name], strict=True):
            if getattr(self, field) == "":
                object.__setattr__(self, field, preset)
            value, valid = getattr(self, field), _FORMATS if field[0] in "cpl" else _DATAPATHS
            if value not in valid:
                raise ValueError(f"unknown {field} format {value!r}: {nearest_name(value, valid)}")
        for field in ("matmul", "reduction"):
            if getattr(self, field) == "float16" and "float32" in (self.compute, self.losses):
                raise ValueError(
                    f"{field}='float16' with float32 operands: a float32 sum accumulates in float32; "
                    "use the policy 'float16'"
                )


_FLOAT32 = Policy("float32")
_current: ContextVar[Policy] = ContextVar("fp16sim_policy", default=_FLOAT32)


def as_policy(policy: Policy | str) -> Policy:
    """Take a policy as it is, or find it by name."""
    return policy if isinstance(policy, Policy) else Policy(policy)


def current_policy() -> Policy:
    """Give the policy of the innermost `autocast`; float32 outside of any."""
    return _current.get()


def autocast(policy: Policy | str) -> AbstractContextManager[Policy]:
    """Compute under a policy inside a ``with`` block.

    >>> with autocast("mixed_float16"):
    ...     current_policy().compute
    'float16'
    >>> current_policy().compute
    'float32'
    """
    return _under(as_policy(policy))  # an unknown name is refused here, not when the block begins


@contextmanager
def _under(policy: Policy) -> Iterator[Policy]:
    token = _current.set(policy)
    try:
        yield _current.get()
    finally:
        _current.reset(token)
