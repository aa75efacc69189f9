"""fairseq's and metaseq's rules: tolerance, threshold, the error at the minimum and what it leaves, the window."""

import numpy as np
import pytest
from fp16sim_scaler_traces import FINITE, OVERFLOW, walk

from fp16sim import scaling
from fp16sim.scaling import FairseqScaler, MetaseqScaler, observe


def test_recorded_traces():
    assert walk(FairseqScaler(scale_window=2), "oo...o.")[1] == [16384, 8192, 8192, 16384, 16384, 8192, 8192]
    assert walk(MetaseqScaler(scale_window=2), "oo...o.")[1] == [2, 1, 2, 4, 4, 2, 2]


def test_windows_are_exact():
    scales = walk(FairseqScaler(init_scale=1.0, scale_window=3), "." * 7 + "o" + "." * 3)[1]
    assert scales == [1, 1, 2, 2, 2, 4, 4, 2, 2, 2, 4]
    assert walk(FairseqScaler(init_scale=1.0, scale_window=-3), "." * 6)[1] == [1, 1, 2, 2, 2, 4]


def test_a_window_of_zero_stops_at_a_finite_step():
    for kind in (FairseqScaler, MetaseqScaler):
        scaler, decision = kind(scale_window=0).update(FINITE)
        assert decision.stop == "ZeroDivisionError: modulo by the scale window, which is 0"
        assert scaler == kind(scale_window=0)
    assert walk(FairseqScaler(scale_window=0), "oo")[1] == [16384, 8192]
    assert walk(MetaseqScaler(scale_window=0), "o..")[0].current_window == 4  # an overflow makes it 1


def test_tolerance_is_a_share_of_the_steps_since_the_last_change():
    scaler = FairseqScaler(init_scale=64.0, tolerance=0.5, scale_window=1000)
    # 1/4 and 2/5 are below one half, 3/6 is not; then each overflow alone is the whole of one step.
    assert walk(scaler, "...ooo")[1] == [64, 64, 64, 64, 64, 32]
    assert walk(scaler, "...oooo.o")[1][6:] == [16, 16, 8]


def test_the_threshold_is_a_floor_where_overflows_are_skipped_for_ever():
    _, scales = walk(FairseqScaler(init_scale=4.0, threshold=1.5), "o" * 40)
    assert scales == [2] + [1.5] * 39


def test_the_minimum_stops_and_the_next_overflow_after_that_divides_by_zero():
    scaler = FairseqScaler(init_scale=2.0, min_loss_scale=0.5)
    scaler, _ = walk(scaler, "o")
    stopped, decision = scaler.update(OVERFLOW)
    assert (decision.apply, decision.stop) == (False, "FloatingPointError: minimum loss scale reached (0.5)")
    assert (stopped.scale, stopped.iteration) == (1, 1)  # restored; not advanced
    assert (stopped.last_overflow, stopped.last_rescale, stopped.overflows) == (1, 1, 0)  # moved all the same
    after, decision = stopped.update(OVERFLOW)
    assert decision.stop.startswith("ZeroDivisionError: the share of overflows")
    assert (after.scale, after.iteration, after.overflows) == (1, 1, 1)
    assert walk(stopped, "...")[0].iteration == 4  # finite steps go on


def test_twelve_halvings_as_reported():
    """fairseq#512: from .25 to 2^-13, then the minimum of 1e-4."""
    scaler, scales = walk(FairseqScaler(init_scale=0.25), "o" * 11)
    assert scales[-1] == 2.0**-13
    assert scaler.update(OVERFLOW)[1].stop is not None


def test_a_minimum_without_lowering_stops_as_well():
    scaler = FairseqScaler(init_scale=0.5, min_loss_scale=0.5, tolerance=1.0)
    scaler, _ = walk(scaler, "..")
    following, decision = scaler.update(OVERFLOW)
    assert decision.stop is not None
    assert (following.last_rescale, following.overflows, following.iteration) == (-1, 1, 2)


def test_metaseq_shrinks_the_window_at_the_minimum():
    scaler, scales = walk(MetaseqScaler(init_scale=2.0**-4, scale_window=256), "o" * 10)
    assert scales == [2.0**-5] * 10
    assert scaler.current_window == 1
    scaler, scales = walk(scaler, "....")
    assert scales == [2.0**-4, 2.0**-3, 2.0**-3, 2.0**-2]  # eightfold in four steps
    assert scaler.current_window == 8


def test_metaseq_grows_the_window_with_the_scale():
    """metaseq#4: the higher the scale, the longer it stays."""
    _, scales = walk(MetaseqScaler(init_scale=1.0, scale_window=2), "." * 17)
    assert scales == [1, 2, 2, 4, 4, 4, 4, 8, 8, 8, 8, 8, 8, 8, 8, 16, 16]


@pytest.mark.parametrize("kind", [FairseqScaler, MetaseqScaler])
def test_only_the_scale_is_saved(kind):
    """metaseq#3: a restart changes the history."""
    history, fresh = "o..o...o.oo.......ooo...", kind(init_scale=1024.0, scale_window=3)
    whole = walk(fresh, history)[1]
    lost = 0
    for cut in range(len(history)):
        scaler, _ = walk(fresh, history[:cut])
        assert walk(scaling.from_json(scaler.to_json()), history[cut:])[1] == whole[cut:]
        assert scaler.framework_state() == {"loss_scale": scaler.scale}
        restored = fresh.load_framework_state(scaler.framework_state())
        lost += walk(restored, history[cut:])[1] != whole[cut:]
    assert lost > 0


@pytest.mark.parametrize("kind", [FairseqScaler, MetaseqScaler])
def test_the_norm_is_tested(kind):
    """fairseq#4555: finite gradients whose norm is beyond float32 count as an overflow."""
    found = observe(kind(init_scale=4.0), [np.float32([2e19]), None, np.float16([8.0])])
    assert (found.overflow, found.nan, found.amax) == (True, False, float(np.float32(2e19)) / 4)
    assert not observe(kind(), [np.float32([1e19])]).overflow
    assert observe(kind(), [np.float16([np.nan, 1.0])]).nan
    assert not observe(kind(), []).overflow
    # a scale below 1 multiplies the norm past float32: 2^60 * 2^70
    assert observe(kind(init_scale=2.0**-70), [np.float32([2.0**60])]).overflow
    assert not observe(kind(init_scale=2.0**-67), [np.float32([2.0**60])]).overflow


@pytest.mark.parametrize("kind", [FairseqScaler, MetaseqScaler])
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"init_scale": 0.0}, "another number than 0"),
        ({"scale_factor": 0.0}, "above 0"),
        ({"scale_window": 2.5}, "an integer"),
        ({"threshold": "1"}, "a finite number"),
    ],
)
def test_refusals(kind, options, message):
    with pytest.raises(ValueError, match=message):
        kind(**options)
    with pytest.raises(ValueError, match="without 'loss_scale'"):
        kind().load_framework_state({})
