"""Attention with several heads."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from fp16sim.autograd import ops
from fp16sim.autograd.tensor import Tensor, need_tensor
from fp16sim.nn.dropout import Dropout
from fp16sim.nn.initial import need_widths, uniform
from fp16sim.nn.linear import Linear
from fp16sim.nn.module import Module

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention in several subspaces, between linear maps.

    Parameters
    ----------
    embed_dim, num_heads : int
        Width of inputs and outputs, and into how many heads it is divided.
    dropout : float
        Share of the attention weights that are dropped while training.
    bias : bool
        Whether the linear maps have biases.
    batch_first : bool
        Whether inputs are (batch, length, embed_dim), or as in torch by default (length, batch, embed_dim).
    scale_scores_after : bool
        Multiply the scores by 1/sqrt(d), instead of the queries: in float16 they may overflow before.

    Attributes
    ----------
    in_proj_weight : Tensor, shape (3 embed_dim, embed_dim), float32
        Of queries, keys and values, one below the other: uniform within sqrt(6 / (4 embed_dim)), of the next stream.
    in_proj_bias : Tensor, shape (3 embed_dim,), float32, or None
        Zeros.
    out_proj : Linear
        Weight uniform within 1/sqrt(embed_dim), of a stream of its own; bias zeros.

    Notes
    -----
    The roundings: :func:`fp16sim.autograd.ops.linear`, for a single input once with all of `in_proj_weight`; then
    :func:`fp16sim.autograd.ops.attention`; then `out_proj`. Under torch's autocast lists the softmax computes in
    float32 and the products in the compute format. The attention weights are not returned.

    Source: Vaswani et al., arXiv 1706.03762, section 3.2; torch 2.13, ``torch.nn.MultiheadAttention``, whose names and
    initial distributions these are.

    Examples
    --------
    >>> layer = MultiheadAttention(8, num_heads=2)
    >>> layer
    MultiheadAttention(8, num_heads=2)
    >>> layer(Tensor(np.zeros((1, 5, 8), np.float32)), causal=True).shape
    (1, 5, 8)
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        batch_first: bool = True,
        scale_scores_after: bool = False,
    ) -> None:
        need_widths(embed_dim=embed_dim, num_heads=num_heads)
        if embed_dim % num_heads:
            raise ValueError(
                f"embed_dim={embed_dim} in num_heads={num_heads}: heads have one width; pass a multiple of num_heads"
            )
        self.embed_dim, self.num_heads, self.batch_first = embed_dim, num_heads, batch_first
        self.scale_scores_after = scale_scores_after
        self.in_proj_weight = Tensor(
            uniform((3 * embed_dim, embed_dim), math.sqrt(6.0 / (4 * embed_dim))), requires_grad=True
        )
        self.in_proj_bias = Tensor(np.zeros(3 * embed_dim, np.float32), requires_grad=True) if bias else None
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias)
        self.out_proj.weight.data = uniform((embed_dim, embed_dim), 1.0 / math.sqrt(embed_dim))
        self.drop = Dropout(dropout) if dropout else None

    def __repr__(self) -> str:
        dropout = "" if self.drop is None else f", dropout={self.drop.p}"
        bias = "" if self.in_proj_bias is not None else ", bias=False"
        return f"MultiheadAttention({self.embed_dim}, num_heads={self.num_heads}{dropout}{bias})"

    def forward(
        self,
        query: Tensor,
        key: Tensor | None = None,
        value: Tensor | None = None,
        *,
        mask: npt.ArrayLike | None = None,
        causal: bool = False,
    ) -> Tensor:
        """Let each place of `query` attend to places of `key`, and give the mean of their `value`.

        Parameters
        ----------
        query : Tensor, shape (batch, queries, embed_dim), if batch_first
        key, value : Tensor, shape (batch, keys, embed_dim), optional
            By default the query; the value is by default the key.
        mask, causal
            As for :func:`fp16sim.autograd.ops.attention`. In torch's boolean masks True means the contrary.

        Returns
        -------
        Tensor, shape of `query`
        """
        value = key if value is None else value
        if key is None and value is not None:
            raise TypeError("a value without a key: pass both, or the query alone")
        inputs = [query] if key is None or value is None else [query, key, value]
        for name, x in zip(("query", "key", "value"), inputs, strict=False):
            need_tensor(x)
            if x.ndim != 3 or x.shape[2] != self.embed_dim:
                raise ValueError(
                    f"a {name} of shape {x.shape} for attention of width {self.embed_dim}: pass (batch, length, "
                    f"{self.embed_dim})"
                )
        if not self.batch_first:
            inputs = [ops.transpose(x, (1, 0, 2)) for x in inputs]
        q, k, v = self._projected(inputs)
        attended = ops.attention(
            q, k, v, mask=mask, causal=causal, scale_scores_after=self.scale_scores_after, drop=self.drop
        )
        output: Tensor = self.out_proj(ops.merge_heads(attended))
        return output if self.batch_first else ops.transpose(output, (1, 0, 2))

    def _projected(self, inputs: list[Tensor]) -> list[Tensor]:
        """Give queries, keys and values, (batch, heads, length, d) each."""
        if len(inputs) == 1:
            all_three = ops.linear(inputs[0], self.in_proj_weight, self.in_proj_bias)
            return [ops.split_heads(all_three, self.num_heads, part, 3) for part in range(3)]
        outputs = []
        for part, x in enumerate(inputs):
            rows = slice(part * self.embed_dim, (part + 1) * self.embed_dim)
            bias = None if self.in_proj_bias is None else self.in_proj_bias[rows]
            outputs.append(ops.split_heads(ops.linear(x, self.in_proj_weight[rows], bias), self.num_heads))
        return outputs
