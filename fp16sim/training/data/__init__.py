"""Real data that ships with the package, and batches of it in an order that a seed fixes.

==========================  =============================================  ===========================
data                        what it holds                                  batches
==========================  =============================================  ===========================
:func:`digits`              1,797 images of handwritten digits             :class:`Batches`
:func:`vowels`              640 recordings of nine speakers                :class:`SequenceBatches`
:func:`characters`          255,909 characters of English                  :class:`TextBatches`,
                                                                           :class:`MaskedTextBatches`
==========================  =============================================  ===========================

Where they come from, and their licences, is in ``fp16sim/training/datasets/ATTRIBUTION.md``.
"""

from fp16sim.training.data.batches import Batches, SequenceBatches
from fp16sim.training.data.images import Split, digits
from fp16sim.training.data.source import BatchSource
from fp16sim.training.data.speech import Sequences, vowels
from fp16sim.training.data.text import Text, characters
from fp16sim.training.data.text_batches import IGNORED, MaskedTextBatches, TextBatches, windows

__all__ = [
    "IGNORED",
    "BatchSource",
    "Batches",
    "MaskedTextBatches",
    "SequenceBatches",
    "Sequences",
    "Split",
    "Text",
    "TextBatches",
    "characters",
    "digits",
    "vowels",
    "windows",
]
