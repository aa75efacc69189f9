"""Every planted fault of a backend is found by the check of its method, and shown by a small example."""

from __future__ import annotations

import itertools
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from fp16sim.emulator.backends import threads
from fp16sim.emulator.backends.base import Backend, Outcome
from fp16sim.emulator.backends.cpu import CpuBackend
from fp16sim.emulator.formats import binary16, binary32, binary64
from fp16sim.emulator.rounding import Rounding
from fp16sim.testing import BackendCheckError, check_backend

CPU = CpuBackend()


@dataclass(frozen=True)
class Plant:
    """A fault, the check that finds it and what it says."""

    check: str
    fault: Callable[..., Any]
    says: str
    datapaths: tuple[str, ...] = ("float16", "pairwise", "a100")

    @property
    def name(self) -> str:
        return f"{self.check}: {self.fault.__name__}"


PLANTS: list[Plant] = []


def plant(check: str, says: str, *datapaths: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def planted(fault: Callable[..., Any]) -> Callable[..., Any]:
        PLANTS.append(Plant(check, fault, says, datapaths or ("float16", "pairwise", "a100")))
        return fault

    return planted


def changed(outcome: Outcome, where: Any, bits: int) -> Outcome:
    outcome.bits[np.broadcast_to(where, outcome.bits.shape)] = bits
    return outcome


# ------------------------------------------------------------------------------------------- element by element


@plant("elementwise.add", "add in binary16, nearest_even: SUM gave $, the definition gives $")
def ties_go_away_from_zero(operation, operands, fmt, rounding, *rest):
    if operation == "add" and rounding.mode == "nearest_even":
        rounding = replace(rounding, mode="nearest_away")
    return CPU.elementwise(operation, operands, fmt, rounding, *rest)


@plant("elementwise.subtract", "subtract in binary16, nearest_even: # - # gave $, the definition gives $")
def a_difference_that_vanishes_is_negative(operation, operands, fmt, rounding, *rest):
    outcome = CPU.elementwise(operation, operands, fmt, rounding, *rest)
    return changed(outcome, (outcome.bits == 0) & (operands[0] == operands[1]), 0x8000)


@plant("elementwise.multiply", "multiply in binary16, nearest_even: # * # gave $, the definition gives $")
def subnormal_results_are_flushed(operation, operands, fmt, rounding, *rest):
    return CPU.elementwise(operation, operands, fmt, replace(rounding, subnormals="flush"), *rest)


@plant("elementwise.fma", "fma in binary16, nearest_even: #, #, # gave $, the definition gives $")
def the_product_is_rounded_before_it_is_added(operation, operands, fmt, rounding, draws, watch, *into):
    if watch or rounding.mode != "nearest_even":
        return CPU.elementwise(operation, operands, fmt, rounding, draws, watch, *into)
    product = CPU.elementwise("multiply", operands[:2], fmt, rounding).bits
    return CPU.elementwise("add", [product, operands[2]], fmt, rounding)


@plant(
    "elementwise.divide",
    "divide in binary16, nearest_even, watch='flags': "
    "# / # raised nothing, the definition raises divide_by_zero",
)
def a_pole_raises_no_flag(*arguments):
    outcome = CPU.elementwise(*arguments)
    if outcome.flags is not None:
        outcome = outcome._replace(flags=outcome.flags & np.uint8(0xEF))
    return outcome


@plant(
    "elementwise.sqrt",
    "sqrt in binary16, nearest_even, watch='counts': # counted nothing; the definition counts 1 inexact",
)
def inexact_results_are_not_counted(*arguments):
    outcome = CPU.elementwise(*arguments)
    if outcome.counts is not None:
        outcome.counts[5] = 0
    return outcome


@plant(
    "elementwise.minimum",
    "minimum in binary16, nearest_even: element 64 of 65, #, # gave $, the definition gives $",
)
def what_is_left_of_vectors_of_eight_is_forgotten(operation, operands, fmt, *rest):
    outcome = CPU.elementwise(operation, operands, fmt, *rest)
    size = outcome.bits.size
    return changed(outcome, (np.arange(size) >= size // 8 * 8) & (size > 8), 0)


@plant("elementwise.rint", "rint in binary16, toward_positive: # gave $, the definition gives $")
def every_seventh_call_differs(*arguments, counter=itertools.count(1)):  # noqa: B008 - a counter is meant
    outcome = CPU.elementwise(*arguments)
    return changed(outcome, next(counter) % 7 == 0, 0x3C00)


@plant(
    "elementwise.nextafter",
    "nextafter in binary16, nearest_even: #, #: the result depends on the thread: $, then $",
)
def another_thread_gives_other_results(*arguments):
    outcome = CPU.elementwise(*arguments)
    return changed(outcome, threading.current_thread() is not threading.main_thread(), 0x3C01)


@plant(
    "elementwise.maximum",
    "maximum in binary16, nearest_even, with an array to write into: #, # gave $, the definition gives $",
)
def the_array_to_write_into_is_left_half_empty(operation, operands, fmt, rounding, draws, watch, into=None):
    outcome = CPU.elementwise(operation, operands, fmt, rounding, draws, watch)
    if into is None:
        return outcome
    into[: into.size // 2] = outcome.bits[: into.size // 2]
    return outcome._replace(bits=into)


@plant(
    "elementwise.ieee_remainder",
    "ieee_remainder in binary16, nearest_even, with an array to write into: "
    "#, # wrote there and gave another array: callers would not look there",
)
def the_array_to_write_into_is_written_but_not_given(
    operation, operands, fmt, rounding, draws, watch, into=None
):
    outcome = CPU.elementwise(operation, operands, fmt, rounding, draws, watch)
    if into is not None:
        into[...] = 0
    return outcome


@plant(
    "elementwise.logb",
    "logb in binary16, nearest_even, with an array to write into: # wrote beside that array",
)
def one_more_element_is_written(*arguments):
    if len(arguments) == 7:
        into = arguments[-1]
        address = np.lib.stride_tricks.as_strided(into, (into.size + 1,), writeable=True)
        address[-1] = 0
    return CPU.elementwise(*arguments)


@plant(
    "elementwise.ldexp",
    "ldexp in binary16, toward_zero, inputs='zero', saturate=True: #, 0 gave $, the definition gives $",
)
def denormals_are_not_zero_where_the_rule_says_so(operation, operands, fmt, rounding, *rest):
    return CPU.elementwise(operation, operands, fmt, replace(rounding, inputs="keep"), *rest)


@plant("function", "exp in binary16, nearest_even: # gave $, the definition gives $")
def a_nan_keeps_its_sign(name, bits, *rest):
    outcome = CPU.function(name, bits, *rest)
    return changed(outcome, (bits > 0xFC00) & (name == "exp"), 0xFE00)


@plant("function", "sqrt in binary16, stochastic: #, bits $, gave $, the definition gives $")
def stochastic_rounding_forgets_its_bits(name, bits, rounding, draws, *rest):
    zero = None if draws is None else np.zeros(bits.size, np.uint32)
    return CPU.function(name, bits, rounding, zero, *rest)


@plant("convert", "convert from binary64 to binary16, toward_positive: # gave $, the definition gives $")
def numbers_of_binary64_are_rounded_to_binary32_first(bits, source, target, rounding, *rest):
    if source == binary64 and target == binary16:
        bits, source = CPU.convert(bits, binary64, binary32, Rounding()).bits, binary32
    return CPU.convert(bits, source, target, rounding, *rest)


@plant(
    "convert_integers",
    "convert_integers from int64 to binary32, toward_zero: 18014398509481983 gave $, the definition gives $",
)
def integers_are_rounded_to_binary64_first(values, target, *rest):
    with np.errstate(all="ignore"):
        return CPU.convert(values.astype(np.float64).view(np.uint64), binary64, target, *rest)


@plant("relu", "relu in binary16: # gave $, the definition gives $")
def minus_zero_stays(bits, fmt):
    return np.where(bits == fmt.sign_bit, bits, CPU.relu(bits, fmt))


@plant("real_function", "erf in binary32: element 2 of 5, # gave $, the definition gives $")
def part_of_the_work_gives_the_wrong_sign_of_zero(name, values, *rest):
    result = CPU.real_function(name, values, *rest)
    return np.where((result == 0) & (values.size % 4 == 1), np.abs(result), result).astype(values.dtype)


@plant("tabulated", "tabulated, the rule 'check 1 in binary16': # gave $, the definition gives $")
def tables_are_kept_by_the_first_word_of_their_names(name, rule, bits, tables={}):  # noqa: B006 - it is kept
    table = tables.setdefault(name.split()[0], rule(np.arange(65536, dtype=np.uint16)))
    return table[bits]


@plant(
    "perform",
    "perform in binary16, v1 = multiply(v0, v0): element 1 of 2, v0 = #: v1 gave $, the definition gives $",
)
def an_operand_that_stretches_is_repeated_as_a_whole(
    program, operands, patterns, constants, size, fmt, watch=""
):
    patterns = np.where(patterns[:, :1] > 1, [[1, 0]] + patterns * [[0, 1]], patterns)
    return CPU.perform(program, operands, patterns, constants, size, fmt, watch)


# ------------------------------------------------------------------------------------------- sums and products


@plant(
    "matmul",
    "matmul of binary16 by datapath 'float16' to binary16, left operand repeated: "
    "# * # raised ValueError: strides of 0 (HERE)",
)
def rows_that_are_repeated_without_a_copy_are_refused(a, b, *rest):
    if a.size and 0 in a.strides:
        raise ValueError("strides of 0")
    return CPU.matmul(a, b, *rest)


@plant("matmul", "matmul of binary16 by datapath 'float16' to binary16: # gave $, the definition gives $")
def an_accumulator_input_of_minus_zero_counts_as_none(a, b, c, *rest):
    if c is not None:
        c = np.where(c == 1 << (8 * c.itemsize - 1), 0, c).astype(c.dtype)
    return CPU.matmul(a, b, c, *rest)


@plant(
    "matmul",
    "matmul of binary16 by datapath 'float16' to binary16, (1, 1, 1) by (1, 1, 65): "
    "element 64 of 65, # * # gave $, the definition gives $",
    "float16",
)
def columns_beyond_64_are_not_written(a, b, *rest):
    outcome = CPU.matmul(a, b, *rest)
    outcome.bits[..., 64:] = 0
    return outcome


@plant("sum", "sum of binary16 by datapath 'float16' to binary16: SUM gave $, the definition gives $")
def terms_are_added_from_the_last_on(a, *rest):
    return CPU.sum(np.ascontiguousarray(a[:, ::-1]), *rest)


@plant(
    "sum",
    "sum of binary16 by datapath 'float16' to binary16: SUM: "
    "the result depends on the number of threads: $, then $",
)
def more_threads_add_in_another_order(a, *rest):
    return CPU.sum(np.ascontiguousarray(a[:, ::-1]) if threads.threads() > 1 else a, *rest)


@plant(
    "cumulative_sum",
    "cumulative_sum of binary16 by datapath 'float16' to binary16, watch='counts': "
    "element 0 of 2, # counted 1 inexact; the definition counts 1 inexact, 1 swamped",
)
def swamped_additions_are_not_counted(*arguments):
    outcome = CPU.cumulative_sum(*arguments)
    if outcome.counts is not None:
        outcome.counts[6] = 0
    return outcome


@plant(
    "sum_of_squares",
    "sum_of_squares of binary16 by datapath 'float16' to binary16: # changed operand 0 from $ to $",
)
def the_squares_are_written_over_the_operands(a, fmt, datapath, out_format, watch=""):
    outcome = CPU.sum_of_squares(a, fmt, datapath, out_format, watch)
    flat = a.reshape(-1)
    flat[:] = CPU.elementwise("multiply", [flat, flat], fmt, Rounding()).bits
    return outcome


@plant(
    "index_sum",
    "index_sum of binary16 by datapath 'float16' to binary16, index [0, 0, 0] of 1, 1 to a row: "
    "row 0: SUM gave $, the definition gives $",
)
def rows_are_added_in_the_order_of_their_index_from_the_last_on(a, index, *rest):
    return CPU.index_sum(np.ascontiguousarray(a[::-1]), np.ascontiguousarray(index[::-1]), *rest)


@plant("maximum_of", "maximum_of in binary16: #, # gave $, the definition gives $")
def the_first_of_two_zeros_is_given(a, fmt):
    result = CPU.maximum_of(a, fmt)
    first = a[:, 0] if a.shape[1] else result
    return np.where(result == 0, np.where(first == fmt.sign_bit, first, result), result)


@plant(
    "convolve.forward",
    "convolve 'forward' of binary16 by datapath 'float16' to binary16, (1, 1, 1) by (1, 1, 1), "
    "padding ((1, 0),): element 0 of 2, [#] by [#] gave $, the definition gives $",
)
def padding_before_and_after_are_exchanged(which, a, b, geometry, *rest):
    other = replace(geometry, padding=tuple(pair[::-1] for pair in geometry.padding))
    return CPU.convolve(which, a, b, other if which == "forward" else geometry, *rest)


@plant(
    "convolve.input_gradient",
    "convolve 'input_gradient' of binary16 by datapath 'float16' to binary16, (1, 1, 1) by (1, 1, "
    "2): element 0 of 2, [#] by [#, #] gave $, the definition gives $",
)
def the_kernel_is_not_turned(which, a, b, *rest):
    return CPU.convolve(which, a, b[..., ::-1].copy() if which == "input_gradient" else b, *rest)


@plant(
    "convolve.weight_gradient",
    "convolve 'weight_gradient' of binary16 by datapath 'float16' to binary16, (2, 1, 3) by (2, 2, "
    "2): element 0 of 4, [# [6 times]] by [#, #, #, #, ... (8 in all)] gave $, the definition gives $",
    "float16",
)
def images_are_taken_from_the_last_on(which, a, b, *rest):
    if which == "weight_gradient":
        a, b = a[::-1].copy(), b[::-1].copy()
    return CPU.convolve(which, a, b, *rest)


def found(one: Plant) -> str:
    method = one.check.split(".")[0]
    broken: Any = type("Broken", (CpuBackend,), {method: staticmethod(one.fault)})
    with pytest.raises(BackendCheckError) as caught:
        check_backend(broken, formats=["binary16", "binary32"], datapaths=one.datapaths, methods=[one.check])
    (verdict,) = caught.value.report.failures
    return verdict.what


def pattern(text: str) -> str:
    """Give a message without its numbers: # is an encoding with its value, $ an encoding, SUM up to four to add.

    HERE is a line of a file.
    """
    text = re.sub(r" \([^ ]*\.py, line \d+\)", " (HERE)", text.split("; also for ")[0])
    text = re.sub(r"0x\w+ \([^)]*\)", "#", text)
    text = re.sub(r"(?<=: )#( \+ #){1,3}(?= gave|: the result)", "SUM", text)
    return re.sub(r"0x\w+", "$", text)


@pytest.mark.parametrize("one", PLANTS, ids=lambda one: one.name)
def test_a_planted_fault_is_found_and_shown_by_few_operands(one: Plant) -> None:
    assert pattern(found(one)) == one.says


def test_the_smallest_example_is_shown() -> None:
    one = next(plant for plant in PLANTS if plant.check == "elementwise.subtract")
    says = (
        "subtract in binary16, nearest_even: 0x0000 (0) - 0x0000 (0) gave 0x8000, the definition gives 0x0000"
    )
    assert found(one).startswith(says)


def test_every_method_has_a_planted_fault() -> None:
    methods = {name for name, value in vars(Backend).items() if callable(value) and not name.startswith("_")}
    assert {one.check.split(".")[0] for one in PLANTS} == methods
