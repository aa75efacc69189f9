"""The text that ships with the package, its entropies, and how it was taken."""

import hashlib
import math
import pydoc_data.topics
from collections import Counter

import numpy as np
import pytest

from fp16sim.training.data import Text, characters
from fp16sim.training.datasets.pack import excerpt


def test_the_text():
    text = characters()
    assert text.training.dtype == text.test.dtype == np.int64
    assert (len(text.training), len(text.test)) == (230318, 25591)
    assert text.vocabulary == "".join(sorted(set(text.decode(text.training))))  # the test part has no other
    assert text.vocabulary.isascii()
    assert "\r" not in text.vocabulary
    assert set(text.test) <= set(range(94))
    whole = text.decode(text.training) + text.decode(text.test)
    assert whole.startswith('The "assert" statement\n**********************\n')
    assert hashlib.sha256(whole.encode("ascii")).hexdigest() == DIGEST
    tokens = np.concatenate([text.training, text.test]).astype("<i8")
    assert hashlib.sha256(tokens.tobytes()).hexdigest() == TOKENS


def test_little_of_the_test_part_was_in_training():
    text = characters()
    known = set(text.decode(text.training).split("\n\n"))
    repeated = sum(len(part) for part in text.decode(text.test).split("\n\n") if part in known)
    print(
        f"{repeated} of {len(text.test)} characters of the test part stand in paragraphs of the training part"
    )
    assert repeated < len(text.test) / 100


def test_entropies_of_the_text():
    text = characters()
    print(
        f"nats a character: unigram {text.unigram_entropy:.4f}, bigram {text.bigram_entropy:.4f}, "
        f"test part under the training part's bigrams {text.bigram_cross_entropy:.4f}; uniform {math.log(94):.4f}"
    )
    assert 2.3 < text.bigram_entropy < 2.5
    assert text.bigram_entropy < text.bigram_cross_entropy < 2.7 < 3.2 < text.unigram_entropy < 3.3


def test_entropies_by_counting_characters():
    text = characters()
    training, test = text.decode(text.training), text.decode(text.test)
    singles, pairs = Counter(training), Counter(zip(training, training[1:], strict=False))
    firsts = Counter(training[:-1])
    # A mean over characters, not over the table: the same number up to the rounding of 230,000 terms.
    unigram = -math.fsum(math.log(singles[x] / len(training)) for x in training) / len(training)
    bigram = -math.fsum(
        math.log(pairs[x, y] / firsts[x]) for x, y in zip(training, training[1:], strict=False)
    )
    crossed = -math.fsum(
        math.log((pairs[x, y] + 1) / (firsts[x] + 94)) for x, y in zip(test, test[1:], strict=False)
    )
    assert math.isclose(text.unigram_entropy, unigram, rel_tol=1e-12)
    assert math.isclose(text.bigram_entropy, bigram / (len(training) - 1), rel_tol=1e-12)
    assert math.isclose(text.bigram_cross_entropy, crossed / (len(test) - 1), rel_tol=1e-12)


def test_entropies_of_small_texts():
    # a is followed by a or b, evenly; b by a always: 4 of 6 pairs are open, at log 2 each.
    text = Text("ab", np.array([0, 0, 1, 0, 0, 1, 0]), np.array([1, 1]))
    assert math.isclose(text.bigram_entropy, 4 / 6 * math.log(2), rel_tol=1e-15)
    assert math.isclose(text.bigram_cross_entropy, math.log((2 + 2) / 1), rel_tol=1e-15)  # bb was never seen
    even = Text("ab", np.array([0, 1, 0, 1]), np.array([0, 1]))
    assert even.unigram_entropy == math.log(2)
    assert even.bigram_entropy == 0.0


def test_there_and_back():
    text = characters()
    assert text.decode(text.encode(text.vocabulary)) == text.vocabulary
    assert text.encode("").dtype == np.int64
    assert text.decode([text.mask_token, 0]) == "\N{REPLACEMENT CHARACTER}\n"
    with pytest.raises(ValueError, match=r"^text\[2\] is 'é': the vocabulary has"):
        text.encode("caé")
    for wrong in (-100, -1, 95):
        with pytest.raises(
            ValueError, match=rf"^tokens\[1\] is {wrong}: characters are 0 to 93 and the mask 94"
        ):
            text.decode([1, wrong])


def test_the_excerpt_is_what_its_attribution_says():
    topics = pydoc_data.topics.topics
    if hashlib.sha256(repr(sorted(topics.items())).encode()).hexdigest() != SOURCE:
        pytest.skip("this Python is not 3.11.7: its documentation is another text")
    text = characters()
    assert excerpt(topics) == text.decode(text.training) + text.decode(text.test)


def test_how_topics_are_chosen():
    long = "A paragraph that is said twice, at some length."
    topics = {
        "b": f"{long}\n\nOnly here.",
        "a": "\u201cQuoted\u201d \u2013 it\u2019s \u2018so\u2019\u2026",
        "c": long,
        "d": "Grad: 1°",
        "e": f"{long}\n\n" + "Much else. " * 200,
        "f": "Never reached.",
    }
    assert excerpt(topics, 2_000) == "\"Quoted\" - it's 'so'..." + topics["b"] + topics["e"]


DIGEST = "39b56498828ae77cd5d3633de81231bfe8830165fd7374707982107852f371b5"
TOKENS = "ea169eb772eb9681c37cb6cac159e95388df1702009d5b94ebeaaaeb1500bd97"
SOURCE = "6061bdb5e47e53fb60fbb31038afe373b0674dc91e89004a8b91fcdcc4971890"
