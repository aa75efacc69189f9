"""The block that transformers repeat."""

from __future__ import annotations

import numpy.typing as npt

from fp16sim.autograd import ops
from fp16sim.autograd.tensor import Tensor, need_tensor
from fp16sim.emulator.formats import nearest_name
from fp16sim.nn.activations import GELU, ReLU, SiLU
from fp16sim.nn.attention import MultiheadAttention
from fp16sim.nn.dropout import Dropout
from fp16sim.nn.initial import need_widths
from fp16sim.nn.linear import Linear
from fp16sim.nn.module import Module
from fp16sim.nn.normalization import LayerNorm

__all__ = ["TransformerBlock"]

_ACTIVATIONS = {
    "gelu": GELU,
    "gelu_tanh": lambda: GELU("tanh"),
    "relu": ReLU,
    "silu": SiLU,
}


class TransformerBlock(Module):
    """Attention and two linear maps, each added to its input.

    Parameters
    ----------
    embed_dim, num_heads : int
        As for :class:`MultiheadAttention`.
    mlp_ratio : int
        Width between the linear maps, in multiples of embed_dim.
    dropout : float
        While training: of the attention weights, between the linear maps, and of what is added.
    causal : bool
        Whether a place sees only those up to itself.
    norm_first : bool
        x + attention(norm(x)) and x + mlp(norm(x)), as in GPT-2; else norm(x + attention(x)) and norm(x + mlp(x)), as
        in BERT.
    activation : {"gelu", "gelu_tanh", "relu", "silu"}
        Between the linear maps.

    Notes
    -----
    Parts bear the names of torch's ``TransformerEncoderLayer`` (self_attn, linear1, linear2, norm1, norm2), so states
    can be exchanged. Every sum is :func:`fp16sim.autograd.ops.add`, rounded once.

    Source: Vaswani et al., arXiv 1706.03762; Xiong et al., arXiv 2002.04745 (norm_first).

    Examples
    --------
    >>> import numpy as np
    >>> block = TransformerBlock(8, num_heads=2, causal=True)
    >>> block(Tensor(np.zeros((1, 5, 8), np.float32))).shape
    (1, 5, 8)
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        mlp_ratio: int = 4,
        dropout: float = 0.0,
        causal: bool = False,
        norm_first: bool = True,
        activation: str = "gelu",
    ) -> None:
        need_widths(embed_dim=embed_dim, num_heads=num_heads, mlp_ratio=mlp_ratio)
        if activation not in _ACTIVATIONS:
            raise ValueError(
                f"activation={activation!r}: {nearest_name(str(activation), list(_ACTIVATIONS))}"
            )
        self.causal, self.norm_first = causal, norm_first
        self.self_attn = MultiheadAttention(embed_dim, num_heads, dropout)
        self.linear1 = Linear(embed_dim, mlp_ratio * embed_dim)
        self.activation = _ACTIVATIONS[activation]()
        self.linear2 = Linear(mlp_ratio * embed_dim, embed_dim)
        self.norm1 = LayerNorm(embed_dim)
        self.norm2 = LayerNorm(embed_dim)
        self.dropouts = [Dropout(dropout) for _ in range(3)] if dropout else None

    def __repr__(self) -> str:
        order = "norm_first" if self.norm_first else "norm_last"
        return f"TransformerBlock({self.self_attn!r}, {self.linear1!r}, {self.activation!r}, {order})"

    def forward(self, x: Tensor, mask: npt.ArrayLike | None = None) -> Tensor:
        """Map (batch, length, embed_dim) to the same shape; `mask` is that of :class:`MultiheadAttention`."""
        need_tensor(x)
        if self.norm_first:
            x = ops.add(x, self._attention(self.norm1(x), mask))
            return ops.add(x, self._mlp(self.norm2(x)))
        x = self.norm1(ops.add(x, self._attention(x, mask)))
        output: Tensor = self.norm2(ops.add(x, self._mlp(x)))
        return output

    def _attention(self, x: Tensor, mask: npt.ArrayLike | None) -> Tensor:
        return self._dropped(0, self.self_attn(x, mask=mask, causal=self.causal))

    def _mlp(self, x: Tensor) -> Tensor:
        inner = self._dropped(1, self.activation(self.linear1(x)))
        return self._dropped(2, self.linear2(inner))

    def _dropped(self, place: int, x: Tensor) -> Tensor:
        if self.dropouts is None:
            return x
        output: Tensor = self.dropouts[place](x)
        return output
