"""What the docstrings say of the scalers: each names the properties that it violates, and does violate them.

The shortest histories of a docstring that a test of its own file does not hold already are here.
"""

import math
import random
import re

import numpy as np
import pytest

from fp16sim import scaling
from fp16sim.scaling import Observation, make, observe, unscale

INFINITE, TINY = math.inf, 2.0**-149
LETTERS = {".": Observation(), "o": Observation(overflow=True)}
GROUPED = {"adaptive", "delayed", "fairscale_layerwise", "openseq2seq_logmax", "unit"}
SINGLE = [name for name in scaling.names() if name not in GROUPED]


def listed(name):
    """Give the numbers of the properties that the docstring lists, parentheses left out."""
    found = re.search(r"Violates:(.*?)(\n\s*\n|$)", type(make(name)).__doc__, re.DOTALL)
    assert found, f"{name} lists nothing"
    assert re.search(r"(none|\d)", found[1])
    return {int(number) for number in re.findall(r"\d+", re.sub(r"\([^()]*\)", "", found[1]))}


def walk(scaler, history):
    """Give (scale used, decision, next scale) of every step."""
    rows = []
    for letter in history:
        scale = scaler.scale
        scaler, decision = scaler.update(LETTERS[letter])
        rows.append((scale, decision, scaler.scale))
    return rows


def applied(scaler, gradient):
    """Give what becomes of a scaled float32 gradient; None if it is not applied."""
    gradients = [np.float32([gradient])]
    _, decision = scaler.update(observe(scaler, gradients))
    return float(unscale(gradients[0], decision)[0]) if decision.apply and not decision.stop else None


@pytest.mark.parametrize("name", scaling.names())
def test_every_docstring_ends_with_a_list(name):
    assert all(1 <= number <= 15 for number in listed(name))
    assert (listed(name) == set()) == (name == "robust")


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("apex", {"init_scale": 2.0**-128}),
        ("apex_fp16utils", {"init_scale": 2.0**-128}),
        ("oneflow", {"init_scale": 2.0**-128}),
        ("static", {"scale": 2.0**-128}),
        ("torch", {"init_scale": 2.0**-128}),
        ("torch_fsdp", {"init_scale": 2.0**-128}),
    ],
)
def test_1_the_reciprocal_of_a_tiny_scale_is_infinite_and_applied(name, options):
    assert 1 in listed(name)
    assert applied(make(name, **options), 1.0) == INFINITE


def test_1_none_applies_an_overflow():
    assert 1 in listed("none")
    assert walk(make("none"), "o")[0][1].apply


STOPPING = {"apex", "deepspeed", "fairseq", "mindspore_manager", "mxnet", "robust"}


@pytest.mark.parametrize("name", sorted(set(SINGLE) - STOPPING))
def test_3_overflows_for_ever_neither_stop_nor_leave_a_usable_scale(name):
    """The scale ends at its floor, or at 0 without one, and stays there without a word."""
    assert 3 in listed(name)
    rows = walk(make(name), "o" * 3000)
    assert not any(decision.stop for _, decision, _ in rows)
    assert len({row[2] for row in rows[1500:]}) == 1


@pytest.mark.parametrize("name", ["torch", "torch_fsdp", "keras3"])
def test_3_no_way_out_of_0(name):
    option = type(make(name)).initial
    window = type(make(name)).window
    assert {row[2] for row in walk(make(name, **{option: TINY, window: 1}), "o......")} == {0.0}


@pytest.mark.parametrize(
    ("name", "options", "history"),
    [
        ("jmp", {"loss_scale": 2.0**-126, "min_loss_scale": 0}, "o"),
        ("flax", {"scale": 2.0**-126, "minimum_scale": None}, "o"),
        ("flax", {"scale": 2.0**-126, "minimum_scale": 0.0}, "o"),
        ("mxnet", {"loss_scale": 2.0**-1074}, "oo"),
        ("openseq2seq_backoff", {"scale_min": 0.0, "scale_max": TINY}, "o"),
    ],
)
def test_5_the_scale_becomes_0(name, options, history):
    assert 5 in listed(name)
    assert [row[2] > 0 for row in walk(make(name, **options), history)] == [True] * (len(history) - 1) + [
        False
    ]


@pytest.mark.parametrize(
    ("name", "options", "history", "scales"),
    [
        ("flax", {"scale": 1.0, "minimum_scale": 8.0}, "o", [8.0]),
        ("mxnet", {"loss_scale": 4.0, "scale_seq_len": 1}, ".o", [4.0, 8.0]),
    ],
)
def test_7_an_overflow_raises_the_scale(name, options, history, scales):
    assert 7 in listed(name)
    assert [row[2] for row in walk(make(name, **options), history)] == scales


def test_9_mxnet_doubles_a_step_after_its_window():
    assert 9 in listed("mxnet")
    rows = walk(make("mxnet", loss_scale=4.0, scale_seq_len=2), "...")
    assert [row[2] for row in rows] == [4.0, 4.0, 8.0]


def power_of_two(scale):
    return 0 < scale < INFINITE and math.frexp(scale)[0] == 0.5


def found_by(name, draws, trials):
    """Search for violations of properties that one step shows, from powers of two on."""
    kind, found = type(make(name)), {}
    for _ in range(trials):
        options = {kind.window: draws.choice([1, 2, 3])} if kind.window else {}
        exponent = draws.choice([-149, -128, -127, -126, -20, -1, 0, 4, 15, 31, 126, 127])
        if kind.initial:
            options[kind.initial] = exponent if kind.initial_is_exponent else 2.0**exponent
        try:
            scaler = make(name, **options)
        except ValueError:
            continue
        history = "".join(draws.choice("o..") for _ in range(8))
        for step, letter in enumerate(history):
            used = scaler.scale
            if (
                letter == "."
                and 0 < used < 2.0**128
                and (update := applied(scaler, np.float32(used))) is not None
            ):
                found.setdefault(1 if not math.isfinite(update) else 0, (options, history[: step + 1]))
            scaler, decision = scaler.update(LETTERS[letter])
            if decision.stop:
                break
            shown = {
                2: decision.apply and decision.divide_by != used,
                4: math.isinf(scaler.scale),
                5: scaler.scale == 0,
                7: letter == "o" and scaler.scale > used,
                8: power_of_two(used) and 0 < scaler.scale < INFINITE and not power_of_two(scaler.scale),
            }
            for number, violated in shown.items():
                if violated:
                    found.setdefault(number, (options, history[: step + 1]))
    found.pop(0, None)
    return found


# The manager's scale is a Python number; beyond float32 loss and gradients both see infinity.
SEEN_OTHERWISE = {"mindspore_manager": {2}}


@pytest.mark.parametrize("name", SINGLE)
def test_a_search_finds_only_what_is_listed(name):
    found = found_by(name, random.Random(7), 150)
    unlisted = found.keys() - listed(name) - SEEN_OTHERWISE.get(name, set())
    assert not unlisted, {number: found[number] for number in unlisted}


def test_the_search_finds_faults():
    assert found_by("deepspeed", random.Random(7), 150).keys() >= {1, 2, 7}
    assert found_by("keras3", random.Random(7), 150).keys() >= {4, 5}
    assert found_by("chainer", random.Random(7), 150).keys() == {8}
