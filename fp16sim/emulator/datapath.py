"""How a dot product is accumulated, as data."""

from __future__ import annotations

from dataclasses import dataclass

from fp16sim.emulator.formats import Format, binary16, binary32, nearest_name

__all__ = ["DATAPATHS", "Datapath", "as_datapath"]


@dataclass(frozen=True)
class Datapath:
    """One way to accumulate a dot product: in order of k, starting at +0 or at the accumulator input.

    Parameters
    ----------
    name : str
        What messages call it.
    accumulator : Format
        The format to which each product and each sum is rounded, nearest even. A product of binary16 numbers is
        exact in binary32, so there only the sums round.
    """

    name: str
    accumulator: Format

    def __repr__(self) -> str:
        return f"Datapath({self.name!r}: products and sums rounded to {self.accumulator.name}, in order of k)"


DATAPATHS = {path.name: path for path in (Datapath("float32", binary32), Datapath("float16", binary16))}


def as_datapath(spec: str | Datapath) -> Datapath:
    """Find a datapath by name, or take it as it is.

    >>> as_datapath("float32")
    Datapath('float32': products and sums rounded to binary32, in order of k)
    """
    if isinstance(spec, Datapath):
        return spec
    if spec not in DATAPATHS:
        raise ValueError(f"unknown datapath {spec!r}: {nearest_name(spec, list(DATAPATHS))}")
    return DATAPATHS[spec]
