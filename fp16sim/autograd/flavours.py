"""Which operations of a mixed policy compute in which format: the lists of the frameworks, as data.

The names are those of the operations here. The rules are explained at `policy.Policy.rule`; what is in no list takes
the widest format among its operands, as NumPy and torch promote.

Sources: torch 2.13, aten/src/ATen/autocast_mode.h (the lists of CUDA for ``"torch"``, of the CPU for ``"torch_cpu"``;
an operation that torch's CPU computes in float32 inside and rounds back, in no list, is "inside" here); Keras 3.15,
keras/src/layers/layer.py (every layer converts its inputs and variables to its compute dtype; normalisations compute
in float32 inside) and keras/src/losses/loss.py (losses compute in float32).
"""

from __future__ import annotations

__all__ = ["FLAVOURS"]


def _rules(compute: str = "", wide: str = "", inside: str = "") -> dict[str, str]:
    named = {"compute": compute, "wide": wide, "inside": inside}
    return {name: rule for rule, names in named.items() for name in names.split()}


_PRODUCTS = "matmul linear convolution attention"
_LOSSES = "cross_entropy nll_loss mse_loss bce_with_logits"
_NORMALIZATIONS = "batch_norm layer_norm rms_norm group_norm"

FLAVOURS: dict[str, dict[str, str]] = {
    "torch": _rules(
        compute=_PRODUCTS,
        wide=f"{_LOSSES} exp expm1 log log1p power rsqrt softplus softmax log_softmax sum cumsum norm logsumexp "
        "layer_norm group_norm",
        inside="batch_norm rms_norm mean variance",
    ),
    "torch_cpu": _rules(
        compute=_PRODUCTS,
        wide=_LOSSES,
        inside=f"softmax log_softmax {_NORMALIZATIONS} mean variance norm logsumexp",
    ),
    "keras": _rules(
        compute=f"{_PRODUCTS} embedding",
        wide=_LOSSES,
        inside=f"{_NORMALIZATIONS} softmax log_softmax mean variance",
    ),
}
"""Operation to rule, for each flavour."""
