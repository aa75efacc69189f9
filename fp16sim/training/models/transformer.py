"""What the character models share: embeddings, blocks that attend, and a score for each character."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from fp16sim.autograd import ops
from fp16sim.autograd.arithmetic import Array
from fp16sim.autograd.tensor import Tensor
from fp16sim.emulator import float64_functions
from fp16sim.nn import Embedding, LayerNorm, Linear, Module, Sequential, TransformerBlock
from fp16sim.nn.initial import normal

__all__ = ["CharacterTransformer", "character_loss", "waves"]


class CharacterTransformer(Module):
    """Characters and places as vectors, transformer blocks, a last normalisation, and scores.

    Parameters
    ----------
    vocabulary : int
        How many characters there are to embed and to score.
    context : int
        The longest text.
    width, heads, layers : int
        Of the vectors, of the attention, and how many blocks.
    causal : bool
        Whether a place sees only those up to itself.

    Attributes
    ----------
    tokens : Embedding
        Initial weights: normal with standard deviation 1/2.
    positions : Embedding
        Learned; initial weights: :func:`waves`. With random ones a model of this size needs several times as many
        steps until it finds the character before.
    blocks, norm, head
        With normalisation before attention and linear maps, as in GPT-2.

    Raises
    ------
    ValueError
        If a text is longer than the context.

    Examples
    --------
    >>> model = CharacterTransformer(10, context=8, width=16, heads=2, layers=1, causal=True)
    >>> model(np.array([[1, 2, 3]])).shape
    (1, 3, 10)
    """

    def __init__(
        self, vocabulary: int, *, context: int, width: int, heads: int, layers: int, causal: bool
    ) -> None:
        self.tokens = Embedding(vocabulary, width)
        self.tokens.weight.data = normal((vocabulary, width), 0.5)
        self.positions = Embedding(context, width)
        self.positions.weight.data = waves(context, width)
        self.blocks = Sequential(*(TransformerBlock(width, heads, causal=causal) for _ in range(layers)))
        self.norm = LayerNorm(width)
        self.head = Linear(width, vocabulary)

    def forward(self, text: npt.ArrayLike) -> Tensor:
        """Map integers (batch, length) to scores (batch, length, vocabulary)."""
        text = np.asarray(text)
        context = self.positions.num_embeddings
        if text.ndim != 2 or text.shape[1] > context:
            raise ValueError(
                f"text of shape {text.shape} for a model with {context} places: pass (batch, length), with a length of "
                f"{context} at most"
            )
        x = ops.add(self.tokens(text), self.positions(np.arange(text.shape[1])))
        scores: Tensor = self.head(self.norm(self.blocks(x)))
        return scores


def waves(count: int, width: int, longest: float = 100.0) -> Array:
    """Give sines and cosines of a place, at frequencies that fall from 1 to about 1 / `longest`.

    Row p holds sin(p f_i) for i < width / 2, then cos(p f_i), f_i = longest^(-i / (width / 2)), in float64 by functions
    that are the same everywhere, rounded to float32 once. Rows of one distance are rotations of each other by one
    matrix, so attention by distance is linear in them.

    Source: Vaswani et al., arXiv 1706.03762, section 3.5, with `longest` = 10,000.

    Examples
    --------
    >>> [f"{x:.4f}" for x in waves(3, 4)[1]]
    ['0.8415', '0.0998', '0.5403', '0.9950']
    """
    if width < 2 or width % 2:
        raise ValueError(f"width={width!r}: half of the columns are sines; pass an even number")
    half = width // 2
    frequencies = float64_functions.exp(np.arange(half) * (-float64_functions.log(longest) / half))
    angles = np.arange(count)[:, None] * frequencies
    both = [float64_functions.sin(angles), float64_functions.cos(angles)]
    return np.concatenate(both, axis=1).astype(np.float32)


def character_loss(scores: Tensor, targets: npt.ArrayLike) -> Tensor:
    """Give the mean cross-entropy of scores (batch, length, vocabulary) and targets (batch, length).

    Targets of -100 do not count.

    >>> round(character_loss(Tensor(np.zeros((1, 2, 4), np.float32)), [[3, -100]]).item(), 4)
    1.3863
    """
    return ops.cross_entropy(ops.reshape(scores, (-1, scores.shape[-1])), np.asarray(targets).reshape(-1))
