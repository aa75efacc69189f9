"""English text that ships with the package, as characters, and how predictable it is."""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from fp16sim.training.data.source import Array, stored

__all__ = ["Text", "characters"]


@dataclass(frozen=True, eq=False)
class Text:
    """A text as one token for each character, in two parts.

    Attributes
    ----------
    vocabulary : str
        Token ``t`` is the character ``vocabulary[t]``.
    training, test : int64 array, shape (count,)

    Examples
    --------
    >>> text = Text("ab", np.array([0, 1, 0, 1, 0]), np.array([0, 1]))
    >>> text.decode(text.training), text.mask_token, text.bigram_entropy
    ('ababa', 2, 0.0)
    """

    vocabulary: str
    training: Array
    test: Array

    @property
    def mask_token(self) -> int:
        """The first number that is no character's: what a masked character is replaced by."""
        return len(self.vocabulary)

    def encode(self, text: str) -> Array:
        """Give the tokens of a text, int64.

        Raises
        ------
        ValueError
            If a character is not in the vocabulary.

        Examples
        --------
        >>> characters().encode("a b").tolist()
        [64, 1, 65]
        """
        number = {character: token for token, character in enumerate(self.vocabulary)}
        for place, character in enumerate(text):
            if character not in number:
                raise ValueError(
                    f"text[{place}] is {character!r}: the vocabulary has {self.vocabulary!r} only; "
                    "replace or leave out the character"
                )
        return np.array([number[character] for character in text], np.int64)

    def decode(self, tokens: Iterable[int]) -> str:
        """Give the text of tokens; a masked character is shown as U+FFFD.

        Raises
        ------
        ValueError
            If a token is not one of the vocabulary's, nor the mask.
        """
        shown = self.vocabulary + "\N{REPLACEMENT CHARACTER}"
        numbers = [int(token) for token in tokens]
        for place, token in enumerate(numbers):
            if not 0 <= token < len(shown):
                raise ValueError(
                    f"tokens[{place}] is {token}: characters are 0 to {len(shown) - 2} and the mask "
                    f"{len(shown) - 1}; pass one row of inputs, without the ignored targets"
                )
        return "".join(shown[token] for token in numbers)

    @cached_property
    def unigram_entropy(self) -> float:
        """Entropy of the characters of the training part, in nats: -sum p(x) log p(x)."""
        counts = np.bincount(self.training, minlength=len(self.vocabulary)).tolist()
        total = sum(counts)
        return math.fsum(n / total * math.log(total / n) for n in counts if n)

    @cached_property
    def bigram_entropy(self) -> float:
        """Entropy of a character given the one before it, in the training part, in nats.

        -sum p(x, y) log p(y | x) over the pairs as they are counted: the least mean cross-entropy that a
        model can reach on this text which looks at one character only.
        """
        pairs = _pairs(self.training, len(self.vocabulary))
        total = sum(map(sum, pairs))
        return math.fsum(n / total * math.log(sum(row) / n) for row in pairs for n in row if n)

    @cached_property
    def bigram_cross_entropy(self) -> float:
        """Mean cross-entropy of the test part, in nats a character, under the training part's pairs.

        p(y | x) = (count(x, y) + 1) / (count(x) + size of the vocabulary): add-one smoothing, since some
        pairs of the test part are not in the training part.
        """
        size = len(self.vocabulary)
        training, test = _pairs(self.training, size), _pairs(self.test, size)
        total = sum(map(sum, test))
        return math.fsum(
            n / total * math.log((sum(row) + size) / (known + 1))
            for row, tested in zip(training, test, strict=True)
            for known, n in zip(row, tested, strict=True)
            if n
        )


def characters() -> Text:
    """Load 255,909 characters of the documentation of the Python language.

    An excerpt of CPython 3.11.7 that does not change with the Python that runs this. The vocabulary is the 94
    ASCII characters that it uses, in their order; the last tenth of the text is for testing.

    Notes
    -----
    Copyright 2001-2023 Python Software Foundation, PSF License Version 2: ``LICENSE-PSF.txt`` and
    ``ATTRIBUTION.md`` beside the data, which also say how it was made.

    Examples
    --------
    >>> text = characters()
    >>> len(text.vocabulary), len(text.training), len(text.test)
    (94, 230318, 25591)
    >>> text.decode(text.training[:22])
    'The "assert" statement'
    >>> round(text.unigram_entropy, 4), round(text.bigram_entropy, 4), round(text.bigram_cross_entropy, 4)
    (3.2432, 2.4387, 2.6263)
    """
    with stored("topics.txt.gz") as file:
        content = gzip.decompress(file.read())
    codes = np.frombuffer(content, np.uint8)
    used, tokens = np.unique(codes, return_inverse=True)
    tokens = tokens.astype(np.int64)
    cut = len(tokens) * 9 // 10
    return Text(bytes(used).decode("ascii"), tokens[:cut], tokens[cut:])


def _pairs(tokens: Array, size: int) -> list[list[int]]:
    """Count how often each character follows each."""
    counts: list[list[int]] = (
        np.bincount(tokens[:-1] * size + tokens[1:], minlength=size * size).reshape(size, size).tolist()
    )
    return counts
