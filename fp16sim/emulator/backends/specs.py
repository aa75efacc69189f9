"""Formats, rounding rules and datapaths written as the integers that kernels take."""

from __future__ import annotations

from functools import lru_cache

from fp16sim.emulator.datapath import Datapath
from fp16sim.emulator.formats import Format, binary32
from fp16sim.emulator.kernels import dot
from fp16sim.emulator.kernels.integer import Spec
from fp16sim.emulator.rounding import MODES, Rounding

__all__ = ["rules_of", "signed", "spec_of"]

_PLAIN = Rounding()


def signed(word: int) -> int:
    """Read a 64-bit word as a signed integer, the only kind that kernels take."""
    return word - 2**64 if word >> 63 else word


@lru_cache(maxsize=256)
def spec_of(fmt: Format, rounding: Rounding = _PLAIN, key: int = 0) -> Spec:
    """Write a format and a rounding rule as the integers that kernels take."""
    beyond = ((fmt.emax + 1 - fmt.emin) << fmt.fraction_bits) + (1 << fmt.fraction_bits)  # 2^(emax+1)
    return Spec(
        precision=fmt.precision,
        emin=fmt.emin,
        sign_bit=signed(fmt.sign_bit),
        max_bits=fmt.max_bits,
        inf_bits=-1 if fmt.inf_bits is None else fmt.inf_bits,
        nan_bits=fmt.nan_bits,
        all_ones_nan=int(fmt.nan == "all_ones"),
        no_subnormals=int(not fmt.subnormals),
        mode=MODES.index(rounding.mode),
        flush=int(rounding.subnormals == "flush"),
        zero_inputs=int(rounding.inputs == "zero"),
        saturate=int(rounding.saturate),
        tiny_before=int(rounding.tininess == "before"),
        overflow_gap=beyond - fmt.max_bits,
        key=signed(key),
    )


@lru_cache(maxsize=256)
def rules_of(datapath: Datapath, operands: Format, result: Format) -> dot.Rules:
    """Write a datapath as the integers that `kernels.dot.dot_products` takes.

    Raises
    ------
    ValueError
        If a format has more than 24 bits of precision: binary64.
    """
    accumulator = binary32 if datapath.accumulator is None else datapath.accumulator
    for fmt in (operands, datapath.products or operands, accumulator, result):
        if fmt.precision > 24:
            raise ValueError(
                f"{fmt.name} with datapath {datapath.name!r}: the integer kernels take formats of at most 24 bits; "
                "use the reference backend"
            )
    has_own_nan = datapath.nan_bits is not None and result == (datapath.out_format or accumulator)
    piece = 1
    if datapath.is_exact:
        order = dot.EXACT
    elif datapath.is_tensor_core:
        order, piece = dot.BLOCKS, datapath.block
    elif datapath.compensated:
        order = dot.COMPENSATED
    elif datapath.order == "pairwise":
        order = dot.PAIRWISE
    elif datapath.order == "blocked":
        order, piece = dot.PIECES, datapath.block
    elif datapath.order == "split_k":
        order, piece = dot.PIECES, -datapath.splits
    else:
        order = dot.SEQUENTIAL
    return dot.Rules(
        operand=spec_of(operands),
        product=spec_of(datapath.products or accumulator),
        accumulator=spec_of(accumulator, Rounding(datapath.block_rounding)),
        result=spec_of(result),
        round_products=int(datapath.products is not None),
        convert_result=int(result != accumulator),
        order=order,
        piece=piece,
        fraction_bits=datapath.fraction_bits or 0,
        zero_exponent=dot.NEVER if datapath.zero_exponent is None else datapath.zero_exponent,
        keep_negative_zero=int(datapath.keep_negative_zero),
        normalized_accumulator=int(datapath.normalized_accumulator),
        nan_bits=(datapath.nan_bits or 0) if has_own_nan else result.nan_bits,
    )
