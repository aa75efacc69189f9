"""What tests of encodings share: the rules that SoftFloat knows, and how two results differ."""

from __future__ import annotations

import struct

from fp16sim.emulator.flags import flag_names
from fp16sim.emulator.formats import bfloat16, binary16, binary32, binary64, e4m3, e5m2, tf32
from fp16sim.emulator.rounding import Rounding
from fp16sim_oracles import softfloat

FORMATS = {f.name: f for f in (binary16, bfloat16, tf32, binary32, binary64, e4m3, e5m2)}
RULES = {
    (mode, tininess): Rounding(mode, tininess=tininess)
    for mode in softfloat.MODES
    for tininess in softfloat.TININESS
}


def difference(ours, theirs, counted: int) -> str | None:
    """Say in a line how two (bits, flags) differ in bits or in the counted flags; None where they agree."""
    if ours[0] != theirs[0]:
        return f"bits {ours[0]:#x}, not {theirs[0]:#x}"
    if (ours[1] ^ theirs[1]) & counted:
        return f"flags {flag_names(ours[1] & counted)}, not {flag_names(theirs[1] & counted)}"
    return None


def f32(value: float) -> int:
    """Give the binary32 encoding of a number."""
    return struct.unpack("I", struct.pack("f", value))[0]


def f64(value: float) -> int:
    """Give the binary64 encoding of a number."""
    return struct.unpack("Q", struct.pack("d", value))[0]
