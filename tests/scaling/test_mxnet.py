"""MXNet's rule. Traces recorded from mxnet are replayed in test_golden_traces.py."""

import math

from fp16sim_scaler_walks import check_refusals, decisions, walk

from fp16sim import scaling
from fp16sim.scaling import MxnetScaler


def test_trace():
    scales = walk(MxnetScaler(scale_seq_len=2), "oo...o.")[1]
    assert scales == [65536, 32768, 16384, 16384, 32768, 32768, 16384]


def test_one_event_halves_twice_in_a_closed_loop():
    """Gradients overflow at 2^10 and above: the step after the overflow still has the scale that overflowed."""
    scaler, used = MxnetScaler(loss_scale=2.0**10), []
    for _ in range(5):
        used.append(scaler.scale)
        scaler, _ = walk(scaler, "o" if scaler.scale >= 2**10 else ".")
    assert used == [1024, 1024, 512, 256, 256]


def test_the_divisor_is_the_scale_that_multiplied():
    assert [d.divide_by for d in decisions(MxnetScaler(scale_seq_len=1), "...")] == [
        2.0**16,
        2.0**16,
        2.0**17,
    ]


def test_bounds_and_odd_windows():
    assert walk(MxnetScaler(loss_scale=2.0**24, scale_seq_len=1), "...")[1] == [2.0**24] * 3
    assert walk(MxnetScaler(loss_scale=math.inf, scale_seq_len=1), "..")[1] == [math.inf, 2.0**24]
    assert walk(MxnetScaler(scale_seq_len=0), "oo.")[1] == [2.0**16, 2.0**17, 2.0**18]
    assert walk(MxnetScaler(scale_seq_len=-1), "....")[1] == [2.0**16] * 4


def test_what_stops():
    scaler = MxnetScaler(loss_scale=2.0**-1073)
    scaler, scales = walk(scaler, "ooo")
    assert scales == [2.0**-1073, 2.0**-1074, 0.0]
    assert "ZeroDivisionError" in decisions(scaler, "o")[0].stop
    for power, stops in ((-128, True), (-127, False), (126, False), (127, True)):
        first, second = (decisions(MxnetScaler(loss_scale=2.0**power), letter)[0] for letter in ".o")
        assert ((first.stop is not None), second.stop) == (stops, None), power


def test_nothing_is_saved():
    scaler, _ = walk(MxnetScaler(scale_seq_len=3), "o..o.")
    assert scaler.framework_state() == {}
    assert scaler.load_framework_state({}) == MxnetScaler(scale_seq_len=3)
    for cut in range(6):
        before, _ = walk(MxnetScaler(scale_seq_len=3), "o..o."[:cut])
        assert scaling.from_json(before.to_json()) == before


def test_refusals():
    check_refusals(MxnetScaler(), {"loss_scale": "8"}, {"scale_seq_len": 2.5}, {"max_loss_scale": None})
