"""Which datapaths are possible. What is not is refused in one line, before any work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fp16sim.emulator.formats import Format, nearest_name

if TYPE_CHECKING:
    from fp16sim.emulator.datapath import Datapath

__all__ = ["ORDERS", "check"]

ORDERS = ("sequential", "pairwise", "blocked", "split_k")
"""The orders in which products are added."""

_BLOCK_ROUNDINGS = ("nearest_even", "toward_zero")
_TENSOR_CORE_FIELDS: dict[str, object] = {
    "block_rounding": "nearest_even",
    "zero_exponent": None,
    "keep_negative_zero": False,
    "normalized_accumulator": False,
    "nan_bits": None,
}
"""What describes tensor cores only, and stays as it is elsewhere."""


def check(path: Datapath) -> None:
    """Refuse an impossible datapath.

    Raises
    ------
    ValueError, TypeError
        Saying the value, the rule and the remedy.
    """
    _formats(path)
    _kinds(path)
    for field, value, valid in (
        ("order", path.order, ORDERS),
        ("block_rounding", path.block_rounding, _BLOCK_ROUNDINGS),
    ):
        if value not in valid:
            raise ValueError(f"unknown {field} {value!r}: {nearest_name(value, valid)}")
    _counts(path)
    if path.fused and path.products is not None:
        raise ValueError(
            f"fused=True with products={path.products.name}: a fused product is not rounded; drop one of the two"
        )
    if path.is_tensor_core:
        _tensor_core(path)
    else:
        _plain(path)
    _inputs(path)


def _formats(path: Datapath) -> None:
    if not isinstance(path.inputs, tuple) or not path.inputs:
        raise ValueError(f"inputs={path.inputs!r}: pass a tuple of at least one operand format")
    for field, fmt in (
        ("accumulator", path.accumulator),
        ("products", path.products),
        ("out_format", path.out_format),
        *(("inputs", fmt) for fmt in path.inputs),
    ):
        if fmt is not None and not isinstance(fmt, Format):
            name = fmt if isinstance(fmt, str) else "binary16"
            raise TypeError(f"{field}={fmt!r}: pass a Format, such as fp16sim.as_format({name!r})")


def _kinds(path: Datapath) -> None:
    """Check what is no format: switches, whole numbers (already Python's own) and the other models."""
    for field in ("fused", "compensated", "keep_negative_zero", "normalized_accumulator"):
        if not isinstance(getattr(path, field), bool):
            raise TypeError(f"{field}={getattr(path, field)!r}: it is on or off; pass True or False")
    for field in ("zero_exponent", "nan_bits"):
        value = getattr(path, field)
        if value is not None and not _is_int(value):
            raise TypeError(f"{field}={value!r}: it is an integer or None; pass one of these")
    if not isinstance(path.variants, tuple) or not all(isinstance(v, type(path)) for v in path.variants):
        raise TypeError(f"variants={path.variants!r}: pass a tuple of Datapaths, such as (other,)")


def _is_int(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _counts(path: Datapath) -> None:
    for field, value in (("block", path.block), ("splits", path.splits)):
        if not _is_int(value) or value < 1:
            raise ValueError(f"{field}={value!r}: a datapath has at least 1; pass a positive integer")
    if path.block != 1 and path.order != "blocked" and not path.is_tensor_core:
        raise ValueError(
            f"block={path.block} with order={path.order!r}: blocks belong to order='blocked' and to "
            "tensor cores (fraction_bits=); choose one of these"
        )
    if path.splits != 1 and path.order != "split_k":
        raise ValueError(
            f"splits={path.splits} with order={path.order!r}: splits belong to order='split_k'; choose it"
        )


def _tensor_core(path: Datapath) -> None:
    bits, accumulator = path.fraction_bits, path.accumulator
    if bits is None or not _is_int(bits) or bits < 1:
        raise ValueError(f"fraction_bits={bits!r}: pass a positive integer, or None for exact additions")
    if accumulator is None or path.order != "sequential" or path.products or path.compensated:
        raise ValueError(
            f"fraction_bits={bits} makes a tensor core: it has an accumulator format, adds exact products "
            "block after block and is not compensated; drop fraction_bits or what contradicts it"
        )
    # A term is below 4 * 2^F: the sum of L products and c must stay an exact 64-bit integer.
    if (4 * path.block + 2) << bits >= 1 << 63:
        raise ValueError(
            f"fraction_bits={bits} with block={path.block}: the sum of a block would not fit 63 bits; "
            "lower one of the two"
        )
    if path.zero_exponent is not None and path.zero_exponent > accumulator.emin:
        raise ValueError(
            f"zero_exponent={path.zero_exponent}: a zero aligns below every number; choose at most the "
            f"emin of {accumulator.name}, {accumulator.emin}"
        )
    own = path.out_format or accumulator
    if path.nan_bits is not None and not _is_nan(path.nan_bits, own):
        raise ValueError(
            f"nan_bits={path.nan_bits:#x}: not a NaN of {own.name}; the canonical one is {own.nan_bits:#x}"
        )


def _plain(path: Datapath) -> None:
    for field, default in _TENSOR_CORE_FIELDS.items():
        if getattr(path, field) != default:
            raise ValueError(
                f"{field}={getattr(path, field)!r} without fraction_bits: it describes a tensor core; "
                "drop it, or say fraction_bits"
            )
    if path.is_exact and (path.order != "sequential" or path.products or path.compensated):
        raise ValueError(
            "accumulator=None is an exact sum, which has no order, no rounded products and nothing to "
            "compensate; drop these, or choose an accumulator"
        )
    if path.accumulator is not None and path.products and not _contains(path.accumulator, path.products):
        raise ValueError(
            f"products={path.products.name} with the accumulator {path.accumulator.name}: a product is rounded "
            "to numbers that the accumulator holds, or not at all; use fused=True"
        )
    if path.compensated and (path.order != "sequential" or path.fused):
        raise ValueError(
            "compensated=True: Kahan's algorithm adds rounded products in order of k; use "
            "order='sequential' and fused=False"
        )
    if path.order == "pairwise" and path.fused:
        raise ValueError(
            "fused=True with order='pairwise': the leaves of the tree are rounded; use fused=False"
        )


def _inputs(path: Datapath) -> None:
    for fmt in path.inputs:
        if path.accumulator is not None and not _contains(path.accumulator, fmt):
            raise ValueError(
                f"inputs with {fmt.name}: {path.accumulator.name}, the accumulator, does not hold all of its "
                "values; widen the accumulator"
            )


def _contains(wide: Format, narrow: Format) -> bool:
    """Whether every number of one format is a number of another."""
    return (
        narrow.precision <= wide.precision
        and narrow.emax <= wide.emax
        and narrow.emin - narrow.fraction_bits >= wide.emin - wide.fraction_bits
        and (wide.subnormals or (narrow.emin >= wide.emin and not narrow.subnormals))
    )


def _is_nan(bits: int, fmt: Format) -> bool:
    return fmt.max_bits < bits < fmt.sign_bit and bits != fmt.inf_bits
