"""fs.explain: what it prints, for each kind of datapath, and what it refuses."""

from __future__ import annotations

import io

import numpy as np
import pytest

import fp16sim as fs
from fp16sim.emulator.datapath import DATAPATHS, Datapath
from fp16sim.emulator.dot_explanation import explanation
from fp16sim.emulator.formats import binary16, binary64


def body(*args: object, **keywords: object) -> list[str]:
    """The lines after the one that names the datapath."""
    return explanation(*args, **keywords).splitlines()[1:]  # type: ignore[arg-type]


def test_it_prints_to_standard_output_or_where_it_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    fs.explain("float32", [1, 2], [3, 4])
    printed = capsys.readouterr().out
    stream = io.StringIO()
    fs.explain("float32", [1, 2], [3, 4], file=stream)
    assert printed == stream.getvalue() == explanation("float32", [1, 2], [3, 4]) + "\n"
    assert printed.splitlines() == [
        "Datapath('float32': products and sums rounded to binary32, in order of k; takes binary16 or binary32)",
        "2 products of binary16 numbers, on top of 0.0",
        "  product 0            1.0 * 3.0 = 3.0",
        "  sum of 0             3.0",
        "  product 1            2.0 * 4.0 = 8.0",
        "  sum of 0 to 1        11.0",
        "  rounded to binary16  11.0",
        "result 11.0 in binary16 (0x4980)",
    ]


def test_a_fused_datapath_shows_the_product_where_it_is_added() -> None:
    assert body("float16_fma", [2048, 1], [1, 1.5]) == [
        "2 products of binary16 numbers, on top of 0.0",
        "  sum of 0       adds 2048.0 * 1.0: 2048.0",
        "  sum of 0 to 1  adds 1.0 * 1.5: 2049.5 -> 2050.0  (inexact)",
        "result 2050.0 in binary16 (0x6801)",
    ]


def test_trees_pieces_and_compensation_name_what_they_add() -> None:
    tree = body(Datapath("tree", binary16, order="pairwise"), [1, 2, 3], [1, 1, 1], 4)
    assert [line.split("  ")[1] for line in tree[1:-1]] == [
        "product 0", "product 1", "sum of 0 to 1", "product 2", "sum of 0 to 2", "total of 0 to 2",
    ]  # fmt: skip
    assert tree[-2:] == ["  total of 0 to 2  10.0", "result 10.0 in binary16 (0x4900)"]
    pieces = body(Datapath("pieces", binary16, order="split_k", splits=2), [1, 2, 3], [1, 1, 1])
    assert "  sum of 0 to 1    3.0" in pieces
    assert "  total of 0 to 2  6.0" in pieces
    kahan = body("float16_kahan", [2048, 1, 1], [1, 1, 1])
    assert "  t = s + y        2049.0 -> 2048.0  (inexact; swamped)" in kahan
    assert "  e = (t - s) - y  -1.0" in kahan
    assert kahan[-1] == "result 2050.0 in binary16 (0x6801); 1 addition swamped"


def test_an_exact_sum_is_one_rounding() -> None:
    assert body("exact", [2048, 2.0**-24], [1, 2.0**-24]) == [
        "2 products of binary16 numbers, on top of 0.0",
        "  rounded to binary16  about 2048.0 -> 2048.0  (inexact)",
        "result 2048.0 in binary16 (0x6800)",
    ]


def test_a_block_shows_alignment_truncation_and_sum() -> None:
    assert body("v100", [1, 1, 0.375], [1, 2.0**-12, 2.0**-23], 2.0**-12) == [
        "3 products of binary16 numbers, on top of 0.000244140625",
        "  block of 0 to 2, kept in units of 2^-23",
        "    product 0    1.0                    exponent 0    8388608",
        "    product 1    0.000244140625         exponent -12  2048",
        "    product 2    4.470348358154297e-08  exponent -16  0        4.470348358154297e-08 cut off",
        "    accumulator  0.000244140625         exponent -12  2048",
        "    1 zero",
        "    sum          1.00048828125                        8392704",
        "  rounded  1.00048828125  (inexact)",
        "result 1.00048828125 in binary32 (0x3f801000)",
    ]
    aligned_by_zeros = body("h100:float16", [2.0**-12, 2.0**-23], [2.0**-13, 2.0**-24])
    assert aligned_by_zeros[1] == "  block of 0 to 1, aligned by its zeros, kept in units of 2^-47"
    assert aligned_by_zeros[-1] == "result 5.960464477539063e-08 in binary16 (0x0001)"
    nothing = body("h100", [0.0], [5.0], -0.0)
    assert nothing[1:] == [
        "  block of 0, nothing to align",
        "  rounded  0.0",
        "result 0.0 in binary32 (0x00000000)",
    ]
    chain = body("v100", np.ones(9, np.float16), np.ones(9, np.float16))
    assert [line for line in chain if "block" in line] == [
        "  block of 0 to 3, kept in units of 2^-23",
        "  block of 4 to 7, kept in units of 2^-21",
        "  block of 8, kept in units of 2^-20",
    ]


def test_special_values_and_no_products() -> None:
    assert body("float16", [np.inf, 1], [0, 1])[1:] == [
        "  product 0      inf * 0.0 = nan  (invalid)",
        "  sum of 0       nan",
        "  product 1      1.0 * 1.0 = 1.0",
        "  sum of 0 to 1  nan",
        "result nan in binary16 (0x7e00)",
    ]
    assert body("a100", [np.inf], [-2.0])[-1] == "result -inf in binary32 (0xff800000)"
    assert body("float16", [], [], 3) == [
        "0 products of binary16 numbers, on top of 3.0",
        "result 3.0 in binary16 (0x4200)",
    ]
    assert body("float32", np.float32([1e38]), np.float32([1e38]))[1].endswith("inf  (overflow, inexact)")
    huge = fs.bfloat16.dtype.type(2.0**127)
    assert "  adds 1.7014118346046923e+38 *" in body("float32", np.array([huge]), np.array([huge]))[1]


def test_float64_operands_take_float64() -> None:
    assert body("float64", np.array([0.1]), np.array([3.0]))[1:] == [
        "  product 0  0.1 * 3.0 = about 0.30000000000000004 -> 0.30000000000000004  (inexact)",
        "  sum of 0   0.30000000000000004",
        "result 0.30000000000000004 in binary64 (0x3fd3333333333334)",
    ]


@pytest.mark.parametrize("name", [name for name, path in DATAPATHS.items() if binary64 not in path.inputs])
def test_the_result_is_that_of_matmul(name: str) -> None:
    path = DATAPATHS[name]
    fmt = path.inputs[0]
    rng = np.random.Generator(np.random.PCG64(7))
    a, b = (np.asarray(fs.round_to(x, fmt)) for x in rng.normal(size=(2, 21)))
    given = {"format": fmt} if fmt.is_carried else {}
    bits = explanation(path, a, b, **given).splitlines()[-1].split("(0x")[1].split(")")[0]  # type: ignore[arg-type]
    result = fs.matmul(a[np.newaxis], b[:, np.newaxis], path, **given)
    target = path.result_format(fmt)
    if target.is_carried:
        assert int(fs.as_format(target).encode(float(result[0, 0]))) == int(bits, 16)
    else:
        assert int(result.view(target.uint)[0, 0]) == int(bits, 16)


def test_bad_input_is_refused_in_one_line() -> None:
    cases: list[tuple[type[Exception], str, tuple[object, ...], dict[str, object]]] = [
        (ValueError, "unknown datapath 'a10': did you mean 'a100'", ("a10", [1], [1]), {}),
        (ValueError, r"shapes \(2,\) and \(1,\): .* two vectors of one length", ("a100", [1, 2], [1]), {}),
        (ValueError, r"shapes \(1, 2\) and \(1, 2\): .* two vectors", ("a100", [[1, 2]], [[1, 2]]), {}),
        (ValueError, r"c has shape \(1,\): .* pass a number", ("a100", [1], [1], [1.0]), {}),
        (TypeError, "bfloat16 operands with datapath 'v100'", ("v100", [1], [1]), {"format": "bfloat16"}),
        (ValueError, "unknown format 'binary61'", ("v100", [1], [1]), {"out_format": "binary61"}),
    ]
    for error, message, args, keywords in cases:
        with pytest.raises(error, match=message) as caught:
            explanation(*args, **keywords)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)
