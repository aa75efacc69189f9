"""A small GPT: it predicts the next character of a text."""

from __future__ import annotations

from fp16sim.autograd.policy import Policy
from fp16sim.nn import Module
from fp16sim.nn.random import streams
from fp16sim.optim import AdamW, cosine
from fp16sim.training.data import TextBatches, characters, windows
from fp16sim.training.evaluation import loss_on
from fp16sim.training.models.transformer import CharacterTransformer, character_loss
from fp16sim.training.recipes import Recipe

__all__ = ["RECIPE", "gpt"]

CONTEXT, SIZE, STEPS = 64, 16, 300
"""Characters in a window, windows in a batch, and batches."""


def gpt(seed: int = 0) -> CharacterTransformer:
    """Make the network for the 94 characters of :func:`fp16sim.training.data.characters`.

    Source: Radford et al., Language Models are Unsupervised Multitask Learners, 2019 (GPT-2).

    >>> sum(parameter.size for parameter in gpt().parameters())
    248158
    """
    with streams(seed):
        return CharacterTransformer(94, context=CONTEXT, width=96, heads=4, layers=2, causal=True)


def evaluate(model: Module, policy: Policy) -> float:
    """Give the mean loss on the test part of the text, in nats a character, each seen after 0 to 63 others."""
    inputs, targets = windows(characters().test, CONTEXT)
    parts = [(inputs[i : i + 64], targets[i : i + 64]) for i in range(0, len(inputs), 64)]
    return loss_on(model, parts, policy, character_loss)


RECIPE = Recipe(
    name="gpt",
    summary="GPT of two blocks, 96 wide, 64 characters of documentation, loss in nats a character",
    build=gpt,
    data=lambda seed: TextBatches(characters().training, CONTEXT, SIZE, seed),
    optimizer=lambda model: AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.99), weight_decay=0.01),
    loss_function=character_loss,
    schedule=cosine(0.01, STEPS, warmup=20),
    clip_norm=1.0,
    steps=STEPS,
    evaluate=evaluate,
    metric="loss",
)
