"""A small BERT: it fills in masked characters of a text from those on both sides."""

from __future__ import annotations

from fp16sim.autograd.policy import Policy
from fp16sim.nn import Module
from fp16sim.nn.random import streams
from fp16sim.optim import AdamW, cosine
from fp16sim.training.data import MaskedTextBatches, characters
from fp16sim.training.evaluation import loss_on
from fp16sim.training.models.transformer import CharacterTransformer, character_loss
from fp16sim.training.recipes import Recipe

__all__ = ["RECIPE", "bert"]

CONTEXT, SIZE, STEPS = 32, 32, 600
"""Characters in a window, windows in a batch, and batches."""


def bert(seed: int = 0) -> CharacterTransformer:
    """Make the network for the 94 characters of :func:`fp16sim.training.data.characters` and the mask.

    Source: Devlin et al., arXiv 1810.04805; blocks and activation are those of the GPT here.

    >>> sum(parameter.size for parameter in bert().parameters())
    245279
    """
    with streams(seed):
        return CharacterTransformer(95, context=CONTEXT, width=96, heads=4, layers=2, causal=False)


def evaluate(model: Module, policy: Policy) -> float:
    """Give the mean loss on 4,000 masked characters of the test part, in nats, always the same ones."""
    text = characters()
    batches = MaskedTextBatches(text.test, CONTEXT, 80, seed=1, mask=text.mask_token)
    return loss_on(model, [batches.at(i) for i in range(10)], policy, character_loss)


def _data(seed: int) -> MaskedTextBatches:
    text = characters()
    return MaskedTextBatches(text.training, CONTEXT, SIZE, seed, mask=text.mask_token)


RECIPE = Recipe(
    name="bert",
    summary="BERT of two blocks, 96 wide, 32 characters of documentation, loss in nats a masked character",
    build=bert,
    data=_data,
    optimizer=lambda model: AdamW(model.parameters(), lr=0.005, betas=(0.9, 0.99), weight_decay=0.01),
    loss_function=character_loss,
    schedule=cosine(0.005, STEPS, warmup=50),
    clip_norm=1.0,
    steps=STEPS,
    evaluate=evaluate,
    metric="loss",
)
