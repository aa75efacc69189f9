"""How a dot product is accumulated, as data: formats, order, roundings, and what tensor cores do instead.

A `Datapath` says everything that decides the bits of ``c + a[0] b[0] + a[1] b[1] + ...``. `reference_dot.py` is
its meaning; `DATAPATHS`, at the end of this file, holds the ones that have names.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from fp16sim.emulator.datapath_rules import check
from fp16sim.emulator.formats import (
    Format,
    bfloat16,
    binary16,
    binary32,
    binary64,
    conversion_to,
    e4m3,
    e5m2,
    is_built_in,
    nearest_name,
    tf32,
)

__all__ = ["DATAPATHS", "Datapath", "as_datapath"]


@dataclass(frozen=True, repr=False)
class Datapath:
    """One way to accumulate a dot product, starting at +0 or at the accumulator input c.

    Unless `fraction_bits` is given, every product and every sum is rounded to nearest, ties to even. With it, the
    datapath is a tensor core's: K is filled up with zeros to a multiple of `block`; `block` exact products and the
    accumulator are aligned to the largest exponent among them, each is cut (toward zero) to `fraction_bits` bits
    below it, and their sum is rounded once to the accumulator's format.

    Parameters
    ----------
    name : str
        What messages call it.
    accumulator : Format, optional
        The format of partial sums, and of c. None: the sum is exact and rounded once, to the result's format (c is
        binary32 then).
    products : Format, optional
        The format that each product is rounded to before it is added. None stands for the accumulator's, or for
        exact products where the datapath is fused. So on every instance ``fused == (products is None)``.
    fused : bool
        Whether products enter the sum unrounded, as in a fused multiply-add. An exact sum and a tensor core always
        are.
    order : {"sequential", "pairwise", "blocked", "split_k"}
        Sequential: in order of k. Pairwise: a tree over k, n products split at the largest power of two below n;
        c is added last. Blocked: each `block` products are summed from +0, the block sums are added to the
        accumulator in order. Split-K: as blocked, with `splits` blocks of ``ceil(K / splits)`` products.
    block : int
        Products in a block, of a tensor core or of order ``"blocked"``.
    splits : int
        Pieces of order ``"split_k"``; where K is small the last ones have no products and take no part.
    fraction_bits : int, optional
        Of a tensor core: the bits kept below the largest exponent.
    block_rounding : {"nearest_even", "toward_zero"}
        Of a tensor core: how a block's sum is rounded to the accumulator. Toward zero, what is too large still
        gives an infinity.
    compensated : bool
        Kahan's algorithm: ``y = p - e; t = s + y; e = (t - s) - y; s = t``, each operation rounded.
    zero_exponent : int, optional
        Of a tensor core: the exponent with which a term that is exactly zero takes part in the alignment, at most
        the accumulator's emin (so it acts as a floor on the largest exponent where c is zero). None: zeros take
        no part.
    keep_negative_zero : bool
        Of a tensor core: whether a block gives -0, where c and every product are -0 or a negative sum is rounded to
        zero. Otherwise every zero that a block gives is +0, as in MMA-Sim 2.1.
    normalized_accumulator : bool
        Of a tensor core: whether a subnormal accumulator is aligned by its leading bit, not by the format's emin.
    nan_bits : int, optional
        Of a tensor core: the NaN that it delivers in its own result format (`out_format`, or else the
        accumulator's). None: the canonical one, as in every other format.
    out_format : Format, optional
        The result's format unless one is asked for. None: that of the operands.
    inputs : tuple of Format
        The operand formats that this model is for.
    variants : tuple of Datapath
        The same hardware on other operand formats; `for_operands` chooses.

    Raises
    ------
    ValueError
        If no such datapath is possible; the message says which rule is broken.

    Examples
    --------
    >>> from fp16sim.emulator.formats import binary16
    >>> Datapath("mine", accumulator=binary16, order="blocked", block=32)
    Datapath('mine': products and sums rounded to binary16, in blocks of 32 products; takes binary16)
    >>> Datapath("mine", fused=True, products=binary16)
    Traceback (most recent call last):
        ...
    ValueError: fused=True with products=binary16: a fused product is not rounded; drop one of the two
    """

    name: str
    accumulator: Format | None = binary32
    products: Format | None = None
    fused: bool = False
    order: str = "sequential"
    block: int = 1
    splits: int = 1
    fraction_bits: int | None = None
    block_rounding: str = "nearest_even"
    compensated: bool = False
    zero_exponent: int | None = None
    keep_negative_zero: bool = False
    normalized_accumulator: bool = False
    nan_bits: int | None = None
    out_format: Format | None = None
    inputs: tuple[Format, ...] = (binary16,)
    variants: tuple[Datapath, ...] = ()

    def __post_init__(self) -> None:
        for field in fields(self):  # NumPy's numbers become Python's, which kernels and messages expect
            value = getattr(self, field.name)
            if isinstance(value, (np.integer, np.bool_)):
                object.__setattr__(self, field.name, value.item())
        check(self)
        if self.is_exact or self.is_tensor_core:
            object.__setattr__(self, "fused", True)
        elif self.products is None and not self.fused:
            object.__setattr__(self, "products", self.accumulator)

    def __hash__(self) -> int:
        return hash(self.name)  # which equal datapaths share: caches look datapaths up at every operation

    @property
    def is_tensor_core(self) -> bool:
        """Whether whole blocks are aligned, cut and summed at once."""
        return self.fraction_bits is not None

    @property
    def is_exact(self) -> bool:
        """Whether the sum is exact and rounded only once, to the result's format."""
        return self.accumulator is None

    @property
    def adds_in_order(self) -> bool:
        """Whether each product is added to the accumulator, in order of k, and nothing else happens."""
        return not (self.is_exact or self.is_tensor_core or self.compensated) and self.order == "sequential"

    @property
    def start_format(self) -> Format:
        """The format of the accumulator input c: the accumulator's; binary32 where the sum is exact."""
        return binary32 if self.accumulator is None else self.accumulator

    def result_format(self, operands: Format) -> Format:
        """Give the format of the result where none is asked for.

        >>> from fp16sim.emulator.formats import binary16
        >>> as_datapath("float32").result_format(binary16).name, as_datapath("a100").result_format(binary16).name
        ('binary16', 'binary32')
        """
        return operands if self.out_format is None else self.out_format

    def for_operands(self, operands: Format) -> Datapath:
        """Choose the model for operands of this format: this one or one of `variants`.

        Raises
        ------
        TypeError
            If there is none.

        >>> from fp16sim.emulator.formats import tf32
        >>> as_datapath("a100").for_operands(tf32).name
        'a100:tf32'
        """
        for path in (self, *self.variants):
            if operands in path.inputs:
                return path
        taken = " or ".join(fmt.name for path in (self, *self.variants) for fmt in path.inputs)
        own = (
            ""
            if is_built_in(operands)
            else f"use Datapath('mine', inputs=(<the Format {operands.name!r}>,)), or "
        )
        raise TypeError(
            f"{operands.name} operands with datapath {self.name!r}: it takes {taken}; {own}convert with "
            f"{conversion_to(self.inputs[0])}"
        )

    def __repr__(self) -> str:
        given = "" if self.out_format is None else f", gives {self.out_format.name}"
        return f"Datapath({self.name!r}: {self._sentence()}; takes {' or '.join(f.name for f in self.inputs)}{given})"

    def _sentence(self) -> str:
        if self.is_tensor_core:
            return self._tensor_core_sentence()
        if self.accumulator is None:
            return "the exact sum, rounded once"
        name = self.accumulator.name
        if self.fused:
            rounded = f"exact products, sums rounded to {name}"
        elif self.products == self.accumulator:
            rounded = f"products and sums rounded to {name}"
        else:
            assert self.products is not None
            rounded = f"products rounded to {self.products.name}, sums to {name}"
        order = {
            "sequential": "in order of k",
            "pairwise": "pairwise",
            "blocked": f"in blocks of {self.block} products",
            "split_k": f"in {self.splits} pieces",
        }[self.order]
        return f"{rounded}, {order}" + (", compensated" if self.compensated else "")

    def _tensor_core_sentence(self) -> str:
        assert self.accumulator is not None
        direction = "toward zero" if self.block_rounding == "toward_zero" else "to nearest"
        return (
            f"{self.block} exact products and the accumulator cut to {self.fraction_bits} fraction bits, summed, "
            f"rounded {direction} to {self.accumulator.name}"
        )


_WIDE_INPUTS = (binary16, binary32, bfloat16, tf32, e4m3, e5m2)

_e8m13 = Format("e8m13", exponent_bits=8, precision=14)
"""What Ada and Hopper accumulate products of 8-bit numbers in: binary32 less ten bits."""


def _tensor_core(
    name: str,
    block: int,
    fraction_bits: int,
    zero_exponent: int,
    inputs: tuple[Format, ...] = (binary16,),
    accumulator: Format = binary32,
    variants: tuple[Datapath, ...] = (),
) -> Datapath:
    half = accumulator == binary16
    return Datapath(
        name,
        accumulator,
        block=block,
        fraction_bits=fraction_bits,
        block_rounding="nearest_even" if half else "toward_zero",
        zero_exponent=zero_exponent,
        nan_bits=0x7FFF if half else 0x7FFFFFFF,
        out_format=binary16 if half else binary32,
        inputs=inputs,
        variants=variants,
    )


def _presets() -> tuple[Datapath, ...]:
    """Every datapath that has a name.

    Sources of the tensor cores: P. Xie et al., Bit-accurate modeling of GPU matrix multiply-accumulate units, arXiv
    2511.10909, and its program MMA-Sim; F. A. Khattak and M. Mikaitis, Accurate models of NVIDIA tensor cores, arXiv
    2512.07004; M. Fasi, N. J. Higham, M. Mikaitis and S. Pranesh, Numerical behavior of NVIDIA tensor cores, PeerJ
    CS 2021. V100, A100 and H100 equal published results of the cards; Turing's block of 8 has one source (MMA-Sim).
    ``h100`` and ``blackwell`` are mma.sync; wgmma and tcgen05 have presets of their own where they differ, and
    8-bit operands on Hopper are wgmma's.

    The sources disagree on the exponent by which a zero aligns in a float16 accumulator, which shows only where
    products of about 2^-25 meet others below 2^-43 (V100), 2^-45 (Turing to Ada) or 2^-47 (Hopper, Blackwell).
    Here it is -20, -21 and -22, and -133 for wgmma and tcgen05. MMA-Sim 2.1.1 has -19, -20 and -21, for wgmma and
    tcgen05 too: ``replace(path, zero_exponent=-21)``. Khattak and Mikaitis have the same, and normalise a subnormal
    accumulator: add ``normalized_accumulator=True``.
    """
    eight = (e4m3, e5m2)
    float32_wide = Datapath("float32:fused", fused=True, inputs=(bfloat16, tf32, *eight))
    core = _tensor_core
    a100_tf32 = core("a100:tf32", 4, 24, -132, (tf32,))
    ada_tf32 = core("ada:tf32", 4, 24, -132, (tf32,))
    ada_fp8 = core("ada:fp8", 16, 13, -132, eight, _e8m13)
    h100_tf32 = core("h100:tf32", 8, 25, -133, (tf32,))
    h100_fp8 = core("h100:fp8", 32, 13, -133, eight, _e8m13)
    blackwell_tf32 = core("blackwell:tf32", 8, 25, -133, (tf32,))
    blackwell_fp8 = core("blackwell:fp8", 32, 25, -133, eight)
    ada_half_fp8 = core("ada:fp8:float16", 16, 13, -21, eight, binary16)
    h100_half_fp8 = core("h100:fp8:float16", 32, 13, -133, eight, binary16)
    blackwell_half_fp8 = core("blackwell:fp8:float16", 32, 25, -22, eight, binary16)
    both = (binary16, bfloat16)
    return (
        Datapath("float32", products=binary32, inputs=(binary16, binary32), variants=(float32_wide,)),
        Datapath("float16", binary16),
        Datapath("float16_fma", binary16, fused=True),
        Datapath("bfloat16", bfloat16, inputs=(bfloat16,)),
        Datapath("float64", binary64, inputs=(binary64,)),
        Datapath("pairwise", order="pairwise", inputs=_WIDE_INPUTS),
        Datapath("exact", None, inputs=_WIDE_INPUTS),
        Datapath("float16_kahan", binary16, compensated=True),
        core("v100", 4, 23, -131),
        core("v100:float16", 4, 23, -20, accumulator=binary16),
        core("turing", 8, 24, -132),
        core("turing:float16", 8, 24, -21, accumulator=binary16),
        core("a100", 8, 24, -132, both, variants=(a100_tf32,)),
        core("a100:float16", 8, 24, -21, accumulator=binary16),
        core("ada", 8, 24, -132, both, variants=(ada_tf32, ada_fp8)),
        core("ada:float16", 8, 24, -21, accumulator=binary16, variants=(ada_half_fp8,)),
        core("h100", 16, 25, -133, both, variants=(h100_tf32, h100_fp8)),
        core("h100:float16", 16, 25, -22, accumulator=binary16, variants=(h100_half_fp8,)),
        core("h100_wgmma:float16", 16, 25, -133, accumulator=binary16, variants=(h100_half_fp8,)),
        core("blackwell", 16, 25, -133, both, variants=(blackwell_tf32, blackwell_fp8)),
        core("blackwell:float16", 16, 25, -22, accumulator=binary16, variants=(blackwell_half_fp8,)),
        core(
            "blackwell_tcgen05:float16",
            16,
            25,
            -133,
            accumulator=binary16,
            variants=(replace(blackwell_half_fp8, name="blackwell_tcgen05:fp8:float16", zero_exponent=-133),),
        ),
    )


DATAPATHS: dict[str, Datapath] = {
    path.name: path for preset in _presets() for path in (preset, *preset.variants)
}
"""The datapaths that have names; a variant goes by its own too."""


def as_datapath(spec: str | Datapath) -> Datapath:
    """Find a datapath by name, or take it as it is.

    Raises
    ------
    ValueError
        If there is no such name; the message gives the nearest.

    >>> as_datapath("float32")
    Datapath('float32': products and sums rounded to binary32, in order of k; takes binary16 or binary32)
    """
    if isinstance(spec, Datapath):
        return spec
    if not isinstance(spec, str) or spec not in DATAPATHS:
        raise ValueError(f"unknown datapath {spec!r}: {nearest_name(spec, list(DATAPATHS))}")
    return DATAPATHS[spec]
