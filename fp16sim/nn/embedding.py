"""A table of vectors."""

from __future__ import annotations

import numpy.typing as npt

from fp16sim.autograd import ops
from fp16sim.autograd.ops.embedding import row_number
from fp16sim.autograd.tensor import Tensor
from fp16sim.nn.initial import need_widths, normal
from fp16sim.nn.module import Module

__all__ = ["Embedding"]


class Embedding(Module):
    """Give the row of a table for each integer: :func:`fp16sim.autograd.ops.embedding`.

    Parameters
    ----------
    num_embeddings, embedding_dim : int
        Rows, and the width of each.
    padding_idx : int, optional
        A row that starts at zero and has the gradient zero.

    Attributes
    ----------
    weight : Tensor, shape (num_embeddings, embedding_dim), float32
        Standard normal numbers of the next random stream, rounded to float32 once.

    Examples
    --------
    >>> import numpy as np
    >>> layer = Embedding(10, 3)
    >>> layer
    Embedding(10, 3)
    >>> layer(np.array([[1, 2, 3, 4]])).shape
    (1, 4, 3)
    """

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None) -> None:
        need_widths(num_embeddings=num_embeddings, embedding_dim=embedding_dim)
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        if padding_idx is not None:
            padding_idx = row_number("padding_idx", padding_idx, num_embeddings)
        self.padding_idx = padding_idx
        weight = normal((num_embeddings, embedding_dim), 1.0)
        if padding_idx is not None:
            weight[padding_idx] = 0
        self.weight = Tensor(weight, requires_grad=True)

    def __repr__(self) -> str:
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        return f"Embedding({self.num_embeddings}, {self.embedding_dim}{padding})"

    def forward(self, ids: npt.ArrayLike) -> Tensor:
        """Map integers of any shape to (..., embedding_dim)."""
        return ops.embedding(ids, self.weight, self.padding_idx)
