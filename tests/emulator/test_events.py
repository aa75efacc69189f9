"""Events: counted where asked for, by operation and scope, nested, and without touching results."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import fp16sim as fs
from fp16sim.emulator.elementwise import raised_flags
from fp16sim.emulator.flags import FLAG_NAMES
from fp16sim.emulator.rounding import MODES

HALVES = np.arange(0, 65536, 7, dtype=np.uint16).view(np.float16)


def test_each_event_once() -> None:
    with fs.count_events() as events:
        fs.multiply(300.0, 300.0)  # overflow, inexact
        fs.multiply(2.0**-14, 2.0**-14)  # underflow, inexact
        fs.multiply(2.0**-10, 2.0**-10)  # subnormal, exact
        fs.divide(1.0, 0.0)
        fs.divide(0.0, 0.0)
        fs.log(0.0)
        fs.add(1.0, 2.0**-11)  # inexact
    counts = {name: events.total(name) for name in FLAG_NAMES}
    assert counts == {
        "overflow": 1, "underflow": 1, "subnormal": 1, "invalid": 1, "divide_by_zero": 2, "inexact": 3,
    }  # fmt: skip
    assert (events.overflow, events.inexact, events.divide_by_zero) == (1, 3, 2)
    assert events.total("inexact", operation="multiply") == 2


def test_scopes_nest_and_sum() -> None:
    with fs.count_events() as events, fs.scope("net"):
        with fs.scope("layer1"):
            fs.exp(12.0)
        with fs.scope("layer10"):
            fs.exp([12.0, 13.0])
        fs.exp(20.0)
    assert events.total("overflow", scope="net/layer1") == 1
    assert events.total("overflow", scope="net/layer10") == 2
    assert events.total("overflow", scope="net") == 4
    assert events.as_dict()["net/layer10"]["exp"]["overflow"] == 2
    lines = events.table().splitlines()
    assert lines[0].split()[:3] == ["scope", "operation", "overflow"]
    assert lines[-1].split()[:2] == ["total", "4"]


def test_blocks_nest_and_the_same_block_counts_once_closed_no_more() -> None:
    with fs.count_events() as outer:
        fs.divide(1.0, 0.0)
        with fs.count_events() as inner:
            fs.divide(1.0, 0.0)
        fs.divide(1.0, 0.0)
    fs.divide(1.0, 0.0)
    assert (outer.divide_by_zero, inner.divide_by_zero) == (3, 1)


def test_blocks_of_other_threads_do_not_mix() -> None:
    seen = []

    def work() -> None:
        with fs.count_events() as mine:
            fs.divide(1.0, 0.0)
        seen.append(mine.divide_by_zero)

    with fs.count_events() as events:
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert seen == [1, 1, 1]
    assert events.divide_by_zero == 0


@pytest.mark.parametrize("mode", MODES)
def test_results_are_the_same_with_counting_and_without(mode: str) -> None:
    a, b = HALVES, HALVES[::-1]
    ones = np.ones((3, HALVES.size // 3), np.float16)
    calls = [
        lambda: fs.round_to(HALVES.astype(np.float32) * np.float32(0.999), rounding=mode, seed=3),
        lambda: fs.round_to(HALVES.astype(np.float64) / 3, rounding=mode, seed=3),
        lambda: fs.tanh(a, rounding=mode, seed=3),
        *(
            lambda name=name: getattr(fs, name)(a, b, rounding=mode, seed=3)
            for name in ("add", "subtract", "multiply", "divide")
        ),
        lambda: fs.fma(a, b, a, rounding=mode, seed=3),
        lambda: fs.matmul(ones, ones.T, "float16"),
        lambda: fs.sum(HALVES[:100], datapath="float16"),
    ]
    with np.errstate(invalid="ignore"):
        for call in calls:
            plain = call()
            with fs.count_events() as events:
                counted = call()
            assert np.array_equal(plain.view(np.uint16), counted.view(np.uint16))
            assert events.as_dict()


def test_a_sum_of_ones_stalls_and_is_counted() -> None:
    with fs.count_events() as events:
        assert fs.sum(np.ones(4096, np.float16), datapath="float16") == 2048
    assert events.inexact == 2048  # each one that 2048 swallows


def test_unknown_events_are_refused_by_name() -> None:
    with fs.count_events() as events, pytest.raises(AttributeError, match="events have overflow, underflow"):
        _ = events.overflows


def test_flags_of_each_element_and_what_is_refused() -> None:
    flags = raised_flags("divide", [1.0, 1.0, 0.0], [0.0, 3.0, 0.0])
    assert flags.tolist() == [
        1 << FLAG_NAMES.index(name) for name in ("divide_by_zero", "inexact", "invalid")
    ]
    with pytest.raises(ValueError, match="no flags of 'ad': did you mean 'add'"):
        raised_flags("ad", 1.0, 2.0)
    with pytest.raises(TypeError, match="add of 1 operands: it takes 2"):
        raised_flags("add", 1.0)
