"""The next value, minimum and maximum: against NumPy, and at the ends."""

from __future__ import annotations

import math
import random

import numpy as np
from fp16sim_oracles import edges
from hypothesis import settings

from fp16sim.emulator import reference as ref
from fp16sim.emulator.flags import INVALID, SUBNORMAL
from fp16sim.emulator.formats import Format, binary16, e4m3
from fp16sim.emulator.rounding import Rounding

SAMPLED = settings(derandomize=True, database=None, deadline=None, max_examples=150)


def test_nextafter_equals_numpy():
    rng = random.Random("nextafter")
    ends = edges.edges("binary16")
    pairs = [(a, b) for a in ends for b in ends]
    pairs += [edges.operands(rng, "binary16", 2) for _ in range(1000)]
    a, b = np.array(pairs, np.uint16).T.copy()
    with np.errstate(all="ignore"):
        theirs = np.nextafter(a.view(np.float16), b.view(np.float16)).view(np.uint16)
    for x, y, their in zip(a.tolist(), b.tolist(), theirs.tolist(), strict=True):
        ours = ref.nextafter(x, y, binary16)
        if math.isnan(binary16.decode(their)):
            assert ours.bits == 0x7E00
        elif x & 0x7FFF == y & 0x7FFF == 0:
            assert ours == (y, 0)  # as C's nextafter: the second operand, where NumPy gives the first
        else:
            assert ours == (their, 0), (hex(x), hex(y))


def test_nextafter_steps_over_subnormals_that_are_zeros():
    rules = [(binary16, Rounding(subnormals="flush")), (binary16, Rounding(inputs="zero"))]
    rules += [(Format("no subnormals", exponent_bits=5, precision=11, subnormals=False), Rounding())]
    for fmt, rule in rules:
        for a, b, expected in (
            (0x0000, 0x3C00, 0x0400),
            (0x0123, 0x3C00, 0x0400),
            (0x0000, 0xBC00, 0x8400),
            (0x0400, 0x0000, 0x0000),
            (0x8400, 0x3C00, 0x8000),
            (0x0400, 0x3C00, 0x0401),
            (0x0000, 0x8001, 0x8000),
            (0x7C00, 0x0000, 0x7BFF),
            (0x7BFF, 0x7C00, 0x7C00),
        ):
            assert ref.nextafter(a, b, fmt, rule) == (expected, 0), (hex(a), hex(b))
    assert ref.nextafter(0x7E, 0x00, e4m3) == (0x7D, 0)


def test_minimum_and_maximum():
    for a in edges.edges("binary16"):
        for b in edges.edges("binary16"):
            x, y = binary16.decode(a), binary16.decode(b)
            low, high = ref.minimum(a, b, binary16), ref.maximum(a, b, binary16)
            if math.isnan(x) or math.isnan(y):
                signalling = any(0x7C00 < bits & 0x7FFF < 0x7E00 for bits in (a, b))
                assert low == high == (0x7E00, INVALID if signalling else 0)
                continue
            ordered = sorted([(x, math.copysign(1, x), a), (y, math.copysign(1, y), b)])
            assert (low.bits, high.bits) == (ordered[0][2], ordered[1][2])
            for bits, flags in (low, high):
                assert flags == (SUBNORMAL if 0 < bits & 0x7FFF < 0x0400 else 0)
