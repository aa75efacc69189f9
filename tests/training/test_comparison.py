"""The comparison on the digits: what it must show, and that its bits never move."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fp16sim.training import comparison
from fp16sim.training.comparison import DEFAULT_RUNS, LOSS_FACTOR, accuracy, compare, compare_runs
from fp16sim.training.data import Split
from fp16sim.training.models import mlp
from fp16sim.training.results import RunResult, RunSpec

GOLDEN = Path(__file__).parent.parent / "golden" / "digits.json"


@pytest.fixture(scope="module")
def results():
    """The four default runs."""
    calls = []
    found = compare(progress=lambda spec, step, steps: calls.append((spec.name, step.step, steps)))
    expected = [(spec.name, step, 264) for spec in DEFAULT_RUNS for step in range(1, 265)]
    assert calls == expected
    return dict(zip(("float32", "unscaled", "static", "dynamic"), found, strict=True))


def test_unscaled_float16_does_not_learn_and_scale_8_does(results):
    reached = {name: result.accuracy for name, result in results.items()}
    assert reached["float32"] >= 0.965
    assert reached["unscaled"] <= 0.2
    assert abs(reached["static"] - reached["float32"]) <= 0.02
    assert abs(reached["dynamic"] - reached["float32"]) <= 0.02


def test_shares_of_the_float32_run(results):
    """Published for this recipe: zero .636, flushed .356, survive .008; for SSD .668, .31, .053."""
    shares = results["float32"].shares
    assert 0.58 <= shares.zero <= 0.67
    assert 0.30 <= shares.flushed <= 0.39
    assert 0.004 <= shares.survive <= 0.03
    kept = results["float32"].histogram.shares(8.0)
    assert kept.flushed < shares.flushed - 0.04


def test_each_row_shows_the_float32_gradients_at_its_scale(results):
    histogram = results["float32"].histogram
    for result in results.values():
        assert result.shares == histogram.shares(result.final_scale)
    flushed = [results[name].shares.flushed for name in ("unscaled", "static", "dynamic")]
    assert flushed[0] > flushed[1] + 0.04
    assert flushed[1] > flushed[2] + 0.2
    assert flushed[2] < 0.03


def test_each_run_lost_what_its_own_steps_saw(results):
    """The float16 runs measure flushing by rounding, not from a histogram; the two agree closely."""
    for name in ("static", "dynamic"):
        result = results[name]
        own = np.mean([step.flushed for step in result.history if step.applied])
        assert own == pytest.approx(result.histogram.shares(result.final_scale).flushed, abs=0.01)


def test_without_a_float32_run_or_a_power_of_two_the_steps_themselves_count():
    for specs in (
        [RunSpec("a", "mixed_float16", "static,scale=8")],
        [RunSpec("a", "float32", "none"), RunSpec("b", "mixed_float16", "static,scale=12")],
    ):
        result = compare(specs, epochs=1)[-1]
        assert result.shares.flushed == pytest.approx(np.mean([step.flushed for step in result.history]))


def test_histograms_hold_every_activation_gradient_of_the_applied_steps(results):
    outputs = 6 * 64 + 10
    for result in results.values():
        sizes = [56 if step.step % 22 == 0 else 64 for step in result.history if step.applied]
        assert result.histogram.total == sum(sizes) * outputs
        if (
            result.policy == "float32"
        ):  # the mean over steps differs from the pooled share by the short batches
            assert result.histogram.shares(1.0).flushed == pytest.approx(result.shares.flushed, abs=1e-3)


def cycles(history):
    """Give the skips before the first growth, and the number of growths that a later overflow took back."""
    grown, count, first = False, 0, None
    for before, after in zip(history, history[1:], strict=False):
        if after.scale > before.scale:
            grown = True
            first = first or after.step
        elif after.scale < before.scale and grown:
            grown, count = False, count + 1
    skips = sum(not step.applied for step in history if first is None or step.step < first)
    return skips, count


def test_the_dynamic_run_skips_settles_and_cycles(results):
    history = results["dynamic"].history
    skips, count = cycles(history)
    assert 3 <= skips <= 8
    assert count >= 2
    assert history[0].scale == 2.0**40
    for before, after in zip(history, history[1:], strict=False):
        assert before.applied is not before.overflow
        assert after.scale in ({before.scale / 2} if before.overflow else {before.scale, before.scale * 2})


def test_the_count_of_cycles_can_fail(results):
    assert cycles(results["static"].history) == (0, 0)
    assert cycles(results["dynamic"].history[:40])[1] == 0


def test_skips_are_counted(results):
    for result in results.values():
        assert result.skipped == sum(not step.applied for step in result.history)
        last = result.history[-1]
        assert result.final_scale in {last.scale, last.scale / 2, last.scale * 2}
    assert [results[name].skipped for name in ("float32", "unscaled", "static")] == [0, 0, 0]


def test_digests_are_golden(results):
    """Every bit of the four runs: parameters, losses, scales, shares. Any difference is a change of arithmetic."""
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    assert {name: result.digest for name, result in results.items()} == golden["digests"]


def test_results_survive_json(results):
    for result in results.values():
        restored = RunResult.from_json(result.to_json())
        assert restored.histogram == result.histogram
        assert repr(replace(restored, histogram=result.histogram)) == repr(result)  # NaN equals NaN here


def test_results_come_one_by_one():
    seen = []
    specs = [RunSpec("a", "float32", "none"), RunSpec("b", "mixed_float16", "static,scale=8")]
    found = compare_runs(specs, epochs=1, progress=lambda spec, step, steps: seen.append(spec.name))
    assert seen == []
    assert next(found).name == "a"
    assert set(seen) == {"a"}


def test_the_loss_factor_changes_only_exponents_of_a_float32_run():
    spec = [RunSpec("a", "float32", "none")]
    plain, small = (compare(spec, epochs=1, loss_factor=factor)[0] for factor in (1.0, LOSS_FACTOR))
    assert [step.loss for step in plain.history] == [step.loss for step in small.history]
    shifted = {key + 17: count for key, count in small.histogram.counts.items()}
    assert shifted == plain.histogram.counts


@pytest.mark.parametrize(
    ("runs", "options", "message"),
    [
        ([RunSpec("a", "float23", "none")], {}, "did you mean 'float32'"),
        ([DEFAULT_RUNS[0], RunSpec("a", "float32", "statik")], {}, "did you mean 'static'"),
        (DEFAULT_RUNS, {"epochs": 0}, "epochs=0"),
        (DEFAULT_RUNS, {"batch_size": 5000}, "size=5000"),
        (DEFAULT_RUNS, {"seed": -1}, "seed=-1"),
        (DEFAULT_RUNS, {"loss_factor": 0.0}, "loss_factor=0.0"),
    ],
)
def test_everything_is_checked_before_the_first_run(runs, options, message):
    with pytest.raises(ValueError, match=message):
        compare_runs(runs, **options)


def test_nan_is_never_a_correct_label():
    model = mlp()
    model.parameters()[0]._array[:] = math.nan
    split = Split(np.ones((4, 64), np.float32), np.zeros(4, np.int64))
    assert accuracy(model, split, "float32") == 0


def test_default_runs_name_policies_and_scalers():
    assert [(spec.policy, spec.scaler.split(",")[0]) for spec in DEFAULT_RUNS] == [
        ("float32", "none"),
        ("mixed_float16", "none"),
        ("mixed_float16", "static"),
        ("mixed_float16", "torch"),
    ]
    assert math.frexp(comparison.LOSS_FACTOR) == (0.5, -16)
