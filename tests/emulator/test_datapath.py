"""Datapaths as data: what the names stand for, what is refused, how one reads."""

from __future__ import annotations

import inspect
from dataclasses import replace

import numpy as np
import pytest

from fp16sim.emulator.datapath import DATAPATHS, Datapath, as_datapath
from fp16sim.emulator.formats import (
    Format,
    bfloat16,
    binary16,
    binary32,
    binary64,
    e4m3,
    e5m2,
    tf32,
)

_NAMES = """
    float32 float32:fused float16 float16_fma bfloat16 float64 pairwise exact float16_kahan
    v100 v100:float16 turing turing:float16
    a100 a100:tf32 a100:float16
    ada ada:tf32 ada:fp8 ada:float16 ada:fp8:float16
    h100 h100:tf32 h100:fp8 h100:float16 h100:fp8:float16 h100_wgmma:float16
    blackwell blackwell:tf32 blackwell:fp8 blackwell:float16 blackwell:fp8:float16
    blackwell_tcgen05:float16 blackwell_tcgen05:fp8:float16
"""
NAMES = _NAMES.split()


def test_the_names_are_those_and_every_name_is_its_own() -> None:
    assert list(DATAPATHS) == NAMES
    assert all(as_datapath(name).name == name for name in NAMES)
    assert len(set(DATAPATHS.values())) == len(NAMES)


# Tables 3 and 4 of arXiv 2511.10909: products in a block, fraction bits.
@pytest.mark.parametrize("name, block, fraction_bits", [
    ("v100", 4, 23), ("v100:float16", 4, 23), ("turing", 8, 24), ("turing:float16", 8, 24),
    ("a100", 8, 24), ("a100:float16", 8, 24), ("a100:tf32", 4, 24), ("ada", 8, 24), ("ada:float16", 8, 24),
    ("ada:tf32", 4, 24), ("ada:fp8", 16, 13), ("ada:fp8:float16", 16, 13),
    ("h100", 16, 25), ("h100:float16", 16, 25), ("h100_wgmma:float16", 16, 25), ("h100:tf32", 8, 25),
    ("h100:fp8", 32, 13), ("h100:fp8:float16", 32, 13),
    ("blackwell", 16, 25), ("blackwell:float16", 16, 25), ("blackwell_tcgen05:float16", 16, 25),
    ("blackwell:tf32", 8, 25), ("blackwell:fp8", 32, 25), ("blackwell:fp8:float16", 32, 25),
    ("blackwell_tcgen05:fp8:float16", 32, 25),
])  # fmt: skip
def test_the_tensor_cores_are_the_published_ones(name: str, block: int, fraction_bits: int) -> None:
    path = as_datapath(name)
    assert (path.block, path.fraction_bits) == (block, fraction_bits)
    if name.endswith(":float16"):
        assert (path.accumulator, path.out_format, path.block_rounding) == (
            binary16,
            binary16,
            "nearest_even",
        )
        assert path.nan_bits == 0x7FFF
    else:
        assert (path.out_format, path.block_rounding, path.nan_bits) == (binary32, "toward_zero", 0x7FFFFFFF)


def test_every_tensor_core_is_in_that_table() -> None:
    marks = test_the_tensor_cores_are_the_published_ones.pytestmark
    assert {row[0] for row in marks[0].args[1]} == {
        name for name in NAMES if as_datapath(name).is_tensor_core
    }


@pytest.mark.parametrize("name, operands, chosen", [
    ("float32", binary16, "float32"), ("float32", binary32, "float32"),
    ("float32", bfloat16, "float32:fused"), ("float32", tf32, "float32:fused"),
    ("a100", binary16, "a100"), ("a100", bfloat16, "a100"), ("a100", tf32, "a100:tf32"),
    ("ada", e4m3, "ada:fp8"), ("h100", e5m2, "h100:fp8"), ("h100:float16", e4m3, "h100:fp8:float16"),
    ("blackwell", e4m3, "blackwell:fp8"), ("float64", binary64, "float64"), ("exact", tf32, "exact"),
])  # fmt: skip
def test_operands_choose_their_model(name: str, operands: Format, chosen: str) -> None:
    assert as_datapath(name).for_operands(operands).name == chosen


@pytest.mark.parametrize("name, operands", [
    ("v100", bfloat16), ("turing", bfloat16), ("turing", tf32), ("a100", e4m3), ("a100:float16", bfloat16),
    ("a100", binary32), ("float16", binary32), ("float16", bfloat16), ("float64", binary32), ("h100", binary64),
])  # fmt: skip
def test_operands_without_a_sourced_model_are_refused(name: str, operands: Format) -> None:
    with pytest.raises(
        TypeError, match=rf"{operands.name} operands with datapath '{name}': it takes .*convert"
    ):
        as_datapath(name).for_operands(operands)


def test_result_formats() -> None:
    for name in ("float32", "float16", "float16_fma", "exact", "pairwise", "float16_kahan", "a100:float16"):
        assert as_datapath(name).result_format(binary16) == binary16, name
    for name in ("v100", "turing", "a100", "ada", "h100", "blackwell"):
        assert as_datapath(name).result_format(binary16) == binary32, name
    assert as_datapath("float32").result_format(binary32) == binary32
    assert as_datapath("float64").result_format(binary64) == binary64


def test_what_the_fields_default_to() -> None:
    # A product is rounded to the accumulator unless the datapath is fused; so the two fields say one thing.
    assert Datapath("plain", binary16).products == binary16
    assert Datapath("fused", binary16, fused=True).products is None
    assert Datapath("exact", None).fused
    assert Datapath("core", block=4, fraction_bits=20).fused
    for path in DATAPATHS.values():
        assert path.fused == (path.products is None), path
    assert Datapath("exact", None).start_format == binary32
    assert Datapath("plain", binary16).start_format == binary16


@pytest.mark.parametrize("fields, message", [
    ({"order": "sequental"}, "unknown order 'sequental': did you mean 'sequential'"),
    ({"order": "blocked", "block": 0}, "block=0: a datapath has at least 1"),
    ({"order": "blocked", "block": 2.0}, r"block=2\.0: a datapath has at least 1"),
    ({"order": "split_k", "splits": 0}, "splits=0: a datapath has at least 1"),
    ({"order": "split_k", "splits": True}, "splits=True: a datapath has at least 1"),
    ({"block": 4}, "block=4 with order='sequential': blocks belong to"),
    ({"splits": 4}, "splits=4 with order='sequential': splits belong to order='split_k'"),
    ({"fused": True, "products": binary32}, "fused=True with products=binary32: a fused product is not rounded"),
    ({"accumulator": binary16, "products": binary32}, "products=binary32 with the accumulator binary16"),
    ({"fraction_bits": 0}, "fraction_bits=0: pass a positive integer"),
    ({"fraction_bits": 24.0}, r"fraction_bits=24\.0: pass a positive integer"),
    ({"fraction_bits": 58, "block": 16}, "fraction_bits=58 with block=16: the sum of a block would not fit"),
    ({"fraction_bits": 24, "products": binary32}, "fraction_bits=24 makes a tensor core"),
    ({"fraction_bits": 24, "order": "pairwise"}, "fraction_bits=24 makes a tensor core"),
    ({"fraction_bits": 24, "compensated": True}, "fraction_bits=24 makes a tensor core"),
    ({"fraction_bits": 24, "accumulator": None}, "fraction_bits=24 makes a tensor core"),
    ({"fraction_bits": 24, "accumulator": binary16, "zero_exponent": -13}, "zero_exponent=-13: .* emin of binary16"),
    ({"fraction_bits": 24, "nan_bits": 0x7F800000}, "nan_bits=0x7f800000: not a NaN of binary32"),
    ({"fraction_bits": 24, "out_format": binary16, "nan_bits": 0x7FFFFFFF}, "not a NaN of binary16"),
    ({"fraction_bits": 24, "block_rounding": "toward_positive"}, "unknown block_rounding 'toward_positive'"),
    ({"block_rounding": "toward_zero"}, "block_rounding='toward_zero' without fraction_bits"),
    ({"zero_exponent": -200}, "zero_exponent=-200 without fraction_bits"),
    ({"nan_bits": 0x7FFFFFFF}, "nan_bits=2147483647 without fraction_bits"),
    ({"keep_negative_zero": True}, "keep_negative_zero=True without fraction_bits"),
    ({"normalized_accumulator": True}, "normalized_accumulator=True without fraction_bits"),
    ({"accumulator": None, "order": "pairwise"}, "accumulator=None is an exact sum"),
    ({"accumulator": None, "compensated": True}, "accumulator=None is an exact sum"),
    ({"accumulator": None, "products": binary16}, "accumulator=None is an exact sum"),
    ({"compensated": True, "fused": True}, "compensated=True: Kahan's algorithm adds rounded products"),
    ({"compensated": True, "order": "pairwise"}, "compensated=True: Kahan's algorithm adds rounded products"),
    ({"order": "pairwise", "fused": True}, "fused=True with order='pairwise'"),
    ({"inputs": ()}, r"inputs=\(\): pass a tuple of at least one operand format"),
    ({"inputs": [binary16]}, r"inputs=\[.*\]: pass a tuple"),
    ({"accumulator": binary16, "inputs": (bfloat16,)}, "inputs with bfloat16: binary16, the accumulator, does not"),
    ({"accumulator": bfloat16, "inputs": (binary16,)}, "inputs with binary16: bfloat16, the accumulator, does not"),
])  # fmt: skip
def test_impossible_datapaths_are_refused_in_one_line(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        Datapath("mine", **fields)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("fields, message", [
    ({"accumulator": "binary16"}, "accumulator='binary16': pass a Format, such as"),
    ({"products": "half"}, "products='half': pass a Format"),
    ({"out_format": 16}, "out_format=16: pass a Format"),
    ({"inputs": ("binary16",)}, "inputs='binary16': pass a Format"),
    ({"out_format": "e5m2"}, r"out_format='e5m2': pass a Format, such as fp16sim.as_format\('e5m2'\)"),
])  # fmt: skip
def test_names_are_no_formats(fields: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Datapath("mine", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("fields, message", [
    ({"compensated": "yes"}, "compensated='yes': it is on or off; pass True or False"),
    ({"fused": 1}, "fused=1: it is on or off"),
    ({"fraction_bits": 24, "keep_negative_zero": None}, "keep_negative_zero=None: it is on or off"),
    ({"fraction_bits": 24, "zero_exponent": -131.5}, r"zero_exponent=-131\.5: it is an integer or None"),
    ({"fraction_bits": 24, "zero_exponent": True}, "zero_exponent=True: it is an integer or None"),
    ({"fraction_bits": 24, "nan_bits": "0x7fff"}, "nan_bits='0x7fff': it is an integer or None"),
    ({"variants": ("x",)}, r"variants=\('x',\): pass a tuple of Datapaths"),
    ({"variants": [Datapath("other")]}, "pass a tuple of Datapaths"),
])  # fmt: skip
def test_fields_of_another_kind_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(TypeError, match=message) as caught:
        Datapath("mine", **fields)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


def test_numbers_of_numpy_are_those_of_python() -> None:
    ours = Datapath("core", block=np.int64(4), fraction_bits=np.uint8(23), zero_exponent=np.int16(-131))  # type: ignore[arg-type]
    assert ours == Datapath("core", block=4, fraction_bits=23, zero_exponent=-131)
    assert {type(n) for n in (ours.block, ours.fraction_bits, ours.zero_exponent)} == {int}
    assert Datapath("kahan", binary16, compensated=np.True_).compensated is True  # type: ignore[arg-type]


def test_the_signature_is_short() -> None:
    assert "Format('binary32', exponent_bits=8, precision=24)" in str(inspect.signature(Datapath))


def test_the_largest_fraction_is_taken() -> None:
    assert Datapath("wide", fraction_bits=56, block=16).fraction_bits == 56  # 66 * 2^56 < 2^63
    assert Datapath("wide", fraction_bits=60).fraction_bits == 60  # 6 * 2^60 < 2^63
    with pytest.raises(ValueError, match="fit 63 bits"):
        Datapath("wide", fraction_bits=61)


def test_unknown_names_are_answered_with_the_nearest() -> None:
    with pytest.raises(ValueError, match="unknown datapath 'a10': did you mean 'a100'"):
        as_datapath("a10")
    with pytest.raises(ValueError, match="unknown datapath 16"):
        as_datapath(16)  # type: ignore[arg-type]
    mine = Datapath("mine", binary16)
    assert as_datapath(mine) is mine


def test_a_datapath_reads_like_a_sentence() -> None:
    readings = {
        "float16_fma": "exact products, sums rounded to binary16, in order of k; takes binary16",
        "float16_kahan": "products and sums rounded to binary16, in order of k, compensated; takes binary16",
        "exact": "the exact sum, rounded once; takes binary16 or binary32 or bfloat16 or tf32 or e4m3 or e5m2",
        "a100": "8 exact products and the accumulator cut to 24 fraction bits, summed, rounded toward zero to "
        "binary32; takes binary16 or bfloat16, gives binary32",
    }
    for name, reading in readings.items():
        assert repr(as_datapath(name)) == f"Datapath('{name}': {reading})"
    pieces = Datapath("mine", binary16, order="split_k", splits=4)
    assert (
        repr(pieces) == "Datapath('mine': products and sums rounded to binary16, in 4 pieces; takes binary16)"
    )
    narrow = Datapath("mine", binary32, products=binary16)
    assert "products rounded to binary16, sums to binary32, in order of k" in repr(narrow)


def test_replacing_a_field_checks_again() -> None:
    assert replace(as_datapath("a100"), fraction_bits=23).fraction_bits == 23
    with pytest.raises(ValueError, match="products=binary32 with the accumulator binary16"):
        replace(as_datapath("float32"), accumulator=binary16, inputs=(binary16,))
