"""The kit for backends: the CPU backend and the definition pass; what is missing is said, and bad input refused."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import SkipTest

import numpy as np
import pytest

from fp16sim import as_format
from fp16sim.emulator.backends.base import Backend, Outcome
from fp16sim.emulator.backends.cpu import CpuBackend
from fp16sim.emulator.formats import Format, bfloat16, binary16, binary32, binary64, e4m3
from fp16sim.testing import BackendCheckError, Fault, backend_checks, check_backend
from fp16sim.testing.backend import inputs, vectors, words

NAMES = [name for name, _ in backend_checks()]


@pytest.mark.parametrize("name", NAMES)
def test_the_cpu_backend_equals_the_definition(name: str) -> None:
    assert dict(backend_checks())[name](CpuBackend(), examples=4) == ""


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_cpu_backend_equals_the_definition_on_many_inputs(name: str) -> None:
    assert dict(backend_checks())[name](CpuBackend(), examples=60) == ""


def test_the_definition_equals_itself() -> None:
    formats = ("binary16", Format("two_bits", 2, 2))
    report = check_backend(Backend, examples=2, formats=formats, datapaths=["float16", "a100"])
    assert {verdict.status for verdict in report.verdicts} <= {"passed", "not applicable"}
    # It knows no float32 here.
    assert [v.check for v in report.verdicts if v.status != "passed"] == ["real_function"]


def test_every_method_of_a_backend_has_a_check() -> None:
    methods = {name for name, value in vars(Backend).items() if callable(value) and not name.startswith("_")}
    assert {name.split(".")[0] for name in NAMES} == methods


class Partial:
    """No subclass: two methods, one of which does little, another nothing."""

    formats = (binary16,)

    def relu(self, bits: Any, fmt: Format) -> Any:
        return Backend().relu(bits, fmt)

    def elementwise(self, operation: str, operands: Any, fmt: Format, rounding: Any, *rest: Any) -> Outcome:
        if operation != "add" or rounding.mode == "stochastic":
            raise NotImplementedError
        return Backend().elementwise(operation, operands, fmt, rounding, *rest)

    def maximum_of(self, a: Any, fmt: Format) -> Any:
        raise NotImplementedError


def test_what_a_backend_does_not_do_is_never_passed() -> None:
    report = check_backend(Partial(), examples=2)
    status = {verdict.check: verdict.status for verdict in report.verdicts}
    assert {name for name in status if status[name] == "passed"} == {"relu", "elementwise.add"}
    assert set(status.values()) == {"passed", "not applicable"}
    what = {verdict.check: verdict.what for verdict in report.verdicts}
    assert what["matmul"] == "the backend has no method 'matmul'"
    assert what["maximum_of"] == what["elementwise.fma"] == "NotImplementedError"
    assert what["elementwise.add"].startswith("not done by the backend: add in binary16, stochastic")


def test_what_does_no_flags_is_held_to_all_else() -> None:
    class NoFlags(Partial):
        def elementwise(self, *arguments: Any) -> Outcome:
            if len(arguments) > 5 and arguments[5]:
                raise NotImplementedError
            return super().elementwise(*arguments)

    report = check_backend(NoFlags, methods=["elementwise.add"], examples=2)
    says = "not done by the backend: add in binary16, nearest_even, watch='counts'; "
    assert report.verdicts[0].what.startswith(says)

    class AndWrong(NoFlags):
        def elementwise(self, *arguments: Any) -> Outcome:
            outcome = super().elementwise(*arguments)
            return outcome._replace(bits=outcome.bits ^ np.uint16(len(arguments) == 7))

    with pytest.raises(BackendCheckError, match=r"nearest_even, with an array to write into: .* gave 0x"):
        check_backend(AndWrong, methods=["elementwise.add"], examples=2)


def test_an_error_comes_with_its_place_and_goes_to_another_process_and_back() -> None:
    backend = Odd()
    backend.given = lambda bits: 1 // 0
    with pytest.raises(
        BackendCheckError, match=r"ZeroDivisionError: .* \(.*test_backend\.py, line"
    ) as caught:
        check_backend(backend, methods=["relu"])
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.report) == (str(caught.value), caught.value.report)


def test_a_check_by_itself_raises_or_skips() -> None:
    checks = dict(backend_checks())
    with pytest.raises(SkipTest, match="no method 'matmul'"):
        checks["matmul"](Partial)

    class Negative(Partial):
        def relu(self, bits: Any, fmt: Format) -> Any:
            return bits

    with pytest.raises(
        Fault, match=r"relu in binary16: 0x8000 \(-0\) gave 0x8000, the definition gives 0x0000"
    ):
        checks["relu"](Negative)


def test_the_backend_of_the_guide_fails_as_it_says_there_and_passes_as_it_says_there() -> None:
    guide = Path(__file__, "../../../docs/testing.md").resolve().read_text()
    (source,) = re.findall(r"(?s)```python\n# my_backend.py\n(.*?)```", guide)
    (shown,) = re.findall(r"BackendCheckError: (1 of 1 check failed\n.*)\n", guide)

    def made(source: str) -> Any:
        names: dict[str, Any] = {}
        exec(source, names)
        return names["MyBackend"]

    only: Any = {"methods": ["matmul"], "datapaths": ["float32"]}
    with pytest.raises(BackendCheckError) as caught:
        check_backend(made(source), **only)
    assert str(caught.value) == shown
    mended = re.sub(r"\b([ab])\.view\(np\.float16\)", r"\1.view(np.float16).astype(np.float32)", source)
    (verdict,) = check_backend(made(mended), **only).verdicts
    assert verdict.status == "passed"
    assert verdict.what.startswith(
        "not done by the backend: matmul of binary16 by datapath 'float32' to binary"
    )


class Odd(Partial):
    """What a method gives is not of the right kind."""

    given: Any = None

    def relu(self, bits: Any, fmt: Format) -> Any:
        return self.given(Backend().relu(bits, fmt))


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (lambda bits: bits.tolist(), "gave a list|gave a int|it gave a"),
        (
            lambda bits: bits.astype(np.uint32),
            "gave uint32 of shape .*, the definition gives uint16 of shape",
        ),
        (lambda bits: bits.reshape(-1)[:0], "gave uint16 of shape"),
        (lambda bits: 1 // 0, "raised ZeroDivisionError: "),
    ],
)
def test_results_of_another_kind_are_faults(given: Any, says: str) -> None:
    backend = Odd()
    backend.given = given
    with pytest.raises(BackendCheckError, match=says):
        check_backend(backend, methods=["relu"])


def test_flags_and_counts_that_nobody_asked_for_are_faults() -> None:
    class Always(Partial):
        def elementwise(self, *arguments: Any) -> Outcome:
            return Backend().elementwise(*arguments[:5], "flags")

    with pytest.raises(BackendCheckError, match="gave flags that nobody asked for"):
        check_backend(Always, methods=["elementwise.add"])


def test_expected_failures() -> None:
    known = {"relu": "it is new"}
    with pytest.raises(BackendCheckError, match="relu: it was expected to fail"):
        check_backend(Partial, methods=["relu"], expected_failures=known)
    backend = Odd()
    backend.given = lambda bits: bits ^ np.uint16(1)
    report = check_backend(backend, methods=["relu"], expected_failures=known)
    assert (report.verdicts[0].status, report.verdicts[0].reason) == ("failed as expected", "it is new")


def test_bad_input_is_refused() -> None:
    for options, says in (
        ({"methods": ["matmull"]}, "unknown method 'matmull': did you mean 'matmul'?"),
        ({"formats": ["binry16"]}, "unknown format 'binry16'"),
        ({"datapaths": ["a1000"]}, "unknown datapath 'a1000'"),
        ({"expected_failures": {"rellu": "new"}}, "unknown check 'rellu': did you mean 'relu'?"),
        ({"examples": 0}, "examples=0"),
    ):
        with pytest.raises(ValueError, match=says.replace("?", r"\?")):
            check_backend(Backend, **options)
    with pytest.raises(TypeError, match="a str is no backend"):
        check_backend("cpu")
    with pytest.raises(TypeError, match="progress=3: pass what takes a Verdict"):
        check_backend(Partial, progress=3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected_failures is a list"):
        check_backend(Partial, expected_failures=["relu"])  # type: ignore[arg-type]


def test_an_expected_failure_of_a_check_that_does_not_run_is_refused() -> None:
    says = "matmul is expected to fail and does not run: add 'matmul' to methods, or take it out"
    with pytest.raises(ValueError, match=says):
        check_backend(Partial, methods=["relu"], expected_failures={"matmul": "issue 12"})
    with pytest.raises(ValueError, match="relu is expected to fail for the reason ' ': say why"):
        check_backend(Partial, methods=["relu"], expected_failures={"relu": " "})


def test_progress_is_given_each_verdict_as_it_is_found() -> None:
    seen: list[Any] = []

    class Told(Partial):
        def maximum_of(self, a: Any, fmt: Format) -> Any:
            assert [verdict.check for verdict in seen] == ["elementwise.add"]
            return super().maximum_of(a, fmt)

    report = check_backend(
        Told, examples=1, methods=["elementwise.add", "maximum_of", "relu"], progress=seen.append
    )
    assert tuple(seen) == report.verdicts
    assert [verdict.status for verdict in seen] == ["passed", "not applicable", "passed"]
    backend = Odd()
    backend.given = lambda bits: bits ^ np.uint16(1)
    with pytest.raises(BackendCheckError) as caught:
        check_backend(backend, methods=["relu", "maximum_of"], progress=seen.append)
    assert tuple(seen[3:]) == caught.value.report.verdicts


_WITHOUT = """
import sys

sys.modules["hypothesis"] = None
import fp16sim as fs
from fp16sim.emulator.backends.base import Backend

print(fs.testing.check_backend(Backend, methods=["relu"]).verdicts[0].status)
"""


def test_a_backend_is_tested_without_hypothesis() -> None:
    done = subprocess.run([sys.executable, "-c", _WITHOUT], capture_output=True, text=True, check=True)
    assert done.stdout == "passed\n"


def test_draws_are_the_same_at_every_run() -> None:
    draw = inputs.Draw(2024)
    drawn = [draw(inputs.encodings(binary16)) for _ in range(6)]
    assert [f"{bits:#06x}" for bits in drawn] == ["0xba3e", "0x3c03", "0x281a", "0x7e00", "0xc527", "0xbc01"]
    draw = inputs.Draw(0)
    assert {draw("abc") for _ in range(30)} == set("abc")


@pytest.mark.parametrize("fmt", [binary16, bfloat16, binary32, binary64, e4m3, Format("two_bits", 2, 2)])
def test_inputs_are_encodings_and_edges_come_often(fmt: Format) -> None:
    table = inputs.encodings(fmt)
    assert all(0 <= bits < 2 * fmt.sign_bit for bits in table)
    assert table[:2] == [0, fmt.sign_bit]
    edges = {0, 1, fmt.max_bits, fmt.nan_bits} | ({fmt.inf_bits} if fmt.inf_bits else set())
    for edge in edges:
        share = sum(bits & (fmt.sign_bit - 1) == edge for bits in table) / len(table)
        assert share > 0.01, hex(edge)
    subnormal = sum(0 < bits & (fmt.sign_bit - 1) < 1 << fmt.fraction_bits for bits in table)
    assert subnormal / len(table) > 0.05


def test_half_of_what_is_converted_lies_at_ties_of_the_target() -> None:
    half = as_format("binary16")
    values = set(binary64.decode(np.array(inputs.sources(binary64, half), np.uint64)).tolist())
    assert {65504.0, 65520.0, 65536.0, 2.0**-25, 1 + 2.0**-11} <= values


@pytest.mark.parametrize("layout", vectors.LAYOUTS)
def test_layouts_keep_the_numbers(layout: str) -> None:
    a = np.arange(24, dtype=np.uint16).reshape(2, 3, 4)
    assert np.array_equal(vectors.laid(a, layout), a)
    same = np.repeat(a[:1, :1], 3, 1)
    assert np.array_equal(vectors.laid(same, layout), same)
    assert (0 in vectors.laid(same, layout).strides) == (layout == "repeated")


def test_messages_write_what_they_need() -> None:
    assert words.listed(list("abcdef")) == "a, b, c, d, ... (6 in all)"
    assert words.listed(list("aaaaba"), " + ") == "a [4 times] + b + a"
    assert words.counted([0, 1, 0, 0, 0, 2, 3]) == "1 underflow, 2 inexact, 3 swamped"
